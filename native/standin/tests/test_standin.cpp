// The stand-in for a GPU: it does what a program may rely on, and shows what it may not.
#include "standin/tests/support.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include <unistd.h>

#include "tests/support.h"

using namespace standin::testing;

namespace {

constexpr std::size_t kMiB = 1 << 20;

// Whether this process can read the byte; the kernel says so without a signal.
bool is_readable(CUdeviceptr address) {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  const bool read = write(ends[1], reinterpret_cast<void*>(address), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return read;
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t k = 0; k < count; ++k) values[k] = static_cast<float>(k % 7);
  return values;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Mapped {
  explicit Mapped(std::size_t bytes, int device = 0) : size(bytes) {
    const CUmemAllocationProp properties{1, 0, {1, device}, nullptr, {}};
    CHECK_EQ(cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  }
  CUresult map(CUdeviceptr address) const { return cuMemMap(address, size, 0, handle, 0); }
  std::size_t size;
  CUmemGenericAllocationHandle handle = 0;
};

const CUmemAccessDesc kAccess{{1, 0}, 3};

}  // namespace

TEST(standin_has_devices) {
  CUdevice device = -1;
  CHECK_EQ(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
  Device first;
  int count = 0, value = 0;
  char name[20];
  const char* error = nullptr;
  CHECK_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  CHECK_EQ(count, 2);
  CHECK_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  CHECK_EQ(cuDeviceGetName(name, sizeof name, 1), CUDA_SUCCESS);
  CHECK_EQ(std::string(name), "stand-in");
  CHECK_EQ(cuDeviceGetAttribute(&value, 10, 0), CUDA_SUCCESS);
  CHECK_EQ(value, 32);
  CHECK_EQ(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &error), CUDA_SUCCESS);
  CHECK_EQ(std::string(error), "CUDA_ERROR_ILLEGAL_ADDRESS");
  CHECK_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(standin_memory_is_not_the_hosts) {
  Device device;
  const std::vector<float> x = numbers(1000);
  const CUdeviceptr address = device.upload(x);
  CHECK(!is_readable(address));
  CHECK(device.download<float>(address, 1000) == x);
  CHECK_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  CHECK_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  CHECK(Device::allocate(4000) != address);
}

TEST(standin_memory_begins_as_nan) {
  Device device;
  for (const float value : device.download<float>(Device::allocate(400), 100)) CHECK(std::isnan(value));
  void* pinned = nullptr;
  CHECK_EQ(cuMemHostAlloc(&pinned, 16, 0), CUDA_SUCCESS);
  CHECK(std::isnan(*static_cast<float*>(pinned)));
  CHECK_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  CHECK(!is_readable(reinterpret_cast<CUdeviceptr>(pinned)));
}

TEST(standin_fills_and_copies_rows) {
  Device device;
  const CUdeviceptr a = Device::allocate(64), b = Device::allocate(64);
  CHECK_EQ(cuMemsetD32Async(a, 7, 16, device.stream), CUDA_SUCCESS);
  CHECK_EQ(cuMemsetD32Async(a + 2, 7, 1, device.stream), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemsetD8Async(b, 0, 64, device.stream), CUDA_SUCCESS);
  CUDA_MEMCPY2D rows{};  // 2 x 3 of a 4 x 4, from (1, 1) of a to (2, 0) of b
  rows.srcMemoryType = rows.dstMemoryType = 2;
  rows.srcDevice = a, rows.dstDevice = b;
  rows.srcPitch = rows.dstPitch = 16;
  rows.srcY = 1, rows.srcXInBytes = 4, rows.dstY = 2;
  rows.WidthInBytes = 12, rows.Height = 2;
  CHECK_EQ(cuMemcpy2DAsync_v2(&rows, device.stream), CUDA_SUCCESS);
  CHECK_EQ(device.download<int>(b, 16), (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 0, 7, 7, 7, 0}));
  CHECK_EQ(cuMemcpyDtoDAsync_v2(a, b, 32, device.stream), CUDA_SUCCESS);
  CHECK_EQ(device.download<int>(a, 16)[7], 0);
}

TEST(standin_maps_memory_into_reserved_addresses) {
  Device device;
  CUdeviceptr base = 0;
  std::size_t free_before = 0, free = 0, total = 0;
  CHECK_EQ(cuMemGetInfo_v2(&free_before, &total), CUDA_SUCCESS);
  CHECK_EQ(cuMemAddressReserve(&base, 64 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  const Mapped first(2 * kMiB), second(4 * kMiB);
  CHECK_EQ(first.map(base), CUDA_SUCCESS);
  CHECK_EQ(second.map(base + kMiB), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(second.map(base), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(second.map(base + 2 * kMiB), CUDA_SUCCESS);
  CHECK_EQ(cuMemSetAccess(base, 6 * kMiB, &kAccess, 1), CUDA_SUCCESS);
  // One piece across both.
  CHECK_EQ(cuMemsetD32Async(base, 5, 6 * kMiB / 4, device.stream), CUDA_SUCCESS);
  CHECK_EQ(device.download<int>(base + 2 * kMiB - 4, 2), (std::vector<int>{5, 5}));
  CHECK(!is_readable(base));
  CHECK_EQ(cuMemRelease(first.handle), CUDA_SUCCESS);
  CHECK_EQ(cuMemRelease(second.handle), CUDA_SUCCESS);
  CHECK_EQ(cuMemAddressFree(base, 64 * kMiB), CUDA_ERROR_INVALID_VALUE);  // something is mapped there
  CHECK_EQ(cuMemUnmap(base, kMiB), CUDA_ERROR_INVALID_VALUE);             // half of one
  CHECK_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  CHECK_EQ(free_before - free, 6 * kMiB);
  CHECK_EQ(cuMemUnmap(base, 6 * kMiB), CUDA_SUCCESS);
  CHECK_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  CHECK_EQ(free, free_before);
  CHECK_EQ(cuMemAddressFree(base, 64 * kMiB), CUDA_SUCCESS);
}

TEST(standin_runs_out_of_memory) {
  setenv("WEFT_STANDIN_MIB", "8", 1);
  Device device;
  CUdeviceptr address = 0;
  CHECK_EQ(cuMemAlloc_v2(&address, 9 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties{1, 0, {1, 0}, nullptr, {}};
  const Mapped all(8 * kMiB);
  CHECK_EQ(cuMemCreate(&handle, 2 * kMiB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(cuMemRelease(all.handle), CUDA_SUCCESS);
  CHECK_EQ(cuMemAlloc_v2(&address, 8 * kMiB), CUDA_SUCCESS);
  CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // no such error stays
}

TEST(standin_memory_of_another_device_needs_access) {
  Device first(0), second(1);
  second.use();
  const CUdeviceptr there = second.upload(numbers(10));
  first.use();
  const CUdeviceptr here = Device::allocate(40);
  CHECK_EQ(cuMemcpyPeerAsync(here, first.context, there, second.context, 40, first.stream), CUDA_SUCCESS);
  CHECK(first.download<float>(here, 10) == numbers(10));
  CHECK_EQ(cuCtxEnablePeerAccess(second.context, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemcpyDtoDAsync_v2(here, there, 40, first.stream), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(first.stream), CUDA_SUCCESS);
  second.use();
  CHECK_EQ(second.launch("reads", 1, 1, {here, there, 0, 0}), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(second.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(contains(weft_standin_fault(1), "of a device that this one may not access"));
}

TEST(standin_runs_kernels) {
  for (const std::uint64_t blocks : {1, 3, 40}) {
    Device device(0, 5);
    const std::vector<float> x = numbers(10007);
    const CUdeviceptr a = device.upload(x), c = Device::allocate(4 * x.size());
    CHECK_EQ(device.launch("add", static_cast<unsigned>(blocks), 64, {a, a, c, 10007}), CUDA_SUCCESS);
    const std::vector<float> z = device.download<float>(c, x.size());
    for (std::size_t k = 0; k < x.size(); ++k) CHECK_EQ(z[k], 2 * x[k]);
  }
}

TEST(standin_has_barriers_and_shared_memory) {
  Device device(0, 3);
  const CUdeviceptr x = device.upload(numbers(2 * 64 * 9)), y = Device::allocate(4 * 9);
  CHECK_EQ(device.launch("sums", 9, 64, {x, y, 0, 0}, 4 * 64), CUDA_SUCCESS);
  const std::vector<float> sums = device.download<float>(y, 9), all = numbers(2 * 64 * 9);
  for (std::size_t block = 0; block < 9; ++block) {
    float expected = 0;
    for (std::size_t k = 0; k < 128; ++k) expected += all[block * 128 + k];
    CHECK_EQ(sums[block], expected);
  }
}

TEST(standin_shows_missing_barriers) {
  Device device(0, 1);
  const CUdeviceptr x = device.upload(numbers(128)), y = Device::allocate(4), z = Device::allocate(4);
  CHECK_EQ(device.launch("sums", 1, 64, {x, y, 0, 0}, 256), CUDA_SUCCESS);
  CHECK_EQ(device.launch("racing_sums", 1, 64, {x, z, 0, 0}, 256), CUDA_SUCCESS);
  CHECK(device.download<float>(y, 1) != device.download<float>(z, 1));
}

TEST(standin_has_shuffles) {
  Device device(0, 4);
  std::vector<std::uint32_t> x(64);
  for (std::uint32_t k = 0; k < 64; ++k) x[k] = k * k;
  const CUdeviceptr a = device.upload(x), y = Device::allocate(256), z = Device::allocate(512);
  CHECK_EQ(device.launch("shuffles", 1, 64, {a, y, z, 0}), CUDA_SUCCESS);
  const auto sums = device.download<std::uint32_t>(y, 64);
  const auto next = device.download<std::uint64_t>(z, 64);
  for (std::size_t k = 0; k < 64; ++k) {
    const std::size_t first = k / 32 * 32;
    std::uint32_t sum = 0;
    for (std::size_t lane = 0; lane < 32; ++lane) sum += x[first + lane];
    CHECK_EQ(sums[k], sum);
    CHECK_EQ(next[k], x[first + 6] * ((std::uint64_t{1} << 32) + 1));
  }
}

TEST(standin_launches_are_checked) {
  Device device;
  const CUfunction add = device.function("add");
  CUfunction none = nullptr;
  CHECK_EQ(cuModuleGetFunction(&none, device.module, "subtract"), CUDA_ERROR_NOT_FOUND);
  Arguments arguments{};
  void* parameters[] = {&arguments};
  const auto launch = [&](unsigned grid, unsigned block, unsigned shared) {
    return cuLaunchKernel(add, grid, 1, 1, block, 1, 1, shared, device.stream, parameters, nullptr);
  };
  CHECK_EQ(launch(0, 32, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(launch(1, 32, 64 << 10), CUDA_ERROR_INVALID_VALUE);
  std::size_t bytes = sizeof arguments - 8;
  void* extra[] = {reinterpret_cast<void*>(1), &arguments, reinterpret_cast<void*>(2), &bytes, nullptr};
  const auto with_extra = [&] {
    return cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, device.stream, nullptr, extra);
  };
  CHECK_EQ(with_extra(), CUDA_ERROR_INVALID_VALUE);
  bytes = sizeof arguments;
  CHECK_EQ(with_extra(), CUDA_SUCCESS);  // size 0: reads nothing
  CHECK_EQ(cuStreamSynchronize(device.stream), CUDA_SUCCESS);
  CHECK_EQ(cuModuleUnload(device.module), CUDA_SUCCESS);
  CHECK_EQ(with_extra(), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(cuStreamSynchronize(reinterpret_cast<CUstream>(&bytes)), CUDA_ERROR_INVALID_HANDLE);
  Device second(1);
  CHECK_EQ(cuMemsetD8Async(0, 0, 1, device.stream),
           CUDA_ERROR_INVALID_HANDLE);  // a stream of the other device
}

TEST(standin_refuses_other_images) {
  Device device;
  CUmodule module = nullptr;
  char log[100] = "";
  int options[] = {5, 6};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CHECK_EQ(cuModuleLoadDataEx(&module, ".version 8.0\n", 2, options, values), CUDA_ERROR_INVALID_IMAGE);
  CHECK(contains(log, "object files"));
}

TEST(standin_streams_are_ordered_by_events_only) {
  // Without the event, some of the copies back overtake; with it, none. The thread sanitizer calls that a
  // race.
  for (const bool with_event : {true, false}) {
    if (!with_event && weft::testing::kThreadSanitizer) continue;
    Device device(0, 2);
    const CUstream second = Device::new_stream();
    const CUevent event = Device::new_event();
    const std::vector<float> x = numbers(4096);
    const CUdeviceptr a = device.upload(x), c = Device::allocate(4 * 4096);
    int wrong = 0;
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<float> back(4096, -1.0f);
      CHECK_EQ(cuMemsetD8Async(c, 0xff, 4 * 4096, device.stream), CUDA_SUCCESS);
      CHECK_EQ(device.launch("add", 4, 64, {a, a, c, 4096}), CUDA_SUCCESS);
      if (with_event) {
        CHECK_EQ(cuEventRecord(event, device.stream), CUDA_SUCCESS);
        CHECK_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
      }
      CHECK_EQ(cuMemcpyDtoHAsync_v2(back.data(), c, 4 * 4096, second), CUDA_SUCCESS);
      CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      bool right = true;
      for (std::size_t k = 0; k < back.size(); ++k) right &= back[k] == 2 * x[k];
      wrong += !right;
    }
    CHECK_EQ(wrong > 0, !with_event);
  }
}

TEST(standin_can_skip_a_wait) {
  Device device(0, 2);
  const CUstream second = Device::new_stream();
  void* pinned = nullptr;
  CHECK_EQ(cuMemHostAlloc(&pinned, 8, 0), CUDA_SUCCESS);
  auto* value = static_cast<std::uint64_t*>(pinned);
  __atomic_store_n(value, 0, __ATOMIC_RELEASE);
  const auto address = reinterpret_cast<CUdeviceptr>(pinned);
  weft_standin_skip_wait(2);
  CHECK_EQ(cuStreamWaitValue64_v2(second, address, 3, 0), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  CHECK_EQ(cuStreamWriteValue64_v2(device.stream, address, 3, 0), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  CHECK_EQ(__atomic_load_n(value, __ATOMIC_ACQUIRE), 3u);
  CHECK_EQ(cuStreamWaitValue64_v2(second, address, 4, 0), CUDA_SUCCESS);  // the second one: does nothing
  CHECK_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  std::uint64_t launches = 0, copies = 0, waits = 0;
  weft_standin_counts(&launches, &copies, &waits);
  CHECK_EQ(waits, 2u);
}

TEST(standin_calls_functions_of_the_host) {
  Device device;
  static std::atomic<CUresult> inside{CUDA_SUCCESS};
  const auto function = [](void*) { inside = cuCtxSynchronize(); };
  CHECK_EQ(cuLaunchHostFunc(device.stream, function, nullptr), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(device.stream), CUDA_SUCCESS);
  CHECK_EQ(inside.load(), CUDA_ERROR_NOT_PERMITTED);
}

namespace {

void check_faults(std::uint64_t seed) {
  struct Case {
    const char* kernel;
    std::int64_t size;
    unsigned threads;
    CUresult error;
    const char* text;
  };
  const Case cases[] = {
      {"writes", 48, 1, CUDA_ERROR_ILLEGAL_ADDRESS, "writes to 0 bytes behind an allocation of 48 bytes"},
      {"reads", 4095, 1, CUDA_ERROR_ILLEGAL_ADDRESS, "reads 4047 bytes behind an allocation of 48 bytes"},
      {"writes_shared", 64, 1, CUDA_ERROR_ILLEGAL_ADDRESS, "writes to 0 bytes behind its 64 bytes of shared"},
      {"half_barrier", 8, 32, CUDA_ERROR_LAUNCH_FAILED, "of 32 threads 8 wait at a barrier"},
      {"two_barriers", 3, 6, CUDA_ERROR_LAUNCH_FAILED, "threads of a block wait at different barriers"},
      {"half_shuffle", 8, 32, CUDA_ERROR_LAUNCH_FAILED, "8 at a shuffle, and 24 have ended"},
  };
  for (const Case& one : cases) {
    Device device(0, seed);
    const CUdeviceptr x = Device::allocate(48), y = Device::allocate(64);
    CHECK_EQ(device.launch(one.kernel, 2, one.threads, {x, y, 0, one.size}, 64), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(device.stream), one.error);
    const std::string text = weft_standin_fault(0);
    if (!contains(text, one.text)) weft::testing::fail(__FILE__, __LINE__, text);
    CHECK(contains(text, std::string("kernel ") + one.kernel + ": "));
    CHECK_EQ(cuCtxSynchronize(), one.error);  // and stays
    CUdeviceptr other = 0;
    CHECK_EQ(cuMemAlloc_v2(&other, 4), one.error);
    {
      Device second(1);  // lives
      CHECK(second.download<float>(second.upload(numbers(5)), 5) == numbers(5));
    }
    CHECK_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    CHECK_EQ(std::string(weft_standin_fault(0)), "");
    CHECK_EQ(cuStreamQuery(device.stream), CUDA_ERROR_INVALID_HANDLE);
    Device again(0);
    CHECK(again.download<float>(again.upload(numbers(5)), 5) == numbers(5));
  }
}

}  // namespace

TEST(standin_faults_name_the_kernel_and_stay) { check_faults(0); }
TEST(standin_faults_in_any_order) { check_faults(6); }

TEST(standin_shows_use_after_free) {
  Device device;
  const CUdeviceptr x = device.upload(numbers(12)), y = Device::allocate(4);
  CHECK_EQ(cuMemFree_v2(x), CUDA_SUCCESS);
  CHECK_EQ(device.launch("reads", 1, 1, {x, y, 0, 4}), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(device.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(contains(weft_standin_fault(0),
                 "kernel reads: thread 0 of block 0: reads byte 4 of 48 bytes that were freed"));
}

TEST(standin_shows_kernels_that_touch_the_hosts_memory) {
  Device device;
  static char of_the_host[16];
  const CUdeviceptr y = Device::allocate(4);
  CHECK_EQ(device.launch("reads", 1, 1, {reinterpret_cast<CUdeviceptr>(of_the_host), y, 0, 4}), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(device.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(contains(weft_standin_fault(0), "which is neither memory of a device nor pinned"));
}

TEST(standin_shows_copies_beyond_memory) {
  Device device;
  std::vector<char> bytes(100);
  const CUdeviceptr x = Device::allocate(48);
  CHECK_EQ(cuMemcpyHtoDAsync_v2(x, bytes.data(), 49, device.stream), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(device.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(contains(weft_standin_fault(0), "copy to the device: writes to"));
  CHECK_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  Device again;
  const CUdeviceptr y = Device::allocate(48);  // before: it may be mapped where the other was
  void* pinned = nullptr;
  CHECK_EQ(cuMemHostAlloc(&pinned, 64, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  CHECK_EQ(cuMemcpyHtoDAsync_v2(y, pinned, 48, again.stream), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(again.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(contains(weft_standin_fault(0), "copy to the device: reads"));
}

TEST(standin_commands_after_a_fault_are_dropped) {
  Device device;
  const CUstream second = Device::new_stream();
  const CUevent event = Device::new_event();
  void* pinned = nullptr;
  CHECK_EQ(cuMemHostAlloc(&pinned, 8, 0), CUDA_SUCCESS);
  auto* value = static_cast<std::uint64_t*>(pinned);
  __atomic_store_n(value, 0, __ATOMIC_RELEASE);
  const CUdeviceptr x = Device::allocate(16);
  static std::atomic<bool> open{false};
  const auto gate = [](void*) {
    while (!open) std::this_thread::yield();
  };
  CHECK_EQ(cuLaunchHostFunc(device.stream, gate, nullptr), CUDA_SUCCESS);
  CHECK_EQ(device.launch("writes", 1, 1, {x, 0, 0, 16}), CUDA_SUCCESS);
  CHECK_EQ(cuStreamWriteValue64_v2(device.stream, reinterpret_cast<CUdeviceptr>(pinned), 1, 0), CUDA_SUCCESS);
  CHECK_EQ(cuEventRecord(event, device.stream), CUDA_SUCCESS);
  CHECK_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  open = true;
  CHECK_EQ(cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_EQ(cuStreamSynchronize(second), CUDA_ERROR_ILLEGAL_ADDRESS);  // is not stuck
  CHECK_EQ(__atomic_load_n(value, __ATOMIC_ACQUIRE), 0u);
}
