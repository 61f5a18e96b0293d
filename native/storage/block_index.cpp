// block_index.cpp: size classes and lists of free blocks; blocks are divided and joined. See block_index.h.
#include "storage/block_index.h"

#include <bit>

namespace weft {

// Small blocks have a class for each size; above, each power of two is divided into kSecond classes.
BlockIndex::Class BlockIndex::class_of(uint64_t size) noexcept {
  const uint64_t units = size / kUnit;
  if (units < kSecond) return {0, static_cast<int>(units)};
  const int shift = static_cast<int>(std::bit_width(units)) - 1 - kSecondBits;
  return {shift + 1, static_cast<int>((units >> shift) - kSecond)};
}

void BlockIndex::insert(Block* block) noexcept {
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

void BlockIndex::remove(Block* block) noexcept {
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
BlockIndex::Block* BlockIndex::find_in(Class where, uint64_t size, int tries) noexcept {
  Block* lowest = nullptr;
  for (Block* block = free_[where.first][where.second]; block && tries != 0; block = block->next, --tries)
    if (block->size >= size && (!lowest || block < lowest)) lowest = block;
  return lowest;
}

// Its own class first, where a block of this very size waits if one was released; then the next class with a
// block, all of which fit.
BlockIndex::Block* BlockIndex::find(uint64_t size) noexcept {
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

BlockIndex::Block* BlockIndex::find_thoroughly(uint64_t size) noexcept {
  if (Block* block = find(size)) return block;
  return find_in(class_of(size), size, -1);
}

uint64_t BlockIndex::largest_free() const noexcept {
  if (first_map_ == 0) return 0;
  const int first = static_cast<int>(std::bit_width(first_map_)) - 1;
  const int second = static_cast<int>(std::bit_width(second_map_[first])) - 1;
  return free_[first][second]->size;
}

void BlockIndex::split(Block* block, uint64_t size) noexcept {
  if (block->size - size < smallest_) return;
  auto* rest = reinterpret_cast<Block*>(block->address() + size);
  rest->size = block->size - size;
  rest->below = block;
  block->size = size;
  link_above(rest);
  insert(rest);
}

// A header that is swallowed loses its state, so that a second release finds no block.
void BlockIndex::free_block(Block* block) noexcept {
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

void BlockIndex::flush_quick() noexcept {
  for (int units = 0; units < kQuick; ++units) {
    while (Block* block = quick_[units]) {
      quick_[units] = block->next;
      free_block(block);
    }
    quick_count_[units] = 0;
  }
}

void BlockIndex::set_sentinel(Block* below) noexcept {
  Block* block = sentinel();
  block->set(State::sentinel);
  block->size = kHeader;
  block->below = below;
}

void BlockIndex::extend(char* end) noexcept {
  Block* last = empty() ? nullptr : sentinel()->below;
  auto* block = reinterpret_cast<Block*>(empty() ? base_ : end_ - kHeader);  // in the old sentinel's place
  end_ = end;
  block->below = last;
  block->size = static_cast<uint64_t>(end_ - kHeader - block->address());
  block->set(State::none);
  set_sentinel(block);
  free_block(block);
}

void BlockIndex::cut(Block* last, char* end) noexcept {
  end_ = end;
  if (empty()) return;
  if (last == sentinel()) return set_sentinel(last->below);
  last->size = static_cast<uint64_t>(end_ - kHeader - last->address());
  set_sentinel(last);
  insert(last);
}

}  // namespace weft
