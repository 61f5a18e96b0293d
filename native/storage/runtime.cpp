#include "storage/runtime.h"

#include <pthread.h>

#include <new>
#include <random>

#include "storage/context.h"
namespace weft {

namespace {

// Of a process, where nobody seeds: 64 bits of the system's entropy.
uint64_t entropy() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

Runtime::Runtime() {
  seed_all(entropy());
  seeded_ = false;
  pthread_atfork(nullptr, nullptr, [] { get().after_fork_in_child(); });
}

// A child draws other numbers than its parent and its siblings, unless somebody said which. Another thread
// may have held a generator's lock at the fork, so they are made anew.
void Runtime::after_fork_in_child() {
  if (seeded_) return;
  const uint64_t seed = entropy();
  for (size_t i = 0; i < kDevices; ++i) new (&generators_[i]) Generator(seed, i);
}

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
    throw DeviceError(to_string(device) + " has no memory; cpu:0 to cpu:63 have");
  return static_cast<size_t>(device.index);
}

Generator& Runtime::devices_generator(Device device) { return generators_[index_of(device)]; }

Generator& Runtime::generator(Device device) {
  return context().stream ? *context().stream : devices_generator(device);
}

void Runtime::seed_all(uint64_t seed) {
  for (size_t i = 0; i < kDevices; ++i) generators_[i].set_state({seed, i, 0});
  seeded_ = true;
}

void Runtime::set_generator(Device device, const Generator::State& state) {
  Generator& generator = devices_generator(device);
  if (generator.state().seed != state.seed) seeded_ = true;  // else it goes on elsewhere in its stream
  generator.set_state(state);
}

Pool& Runtime::pool(Device device) {
  auto& slot = pools_[index_of(device)];
  if (Pool* pool = slot.load(std::memory_order_acquire)) return *pool;
  const std::lock_guard guard(mutex_);
  if (Pool* pool = slot.load(std::memory_order_acquire)) return *pool;
  auto* made = new Pool(to_string(device), {.check = check_});
  made->set_release_more([this, device] {  // operations that are pending hold memory, too
    const bool found = release_temporary(device);
    if (Engine::on_engine_thread()) return found;
    engine().wait_until_idle();
    release_temporary(device);
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

bool Runtime::release_temporary(Device device) noexcept {
  Pool* pool = pools_[index_of(device)].load(std::memory_order_acquire);
  bool found = false;
  for (auto& slot : pieces_[index_of(device)])
    if (Piece* piece = slot.exchange(nullptr, std::memory_order_acquire)) {
      pool->release(piece);
      found = true;
    }
  return found;
}

namespace {

// A thread's own space. Not the pool's: a device's memory can be trimmed while threads that used it live on.
struct Own {
  alignas(Pool::kAlignment) char data[TempSpace::kSmall];
};
thread_local std::unique_ptr<Own> own;
thread_local bool own_is_used = false;

constexpr size_t kAbout = 8;  // pieces up to so many times too large are taken

}  // namespace

TempSpace::TempSpace(Device device, size_t bytes) : device_(device) {
  if (bytes == 0 || (bytes <= kSmall && take_own())) return;
  take_piece(bytes);
}

TempSpace::~TempSpace() {
  if (!data_) return;
  if (!piece_) {
    own_is_used = false;
    return;
  }
  Runtime& runtime = Runtime::get();
  for (auto& slot : runtime.pieces_[Runtime::index_of(device_)]) {
    Runtime::Piece* free = nullptr;
    if (slot.compare_exchange_strong(free, piece_, std::memory_order_release, std::memory_order_relaxed))
      return;
  }
  runtime.pool(device_).release(piece_);
}

bool TempSpace::take_own() {
  // Used: by a function that called this one. In checking mode, all is the pool's, which looks at its ends.
  if (own_is_used || Runtime::get().check()) return false;
  if (!own) own.reset(new Own);  // as it comes: not filled with zeros
  own_is_used = true;
  data_ = own->data;
  return true;
}

void TempSpace::take_piece(size_t bytes) {
  Runtime& runtime = Runtime::get();
  Pool& pool = runtime.pool(device_);
  for (auto& slot : runtime.pieces_[Runtime::index_of(device_)]) {
    Runtime::Piece* found = slot.exchange(nullptr, std::memory_order_acquire);
    if (!found) continue;
    if (found->bytes >= bytes && found->bytes / kAbout <= bytes) {
      piece_ = found;
      break;
    }
    Runtime::Piece* free = nullptr;
    const bool replaced = found->bytes < bytes && found->bytes >= bytes / kAbout;
    if (replaced ||
        !slot.compare_exchange_strong(free, found, std::memory_order_release, std::memory_order_relaxed))
      pool.release(found);
  }
  if (!piece_) piece_ = new (pool.allocate(sizeof(Runtime::Piece) + bytes)) Runtime::Piece{bytes};
  data_ = reinterpret_cast<char*>(piece_ + 1);
}

}  // namespace weft
