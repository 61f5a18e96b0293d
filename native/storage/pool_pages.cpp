// pool_pages.cpp: memory from the system and back to it. See pool.h.
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

// Behind the end; returns how many bytes of the index came, 0: none.
uint64_t Pool::commit(uint64_t bytes, uint64_t also_needed) noexcept {
  const uint64_t memory = bytes << shift_;
  if (bytes > index_.range_bytes() - index_.used_bytes() || !may_reserve(memory + also_needed)) return 0;
  if (!pages_->commit(index_.used_bytes() << shift_, memory)) return 0;
  count_reserved(memory);
  return bytes;
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
  limit_overhead(size << shift_);
  Block* last = index_.last_free();
  const uint64_t have = last ? last->size : 0;
  const uint64_t absent = last ? absent_in(last->address(), index_.end()) : 0;
  const uint64_t least = round_up(size - have + (index_.empty() ? BlockIndex::kHeader : 0), piece_);
  const uint64_t used = index_.used_bytes();
  const uint64_t usual =
      round_up(used + std::max(least, used / kGrowth), std::max(kStep >> shift_, piece_)) - used;
  uint64_t bytes = commit(usual, absent);
  if (bytes == 0) bytes = commit(least, absent);
  if (bytes == 0) return false;
  index_.extend(index_.end() + bytes);
  set_usable();
  return true;
}

// Calls f(word, mask) for the bits of the pieces that from .. to touches.
template <class F>
void Pool::each_word(const char* from, const char* to, F&& f) const noexcept {
  auto piece = static_cast<uint64_t>(from - index_.base()) / piece_;
  const auto end = (static_cast<uint64_t>(to - index_.base()) + piece_ - 1) / piece_;
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
  return pieces * piece_ << shift_;
}

void Pool::mark_present(const char* from, const char* to) noexcept {
  const uint64_t bytes = absent_in(from, to);
  if (bytes == 0) return;
  each_word(from, to, [](uint64_t& word, uint64_t mask) { word &= ~mask; });
  absent_bytes_ -= bytes;
  count_reserved(bytes);
}

// What was given back inside a free block comes again, which counts from now on.
bool Pool::make_present(Block* block, uint64_t size) noexcept {
  char* const from = block->address();
  char* const to = std::min(from + size + header_, index_.end());  // with the header of what is split off
  const uint64_t bytes = absent_in(from, to);
  if (bytes == 0) return true;
  limit_overhead(bytes);
  if (!may_reserve(absent_in(from, to)) || !bring_back(from, to)) return false;
  mark_present(from, to);
  fresh_ = true;
  return true;
}

// The pieces that from .. to touches: those of them that are absent get memory.
bool Pool::bring_back(const char* from, const char* to) noexcept {
  const uint64_t first = round_down(static_cast<uint64_t>(from - index_.base()), piece_);
  const uint64_t end = round_up(static_cast<uint64_t>(to - index_.base()), piece_);
  return pages_->bring_back(first << shift_, (end - first) << shift_);
}

void Pool::give_back_inside(Block* block) noexcept {
  const auto offset = static_cast<uint64_t>(block->address() - index_.base());
  const uint64_t from = round_up(offset + header_, piece_), to = round_down(offset + block->size, piece_);
  if (from >= to) return;
  char* const base = index_.base();
  const uint64_t bytes = (to - from) << shift_, absent = absent_in(base + from, base + to);
  if (absent == bytes || !pages_->give_back(from << shift_, bytes)) return;
  each_word(base + from, base + to, [](uint64_t& word, uint64_t mask) { word |= mask; });
  absent_bytes_ += bytes - absent;
  stats_.reserved_bytes -= bytes - absent;
}

void Pool::give_back_holes() noexcept {
  index_.each_free([&](Block* block) { give_back_inside(block); });
}

// If the last block is free, moves the end to its beginning, so that its addresses cost nothing at all.
void Pool::shrink() noexcept {
  Block* last = index_.last_free();
  if (!last) return;
  char* const base = index_.base();
  char* const old_end = index_.end();
  char* end = base;
  if (last->below) {
    end += round_up(static_cast<uint64_t>(last->address() + BlockIndex::kHeader - base), piece_);
    const auto room = static_cast<uint64_t>(end - BlockIndex::kHeader - last->address());
    if (room > 0 && room < index_.smallest()) end += piece_;  // too little for a block
  }
  if (end >= old_end) return;
  const auto offset = static_cast<uint64_t>(end - base), bytes = static_cast<uint64_t>(old_end - end);
  if (end != base) {  // the new sentinel's piece
    if (!bring_back(end - BlockIndex::kHeader, end)) return;
    mark_present(end - BlockIndex::kHeader, end);
  }
  index_.remove(last);  // its header may go, too
  if (!pages_->withdraw(offset << shift_, bytes << shift_)) return index_.insert(last);
  mark_present(end, old_end);
  stats_.reserved_bytes -= bytes << shift_;
  index_.cut(last, end);
  set_usable();
}

uint64_t Pool::trim_locked(Violations& violations) noexcept {
  leave_quarantine(0, violations);
  reclaim_returned();
  index_.flush_quick();
  const uint64_t before = stats_.reserved_bytes;
  const uint64_t peak = stats_.peak_reserved_bytes;
  shrink();
  give_back_holes();
  stats_.peak_reserved_bytes = peak;  // pieces counted as present on their way out
  return before - stats_.reserved_bytes;
}

}  // namespace weft
