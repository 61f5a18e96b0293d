#include "storage/runtime.h"

namespace weft {

Runtime& Runtime::get() noexcept {
  static auto* runtime = new Runtime;  // never destroyed, see `pool`
  return *runtime;
}

void Runtime::set_engine(std::shared_ptr<Engine> engine) { engine_ = std::move(engine); }

Engine& Runtime::engine() const {
  if (!engine_) throw EngineMisuse("arrays need the process's engine; import weft before using weft._core");
  return *engine_;
}

size_t Runtime::index_of(Device device) {
  if (device.kind != DeviceKind::cpu || device.index < 0 || device.index >= kDevices)
    throw DeviceError((device.kind == DeviceKind::cpu ? "cpu:" : "gpu:") + std::to_string(device.index) +
                      " has no memory; cpu:0 to cpu:63 have");
  return static_cast<size_t>(device.index);
}

Generator& Runtime::devices_generator(Device device) { return generators_[index_of(device)]; }

Generator& Runtime::generator(Device device) { return own_stream ? *own_stream : devices_generator(device); }

void Runtime::seed_all(uint64_t seed) {
  for (size_t i = 0; i < kDevices; ++i) generators_[i].set_state({seed, i, 0});
}

Pool& Runtime::pool(Device device) {
  auto& slot = pools_[index_of(device)];
  if (Pool* pool = slot.load(std::memory_order_acquire)) return *pool;
  const std::lock_guard guard(mutex_);
  if (Pool* pool = slot.load(std::memory_order_acquire)) return *pool;
  auto* made = new Pool("cpu:" + std::to_string(device.index), {.check = check_});
  made->set_release_more([this] {  // operations that are pending hold memory, too
    if (Engine::on_engine_thread()) return false;
    engine().wait_until_idle();
    return true;
  });
  slot.store(made, std::memory_order_release);
  return *made;
}

int Runtime::used_devices() const noexcept {
  int used = kDevices;
  while (used > 0 && !pools_[static_cast<size_t>(used - 1)].load(std::memory_order_acquire)) --used;
  return used;
}

namespace {

struct Scratch {
  Pool* pool = nullptr;
  void* memory = nullptr;
  size_t bytes = 0;
  ~Scratch() {
    if (memory) pool->release(memory);
  }
};
thread_local Scratch scratch;

}  // namespace

char* temp_space(Device device, size_t bytes) {
  Pool& pool = Runtime::get().pool(device);
  if (bytes <= scratch.bytes && scratch.pool == &pool) return static_cast<char*>(scratch.memory);
  if (scratch.memory) scratch.pool->release(std::exchange(scratch.memory, nullptr));
  scratch.bytes = 0;
  const size_t grown = bytes + bytes / 4;  // so that slowly growing requests do not allocate each time
  scratch.pool = &pool;
  scratch.memory = pool.allocate(grown);
  scratch.bytes = grown;
  return static_cast<char*>(scratch.memory);
}

}  // namespace weft
