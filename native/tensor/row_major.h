// row_major.h: writing consecutive elements, in row-major order, into a view of any strides. For what makes
// its values in that order, like sequences and random numbers. Holds a pointer to the view's memory, owns
// nothing; several threads may write different ranges through one object.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/convert.h"
#include "tensor/kernels.h"

namespace weft {

class RowMajor {
 public:
  explicit RowMajor(const View& view) : data_(view.data), dtype_(view.dtype) {
    for (int d = 0; d < view.ndim; ++d) {
      const int64_t size = view.shape[d], stride = view.strides[d];
      count_ *= size;
      if (size <= 1) continue;
      repeats_ |= stride == 0;
      const int last = ndim_ - 1;
      if (sizes_[last] == 1 || strides_[last] == stride * size) {
        sizes_[last] *= size;
        strides_[last] = stride;
      } else {
        sizes_[ndim_] = size;
        strides_[ndim_++] = stride;
      }
    }
  }

  int64_t count() const { return count_; }
  // A stride is zero: elements are written several times, and the last one has to come last.
  bool repeats() const { return repeats_; }

  // Elements [begin, begin + count) become items[0 .. count), converted from `type`.
  void write(int64_t begin, int64_t count, const void* items, DType type) const {
    const RowFunctions functions = row_functions(dtype_, type);
    const auto* from = static_cast<const char*>(items);
    const int64_t row = sizes_[ndim_ - 1], stride = strides_[ndim_ - 1];
    while (count > 0) {
      const int64_t now = std::min(count, row - begin % row);
      (stride == 1 ? functions.contiguous : functions.strided)(address(begin), stride, from, 1, now);
      from += now * static_cast<int64_t>(size_of(type));
      begin += now;
      count -= now;
    }
  }

 private:
  char* address(int64_t index) const {
    int64_t offset = 0;
    for (int d = ndim_ - 1; d >= 0; --d) {
      offset += index % sizes_[d] * strides_[d];
      index /= sizes_[d];
    }
    return data_ + offset * static_cast<int64_t>(size_of(dtype_));
  }

  char* data_;
  DType dtype_;
  bool repeats_ = false;
  int ndim_ = 1;
  int64_t count_ = 1;
  int64_t sizes_[kMaxDims + 1] = {1}, strides_[kMaxDims + 1] = {1};
};

}  // namespace weft
