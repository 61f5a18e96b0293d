// The stand-in's functions, as a program sees them, and a device for a test.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "standin/driver_types.h"
#include "tests/check.h"

extern "C" {
CUresult cuInit(unsigned);
CUresult cuGetErrorName(CUresult, const char**);
CUresult cuDeviceGetCount(int*);
CUresult cuDeviceGet(CUdevice*, int);
CUresult cuDeviceGetName(char*, int, CUdevice);
CUresult cuDeviceGetAttribute(int*, int, CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize();
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuMemGetInfo_v2(std::size_t*, std::size_t*);
CUresult cuMemAlloc_v2(CUdeviceptr*, std::size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAddressReserve(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, std::size_t);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                     unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemMap(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, std::size_t);
CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);
CUresult cuMemHostAlloc(void**, std::size_t, unsigned);
CUresult cuMemFreeHost(void*);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, std::size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t, CUstream);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D*, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, std::size_t, CUstream);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, std::size_t, CUstream);
CUresult cuStreamCreate(CUstream*, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamWriteValue64_v2(CUstream, CUdeviceptr, std::uint64_t, unsigned);
CUresult cuStreamWaitValue64_v2(CUstream, CUdeviceptr, std::uint64_t, unsigned);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void*);
CUresult cuEventCreate(CUevent*, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventSynchronize(CUevent);
CUresult cuModuleLoadDataEx(CUmodule*, const void*, unsigned, int*, void**);
CUresult cuModuleLoadData(CUmodule*, const void*);
CUresult cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream, void**, void**);
const char* weft_standin_fault(int device);
void weft_standin_counts(std::uint64_t*, std::uint64_t*, std::uint64_t*);
void weft_standin_skip_wait(std::uint64_t);
}

namespace standin::testing {

// As kernels/kernels.cpp has it.
struct Arguments {
  CUdeviceptr x, y, z;
  std::int64_t size;
};

// Two devices, of which `number` is current, with one stream. seed: of the first device of a process.
struct Device {
  explicit Device(int number = 0, std::uint64_t seed = 0) {
    setenv("WEFT_TEST_SEED", std::to_string(seed).c_str(), 1);
    CHECK_EQ(cuInit(0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, number), CUDA_SUCCESS);
    use();
    stream = new_stream();
  }

  void use() { CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS); }

  static CUstream new_stream() {
    CUstream made = nullptr;
    CHECK_EQ(cuStreamCreate(&made, 1), CUDA_SUCCESS);
    return made;
  }

  static CUevent new_event() {
    CUevent made = nullptr;
    CHECK_EQ(cuEventCreate(&made, 2), CUDA_SUCCESS);
    return made;
  }

  static CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    CHECK_EQ(cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }

  template <class T>
  CUdeviceptr upload(const std::vector<T>& values) {
    const CUdeviceptr address = allocate(values.size() * sizeof(T));
    CHECK_EQ(cuMemcpyHtoDAsync_v2(address, values.data(), values.size() * sizeof(T), stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    return address;
  }

  template <class T>
  std::vector<T> download(CUdeviceptr address, std::size_t count) {
    std::vector<T> values(count);
    CHECK_EQ(cuMemcpyDtoHAsync_v2(values.data(), address, count * sizeof(T), stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    return values;
  }

  // A kernel of kernels/kernels.cpp.
  CUfunction function(const char* name) {
    if (!module) {
      std::ifstream file(WEFT_STANDIN_IMAGE, std::ios::binary);
      const std::string image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      CHECK(!image.empty());
      CHECK_EQ(cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
    }
    CUfunction found = nullptr;
    CHECK_EQ(cuModuleGetFunction(&found, module, name), CUDA_SUCCESS);
    return found;
  }

  CUresult launch(const char* name, unsigned blocks, unsigned threads, Arguments arguments,
                  unsigned shared_bytes = 0, CUstream on = nullptr) {
    void* parameters[] = {&arguments};
    return cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, shared_bytes, on ? on : stream,
                          parameters, nullptr);
  }

  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUmodule module = nullptr;
};

}  // namespace standin::testing
