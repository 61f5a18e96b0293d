// op_pool.cpp: blocks for operations, recycled between threads.
//
// Operations are built on one thread and finished on another, the worst case for a general allocator. Blocks
// travel in magazines, arrays of pointers, so that the taking thread can fetch blocks from the other core's
// cache before it needs them. Each thread has one magazine to take from and one to put into, per size; full
// and empty ones go over global stacks that are always taken whole, so there is no ABA problem; what a
// thread does not need at once it gives back. Blocks are never returned to the system: their number is
// bounded by the largest number of operations that were ever in flight.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "engine/context.h"
#include "engine/parking.h"
#include "engine/variable.h"

namespace weft {
namespace {

constexpr int kClasses = 3;
constexpr uint32_t kRoom[kClasses] = {4, 12, 32};
constexpr uint8_t kUnpooled = kClasses;
struct Magazine {
  static constexpr int kSize = 30;
  Magazine* next = nullptr;
  int count = 0;
  void* blocks[kSize];
};

constexpr size_t block_bytes(size_t room) { return (sizeof(Op) + room * sizeof(Access) + 63) / 64 * 64; }

class Stack {
 public:
  void push(Magazine* magazine) noexcept {
    magazine->next = top_.load(std::memory_order_relaxed);
    while (!top_.compare_exchange_weak(magazine->next, magazine, std::memory_order_release,
                                       std::memory_order_relaxed)) {
    }
  }
  // A few, as a list: a thread that kept more would leave the others to allocate, and with threads that come
  // and go the number of blocks would grow for ever.
  Magazine* take_some() noexcept {
    constexpr int kSome = 4;
    Magazine* list = take_all();
    Magazine* last = list;
    for (int i = 1; last && i < kSome; ++i) last = last->next;
    if (last && last->next) give_back(std::exchange(last->next, nullptr));
    return list;
  }

 private:
  Magazine* take_all() noexcept {
    return top_.load(std::memory_order_relaxed) ? top_.exchange(nullptr, std::memory_order_acquire) : nullptr;
  }
  // The stack is empty, unless another thread has pushed since: those few join the list.
  void give_back(Magazine* list) noexcept {
    Magazine* top = nullptr;
    while (!top_.compare_exchange_weak(top, list, std::memory_order_release, std::memory_order_relaxed)) {
      top = nullptr;
      Magazine* few = take_all();
      if (!few) continue;
      Magazine* last = few;
      while (last->next) last = last->next;
      last->next = std::exchange(list, few);
    }
  }

  std::atomic<Magazine*> top_{nullptr};
};

struct Global {
  Stack filled[kClasses];
  Stack empty;
};
// Never destroyed: threads may end after static destructors have run.
Global& global() {
  static Global* g = new Global;
  return *g;
}
[[maybe_unused]] const Global& kAtLoad = global();

}  // namespace

// A thread's.
class OpBlocks {
 public:
  // Gives all that it has to other threads, and has nothing.
  void close() noexcept {
    for (int c = 0; c < kClasses; ++c) {
      for (Magazine** slot : {&source_[c], &sink_[c]})
        if (Magazine* magazine = std::exchange(*slot, nullptr))
          (magazine->count ? global().filled[c] : global().empty).push(magazine);
      while (Magazine* magazine = pop(filled_[c])) global().filled[c].push(magazine);
    }
    while (Magazine* magazine = pop(empty_)) global().empty.push(magazine);
  }

  void* allocate(int c) {
    if (!source_[c] || source_[c]->count == 0) refill(c);
    Magazine& magazine = *source_[c];
    const int last = --magazine.count;
    if (last >= 3) prefetch_for_writing(magazine.blocks[last - 3], sizeof(Op) + 3 * sizeof(Access));
    return magazine.blocks[last];
  }

  // Without memory for a magazine the block is lost: its memory belongs to a slab.
  void release(int c, void* block) noexcept {
    if (!sink_[c]) sink_[c] = empty_magazine();
    if (!sink_[c]) return;
    Magazine& magazine = *sink_[c];
    magazine.blocks[magazine.count++] = block;
    if (magazine.count == Magazine::kSize) global().filled[c].push(std::exchange(sink_[c], nullptr));
  }

 private:
  static Magazine* pop(Magazine*& list) noexcept {
    Magazine* magazine = list;
    if (magazine) list = magazine->next;
    return magazine;
  }

  Magazine* empty_magazine() noexcept {
    if (!empty_) empty_ = global().empty.take_some();
    Magazine* magazine = pop(empty_);
    return magazine ? magazine : new (std::nothrow) Magazine;
  }

  void refill(int c) {
    if (source_[c]) global().empty.push(std::exchange(source_[c], nullptr));
    if (sink_[c] && sink_[c]->count) {
      source_[c] = std::exchange(sink_[c], nullptr);
      return;
    }
    if (!filled_[c]) filled_[c] = global().filled[c].take_some();
    source_[c] = pop(filled_[c]);
    if (source_[c]) return;
    source_[c] = empty_magazine();
    if (!source_[c]) throw std::bad_alloc();
    const size_t bytes = block_bytes(kRoom[c]);
    auto* slab = static_cast<unsigned char*>(std::aligned_alloc(64, bytes * Magazine::kSize));
    if (!slab) throw std::bad_alloc();
    for (int i = 0; i < Magazine::kSize; ++i) source_[c]->blocks[i] = slab + static_cast<size_t>(i) * bytes;
    source_[c]->count = Magazine::kSize;
  }

  Magazine* source_[kClasses] = {};
  Magazine* sink_[kClasses] = {};
  Magazine* filled_[kClasses] = {};
  Magazine* empty_ = nullptr;
};

namespace {

// Operations may come and go even after the thread's variables have been destroyed (in destructors of
// pthread keys, or of other libraries' variables). So those of the thread lie behind a pointer, and once it
// has ended each block is taken and given back by way of blocks of its own.
struct CloseOpBlocks {
  ~CloseOpBlocks() {
    Context& here = context();
    here.has_closed_op_blocks = true;
    const std::unique_ptr<OpBlocks> blocks(std::exchange(here.op_blocks, nullptr));
    blocks->close();
  }
};

// Null once the thread ends, or without memory.
OpBlocks* open_op_blocks() noexcept {
  Context& here = context();
  if (here.has_closed_op_blocks) return nullptr;
  here.op_blocks = new (std::nothrow) OpBlocks;
  if (!here.op_blocks) return nullptr;
  thread_local const CloseOpBlocks close;
  static_cast<void>(close);
  return here.op_blocks;
}

template <class F>
auto with_op_blocks(F&& use) {
  OpBlocks* blocks = context().op_blocks;
  if (!blocks) [[unlikely]]
    blocks = open_op_blocks();
  if (blocks) [[likely]]
    return use(*blocks);
  struct Temporary : OpBlocks {
    ~Temporary() { close(); }
  } temporary;
  return use(temporary);
}

}  // namespace

Op* new_op(size_t accesses) {
  if (accesses > kMostAccesses)
    throw EngineMisuse("an operation uses " + std::to_string(accesses) + " variables, " +
                       std::to_string(kMostAccesses) + " at most");
  uint8_t c = 0;
  while (c < kClasses && accesses > kRoom[c]) ++c;
  void* memory;
  if (c == kUnpooled) {
    memory = std::aligned_alloc(64, block_bytes(accesses));
    if (!memory) throw std::bad_alloc();
  } else {
    memory = with_op_blocks([c](OpBlocks& blocks) { return blocks.allocate(c); });
  }
  return new (memory) Op(static_cast<uint32_t>(c == kUnpooled ? accesses : kRoom[c]), c);
}

void drop_state(Op* op) noexcept {
  if (!op->type || op->state != op->storage) return;  // none, or its Operator's
  const TaskType* type = std::exchange(op->type, nullptr);
  type->drop(op->state);
}

void Op::retain_variables() noexcept {
  for (uint32_t i = 0; i < access_count; ++i) accesses()[i].var->retain();
  retains = true;
}

void free_op(Op* op) noexcept {
  if (op->retains)
    for (uint32_t i = 0; i < op->access_count; ++i) op->accesses()[i].var->release();
  const uint8_t c = op->block_class;
  op->~Op();
  if (c == kUnpooled)
    std::free(op);
  else
    with_op_blocks([c, op](OpBlocks& blocks) { blocks.release(c, op); });
}

}  // namespace weft
