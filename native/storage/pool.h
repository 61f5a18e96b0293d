// pool.h: memory of one device: fast reuse, splitting, coalescing, statistics, return to the system.
//
// One contiguous range of addresses (engine/pages.h) gets memory from its beginning on as it is needed, so
// that any two neighbouring free blocks can become one, of any sizes. An index says which parts are blocks
// (storage/block_index.h); for the processor's memory its headers are in the memory, in front of each block,
// so data is aligned to 64 bytes there.
//
// Invariants, whenever lock_ is free:
// - those of the index; reserved_bytes = what the index uses - absent_bytes_; absent_ has a bit for each
// piece of
//   the pages' granularity inside a free block that was given back; no header is in such a piece, where
//   headers are in the memory.
//
// Any thread may call; one lock, held for tens of nanoseconds, except when memory is taken from or given to
// the system, and in checking mode. A release does not wait for it: it leaves the block for the next that
// allocates. Nothing is called under the lock but the system, a device's driver and malloc, so the lock comes
// last in any order of locks. It is held across fork, so the child finds a consistent pool.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/fork.h"
#include "engine/pages.h"
#include "engine/parking.h"
#include "storage/block_index.h"

namespace weft {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

struct PoolStats {
  uint64_t in_use_bytes;    // of live blocks, rounded up to 64, without headers
  uint64_t reserved_bytes;  // taken from the system and not given back
  uint64_t peak_in_use_bytes;
  uint64_t peak_reserved_bytes;
  uint64_t allocations;  // since the beginning
  uint64_t reused;       // of them, without new memory from the system
  uint64_t live_blocks;
  uint64_t largest_free_bytes;  // the largest allocation that needs no new memory for certain
};

struct PoolOptions {
  uint64_t limit_bytes = 0;  // most memory it takes from the system; 0: all there is
  // Canaries around each block, and a quarantine for released ones. Memory that the host cannot touch has
  // neither.
  bool check = false;
  // Called without the lock for each misuse that is found; null: a line on stderr. Should not throw.
  void (*on_violation)(const std::string& text) = nullptr;
};

class Pool;

// Called for memory that comes and goes, on the thread where it happens and outside of the pool's lock. May
// be called by several threads at once; must not use pools.
class PoolWatch {
 public:
  // What the memory is for, if its owner says so: set on the allocating thread around the allocation.
  struct Purpose {
    const int64_t* shape;  // null: not an array
    int ndim;
    uint8_t dtype;
  };
  static inline thread_local Purpose purpose{};

  virtual ~PoolWatch() = default;
  virtual void allocated(const Pool& pool, const void* memory, size_t bytes) noexcept = 0;
  // Before others can get the memory.
  virtual void released(const Pool& pool, const void* memory) noexcept = 0;
};

class Pool {
 public:
  static constexpr size_t kAlignment = 64;

  // Null: nothing is called. Threads may be in its functions after it has been replaced, so it lives for
  // ever. Acquire, on use: what was written before it was set is visible to the threads that call it.
  static inline std::atomic<PoolWatch*> watch{nullptr};

  explicit Pool(std::string name, PoolOptions options = {}, std::unique_ptr<Pages> pages = host_pages());
  ~Pool();  // its memory may not be used any more
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `bytes` bytes, aligned to kAlignment; null for 0. Raises OutOfMemory if, after one attempt to
  // release what is unused, the limit would be exceeded or the system refuses; nothing has changed then.
  void* allocate(size_t bytes);
  // What is not a live block of this pool (released twice, foreign) is reported and otherwise ignored.
  void release(void* memory) noexcept;

  // Gives unused memory back to the system; returns how many bytes.
  uint64_t trim() noexcept;
  PoolStats stats() noexcept;
  void reset_peaks() noexcept;
  // What is allocated now, in the order of addresses, each with its bytes as in_use_bytes counts them.
  std::vector<std::pair<const void*, uint64_t>> live_blocks();

  // The memory has gone with its device's context: blocks are given back as before, and none can be had.
  void lose() noexcept;

  // 0: all memory there is. If more is reserved, unused memory is given back at once; what is in use
  // above the limit stays.
  void set_limit(uint64_t bytes) noexcept;
  uint64_t limit() const noexcept;
  // Called without the lock before an allocation fails; says whether memory may have been released. Set once,
  // before other threads use the pool.
  void set_release_more(std::function<bool()> hook) { release_more_ = std::move(hook); }

  // Checking mode: verifies all live blocks and the quarantine; returns how many violations it reported. What
  // it has reported is mended, so that it is reported once.
  size_t check_all() noexcept;

  const std::string& name() const noexcept { return name_; }

 private:
  using Block = BlockIndex::Block;
  using State = BlockIndex::State;
  using Violations = std::vector<std::string>;

  // From a block's header to the user's bytes, and back: where a header must be if these are a block's. An
  // address between two slots gives one outside of the index.
  char* memory_of(const Block* block) const noexcept {
    return reinterpret_cast<char*>((reinterpret_cast<uint64_t>(block) << shift_) + to_memory_);
  }
  Block* block_of(const void* memory) const noexcept {
    return reinterpret_cast<Block*>(std::rotr(reinterpret_cast<uint64_t>(memory) - to_memory_, shift_));
  }
  void map_index() noexcept;
  uint64_t block_size(size_t bytes) const noexcept;

  void* obtain(size_t bytes);
  Block* take(uint64_t size, size_t bytes) noexcept;
  uint64_t spread(Block* block, uint64_t size) const noexcept;
  Block* find_or_grow(uint64_t size) noexcept;

  bool grow(uint64_t size) noexcept;
  uint64_t commit(uint64_t bytes, uint64_t also_needed) noexcept;
  void set_usable() noexcept { usable_.store(index_.used_bytes(), std::memory_order_relaxed); }
  bool may_reserve(uint64_t bytes) const noexcept;
  void count_reserved(uint64_t bytes) noexcept;
  template <class F>
  void each_word(const char* from, const char* to, F&& f) const noexcept;
  uint64_t absent_in(const char* from, const char* to) const noexcept;
  void mark_present(const char* from, const char* to) noexcept;
  bool make_present(Block* block, uint64_t size) noexcept;
  bool bring_back(const char* from, const char* to) noexcept;
  void shrink() noexcept;
  void give_back_inside(Block* block) noexcept;
  void give_back_holes() noexcept;
  void limit_overhead(uint64_t more) noexcept;
  uint64_t trim_locked(Violations& violations) noexcept;

  void* retry(size_t bytes, uint64_t size);
  void* hand_out(Block* block, size_t bytes) noexcept;
  [[noreturn]] void fail(size_t bytes);

  bool defer_release(Block* block) noexcept;
  void reclaim_returned() noexcept;
  void uncount(const Block* block) noexcept;
  void report_misuse(void* memory, State state) noexcept;
  void report(const Violations& violations) noexcept;

  void write_canaries(Block* block, size_t bytes) noexcept;
  std::string describe(Block* block) const;
  void check_bytes(Block* block, unsigned char* from, unsigned char* to, int expected, const char* what,
                   Violations& violations) noexcept;
  void check_live(Block* block, Violations& violations) noexcept;
  void check_quarantined(Block* block, Violations& violations) noexcept;
  void release_checked(Block* block, void* memory) noexcept;
  void quarantine(Block* block, Violations& violations) noexcept;
  void leave_quarantine(uint64_t bound, Violations& violations) noexcept;

  const std::string name_;
  const std::unique_ptr<Pages> pages_;
  const bool check_;
  const int shift_;         // bytes of the memory >> shift_ = bytes of the index
  const uint64_t header_;   // bytes of memory that a header takes; 0: headers are elsewhere
  const uint64_t front_;    // from the beginning of a block's memory to the user's bytes
  uint64_t to_memory_ = 0;  // see memory_of; constant
  void (*const on_violation_)(const std::string& text);
  std::function<bool()> release_more_;
  uint64_t piece_ = 0;  // what is given back from between live blocks, in bytes of the index; constant
  uint64_t* absent_ = nullptr;  // a bitmap, one bit for each piece of the range

  // Blocks that were released while the lock was held: pushed one by one, taken all at once under the lock.
  std::atomic<Block*> returned_{nullptr};
  // What the index uses, for a look without the lock. Relaxed: a thread that releases a live block has
  // received it from a thread that had seen an end above it, which stays above it.
  std::atomic<uint64_t> usable_{0};

  mutable Lock lock_;  // guards all below
  HoldInFork<Lock> held_in_fork_{lock_};
  BlockIndex index_;
  uint64_t limit_bytes_;
  uint64_t absent_bytes_ = 0;
  bool fresh_ = false;                 // the block being taken needed memory from the system
  Block* quarantine_first_ = nullptr;  // the oldest
  Block* quarantine_last_ = nullptr;
  uint64_t quarantine_bytes_ = 0;
  uint64_t next_give_back_ = 0;  // see limit_overhead
  PoolStats stats_{};
};

}  // namespace weft
