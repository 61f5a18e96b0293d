// inbox.h: how operations reach the engine: a bounded ring, many producers, one consumer at a time.
//
// A producer draws a ticket and stores the operation into the ticket's slot; the ticket numbers are the push
// order. The consumer (whoever holds the engine lock) takes slots in order and stops at the first empty one,
// which is either the end or a ticket whose producer has not stored yet; that producer looks for idle workers
// after it stores, also on behalf of those behind it (Engine::enqueue). Reading the ring ahead lets the
// consumer prefetch operations that lie in another core's cache, which a linked list would not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/operation.h"
#include "engine/parking.h"

namespace weft {

class Inbox {
 public:
  static constexpr uint64_t kCapacity = 4096;

  // False if there was no room: the caller drains and tries again.
  bool try_push(Op* op, uint64_t& ticket) noexcept {
    ticket = tail_.load(std::memory_order_relaxed);
    do {
      // acquire: the consumer emptied the slot before it moved `head_` past it.
      if (ticket - head_seen_.load(std::memory_order_acquire) >= kCapacity) {
        head_seen_.store(head_.load(std::memory_order_acquire), std::memory_order_release);
        if (ticket - head_seen_.load(std::memory_order_acquire) >= kCapacity) return false;
      }
    } while (!tail_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel));
    // seq_cst: the producer looks for idle workers next; a worker going idle looks at the slot after saying
    // so. One of the two sees the other.
    slots_[ticket & kMask].exchange(op, std::memory_order_seq_cst);
    return true;
  }

  // The consumer's side; engine lock held.
  Op* pop() noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    Op* op = slots_[head & kMask].load(std::memory_order_acquire);
    if (!op) return nullptr;
    if (const Op* later = slots_[(head + 4) & kMask].load(std::memory_order_relaxed))
      prefetch_for_writing(later, sizeof(Op) + 3 * sizeof(Access));
    slots_[head & kMask].store(nullptr, std::memory_order_relaxed);
    head_.store(head + 1, std::memory_order_release);
    return op;
  }

  bool empty() const noexcept {
    return slots_[head_.load(std::memory_order_relaxed) & kMask].load(std::memory_order_seq_cst) == nullptr;
  }
  uint64_t tickets() const noexcept { return tail_.load(std::memory_order_acquire); }
  uint64_t taken() const noexcept { return head_.load(std::memory_order_acquire); }
  // After fork, in the child: forget tickets that another thread drew and will never fill.
  void forget_unfilled() noexcept {
    uint64_t kept = head_.load(), end = tail_.load();
    for (uint64_t i = kept; i < end; ++i)
      if (Op* op = slots_[i & kMask].exchange(nullptr)) slots_[kept++ & kMask].store(op);
    tail_.store(kept);
    head_seen_.store(head_.load());
  }

 private:
  static constexpr uint64_t kMask = kCapacity - 1;
  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> head_seen_{0};  // producers' old copy of head_, so that they rarely touch its line
  alignas(64) std::atomic<uint64_t> head_{0};
  alignas(64) std::atomic<Op*> slots_[kCapacity]{};
};

}  // namespace weft
