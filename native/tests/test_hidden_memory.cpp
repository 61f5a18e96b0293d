// A pool over memory that the host cannot touch: headers beside it, pieces that come and go.
#include <sys/mman.h>

#include <algorithm>

#include "tests/pool_support.h"

namespace {

using namespace weft;
using namespace weft::testing;

constexpr uint64_t kRange = kGiB, kPieceBytes = 2 * kMiB, kAligned = 512;

// Addresses without access. Knows which pieces have memory, and finds what a driver would refuse.
struct Ledger {
  std::vector<char> mapped = std::vector<char>(kRange / kPieceBytes);
  uint64_t most = kRange / kPieceBytes;
  char* base = nullptr;

  uint64_t count() const { return static_cast<uint64_t>(std::ranges::count(mapped, 1)); }
  bool has(const void* memory, size_t bytes) const {
    const auto offset = static_cast<uint64_t>(static_cast<const char*>(memory) - base);
    for (uint64_t piece = offset / kPieceBytes; piece * kPieceBytes < offset + bytes; ++piece)
      if (!mapped[piece]) return false;
    return true;
  }
};

class HiddenPages final : public Pages {
 public:
  explicit HiddenPages(Ledger& ledger) : ledger_(ledger) {
    base_ = static_cast<char*>(
        mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    bytes_ = kRange;
    ledger.base = base_;
  }
  ~HiddenPages() override { munmap(base_, bytes_); }
  bool on_host() const noexcept override { return false; }
  uint64_t granularity() const noexcept override { return kPieceBytes; }
  uint64_t total_bytes() const noexcept override { return kRange; }
  bool commit(uint64_t from, uint64_t bytes) noexcept override { return fill(from, bytes, true); }
  bool withdraw(uint64_t from, uint64_t bytes) noexcept override { return give_back(from, bytes); }
  bool give_back(uint64_t from, uint64_t bytes) noexcept override {
    each(from, bytes, [](char& piece) { piece = 0; });
    return true;
  }
  bool bring_back(uint64_t from, uint64_t bytes) noexcept override { return fill(from, bytes, false); }

 private:
  template <class F>
  void each(uint64_t from, uint64_t bytes, F&& f) noexcept {
    if (from % kPieceBytes || bytes % kPieceBytes || from + bytes > kRange) std::abort();
    for (uint64_t piece = from / kPieceBytes; piece < (from + bytes) / kPieceBytes; ++piece)
      f(ledger_.mapped[piece]);
  }
  bool fill(uint64_t from, uint64_t bytes, bool is_new) noexcept {
    uint64_t absent = 0;
    each(from, bytes, [&](char piece) { absent += !piece; });
    if (is_new && absent != bytes / kPieceBytes) std::abort();  // it has memory already
    if (ledger_.count() + absent > ledger_.most) return false;
    each(from, bytes, [](char& piece) { piece = 1; });
    return true;
  }

  Ledger& ledger_;
};

struct HiddenPool {
  Ledger ledger;
  Pool pool;
  explicit HiddenPool(PoolOptions options = {})
      : pool("hidden", options, std::make_unique<HiddenPages>(ledger)) {}
};

TEST(hidden_blocks_do_not_meet_and_have_memory) {
  Random random(seed());
  HiddenPool hidden;
  Pool& pool = hidden.pool;
  std::map<char*, size_t> live;
  std::vector<char*> order;
  uint64_t in_use = 0;
  for (int step = 0; step < 20000; ++step) {
    if (random.below(200) == 0) pool.trim();
    if (order.empty() || (in_use < 200 * kMiB && random.below(2) == 0)) {
      const size_t bytes = log_uniform(random, 24);
      auto* memory = static_cast<char*>(pool.allocate(bytes));
      CHECK_EQ(static_cast<uint64_t>(memory - hidden.ledger.base) % kAligned, uint64_t{0});
      const auto above = live.lower_bound(memory);
      CHECK(above == live.end() || memory + bytes <= above->first);
      CHECK(above == live.begin() || std::prev(above)->first + std::prev(above)->second <= memory);
      live[memory] = bytes;
      order.push_back(memory);
      in_use += bytes;
    } else {
      const size_t i = static_cast<size_t>(random.below(static_cast<int>(order.size())));
      in_use -= live[order[i]];
      live.erase(order[i]);
      pool.release(order[i]);
      order[i] = order.back();
      order.pop_back();
    }
    if (step % 100 == 0)
      for (const auto& [memory, bytes] : live) CHECK(hidden.ledger.has(memory, bytes));
    if (step % 100 == 0) CHECK_EQ(pool.stats().reserved_bytes, hidden.ledger.count() * kPieceBytes);
  }
  CHECK_EQ(pool.live_blocks().size(), live.size());
  for (char* memory : order) pool.release(memory);
  pool.trim();
  CHECK_EQ(pool.stats().in_use_bytes, uint64_t{0});
  CHECK_EQ(hidden.ledger.count(), uint64_t{0});
}

TEST(hidden_memory_is_used_again) {
  HiddenPool hidden;
  void* first = hidden.pool.allocate(100 * kKiB);
  hidden.pool.release(first);
  CHECK(hidden.pool.allocate(100 * kKiB) == first);
  hidden.pool.release(first);
  void* small = hidden.pool.allocate(3);
  hidden.pool.release(small);
  CHECK(hidden.pool.allocate(400) == small);
}

// One piece stays for the live block; what was given back between others comes again.
TEST(hidden_holes_come_and_go) {
  HiddenPool hidden;
  Pool& pool = hidden.pool;
  void* low = pool.allocate(8 * kMiB);
  void* high = pool.allocate(kMiB);
  const uint64_t before = hidden.ledger.count();
  pool.release(low);
  CHECK(pool.trim() >= 6 * kMiB);
  CHECK(hidden.ledger.count() <= before - 3);
  CHECK(hidden.ledger.has(high, kMiB));
  void* again = pool.allocate(8 * kMiB);
  CHECK(again == low);
  CHECK(hidden.ledger.has(again, 8 * kMiB));
}

TEST(hidden_memory_ends_with_an_error_and_loses_nothing) {
  HiddenPool hidden;
  hidden.ledger.most = 8;
  Pool& pool = hidden.pool;
  void* kept = pool.allocate(10 * kMiB);
  const std::string text = failure_of(pool, 10 * kMiB);
  CHECK(contains(text, "hidden: out of memory: 10.0 MiB asked for; 10.0 MiB in use by 1 block"));
  CHECK(contains(text, "but the system refuses more"));
  CHECK(contains(failure_of(pool, 4 * kGiB), "4.0 GiB asked for"));
  void* small = pool.allocate(kMiB);
  CHECK(hidden.ledger.has(small, kMiB));
  pool.release(kept);
  pool.release(small);
  CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
}

TEST(hidden_misuse_is_reported) {
  HiddenPool hidden(checking());
  auto* memory = static_cast<char*>(hidden.pool.allocate(kMiB));
  hidden.pool.release(memory + 64);
  CHECK(one_violation("no live block of this pool starts there"));
  hidden.pool.release(memory + 512);
  CHECK(one_violation("no live block of this pool starts there"));
  hidden.pool.release(memory);
  hidden.pool.release(memory);
  CHECK(one_violation("it was released before"));
  CHECK_EQ(hidden.pool.check_all(), size_t{0});
}

}  // namespace
