// linear_solves.cpp: Cholesky and LU factorizations, and equations: small matrices in vectors
// (small_matrices.h), others by LAPACK. Who may fail: a matrix that is singular or not positive definite; the
// first one is named, and what the kernel writes is poisoned by the engine.
#include "kernels/blas.h"
#include "kernels/lapack.h"
#include "kernels/linalg.h"
#include "kernels/small_matrices.h"

namespace weft {
namespace {

using lapack::Integer;
using lapack::Integers;
using lapack::kLength;
using lapack::Routine;

template <class T>
concept Small = std::is_floating_point_v<T>;

class Cholesky final : public Kernel {
 public:
  explicit Cholesky(bool upper) : upper_(upper) {}

  void run(const Call& call) const override {
    const auto lead = lead_of(call.operands[1], 2);
    const Stack x(call.operands[0], 2, lead), y(call.operands[1], 2, lead);
    const int64_t count = product_of(lead), n = x.rows();
    if (count == 0 || n == 0) return;
    Failure failure;
    with_number("cholesky", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, n * n * n / 3, [&](int64_t begin, int64_t end) {
        if constexpr (Small<T>)
          if (small::takes(count, n, n)) return small::cholesky<T>(x, y, upper_, begin, end, failure);
        factor<T>(x, y, begin, end, failure);
      });
    });
    if (failure.happened())
      throw ValueError("cholesky: " + failure.which("x", count) +
                       " is not positive definite: its leading minor of order " +
                       std::to_string(failure.place()) + " is not positive");
  }

 private:
  // The lower triangle in rows is the upper one of the transpose, U^H U = a^T, and U^T is L.
  template <class T>
  void factor(const Stack& x, const Stack& y, int64_t begin, int64_t end, Failure& failure) const {
    const int64_t n = x.rows();
    std::vector<T> a(static_cast<size_t>(n * n));
    for (int64_t k = begin; k < end; ++k) {
      x.at(k).read_hermitian(a.data());
      Integer size(n), info;
      lapack::call<T>(Routine::potrf, "U", size.address(), a.data(), size.address(), info.address(), kLength);
      if (info.value()) failure.report(k, info.value());
      if (!upper_) {
        y.at(k).write(a.data(), n);
        continue;
      }
      if constexpr (lapack::is_complex<T>)
        for (T& value : a) value = std::conj(value);
      y.at(k).transposed().write(a.data(), n);
    }
  }

  const bool upper_;
};

// x[.., m, n] -> lu[.., m, n], int32 pivots[.., min(m, n)], int32 permutation[.., m].
class LuFactor final : public Kernel {
 public:
  void run(const Call& call) const override {
    const auto lead = lead_of(call.operands[1], 2);
    const Stack x(call.operands[0], 2, lead), lu(call.operands[1], 2, lead),
        pivots(call.operands[2], 1, lead), permutation(call.operands[3], 1, lead);
    const int64_t count = product_of(lead), m = x.rows(), n = x.columns();
    with_number("lu_factor", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, m * n * std::min(m, n), [&](int64_t begin, int64_t end) {
        if constexpr (Small<T>)
          if (m == n && small::takes(count, n, n)) small::lu_factor<T>(x, lu, pivots, begin, end);
        if (!Small<T> || m != n || !small::takes(count, n, n)) factor<T>(x, lu, pivots, begin, end);
        for (int64_t k = begin; k < end; ++k) permute(pivots.at(k), permutation.at(k));
      });
    });
  }

 private:
  // The rows in the order that the changes of places lead to.
  static void permute(const Matrix& pivots, const Matrix& to) {
    for (int64_t i = 0; i < to.rows; ++i) to.set(i, 0, static_cast<int32_t>(i));
    for (int64_t i = 0; i < pivots.rows; ++i) {
      const int64_t other = pivots.at<int32_t>(i, 0);
      const auto row = to.at<int32_t>(i, 0);
      to.set(i, 0, to.at<int32_t>(other, 0));
      to.set(other, 0, row);
    }
  }

  template <class T>
  static void factor(const Stack& x, const Stack& lu, const Stack& pivots, int64_t begin, int64_t end) {
    const int64_t m = x.rows(), n = x.columns();
    if (m == 0 || n == 0) return;
    std::vector<T> a(static_cast<size_t>(m * n));
    Integers rows(std::min(m, n));
    for (int64_t k = begin; k < end; ++k) {
      x.at(k).transposed().read(a.data(), m);
      Integer height(m), width(n), info;
      lapack::call<T>(Routine::getrf, height.address(), width.address(), a.data(), height.address(),
                      rows.address(), info.address());
      lu.at(k).transposed().write(a.data(), m);
      const Matrix to = pivots.at(k);
      for (int64_t i = 0; i < to.rows; ++i) to.set(i, 0, static_cast<int32_t>(rows[i] - 1));
    }
  }
};

// x[.., n, n] -> y[..]: the product of the pivots.
class Det final : public Kernel {
 public:
  void run(const Call& call) const override {
    const auto lead = lead_of(call.operands[1], 0);
    const Stack x(call.operands[0], 2, lead), y(call.operands[1], 0, lead);
    const int64_t count = product_of(lead), n = x.rows();
    with_number("det", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, n * n * n, [&](int64_t begin, int64_t end) {
        if constexpr (Small<T>)
          if (small::takes(count, n, n)) return small::det<T>(x, y, begin, end);
        multiply<T>(x, y, begin, end);
      });
    });
  }

 private:
  // The transpose, which is what is read in rows, has the same determinant.
  template <class T>
  static void multiply(const Stack& x, const Stack& y, int64_t begin, int64_t end) {
    const int64_t n = x.rows();
    std::vector<T> a(static_cast<size_t>(n * n));
    Integers rows(n);
    for (int64_t k = begin; k < end; ++k) {
      T product{1};
      x.at(k).read(a.data(), n);
      Integer size(n), info;
      if (n > 0)
        lapack::call<T>(Routine::getrf, size.address(), size.address(), a.data(), size.address(),
                        rows.address(), info.address());
      for (int64_t i = 0; i < n; ++i) {
        const T pivot = a[static_cast<size_t>(i * n + i)];
        product *= rows[i] == i + 1 ? pivot : -pivot;
      }
      y.at(k).set(0, 0, product);
    }
  }
};

// a[.., n, n], b[.., n, k] or b[n] -> x; without b the inverse of a.
class Solve final : public Kernel {
 public:
  Solve(std::string function, bool inverse, bool vectors)
      : function_(std::move(function)), inverse_(inverse), vectors_(vectors) {}

  void run(const Call& call) const override {
    const int own_axes = vectors_ ? 1 : 2;
    const View& result = call.operands[inverse_ ? 1 : 2];
    const auto lead = lead_of(result, own_axes);
    const Stack a(call.operands[0], 2, lead), x(result, own_axes, lead);
    const Stack b(call.operands[inverse_ ? 0 : 1], own_axes, lead);
    const int64_t count = product_of(lead), n = a.rows(), columns = x.columns();
    if (count == 0 || n == 0 || columns == 0) return;
    Failure failure;
    with_number(function_, result.dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, n * n * (n + columns), [&](int64_t begin, int64_t end) {
        if constexpr (Small<T>)
          if (small::takes(count, n, n + columns))
            return inverse_ ? small::inverse<T>(a, x, begin, end, failure)
                            : small::solve<T>(a, b, x, begin, end, failure);
        if (inverse_)
          invert<T>(a, x, begin, end, failure);
        else
          solve<T>(a, b, x, begin, end, failure);
      });
    });
    if (failure.happened())
      throw ValueError(function_ + ": " + failure.which(inverse_ ? "x" : "a", count) +
                       " is singular: pivot " + std::to_string(failure.place()) + " of its elimination is 0");
  }

 private:
  // What is read in rows is the transpose in columns, whose transpose the library solves for.
  template <class T>
  static void solve(const Stack& a, const Stack& b, const Stack& x, int64_t begin, int64_t end,
                    Failure& failure) {
    const int64_t n = a.rows(), columns = x.columns();
    std::vector<T> matrix(static_cast<size_t>(n * n)), right(static_cast<size_t>(n * columns));
    Integers pivots(n);
    for (int64_t k = begin; k < end; ++k) {
      a.at(k).read(matrix.data(), n);
      b.at(k).transposed().read(right.data(), n);
      Integer size(n), sides(columns), info;
      lapack::call<T>(Routine::getrf, size.address(), size.address(), matrix.data(), size.address(),
                      pivots.address(), info.address());
      if (info.value())
        failure.report(k, info.value());
      else
        lapack::call<T>(Routine::getrs, "T", size.address(), sides.address(), matrix.data(), size.address(),
                        pivots.address(), right.data(), size.address(), info.address(), kLength);
      x.at(k).transposed().write(right.data(), n);
    }
  }

  template <class T>
  static void invert(const Stack& a, const Stack& x, int64_t begin, int64_t end, Failure& failure) {
    const int64_t n = a.rows();
    std::vector<T> matrix(static_cast<size_t>(n * n)), work;
    Integers pivots(n);
    for (int64_t k = begin; k < end; ++k) {
      a.at(k).read(matrix.data(), n);
      Integer size(n), info, length(-1);
      lapack::call<T>(Routine::getrf, size.address(), size.address(), matrix.data(), size.address(),
                      pivots.address(), info.address());
      if (info.value()) {
        failure.report(k, info.value());
      } else {
        T first{};
        lapack::call<T>(Routine::getri, size.address(), matrix.data(), size.address(), pivots.address(),
                        work.empty() ? &first : work.data(), length.address(), info.address());
        work.resize(static_cast<size_t>(lapack::requested(work.empty() ? first : work[0])));
        length = Integer(static_cast<int64_t>(work.size()));
        lapack::call<T>(Routine::getri, size.address(), matrix.data(), size.address(), pivots.address(),
                        work.data(), length.address(), info.address());
      }
      x.at(k).write(matrix.data(), n);
    }
  }

  const std::string function_;
  const bool inverse_, vectors_;
};

// a[.., n, n], b[.., n, k] or b[n] -> x. Other elements of a than those of the triangle are not read.
class SolveTriangular final : public Kernel {
 public:
  SolveTriangular(bool upper, bool unit, bool vectors) : upper_(upper), unit_(unit), vectors_(vectors) {}

  void run(const Call& call) const override {
    const int own_axes = vectors_ ? 1 : 2;
    const auto lead = lead_of(call.operands[2], own_axes);
    const Stack a(call.operands[0], 2, lead), b(call.operands[1], own_axes, lead),
        x(call.operands[2], own_axes, lead);
    const int64_t count = product_of(lead), n = a.rows(), columns = x.columns();
    if (count == 0 || n == 0 || columns == 0) return;
    Failure failure;
    with_number("solve_triangular", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, n * n * columns, [&](int64_t begin, int64_t end) {
        if constexpr (Small<T>)
          if (small::takes(count, n, columns))
            return small::solve_triangular<T>(a, b, x, upper_, unit_, begin, end, failure);
        for (int64_t k = begin; k < end && !unit_; ++k) find_zero<T>(a.at(k), k, failure);
        solve<T>(a, b, x, begin, end);
      });
    });
    if (failure.happened())
      throw ValueError("solve_triangular: " + failure.which("a", count) + " is singular: element " +
                       std::to_string(failure.place() - 1) + " of its diagonal is 0");
  }

 private:
  template <class T>
  static void find_zero(const Matrix& a, int64_t k, Failure& failure) {
    for (int64_t i = 0; i < a.rows; ++i)
      if (a.at<T>(i, i) == T{}) return failure.report(k, i + 1);
  }

  // a x = b is x^T a^T = b^T, and what lies in rows is the transpose in columns. b is written to where x
  // lies, and solved for there.
  template <class T>
  void solve(const Stack& a, const Stack& b, const Stack& x, int64_t begin, int64_t end) const {
    for (int64_t k = begin; k < end; ++k) {
      const Matrix right = b.at(k), solved = x.at(k);
      const blas::Operand<T> matrix(a.at(k)), to(solved);
      const bool in_columns = to.is_transposed(), is_upper = upper_ == matrix.is_transposed();
      (in_columns ? right.transposed() : right).read(to.data(), to.step());
      Integer rows(in_columns ? right.rows : right.columns), columns(in_columns ? right.columns : right.rows);
      Integer step(matrix.step()), to_step(to.step());
      T one{1};
      lapack::call<T>(Routine::trsm, in_columns ? "L" : "R", is_upper ? "U" : "L",
                      in_columns == matrix.is_transposed() ? "N" : "T", unit_ ? "U" : "N", rows.address(),
                      columns.address(), &one, matrix.data(), step.address(), to.data(), to_step.address(),
                      kLength, kLength, kLength, kLength);
      if (to.is_copy()) solved.write(to.data(), to.step());
    }
  }

  const bool upper_, unit_, vectors_;
};

}  // namespace

Ref<Kernel> make_cholesky(bool upper) { return Ref<Kernel>(new Cholesky(upper)); }
Ref<Kernel> make_lu_factor() { return Ref<Kernel>(new LuFactor); }
Ref<Kernel> make_det() { return Ref<Kernel>(new Det); }
Ref<Kernel> make_solve(bool vectors) { return Ref<Kernel>(new Solve("solve", false, vectors)); }
Ref<Kernel> make_inverse() { return Ref<Kernel>(new Solve("inv", true, false)); }
Ref<Kernel> make_solve_triangular(bool upper, bool unit, bool vectors) {
  return Ref<Kernel>(new SolveTriangular(upper, unit, vectors));
}

}  // namespace weft
