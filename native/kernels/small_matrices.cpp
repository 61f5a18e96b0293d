// small_matrices.cpp: reads as many matrices as a vector has lanes, computes, writes them back. Lanes beyond
// the last matrix repeat it, so that they cause no failures of their own.
#include "kernels/small_matrices.h"

#include <memory>
#include <new>

#define WEFT_EACH_LEVEL "kernels/small_matrices.inc"
#include "kernels/each_level.h"

namespace weft::small {
namespace {

template <class T>
struct Level;
#define WEFT_LEVEL_OF(type)                                                                       \
  template <>                                                                                     \
  struct Level<type> {                                                                            \
    int width = WEFT_AT_LEVEL(of_##type::width)();                                                \
    decltype(&baseline::of_##type::cholesky) cholesky = WEFT_AT_LEVEL(of_##type::cholesky);       \
    decltype(&baseline::of_##type::eliminate) eliminate = WEFT_AT_LEVEL(of_##type::eliminate);    \
    decltype(&baseline::of_##type::substitute) substitute = WEFT_AT_LEVEL(of_##type::substitute); \
  };
WEFT_LEVEL_OF(float)
WEFT_LEVEL_OF(double)
#undef WEFT_LEVEL_OF

constexpr int kMostLanes = 16;

// Matrices [n, columns], one in each lane, in memory that begins at a line of the cache.
template <class T>
class Lanes {
 public:
  Lanes(int64_t rows, int64_t columns, int width)
      : columns_(columns),
        width_(width),
        data_(static_cast<T*>(
            ::operator new(static_cast<size_t>(rows * columns * width) * sizeof(T), std::align_val_t{64}))) {}
  T* data() const { return data_.get(); }

  // The columns from `first` on.
  void read(const Matrix& from, int lane, int64_t first = 0) const {
    for (int64_t i = 0; i < from.rows; ++i) {
      T* const row = data() + (i * columns_ + first) * width_ + lane;
      for (int64_t j = 0; j < from.columns; ++j) row[j * width_] = from.at<T>(i, j);
    }
  }
  void write(const Matrix& to, int lane, int64_t first = 0) const {
    for (int64_t i = 0; i < to.rows; ++i) {
      const T* const row = data() + (i * columns_ + first) * width_ + lane;
      for (int64_t j = 0; j < to.columns; ++j) to.set(i, j, row[j * width_]);
    }
  }
  T& at(int64_t i, int64_t j, int lane) const { return data()[(i * columns_ + j) * width_ + lane]; }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  const int64_t columns_;
  const int width_;
  const std::unique_ptr<T, Free> data_;
};

// Calls body(first, matrices) for groups of at most `width` matrices.
template <class F>
void for_groups(int64_t begin, int64_t end, int width, F&& body) {
  for (; begin < end; begin += width) body(begin, static_cast<int>(std::min<int64_t>(width, end - begin)));
}

// The matrix of a lane.
int64_t matrix_of(int64_t first, int count, int lane) { return first + std::min(lane, count - 1); }

void report(const int32_t* place, int64_t first, int count, Failure& failure) {
  for (int lane = 0; lane < count; ++lane)
    if (place[lane]) failure.report(first + lane, place[lane]);
}

}  // namespace

template <class T>
void cholesky(const Stack& x, const Stack& y, bool upper, int64_t begin, int64_t end, Failure& failure) {
  const Level<T> level;
  const auto n = static_cast<int>(x.rows());
  const Lanes<T> lanes(n, n, level.width);
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    for (int lane = 0; lane < level.width; ++lane) {
      const Matrix from = x.at(matrix_of(first, count, lane));
      for (int i = 0; i < n; ++i)
        for (int j = 0; j <= i; ++j) lanes.at(i, j, lane) = from.hermitian<T>(i, j);
    }
    int32_t place[kMostLanes] = {};
    level.cholesky(lanes.data(), n, place);
    report(place, first, count, failure);
    for (int lane = 0; lane < count; ++lane) {
      const Matrix to = upper ? y.at(first + lane).transposed() : y.at(first + lane);
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j <= i; ++j) to.set(i, j, lanes.at(i, j, lane));
        for (int j = i + 1; j < n; ++j) to.set(i, j, T{});
      }
    }
  });
}

template <class T>
void lu_factor(const Stack& x, const Stack& lu, const Stack& pivots, int64_t begin, int64_t end) {
  const Level<T> level;
  const auto n = static_cast<int>(x.rows());
  const Lanes<T> lanes(n, n, level.width);
  int32_t rows[kLargest * kMostLanes];
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    for (int lane = 0; lane < level.width; ++lane) lanes.read(x.at(matrix_of(first, count, lane)), lane);
    int32_t place[kMostLanes] = {};
    level.eliminate(lanes.data(), n, n, rows, place);
    for (int lane = 0; lane < count; ++lane) {
      lanes.write(lu.at(first + lane), lane);
      const Matrix to = pivots.at(first + lane);
      for (int k = 0; k < n; ++k) to.set(k, 0, rows[k * level.width + lane]);
    }
  });
}

template <class T>
void solve(const Stack& a, const Stack* b, const Stack& x, int64_t begin, int64_t end, Failure& failure) {
  const Level<T> level;
  const auto n = static_cast<int>(a.rows()), k = static_cast<int>(x.columns());
  const Lanes<T> lanes(n, n + k, level.width);
  int32_t rows[kLargest * kMostLanes];
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    for (int lane = 0; lane < level.width; ++lane) {
      lanes.read(a.at(matrix_of(first, count, lane)), lane);
      if (b) {
        lanes.read(b->at(matrix_of(first, count, lane)), lane, n);
      } else {
        for (int i = 0; i < n; ++i)
          for (int j = 0; j < n; ++j) lanes.at(i, n + j, lane) = static_cast<T>(i == j);
      }
    }
    int32_t place[kMostLanes] = {};
    level.eliminate(lanes.data(), n, n + k, rows, place);
    report(place, first, count, failure);
    level.substitute(lanes.data(), n + k, lanes.data(), n + k, n, k, true, false);
    for (int lane = 0; lane < count; ++lane) lanes.write(x.at(first + lane), lane, n);
  });
}

template <class T>
void solve_triangular(const Stack& a, const Stack& b, const Stack& x, bool upper, bool unit, int64_t begin,
                      int64_t end) {
  const Level<T> level;
  const auto n = static_cast<int>(a.rows()), k = static_cast<int>(x.columns());
  const Lanes<T> triangles(n, n, level.width), lanes(n, k, level.width);
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    for (int lane = 0; lane < level.width; ++lane) {
      triangles.read(a.at(matrix_of(first, count, lane)), lane);
      lanes.read(b.at(matrix_of(first, count, lane)), lane);
    }
    level.substitute(triangles.data(), n, lanes.data(), k, n, k, upper, unit);
    for (int lane = 0; lane < count; ++lane) lanes.write(x.at(first + lane), lane);
  });
}

#define WEFT_INSTANTIATE(T)                                                                     \
  template void cholesky<T>(const Stack&, const Stack&, bool, int64_t, int64_t, Failure&);      \
  template void lu_factor<T>(const Stack&, const Stack&, const Stack&, int64_t, int64_t);       \
  template void solve<T>(const Stack&, const Stack*, const Stack&, int64_t, int64_t, Failure&); \
  template void solve_triangular<T>(const Stack&, const Stack&, const Stack&, bool, bool, int64_t, int64_t);
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(double)
#undef WEFT_INSTANTIATE

}  // namespace weft::small
