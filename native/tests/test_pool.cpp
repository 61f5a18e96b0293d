// The memory pool: no two blocks overlap, what is released is found again, limits hold.
#include <algorithm>
#include <cstring>
#include <deque>

#include <sys/resource.h>

#include "tests/child.h"
#include "tests/pool_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// The most that the pool held from the system for the most that was asked for and alive.
double overhead(Pool& pool, Random& random, int operations, uint64_t most_live) {
  std::deque<std::pair<void*, size_t>> young;  // released in the order of their birth
  std::vector<std::pair<void*, size_t>> old;   // released in any order
  uint64_t live = 0, peak = 0;
  const auto release = [&](std::pair<void*, size_t> block) {
    pool.release(block.first);
    live -= block.second;
  };
  const auto release_one = [&] {
    if (!young.empty() && (old.empty() || random.chance(50))) {
      release(young.front());
      young.pop_front();
    } else if (!old.empty()) {
      std::swap(old[random.next() % old.size()], old.back());
      release(old.back());
      old.pop_back();
    }
  };
  for (int i = 0; i < operations; ++i) {
    if (random.chance(50)) {
      const size_t bytes = std::min<size_t>(log_uniform(random, 22), 4 * kMiB);
      while (live + bytes > most_live) release_one();
      const std::pair<void*, size_t> block{pool.allocate(bytes), bytes};
      random.chance(70) ? young.push_back(block) : old.push_back(block);
      live += bytes;
      peak = std::max(peak, live);
    } else {
      release_one();
    }
  }
  while (live != 0) release_one();
  return static_cast<double>(pool.stats().peak_reserved_bytes) / static_cast<double>(peak);
}

}  // namespace

TEST(pool_gives_null_for_no_bytes_and_ignores_the_release_of_null) {
  Pool pool("cpu:0");
  CHECK(pool.allocate(0) == nullptr);
  pool.release(nullptr);
  CHECK_EQ(pool.stats().allocations, uint64_t{0});
  CHECK_EQ(pool.stats().reserved_bytes, uint64_t{0});
}

TEST(pool_random_blocks_do_not_overlap_and_keep_their_content) {
  for (const bool check : {false, true}) {
    Pool pool("cpu:0", check ? checking() : PoolOptions{});
    Random random(seed());
    Shadow shadow(pool);
    for (int i = 0; i < scaled(60000); ++i) {
      if (random.chance(52) && shadow.bytes() < 200 * kMiB)
        shadow.add(log_uniform(random, random.chance(90) ? 14 : 22),
                   static_cast<unsigned char>(random.next()));
      else if (shadow.count() != 0)
        shadow.drop(random.next() % shadow.count());
      if (random.below(10000) == 0) pool.trim();
      if (random.below(20000) == 0) CHECK_EQ(pool.check_all(), size_t{0});
    }
    shadow.check();
    CHECK_EQ(pool.stats().live_blocks, shadow.count());
    CHECK(pool.stats().in_use_bytes >= shadow.bytes());
    shadow.clear();
    CHECK_EQ(pool.stats().in_use_bytes, uint64_t{0});
    CHECK_EQ(pool.check_all(), size_t{0});
    pool.trim();
    CHECK_EQ(pool.stats().reserved_bytes, uint64_t{0});
  }
}

TEST(pool_every_small_size_and_sizes_around_powers_of_two) {
  Pool pool("cpu:0");
  Shadow shadow(pool);
  for (size_t bytes = 1; bytes <= 2200; ++bytes) shadow.add(bytes, static_cast<unsigned char>(bytes));
  for (int bits = 12; bits <= 24; ++bits)
    for (const int more : {-65, -64, -63, -1, 0, 1, 63, 64, 65})
      shadow.add((size_t{1} << bits) + static_cast<size_t>(more), static_cast<unsigned char>(bits + more));
  shadow.check();
}

TEST(pool_neighbours_coalesce_back_to_one_block) {
  Pool pool("cpu:0");
  void* large = pool.allocate(64 * kMiB);
  pool.release(large);
  const uint64_t reserved = pool.stats().reserved_bytes;
  std::vector<void*> blocks;
  for (size_t i = 0; i < 1000; ++i) blocks.push_back(pool.allocate(60 * kKiB + i));
  Random random(seed());
  for (size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[random.next() % i]);
  for (void* block : blocks) pool.release(block);
  CHECK(pool.stats().largest_free_bytes >= 64 * kMiB);
  CHECK(pool.allocate(64 * kMiB) == large);
  CHECK_EQ(pool.stats().reserved_bytes, reserved);
}

TEST(pool_small_blocks_coalesce_before_new_memory_is_taken) {
  Pool pool("cpu:0");
  std::vector<void*> blocks;
  for (int i = 0; i < 2000; ++i) blocks.push_back(pool.allocate(static_cast<size_t>(1 + i % 1024)));
  for (void* block : blocks) pool.release(block);
  const PoolStats before = pool.stats();
  void* all = pool.allocate(before.reserved_bytes - 128);
  CHECK_EQ(pool.stats().reserved_bytes, before.reserved_bytes);
  CHECK_EQ(pool.stats().reused, before.reused + 1);
  pool.release(all);
}

TEST(pool_reuses_a_block_of_the_same_size) {
  Pool pool("cpu:0");
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{5000}, size_t{1} << 20, size_t{33333333}}) {
    void* first = pool.allocate(bytes);
    void* fence = pool.allocate(100);
    pool.release(first);
    const uint64_t reused = pool.stats().reused;
    CHECK(pool.allocate(bytes) == first);
    CHECK_EQ(pool.stats().reused, reused + 1);
    pool.release(first);
    pool.release(fence);
  }
}

TEST(pool_counts_what_is_in_use_and_its_peaks) {
  Pool pool("cpu:0");
  void* a = pool.allocate(100);
  void* b = pool.allocate(kMiB);
  CHECK_EQ(pool.stats().in_use_bytes, 128 + kMiB);
  CHECK_EQ(pool.stats().live_blocks, uint64_t{2});
  pool.release(b);
  CHECK_EQ(pool.stats().in_use_bytes, uint64_t{128});
  CHECK_EQ(pool.stats().peak_in_use_bytes, 128 + kMiB);
  pool.reset_peaks();
  CHECK_EQ(pool.stats().peak_in_use_bytes, uint64_t{128});
  pool.release(a);
  CHECK_EQ(pool.stats().allocations, uint64_t{2});
  const PoolStats full = pool.stats();
  CHECK_EQ(full.peak_reserved_bytes, full.reserved_bytes);
  pool.trim();
  CHECK_EQ(pool.stats().peak_reserved_bytes, full.reserved_bytes);
  pool.reset_peaks();
  CHECK_EQ(pool.stats().peak_reserved_bytes, uint64_t{0});
}

TEST(pool_trim_gives_back_everything_when_nothing_is_in_use) {
  Pool pool("cpu:0");
  for (int round = 0; round < 3; ++round) {
    Shadow shadow(pool);
    for (size_t i = 0; i < 100; ++i) shadow.add(1000 * (i + 1), static_cast<unsigned char>(i));
    shadow.clear();
    const uint64_t reserved = pool.stats().reserved_bytes;
    CHECK(reserved > 5 * kMiB);
    CHECK_EQ(pool.trim(), reserved);
    CHECK_EQ(pool.stats().reserved_bytes, uint64_t{0});
    CHECK_EQ(pool.trim(), uint64_t{0});
  }
}

TEST(pool_trim_gives_back_the_holes_between_live_blocks_and_takes_them_again) {
  Pool pool("cpu:0");
  Shadow live(pool), holes(pool);
  for (int i = 0; i < 40; ++i) {
    live.add(1000, static_cast<unsigned char>(i));
    holes.add(kMiB, 0xAA);
  }
  live.add(1000, 77);
  const uint64_t before = pool.stats().reserved_bytes;
  holes.clear();
  const uint64_t given = pool.trim();
  CHECK(given >= 35 * kMiB);
  CHECK_EQ(pool.stats().reserved_bytes, before - given);
  CHECK_EQ(pool.trim(), uint64_t{0});
  live.check();
  for (int i = 0; i < 40; ++i) holes.add(kMiB, 0x55);
  CHECK(pool.stats().reserved_bytes <= before);
  CHECK(pool.stats().reserved_bytes >= 40 * kMiB);
  live.check();
  holes.check();
}

TEST(pool_memory_given_back_reads_as_zero_so_it_has_gone) {
  Pool pool("cpu:0");
  auto* memory = static_cast<unsigned char*>(pool.allocate(8 * kMiB));
  void* fence = pool.allocate(1);
  std::memset(memory, 0xFF, 8 * kMiB);
  pool.release(memory);
  pool.trim();
  CHECK(pool.allocate(8 * kMiB) == memory);
  CHECK_EQ(int{memory[4 * kMiB]}, 0);
  pool.release(memory);
  pool.release(fence);
}

TEST(pool_limit_is_kept_and_the_failure_says_the_numbers) {
  Pool pool("cpu:0", {.limit_bytes = 16 * kMiB});
  CHECK_EQ(pool.limit(), 16 * kMiB);
  void* a = pool.allocate(6 * kMiB);
  void* b = pool.allocate(4 * kMiB);
  const PoolStats before = pool.stats();
  CHECK_EQ(
      failure_of(pool, 8 * kMiB),
      "cpu:0: out of memory: 8.0 MiB asked for; 10.0 MiB in use by 2 blocks, largest 6.0 MiB; 10.1 MiB held "
      "from the system, limit 16.0 MiB");
  CHECK_EQ(pool.stats().in_use_bytes, before.in_use_bytes);
  CHECK_EQ(pool.stats().allocations, before.allocations);
  CHECK(pool.stats().reserved_bytes <= before.reserved_bytes);
  pool.release(b);
  CHECK_EQ(failure_of(pool, 8 * kMiB), "");
  pool.release(a);
  CHECK(pool.stats().peak_reserved_bytes <= 16 * kMiB);
}

TEST(pool_limit_holds_in_random_use) {
  Pool pool("cpu:0", {.limit_bytes = 24 * kMiB});
  Random random(seed());
  Shadow shadow(pool);
  int failures = 0;
  for (int i = 0; i < scaled(20000); ++i) {
    if (random.chance(60)) {
      try {
        shadow.add(log_uniform(random, 22), static_cast<unsigned char>(i));
      } catch (const OutOfMemory&) {
        ++failures;
        for (int k = 0; k < 10 && shadow.count() != 0; ++k) shadow.drop(random.next() % shadow.count());
      }
    } else if (shadow.count() != 0) {
      shadow.drop(random.next() % shadow.count());
    }
    CHECK(pool.stats().reserved_bytes <= 24 * kMiB);
  }
  CHECK(failures > 0);
  shadow.check();
}

TEST(pool_limit_can_be_raised_and_lowered) {
  Pool pool("cpu:0", {.limit_bytes = 4 * kMiB});
  CHECK_THROWS(pool.allocate(8 * kMiB), OutOfMemory);
  pool.set_limit(32 * kMiB);
  void* memory = pool.allocate(8 * kMiB);
  pool.set_limit(4 * kMiB);
  CHECK_THROWS(pool.allocate(3 * kMiB), OutOfMemory);
  pool.release(memory);
  pool.set_limit(4 * kMiB);
  CHECK_EQ(pool.stats().reserved_bytes, uint64_t{0});
  pool.release(pool.allocate(3 * kMiB));
  CHECK(pool.stats().reserved_bytes <= 4 * kMiB);
  pool.set_limit(0);
  CHECK(pool.limit() > kGiB);
}

TEST(pool_gives_back_holes_to_stay_below_its_limit) {
  Pool pool("cpu:0", {.limit_bytes = 32 * kMiB});
  Shadow live(pool), holes(pool);
  for (int i = 0; i < 20; ++i) {
    live.add(100, static_cast<unsigned char>(i));
    holes.add(kMiB, 1);
  }
  live.add(100, 9);
  holes.clear();
  live.add(24 * kMiB, 3);  // fits nowhere but above, and only without the holes
  CHECK(pool.stats().reserved_bytes <= 32 * kMiB);
  live.check();
}

TEST(pool_absurd_sizes_fail_and_change_nothing) {
  for (const bool check : {false, true}) {
    Pool pool("cpu:0", check ? checking() : PoolOptions{});
    pool.set_release_more([]() -> bool { throw Failure("must not be called"); });
    for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 64, SIZE_MAX - 128, SIZE_MAX - 191,
                               SIZE_MAX / 2, size_t{1} << 60, size_t{1} << 45})
      CHECK(contains(failure_of(pool, bytes), "out of memory"));
    CHECK_EQ(pool.stats().reserved_bytes, uint64_t{0});
    CHECK_EQ(pool.stats().allocations, uint64_t{0});
  }
  Pool pool("cpu:0", {.limit_bytes = 2 * kGiB});
  CHECK_EQ(
      failure_of(pool, 4 * kGiB),
      "cpu:0: out of memory: 4.0 GiB asked for; 0 bytes in use by 0 blocks; 0 bytes held from the system, "
      "limit 2.0 GiB");
}

TEST(pool_asks_its_owner_once_to_release_more) {
  Pool pool("cpu:0", {.limit_bytes = 16 * kMiB});
  void* kept = pool.allocate(10 * kMiB);
  int asked = 0;
  pool.set_release_more([&] {
    ++asked;
    pool.release(std::exchange(kept, nullptr));  // the lock is free
    return asked == 1;
  });
  void* memory = pool.allocate(12 * kMiB);
  CHECK_EQ(asked, 1);
  CHECK(kept == nullptr);
  CHECK_THROWS(pool.allocate(12 * kMiB), OutOfMemory);
  CHECK_EQ(asked, 2);
  pool.release(memory);
  pool.release(pool.allocate(12 * kMiB));
  CHECK_EQ(asked, 2);
}

TEST(pool_fails_cleanly_when_the_process_may_have_no_more_addresses) {
  if (skipped()) return;
  in_child([] {
    const rlimit limit{600 * kMiB, 600 * kMiB};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    Pool pool("cpu:0", {.limit_bytes = 8 * kGiB});
    Shadow shadow(pool);
    std::string text;
    for (int i = 0; i < 100 && text.empty(); ++i) {
      try {
        shadow.add(20 * kMiB, static_cast<unsigned char>(i));
      } catch (const OutOfMemory& error) {
        text = error.what();
      }
    }
    CHECK(contains(text, "20.0 MiB asked for"));
    CHECK(contains(text, "the system refuses more"));
    CHECK(shadow.count() >= 5);
    shadow.check();
    void* other = std::malloc(20 * kMiB);  // the pool has left some to others
    CHECK(other != nullptr);
    std::free(other);
    shadow.drop(0);
    shadow.add(20 * kMiB, 1);
  });
}

TEST(pool_reserved_memory_stays_near_the_live_set_in_random_use) {
  for (uint64_t start = 0; start < 3; ++start) {
    Pool pool("cpu:0");
    Random random(seed() + start);
    const double ratio = overhead(pool, random, scaled(1000000), 256 * kMiB);
    std::printf("reserved / live: %.3f\n", ratio);
    CHECK(ratio < 1.3);
    CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
  }
}

// The hardest case for memory that cannot move: always full, and what goes is any block.
TEST(pool_reserved_memory_stays_near_the_live_set_when_any_block_is_replaced) {
  for (uint64_t start = 0; start < 3; ++start) {
    Pool pool("cpu:0");
    Random random(seed() + start);
    std::vector<std::pair<void*, size_t>> blocks;
    uint64_t live = 0, peak = 0;
    for (int i = 0; i < scaled(200000); ++i) {
      const size_t bytes = std::min<size_t>(log_uniform(random, 22), 4 * kMiB);
      blocks.emplace_back(pool.allocate(bytes), bytes);
      peak = std::max(peak, live += bytes);
      while (live > 256 * kMiB) {
        std::swap(blocks[random.next() % blocks.size()], blocks.back());
        pool.release(blocks.back().first);
        live -= blocks.back().second;
        blocks.pop_back();
      }
    }
    CHECK(static_cast<double>(pool.stats().peak_reserved_bytes) < 1.3 * static_cast<double>(peak));
    for (const auto& block : blocks) pool.release(block.first);
  }
}

TEST(pool_reserved_memory_stays_near_the_live_set_in_a_sawtooth_of_growing_sizes) {
  Pool pool("cpu:0");
  constexpr uint64_t kLive = 64 * kMiB;
  for (size_t bytes = 4 * kKiB; bytes <= 32 * kMiB; bytes += bytes / 3) {
    std::vector<void*> blocks;
    for (uint64_t live = 0; live + bytes <= kLive; live += bytes) blocks.push_back(pool.allocate(bytes));
    for (size_t i = 0; i < blocks.size(); i += 2) pool.release(blocks[i]);
    for (size_t i = 1; i < blocks.size(); i += 2) pool.release(blocks[i]);
  }
  CHECK(static_cast<double>(pool.stats().peak_reserved_bytes) < 1.1 * static_cast<double>(kLive));
}

TEST(pool_blocks_may_be_released_by_other_threads) {
  for (const bool check : {false, true}) {
    Pool pool("cpu:0", check ? checking(kGiB) : PoolOptions{});
    const int rounds = scaled(20000);
    std::mutex mutex;
    std::deque<Piece> shared;
    std::atomic<int> broken{0}, producing{2};
    auto produce = [&](uint64_t start) {
      Random random(start);
      for (int i = 0; i < rounds; ++i) {
        const size_t bytes = log_uniform(random, random.chance(95) ? 12 : 20);
        const auto mark = static_cast<unsigned char>(random.next());
        const Piece piece{static_cast<unsigned char*>(pool.allocate(bytes)), bytes, mark};
        piece.memory[0] = piece.memory[bytes - 1] = mark;
        if (random.below(rounds) < 3) pool.trim();
        const std::lock_guard guard(mutex);
        shared.push_back(piece);
      }
      --producing;
    };
    auto consume = [&] {
      for (;;) {
        const bool last = producing == 0;
        Piece piece{};
        {
          const std::lock_guard guard(mutex);
          if (!shared.empty()) {
            piece = shared.front();
            shared.pop_front();
          }
        }
        if (piece.memory) {
          broken += piece.memory[0] != piece.mark || piece.memory[piece.bytes - 1] != piece.mark;
          pool.release(piece.memory);
        } else if (last) {
          return;
        } else {
          std::this_thread::yield();
        }
      }
    };
    auto watch = [&] {
      while (producing != 0) {
        broken += pool.stats().live_blocks > 2u * static_cast<unsigned>(rounds);
        if (check) broken += pool.check_all() != 0;
        sleep_ms(1);
      }
    };
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < 2; ++i) threads.emplace_back(produce, seed() + i);
    for (int i = 0; i < 2; ++i) threads.emplace_back(consume);
    threads.emplace_back(watch);
    for (std::jthread& thread : threads) thread.join();
    CHECK_EQ(broken.load(), 0);
    CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
    CHECK_EQ(pool.check_all(), size_t{0});
  }
}

TEST(pool_works_in_a_forked_child_while_another_thread_allocates) {
  if (skipped()) return;
  Pool pool("cpu:0");
  Shadow kept(pool);
  kept.add(5 * kMiB, 42);
  std::atomic<bool> enough{false};
  std::jthread other([&] {
    Random random(seed());
    while (!enough) {
      void* a = pool.allocate(log_uniform(random, 20));
      void* b = pool.allocate(log_uniform(random, 10));
      pool.release(a);
      pool.release(b);
    }
  });
  for (int round = 0; round < 20; ++round) {
    in_child([&] {
      kept.check();
      Shadow shadow(pool);
      for (size_t i = 1; i < 200; ++i) shadow.add(i * 1000, static_cast<unsigned char>(i));
      shadow.check();
      shadow.clear();
      pool.trim();
      kept.check();
      Pool second("cpu:1");
      second.release(second.allocate(100));
    });
    kept.check();
  }
  enough = true;
}

TEST(pool_many_pools_come_and_go) {
  for (int i = 0; i < 20; ++i) {
    Pool first("cpu:0"), second("cpu:1");
    void* memory = first.allocate(kMiB);
    second.release(second.allocate(kMiB));
    first.release(memory);
  }
}
