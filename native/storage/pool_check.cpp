// pool_check.cpp: checking mode: canaries around live blocks, and a quarantine for released ones. See pool.h.
// All under the lock, fills included: it finds mistakes, it need not be fast.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "storage/pool_block.h"

namespace weft {

namespace {

constexpr int kCanaryByte = 0xC5;
constexpr int kReleasedByte = 0xDD;
constexpr uint64_t kQuarantineBytes = 64 << 20;
constexpr uint64_t kQuarantinePart = 8;  // of the limit

// The first byte that is not `expected`; `to` if there is none.
const unsigned char* first_other(const unsigned char* from, const unsigned char* to, int expected) noexcept {
  return std::find_if(from, to, [&](unsigned char byte) { return byte != expected; });
}

constexpr uint64_t kHeader = BlockIndex::kHeader;

// Only memory of the host is checked, where the block is behind its header.
unsigned char* data(BlockIndex::Block* block) noexcept {
  return reinterpret_cast<unsigned char*>(block) + kHeader;
}
unsigned char* user_bytes(BlockIndex::Block* block) noexcept { return data(block) + kCanary; }
unsigned char* end(BlockIndex::Block* block) noexcept {
  return reinterpret_cast<unsigned char*>(block) + block->size;
}

}  // namespace

// The canary above begins right where the user's bytes end, and fills the block.
void Pool::write_canaries(Block* block, size_t bytes) noexcept {
  block->requested = bytes;
  unsigned char* user = user_bytes(block);
  std::memset(data(block), kCanaryByte, kCanary);
  std::memset(user + bytes, kCanaryByte, static_cast<size_t>(end(block) - (user + bytes)));
}

std::string Pool::describe(Block* block) const {
  char address[32];
  std::snprintf(address, sizeof address, "%p", static_cast<void*>(user_bytes(block)));
  return name_ + ": block " + address + " of " + show_bytes(block->requested);
}

// Reports and mends bytes of a block that are not what they should be.
void Pool::check_bytes(Block* block, unsigned char* from, unsigned char* to, int expected, const char* what,
                       Violations& violations) noexcept {
  const unsigned char* other = first_other(from, to, expected);
  if (other == to) return;
  const auto offset = other - (user_bytes(block));
  add_violation(violations, [&] {
    return describe(block) + ": written " + what + ", first at offset " + std::to_string(offset);
  });
  std::memset(from, expected, static_cast<size_t>(to - from));
}

void Pool::check_live(Block* block, Violations& violations) noexcept {
  unsigned char* user = user_bytes(block);
  const auto room = static_cast<uint64_t>(end(block) - user);
  if (block->requested > room)
    return add_violation(violations, [&] { return describe(block) + ": its header is damaged"; });
  check_bytes(block, data(block), user, kCanaryByte, "before its start", violations);
  check_bytes(block, user + block->requested, end(block), kCanaryByte, "after its end", violations);
}

void Pool::check_quarantined(Block* block, Violations& violations) noexcept {
  check_bytes(block, data(block), end(block), kReleasedByte, "after its release", violations);
}

void Pool::release_checked(Block* block, void* memory) noexcept {
  Violations violations;
  State state;
  {
    const std::lock_guard guard(lock_);
    state = index_.state_of(block);
    if (state == State::live) {
      const auto room = static_cast<uint64_t>(index_.end() - kHeader - block->address());
      if (block->size <= room) check_live(block, violations);
      if (index_.is_whole(block)) {
        uncount(block);
        quarantine(block, violations);
      } else {
        add_violation(violations,
                      [&] { return describe(block) + ": written over a header; it stays in use for ever"; });
      }
    }
  }
  if (state != State::live) report_misuse(memory, state);
  report(violations);
}

void Pool::quarantine(Block* block, Violations& violations) noexcept {
  const uint64_t bound = std::min(kQuarantineBytes, limit_bytes_ / kQuarantinePart);
  if (block->size > bound) return index_.retire(block);  // it would drive out all others
  std::memset(data(block), kReleasedByte, block->size - kHeader);
  block->set(State::quarantined);
  block->next = nullptr;
  (quarantine_last_ ? quarantine_last_->next : quarantine_first_) = block;
  quarantine_last_ = block;
  quarantine_bytes_ += block->size;
  leave_quarantine(bound, violations);
}

// The oldest leave until no more than that is kept.
void Pool::leave_quarantine(uint64_t bound, Violations& violations) noexcept {
  while (quarantine_bytes_ > bound) {
    Block* block = quarantine_first_;
    if (!block || block->state() != State::quarantined ||
        !index_.is_whole(block)) {  // the list leads nowhere
      if (block) add_violation(violations, [&] { return name_ + ": a header in the quarantine is damaged"; });
      quarantine_first_ = quarantine_last_ = nullptr;
      quarantine_bytes_ = 0;
      return;
    }
    check_quarantined(block, violations);
    quarantine_first_ = block->next;
    if (!quarantine_first_) quarantine_last_ = nullptr;
    quarantine_bytes_ -= block->size;
    index_.retire(block);
  }
}

size_t Pool::check_all() noexcept {
  Violations violations;
  {
    const std::lock_guard guard(lock_);
    const bool all = index_.walk([&](Block* block) {
      if (!check_) return;
      if (block->state() == State::live) check_live(block, violations);
      if (block->state() == State::quarantined) check_quarantined(block, violations);
    });
    if (!all)
      add_violation(violations,
                    [&] { return name_ + ": a header is damaged; the blocks above it were not checked"; });
  }
  report(violations);
  return violations.size();
}

}  // namespace weft
