// staging.h: copies and loops of the host on arrays of any device.
//
// Where the host can touch the memory these are the functions of kernels.h. Elsewhere bytes that lie as they
// should are copied by the device's backend; what else there is to do, the host does on a copy of the bytes
// that the array spans, which it brings back: right for every geometry and type, slow, and counted
// (DeviceBackend::staged). In an operation of a device, what only writes there is enqueued on its stream;
// else each has been done when it returns. Ordering is the caller's (the engine's).
#pragma once

#include <memory>

#include "engine/device_kind.h"
#include "tensor/kernels.h"

namespace weft {

// Memory of the host with the bytes that an array of a device spans.
class Stage {
 public:
  // reads: the elements are brought; else they are undefined, and bytes between them are brought, if there
  // are any.
  Stage(const View& x, Device device, bool reads);
  // The array in the host's memory.
  const View& view() const noexcept { return staged_; }
  // Brings all bytes back.
  void store();

 private:
  DeviceBackend* const backend_;
  const int index_;
  char* first_ = nullptr;  // of the device
  size_t bytes_ = 0;
  std::unique_ptr<char[]> memory_;
  View staged_;
};

// to[i] = convert(from[i]): see copy.
void copy_elements(const View& to, Device to_device, const View& from, Device from_device);
// to[i] = convert(value).
void fill_elements(const View& to, Device device, Scalar value);
// One element.
Scalar load_element(const char* element, DType dtype, Device device);

// write(view) on an array whose elements it writes without reading them.
template <class F>
void write_elements(const View& to, Device device, F&& write) {
  if (!hidden_memory_of(device)) [[likely]]
    return write(to);
  Stage stage(to, device, false);
  write(stage.view());
  stage.store();
}

}  // namespace weft
