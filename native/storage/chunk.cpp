#include "storage/chunk.h"

#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "engine/device_kind.h"
#include "engine/fork.h"
#include "storage/runtime.h"

namespace weft {

// Chunks come and go with every result, mostly on one thread: a short list of blocks instead of the general
// allocator. It lies behind a pointer: what a thread's variables take is little (CMakeLists.txt says why).
// The list goes while the thread's other variables are destroyed, and chunks may come and go even after that:
// so no variable with a destructor is looked at, but two plain words of the context.
struct SpareChunks {
  static constexpr int kMost = 64;
  int count = 0;
  void* blocks[kMost];
};

namespace {

struct CloseSpare {
  ~CloseSpare() {
    Context& here = context();
    SpareChunks* const spare = std::exchange(here.spare_chunks, nullptr);
    while (spare->count > 0) std::free(spare->blocks[--spare->count]);
    delete spare;
    here.has_closed_spare_chunks = true;
  }
};

// Null once the thread ends, or without memory.
SpareChunks* open_spare() noexcept {
  Context& here = context();
  if (here.has_closed_spare_chunks) return nullptr;
  here.spare_chunks = new (std::nothrow) SpareChunks;
  if (!here.spare_chunks) return nullptr;
  thread_local const CloseSpare close;
  static_cast<void>(close);
  return here.spare_chunks;
}

void* take_block() {
  SpareChunks* const spare = context().spare_chunks;
  if (spare && spare->count > 0) return spare->blocks[--spare->count];
  void* block = std::aligned_alloc(alignof(Chunk), sizeof(Chunk));
  if (!block) throw std::bad_alloc();
  return block;
}

void give_block(void* block) noexcept {
  SpareChunks* spare = context().spare_chunks;
  if (!spare) spare = open_spare();
  if (spare && spare->count < SpareChunks::kMost)
    spare->blocks[spare->count++] = block;
  else
    std::free(block);
}

std::atomic<uint64_t> threads_with_chunks{0};
constexpr int kThreadShift = 40;  // a thread that makes a chunk each microsecond has enough for twelve days

uint64_t next_serial() noexcept {
  uint64_t& serial = context().last_serial;
  if (serial == 0) serial = ++threads_with_chunks << kThreadShift;
  return ++serial;
}

}  // namespace

uint64_t Chunk::last_serial() noexcept { return context().last_serial; }

namespace {

struct Watched {
  ForkMutex mutex;
  std::unordered_map<uint64_t, Chunk*> alive;  // by serial; a chunk leaves before it is destroyed
};
Watched& watched_chunks() {
  static auto* const all = new Watched;  // chunks may end after static variables
  return *all;
}
[[maybe_unused]] const Watched& kAtLoad = watched_chunks();

}  // namespace

void Chunk::watch() {
  if (watched_.exchange(true, std::memory_order_relaxed)) return;
  Watched& all = watched_chunks();
  const std::lock_guard lock(all.mutex);
  all.alive.emplace(serial, this);
}

bool Chunk::is_alive(uint64_t serial) {
  Watched& all = watched_chunks();
  const std::lock_guard lock(all.mutex);
  return all.alive.contains(serial);
}

Ref<Chunk> Chunk::find(uint64_t serial) {
  Watched& all = watched_chunks();
  const std::lock_guard lock(all.mutex);
  const auto it = all.alive.find(serial);
  if (it == all.alive.end() || !it->second->try_retain()) return {};
  Ref<Chunk> chunk(it->second);
  it->second->release();  // not the last one: `chunk` has another
  return chunk;
}

namespace {

ContextMemory context_memory_of(Device device) {
  DeviceBackend* const backend = hidden_memory_of(device);
  if (!backend) [[likely]]
    return {};
  return {device_number(device), backend->context_number(device.index)};
}

}  // namespace

Chunk::Chunk(Engine* engine, Device where, char* memory, size_t size, bool write_protected)
    : Var(engine, end, context_memory_of(where)),
      data(memory),
      bytes(size),
      device(where),
      read_only(write_protected),
      serial(next_serial()) {}

Ref<Chunk> Chunk::allocate(Device device, size_t bytes) {
  Runtime& runtime = Runtime::get();
  Pool& pool = runtime.pool(device);
  if (device.kind != DeviceKind::cpu) [[unlikely]]
    runtime.collect_retired();
  void* block = take_block();
  char* memory;
  try {
    memory = static_cast<char*>(pool.allocate(bytes));
  } catch (...) {
    give_block(block);
    throw;
  }
  auto* chunk = new (block) Chunk(&runtime.engine(), device, memory, bytes, false);
  chunk->pool_ = &pool;
  return Ref<Chunk>(chunk);
}

Ref<Chunk> Chunk::adopt(Device device, const Foreign& foreign) {
  void* block = take_block();
  auto* chunk = new (block) Chunk(&Runtime::get().engine(), device, static_cast<char*>(foreign.data),
                                  foreign.bytes, foreign.read_only);
  chunk->drop_ = foreign.drop;
  chunk->owner_ = foreign.owner;
  chunk->shares.store(foreign.shared ? 1 : 0, std::memory_order_relaxed);
  return Ref<Chunk>(chunk);
}

void Chunk::end(const Var* var) noexcept {
  auto* chunk = const_cast<Chunk*>(static_cast<const Chunk*>(var));
  if (chunk->watched_.load(std::memory_order_relaxed)) {
    Watched& all = watched_chunks();
    const std::lock_guard lock(all.mutex);
    all.alive.erase(chunk->serial);
  }
  StreamUses* const uses = chunk->uses.load(std::memory_order_acquire);
  const Runtime::Release release{chunk->pool_, chunk->data, chunk->drop_, chunk->owner_};
  if (uses && !uses->has_run()) [[unlikely]]
    Runtime::get().retire(release, std::unique_ptr<StreamUses>(chunk->uses.exchange(nullptr)));
  else
    release();
  chunk->~Chunk();
  give_block(chunk);
}

}  // namespace weft
