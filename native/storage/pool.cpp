// pool.cpp: see pool.h for purpose, invariants and lock. Functions without a lock_guard expect the lock held,
// unless they touch only what never changes.
#include "storage/pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace weft {

namespace {

constexpr uint64_t kUnit = Pool::kAlignment;
constexpr uint64_t kHeader = 64;
constexpr uint64_t kSmallest = kHeader + kUnit;
constexpr uint64_t kStep = 2 << 20;    // the usable part ends at multiples of this: the size of a huge page
constexpr uint64_t kPiece = 64 << 10;  // what is given back from between live blocks
constexpr uint64_t kGrowth = 64;       // the usable part grows by this part of itself, in few system calls

// Checking mode.
constexpr uint64_t kCanary = 64;
constexpr int kCanaryByte = 0xC5;
constexpr int kReleasedByte = 0xDD;
constexpr uint64_t kQuarantineBytes = 64 << 20;
constexpr uint64_t kQuarantinePart = 8;  // of the limit

// For the message of a failure it looks at all blocks, while others wait for the lock: not at very many.
constexpr uint64_t kLookAtMost = 100000;

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kMostRange = uint64_t{64} << 30;  // ThreadSanitizer leaves 1.5 TiB of addresses to all
#else
constexpr uint64_t kMostRange = uint64_t{1} << 40;
#endif
constexpr uint64_t kRangeFactor = 16;  // of physical memory: room for holes that were given back

uint64_t round_up(uint64_t number, uint64_t unit) { return (number + unit - 1) & ~(unit - 1); }
uint64_t round_down(uint64_t number, uint64_t unit) { return number & ~(unit - 1); }

struct Machine {
  uint64_t memory, swap;
};

Machine machine() noexcept {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) return {uint64_t{1} << 40, 0};
  return {uint64_t{info.totalram} * info.mem_unit, uint64_t{info.totalswap} * info.mem_unit};
}

uint64_t limit_of(uint64_t asked) noexcept {
  if (asked != 0) return asked;
  const Machine has = machine();
  return has.memory + has.swap;
}

char* map(uint64_t bytes, int protection) noexcept {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
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

// The first byte that is not `expected`; `to` if there is none.
const unsigned char* first_other(const unsigned char* from, const unsigned char* to, int expected) noexcept {
  return std::find_if(from, to, [&](unsigned char byte) { return byte != expected; });
}

void note(std::vector<std::string>& found, auto&& text) noexcept {
  try {
    found.push_back(text());
  } catch (...) {  // there is no memory for the message; the check goes on
  }
}

// All pools, for fork.
struct Pools {
  std::mutex mutex;
  std::vector<Pool*> pools;

  static Pools& get() {
    static Pools* all = [] {
      pthread_atfork(before_fork, after_fork, after_fork);
      return new Pools;  // never destroyed: pools may outlive static destructors
    }();
    return *all;
  }
  static void before_fork() {
    get().mutex.lock();
    for (Pool* pool : get().pools) pool->lock_for_fork();
  }
  static void after_fork() {
    for (Pool* pool : get().pools) pool->unlock_after_fork();
    get().mutex.unlock();
  }
};

}  // namespace

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
  uint64_t size;    // with this header
  Block* before;    // the neighbour below; null for the first
  Block* next;      // in a free list, a quick list, the quarantine or the list of returned blocks
  Block* previous;  // in a free list
  uint64_t asked;   // checking mode: the size that the user asked for

  State state() const noexcept { return word.load(std::memory_order_relaxed); }
  void set(State state) noexcept { word.store(state, std::memory_order_relaxed); }
  char* address() noexcept { return reinterpret_cast<char*>(this); }
  unsigned char* data() noexcept { return reinterpret_cast<unsigned char*>(this) + kHeader; }
  unsigned char* end() noexcept { return reinterpret_cast<unsigned char*>(this) + size; }
};

// ---------------------------------------------------------------- the beginning and the end

Pool::Pool(std::string name, PoolOptions options)
    : name_(std::move(name)),
      check_(options.check),
      front_(kHeader + (options.check ? kCanary : 0)),
      on_violation_(options.on_violation),
      limit_bytes_(limit_of(options.limit_bytes)) {
  static_assert(sizeof(Block) == kHeader);
  reserve_range();
  const std::lock_guard guard(Pools::get().mutex);
  Pools::get().pools.push_back(this);
}

Pool::~Pool() {
  {
    const std::lock_guard guard(Pools::get().mutex);
    std::erase(Pools::get().pools, this);
  }
  if (check_) check_all();
  if (base_) munmap(base_, range_bytes_);
  if (absent_) munmap(absent_, round_up(range_bytes_ / kPiece / 8, 4096));
}

// Takes addresses, no memory. Without any range (a process at its limit of addresses) each allocation fails.
void Pool::reserve_range() noexcept {
  const uint64_t most = std::clamp(std::bit_ceil(machine().memory * kRangeFactor), kStep, kMostRange);
  uint64_t bytes = most;
  char* memory = nullptr;
  for (; bytes >= 2 * kStep && !memory; bytes /= 2) memory = map(bytes, PROT_NONE);
  if (!memory) return;
  bytes *= 2;
  char* base = reinterpret_cast<char*>(round_up(reinterpret_cast<uint64_t>(memory), kStep));
  char* end = memory + bytes;
  // Where addresses are scarce, the rest of the process needs some, too: threads' stacks, libraries.
  if (bytes < most) end -= bytes / 4;
  end = reinterpret_cast<char*>(round_down(reinterpret_cast<uint64_t>(end), kStep));
  if (base > memory) munmap(memory, static_cast<size_t>(base - memory));
  if (end < memory + bytes) munmap(end, static_cast<size_t>(memory + bytes - end));
  range_bytes_ = static_cast<uint64_t>(end - base);
  absent_ =
      reinterpret_cast<uint64_t*>(map(round_up(range_bytes_ / kPiece / 8, 4096), PROT_READ | PROT_WRITE));
  if (!absent_) {
    munmap(base, range_bytes_);
    range_bytes_ = 0;
    return;
  }
  // For the whole range, so that it stays one mapping; the system uses huge pages where they fit.
  madvise(base, range_bytes_, MADV_HUGEPAGE);
  base_ = end_ = base;
}

// ---------------------------------------------------------------- size classes and lists of free blocks

// Small blocks have a class for each size; above, each power of two is divided into kSecond classes.
Pool::Class Pool::class_of(uint64_t size) noexcept {
  const uint64_t units = size / kUnit;
  if (units < kSecond) return {0, static_cast<int>(units)};
  const int shift = static_cast<int>(std::bit_width(units)) - 1 - kSecondBits;
  return {shift + 1, static_cast<int>((units >> shift) - kSecond)};
}

Pool::Block* Pool::after(Block* block) noexcept { return reinterpret_cast<Block*>(block->end()); }
void Pool::set_before_of_next(Block* block) noexcept { after(block)->before = block; }
Pool::Block* Pool::sentinel() const noexcept { return reinterpret_cast<Block*>(end_ - kHeader); }

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
  const Class own = class_of(size);
  if (Block* block = find_in(own, size, kTries)) return block;
  int first = own.first;
  auto seconds = static_cast<uint32_t>(second_map_[first] & (~uint64_t{1} << own.second));
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
  return sentinel()->before;
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

// A live block of at least this size, header included; null if there is no memory.
Pool::Block* Pool::take(uint64_t size) noexcept {
  fresh_ = false;
  if (returned_.load(std::memory_order_relaxed)) take_returned();
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
  stats_.in_use_bytes += block->size - kHeader;
  stats_.peak_in_use_bytes = std::max(stats_.peak_in_use_bytes, stats_.in_use_bytes);
  ++stats_.live_blocks;
  ++stats_.allocations;
  stats_.reused += !fresh_;
  return block;
}

void Pool::split(Block* block, uint64_t size) noexcept {
  if (block->size - size < kSmallest) return;
  auto* rest = reinterpret_cast<Block*>(block->address() + size);
  rest->size = block->size - size;
  rest->before = block;
  block->size = size;
  set_before_of_next(rest);
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
  Block* below = block->before;
  if (below && below->state() == State::free) {
    remove(below);
    block->set(State::none);
    below->size += block->size;
    block = below;
  }
  set_before_of_next(block);
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

// ---------------------------------------------------------------- memory from the system

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
  block->before = below;
}

bool Pool::commit(uint64_t bytes, uint64_t also_needed) noexcept {
  if (bytes > range_bytes_ - static_cast<uint64_t>(end_ - base_) || !may_reserve(bytes + also_needed))
    return false;
  if (mprotect(end_, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  set_end(end_ + bytes);
  count_reserved(bytes);
  return true;
}

// Makes the last block free and at least this large.
// Sizes that alternate leave holes that fit nothing. Before more memory is taken than a quarter above what
// was ever live, the inner pages of free blocks go back. A program that repeats itself never comes here.
void Pool::keep_near_live(uint64_t more) noexcept {
  const uint64_t live = std::max(stats_.peak_in_use_bytes, stats_.in_use_bytes + more);
  const uint64_t wanted = stats_.reserved_bytes + more;
  if (wanted <= live + live / 4 + kStep || wanted < next_give_back_) return;
  for (auto& lists : free_)
    for (Block* block : lists)
      for (; block; block = block->next) give_back_inside(block);
  next_give_back_ = stats_.reserved_bytes + more + live / 16;  // if little could go, not again at once
}

bool Pool::grow(uint64_t size) noexcept {
  keep_near_live(size);
  const bool empty = end_ == base_;
  Block* last = empty ? nullptr : sentinel()->before;
  const bool extends = last && last->state() == State::free;
  const uint64_t have = extends ? last->size : 0;
  const uint64_t absent = extends ? absent_in(last->address(), end_) : 0;
  auto* block = reinterpret_cast<Block*>(empty ? base_ : end_ - kHeader);  // in the old sentinel's place
  const uint64_t least = round_up(size - have + (empty ? kHeader : 0), kPiece);
  const auto used = static_cast<uint64_t>(end_ - base_);
  const uint64_t usual = round_up(used + std::max(least, used / kGrowth), kStep) - used;
  if (!commit(usual, absent) && !commit(least, absent)) return false;
  block->before = last;
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
  if (const uint64_t bytes = absent_in(block->address(), to))
    keep_near_live(bytes);
  else
    return true;
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

// If the last block is free, moves the end to its beginning, so that its addresses cost nothing at all.
void Pool::shrink() noexcept {
  Block* last = end_ == base_ ? nullptr : sentinel()->before;
  if (!last || last->state() != State::free) return;
  char* end = base_;
  if (last->before) {
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
  if (last == sentinel()) return set_sentinel(last->before);
  last->size = static_cast<uint64_t>(end_ - kHeader - last->address());
  set_sentinel(last);
  insert(last);
}

uint64_t Pool::trim_locked(Violations& found) noexcept {
  leave_quarantine(0, found);
  take_returned();
  flush_quick();
  const uint64_t before = stats_.reserved_bytes;
  const uint64_t peak = stats_.peak_reserved_bytes;
  shrink();
  for (auto& lists : free_)
    for (Block* block : lists)
      for (; block; block = block->next) give_back_inside(block);
  stats_.peak_reserved_bytes = peak;  // pieces counted as present on their way out
  return before - stats_.reserved_bytes;
}

// ---------------------------------------------------------------- what users call

// With header and canaries; 0 if it is more than can ever be had.
uint64_t Pool::block_size(size_t bytes) const noexcept {
  if (bytes > range_bytes_) return 0;
  return std::max(round_up(front_ + bytes + (check_ ? kCanary : 0), kUnit), kSmallest);
}

void* Pool::hand_out(Block* block, size_t bytes) noexcept {
  if (check_) arm(block, bytes);
  return block->address() + front_;
}

void* Pool::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const uint64_t size = block_size(bytes);
  bool possible;
  {
    const std::lock_guard guard(lock_);
    possible = size != 0 && size <= limit_bytes_;
    if (possible) [[likely]]
      if (Block* block = take(size)) [[likely]]
        return hand_out(block, bytes);
  }
  if (!possible) fail(bytes);  // at once: nothing that can be released would help
  return retry(bytes, size);
}

void* Pool::retry(size_t bytes, uint64_t size) {
  for (const bool last : {false, true}) {
    if (last && !(release_more_ && release_more_())) break;
    Violations found;
    Block* block;
    void* memory = nullptr;
    {
      const std::lock_guard guard(lock_);
      trim_locked(found);
      block = take(size);
      if (block) memory = hand_out(block, bytes);
    }
    report(found);
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
    take_returned();
    now = stats_;
    limit = limit_bytes_;
    refused = may_reserve(bytes);
    if (now.live_blocks <= kLookAtMost)
      walk([&](Block* block) {
        if (block->state() == State::live)
          largest = std::max(largest, check_ ? block->asked : block->size - kHeader);
      });
  }
  throw OutOfMemory(
      name_ + ": out of memory: " + show_bytes(bytes) + " asked for; " + show_bytes(now.in_use_bytes) +
      " in use by " + std::to_string(now.live_blocks) + (now.live_blocks == 1 ? " block" : " blocks") +
      (largest ? ", largest " + show_bytes(largest) : std::string()) + "; " + show_bytes(now.reserved_bytes) +
      " held from the system, limit " + show_bytes(limit) + (refused ? ", but the system refuses more" : ""));
}

// Of the block that would start here; none if there cannot be one.
Pool::State Pool::state_of(const Block* block) const noexcept {
  const auto address = reinterpret_cast<uint64_t>(block);
  const auto base = reinterpret_cast<uint64_t>(base_), end = reinterpret_cast<uint64_t>(end_);
  if (address < base || address >= end || address % kUnit != 0) return State::none;
  return block->state();
}

void Pool::uncount(const Block* block) noexcept {
  stats_.in_use_bytes -= block->size - kHeader;
  --stats_.live_blocks;
}

void Pool::release(void* memory) noexcept {
  if (!memory) return;
  auto* block = reinterpret_cast<Block*>(reinterpret_cast<uint64_t>(memory) - front_);
  if (check_) return release_checked(block, memory);
  // Another thread may have written it last: fetched before the lock is held.
  prefetch_for_writing(block, sizeof(Block));
  if (!lock_.try_lock()) {
    if (leave_for_holder(block)) return;
    lock_.lock();
  }
  State state;
  {
    const std::lock_guard guard(lock_, std::adopt_lock);
    state = state_of(block);
    if (state == State::live) [[likely]] {
      uncount(block);
      return retire(block);
    }
  }
  report_misuse(memory, state);
}

// The lock is held: rather than wait for it, leaves the block in a list for whoever allocates next. False if
// it does not look like a live block. The release of the exchange makes the link visible to take_returned.
bool Pool::leave_for_holder(Block* block) noexcept {
  const uint64_t offset = reinterpret_cast<uint64_t>(block) - reinterpret_cast<uint64_t>(base_);
  if (offset >= usable_.load(std::memory_order_relaxed) || offset % kUnit != 0) return false;
  State expected = State::live;
  if (!block->word.compare_exchange_strong(expected, State::returned, std::memory_order_relaxed))
    return false;
  block->next = returned_.load(std::memory_order_relaxed);
  while (!returned_.compare_exchange_weak(block->next, block, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
  return true;
}

void Pool::take_returned() noexcept {
  Block* block = returned_.exchange(nullptr, std::memory_order_acquire);
  while (block) {
    Block* next = block->next;
    uncount(block);
    retire(block);
    block = next;
  }
}

uint64_t Pool::trim() noexcept {
  Violations found;
  uint64_t bytes;
  {
    const std::lock_guard guard(lock_);
    bytes = trim_locked(found);
  }
  report(found);
  return bytes;
}

uint64_t Pool::largest_free() const noexcept {
  if (first_map_ == 0) return 0;
  const int first = static_cast<int>(std::bit_width(first_map_)) - 1;
  const int second = static_cast<int>(std::bit_width(second_map_[first])) - 1;
  uint64_t size = free_[first][second]->size;
  return size - std::min(size, front_ + (check_ ? kCanary : 0));
}

PoolStats Pool::stats() noexcept {
  const std::lock_guard guard(lock_);
  take_returned();
  PoolStats result = stats_;
  result.largest_free_bytes = largest_free();
  return result;
}

void Pool::reset_peaks() noexcept {
  const std::lock_guard guard(lock_);
  take_returned();
  stats_.peak_in_use_bytes = stats_.in_use_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

void Pool::set_limit(uint64_t bytes) noexcept {
  const uint64_t limit = limit_of(bytes);
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

// ---------------------------------------------------------------- checking mode
// All under the lock, fills included: it finds mistakes, it need not be fast.

// Whether the headers of the block and of its neighbour above can be trusted.
bool Pool::is_whole(Block* block) const noexcept {
  const auto room = static_cast<uint64_t>(end_ - kHeader - block->address());
  return block->size % kUnit == 0 && block->size >= kSmallest && block->size <= room &&
         after(block)->before == block;
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

// The canary above begins right where the user's bytes end, and fills the block.
void Pool::arm(Block* block, size_t bytes) noexcept {
  block->asked = bytes;
  unsigned char* user = block->data() + kCanary;
  std::memset(block->data(), kCanaryByte, kCanary);
  std::memset(user + bytes, kCanaryByte, static_cast<size_t>(block->end() - (user + bytes)));
}

std::string Pool::describe(Block* block) const {
  char address[32];
  std::snprintf(address, sizeof address, "%p", static_cast<void*>(block->data() + kCanary));
  return name_ + ": block " + address + " of " + show_bytes(block->asked);
}

// Reports and mends bytes of a block that are not what they should be.
void Pool::check_bytes(Block* block, unsigned char* from, unsigned char* to, int expected, const char* what,
                       Violations& found) noexcept {
  const unsigned char* other = first_other(from, to, expected);
  if (other == to) return;
  const auto offset = other - (block->data() + kCanary);
  note(found,
       [&] { return describe(block) + ": written " + what + ", first at offset " + std::to_string(offset); });
  std::memset(from, expected, static_cast<size_t>(to - from));
}

void Pool::check_live(Block* block, Violations& found) noexcept {
  unsigned char* user = block->data() + kCanary;
  const auto room = static_cast<uint64_t>(block->end() - user);
  if (block->asked > room) return note(found, [&] { return describe(block) + ": its header is damaged"; });
  check_bytes(block, block->data(), user, kCanaryByte, "before its start", found);
  check_bytes(block, user + block->asked, block->end(), kCanaryByte, "after its end", found);
}

void Pool::check_quarantined(Block* block, Violations& found) noexcept {
  check_bytes(block, block->data(), block->end(), kReleasedByte, "after its release", found);
}

void Pool::release_checked(Block* block, void* memory) noexcept {
  Violations found;
  State state;
  {
    const std::lock_guard guard(lock_);
    state = state_of(block);
    if (state == State::live) {
      const auto room = static_cast<uint64_t>(end_ - kHeader - block->address());
      if (block->size <= room) check_live(block, found);
      if (is_whole(block)) {
        uncount(block);
        quarantine(block, found);
      } else {
        note(found, [&] { return describe(block) + ": written over a header; it stays in use for ever"; });
      }
    }
  }
  if (state != State::live) report_misuse(memory, state);
  report(found);
}

void Pool::quarantine(Block* block, Violations& found) noexcept {
  const uint64_t bound = std::min(kQuarantineBytes, limit_bytes_ / kQuarantinePart);
  if (block->size > bound) return retire(block);  // it would drive out all others
  std::memset(block->data(), kReleasedByte, block->size - kHeader);
  block->set(State::quarantined);
  block->next = nullptr;
  (quarantine_last_ ? quarantine_last_->next : quarantine_first_) = block;
  quarantine_last_ = block;
  quarantine_bytes_ += block->size;
  leave_quarantine(bound, found);
}

// The oldest leave until no more than that is kept.
void Pool::leave_quarantine(uint64_t bound, Violations& found) noexcept {
  while (quarantine_bytes_ > bound) {
    Block* block = quarantine_first_;
    if (!block || block->state() != State::quarantined || !is_whole(block)) {  // the list leads nowhere
      if (block) note(found, [&] { return name_ + ": a header in the quarantine is damaged"; });
      quarantine_first_ = quarantine_last_ = nullptr;
      quarantine_bytes_ = 0;
      return;
    }
    check_quarantined(block, found);
    quarantine_first_ = block->next;
    if (!quarantine_first_) quarantine_last_ = nullptr;
    quarantine_bytes_ -= block->size;
    retire(block);
  }
}

size_t Pool::check_all() noexcept {
  Violations found;
  {
    const std::lock_guard guard(lock_);
    const bool all = walk([&](Block* block) {
      if (!check_) return;
      if (block->state() == State::live) check_live(block, found);
      if (block->state() == State::quarantined) check_quarantined(block, found);
    });
    if (!all)
      note(found, [&] { return name_ + ": a header is damaged; the blocks above it were not checked"; });
  }
  report(found);
  return found.size();
}

void Pool::report_misuse(void* memory, State state) noexcept {
  Violations found;
  note(found, [&] {
    char address[32];
    std::snprintf(address, sizeof address, "%p", memory);
    return name_ + ": release of " + address + ": " +
           (state == State::free || state == State::quick || state == State::quarantined ||
                    state == State::returned
                ? "it was released before"
                : "no live block of this pool starts there; released twice, or from elsewhere?");
  });
  report(found);
}

void Pool::report(const Violations& found) noexcept {
  for (const std::string& text : found) {
    if (on_violation_)
      on_violation_(text);
    else
      std::fprintf(stderr, "%s\n", text.c_str());
  }
}

}  // namespace weft
