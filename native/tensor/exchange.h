// exchange.h: the same memory in other libraries: what leaves and what comes in, without copies.
//
// What leaves counts in Chunk::shares until the other side lets go, on whatever thread; what comes in counts
// as long as it lives. See chunk.h for what that means to operations.
#pragma once

#include "tensor/dlpack.h"
#include "tensor/operations.h"

namespace weft {

// Python's.
struct BufferError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One use of an array's memory by another library. It counts before the elements are waited for, so that an
// operation that another thread pushes meanwhile is waited for by that thread.
class Share {
 public:
  explicit Share(const Tensor& x) noexcept;
  Share(const Share&) = delete;
  ~Share() {
    if (chunk_) end(chunk_);
  }
  // The other library's now, which calls end.
  Chunk* take() noexcept { return std::exchange(chunk_, nullptr); }
  static void end(Chunk* chunk) noexcept;

 private:
  Chunk* chunk_;
};

// Never null, which NumPy takes for a request to allocate.
char* address_of(const Tensor& x) noexcept;
// Sizes, and strides in bytes.
void put_geometry(const Tensor& x, int64_t* shape, int64_t* strides) noexcept;

// x, which has all but its memory, over memory of another library's that is the owner's until `drop`. Raises
// BufferError, "function: ...", unless it is aligned to its elements; then the owner is not dropped.
void adopt(Tensor& x, Device device, void (*drop)(void* owner) noexcept, void* owner, bool read_only,
           const char* function);

// The type of a format of the buffer protocol (Python's struct), null: bytes. Raises DTypeError.
DType dtype_of_format(const char* format, size_t itemsize);

// DLPack.

dlpack::DType to_dlpack(DType dtype) noexcept;
DType from_dlpack(dlpack::DType dtype);  // raises DTypeError

// Who reads a lent array first: the host, or a stream of the array's device, which then waits in the host's
// place; null: it waits for nothing.
struct Reader {
  bool is_host = true;
  void* stream = nullptr;
};

// An array that another library may use until it ends the loan, by one of the two managed forms or by `end`.
struct Loan {
  dlpack::ManagedVersioned versioned;
  dlpack::Managed managed;
  int64_t shape[kMaxDims], strides[kMaxDims];
  Chunk* chunk;

  // Waits as lend does.
  static Loan* make(const Tensor& x, bool copied, const Reader& reader = {});
  void end() noexcept;
};
// The array as one that is borrowed, for as long as x is there. Has the reader wait until the elements can be
// read, and where the other library may write, until nothing reads them.
dlpack::Tensor lend(Tensor& x, const Reader& reader = {});
// DLPack's name of a device, and back. Raise BufferError for a kind, DeviceError for a type that has none.
dlpack::Device to_dlpack(Device device);
Device from_dlpack(dlpack::Device device);

// A managed array of another library as ours; `drop(managed)` gives it back. host: which device the host's
// memory is on. What is on a GPU is ready for what is behind the device's stream for computing. Raises
// DeviceError, ShapeError, DTypeError or BufferError; then it is not given back.
Tensor take_over(const dlpack::Tensor& from, Device host, void (*drop)(void* managed) noexcept, void* managed,
                 bool read_only);

}  // namespace weft
