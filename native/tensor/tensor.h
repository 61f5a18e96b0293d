// tensor.h: an array: a strided view of a chunk of memory. All of it is known on the host at once; the
// elements may still be on their way (operations.h waits for them).
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "storage/chunk.h"
#include "tensor/kernels.h"

namespace weft {

using Dims = std::span<const int64_t>;

// Sizes or strides that are kept.
struct Shape {
  int64_t sizes[kMaxDims];
  int ndim = 0;
  Shape() = default;
  explicit Shape(Dims dims) noexcept : ndim(static_cast<int>(dims.size())) {
    std::copy_n(dims.data(), dims.size(), sizes);
  }
  operator Dims() const noexcept { return {sizes, static_cast<size_t>(ndim)}; }
};

struct Tensor {
  Ref<Chunk> chunk;
  char* data = nullptr;  // of the element with index 0 in every dimension
  int64_t size = 0;      // elements
  DType dtype = DType::float32;
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];  // in elements

  Tensor() = default;
  Tensor(const Tensor& o) : chunk(o.chunk), data(o.data), size(o.size), dtype(o.dtype), ndim(o.ndim) {
    copy_dims(o);
  }
  Tensor(Tensor&& o) noexcept
      : chunk(std::move(o.chunk)), data(o.data), size(o.size), dtype(o.dtype), ndim(o.ndim) {
    copy_dims(o);
  }
  Tensor& operator=(Tensor o) noexcept {
    chunk = std::move(o.chunk);
    data = o.data;
    size = o.size;
    dtype = o.dtype;
    ndim = o.ndim;
    copy_dims(o);
    return *this;
  }

  // Uninitialised, row-major. Raises ShapeError for a negative or absurd shape, OutOfMemory.
  static Tensor empty(Dims shape, DType dtype, Device device);
  // The same for a shape that a tensor has already.
  static Tensor empty_like(const Tensor& like, DType dtype, Device device);
  // The same memory seen otherwise.
  Tensor as_strided(char* data, Dims shape, Dims strides) const;
  // The same from `offset` elements behind its first one on. Raises ValueError unless that is in its
  // memory.
  Tensor window(int64_t offset, Dims shape, Dims strides) const;

  View view() const noexcept { return {data, dtype, ndim, shape, strides}; }
  Dims dims() const noexcept { return {shape, static_cast<size_t>(ndim)}; }
  Dims steps() const noexcept { return {strides, static_cast<size_t>(ndim)}; }
  Device device() const noexcept { return chunk->device; }
  size_t itemsize() const noexcept { return size_of(dtype); }
  bool contiguous() const noexcept;
  // Its elements are side by side, each once, in any order of the dimensions.
  bool dense() const noexcept;
  // Its elements are all of the chunk's memory, each once: writing it needs nothing of what was there.
  bool covers_chunk() const noexcept;

 private:
  void copy_dims(const Tensor& o) noexcept {
    std::copy_n(o.shape, ndim, shape);
    std::copy_n(o.strides, ndim, strides);
  }
};

// f32[2,3]@cpu:0
std::string describe(const Tensor& x);
// (2, 3)
std::string describe(Dims shape);

// Product of the sizes. Raises ShapeError if one is negative or the bytes would not fit in 63 bits.
int64_t checked_size(Dims shape, size_t itemsize);
void row_major(Dims shape, int64_t* strides) noexcept;

// Views; each raises ShapeError or IndexError with the operand in it.
Tensor permute(const Tensor& x, std::span<const int> axes);
Tensor transpose_last(const Tensor& x);
Tensor reversed(const Tensor& x);  // the dimensions, not the elements
// The diagonal of the last two dimensions, k above the main one, as the last dimension. Raises ShapeError.
Tensor diagonal(const Tensor& x, int64_t k);
Tensor broadcast_to(const Tensor& x, Dims shape);
// False if the elements cannot be seen in this shape without a copy. One size may be -1.
bool reshape_view(const Tensor& x, Dims shape, Tensor& result);
// `shape` with its -1 replaced.
void resolve_shape(const Tensor& x, Dims shape, int64_t* resolved);

// One item of a basic index.
struct IndexItem {
  enum class Kind : uint8_t { integer, slice, newaxis, ellipsis } kind;
  int64_t start = 0, stop = 0,
          step = 1;  // of a slice, as for Python's slice.indices; start: the integer
  bool has_start = false, has_stop = false;
};
Tensor index(const Tensor& x, std::span<const IndexItem> items);

}  // namespace weft
