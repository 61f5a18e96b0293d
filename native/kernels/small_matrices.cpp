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
    decltype(&baseline::of_##type::pack) pack = WEFT_AT_LEVEL(of_##type::pack);                   \
    decltype(&baseline::of_##type::unpack) unpack = WEFT_AT_LEVEL(of_##type::unpack);             \
    decltype(&baseline::of_##type::cholesky) cholesky = WEFT_AT_LEVEL(of_##type::cholesky);       \
    decltype(&baseline::of_##type::eliminate) eliminate = WEFT_AT_LEVEL(of_##type::eliminate);    \
    decltype(&baseline::of_##type::substitute) substitute = WEFT_AT_LEVEL(of_##type::substitute); \
  };
WEFT_LEVEL_OF(float)
WEFT_LEVEL_OF(double)
#undef WEFT_LEVEL_OF

constexpr int kMostLanes = 16;

// Matrices [rows, columns], one in each lane, in memory that begins at a line of the cache. A group is those
// of a stack from number `first` on, `count` of them.
template <class T>
class Lanes {
 public:
  Lanes(const Level<T>& level, int64_t rows, int64_t columns)
      : level_(level),
        columns_(columns),
        spare_(static_cast<size_t>(rows * columns)),
        data_(static_cast<T*>(::operator new(static_cast<size_t>(rows * columns * level.width) * sizeof(T),
                                             std::align_val_t{64}))) {}
  T* data() const { return data_.get(); }
  T& at(int64_t i, int64_t j, int lane) const { return data()[(i * columns_ + j) * level_.width + lane]; }

  // A group's matrices become the columns from `column` on; lanes without a matrix repeat the last one.
  void read(const Stack& stack, int64_t first, int count, int column = 0) const {
    const T* rows[kMostLanes];
    for (int lane = 0; lane < level_.width; ++lane) {
      const Matrix from = stack.at(first + std::min(lane, count - 1));
      rows[lane] = reinterpret_cast<const T*>(from.data);
      if (is_flat(from)) continue;
      for (int64_t i = 0; i < from.rows; ++i)
        for (int64_t j = 0; j < from.columns; ++j) at(i, column + j, lane) = from.at<T>(i, j);
    }
    if (is_flat(stack.at(first)))
      level_.pack(rows, static_cast<int>(stack.rows()), static_cast<int>(stack.columns()), data(),
                  static_cast<int>(columns_), column);
  }
  void write(const Stack& stack, int64_t first, int count, int column = 0) const {
    T* rows[kMostLanes];
    std::fill_n(rows, kMostLanes, spare_.data());
    for (int lane = 0; lane < count; ++lane) {
      const Matrix to = stack.at(first + lane);
      rows[lane] = reinterpret_cast<T*>(to.data);
      if (is_flat(to)) continue;
      for (int64_t i = 0; i < to.rows; ++i)
        for (int64_t j = 0; j < to.columns; ++j) to.set(i, j, at(i, column + j, lane));
    }
    if (is_flat(stack.at(first)))
      level_.unpack(data(), static_cast<int>(columns_), column, static_cast<int>(stack.rows()),
                    static_cast<int>(stack.columns()), rows);
  }

 private:
  // Whether its elements lie one behind the other; all of a stack's do, or none.
  static bool is_flat(const Matrix& x) {
    return x.column_step == sizeof(T) && x.row_step == x.columns * static_cast<int64_t>(sizeof(T)) &&
           reinterpret_cast<uintptr_t>(x.data) % sizeof(T) == 0;
  }
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  const Level<T>& level_;
  const int64_t columns_;
  mutable std::vector<T> spare_;  // what lanes without a matrix are written to
  const std::unique_ptr<T, Free> data_;
};

// Calls body(first, count) for groups of at most `width` matrices.
template <class F>
void for_groups(int64_t begin, int64_t end, int width, F&& body) {
  for (; begin < end; begin += width) body(begin, static_cast<int>(std::min<int64_t>(width, end - begin)));
}

void report(const int32_t* place, int64_t first, int count, Failure& failure) {
  for (int lane = 0; lane < count; ++lane)
    if (place[lane]) failure.report(first + lane, place[lane]);
}

}  // namespace

template <class T>
void cholesky(const Stack& x, const Stack& y, bool upper, int64_t begin, int64_t end, Failure& failure) {
  const Level<T> level;
  const auto n = static_cast<int>(x.rows());
  const Lanes<T> lanes(level, n, n);
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    lanes.read(x, first, count);
    int32_t place[kMostLanes] = {};
    level.cholesky(lanes.data(), n, upper, place);
    report(place, first, count, failure);
    lanes.write(y, first, count);
  });
}

template <class T>
void lu_factor(const Stack& x, const Stack& lu, const Stack& pivots, int64_t begin, int64_t end) {
  const Level<T> level;
  const auto n = static_cast<int>(x.rows());
  const Lanes<T> lanes(level, n, n);
  int32_t rows[kLargest * kMostLanes];
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    lanes.read(x, first, count);
    int32_t place[kMostLanes] = {};
    level.eliminate(lanes.data(), n, n, true, rows, place);
    lanes.write(lu, first, count);
    for (int lane = 0; lane < count; ++lane) {
      const Matrix to = pivots.at(first + lane);
      for (int k = 0; k < n; ++k) to.set(k, 0, rows[k * level.width + lane]);
    }
  });
}

template <class T>
void det(const Stack& x, const Stack& y, int64_t begin, int64_t end) {
  const Level<T> level;
  const auto n = static_cast<int>(x.rows());
  const Lanes<T> lanes(level, n, n);
  int32_t rows[kLargest * kMostLanes];
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    lanes.read(x, first, count);
    int32_t place[kMostLanes] = {};
    level.eliminate(lanes.data(), n, n, false, rows, place);
    for (int lane = 0; lane < count; ++lane) {
      T product{1};
      for (int k = 0; k < n; ++k) {
        const T pivot = lanes.at(k, k, lane);
        product *= rows[k * level.width + lane] == k ? pivot : -pivot;
      }
      y.at(first + lane).set(0, 0, product);
    }
  });
}

template <class T>
void solve(const Stack& a, const Stack& b, const Stack& x, int64_t begin, int64_t end, Failure& failure) {
  const Level<T> level;
  const auto n = static_cast<int>(a.rows()), k = static_cast<int>(x.columns());
  const Lanes<T> lanes(level, n, n + k);
  int32_t rows[kLargest * kMostLanes];
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    lanes.read(a, first, count);
    lanes.read(b, first, count, n);
    int32_t place[kMostLanes] = {}, zero[kMostLanes] = {};
    level.eliminate(lanes.data(), n, n + k, false, rows, place);
    report(place, first, count, failure);
    level.substitute(lanes.data(), n + k, lanes.data(), n + k, n, k, true, false, zero);
    lanes.write(x, first, count, n);
  });
}

template <class T>
void inverse(const Stack& x, const Stack& y, int64_t begin, int64_t end, Failure& failure) {
  const Level<T> level;
  const auto n = static_cast<int>(x.rows());
  const Lanes<T> factors(level, n, n), lanes(level, n, n);
  int32_t rows[kLargest * kMostLanes];
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    factors.read(x, first, count);
    int32_t place[kMostLanes] = {}, zero[kMostLanes] = {};
    level.eliminate(factors.data(), n, n, true, rows, place);
    report(place, first, count, failure);
    std::fill_n(lanes.data(), n * n * level.width, T{});
    for (int lane = 0; lane < level.width; ++lane) {  // the rows of the identity in the order of the pivots
      int32_t order[kLargest];
      for (int k = 0; k < n; ++k) order[k] = k;
      for (int k = 0; k < n; ++k) std::swap(order[k], order[rows[k * level.width + lane]]);
      for (int k = 0; k < n; ++k) lanes.at(k, order[k], lane) = 1;
    }
    level.substitute(factors.data(), n, lanes.data(), n, n, n, false, true, zero);
    level.substitute(factors.data(), n, lanes.data(), n, n, n, true, false, zero);
    lanes.write(y, first, count);
  });
}

template <class T>
void solve_triangular(const Stack& a, const Stack& b, const Stack& x, bool upper, bool unit, int64_t begin,
                      int64_t end, Failure& failure) {
  const Level<T> level;
  const auto n = static_cast<int>(a.rows()), k = static_cast<int>(x.columns());
  const Lanes<T> triangles(level, n, n), lanes(level, n, k);
  for_groups(begin, end, level.width, [&](int64_t first, int count) {
    triangles.read(a, first, count);
    lanes.read(b, first, count);
    int32_t place[kMostLanes] = {};
    level.substitute(triangles.data(), n, lanes.data(), k, n, k, upper, unit, place);
    report(place, first, count, failure);
    lanes.write(x, first, count);
  });
}

#define WEFT_INSTANTIATE(T)                                                                                 \
  template void cholesky<T>(const Stack&, const Stack&, bool, int64_t, int64_t, Failure&);                  \
  template void lu_factor<T>(const Stack&, const Stack&, const Stack&, int64_t, int64_t);                   \
  template void det<T>(const Stack&, const Stack&, int64_t, int64_t);                                       \
  template void solve<T>(const Stack&, const Stack&, const Stack&, int64_t, int64_t, Failure&);             \
  template void inverse<T>(const Stack&, const Stack&, int64_t, int64_t, Failure&);                         \
  template void solve_triangular<T>(const Stack&, const Stack&, const Stack&, bool, bool, int64_t, int64_t, \
                                    Failure&);
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(double)
#undef WEFT_INSTANTIATE

}  // namespace weft::small
