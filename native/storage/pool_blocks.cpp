// pool_blocks.cpp: size classes and lists of free blocks; blocks are taken, divided, joined. See pool.h.
#include <algorithm>
#include <bit>

#include "storage/pool_block.h"

namespace weft {

// Small blocks have a class for each size; above, each power of two is divided into kSecond classes.
Pool::Class Pool::class_of(uint64_t size) noexcept {
  const uint64_t units = size / kUnit;
  if (units < kSecond) return {0, static_cast<int>(units)};
  const int shift = static_cast<int>(std::bit_width(units)) - 1 - kSecondBits;
  return {shift + 1, static_cast<int>((units >> shift) - kSecond)};
}

void Pool::insert(Block* block) noexcept {
  const auto [first, second] = class_of(block->size);
  Block*& head = free_[first][second];
  block->set(State::free);
  block->previous = nullptr;
  block->next = head;
  if (head) head->previous = block;
  head = block;
  first_map_ |= 1u << first;
  second_map_[first] |= 1u << second;
}

void Pool::remove(Block* block) noexcept {
  if (block->next) block->next->previous = block->previous;
  if (block->previous) {
    block->previous->next = block->next;
    return;
  }
  const auto [first, second] = class_of(block->size);
  free_[first][second] = block->next;
  if (block->next) return;
  second_map_[first] &= ~(1u << second);
  if (second_map_[first] == 0) first_map_ &= ~(1u << first);
}

// The lowest of the first that fit: this keeps the upper end free, and takes a tenth off what is reserved in
// random use, against the first that fits or the one that fits best.
Pool::Block* Pool::find_in(Class where, uint64_t size, int tries) noexcept {
  Block* lowest = nullptr;
  for (Block* block = free_[where.first][where.second]; block && tries != 0; block = block->next, --tries)
    if (block->size >= size && (!lowest || block < lowest)) lowest = block;
  return lowest;
}

// Its own class first, where a block of this very size waits if one was released; then the next class with a
// block, all of which fit.
Pool::Block* Pool::find(uint64_t size) noexcept {
  const Class exact = class_of(size);
  if (Block* block = find_in(exact, size, kTries)) return block;
  int first = exact.first;
  auto seconds = static_cast<uint32_t>(second_map_[first] & (~uint64_t{1} << exact.second));
  if (seconds == 0) {
    const auto firsts = static_cast<uint32_t>(first_map_ & (~uint64_t{1} << first));
    if (firsts == 0) return nullptr;
    first = std::countr_zero(firsts);
    seconds = second_map_[first];
  }
  return find_in({first, std::countr_zero(seconds)}, size, kTries);
}

// New memory is dear: first let small blocks coalesce, and look at the whole class.
Pool::Block* Pool::find_or_grow(uint64_t size) noexcept {
  flush_quick();
  if (Block* block = find(size)) return block;
  if (Block* block = find_in(class_of(size), size, -1)) return block;
  if (!grow(size)) return nullptr;
  fresh_ = true;
  return sentinel()->below;
}

// ---------------------------------------------------------------- taking and giving blocks

Pool::Block* Pool::take_quick(uint64_t size) noexcept {
  const uint64_t units = size / kUnit;
  if (units >= kQuick || !quick_[units]) return nullptr;
  Block* block = quick_[units];
  quick_[units] = block->next;
  --quick_count_[units];
  return block;
}

// A live block of at least this size, header included, for so many of the user's bytes; null if there is no
// memory.
Pool::Block* Pool::take(uint64_t size, size_t bytes) noexcept {
  fresh_ = false;
  if (returned_.load(std::memory_order_relaxed)) reclaim_returned();
  Block* block = take_quick(size);
  if (!block) {
    block = find(size);
    if (!block) [[unlikely]]
      block = find_or_grow(size);
    if (!block) return nullptr;
    if (absent_bytes_ != 0 && !make_present(block, size)) return nullptr;
    remove(block);
    split(block, size);
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
  char* const to = std::min(block->address() + padded_size + kHeader, end_);
  return absent_bytes_ == 0 || absent_in(from, to) == 0 ? padded_size : size;
}

void Pool::split(Block* block, uint64_t size) noexcept {
  if (size >= kLarge) size = spread(block, size);
  if (block->size - size < kSmallest) return;
  auto* rest = reinterpret_cast<Block*>(block->address() + size);
  rest->size = block->size - size;
  rest->below = block;
  block->size = size;
  link_above(rest);
  insert(rest);
}

// The user has no use for it any more; it is not live, nor counted as such.
void Pool::retire(Block* block) noexcept {
  const uint64_t units = block->size / kUnit;
  if (units >= kQuick || quick_count_[units] == kQuickDepth) return free_block(block);
  block->set(State::quick);
  block->next = quick_[units];
  quick_[units] = block;
  ++quick_count_[units];
}

// A header that is swallowed loses its state, so that a second release finds no block.
void Pool::free_block(Block* block) noexcept {
  Block* above = after(block);
  if (above->state() == State::free) {
    remove(above);
    above->set(State::none);
    block->size += above->size;
  }
  Block* below = block->below;
  if (below && below->state() == State::free) {
    remove(below);
    block->set(State::none);
    below->size += block->size;
    block = below;
  }
  link_above(block);
  insert(block);
}

void Pool::flush_quick() noexcept {
  for (int units = 0; units < kQuick; ++units) {
    while (Block* block = quick_[units]) {
      quick_[units] = block->next;
      free_block(block);
    }
    quick_count_[units] = 0;
  }
}

}  // namespace weft
