// inbox.h: how operations reach the engine: a bounded ring, many producers, one consumer at a time.
//
// What travels is a Parcel: an operation, or the wish for one more run of an Operator, which the consumer
// makes into an operation, so that pushing an Operator moves no more than one word between the cores.
//
// A producer draws a ticket and stores its parcel into the ticket's slot; the ticket numbers are the push
// order. The consumer (the holder of the engine lock) takes slots in order and stops at the first empty one,
// which is either the end or a ticket whose producer has not stored yet; that producer looks for idle workers
// after it stores, also on behalf of those behind it (Engine::enqueue). Reading the ring ahead lets the
// consumer prefetch operations that are in another core's cache, which a linked list would not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/operation.h"
#include "engine/parking.h"

namespace weft {

class Parcel {
 public:
  Parcel() = default;
  explicit Parcel(Op* op) noexcept : word_(reinterpret_cast<uintptr_t>(op)) {}
  // A run on device cpu(`index`), at most kMostDevice; everything else as the Operator says.
  static constexpr int kMostDevice = alignof(Operator) / 2 - 1;
  Parcel(Operator* plan, int index) noexcept
      : word_(reinterpret_cast<uintptr_t>(plan) | static_cast<uintptr_t>(index) << 1 | 1) {}

  explicit operator bool() const noexcept { return word_ != 0; }
  Op* op() const noexcept { return word_ & 1 ? nullptr : reinterpret_cast<Op*>(word_); }
  Operator* plan() const noexcept { return reinterpret_cast<Operator*>(word_ & ~kLow); }
  int device_index() const noexcept { return static_cast<int>((word_ & kLow) >> 1); }

 private:
  static constexpr uintptr_t kLow = alignof(Operator) - 1;
  uintptr_t word_ = 0;
};
static_assert(alignof(Operator) == 64 && alignof(Op) >= 2);

class Inbox {
 public:
  static constexpr uint64_t kCapacity = 4096;

  // False if there was no room: the caller drains and tries again.
  bool try_push(Parcel parcel, uint64_t& ticket) noexcept {
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
    slots_[ticket & kMask].exchange(parcel, std::memory_order_seq_cst);
    return true;
  }

  // The consumer's side; engine lock held. `front` is empty if nothing has arrived.
  Parcel front() const noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const Parcel parcel = slots_[head & kMask].load(std::memory_order_acquire);
    if (parcel) {
      if (const Op* later = slots_[(head + 4) & kMask].load(std::memory_order_relaxed).op())
        prefetch_for_writing(later, sizeof(Op) + 3 * sizeof(Access));
    }
    return parcel;
  }
  void pop() noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    slots_[head & kMask].store(Parcel(), std::memory_order_relaxed);
    head_.store(head + 1, std::memory_order_release);
  }

  bool empty() const noexcept {
    return !slots_[head_.load(std::memory_order_relaxed) & kMask].load(std::memory_order_seq_cst);
  }
  uint64_t tickets() const noexcept { return tail_.load(std::memory_order_acquire); }
  uint64_t taken() const noexcept { return head_.load(std::memory_order_acquire); }
  // After fork, in the child: forget tickets that another thread drew and will never fill.
  void forget_unfilled() noexcept {
    uint64_t filled = head_.load(), end = tail_.load();
    for (uint64_t i = filled; i < end; ++i)
      if (const Parcel parcel = slots_[i & kMask].exchange(Parcel())) slots_[filled++ & kMask].store(parcel);
    tail_.store(filled);
    head_seen_.store(head_.load());
  }

 private:
  static constexpr uint64_t kMask = kCapacity - 1;
  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> head_seen_{0};  // producers' old copy of head_, so that they rarely touch its line
  alignas(64) std::atomic<uint64_t> head_{0};
  alignas(64) std::atomic<Parcel> slots_[kCapacity]{};
  static_assert(std::atomic<Parcel>::is_always_lock_free);
};

}  // namespace weft
