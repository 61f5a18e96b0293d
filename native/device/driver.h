// driver.h: the functions of a GPU's driver that weft calls, and the few types that they take.
//
// The library is opened when the first GPU is used: libcuda.so.1, or the one that $WEFT_GPU_DRIVER names.
// Nothing of it is needed to build weft. Names, layouts and numbers are those of CUDA 12 and 13; only the
// files of this folder know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::driver {

using Ordinal = int;  // CUdevice
using Address = unsigned long long;
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Allocation = unsigned long long;  // memory without an address

enum Result : int { success = 0, out_of_memory = 2, not_ready = 600 };

struct Location {
  int type = 1;  // of a device
  int id = 0;
};
struct AllocationProperties {
  int type = 1;  // pinned
  int requested_handle_types = 0;
  Location location;
  void* win32_handle_meta_data = nullptr;
  struct {
    unsigned char compression_type = 0, gpu_direct_rdma_capable = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};
struct AccessDescription {
  Location location;
  int flags = 3;  // read and write
};

// X(member, symbol, parameters): each returns a Result.
#define WEFT_DRIVER_FUNCTIONS(X)                                                                           \
  X(init, cuInit, (unsigned flags))                                                                        \
  X(error_name, cuGetErrorName, (Result error, const char** text))                                         \
  X(error_string, cuGetErrorString, (Result error, const char** text))                                     \
  X(device_count, cuDeviceGetCount, (int* count))                                                          \
  X(device_get, cuDeviceGet, (Ordinal * device, int index))                                                \
  X(device_name, cuDeviceGetName, (char* name, int bytes, Ordinal device))                                 \
  X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, Ordinal device))                   \
  X(load_module, cuModuleLoadData, (Module * module, const void* image))                                   \
  X(module_function, cuModuleGetFunction, (Function * function, Module module, const char* name))          \
  X(launch, cuLaunchKernel,                                                                                \
    (Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,       \
     unsigned threads_y, unsigned threads_z, unsigned shared_bytes, Stream stream, void** parameters,      \
     void** extra))                                                                                        \
  X(device_total_memory, cuDeviceTotalMem_v2, (size_t* bytes, Ordinal device))                             \
  X(retain_context, cuDevicePrimaryCtxRetain, (Context * context, Ordinal device))                         \
  X(release_context, cuDevicePrimaryCtxRelease_v2, (Ordinal device))                                       \
  X(reset_context, cuDevicePrimaryCtxReset_v2, (Ordinal device))                                           \
  X(set_context, cuCtxSetCurrent, (Context context))                                                       \
  X(granularity, cuMemGetAllocationGranularity,                                                            \
    (size_t* bytes, const AllocationProperties* properties, int option))                                   \
  X(reserve, cuMemAddressReserve,                                                                          \
    (Address * address, size_t bytes, size_t alignment, Address hint, unsigned long long flags))           \
  X(free_reserved, cuMemAddressFree, (Address address, size_t bytes))                                      \
  X(create, cuMemCreate,                                                                                   \
    (Allocation * memory, size_t bytes, const AllocationProperties* properties, unsigned long long flags)) \
  X(release, cuMemRelease, (Allocation memory))                                                            \
  X(map, cuMemMap,                                                                                         \
    (Address address, size_t bytes, size_t offset, Allocation memory, unsigned long long flags))           \
  X(unmap, cuMemUnmap, (Address address, size_t bytes))                                                    \
  X(set_access, cuMemSetAccess,                                                                            \
    (Address address, size_t bytes, const AccessDescription* access, size_t count))                        \
  X(allocate_host, cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                          \
  X(free_host, cuMemFreeHost, (void* memory))                                                              \
  X(copy_in, cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, Stream stream))            \
  X(copy_out, cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, Stream stream))                 \
  X(copy_within, cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, Stream stream))            \
  X(copy_peer, cuMemcpyPeerAsync,                                                                          \
    (Address to, Context to_context, Address from, Context from_context, size_t bytes, Stream stream))     \
  X(fill_8, cuMemsetD8Async, (Address to, unsigned char value, size_t count, Stream stream))               \
  X(fill_16, cuMemsetD16Async, (Address to, unsigned short value, size_t count, Stream stream))            \
  X(fill_32, cuMemsetD32Async, (Address to, unsigned value, size_t count, Stream stream))                  \
  X(create_stream, cuStreamCreateWithPriority, (Stream * stream, unsigned flags, int priority))            \
  X(synchronize, cuStreamSynchronize, (Stream stream))                                                     \
  X(wait_event, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                           \
  X(create_event, cuEventCreate, (Event * event, unsigned flags))                                          \
  X(record_event, cuEventRecord, (Event event, Stream stream))                                             \
  X(synchronize_event, cuEventSynchronize, (Event event))                                                  \
  X(query_event, cuEventQuery, (Event event))                                                              \
  X(elapsed_ms, cuEventElapsedTime, (float* milliseconds, Event earlier, Event later))                     \
  X(destroy_event, cuEventDestroy_v2, (Event event))

struct Table {
#define WEFT_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  WEFT_DRIVER_FUNCTIONS(WEFT_MEMBER)
#undef WEFT_MEMBER
};

// Opens the library and finds all functions, or raises DeviceError, which names the library and what is
// wrong. Then weft tries again when a GPU is used the next time.
Table open_table();

// Raises DeviceError, "gpu: <call>: <name of the error>: <its description>", unless it succeeded.
void check(const Table& table, Result result, const char* call);
// Whether an error ends the context it comes from: every later call there gives it again.
bool ends_context(Result result) noexcept;
// The text of `check`.
std::string describe(const Table& table, Result result, const char* call);

}  // namespace weft::driver
