// operations.h: the kernels of kernels.h as operations on the engine, and waiting for elements.
//
// Each pushes and returns at once; small ones run here if nothing they need is busy. Callers hold the tensors
// only until the call returns: the operation holds the chunks.
#pragma once

#include "tensor/tensor.h"

namespace weft {

// Where operations on so many bytes run (docs/design/threads.md). Up to kCheapBytes on the pushing thread,
// which costs less than handing them to a worker; while their device is idle, loops up to kBriefBytes there,
// too, and other kernels, whose time does not follow from their bytes, up to kBriefBytesOfKernels; from
// kWideBytes on by the team.
constexpr int64_t kCheapBytes = 32 << 10;
constexpr int64_t kWideBytes = 1 << 20;
constexpr int64_t kBriefBytes = 16 << 20;
constexpr int64_t kBriefBytesOfKernels = 128 << 10;

// to[...] = from, converted and broadcast to `to`'s shape; they may share memory and overlap. Raises
// ShapeError if `from` does not fit, ValueError if `to` is read-only or means one element by several indices.
void push_copy(const Tensor& to, const Tensor& from);
void push_fill(const Tensor& to, Scalar value);
void push_range(const Tensor& to, Scalar start, Scalar step);

// Random elements; the positions are taken now, so that they do not depend on when and where the operation
// runs.
void push_uniform(const Tensor& to, double low, double high);
void push_normal(const Tensor& to, double mean, double std);
void push_integers(const Tensor& to, int64_t low, int64_t high);
// The slices along `from`'s first dimension in random order. Equal shapes and types; `from` may be a counted
// range.
void push_permutation(const Tensor& to, const Tensor& from);
// The same, here and now, from blocks_for(bits, uint64, to.shape[0]).
struct Reservation;
void permute_rows(const View& to, const View& from, const Reservation& reservation);

// The same elements in fresh, row-major memory; on `device`, as `dtype`.
Tensor copy_of(const Tensor& x, DType dtype, Device device);

// What is to be copied to another device: x, or its elements in row-major order on its own device, if one of
// the two has loops. Nothing is recorded.
Tensor ordered_for_copy(const Tensor& x, Device to);

// Raises ValueError, with `what` at its beginning, if x is read-only or several of its indices mean one
// element.
void check_writable(const Tensor& x, const char* what);
// Whether code outside of the engine may be given the elements for writing.
bool writable(const Tensor& x) noexcept;
// Waits until the elements can be read; `for_writing`: until no operation reads or writes them. Raises what
// the operation that should have produced them raised.
void wait_for(const Tensor& x, bool for_writing = false);
// The same without waiting for what is on streams of devices.
void wait_until_enqueued(const Tensor& x, bool for_writing);
// As wait_for, where the elements will not be read; a recorder does not record it.
void wait_unobserved(const Tensor& x, bool for_writing = false);

// While one of these lives, this thread does not wait for its arrays: they are a running function's own.
class NoWaitScope {
 public:
  explicit NoWaitScope(std::span<const Tensor> arrays);
  ~NoWaitScope();
  NoWaitScope(const NoWaitScope&) = delete;

 private:
  const std::span<const Tensor> before_;
};

// After an operation on these has been pushed: see Chunk::shares.
void settle_shared(std::initializer_list<Chunk*> chunks);

}  // namespace weft
