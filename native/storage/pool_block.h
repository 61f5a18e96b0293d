// pool_block.h: for the files of the pool only: the header of a block, the sizes that blocks are made of.
#pragma once

#include "storage/pool.h"

namespace weft {

inline constexpr uint64_t kUnit = Pool::kAlignment;
inline constexpr uint64_t kHeader = 64;
inline constexpr uint64_t kSmallest = kHeader + kUnit;
inline constexpr uint64_t kStep = 2 << 20;    // the usable part ends at multiples of it: a huge page
inline constexpr uint64_t kPiece = 64 << 10;  // what is given back from between live blocks
inline constexpr uint64_t kCanary = 64;       // checking mode: before the user's bytes, at least one behind

// What follows a block of at least kLarge begins kSkew behind it, modulo a page, where there is room.
// Processors take a load for one of what was stored just before if both addresses end in the same 12 bits;
// results of large operations would be one header above their operands, where that happens all the time
// (docs/design/eager-numbers.md).
inline constexpr uint64_t kLarge = 256 << 10, kPage = 4096, kSkew = 17 * kUnit;

inline uint64_t round_up(uint64_t number, uint64_t unit) { return (number + unit - 1) & ~(unit - 1); }
inline uint64_t round_down(uint64_t number, uint64_t unit) { return number & ~(unit - 1); }
std::string show_bytes(uint64_t bytes);
// Adds a text, unless there is no memory for it.
void add_violation(std::vector<std::string>& violations, auto&& text) noexcept {
  try {
    violations.push_back(text());
  } catch (...) {
  }
}

// Random-looking numbers, so that user data is hardly ever taken for a header. 0: no header any more.
enum class Pool::State : uint64_t {
  none = 0,
  live = 0x9d3f6b5c1e27a841,
  free = 0x63b1e04f9ac85d27,
  quick = 0xb8427cd50f93e6a5,
  quarantined = 0x51ce8a3d7206fb9b,
  returned = 0xe6159b2c84d07f33,
  sentinel = 0x2fd79016c4eb583d,
};

struct alignas(kHeader) Pool::Block {
  // Written under the lock, but for live -> returned, which the thread that releases the block does without;
  // it alone may touch a live block. Relaxed: the lock, or the list of returned blocks, orders everything
  // else.
  std::atomic<State> word;
  uint64_t size;       // with this header
  Block* below;        // the neighbour below; null for the first
  Block* next;         // in a free list, a quick list, the quarantine or the list of returned blocks
  Block* previous;     // in a free list
  uint64_t requested;  // the size that the user requested

  State state() const noexcept { return word.load(std::memory_order_relaxed); }
  void set(State state) noexcept { word.store(state, std::memory_order_relaxed); }
  char* address() noexcept { return reinterpret_cast<char*>(this); }
  unsigned char* data() noexcept { return reinterpret_cast<unsigned char*>(this) + kHeader; }
  unsigned char* end() noexcept { return reinterpret_cast<unsigned char*>(this) + size; }
};

inline Pool::Block* Pool::after(Block* block) noexcept { return reinterpret_cast<Block*>(block->end()); }
inline void Pool::link_above(Block* block) noexcept { after(block)->below = block; }
inline Pool::Block* Pool::sentinel() const noexcept { return reinterpret_cast<Block*>(end_ - kHeader); }

// What a live block counts for.
inline uint64_t in_use_by(const auto* block) noexcept { return round_up(block->requested, kUnit); }

// Whether the headers of the block and of its neighbour above can be trusted.
inline bool Pool::is_whole(Block* block) const noexcept {
  const auto room = static_cast<uint64_t>(end_ - kHeader - block->address());
  return block->size % kUnit == 0 && block->size >= kSmallest && block->size <= room &&
         after(block)->below == block;
}

// Visits the blocks from below; false if it had to stop at a damaged header.
template <class F>
bool Pool::walk(F&& f) const {
  if (end_ == base_) return true;
  for (auto* block = reinterpret_cast<Block*>(base_); block != sentinel(); block = after(block)) {
    if (!is_whole(block)) return false;
    f(block);
  }
  return true;
}

}  // namespace weft
