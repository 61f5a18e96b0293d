// staging.h: copies and loops of the host on arrays of any device.
//
// Where the host can touch the memory these are the functions of kernels.h. Elsewhere bytes that lie as they
// should are copied by the device's backend. What else there is to do is done by the device's own loops, in
// an operation of the device (run_array_loop); else the host does it on a copy of the bytes that the array
// spans, which it brings back: right for every geometry and type, slow, and counted (DeviceBackend::staged).
// In an operation of a device, what only writes there is enqueued on its stream; else each has been done when
// it returns. Ordering is the caller's (the engine's).
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "engine/device_kind.h"
#include "tensor/kernels.h"

namespace weft {

// Enqueues a loop of weft.kernels.gpu.arrays on the context's stream; set where there is a compiler for them.
// operands: what it reads, then what it writes.
using RunArrayLoop = void (*)(const char* what, std::span<const View> operands, const uint64_t* parameters,
                              const RunContext& context);
inline std::atomic<RunArrayLoop> run_array_loop{nullptr};
// Whether operations of a device have such loops.
inline bool has_array_loops(Device device) noexcept {
  return hidden_memory_of(device) && run_array_loop.load(std::memory_order_acquire);
}
// Whether one array is the bytes of the other: both dense, in the same order.
bool same_bytes(const View& to, const View& from) noexcept;

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

// By a loop of the device. False: it has none, or the thread runs no operation of its streams.
bool run_by_loop(const char* what, std::span<const View> operands, Device device, const uint64_t* parameters);

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
