#include "storage/runtime.h"

#include <algorithm>
#include <new>
#include <random>

#include "engine/context.h"
#include "engine/device_kind.h"

namespace weft {

namespace {

// Of a process that sets no seed: 64 bits of the system's entropy.
uint64_t entropy() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

Runtime::Runtime() {
  seed_all(entropy());
  seeded_ = false;
  after_fork([](bool in_child) {
    if (in_child) get().after_fork_in_child();
  });
}

// A child draws other numbers than its parent and its siblings, unless a seed was set.
void Runtime::after_fork_in_child() {
  if (seeded_) return;
  const uint64_t seed = seed_ = entropy();
  const auto renew = [&](Devices& devices, size_t first) {
    for (size_t i = 0; i < kDevices; ++i) devices.generators[i].set_state({seed, first + i, 0});
  };
  renew(cpus_, 0);
  for (size_t kind = 1; kind < kDeviceKinds; ++kind)
    if (Devices* devices = others_[kind].load(std::memory_order_acquire)) renew(*devices, kind * kDevices);
}

Runtime& Runtime::get() noexcept {
  static auto* runtime = new Runtime;  // never destroyed, see `pool`
  return *runtime;
}
[[maybe_unused]] static const Runtime& kAtLoad = Runtime::get();

void Runtime::set_engine(std::shared_ptr<Engine> engine) { engine_ = std::move(engine); }

Engine& Runtime::engine() const {
  if (!engine_) throw EngineMisuse("arrays need the process's engine; import weft before using weft._core");
  return *engine_;
}

Runtime::Devices& Runtime::devices_of(Device device) {
  const bool has_index = device.index >= 0 && device.index < kDevices;
  if (device.kind == DeviceKind::cpu && has_index) [[likely]]
    return cpus_;
  if (!has_index)
    throw DeviceError(to_string(device) + " has no memory; " + kind_name(device.kind) + ":0 to " +
                      kind_name(device.kind) + ":63 have");
  auto& slot = others_[static_cast<size_t>(device.kind)];
  if (Devices* devices = slot.load(std::memory_order_acquire)) return *devices;
  require_backend(device);
  const std::lock_guard guard(mutex_);
  if (Devices* devices = slot.load(std::memory_order_acquire)) return *devices;
  auto* new_devices = new Devices;
  seed(*new_devices, device.kind, seed_);
  slot.store(new_devices, std::memory_order_release);
  return *new_devices;
}

Generator& Runtime::devices_generator(Device device) {
  return devices_of(device).generators[static_cast<size_t>(device.index)];
}

Generator& Runtime::generator(Device device) {
  return context().stream ? *context().stream : devices_generator(device);
}

// Streams are counted over the devices of all kinds.
void Runtime::seed(Devices& devices, DeviceKind kind, uint64_t seed, std::span<const int> without) {
  const size_t first = static_cast<size_t>(kind) * kDevices;
  for (size_t i = 0; i < kDevices; ++i)
    if (std::ranges::find(without, static_cast<int>(i)) == without.end())
      devices.generators[i].set_state({seed, first + i, 0});
}

uint64_t Runtime::seed() const {
  const std::lock_guard guard(mutex_);
  return seed_;
}

void Runtime::seed_kind(DeviceKind kind, uint64_t new_seed, std::span<const int> without) {
  const std::lock_guard guard(mutex_);
  seed_ = new_seed;
  if (Devices* devices = others_[static_cast<size_t>(kind)].load(std::memory_order_acquire))
    seed(*devices, kind, new_seed, without);
  seeded_ = true;
}

void Runtime::seed_all(uint64_t new_seed) {
  const std::lock_guard guard(mutex_);  // a kind that is used from now on begins with this
  seed_ = new_seed;
  seed(cpus_, DeviceKind::cpu, new_seed);
  for (size_t kind = 1; kind < kDeviceKinds; ++kind)
    if (Devices* devices = others_[kind].load(std::memory_order_acquire))
      seed(*devices, static_cast<DeviceKind>(kind), new_seed);
  seeded_ = true;
}

void Runtime::set_generator(Device device, const Generator::State& state) {
  Generator& generator = devices_generator(device);
  if (generator.state().seed != state.seed) seeded_ = true;  // else it goes on elsewhere in its stream
  generator.set_state(state);
}

Pool& Runtime::pool(Device device) {
  auto& slot = devices_of(device).pools[static_cast<size_t>(device.index)];
  if (Pool* pool = slot.load(std::memory_order_acquire)) return *pool;
  DeviceBackend* const backend = require_backend(device);
  const std::lock_guard guard(mutex_);
  if (Pool* pool = slot.load(std::memory_order_acquire)) return *pool;
  const bool is_hidden = backend && !backend->on_host();
  auto* new_pool =
      new Pool(to_string(device), {.check = check_}, is_hidden ? backend->pages(device.index) : host_pages());
  new_pool->set_release_more([this, device] {  // operations that are pending hold memory, too
    const bool released = release_temporary(device);
    if (hidden_memory_of(device)) wait_for_all_streams();
    collect_retired();
    if (Engine::on_engine_thread()) return released || hidden_memory_of(device);
    engine().wait_until_idle();
    release_temporary(device);
    collect_retired();
    return true;
  });
  slot.store(new_pool, std::memory_order_release);
  return *new_pool;
}

std::vector<Device> Runtime::used_devices() const {
  std::vector<Device> used;
  for (size_t kind = 0; kind < kDeviceKinds; ++kind) {
    const Devices* const devices = kind ? others_[kind].load(std::memory_order_acquire) : &cpus_;
    for (int index = 0; devices && index < kDevices; ++index)
      if (devices->pools[static_cast<size_t>(index)].load(std::memory_order_acquire))
        used.push_back({static_cast<DeviceKind>(kind), index});
  }
  return used;
}

bool Runtime::release_temporary(Device device) noexcept {
  Devices& devices = devices_of(device);
  Pool* pool = devices.pools[static_cast<size_t>(device.index)].load(std::memory_order_acquire);
  bool released = false;
  for (auto& slot : devices.pieces[static_cast<size_t>(device.index)])
    if (std::unique_ptr<Piece> piece{slot.exchange(nullptr, std::memory_order_acquire)}) {
      release_piece(*pool, std::move(piece));
      released = true;
    }
  return released;
}

void Runtime::release_piece(Pool& pool, std::unique_ptr<Piece> piece) noexcept {
  if (!piece->used || has_run(piece->used)) return pool.release(piece->data);
  std::unique_ptr<StreamUses> uses(new (std::nothrow) StreamUses);
  if (!uses) return;  // without memory for the note, its memory is lost
  uses->set_write(piece->used);
  retire({&pool, piece->data}, std::move(uses));
}

// What was retired before is looked at, too: else a loop that only copies from the host would keep all of it.
void Runtime::retire(const Release& release, std::unique_ptr<StreamUses> uses) noexcept {
  collect_retired();
  const std::lock_guard guard(retired_.mutex);
  try {
    retired_.list.push_back({release, std::move(uses)});
    retired_.count.store(retired_.list.size(), std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {  // as above
  }
}

void Runtime::collect_retired() noexcept {
  if (retired_.count.load(std::memory_order_relaxed) == 0) return;
  // The oldest first: streams pass their places in order, so behind one that waits most wait, too. An owner's
  // function may take other locks.
  for (;;) {
    Retired passed;
    {
      const std::lock_guard guard(retired_.mutex);
      if (retired_.list.empty() || !retired_.list.front().uses->has_run()) return;
      passed = std::move(retired_.list.front());
      retired_.list.pop_front();
      retired_.count.store(retired_.list.size(), std::memory_order_relaxed);
    }
    passed.release();
  }
}

// The old pool stays, since blocks of its are given back to it.
void Runtime::reset(Device device) {
  DeviceBackend* const backend = backend_of(device.kind);
  if (!hidden_memory_of(device))
    throw DeviceError("reset: " + to_string(device) + " is no GPU that was used");
  try {
    engine().wait_until_idle();
  } catch (const DeviceError&) {  // it has failed, or another one
  }
  const Blocking blocking;
  backend->reset(device.index);
  collect_retired();
  Devices& devices = devices_of(device);
  if (auto& slot = devices.pools[static_cast<size_t>(device.index)];
      Pool* const pool = slot.load(std::memory_order_acquire)) {
    for (auto& piece : devices.pieces[static_cast<size_t>(device.index)])
      delete piece.exchange(nullptr, std::memory_order_acquire);
    pool->lose();
    slot.store(nullptr, std::memory_order_release);
  }
  engine().renew_streams(device);
}

namespace {

// A thread's own space. Not the pool's: a device's memory can be trimmed while threads that used it live on.
struct ThreadSpace {
  alignas(Pool::kAlignment) char data[TempSpace::kSmall];
};
thread_local std::unique_ptr<ThreadSpace> thread_space;
thread_local bool thread_space_in_use = false;

constexpr size_t kSizeTolerance = 8;  // pieces up to so many times too large are taken

}  // namespace

TempSpace::TempSpace(Device device, size_t bytes, int stream) : device_(device), stream_(stream) {
  if (bytes == 0 || (bytes <= kSmall && !hidden_memory_of(device) && take_thread_space())) return;
  take_piece(bytes);
}

TempSpace::~TempSpace() {
  if (!data_) return;
  if (!piece_) {
    thread_space_in_use = false;
    return;
  }
  Runtime& runtime = Runtime::get();
  piece_->used = stream_ ? backend_of(device_.kind)->upcoming(stream_) : Ticket();
  for (auto& slot : runtime.devices_of(device_).pieces[static_cast<size_t>(device_.index)]) {
    Runtime::Piece* free = nullptr;
    if (slot.compare_exchange_strong(free, piece_, std::memory_order_release, std::memory_order_relaxed))
      return;
  }
  runtime.release_piece(runtime.pool(device_), std::unique_ptr<Runtime::Piece>(piece_));
}

bool TempSpace::take_thread_space() {
  // Used: by a function that called this one. In checking mode, all is the pool's, which looks at its ends.
  if (thread_space_in_use || Runtime::get().check()) return false;
  if (!thread_space) thread_space.reset(new ThreadSpace);  // as it comes: not filled with zeros
  thread_space_in_use = true;
  data_ = thread_space->data;
  return true;
}

void TempSpace::take_piece(size_t bytes) {
  Runtime& runtime = Runtime::get();
  Pool& pool = runtime.pool(device_);
  for (auto& slot : runtime.devices_of(device_).pieces[static_cast<size_t>(device_.index)]) {
    Runtime::Piece* piece = slot.exchange(nullptr, std::memory_order_acquire);
    if (!piece) continue;
    if (piece->bytes >= bytes && piece->bytes / kSizeTolerance <= bytes) {
      piece_ = piece;
      break;
    }
    Runtime::Piece* free = nullptr;
    const bool replaced = piece->bytes < bytes && piece->bytes >= bytes / kSizeTolerance;
    if (replaced ||
        !slot.compare_exchange_strong(free, piece, std::memory_order_release, std::memory_order_relaxed))
      runtime.release_piece(pool, std::unique_ptr<Runtime::Piece>(piece));
  }
  if (piece_ && piece_->used) [[unlikely]]
    order_after(stream_, piece_->used);
  if (!piece_) {
    if (device_.kind != DeviceKind::cpu) runtime.collect_retired();
    auto piece = std::make_unique<Runtime::Piece>();
    piece->data = static_cast<char*>(pool.allocate(bytes));
    piece->bytes = bytes;
    piece_ = piece.release();
  }
  data_ = piece_->data;
}

}  // namespace weft
