// matrices.h: stacks of matrices in views of any strides, and how kernels go through them.
//
// A kernel of linear algebra reads each matrix into memory of its own, row by row, computes there, and writes
// the result back, so that operands may have any strides and leading axes may be broadcast.
#pragma once

#include <algorithm>
#include <atomic>
#include <complex>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/error.h"
#include "engine/team.h"
#include "program/kernel.h"
#include "tensor/convert.h"

namespace weft {

// One matrix of a stack; steps in bytes.
struct Matrix {
  char* data;
  int64_t rows, columns, row_step, column_step;

  template <class T>
  T at(int64_t i, int64_t j) const {
    T value;
    std::memcpy(&value, data + i * row_step + j * column_step, sizeof value);
    return value;
  }
  template <class T>
  void set(int64_t i, int64_t j, T value) const {
    std::memcpy(data + i * row_step + j * column_step, &value, sizeof value);
  }
  Matrix transposed() const { return {data, columns, rows, column_step, row_step}; }

  // to[i * step + j] = element (i, j).
  template <class T>
  void read(T* to, int64_t step) const {
    for (int64_t i = 0; i < rows; ++i)
      if (column_step == sizeof(T) && columns > 0)
        std::memcpy(to + i * step, data + i * row_step, static_cast<size_t>(columns) * sizeof(T));
      else
        for (int64_t j = 0; j < columns; ++j) to[i * step + j] = at<T>(i, j);
  }
  // Element (i, j) of the Hermitian part (x + x^H) / 2.
  template <class T>
  T hermitian(int64_t i, int64_t j) const {
    if constexpr (std::is_floating_point_v<T>)
      return at<T>(i, j) / 2 + at<T>(j, i) / 2;
    else
      return at<T>(i, j) / T(2) + std::conj(at<T>(j, i)) / T(2);
  }
  // Its lower triangle, with zeros above.
  template <class T>
  void read_hermitian(T* to) const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j <= i; ++j) to[i * rows + j] = hermitian<T>(i, j);
      std::fill_n(to + i * rows + i + 1, rows - i - 1, T{});
    }
  }
  template <class T>
  void write(const T* from, int64_t step) const {
    for (int64_t i = 0; i < rows; ++i)
      if (column_step == sizeof(T) && columns > 0)
        std::memcpy(data + i * row_step, from + i * step, static_cast<size_t>(columns) * sizeof(T));
      else
        for (int64_t j = 0; j < columns; ++j) set(i, j, from[i * step + j]);
  }
};

// The matrices that the last axes of a view hold, numbered in row-major order of `lead`, leading sizes that
// the view's own broadcast to. own_axes: 2, or 1 for vectors, each of which is a column.
class Stack {
 public:
  Stack(const View& view, int own_axes, std::span<const int64_t> lead) : lead_(lead) {
    const auto size = static_cast<int64_t>(size_of(view.dtype));
    const int own = view.ndim - own_axes;
    const auto step = [&](int d) { return view.strides[d] * size; };
    first_ = own_axes == 2 ? Matrix{view.data, view.shape[own], view.shape[own + 1], step(own), step(own + 1)}
                           : Matrix{view.data, view.shape[own], 1, step(own), size};
    const int missing = static_cast<int>(lead.size()) - own;
    for (int d = 0; d < own; ++d) moves_[missing + d] = view.shape[d] == 1 ? 0 : step(d);
  }

  Matrix at(int64_t number) const {
    Matrix matrix = first_;
    for (size_t d = lead_.size(); d-- > 0;) {
      matrix.data += number % lead_[d] * moves_[d];
      number /= lead_[d];
    }
    return matrix;
  }
  int64_t rows() const { return first_.rows; }
  int64_t columns() const { return first_.columns; }

 private:
  std::span<const int64_t> lead_;
  Matrix first_;
  int64_t moves_[kMaxDims] = {};
};

inline std::span<const int64_t> lead_of(const View& view, int own_axes) {
  return {view.shape, static_cast<size_t>(view.ndim - own_axes)};
}

inline int64_t product_of(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Calls body(begin, end) for ranges of `count` matrices, by the team unless one matrix is so much work that
// the library's own threads share it. work: operations for one of them.
template <class F>
void for_matrices(int64_t count, int64_t work, F&& body) {
  constexpr int64_t kPiece = 32 << 10, kLarge = 4 << 20;
  if (count == 1 || work > kLarge) return body(int64_t{0}, count);
  parallel_for(count, std::max<int64_t>(1, kPiece / std::max<int64_t>(work, 1)), body);
}

// The first matrix of a stack for which there is no result, found by several threads.
class Failure {
 public:
  void report(int64_t matrix, int64_t place) {
    const std::scoped_lock lock(mutex_);
    if (matrix_ >= 0 && matrix_ <= matrix) return;
    matrix_ = matrix;
    place_ = place;
  }
  bool happened() const { return matrix_ >= 0; }
  int64_t place() const { return place_; }
  // "x", or "matrix 3 of the 5 of x".
  std::string which(const char* operand, int64_t count) const {
    if (count == 1) return operand;
    return "matrix " + std::to_string(matrix_) + " of the " + std::to_string(count) + " of " + operand;
  }

 private:
  std::mutex mutex_;
  int64_t matrix_ = -1, place_ = 0;
};

// Calls f(std::type_identity<T>) with the number type of a float32, float64, complex64 or complex128 view.
template <class F>
void with_number(const std::string& function, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32:
      return f(std::type_identity<float>{});
    case DType::float64:
      return f(std::type_identity<double>{});
    case DType::complex64:
      return f(std::type_identity<std::complex<float>>{});
    case DType::complex128:
      return f(std::type_identity<std::complex<double>>{});
    default:
      throw DTypeError(function + ": takes float32, float64, complex64 and complex128, got " +
                       name_of(dtype));
  }
}

}  // namespace weft
