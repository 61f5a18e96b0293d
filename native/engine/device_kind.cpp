#include "engine/device_kind.h"

#include <algorithm>
#include <array>

#include "engine/error.h"
#include "engine/fork.h"
#include "engine/pages.h"

namespace weft {
namespace {

struct Kinds {
  std::array<std::atomic<DeviceBackend*>, kDeviceKinds> backends{};  // never destroyed: devices stay
  // How many numbers may have a backend: 1, cpu, until one is added.
  std::atomic<int> used{1};
};
constinit Kinds kinds;

[[noreturn]] void host_memory_only(const std::string& kind) {
  throw DeviceError(kind + ": the kind has memory of the host, and neither copies nor code of its own");
}

}  // namespace

Ticket DeviceBackend::record(int) { host_memory_only(name_); }
Ticket DeviceBackend::upcoming(int) { host_memory_only(name_); }
bool DeviceBackend::has_run(Ticket) noexcept { return true; }
bool DeviceBackend::wait(Ticket, const GivesUp&) { host_memory_only(name_); }
void DeviceBackend::order(int, Ticket) { host_memory_only(name_); }
std::unique_ptr<StreamMark> DeviceBackend::mark(int) { host_memory_only(name_); }
std::string DeviceBackend::stream_name(int) { host_memory_only(name_); }
void DeviceBackend::reset(int) { host_memory_only(name_); }
void DeviceBackend::order_other(int, void*, Ticket) { host_memory_only(name_); }
std::unique_ptr<Pages> DeviceBackend::pages(int) { host_memory_only(name_); }
void DeviceBackend::copy_in(int, char*, const void*, size_t) { host_memory_only(name_); }
void DeviceBackend::copy_out(int, void*, const char*, size_t) { host_memory_only(name_); }
void DeviceBackend::copy_within(int, char*, int, const char*, size_t) { host_memory_only(name_); }
const void* DeviceBackend::fetch_later(int, const char*, size_t) { return nullptr; }
void DeviceBackend::copy_fetched(int, char*, const void*, size_t) {
  throw std::logic_error("nothing was fetched");
}
void DeviceBackend::forget(int, const void*) noexcept {}
bool DeviceBackend::fill(int, char*, uint32_t, size_t, size_t) { return false; }
std::string DeviceBackend::chip(int) { host_memory_only(name_); }
int DeviceBackend::processors(int) { host_memory_only(name_); }
std::unique_ptr<DeviceFunction> DeviceBackend::load(int, std::string_view, const char*, DeviceFunction) {
  host_memory_only(name_);
}
void DeviceBackend::launch(int, void*, const DeviceFunction&, unsigned, const uint64_t*) {
  host_memory_only(name_);
}

DeviceBackend& backend_of_stream(int stream) noexcept {
  constexpr int kStreamsOfKind = kDevicesOfKind * Ticket::kStreamsOfDevice;
  return *backend_of(static_cast<DeviceKind>(stream / kStreamsOfKind));
}

DeviceBackend* require_backend(Device device) {
  if (device.kind == DeviceKind::cpu) return nullptr;
  DeviceBackend* backend = backend_of(device.kind);
  if (!backend && device.kind == DeviceKind::gpu)
    if (auto* const open = open_gpu_backend.load(std::memory_order_acquire)) try {
        backend = open();
      } catch (const DeviceError& error) {
        throw DeviceError("device " + to_string(device) + " is not available: " + error.what());
      }
  if (!backend)
    throw DeviceError("device " + to_string(device) + " is not available: the kind was not added");
  backend->require(device.index);
  return backend;
}

DeviceKind add_device_kind(std::unique_ptr<DeviceBackend> backend) {
  const std::lock_guard guard(lasting_fork_mutex<Kinds>());
  if (find_device_kind(backend->name()))
    throw ValueError("device: there is a kind " + backend->name() + " already");
  const int used = kinds.used.load(std::memory_order_relaxed);
  const int number = backend->name() == "gpu" ? 1 : std::max(used, 2);
  if (number == kDeviceKinds)
    throw ValueError("device: " + std::to_string(kDeviceKinds) + " kinds at most, no room for " +
                     backend->name());
  kinds.backends[static_cast<size_t>(number)].store(backend.release(), std::memory_order_release);
  kinds.used.store(std::max(used, number + 1), std::memory_order_release);
  return static_cast<DeviceKind>(number);
}

std::optional<DeviceKind> find_device_kind(std::string_view name) noexcept {
  if (name == "cpu") return DeviceKind::cpu;
  for (int k = 1, used = kinds.used.load(std::memory_order_acquire); k < used; ++k) {
    const DeviceBackend* backend = backend_of(static_cast<DeviceKind>(k));
    if (backend && backend->name() == name) return static_cast<DeviceKind>(k);
  }
  return std::nullopt;
}

DeviceBackend* backend_of(DeviceKind kind) noexcept {
  return kind == DeviceKind::cpu ? nullptr
                                 : kinds.backends[static_cast<size_t>(kind)].load(std::memory_order_acquire);
}

int device_numbers() noexcept { return kinds.used.load(std::memory_order_acquire) * kDevicesOfKind; }

void count_copy(Device to, Device from, uint64_t bytes) noexcept {
  if (to.kind == from.kind) return;
  if (DeviceBackend* backend = backend_of(to.kind)) {
    backend->copies_in.fetch_add(1, std::memory_order_relaxed);
    backend->bytes_in.fetch_add(bytes, std::memory_order_relaxed);
  }
  if (DeviceBackend* backend = backend_of(from.kind)) {
    backend->copies_out.fetch_add(1, std::memory_order_relaxed);
    backend->bytes_out.fetch_add(bytes, std::memory_order_relaxed);
  }
}

const char* kind_name(DeviceKind kind) noexcept {
  if (kind == DeviceKind::cpu) return "cpu";
  const DeviceBackend* backend = backend_of(kind);
  return backend ? backend->name().c_str() : "gpu";
}

std::string to_string(Device device) { return kind_name(device.kind) + (':' + std::to_string(device.index)); }

}  // namespace weft
