// weft's kind gpu on the stand-in: memory, copies and fills against a model, and arrays on it from several
// threads.
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device/backend.h"
#include "engine/pages.h"
#include "storage/pool.h"
#include "tests/support.h"

namespace {

using namespace weft;
using namespace weft::testing;

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

// The process's backend; the driver is the stand-in, which this program is linked to.
DeviceBackend& backend() {
  setenv("WEFT_GPU_DRIVER", "libweft_standin_gpu.so", 1);
  offer_gpus();
  return *require_backend({DeviceKind::gpu, 0});
}

std::vector<char> some_bytes(Random& random, size_t bytes) {
  std::vector<char> memory(bytes);
  for (char& byte : memory) byte = static_cast<char>(random.next());
  return memory;
}

// Memory of a device, and what should be in it.
struct Block {
  int device;
  char* memory;
  std::vector<char> expected;
};

class Devices {
 public:
  Devices() : backend_(backend()) {
    for (int i = 0; i < 2; ++i)
      pools_.push_back(std::make_unique<Pool>("gpu:" + std::to_string(i), PoolOptions{}, backend_.pages(i)));
  }
  void make(Random& random) {
    const int device = random.below(2);
    // Most are small; some take several pieces of the ring.
    const size_t bytes =
        random.below(20) == 0 ? 9 * kMiB + 5 : 1 + static_cast<size_t>(random.below(1 << 16));
    auto* memory = static_cast<char*>(pools_[static_cast<size_t>(device)]->allocate(bytes));
    std::vector<char> content = some_bytes(random, bytes);
    backend_.copy_in(device, memory, content.data(), bytes);
    blocks_.push_back({device, memory, std::move(content)});
  }
  void copy(Random& random) {
    Block &to = any(random), &from = any(random);
    if (&to == &from) return;
    const size_t bytes = std::min(to.expected.size(), from.expected.size());
    backend_.copy_within(to.device, to.memory, from.device, from.memory, bytes);
    std::memcpy(to.expected.data(), from.expected.data(), bytes);
  }
  void fill(Random& random) {
    Block& to = any(random);
    const size_t size = size_t{1} << random.below(3), count = to.expected.size() / size;
    const auto value = static_cast<uint32_t>(random.next());
    CHECK(backend_.fill(to.device, to.memory, value, size, count));
    for (size_t i = 0; i < count; ++i) std::memcpy(to.expected.data() + i * size, &value, size);
    CHECK(!backend_.fill(to.device, to.memory, value, 8, 1));
  }
  void check(Random& random) { check(any(random)); }
  void drop(Random& random) {
    Block& block = any(random);
    check(block);
    pools_[static_cast<size_t>(block.device)]->release(block.memory);
    std::swap(block, blocks_.back());
    blocks_.pop_back();
    if (random.below(4) == 0) pools_[static_cast<size_t>(random.below(2))]->trim();
  }
  size_t count() const { return blocks_.size(); }

 private:
  Block& any(Random& random) {
    return blocks_[static_cast<size_t>(random.below(static_cast<int>(blocks_.size())))];
  }
  void check(const Block& block) {
    std::vector<char> content(block.expected.size());
    backend_.copy_out(block.device, content.data(), block.memory, content.size());
    CHECK(content == block.expected);
  }

  DeviceBackend& backend_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<Block> blocks_;
};

TEST(gpu_memory_is_what_was_written) {
  Random random(seed());
  Devices devices;
  for (int step = 0; step < 400; ++step) {
    const int action = devices.count() < 3 ? 0 : random.below(5);
    if (action == 0) devices.make(random);
    if (action == 1) devices.copy(random);
    if (action == 2) devices.fill(random);
    if (action == 3) devices.check(random);
    if (action == 4) devices.drop(random);
  }
}

TEST(gpu_threads_copy_at_the_same_time) {
  backend();
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &failures] {
      DeviceBackend& gpus = backend();
      Random random(seed() + static_cast<uint64_t>(t));
      Pool pool("gpu", {}, gpus.pages(t % 2));
      for (int step = 0; step < 20; ++step) {
        const std::vector<char> bytes = some_bytes(random, 1 + static_cast<size_t>(random.below(1 << 18)));
        std::vector<char> back(bytes.size());
        auto* memory = static_cast<char*>(pool.allocate(bytes.size()));
        gpus.copy_in(t % 2, memory, bytes.data(), bytes.size());
        gpus.copy_out(t % 2, back.data(), memory, bytes.size());
        if (back != bytes) ++failures;
        pool.release(memory);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(failures.load(), 0);
}

TEST(gpu_memory_ends_with_an_error) {
  Pool pool("gpu:0", {}, backend().pages(0));
  CHECK_THROWS(pool.allocate(uint64_t{1} << 40), OutOfMemory);
  auto* memory = static_cast<char*>(pool.allocate(3 * kMiB));
  char byte = 5, back = 0;
  backend().copy_in(0, memory + 3 * kMiB - 1, &byte, 1);
  backend().copy_out(0, &back, memory + 3 * kMiB - 1, 1);
  CHECK_EQ(back, byte);
}

TEST(gpu_that_is_not_there) {
  backend();
  CHECK_THROWS(require_backend({DeviceKind::gpu, 2}), DeviceError);
  CHECK(hidden_memory_of({DeviceKind::gpu, 0}) != nullptr);
  CHECK(hidden_memory_of({DeviceKind::cpu, 0}) == nullptr);
}

}  // namespace
