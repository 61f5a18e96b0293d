// block_index.h: which parts of a range of memory are live or free blocks: two-level segregated fit (Masmano,
// Ripoll, Crespo, Real 2004), in constant time. It never touches the memory itself.
//
// A header of one cache line describes each block. The headers are in a range of the host's addresses, where
// each slot of 64 bytes stands for 64 << shift bytes of memory; the header of a block is in the slot of its
// beginning.
// - Memory of the host: the range is the memory itself (shift 0), so a header is in front of the user's
// bytes, and
//   comes into the cache with them.
// - Memory that the host cannot address: the range is an eighth of the memory's size (shift 3), and only its
// pages
//   with headers take memory. A block's bytes begin at its slot, so they are aligned to 512.
// Sizes and distances of the index are bytes of the range: those of the memory >> shift. So all of the index,
// the lists and joins are the same code for both.
//
// Invariants:
// - base .. end is tiled by blocks; the last is the sentinel, which has a header only. end == base: no
// blocks.
// - each block refers to its neighbours: above by its size, below by a pointer; no two neighbours are both
// free.
// - a free block is in the list of its size class, and the two bitmaps say which lists are not empty.
// Its pool's lock guards it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft {

inline uint64_t round_up(uint64_t number, uint64_t unit) { return (number + unit - 1) & ~(unit - 1); }
inline uint64_t round_down(uint64_t number, uint64_t unit) { return number & ~(unit - 1); }

class BlockIndex {
 public:
  static constexpr uint64_t kUnit = 64;  // what sizes are multiples of
  static constexpr uint64_t kHeader = 64;
  static constexpr uint64_t kQuickBytes = 1024;  // blocks of this and a header wait in quick lists

  // Random-looking numbers, so that user data is hardly ever taken for a header. 0: no header any more.
  enum class State : uint64_t {
    none = 0,
    live = 0x9d3f6b5c1e27a841,
    free = 0x63b1e04f9ac85d27,
    quick = 0xb8427cd50f93e6a5,
    quarantined = 0x51ce8a3d7206fb9b,
    returned = 0xe6159b2c84d07f33,
    sentinel = 0x2fd79016c4eb583d,
  };

  struct alignas(kHeader) Block {
    // Written under the lock, but for live -> returned, which the thread that releases the block does
    // without; it alone may touch a live block. Relaxed: the lock, or the list of returned blocks, orders
    // everything else.
    std::atomic<State> word;
    uint64_t size;       // with this header
    Block* below;        // the neighbour below; null for the first
    Block* next;         // in a free list, a quick list, the quarantine or the list of returned blocks
    Block* previous;     // in a free list
    uint64_t requested;  // the size that the user requested, in bytes of memory

    State state() const noexcept { return word.load(std::memory_order_relaxed); }
    void set(State state) noexcept { word.store(state, std::memory_order_relaxed); }
    char* address() noexcept { return reinterpret_cast<char*>(this); }
  };
  static_assert(sizeof(Block) == kHeader);

  // No range: no block can be had. smallest: of what is left over, the least that becomes a block.
  void set_range(char* base, uint64_t bytes, uint64_t smallest) noexcept {
    base_ = end_ = base;
    range_bytes_ = bytes;
    smallest_ = smallest;
  }
  char* base() const noexcept { return base_; }
  char* end() const noexcept { return end_; }
  uint64_t range_bytes() const noexcept { return range_bytes_; }
  uint64_t used_bytes() const noexcept { return static_cast<uint64_t>(end_ - base_); }
  uint64_t smallest() const noexcept { return smallest_; }
  bool empty() const noexcept { return end_ == base_; }

  static Block* after(Block* block) noexcept {
    return reinterpret_cast<Block*>(block->address() + block->size);
  }
  Block* sentinel() const noexcept { return reinterpret_cast<Block*>(end_ - kHeader); }

  // Of the block whose header would be here; none if there cannot be one.
  State state_of(const Block* block) const noexcept {
    const uint64_t offset = reinterpret_cast<uint64_t>(block) - reinterpret_cast<uint64_t>(base_);
    return offset < used_bytes() && offset % kUnit == 0 ? block->state() : State::none;
  }
  // Whether the headers of the block and of its neighbour above can be trusted.
  bool is_whole(Block* block) const noexcept {
    const auto room = static_cast<uint64_t>(end_ - kHeader - block->address());
    return block->size % kUnit == 0 && block->size >= smallest_ && block->size <= room &&
           after(block)->below == block;
  }
  // Visits the blocks from below; false if it had to stop at a damaged header.
  template <class F>
  bool walk(F&& f) const {
    if (empty()) return true;
    for (auto* block = reinterpret_cast<Block*>(base_); block != sentinel(); block = after(block)) {
      if (!is_whole(block)) return false;
      f(block);
    }
    return true;
  }
  template <class F>
  void each_free(F&& f) const {
    for (const auto& lists : free_)
      for (Block* block : lists)
        for (; block; block = block->next) f(block);
  }
  uint64_t largest_free() const noexcept;  // one of the largest class

  // A free block of at least this size, which stays in its list; null: none was seen.
  Block* find(uint64_t size) noexcept;
  // The same, looking at all that could fit.
  Block* find_thoroughly(uint64_t size) noexcept;
  void insert(Block* block) noexcept;
  void remove(Block* block) noexcept;
  // Makes what is behind `size` bytes of a block that is in no list a free block, if it is enough for one.
  void split(Block* block, uint64_t size) noexcept;
  // Joins a block that is neither live nor in a list with its free neighbours.
  void free_block(Block* block) noexcept;

  // Small blocks that come back wait in short lists of their exact size before they coalesce.
  Block* take_quick(uint64_t size) noexcept {
    const uint64_t units = size / kUnit;
    if (units >= kQuick || !quick_[units]) return nullptr;
    Block* block = quick_[units];
    quick_[units] = block->next;
    --quick_count_[units];
    return block;
  }
  // Of a block whose user has no use for it any more.
  void retire(Block* block) noexcept {
    const uint64_t units = block->size / kUnit;
    if (units >= kQuick || quick_count_[units] == kQuickDepth) return free_block(block);
    block->set(State::quick);
    block->next = quick_[units];
    quick_[units] = block;
    ++quick_count_[units];
  }
  void flush_quick() noexcept;

  // Moves the end: what is above becomes one block with its free neighbour below.
  void extend(char* end) noexcept;
  // The last block, if it is free.
  Block* last_free() const noexcept {
    Block* last = empty() ? nullptr : sentinel()->below;
    return last && last->state() == State::free ? last : nullptr;
  }
  // Ends at `end` in the last block, which is free and in no list; what is left of it becomes free again.
  void cut(Block* last, char* end) noexcept;

 private:
  struct Class {
    int first, second;
  };
  static constexpr int kSecondBits = 5;
  static constexpr int kSecond = 1 << kSecondBits;
  static constexpr int kFirst = 32;  // blocks below 2^(31 + kSecondBits) * 64 bytes
  static constexpr int kTries = 16;  // blocks of a class that are looked at
  static constexpr int kQuick = kQuickBytes / kUnit + 2;
  static constexpr int kQuickDepth = 32;

  static Class class_of(uint64_t size) noexcept;
  static void link_above(Block* block) noexcept { after(block)->below = block; }
  Block* find_in(Class where, uint64_t size, int tries) noexcept;
  void set_sentinel(Block* below) noexcept;

  char* base_ = nullptr;
  uint64_t range_bytes_ = 0;
  uint64_t smallest_ = 0;
  char* end_ = nullptr;  // of the usable part
  uint32_t first_map_ = 0;
  std::array<uint32_t, kFirst> second_map_{};
  std::array<std::array<Block*, kSecond>, kFirst> free_{};
  std::array<Block*, kQuick> quick_{};
  std::array<int, kQuick> quick_count_{};
};

}  // namespace weft
