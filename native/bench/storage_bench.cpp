// storage_bench.cpp: what the memory pool costs per allocation and release. weft_native_bench storage.
#include <memory>

#include "bench/bench.h"
#include "storage/pool.h"

namespace weft::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string name_of(size_t bytes) {
  return bytes >= kMiB   ? std::to_string(bytes / kMiB) + " MiB"
         : bytes >= 1024 ? std::to_string(bytes / 1024) + " KiB"
                         : std::to_string(bytes) + " B";
}

// One at a time: the block comes back before the next is requested.
void bench_pair(size_t bytes, bool check) {
  constexpr int kPairs = 100000;
  Pool pool("cpu:0", {.check = check});
  void* fence = pool.allocate(bytes);
  const int pairs = check ? kPairs / 100 : kPairs;
  print(measure("pair " + name_of(bytes) + (check ? ", checking" : ""), 15, pairs,
                [&] {
                  for (int i = 0; i < pairs; ++i) pool.release(pool.allocate(bytes));
                }),
        1e9, "ns per allocate and release");
  pool.release(fence);
}

// Many alive: a hundred blocks are taken, then released in the same order.
void bench_burst(size_t bytes) {
  constexpr int kRounds = 300, kBlocks = 100;
  Pool pool("cpu:0");
  void* blocks[kBlocks];
  print(measure("burst of 100, " + name_of(bytes), 15, kRounds * kBlocks,
                [&] {
                  for (int round = 0; round < kRounds; ++round) {
                    for (void*& block : blocks) block = pool.allocate(bytes);
                    for (void* block : blocks) pool.release(block);
                  }
                }),
        1e9, "ns per allocate and release");
}

// Random sizes and lifetimes; drawn beforehand.
void bench_random(int bits) {
  constexpr size_t kSlots = 1024, kOps = 100000;
  std::vector<std::pair<size_t, size_t>> plan;  // slot, bytes
  uint64_t state = 12345;
  auto draw = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  for (size_t i = 0; i < kOps; ++i) {
    const size_t low = size_t{1} << (draw() % static_cast<uint64_t>(bits));
    plan.emplace_back(draw() % kSlots, low + draw() % low);
  }
  Pool pool("cpu:0");
  std::vector<void*> slots(kSlots);
  print(measure("random, 1024 alive, up to " + name_of(size_t{1} << bits), 15, kOps,
                [&] {
                  for (const auto& [slot, bytes] : plan) {
                    pool.release(slots[slot]);
                    slots[slot] = pool.allocate(bytes);
                  }
                }),
        1e9, "ns per allocate and release");
}

// One thread allocates, another releases; they hand over batches.
void bench_two_threads(size_t bytes, size_t batch) {
  constexpr size_t kBlocks = 64000;
  Pool pool("cpu:0");
  std::vector<void*> blocks(kBlocks);
  const auto run = [&] {
    std::atomic<size_t> made{0}, gone{0};
    std::thread other([&] {
      for (size_t i = 0; i < kBlocks; i += batch) {
        while (made.load(std::memory_order_acquire) < i + batch) std::this_thread::yield();
        for (size_t k = i; k < i + batch; ++k) pool.release(blocks[k]);
        gone.store(i + batch, std::memory_order_release);
      }
    });
    for (size_t i = 0; i < kBlocks; i += batch) {
      while (i > gone.load(std::memory_order_acquire) + 4 * batch) std::this_thread::yield();
      for (size_t k = i; k < i + batch; ++k) blocks[k] = pool.allocate(bytes);
      made.store(i + batch, std::memory_order_release);
    }
    other.join();
  };
  print(measure("one thread allocates, another releases, by " + std::to_string(batch) + ", " + name_of(bytes),
                15, kBlocks, run),
        1e9, "ns per allocate and release");
}

void bench_trim(size_t bytes) {
  Pool pool("cpu:0");
  constexpr int kRounds = 20;
  print(measure("allocate new memory, release, trim, " + name_of(bytes), 5, kRounds,
                [&] {
                  for (int i = 0; i < kRounds; ++i) {
                    pool.release(pool.allocate(bytes));
                    pool.trim();
                  }
                }),
        1e6, "us");
}

}  // namespace

int storage() {
  for (const size_t bytes : {size_t{64}, size_t{1024}, size_t{16384}, kMiB, 64 * kMiB})
    bench_pair(bytes, false);
  for (const size_t bytes : {size_t{64}, size_t{16384}, kMiB}) bench_burst(bytes);
  for (const int bits : {10, 16, 22}) bench_random(bits);
  for (const size_t bytes : {size_t{64}, size_t{16384}, kMiB})
    for (const size_t batch : {size_t{1}, size_t{32}, size_t{1000}}) bench_two_threads(bytes, batch);
  for (const size_t bytes : {size_t{64}, size_t{16384}, kMiB}) bench_pair(bytes, true);
  bench_trim(kMiB);
  return 0;
}

}  // namespace weft::bench
