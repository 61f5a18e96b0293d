// Temporary space, and what devices there are.
#include <cstring>
#include <thread>

#include "storage/runtime.h"
#include "tests/support.h"

namespace weft::testing {
namespace {

constexpr Device kDevice{DeviceKind::cpu, 40};  // used by no other test

uint64_t in_use() { return Runtime::get().pool(kDevice).stats().in_use_bytes; }

constexpr size_t kLarge = 1 << 20;

// Its address, and that all of it can be written.
char* used(size_t bytes) {
  const TempSpace space(kDevice, bytes);
  CHECK_EQ(reinterpret_cast<uintptr_t>(space.get()) % Pool::kAlignment, uintptr_t{0});
  std::memset(space.get(), 1, bytes);
  return space.get();
}

TEST(runtime_temporary_space_is_used_again) {
  CHECK(TempSpace(kDevice, 0).get() == nullptr);
  CHECK(used(1000) == used(10));
  char* const large = used(kLarge);
  CHECK(used(kLarge) == large);
  CHECK(used(kLarge / 2) == large);
  std::thread([&] { CHECK(used(kLarge) == large); }).join();
  Runtime::get().release_temporary(kDevice);
}

TEST(runtime_temporary_space_is_replaced_by_what_is_larger) {
  Runtime::get().release_temporary(kDevice);
  const uint64_t before = in_use();
  used(kLarge);
  used(2 * kLarge);
  CHECK(in_use() - before < 3 * kLarge);
  used(100 * kLarge);  // too much larger to take its place
  used(2 * kLarge);
  CHECK(in_use() - before > 101 * kLarge && in_use() - before < 103 * kLarge);
  CHECK(Runtime::get().release_temporary(kDevice));
  CHECK(!Runtime::get().release_temporary(kDevice));
  CHECK_EQ(in_use(), before);
}

TEST(runtime_temporary_space_that_is_used_is_nobody_elses) {
  for (const size_t bytes : {size_t{1000}, kLarge}) {
    const TempSpace mine(kDevice, bytes);
    std::memset(mine.get(), 3, bytes);
    CHECK(used(bytes) != mine.get());  // by a function that this one calls
    std::thread([&] { CHECK(used(bytes) != mine.get()); }).join();
    Runtime::get().release_temporary(kDevice);
    CHECK_EQ(mine.get()[bytes - 1], char{3});
  }
}

TEST(runtime_refuses_devices_that_have_no_memory) {
  for (const Device device :
       {Device{DeviceKind::cpu, 64}, Device{DeviceKind::cpu, -1}, Device{DeviceKind::gpu, 0}})
    CHECK_THROWS(Runtime::get().pool(device), DeviceError);
}

}  // namespace
}  // namespace weft::testing
