// The memory pool's checking mode, and what it says of wrong releases in any mode: mistakes are named.
#include <cstring>

#include "tests/pool_support.h"

using namespace weft;
using namespace weft::testing;

TEST(pool_check_finds_a_write_before_the_start) {
  Pool pool("cpu:0", checking());
  auto* memory = static_cast<unsigned char*>(pool.allocate(100));
  memory[-3] = 1;
  pool.release(memory);
  CHECK(one_violation("of 100 bytes: written before its start, first at offset -3"));
  CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
}

TEST(pool_check_finds_a_write_right_after_the_end) {
  Pool pool("cpu:0", checking());
  for (const size_t bytes : {1, 63, 64, 65, 100, 5000}) {
    auto* memory = static_cast<unsigned char*>(pool.allocate(bytes));
    memory[bytes] = 1;
    pool.release(memory);
    CHECK(one_violation("written after its end, first at offset " + std::to_string(bytes)));
    memory = static_cast<unsigned char*>(pool.allocate(bytes));
    memory[bytes + 63] = 1;
    pool.release(memory);
    CHECK(one_violation("written after its end, first at offset " + std::to_string(bytes + 63)));
  }
}

TEST(pool_check_finds_a_write_after_the_release) {
  Pool pool("cpu:0", checking());
  auto* memory = static_cast<unsigned char*>(pool.allocate(1000));
  pool.release(memory);
  CHECK_EQ(int{memory[0]}, 0xDD);
  memory[500] = 1;
  pool.trim();  // empties the quarantine
  CHECK(one_violation("of 1000 bytes: written after its release, first at offset 500"));
  pool.release(pool.allocate(1000));
  CHECK(violations().empty());
}

TEST(pool_check_finds_a_second_release) {
  Pool pool("cpu:0", checking());
  void* memory = pool.allocate(1000);
  pool.release(memory);
  pool.release(memory);
  CHECK(one_violation("it was released before"));
  pool.trim();  // it is merged into the free block above, and then given back
  pool.release(memory);
  CHECK(one_violation("no live block of this pool starts there"));
  CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
  pool.release(pool.allocate(1000));
  CHECK(violations().empty());
}

TEST(pool_reports_releases_of_what_is_not_its_own_in_every_mode) {
  for (const bool check : {false, true}) {
    Pool pool("cpu:0", {.check = check, .on_violation = collect}), other("cpu:1");
    auto* memory = static_cast<char*>(pool.allocate(1000));
    void* elsewhere = other.allocate(1000);
    int local = 0;
    for (void* wrong :
         {static_cast<void*>(&local), elsewhere, static_cast<void*>(memory + 1),
          static_cast<void*>(memory + 64), reinterpret_cast<void*>(64), reinterpret_cast<void*>(~0ull)}) {
      std::memset(memory, 0, 1000);
      pool.release(wrong);
      CHECK(one_violation("no live block of this pool starts there"));
    }
    pool.release(memory);
    CHECK(violations().empty());
    pool.release(memory);
    CHECK(one_violation("before"));
    CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
    other.release(elsewhere);
  }
}

TEST(pool_check_survives_writes_over_headers) {
  Pool pool("cpu:0", checking());
  auto* first = static_cast<unsigned char*>(pool.allocate(64));
  auto* second = static_cast<unsigned char*>(pool.allocate(64));
  void* third = pool.allocate(64);
  std::memset(first, 0xEE, 64 + 64 + 64);  // the block, its canary, and the header of the next
  CHECK_EQ(pool.check_all(), size_t{1});
  CHECK(one_violation("a header is damaged"));
  pool.release(first);
  CHECK_EQ(violations().size(), size_t{2});
  CHECK(contains(violations()[0], "written after its end, first at offset 64"));
  CHECK(contains(violations()[1], "written over a header"));
  violations().clear();
  pool.release(second);
  CHECK(one_violation("no live block of this pool starts there"));
  pool.release(third);
  pool.release(pool.allocate(10 * kMiB));
  pool.trim();
  CHECK(violations().empty());
}

TEST(pool_check_all_looks_at_live_blocks_and_at_the_quarantine) {
  Pool pool("cpu:0", checking());
  auto* live = static_cast<unsigned char*>(pool.allocate(10));
  auto* gone = static_cast<unsigned char*>(pool.allocate(20));
  pool.release(gone);
  CHECK_EQ(pool.check_all(), size_t{0});
  live[10] = 1;
  CHECK_EQ(pool.check_all(), size_t{1});
  CHECK(one_violation("of 10 bytes: written after its end"));
  gone[7] = 1;
  CHECK_EQ(pool.check_all(), size_t{1});
  CHECK(one_violation("of 20 bytes: written after its release, first at offset 7"));
  CHECK_EQ(pool.check_all(), size_t{0});  // mended
  pool.release(live);
  CHECK(violations().empty());
}

TEST(pool_check_keeps_released_blocks_out_of_use_within_bounds) {
  Pool pool("cpu:0", checking(64 * kMiB));  // so 8 MiB in quarantine
  void* first = pool.allocate(kMiB);
  pool.release(first);
  for (int i = 0; i < 6; ++i) {
    void* next = pool.allocate(kMiB);
    CHECK(next != first);
    pool.release(next);
  }
  for (int i = 0; i < scaled(500); ++i) pool.release(pool.allocate(kMiB));
  CHECK(pool.stats().peak_reserved_bytes <= 16 * kMiB);
  pool.release(pool.allocate(60 * kMiB));  // needs what is in quarantine
  CHECK(violations().empty());
}

TEST(pool_check_looks_once_more_when_the_pool_ends) {
  {
    Pool pool("cpu:0", checking());
    auto* memory = static_cast<unsigned char*>(pool.allocate(10));
    memory[10] = 1;
  }
  CHECK(one_violation("written after its end, first at offset 10"));
}
