// device_kind.h: the kinds of devices that there are, and the functions of one other than cpu.
//
// Kinds are added while the process runs and never taken away. Adding is serialised by a lock; reading takes
// none: an entry is filled before the number of kinds that shows it is stored (release), and a thread that
// reads it has loaded that number (acquire). cpu and gpu have their numbers from the start; gpu has no
// backend until one is added under its name.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/operation.h"

namespace weft {

// One kind of device. Its arrays are in memory that the host can address: what allocates and copies them is
// the host's.
class DeviceBackend {
 public:
  explicit DeviceBackend(std::string name) : name_(std::move(name)) {}
  virtual ~DeviceBackend() = default;
  const std::string& name() const noexcept { return name_; }
  // RunContext::stream of what runs on a queue of a device: called once for each, by the thread that pushes
  // to it first. Null: it has none.
  virtual void* stream(int index, QueueKind queue) {
    static_cast<void>(index), static_cast<void>(queue);
    return nullptr;
  }

  // What has been done on devices of this kind, and brought to and from them.
  std::atomic<uint64_t> kernels{0}, copies_in{0}, copies_out{0}, bytes_in{0}, bytes_out{0};

 private:
  const std::string name_;
};

// Raises ValueError if there is a kind of that name, or no room for one more.
DeviceKind add_device_kind(std::unique_ptr<DeviceBackend> backend);
std::optional<DeviceKind> find_device_kind(std::string_view name) noexcept;
DeviceBackend* backend_of(DeviceKind kind) noexcept;  // null: cpu, or none was added

// A number for each device that can be used, counted by kinds; less than device_numbers().
inline int device_number(Device device) noexcept {
  return static_cast<int>(device.kind) * kDevicesOfKind + device.index;
}
int device_numbers() noexcept;

// Between devices of two kinds: counted by the backends.
void count_copy(Device to, Device from, uint64_t bytes) noexcept;

}  // namespace weft
