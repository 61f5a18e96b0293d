// pool_pages.cpp: memory from the system and back to it. See pool.h.
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "storage/pool_block.h"

namespace weft {

namespace {

constexpr uint64_t kGrowth = 64;  // the usable part grows by this part of itself, in few system calls

}  // namespace

bool Pool::may_reserve(uint64_t bytes) const noexcept {
  return stats_.reserved_bytes <= limit_bytes_ && bytes <= limit_bytes_ - stats_.reserved_bytes;
}

void Pool::count_reserved(uint64_t bytes) noexcept {
  stats_.reserved_bytes += bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
}

void Pool::set_end(char* end) noexcept {
  end_ = end;
  usable_.store(static_cast<uint64_t>(end - base_), std::memory_order_relaxed);
}

void Pool::set_sentinel(Block* below) noexcept {
  Block* block = sentinel();
  block->set(State::sentinel);
  block->size = kHeader;
  block->below = below;
}

bool Pool::commit(uint64_t bytes, uint64_t also_needed) noexcept {
  if (bytes > range_bytes_ - static_cast<uint64_t>(end_ - base_) || !may_reserve(bytes + also_needed))
    return false;
  if (mprotect(end_, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  set_end(end_ + bytes);
  count_reserved(bytes);
  return true;
}

// Allocations of changing sizes can leave free blocks that fit none of the next requests. Before the pool
// takes more than 1.25 times the largest memory that was ever in use, it returns the inner pages of free
// blocks to the system. A program that repeats the same allocations never comes here.
void Pool::limit_overhead(uint64_t more) noexcept {
  const uint64_t live = std::max(stats_.peak_in_use_bytes, stats_.in_use_bytes + more);
  const uint64_t reserved = stats_.reserved_bytes + more;
  if (reserved <= live + live / 4 + kStep || reserved < next_give_back_) return;
  give_back_holes();
  next_give_back_ = stats_.reserved_bytes + more + live / 16;  // if little could go, not again at once
}

// Makes the last block free and at least this large.
bool Pool::grow(uint64_t size) noexcept {
  limit_overhead(size);
  const bool empty = end_ == base_;
  Block* last = empty ? nullptr : sentinel()->below;
  const bool extends = last && last->state() == State::free;
  const uint64_t have = extends ? last->size : 0;
  const uint64_t absent = extends ? absent_in(last->address(), end_) : 0;
  auto* block = reinterpret_cast<Block*>(empty ? base_ : end_ - kHeader);  // in the old sentinel's place
  const uint64_t least = round_up(size - have + (empty ? kHeader : 0), kPiece);
  const auto used = static_cast<uint64_t>(end_ - base_);
  const uint64_t usual = round_up(used + std::max(least, used / kGrowth), kStep) - used;
  if (!commit(usual, absent) && !commit(least, absent)) return false;
  block->below = last;
  block->size = static_cast<uint64_t>(end_ - kHeader - block->address());
  block->set(State::none);
  set_sentinel(block);
  free_block(block);
  return true;
}

// Calls f(word, mask) for the bits of the pieces that from .. to touches.
template <class F>
void Pool::each_word(const char* from, const char* to, F&& f) const noexcept {
  auto piece = static_cast<uint64_t>(from - base_) / kPiece;
  const auto end = (static_cast<uint64_t>(to - base_) + kPiece - 1) / kPiece;
  while (piece < end) {
    const uint64_t next = std::min(end, (piece / 64 + 1) * 64);
    f(absent_[piece / 64], (~uint64_t{0} >> (64 - (next - piece))) << (piece % 64));
    piece = next;
  }
}

uint64_t Pool::absent_in(const char* from, const char* to) const noexcept {
  if (absent_bytes_ == 0) return 0;
  uint64_t pieces = 0;
  each_word(from, to, [&](uint64_t word, uint64_t mask) { pieces += std::popcount(word & mask); });
  return pieces * kPiece;
}

void Pool::mark_present(const char* from, const char* to) noexcept {
  const uint64_t bytes = absent_in(from, to);
  if (bytes == 0) return;
  each_word(from, to, [](uint64_t& word, uint64_t mask) { word &= ~mask; });
  absent_bytes_ -= bytes;
  count_reserved(bytes);
}

// What was given back inside a free block comes again when it is touched, which counts from now on.
bool Pool::make_present(Block* block, uint64_t size) noexcept {
  const char* to = std::min(block->address() + size + kHeader, end_);  // with the header of what is split off
  const uint64_t bytes = absent_in(block->address(), to);
  if (bytes == 0) return true;
  limit_overhead(bytes);
  if (!may_reserve(absent_in(block->address(), to))) return false;
  mark_present(block->address(), to);
  fresh_ = true;
  return true;
}

void Pool::give_back_inside(Block* block) noexcept {
  char* from = base_ + round_up(static_cast<uint64_t>(block->address() + kHeader - base_), kPiece);
  char* to = base_ + round_down(static_cast<uint64_t>(block->address() + block->size - base_), kPiece);
  if (from >= to) return;
  const auto bytes = static_cast<uint64_t>(to - from);
  const uint64_t absent = absent_in(from, to);
  if (absent == bytes || madvise(from, bytes, MADV_DONTNEED) != 0) return;
  each_word(from, to, [](uint64_t& word, uint64_t mask) { word |= mask; });
  absent_bytes_ += bytes - absent;
  stats_.reserved_bytes -= bytes - absent;
}

void Pool::give_back_holes() noexcept {
  for (auto& lists : free_)
    for (Block* block : lists)
      for (; block; block = block->next) give_back_inside(block);
}

// If the last block is free, moves the end to its beginning, so that its addresses cost nothing at all.
void Pool::shrink() noexcept {
  Block* last = end_ == base_ ? nullptr : sentinel()->below;
  if (!last || last->state() != State::free) return;
  char* end = base_;
  if (last->below) {
    end += round_up(static_cast<uint64_t>(last->address() + kHeader - base_), kPiece);
    const auto room = static_cast<uint64_t>(end - kHeader - last->address());
    if (room > 0 && room < kSmallest) end += kPiece;  // too little for a block
  }
  if (end >= end_) return;
  const auto bytes = static_cast<uint64_t>(end_ - end);
  remove(last);  // its header may go, too
  if (madvise(end, bytes, MADV_DONTNEED) != 0) return insert(last);
  mprotect(end, bytes, PROT_NONE);  // if it fails, it stays usable, which does no harm
  mark_present(end, end_);
  stats_.reserved_bytes -= bytes;
  set_end(end);
  if (end_ == base_) return;
  mark_present(end_ - kHeader, end_);
  if (last == sentinel()) return set_sentinel(last->below);
  last->size = static_cast<uint64_t>(end_ - kHeader - last->address());
  set_sentinel(last);
  insert(last);
}

uint64_t Pool::trim_locked(Violations& violations) noexcept {
  leave_quarantine(0, violations);
  reclaim_returned();
  flush_quick();
  const uint64_t before = stats_.reserved_bytes;
  const uint64_t peak = stats_.peak_reserved_bytes;
  shrink();
  give_back_holes();
  stats_.peak_reserved_bytes = peak;  // pieces counted as present on their way out
  return before - stats_.reserved_bytes;
}

}  // namespace weft
