#include "tensor/exchange.h"

#include <cstring>
#include <memory>

#include "engine/device_kind.h"

namespace weft {

Share::Share(const Tensor& x) noexcept : chunk_(x.chunk.get()) {
  chunk_->retain();
  chunk_->exports.fetch_add(1, std::memory_order_relaxed);
  chunk_->shares.fetch_add(1, std::memory_order_seq_cst);
}

void Share::end(Chunk* chunk) noexcept {
  chunk->shares.fetch_sub(
      1, std::memory_order_release);  // what was written is visible to the thread that sees it
  chunk->release();
}

char* address_of(const Tensor& x) noexcept {
  alignas(64) static char nothing[64];
  return x.data ? x.data : nothing;
}

void put_geometry(const Tensor& x, int64_t* shape, int64_t* strides) noexcept {
  for (int i = 0; i < x.ndim; ++i) {
    shape[i] = x.shape[i];
    strides[i] = x.strides[i] * static_cast<int64_t>(x.itemsize());
  }
}

constexpr int64_t kMostBytes = int64_t{1} << 56;  // more than processors have addresses for

void adopt(Tensor& x, Device device, void (*drop)(void* owner) noexcept, void* owner, bool read_only,
           const char* function) {
  if (reinterpret_cast<uintptr_t>(x.data) % x.itemsize() != 0)
    throw BufferError(std::string(function) + ": the memory is not aligned to its elements");
  // From the lowest to behind the highest element.
  const auto itemsize = static_cast<int64_t>(x.itemsize());
  int64_t lowest = 0, highest = 0;
  for (int i = 0; i < x.ndim; ++i) {
    int64_t reach = 0;
    if (x.size == 0 || x.shape[i] == 1) continue;
    bool overflows = __builtin_mul_overflow(x.shape[i] - 1, x.strides[i], &reach);
    overflows |= __builtin_mul_overflow(reach, itemsize, &reach);
    int64_t& end = reach < 0 ? lowest : highest;
    overflows |= __builtin_add_overflow(end, reach, &end);
    if (overflows || highest > kMostBytes || lowest < -kMostBytes)
      throw BufferError(std::string(function) + ": the array reaches further than memory does: shape " +
                        std::to_string(x.shape[i]) + " with a stride of " + std::to_string(x.strides[i]) +
                        " elements in dimension " + std::to_string(i));
  }
  Chunk::Foreign foreign{x.data, 0, drop, owner, read_only};
  if (x.size) {
    foreign.data = x.data + lowest;
    foreign.bytes = static_cast<size_t>(highest - lowest + itemsize);
  }
  x.chunk = Chunk::adopt(device, foreign);
}

DType dtype_of_format(const char* buffer_format, size_t itemsize) {
  const char* format = buffer_format ? buffer_format : "B";
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const std::string_view code = format;
  const std::string_view same = code == "l" ? "q" : code == "L" ? "Q" : code == "c" ? "B" : code;
  for (int i = 0; i < kDTypes; ++i)
    if (kDTypeTable[i].format && kDTypeTable[i].format == same && size_of(static_cast<DType>(i)) == itemsize)
      return static_cast<DType>(i);
  throw DTypeError("asarray: no element type of weft is that of the buffer's format '" +
                   std::string(buffer_format ? buffer_format : "") + "'");
}

dlpack::DType to_dlpack(DType dtype) noexcept {
  using Code = dlpack::DType::Code;
  const Code code = dtype == DType::bool_      ? Code::kBool
                    : dtype == DType::bfloat16 ? Code::kBfloat
                    : is_floating(dtype)       ? Code::kFloat
                    : is_complex(dtype)        ? Code::kComplex
                    : is_unsigned(dtype)       ? Code::kUInt
                                               : Code::kInt;
  return {code, static_cast<uint8_t>(size_of(dtype) * 8), 1};
}

DType from_dlpack(dlpack::DType dtype) {
  for (int i = 0; i < kDTypes; ++i)
    if (to_dlpack(static_cast<DType>(i)) == dtype) return static_cast<DType>(i);
  throw DTypeError("from_dlpack: no element type of weft has DLPack's code " + std::to_string(dtype.code) +
                   " with " + std::to_string(dtype.bits) + " bits and " + std::to_string(dtype.lanes) +
                   " lanes");
}

dlpack::Device to_dlpack(Device device) {
  if (!hidden_memory_of(device)) return {dlpack::kCpu, 0};
  if (device.kind == DeviceKind::gpu) return {dlpack::kCuda, device.index};
  throw BufferError(std::string("DLPack: it has no name for devices of the kind ") + kind_name(device.kind));
}

Device from_dlpack(dlpack::Device device) {
  switch (device.type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost:
      return {};
    case dlpack::kCuda:
      require_backend({DeviceKind::gpu, device.index});
      return {DeviceKind::gpu, device.index};
    default:
      throw DeviceError("from_dlpack: the array is on a device of DLPack's type " +
                        std::to_string(device.type) +
                        "; a cpu (1), memory of the host (3) and a GPU with CUDA (2) can be used");
  }
}

dlpack::Tensor lend(Tensor& x, const Reader& reader) {
  const dlpack::Device device = to_dlpack(x.device());
  if (reader.is_host) {
    wait_for(x, writable(x));
  } else {
    wait_until_enqueued(x, writable(x));
    if (reader.stream) order_other_stream(x.device(), reader.stream, *x.chunk, !writable(x));
  }
  return {x.data, device, x.ndim, to_dlpack(x.dtype), x.shape, x.strides, 0};
}

Loan* Loan::make(const Tensor& x, bool copied, const Reader& reader) {
  Share share(x);
  Tensor view(x);
  auto loan = std::make_unique<Loan>();
  loan->managed.tensor = lend(view, reader);
  std::copy_n(x.shape, x.ndim, loan->shape);
  std::copy_n(x.strides, x.ndim, loan->strides);
  loan->managed.tensor.shape = loan->shape;
  loan->managed.tensor.strides = loan->strides;
  loan->versioned.tensor = loan->managed.tensor;
  loan->versioned.flags = (writable(x) ? 0 : dlpack::ManagedVersioned::kReadOnly) |
                          (copied ? dlpack::ManagedVersioned::kCopied : 0);
  loan->managed.context = loan->versioned.context = loan.get();
  loan->managed.deleter = [](dlpack::Managed* self) { static_cast<Loan*>(self->context)->end(); };
  loan->versioned.deleter = [](dlpack::ManagedVersioned* self) { static_cast<Loan*>(self->context)->end(); };
  loan->versioned.version = {};
  loan->chunk = share.take();
  return loan.release();
}

void Loan::end() noexcept {
  Share::end(chunk);
  delete this;
}

Tensor take_over(const dlpack::Tensor& from, Device host, void (*drop)(void* managed) noexcept, void* managed,
                 bool read_only) {
  const Device named = from_dlpack(from.device);
  const Device device = named.kind == DeviceKind::cpu ? host : named;
  if (from.ndim < 0 || from.ndim > kMaxDims)
    throw ShapeError("from_dlpack: at most " + std::to_string(kMaxDims) + " dimensions, got " +
                     std::to_string(from.ndim));
  Tensor x;
  x.dtype = from_dlpack(from.dtype);
  x.ndim = from.ndim;
  std::copy_n(from.shape, x.ndim, x.shape);
  x.size = checked_size(x.dims(), x.itemsize());
  if (from.strides)
    std::copy_n(from.strides, x.ndim, x.strides);
  else
    row_major(x.dims(), x.strides);
  if (x.size) x.data = static_cast<char*>(from.data) + from.byte_offset;
  adopt(x, device, drop, managed, read_only, "from_dlpack");
  if (DeviceBackend* const backend = hidden_memory_of(device))
    note_foreign_write(*x.chunk, backend->stream_number(device.index, QueueKind::compute));
  return x;
}

}  // namespace weft
