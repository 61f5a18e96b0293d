// indices.h: index operands: checked, wrapped, and turned into offsets; and the loops around them.
#pragma once

#include <string>
#include <vector>

#include "kernels/rows.h"

namespace weft {

inline constexpr int64_t kIndexChunk = 512;  // indices converted at a time

// Throws IndexError for the first index outside of [-size, size), or of [0, size) unless negative ones count
// from the end.
void check_indices(const View& indices, int64_t size, int axis, const char* function, bool wraps = true);

// `count` indices that have been checked, in [0, size). Their memory may be shared with other code (NumPy,
// another process), which may have changed them since: then some element is meant, not what is outside of the
// array.
inline int64_t wrapped_index(int64_t index, int64_t size) noexcept {
  const int64_t wrapped = index + (index < 0 ? size : 0);
  return static_cast<uint64_t>(wrapped) < static_cast<uint64_t>(size) ? wrapped : 0;
}
// The same times `step`.
void load_indices(const char* from, DType dtype, int64_t from_step, int64_t count, int64_t size, int64_t step,
                  int64_t* to);

// A view with shape and strides of its own, to be changed.
struct OwnView {
  explicit OwnView(const View& of) : data(of.data), dtype(of.dtype), ndim(of.ndim) {
    std::copy_n(of.shape, ndim, shape);
    std::copy_n(of.strides, ndim, strides);
  }
  View view() const { return {data, dtype, ndim, shape, strides}; }

  char* data;
  DType dtype;
  int ndim;
  int64_t shape[kMaxDims], strides[kMaxDims];
};

// Some dimensions of two arrays, neighbours merged where both allow it; strides in bytes.
class Pair {
 public:
  void add(int64_t size, int64_t first, int64_t second) {
    count_ *= size;
    if (size == 1) return;
    if (ndim_ > 0) {
      Dim& last = dims_[ndim_ - 1];
      if (last.first == first * size && last.second == second * size) {
        last = {last.size * size, first, second};
        return;
      }
    }
    dims_[ndim_++] = {size, first, second};
  }
  // Takes the last dimension away: the one for the inner loop.
  struct Dim {
    int64_t size, first, second;
  };
  Dim take_last() {
    if (ndim_ == 0) return {1, 0, 0};
    const Dim last = dims_[--ndim_];
    if (last.size) count_ /= last.size;
    return last;
  }
  int64_t count() const { return count_; }
  std::pair<int64_t, int64_t> at(int64_t index) const {
    int64_t first = 0, second = 0;
    for (int d = ndim_ - 1; d >= 0; --d) {
      const int64_t i = index % dims_[d].size;
      index /= dims_[d].size;
      first += i * dims_[d].first;
      second += i * dims_[d].second;
    }
    return {first, second};
  }

 private:
  int ndim_ = 0;
  int64_t count_ = 1;
  Dim dims_[kMaxDims];
};

// x[..., i0, i1, ..., ...]: some dimensions of an array are indexed, by index arrays of one shape, whose
// dimensions are in the other array (`values`: what is read into, or written from) at `position` among the
// dimensions that are not.
struct Indexed {
  Indexed(const View& x, const View* indices, const std::vector<int>& dims, int position, const View& values);

  // Offsets in bytes for the points of the index shape, row-major. Those of one index array in that order,
  // and is gone through once, are computed where they are needed; others are in `scratch`, as scratch_bytes
  // says. x: what is indexed. writes: it is written meanwhile; then indices of its own type may be its
  // elements.
  static size_t scratch_bytes(const View& x, const View* indices, const std::vector<int>& dims, bool writes);
  void find_offsets(const View& x, const View* indices, const std::vector<int>& dims, char* scratch,
                    bool writes);
  // Of `count` points from `begin` on, at most kIndexChunk; buffer: room for as many.
  const int64_t* offsets(int64_t begin, int64_t count, int64_t* buffer) const;
  // The indices from point `begin` on as they are, of `size` steps of `step` bytes; null: offsets are needed.
  const char* plain(int64_t begin, int64_t& size, int64_t& step) const {
    if (offsets_ || index_type_ != DType::int64) return nullptr;
    size = size_, step = step_;
    return indices_ + begin * static_cast<int64_t>(sizeof(int64_t));
  }
  // The least, and the one after the greatest that an offset can be.
  std::pair<int64_t, int64_t> bounds() const;

  int64_t points;      // of the index shape
  Pair before, after;  // x and values, of the other dimensions
  Pair point_dims;     // offsets (8 bytes each) and values

 private:
  const int64_t* offsets_ = nullptr;  // in scratch memory
  const char* indices_ = nullptr;     // else the one array, of a dimension of `size_` steps of `step_` bytes
  DType index_type_ = DType::int64;
  int64_t size_ = 0, step_ = 0;
};
void check_indexed(const View& x, const View* indices, const std::vector<int>& dims, const char* function);

}  // namespace weft
