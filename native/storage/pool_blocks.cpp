// pool_blocks.cpp: blocks are taken, with memory where they have none. See pool.h.
#include <algorithm>

#include "storage/pool_block.h"

namespace weft {

namespace {

// What follows a block of at least kLarge begins kSkew behind it, modulo a page, where there is room.
// Processors take a load for one of what was stored just before if both addresses end in the same 12 bits;
// results of large operations would be one header above their operands, where that happens all the time
// (docs/design/eager-numbers.md).
constexpr uint64_t kLarge = 256 << 10, kPage = 4096, kSkew = 17 * BlockIndex::kUnit;

}  // namespace

// New memory is dear: first let small blocks coalesce, and look at the whole class.
Pool::Block* Pool::find_or_grow(uint64_t size) noexcept {
  index_.flush_quick();
  if (Block* block = index_.find_thoroughly(size)) return block;
  if (!grow(size)) return nullptr;
  fresh_ = true;
  return index_.last_free();
}

// A live block of at least this size, header included, for so many of the user's bytes; null if there is no
// memory.
Pool::Block* Pool::take(uint64_t size, size_t bytes) noexcept {
  fresh_ = false;
  if (returned_.load(std::memory_order_relaxed)) reclaim_returned();
  Block* block = index_.take_quick(size);
  if (!block) {
    block = index_.find(size);
    if (!block) [[unlikely]]
      block = find_or_grow(size);
    if (!block) return nullptr;
    if (absent_bytes_ != 0 && !make_present(block, size)) return nullptr;
    index_.remove(block);
    index_.split(block, size >= kLarge && header_ != 0 ? spread(block, size) : size);
  }
  block->set(State::live);
  block->requested = bytes;
  stats_.in_use_bytes += in_use_by(block);
  stats_.peak_in_use_bytes = std::max(stats_.peak_in_use_bytes, stats_.in_use_bytes);
  ++stats_.live_blocks;
  ++stats_.allocations;
  stats_.reused += !fresh_;
  return block;
}

// With as much behind it as puts the next block elsewhere in its page, if that is there and costs nothing.
uint64_t Pool::spread(Block* block, uint64_t size) const noexcept {
  const uint64_t padded_size = std::min(size + (kSkew - size) % kPage, block->size);
  char* const from = block->address() + size;
  char* const to = std::min(block->address() + padded_size + header_, index_.end());
  return absent_bytes_ == 0 || absent_in(from, to) == 0 ? padded_size : size;
}

}  // namespace weft
