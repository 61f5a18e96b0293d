// blas.h: matrices of any strides as BLAS takes them.
#pragma once

#include "kernels/matrices.h"

namespace weft::blas {

// A matrix as BLAS takes it: rows whose elements are side by side, or columns; of others a copy in rows.
template <class T>
class Operand {
 public:
  explicit Operand(Matrix x) : data_(reinterpret_cast<T*>(x.data)) {
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    const auto is_side_by_side = [](int64_t count, int64_t step) { return count == 1 || step == kItem; };
    // A row, or a column, has no neighbour: any distance to it would do.
    const auto distance = [](int64_t count, int64_t step, int64_t length) {
      return count == 1 ? length * kItem : step;
    };
    const int64_t row_step = distance(x.rows, x.row_step, x.columns),
                  column_step = distance(x.columns, x.column_step, x.rows);
    const auto fits = [](int64_t step, int64_t length) {
      return step >= length * kItem && step % kItem == 0;
    };
    if (is_side_by_side(x.columns, x.column_step) && fits(row_step, x.columns)) {
      step_ = row_step / kItem;
    } else if (is_side_by_side(x.rows, x.row_step) && fits(column_step, x.rows)) {
      step_ = column_step / kItem;
      is_transposed_ = true;
    } else {
      copy_.resize(static_cast<size_t>(x.rows * x.columns));
      x.read(copy_.data(), x.columns);
      data_ = copy_.data();
      step_ = x.columns;
      is_copy_ = true;
    }
  }
  bool is_copy() const { return is_copy_; }
  bool is_transposed() const { return is_transposed_; }
  T* data() const { return data_; }
  int64_t step() const { return step_; }

 private:
  std::vector<T> copy_;
  T* data_;
  int64_t step_ = 0;
  bool is_transposed_ = false, is_copy_ = false;
};

}  // namespace weft::blas
