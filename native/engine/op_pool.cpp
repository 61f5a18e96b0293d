// op_pool.cpp: blocks for operations, recycled between threads.
//
// Operations are built on one thread and finished on another, the worst case for a general allocator. Each thread keeps
// two short lists per size: blocks to hand out, and blocks it has freed, which go in chains of kChain to a
// global stack. Taking is always "take all", so the stack has no ABA problem. Blocks are never returned to the system:
// their number is bounded by the largest number of operations that were ever in flight.
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "engine/operation.h"

namespace weft {
namespace {

constexpr int kClasses = 3;
constexpr uint16_t kRoom[kClasses] = {4, 12, 32};
constexpr uint8_t kUnpooled = kClasses;
constexpr int kChain = 32;
constexpr int kSlab = 64;

struct Block {
  Block* next;   // within a chain
  Block* chain;  // the next chain on the global stack
};

constexpr size_t block_bytes(size_t room) {
  return (sizeof(Op) + room * sizeof(Access) + 63) / 64 * 64;
}

struct Global {
  std::atomic<Block*> stack[kClasses] = {};

  void give(int c, Block* chain) noexcept {
    chain->chain = stack[c].load(std::memory_order_relaxed);
    while (!stack[c].compare_exchange_weak(chain->chain, chain, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
  }
};
// Never destroyed: threads may end after static destructors have run.
Global& global() {
  static Global* g = new Global;
  return *g;
}

struct Local {
  Block* take[kClasses] = {};
  Block* chains[kClasses] = {};
  Block* given[kClasses] = {};
  int given_count[kClasses] = {};

  ~Local() {
    for (int c = 0; c < kClasses; ++c) {
      if (take[c]) global().give(c, take[c]);
      if (given[c]) global().give(c, given[c]);
      while (Block* chain = chains[c]) {
        chains[c] = chain->chain;
        global().give(c, chain);
      }
    }
  }

  Block* allocate(int c) {
    if (!take[c]) refill(c);
    Block* block = take[c];
    take[c] = block->next;
    return block;
  }

  void release(int c, Block* block) noexcept {
    block->next = given[c];
    given[c] = block;
    if (++given_count[c] == kChain) {
      global().give(c, given[c]);
      given[c] = nullptr;
      given_count[c] = 0;
    }
  }

 private:
  void refill(int c) {
    if (given[c]) {
      take[c] = given[c];
      given[c] = nullptr;
      given_count[c] = 0;
      return;
    }
    if (!chains[c]) chains[c] = global().stack[c].exchange(nullptr, std::memory_order_acquire);
    if (chains[c]) {
      take[c] = chains[c];
      chains[c] = take[c]->chain;
      return;
    }
    const size_t bytes = block_bytes(kRoom[c]);
    auto* slab = static_cast<unsigned char*>(std::aligned_alloc(64, bytes * kSlab));
    if (!slab) throw std::bad_alloc();
    for (int i = kSlab; i-- > 0;) {
      auto* block = reinterpret_cast<Block*>(slab + static_cast<size_t>(i) * bytes);
      block->next = take[c];
      take[c] = block;
    }
  }
};

thread_local Local local;

}  // namespace

Op* new_op(size_t accesses) {
  if (accesses > UINT16_MAX) throw EngineMisuse("an operation uses at most 65535 variables");
  uint8_t c = 0;
  while (c < kClasses && accesses > kRoom[c]) ++c;
  void* memory;
  if (c == kUnpooled) {
    memory = std::aligned_alloc(64, block_bytes(accesses));
    if (!memory) throw std::bad_alloc();
  } else {
    memory = local.allocate(c);
  }
  return new (memory) Op(static_cast<uint16_t>(c == kUnpooled ? accesses : kRoom[c]), c);
}

void drop_state(Op* op) noexcept {
  if (!op->type || op->origin) return;
  const TaskType* type = std::exchange(op->type, nullptr);
  type->drop(op->state);
}

void free_op(Op* op) noexcept {
  const uint8_t c = op->block_class;
  op->~Op();
  if (c == kUnpooled)
    std::free(op);
  else
    local.release(c, reinterpret_cast<Block*>(op));
}

}  // namespace weft
