// The driver's functions for memory. All copies and fills are late, from pageable memory of the host, too:
// nothing may depend on more than the documentation's "asynchronous with respect to the host".
#include <algorithm>
#include <cstring>

#include "standin/driver.h"

using namespace standin;

WEFT_DRIVER cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  driver()->memory.info(context->device, free, total);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  Address at = 0;
  WEFT_TRY(driver()->memory.allocate(context->device, bytes, &at));
  *address = at;
  return CUDA_SUCCESS;
}

// At once: what still uses the memory on a stream faults. The real one may wait, and nothing may depend on
// it.
WEFT_DRIVER cuMemFree_v2(CUdeviceptr address) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  return address ? driver()->memory.free(address) : CUDA_SUCCESS;
}

WEFT_DRIVER cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties, int) {
  WEFT_TRY(check_ready());
  if (!bytes || !properties) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                                CUdeviceptr wanted, unsigned long long flags) {
  WEFT_TRY(check_ready());
  static_cast<void>(wanted);  // a hint
  if (!address || flags) return CUDA_ERROR_INVALID_VALUE;
  Address at = 0;
  WEFT_TRY(driver()->memory.reserve(bytes, alignment, &at));
  *address = at;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  WEFT_TRY(check_ready());
  return driver()->memory.free_reserved(address, bytes);
}

WEFT_DRIVER cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                        const CUmemAllocationProp* properties, unsigned long long flags) {
  WEFT_TRY(check_ready());
  if (!handle || !properties || flags || properties->type != 1 || properties->location.type != 1)
    return CUDA_ERROR_INVALID_VALUE;
  WEFT_TRY(check_device(properties->location.id));
  return driver()->memory.create(properties->location.id, bytes, handle);
}

WEFT_DRIVER cuMemRelease(CUmemGenericAllocationHandle handle) {
  WEFT_TRY(check_ready());
  return driver()->memory.release(handle);
}

WEFT_DRIVER cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags) {
  WEFT_TRY(check_ready());
  return flags ? CUDA_ERROR_INVALID_VALUE : driver()->memory.map(address, bytes, offset, handle);
}

WEFT_DRIVER cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  WEFT_TRY(check_ready());
  return driver()->memory.unmap(address, bytes);
}

WEFT_DRIVER cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                           std::size_t count) {
  WEFT_TRY(check_ready());
  for (std::size_t k = 0; k < count; ++k) {
    if (access[k].location.type != 1) return CUDA_ERROR_INVALID_VALUE;
    WEFT_TRY(driver()->memory.set_access(address, bytes, access[k].location.id, access[k].flags));
  }
  return CUDA_SUCCESS;
}

// Pinned memory of the host.

WEFT_DRIVER cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  return driver()->memory.allocate_host(bytes, pointer);
}

WEFT_DRIVER cuMemAllocHost_v2(void** pointer, std::size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

WEFT_DRIVER cuMemFreeHost(void* pointer) {
  WEFT_TRY(check_ready());
  return driver()->memory.free_host(pointer);
}

WEFT_DRIVER cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  return driver()->memory.register_host(pointer, bytes);
}

WEFT_DRIVER cuMemHostUnregister(void* pointer) {
  WEFT_TRY(check_ready());
  return driver()->memory.unregister_host(pointer);
}

WEFT_DRIVER cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned flags) {
  WEFT_TRY(check_ready());
  if (flags || driver()->memory.device_of(reinterpret_cast<Address>(pointer)) != -1)
    return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<Address>(pointer);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  WEFT_TRY(check_ready());
  const int device = driver()->memory.device_of(address);
  constexpr int kMemoryType = 2, kOrdinal = 9;
  if (device == -2) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == kMemoryType)
    *static_cast<unsigned*>(value) = device == -1 ? 1 : 2;
  else if (attribute == kOrdinal)
    *static_cast<int*>(value) = std::max(device, 0);
  else
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

// Copies.

namespace {

enum class Side { host, device };

// Rows to copy, with the addresses of the first ones.
struct Rows {
  Side from_side, to_side;
  Address from, to;
  std::size_t from_pitch, to_pitch, width, height;
};

Fault missing(const char* name, const char* what, Memory& memory, Address address) {
  return {CUDA_ERROR_ILLEGAL_ADDRESS, std::string(name) + ": " + what + " " + memory.describe(address)};
}

// The place of rows on one side; null if a device's memory is not there.
char* find(const Rows& rows, bool is_from, int device) {
  const Side side = is_from ? rows.from_side : rows.to_side;
  const Address address = is_from ? rows.from : rows.to;
  const std::size_t pitch = is_from ? rows.from_pitch : rows.to_pitch;
  if (side == Side::host) return reinterpret_cast<char*>(address);
  const std::size_t bytes = rows.height ? (rows.height - 1) * pitch + rows.width : 0;
  return driver()->memory.find(address, bytes, device);
}

// device: whose accesses count.
CUresult push_copy(CUstream handle, const char* name, const Rows& rows, int device = -1) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(handle, &stream));
  if (!rows.width || !rows.height) return CUDA_SUCCESS;
  const int own = device < 0 ? stream->context().device : device;
  ++driver()->counters.copies;
  stream->push([name, rows, own](Processor& processor, Random&) {
    Memory& memory = driver()->memory;
    Copying copying{find(rows, true, own),
                    find(rows, false, own),
                    rows.from_pitch,
                    rows.to_pitch,
                    rows.width,
                    rows.height};
    if (!copying.from) return missing(name, "reads", memory, rows.from);
    if (!copying.to) return missing(name, "writes to", memory, rows.to);
    return processor.run(name, copying);
  });
  return CUDA_SUCCESS;
}

CUresult push_plain(CUstream stream, const char* name, Side to_side, Address to, Side from_side, Address from,
                    std::size_t bytes) {
  return push_copy(stream, name, {from_side, to_side, from, to, bytes, bytes, bytes, 1});
}

CUresult push_fill(CUstream handle, const char* name, Address to, std::uint32_t value, std::size_t bytes,
                   std::size_t count, std::size_t pitch = 0, std::size_t height = 1) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(handle, &stream));
  if (to % bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!count || !height) return CUDA_SUCCESS;
  const int own = stream->context().device;
  stream->push([=](Processor& processor, Random&) {
    Memory& memory = driver()->memory;
    Filling filling{
        memory.find(to, (height - 1) * pitch + count * bytes, own), value, bytes, count, pitch, height};
    if (!filling.to) return missing(name, "writes to", memory, to);
    return processor.run(name, filling);
  });
  return CUDA_SUCCESS;
}

// A side whose kind the address says: pinned memory and pageable memory of the host are both read by their
// address.
Side side_of(Address address) { return driver()->memory.in_window(address) ? Side::device : Side::host; }

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

}  // namespace

WEFT_DRIVER cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return push_plain(stream, "copy to the device", Side::device, to, Side::host, address_of(from), bytes);
}

WEFT_DRIVER cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return push_plain(stream, "copy to the host", Side::host, address_of(to), Side::device, from, bytes);
}

WEFT_DRIVER cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return push_plain(stream, "copy on the device", Side::device, to, Side::device, from, bytes);
}

WEFT_DRIVER cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  WEFT_TRY(check_ready());
  return push_plain(stream, "copy", side_of(to), to, side_of(from), from, bytes);
}

// Needs no access of either device to the other's memory.
WEFT_DRIVER cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                              std::size_t bytes, CUstream handle) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(handle, &stream));
  if (!to_context || !from_context) return CUDA_ERROR_INVALID_VALUE;
  const int to_device = reinterpret_cast<Context*>(to_context)->device;
  const int from_device = reinterpret_cast<Context*>(from_context)->device;
  ++driver()->counters.copies;
  stream->push([=](Processor& processor, Random&) {
    const char* name = "copy from device to device";
    Memory& memory = driver()->memory;
    Copying copying{
        memory.find(from, bytes, from_device), memory.find(to, bytes, to_device), bytes, bytes, bytes, 1};
    if (!copying.from) return missing(name, "reads", memory, from);
    if (!copying.to) return missing(name, "writes to", memory, to);
    return processor.run(name, copying);
  });
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  WEFT_TRY(check_ready());
  constexpr int kHost = 1, kDevice = 2;
  const auto known = [](int type) { return type == kHost || type == kDevice; };
  if (!copy || !known(copy->srcMemoryType) || !known(copy->dstMemoryType)) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t width = copy->WidthInBytes;
  const std::size_t from_pitch = copy->srcPitch ? copy->srcPitch : width;
  const std::size_t to_pitch = copy->dstPitch ? copy->dstPitch : width;
  if (from_pitch < width + copy->srcXInBytes || to_pitch < width + copy->dstXInBytes)
    return CUDA_ERROR_INVALID_VALUE;
  const bool from_host = copy->srcMemoryType == kHost, to_host = copy->dstMemoryType == kHost;
  const Address from = from_host ? address_of(copy->srcHost) : copy->srcDevice;
  const Address to = to_host ? address_of(copy->dstHost) : copy->dstDevice;
  return push_copy(
      stream, "copy of rows",
      {from_host ? Side::host : Side::device, to_host ? Side::host : Side::device,
       from + copy->srcY * from_pitch + copy->srcXInBytes, to + copy->dstY * to_pitch + copy->dstXInBytes,
       from_pitch, to_pitch, width, copy->Height});
}

WEFT_DRIVER cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return push_fill(stream, "fill", to, value, 1, count);
}

WEFT_DRIVER cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  return push_fill(stream, "fill", to, value, 2, count);
}

WEFT_DRIVER cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return push_fill(stream, "fill", to, value, 4, count);
}

WEFT_DRIVER cuMemsetD2D8Async(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                              std::size_t height, CUstream stream) {
  return pitch < width ? CUDA_ERROR_INVALID_VALUE
                       : push_fill(stream, "fill", to, value, 1, width, pitch, height);
}
