// fourier.cpp: Fourier transforms along axes of arrays, of lines of up to kLongest points whose number has no
// prime factor above kLargestPrime. As many lines as a vector has lanes are read, one into each, and
// transformed by Stockham's passes between two buffers; lanes beyond the last line repeat it. Threads share
// the lines.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>
#include <vector>

#include "engine/error.h"
#include "engine/team.h"
#include "kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kLongest = 8192;  // the buffers of 16 lines of floats are 2 MB then
constexpr int kLargestPrime = 31;
constexpr int kMostLanes = 16;

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/fourier.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

template <class T>
struct Level;
#define WEFT_LEVEL_OF(type)                                                                          \
  template <>                                                                                        \
  struct Level<type> {                                                                               \
    int width = WEFT_AT_LEVEL(of_##type::width)();                                                   \
    decltype(&baseline::of_##type::pack) pack = WEFT_AT_LEVEL(of_##type::pack);                      \
    decltype(&baseline::of_##type::unpack) unpack = WEFT_AT_LEVEL(of_##type::unpack);                \
    decltype(&baseline::of_##type::pass) pass = WEFT_AT_LEVEL(of_##type::pass);                      \
    decltype(&baseline::of_##type::to_halves) to_halves = WEFT_AT_LEVEL(of_##type::to_halves);       \
    decltype(&baseline::of_##type::from_halves) from_halves = WEFT_AT_LEVEL(of_##type::from_halves); \
    decltype(&baseline::of_##type::scale) scale = WEFT_AT_LEVEL(of_##type::scale);                   \
  };
WEFT_LEVEL_OF(float)
WEFT_LEVEL_OF(double)
#undef WEFT_LEVEL_OF

// exp(-2 pi i k / n), exact at multiples of a quarter.
template <class T>
void add_root(std::vector<T>& roots, int64_t k, int64_t n) {
  constexpr T kQuarters[4][2] = {{1, 0}, {0, -1}, {-1, 0}, {0, 1}};
  k %= n;
  if (4 * k % n == 0) {
    const T* const quarter = kQuarters[4 * k / n];
    roots.insert(roots.end(), quarter, quarter + 2);
    return;
  }
  const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  roots.push_back(static_cast<T>(std::cos(angle)));
  roots.push_back(static_cast<T>(std::sin(angle)));
}

// The transform of n points.
template <class T>
class Plan {
 public:
  explicit Plan(int64_t n) : n_(n) {
    int64_t left = n;
    // Eights, with fours rather than a pass of two.
    while (left % 8 == 0 && left % 32 != 16) add(8, left /= 8);
    for (const int radix : {4, 2})
      while (left % radix == 0) add(radix, left /= radix);
    for (int radix = 3; left > 1; radix += 2)
      while (left % radix == 0) add(radix, left /= radix);
  }
  int64_t points() const { return n_; }

  // x[n] becomes its transform, in x or y, which is returned; the other one is overwritten.
  T* run(const Level<T>& level, T* x, T* y, bool inverse) const {
    int64_t lines = 1;
    for (const Pass& pass : passes_) {
      level.pass(pass.radix, x, y, pass.points, lines, pass.w.data(), pass.roots.data(), inverse);
      std::swap(x, y);
      lines *= pass.radix;
    }
    return x;
  }

 private:
  struct Pass {
    int radix;
    int64_t points;
    std::vector<T> w, roots;
  };
  void add(int radix, int64_t points) {
    Pass pass{radix, points, {}, {}};
    for (int64_t p = 0; p < points; ++p)
      for (int j = 1; j < radix; ++j) add_root(pass.w, p * j, radix * points);
    for (int k = 0; k < radix; ++k) add_root(pass.roots, k, radix);
    passes_.push_back(std::move(pass));
  }
  const int64_t n_;
  std::vector<Pass> passes_;
};

// The lines of a view along an axis, numbered in row-major order of the others. parts: numbers of an element.
class Lines {
 public:
  Lines(const View& view, int axis, int parts) : view_(view), axis_(axis), parts_(parts) {
    size_ = static_cast<int64_t>(size_of(view.dtype));
    for (int d = 0; d < view.ndim; ++d)
      if (d != axis) count_ *= view.shape[d];
  }
  int64_t count() const { return count_; }
  int64_t length() const { return view_.shape[axis_]; }
  int parts() const { return parts_; }
  int64_t step() const { return view_.strides[axis_] * size_; }  // bytes from element to element
  bool is_flat() const { return length() == 1 || step() == size_; }

  // at[l]: where line first + l begins, for l < count; the others repeat the last one.
  void find(int64_t first, int count, int width, char** at) const {
    int64_t index[kMaxDims];
    char* data = view_.data;
    for (int d = view_.ndim; d-- > 0;) {
      index[d] = d == axis_ ? 0 : first % view_.shape[d];
      if (d != axis_) first /= view_.shape[d];
      data += index[d] * view_.strides[d] * size_;
    }
    at[0] = data;
    for (int l = 1; l < width; ++l) {
      for (int d = view_.ndim; l < count && d-- > 0;) {
        if (d == axis_) continue;
        data += view_.strides[d] * size_;
        if (++index[d] < view_.shape[d]) break;
        data -= index[d] * view_.strides[d] * size_;
        index[d] = 0;
      }
      at[l] = data;
    }
  }

 private:
  const View& view_;
  const int axis_, parts_;
  int64_t size_ = 0, count_ = 1;
};

template <class F>
auto with_real(DType dtype, F&& f) {
  return dtype == DType::float32 || dtype == DType::complex64 ? f(std::type_identity<float>{})
                                                              : f(std::type_identity<double>{});
}

// Buffers of one thread.
template <class T>
struct Buffers {
  T *x, *y, *spare;  // spare: a line, for lanes beyond the last
  static constexpr int64_t numbers(int64_t n, int width) { return 2 * (n + 1) * (2 * width + 1); }
  Buffers(char* memory, int64_t n, int width)
      : x(reinterpret_cast<T*>(memory)), y(x + 2 * (n + 1) * width), spare(y + 2 * (n + 1) * width) {}
};

template <class T>
void read(const Level<T>& level, const Lines& lines, int64_t first, int count, T* x) {
  char* at[kMostLanes];
  const int width = level.width, parts = lines.parts();
  lines.find(first, count, width, at);
  const int64_t n = lines.length(), step = lines.step();
  if (lines.is_flat())
    return level.pack(reinterpret_cast<const T* const*>(at), 1, static_cast<int>(n * parts), x,
                      static_cast<int>(n * parts), 0);
  for (int64_t j = 0; j < n; ++j)
    for (int l = 0; l < width; ++l) {
      T value[2];
      std::memcpy(value, at[l] + j * step, sizeof(T) * static_cast<size_t>(parts));
      for (int part = 0; part < parts; ++part) x[(j * parts + part) * width + l] = value[part];
    }
}

template <class T>
void write(const Level<T>& level, const Lines& lines, int64_t first, int count, const T* x, T* spare) {
  char* at[kMostLanes];
  const int width = level.width, parts = lines.parts();
  lines.find(first, count, width, at);
  const int64_t n = lines.length(), step = lines.step();
  if (lines.is_flat()) {
    std::fill(at + count, at + width, reinterpret_cast<char*>(spare));
    return level.unpack(x, static_cast<int>(n * parts), 0, 1, static_cast<int>(n * parts),
                        reinterpret_cast<T* const*>(at));
  }
  for (int64_t j = 0; j < n; ++j)
    for (int l = 0; l < count; ++l) {
      T value[2];
      for (int part = 0; part < parts; ++part) value[part] = x[(j * parts + part) * width + l];
      std::memcpy(at[l] + j * step, value, sizeof(T) * static_cast<size_t>(parts));
    }
}

// Both plans, since operands of either precision may come.
struct Plans {
  explicit Plans(int64_t n) : of_float(n), of_double(n) {}
  template <class T>
  const Plan<T>& get() const {
    if constexpr (std::is_same_v<T, float>)
      return of_float;
    else
      return of_double;
  }
  Plan<float> of_float;
  Plan<double> of_double;
};

// Base: transforms along axes of n points each.
class Transform : public Kernel {
 public:
  int operand_count() const override { return 2; }
  size_t scratch_bytes(const View* operands) const override {
    return with_real(operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      const auto each = static_cast<size_t>(Buffers<T>::numbers(longest_, kMostLanes)) * sizeof(T);
      return (each + 63) / 64 * 64 * static_cast<size_t>(most_shares_);
    });
  }

 protected:
  explicit Transform(int64_t longest) : longest_(longest) {}

  // body(buffers, first, count) for groups of lines; body reads, transforms and writes them.
  template <class T, class F>
  void for_groups(int64_t count, const Level<T>& level, char* scratch, F&& body) const {
    const int64_t width = level.width, groups = (count + width - 1) / width;
    const bool is_small = groups * width * longest_ < kSmall;
    const int64_t shares = is_small ? 1 : std::min(groups, most_shares_);
    const int64_t bytes =
        (Buffers<T>::numbers(longest_, kMostLanes) * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    if (groups == 0) return;
    parallel_for(shares, 1, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) {
        const Buffers<T> buffers(scratch + share * bytes, longest_, level.width);
        for (int64_t g = groups * share / shares; g < groups * (share + 1) / shares; ++g)
          body(buffers, g * width, static_cast<int>(std::min(width, count - g * width)));
      }
    });
  }

  const int64_t longest_;

 private:
  const int64_t most_shares_ = team_size();
  static constexpr int64_t kSmall = 16 << 10;  // points
};

class Fourier final : public Transform {
 public:
  Fourier(std::vector<int> axes, const std::vector<int64_t>& sizes, bool inverse, double factor)
      : Transform(*std::ranges::max_element(sizes)),
        axes_(std::move(axes)),
        inverse_(inverse),
        factor_(factor) {
    for (const int64_t n : sizes) plans_.emplace_back(n);
  }
  void run(const Call& call) const override {
    with_real(call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for (size_t k = 0; k < axes_.size(); ++k) along<T>(call, k);
    });
  }

 private:
  template <class T>
  void along(const Call& call, size_t k) const {
    const View &y = call.operands[1], &x = k == 0 ? call.operands[0] : y;
    const int axis = axes_[k] + y.ndim;
    const Lines from(x, axis, 2), to(y, axis, 2);
    const Level<T> level;
    const Plan<T>& plan = plans_[k].get<T>();
    const bool is_last = k + 1 == axes_.size();
    for_groups(from.count(), level, call.scratch, [&](const Buffers<T>& buffers, int64_t first, int count) {
      read(level, from, first, count, buffers.x);
      T* const result = plan.run(level, buffers.x, buffers.y, inverse_);
      if (is_last && factor_ != 1) level.scale(result, 2 * plan.points(), static_cast<T>(factor_));
      write(level, to, first, count, result, buffers.spare);
    });
  }

  const std::vector<int> axes_;
  const bool inverse_;
  const double factor_;
  std::vector<Plans> plans_;
};

// An even number of real numbers is transformed as half as many complex ones.
class RealFourier final : public Transform {
 public:
  RealFourier(int axis, int64_t n, bool inverse, double factor)
      : Transform(n), axis_(axis), inverse_(inverse), factor_(factor), plans_(n % 2 ? n : n / 2) {
    for (int64_t k = 0; k <= n / 2; ++k) {
      add_root(of_float_, k, n);
      add_root(of_double_, k, n);
    }
  }
  void run(const Call& call) const override {
    with_real(call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      const View &x = call.operands[0], &y = call.operands[1];
      const Lines from(x, axis_ + x.ndim, inverse_ ? 2 : 1), to(y, axis_ + y.ndim, inverse_ ? 1 : 2);
      const Level<T> level;
      for_groups(from.count(), level, call.scratch, [&](const Buffers<T>& buffers, int64_t first, int count) {
        read(level, from, first, count, buffers.x);
        T* const result = inverse_ ? backward(level, buffers) : forward(level, buffers);
        if (factor_ != 1) level.scale(result, to.length() * to.parts(), static_cast<T>(factor_));
        write(level, to, first, count, result, buffers.spare);
      });
    });
  }

 private:
  template <class T>
  T* forward(const Level<T>& level, const Buffers<T>& buffers) const {
    const Plan<T>& plan = plans_.get<T>();
    T *x = buffers.x, *y = buffers.y;
    if (longest_ % 2) {
      const int width = level.width;
      for (int64_t j = 0; j < longest_; ++j) {
        std::copy_n(x + j * width, width, y + 2 * j * width);
        std::fill_n(y + (2 * j + 1) * width, width, T{});
      }
      return plan.run(level, y, x, false);
    }
    T* const pairs = plan.run(level, x, y, false);
    T* const result = pairs == x ? y : x;
    level.to_halves(pairs, result, longest_ / 2, roots<T>());
    return result;
  }

  template <class T>
  T* backward(const Level<T>& level, const Buffers<T>& buffers) const {
    const Plan<T>& plan = plans_.get<T>();
    T *x = buffers.x, *y = buffers.y;
    if (longest_ % 2 == 0) {
      level.from_halves(x, y, longest_ / 2, roots<T>());
      return plan.run(level, y, x, true);
    }
    const int width = level.width;
    std::copy_n(x, width, y);
    std::fill_n(y + width, width, T{});
    for (int64_t k = 1; k <= longest_ / 2; ++k) {
      const T* const from = x + 2 * k * width;
      T *const low = y + 2 * k * width, *const high = y + 2 * (longest_ - k) * width;
      for (int l = 0; l < width; ++l) {
        low[l] = high[l] = from[l];
        low[width + l] = from[width + l];
        high[width + l] = -from[width + l];
      }
    }
    T* const result = plan.run(level, y, x, true);
    for (int64_t j = 1; j < longest_; ++j) std::copy_n(result + 2 * j * width, width, result + j * width);
    return result;
  }

  template <class T>
  const T* roots() const {
    if constexpr (std::is_same_v<T, float>)
      return of_float_.data();
    else
      return of_double_.data();
  }

  const int axis_;
  const bool inverse_;
  const double factor_;
  const Plans plans_;
  std::vector<float> of_float_;
  std::vector<double> of_double_;
};

void check(int64_t n) {
  if (!takes_points(n)) throw ValueError("fourier: no transform of " + std::to_string(n) + " points");
}

}  // namespace

bool takes_points(int64_t n) {
  if (n < 1 || n > kLongest) return false;
  for (int factor = 2; factor <= kLargestPrime; ++factor)
    while (n % factor == 0) n /= factor;
  return n == 1;
}

Ref<Kernel> make_fourier(std::vector<int> axes, std::vector<int64_t> sizes, bool inverse, double factor) {
  if (axes.empty() || axes.size() != sizes.size()) throw ValueError("fourier: needs a size for each axis");
  for (const int64_t n : sizes) check(n);
  return Ref<Kernel>(new Fourier(std::move(axes), sizes, inverse, factor));
}
Ref<Kernel> make_real_fourier(int axis, int64_t n, bool inverse, double factor) {
  check(n);
  return Ref<Kernel>(new RealFourier(axis, n, inverse, factor));
}

}  // namespace weft
