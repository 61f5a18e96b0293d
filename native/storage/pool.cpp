// pool.cpp: the life of a pool, and what users call; see pool.h for purpose, invariants and lock.
//
// pool_blocks.cpp takes blocks of the index, pool_pages.cpp has memory of the system come and go,
// pool_check.cpp is the checking mode. In all of them functions without a lock_guard expect the lock held,
// unless they touch only what never changes.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <mutex>

#include "storage/pool_block.h"

namespace weft {

namespace {

// For the message of a failure it looks at all blocks, while others wait for the lock: not at very many.
constexpr uint64_t kLookAtMost = 100000;

// Zeros, which take memory when they are written to.
char* map(uint64_t bytes) noexcept {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

}  // namespace

Pool::Pool(std::string name, PoolOptions options, std::unique_ptr<Pages> pages)
    : name_(std::move(name)),
      pages_(std::move(pages)),
      check_(options.check && pages_->on_host()),
      shift_(pages_->on_host() ? 0 : kShiftBeside),
      header_(pages_->on_host() ? BlockIndex::kHeader : 0),
      front_(header_ + (check_ ? kCanary : 0)),
      on_violation_(options.on_violation),
      limit_bytes_(options.limit_bytes ? options.limit_bytes : pages_->total_bytes()) {
  map_index();
}

Pool::~Pool() {
  if (check_) check_all();
  if (index_.base() && !pages_->on_host()) munmap(index_.base(), index_.range_bytes());
  if (absent_) munmap(absent_, round_up(index_.range_bytes() / piece_ / 8, 4096));
}

// Without one, as without addresses for the memory, each allocation fails.
void Pool::map_index() noexcept {
  const uint64_t bytes = pages_->bytes() >> shift_;
  if (bytes == 0) return;
  piece_ = pages_->granularity() >> shift_;
  const uint64_t bitmap_bytes = round_up(bytes / piece_ / 8, 4096);
  absent_ = reinterpret_cast<uint64_t*>(map(bitmap_bytes));
  if (!absent_) return;
  char* base = pages_->on_host() ? pages_->base() : map(bytes);
  if (!base) {
    munmap(std::exchange(absent_, nullptr), bitmap_bytes);
    return;
  }
  index_.set_range(base, bytes, header_ + BlockIndex::kUnit);
  to_memory_ =
      reinterpret_cast<uint64_t>(pages_->base()) - (reinterpret_cast<uint64_t>(base) << shift_) + front_;
}

// In bytes of the index, with header and canaries; 0 if it is more than can ever be had.
uint64_t Pool::block_size(size_t bytes) const noexcept {
  if (bytes > pages_->bytes()) return 0;
  const uint64_t all = front_ + bytes + (check_ ? kCanary : 0);
  return std::max(round_up(all, BlockIndex::kUnit << shift_) >> shift_, index_.smallest());
}

void* Pool::hand_out(Block* block, size_t bytes) noexcept {
  if (check_) write_canaries(block, bytes);
  return memory_of(block);
}

void* Pool::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = obtain(bytes);
  if (PoolWatch* watching = watch.load(std::memory_order_acquire)) [[unlikely]]
    watching->allocated(*this, memory, bytes);
  return memory;
}

void* Pool::obtain(size_t bytes) {
  const uint64_t size = block_size(bytes);
  bool possible;
  {
    const std::lock_guard guard(lock_);
    possible = size != 0 && size <= limit_bytes_ >> shift_;
    if (possible) [[likely]]
      if (Block* block = take(size, bytes)) [[likely]]
        return hand_out(block, bytes);
  }
  if (!possible) fail(bytes);  // at once: nothing that can be released would help
  return retry(bytes, size);
}

void* Pool::retry(size_t bytes, uint64_t size) {
  for (const bool last : {false, true}) {
    if (last && !(release_more_ && release_more_())) break;
    Violations violations;
    Block* block;
    void* memory = nullptr;
    {
      const std::lock_guard guard(lock_);
      trim_locked(violations);
      block = take(size, bytes);
      if (block) memory = hand_out(block, bytes);
    }
    report(violations);
    if (block) return memory;
  }
  fail(bytes);
}

void Pool::fail(size_t bytes) {
  PoolStats now;
  uint64_t limit, largest = 0;
  bool refused;
  {
    const std::lock_guard guard(lock_);
    reclaim_returned();
    now = stats_;
    limit = limit_bytes_;
    refused = may_reserve(bytes);
    if (now.live_blocks <= kLookAtMost)
      index_.walk([&](Block* block) {
        if (block->state() == State::live)
          largest = std::max(largest, check_ ? block->requested : in_use_by(block));
      });
  }
  throw OutOfMemory(
      name_ + ": out of memory: " + show_bytes(bytes) + " asked for; " + show_bytes(now.in_use_bytes) +
      " in use by " + std::to_string(now.live_blocks) + (now.live_blocks == 1 ? " block" : " blocks") +
      (largest ? ", largest " + show_bytes(largest) : std::string()) + "; " + show_bytes(now.reserved_bytes) +
      " held from the system, limit " + show_bytes(limit) + (refused ? ", but the system refuses more" : ""));
}

void Pool::uncount(const Block* block) noexcept {
  stats_.in_use_bytes -= in_use_by(block);
  --stats_.live_blocks;
}

void Pool::release(void* memory) noexcept {
  if (!memory) return;
  if (PoolWatch* watching = watch.load(std::memory_order_acquire)) [[unlikely]]
    watching->released(*this, memory);
  Block* block = block_of(memory);
  if (check_) return release_checked(block, memory);
  // Another thread may have written it last: fetched before the lock is held.
  prefetch_for_writing(block, sizeof(Block));
  if (!lock_.try_lock()) {
    if (defer_release(block)) return;
    lock_.lock();
  }
  State state;
  {
    const std::lock_guard guard(lock_, std::adopt_lock);
    state = index_.state_of(block);
    if (state == State::live) [[likely]] {
      uncount(block);
      return index_.retire(block);
    }
  }
  report_misuse(memory, state);
}

// The lock is held: rather than wait for it, leaves the block in a list for the next allocation. False if
// it does not look like a live block. The release of the exchange makes the link visible to reclaim_returned.
bool Pool::defer_release(Block* block) noexcept {
  const uint64_t offset = reinterpret_cast<uint64_t>(block) - reinterpret_cast<uint64_t>(index_.base());
  if (offset >= usable_.load(std::memory_order_relaxed) || offset % BlockIndex::kUnit != 0) return false;
  State expected = State::live;
  if (!block->word.compare_exchange_strong(expected, State::returned, std::memory_order_relaxed))
    return false;
  block->next = returned_.load(std::memory_order_relaxed);
  while (!returned_.compare_exchange_weak(block->next, block, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
  return true;
}

void Pool::reclaim_returned() noexcept {
  Block* block = returned_.exchange(nullptr, std::memory_order_acquire);
  while (block) {
    Block* next = block->next;
    uncount(block);
    index_.retire(block);
    block = next;
  }
}

uint64_t Pool::trim() noexcept {
  Violations violations;
  uint64_t bytes;
  {
    const std::lock_guard guard(lock_);
    bytes = trim_locked(violations);
  }
  report(violations);
  return bytes;
}

void Pool::lose() noexcept {
  const std::lock_guard guard(lock_);
  limit_bytes_ = 0;
  pages_->lose();
}

PoolStats Pool::stats() noexcept {
  const std::lock_guard guard(lock_);
  reclaim_returned();
  PoolStats result = stats_;
  const uint64_t largest = index_.largest_free() << shift_;
  result.largest_free_bytes = largest - std::min(largest, front_ + (check_ ? kCanary : 0));
  return result;
}

void Pool::reset_peaks() noexcept {
  const std::lock_guard guard(lock_);
  reclaim_returned();
  stats_.peak_in_use_bytes = stats_.in_use_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

std::vector<std::pair<const void*, uint64_t>> Pool::live_blocks() {
  std::vector<std::pair<const void*, uint64_t>> blocks;
  const std::lock_guard guard(lock_);
  reclaim_returned();
  blocks.reserve(stats_.live_blocks);
  index_.walk([&](Block* block) {
    if (block->state() == State::live) blocks.emplace_back(memory_of(block), in_use_by(block));
  });
  return blocks;
}

void Pool::set_limit(uint64_t bytes) noexcept {
  const uint64_t limit = bytes ? bytes : pages_->total_bytes();
  bool above;
  {
    const std::lock_guard guard(lock_);
    limit_bytes_ = limit;
    above = stats_.reserved_bytes > limit;
  }
  if (above) trim();
}

uint64_t Pool::limit() const noexcept {
  const std::lock_guard guard(lock_);
  return limit_bytes_;
}

void Pool::report_misuse(void* memory, State state) noexcept {
  Violations violations;
  add_violation(violations, [&] {
    char address[32];
    std::snprintf(address, sizeof address, "%p", memory);
    return name_ + ": release of " + address + ": " +
           (state == State::free || state == State::quick || state == State::quarantined ||
                    state == State::returned
                ? "it was released before"
                : "no live block of this pool starts there; released twice, or from elsewhere?");
  });
  report(violations);
}

void Pool::report(const Violations& violations) noexcept {
  for (const std::string& text : violations) {
    if (on_violation_)
      on_violation_(text);
    else
      std::fprintf(stderr, "%s\n", text.c_str());
  }
}

std::string show_bytes(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  static constexpr const char* kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t name = 0;
  for (; value >= 1023.95 && name + 1 < std::size(kNames); ++name) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, kNames[name]);
  return text;
}

}  // namespace weft
