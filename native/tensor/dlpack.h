// dlpack.h: the DLPack 1.x ABI: arrays, managed arrays and the C exchange API (DLPack 1.3). Layouts are fixed
// by https://dmlc.github.io/dlpack/latest/c_api.html.
#pragma once

#include <cstdint>

namespace weft::dlpack {

inline constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3;

struct Device {
  int32_t type, index;
};

struct DType {
  enum Code : uint8_t { kInt, kUInt, kFloat, kOpaque, kBfloat, kComplex, kBool };
  uint8_t code, bits;
  uint16_t lanes;
  bool operator==(const DType&) const = default;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DType dtype;
  int64_t *shape, *strides;  // strides in elements; null: row-major
  uint64_t byte_offset;
};

struct Version {
  uint32_t major = 1, minor = 1;
};

struct Managed {  // the form before version 1.0: capsules named "dltensor"
  Tensor tensor;
  void* context;
  void (*deleter)(Managed* self);
};

struct ManagedVersioned {  // "dltensor_versioned"
  static constexpr uint64_t kReadOnly = 1, kCopied = 2;
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned* self);
  uint64_t flags;
  Tensor tensor;
};

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;
};

// What a type offers as __dlpack_c_exchange_api__, a capsule named "dlpack_exchange_api". "No sync" is about
// device streams; on a cpu the elements are ready when these return. Functions return 0, or -1 with Python's
// error set.
struct ExchangeApi {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedVersioned** result, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedVersioned** result);
  int (*managed_to_object)(ManagedVersioned* tensor, void** object);
  int (*borrow_from_object)(void* object, Tensor* result);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** result);
};

}  // namespace weft::dlpack
