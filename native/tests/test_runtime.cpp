// Temporary space, and what devices there are.
#include <cstring>
#include <thread>

#include "storage/runtime.h"
#include "tests/support.h"

namespace weft::testing {
namespace {

constexpr Device kDevice{DeviceKind::cpu, 40};  // used by no other test

uint64_t in_use() { return Runtime::get().pool(kDevice).stats().in_use_bytes; }

TEST(runtime_temporary_space_is_the_same_again_and_grows) {
  std::thread([] {
    char* small = temp_space(kDevice, 1000);
    CHECK_EQ(reinterpret_cast<uintptr_t>(small) % Pool::kAlignment, uintptr_t{0});
    std::memset(small, 1, 1000);
    CHECK(temp_space(kDevice, 10) == small);
    CHECK(temp_space(kDevice, 1000) == small);
    char* large = temp_space(kDevice, 1 << 20);
    std::memset(large, 2, 1 << 20);
    CHECK(temp_space(kDevice, 1 << 20) == large);
    CHECK(temp_space(kDevice, 1) == large);
  }).join();
}

TEST(runtime_temporary_space_belongs_to_its_thread_and_ends_with_it) {
  const uint64_t before = in_use();
  std::thread([&] {
    char* mine = temp_space(kDevice, 1 << 16);
    std::memset(mine, 3, 1 << 16);
    std::thread([&] {
      char* other = temp_space(kDevice, 1 << 16);
      CHECK(other != mine);
      std::memset(other, 4, 1 << 16);
    }).join();
    CHECK_EQ(mine[(1 << 16) - 1], char{3});
    CHECK(in_use() > before);
  }).join();
  CHECK_EQ(in_use(), before);
}

TEST(runtime_refuses_devices_that_have_no_memory) {
  for (const Device device :
       {Device{DeviceKind::cpu, 64}, Device{DeviceKind::cpu, -1}, Device{DeviceKind::gpu, 0}})
    CHECK_THROWS(Runtime::get().pool(device), DeviceError);
}

}  // namespace
}  // namespace weft::testing
