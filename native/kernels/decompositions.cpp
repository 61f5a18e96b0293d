// decompositions.cpp: QR, singular values and eigenvalues by LAPACK, one matrix after the other or, of small
// ones, several at a time by the team. Rows and columns are exchanged by what is asked for instead of by
// copies: the LQ decomposition of the transpose is the QR decomposition, and its singular vectors change
// sides.
#include <cmath>

#include "kernels/lapack.h"
#include "kernels/linalg.h"
#include "kernels/matrices.h"

namespace weft {
namespace {

using lapack::Integer;
using lapack::kLength;
using lapack::Real;
using lapack::Routine;

// Memory that a routine requests: call(work, length) is made with length -1 first, which stores the size.
template <class T>
class Workspace {
 public:
  template <class F>
  void run(F&& call) {
    if (memory_.empty()) {
      T first{};
      Integer query(-1);
      call(&first, query.address());
      memory_.resize(static_cast<size_t>(lapack::requested(first)));
    }
    Integer length(static_cast<int64_t>(memory_.size()));
    call(memory_.data(), length.address());
  }

 private:
  std::vector<T> memory_;
};

template <class T>
bool are_finite(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](T x) { return std::isfinite(std::real(x)) && std::isfinite(std::imag(x)); });
}

template <class T>
void write_identity(const Matrix& to) {
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.columns; ++j) to.set(i, j, T(static_cast<Real<T>>(i == j)));
}

[[noreturn]] void fail(const char* function, const Failure& failure, int64_t count) {
  throw ValueError(
      std::string(function) + ": " + failure.which("x", count) +
      (failure.place() ? " needs more iterations than are made" : " has elements that are not finite"));
}

// The LQ decomposition of the transpose, x^T = L Q': so x = Q'^T L^T.
class Qr final : public Kernel {
 public:
  void run(const Call& call) const override {
    const auto lead = lead_of(call.operands[1], 2);
    const Stack x(call.operands[0], 2, lead), q(call.operands[1], 2, lead), r(call.operands[2], 2, lead);
    const int64_t count = product_of(lead), m = x.rows(), n = x.columns();
    with_number("qr", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, 4 * m * n * std::min(m, n), [&](int64_t begin, int64_t end) {
        if (std::min(m, n) > 0) return decompose<T>(x, q, r, begin, end);
        for (int64_t k = begin; k < end; ++k) write_identity<T>(q.at(k));
      });
    });
  }

 private:
  template <class T>
  void decompose(const Stack& x, const Stack& q, const Stack& r, int64_t begin, int64_t end) const {
    const int64_t m = x.rows(), n = x.columns(), k = q.columns(), reflectors = std::min(m, n);
    std::vector<T> a(static_cast<size_t>(m * n)), rows(static_cast<size_t>(k * m)),
        tau(static_cast<size_t>(reflectors));
    Workspace<T> factor, form;
    for (int64_t number = begin; number < end; ++number) {
      x.at(number).read(a.data(), n);
      Integer height(n), width(m), info;
      factor.run([&](T* work, int64_t* length) {
        lapack::call<T>(Routine::gelqf, height.address(), width.address(), a.data(), height.address(),
                        tau.data(), work, length, info.address());
      });
      const Matrix to = r.at(number);
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < n; ++j) to.set(i, j, j >= i ? a[static_cast<size_t>(i * n + j)] : T{});
      for (int64_t j = 0; j < m; ++j)  // column j of x^T, of which the first rows have the reflectors
        std::copy_n(a.data() + j * n, reflectors, rows.data() + j * k);
      Integer count(k), used(reflectors);
      form.run([&](T* work, int64_t* length) {
        lapack::call<T>(Routine::orglq, count.address(), width.address(), used.address(), rows.data(),
                        count.address(), tau.data(), work, length, info.address());
      });
      q.at(number).write(rows.data(), k);
    }
  }
};

// x^T = u s vh: so x = vh^T s u^T.
class Svd final : public Kernel {
 public:
  Svd(bool full, bool left, bool right) : full_(full), left_(left), right_(right), vectors_(left || right) {}

  void run(const Call& call) const override {
    const View& values = call.operands[left_ ? 2 : 1];
    const auto lead = lead_of(values, 1);
    const Stack x(call.operands[0], 2, lead), s(values, 1, lead);
    const int64_t count = product_of(lead), m = x.rows(), n = x.columns();
    const Stack u(call.operands[left_ ? 1 : 0], 2, lead),
        vh(call.operands[right_ ? (left_ ? 3 : 2) : 0], 2, lead);
    Failure failure;
    with_number("svd", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, 20 * m * n * std::min(m, n), [&](int64_t begin, int64_t end) {
        if (std::min(m, n) > 0) return decompose<T>(x, u, s, vh, begin, end, failure);
        for (int64_t k = begin; k < end; ++k) {
          if (left_) write_identity<T>(u.at(k));
          if (right_) write_identity<T>(vh.at(k));
        }
      });
    });
    if (failure.happened()) fail("svd", failure, count);
  }

 private:
  template <class T>
  void decompose(const Stack& x, const Stack& u, const Stack& s, const Stack& vh, int64_t begin, int64_t end,
                 Failure& failure) const {
    const int64_t m = x.rows(), n = x.columns(), k = std::min(m, n);
    const int64_t left = !vectors_ ? 1 : full_ ? m : k, right = !vectors_ ? 1 : full_ ? n : k;
    std::vector<T> a(static_cast<size_t>(m * n)), first(static_cast<size_t>(n * right)),
        second(static_cast<size_t>(left * m));
    std::vector<Real<T>> values(static_cast<size_t>(k)), real_work;
    if constexpr (lapack::is_complex<T>)
      real_work.resize(static_cast<size_t>(k * std::max(5 * k + 7, 2 * std::max(m, n) + 2 * k + 1)));
    lapack::Integers integer_work(8 * k);
    Workspace<T> workspace;
    const char* const job = !vectors_ ? "N" : full_ ? "A" : "S";
    for (int64_t number = begin; number < end; ++number) {
      x.at(number).read(a.data(), n);
      if (!are_finite(a)) {
        failure.report(number, 0);
        continue;
      }
      Integer height(n), width(m), first_step(n), second_step(left), info;
      workspace.run([&](T* work, int64_t* length) {
        if constexpr (lapack::is_complex<T>)
          lapack::call<T>(Routine::gesdd, job, height.address(), width.address(), a.data(), height.address(),
                          values.data(), first.data(), first_step.address(), second.data(),
                          second_step.address(), work, length, real_work.data(), integer_work.address(),
                          info.address(), kLength);
        else
          lapack::call<T>(Routine::gesdd, job, height.address(), width.address(), a.data(), height.address(),
                          values.data(), first.data(), first_step.address(), second.data(),
                          second_step.address(), work, length, integer_work.address(), info.address(),
                          kLength);
      });
      if (info.value()) failure.report(number, 1);
      s.at(number).write(values.data(), 1);
      if (left_) u.at(number).write(second.data(), left);
      if (right_) vh.at(number).write(first.data(), n);
    }
  }

  const bool full_, left_, right_, vectors_;
};

// Of the Hermitian part. The lower triangle in rows is the upper one of the transpose, which is its
// conjugate.
class Eigh final : public Kernel {
 public:
  explicit Eigh(bool vectors) : vectors_(vectors) {}

  void run(const Call& call) const override {
    const auto lead = lead_of(call.operands[1], 1);
    const Stack x(call.operands[0], 2, lead), w(call.operands[1], 1, lead);
    const Stack v(vectors_ ? call.operands[2] : call.operands[0], 2, lead);
    const int64_t count = product_of(lead), n = x.rows();
    if (count == 0 || n == 0) return;
    Failure failure;
    with_number("eigh", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, 9 * n * n * n,
                   [&](int64_t begin, int64_t end) { decompose<T>(x, w, v, begin, end, failure); });
    });
    if (failure.happened()) fail("eigh", failure, count);
  }

 private:
  template <class T>
  void decompose(const Stack& x, const Stack& w, const Stack& v, int64_t begin, int64_t end,
                 Failure& failure) const {
    const int64_t n = x.rows();
    std::vector<T> a(static_cast<size_t>(n * n)), work;
    std::vector<Real<T>> values(static_cast<size_t>(n)), real_work;
    lapack::Integers integer_work(5 * n + 3);
    for (int64_t number = begin; number < end; ++number) {
      x.at(number).read_hermitian(a.data());
      if (!are_finite(a)) {
        failure.report(number, 0);
        continue;
      }
      if (work.empty()) {
        call<T>(a, values, n, nullptr, nullptr, integer_work, work, real_work);
      }
      if (call<T>(a, values, n, work.data(), real_work.data(), integer_work, work, real_work))
        failure.report(number, 1);
      w.at(number).write(values.data(), 1);
      if (!vectors_) continue;
      if constexpr (lapack::is_complex<T>)
        for (T& value : a) value = std::conj(value);
      v.at(number).transposed().write(a.data(), n);
    }
  }

  // syevd or heevd; without memory it makes the memory as large as the routine requests. Returns its info.
  template <class T>
  int64_t call(std::vector<T>& a, std::vector<Real<T>>& values, int64_t n, T* memory, Real<T>* real_memory,
               lapack::Integers& integers, std::vector<T>& work, std::vector<Real<T>>& real_work) const {
    const char* const job = vectors_ ? "V" : "N";
    T first{};
    Real<T> real_first{};
    Integer size(n), info, length(memory ? static_cast<int64_t>(work.size()) : -1),
        real_length(memory ? static_cast<int64_t>(real_work.size()) : -1),
        integer_length(memory ? 5 * n + 3 : -1);
    if constexpr (lapack::is_complex<T>)
      lapack::call<T>(Routine::syevd, job, "U", size.address(), a.data(), size.address(), values.data(),
                      memory ? memory : &first, length.address(), memory ? real_memory : &real_first,
                      real_length.address(), integers.address(), integer_length.address(), info.address(),
                      kLength, kLength);
    else
      lapack::call<T>(Routine::syevd, job, "U", size.address(), a.data(), size.address(), values.data(),
                      memory ? memory : &first, length.address(), integers.address(),
                      integer_length.address(), info.address(), kLength, kLength);
    if (!memory) {
      work.resize(static_cast<size_t>(lapack::requested(first)));
      real_work.resize(static_cast<size_t>(lapack::requested(real_first)));
    }
    return info.value();
  }

  const bool vectors_;
};

class Eig final : public Kernel {
 public:
  explicit Eig(bool vectors) : vectors_(vectors) {}

  void run(const Call& call) const override {
    const auto lead = lead_of(call.operands[1], 1);
    const Stack x(call.operands[0], 2, lead), w(call.operands[1], 1, lead);
    const Stack v(vectors_ ? call.operands[2] : call.operands[0], 2, lead);
    const int64_t count = product_of(lead), n = x.rows();
    if (count == 0 || n == 0) return;
    Failure failure;
    with_number("eig", call.operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, 25 * n * n * n,
                   [&](int64_t begin, int64_t end) { decompose<T>(x, w, v, begin, end, failure); });
    });
    if (failure.happened()) fail("eig", failure, count);
  }

 private:
  template <class T>
  void decompose(const Stack& x, const Stack& w, const Stack& v, int64_t begin, int64_t end,
                 Failure& failure) const {
    using Pair = std::complex<Real<T>>;
    const int64_t n = x.rows();
    std::vector<T> a(static_cast<size_t>(n * n)), vectors(static_cast<size_t>(vectors_ ? n * n : 1));
    std::vector<Real<T>> re(static_cast<size_t>(n)), im(static_cast<size_t>(2 * n));
    std::vector<Pair> values(static_cast<size_t>(n));
    Workspace<T> workspace;
    const char* const job = vectors_ ? "V" : "N";
    for (int64_t number = begin; number < end; ++number) {
      x.at(number).transposed().read(a.data(), n);
      if (!are_finite(a)) {
        failure.report(number, 0);
        continue;
      }
      T none{};
      Integer size(n), step(n), one(1), info;
      workspace.run([&](T* work, int64_t* length) {
        if constexpr (lapack::is_complex<T>)
          lapack::call<T>(Routine::geev, "N", job, size.address(), a.data(), size.address(), values.data(),
                          &none, one.address(), vectors.data(), step.address(), work, length, im.data(),
                          info.address(), kLength, kLength);
        else
          lapack::call<T>(Routine::geev, "N", job, size.address(), a.data(), size.address(), re.data(),
                          im.data(), &none, one.address(), vectors.data(), step.address(), work, length,
                          info.address(), kLength, kLength);
      });
      if (info.value()) failure.report(number, 1);
      if constexpr (!lapack::is_complex<T>)
        for (size_t k = 0; k < values.size(); ++k) values[k] = {re[k], im[k]};
      w.at(number).write(values.data(), 1);
      if (vectors_) write_vectors<T>(v.at(number), vectors, values);
    }
  }

  // Of real matrices, a pair of conjugate vectors is stored as the real and the imaginary part of the first.
  template <class T, class Pair>
  static void write_vectors(const Matrix& to, const std::vector<T>& vectors,
                            const std::vector<Pair>& values) {
    const auto n = static_cast<int64_t>(values.size());
    for (int64_t j = 0; j < n; ++j) {
      const T* const column = vectors.data() + j * n;
      if constexpr (lapack::is_complex<T>) {
        for (int64_t i = 0; i < n; ++i) to.set(i, j, column[i]);
      } else if (values[static_cast<size_t>(j)].imag() == 0) {
        for (int64_t i = 0; i < n; ++i) to.set(i, j, Pair(column[i]));
      } else {
        for (int64_t i = 0; i < n; ++i) {
          to.set(i, j, Pair(column[i], column[n + i]));
          to.set(i, j + 1, Pair(column[i], -column[n + i]));
        }
        ++j;
      }
    }
  }

  const bool vectors_;
};

}  // namespace

Ref<Kernel> make_qr() { return Ref<Kernel>(new Qr); }
Ref<Kernel> make_svd(bool full, bool left, bool right) { return Ref<Kernel>(new Svd(full, left, right)); }
Ref<Kernel> make_eigh(bool vectors) { return Ref<Kernel>(new Eigh(vectors)); }
Ref<Kernel> make_eig(bool vectors) { return Ref<Kernel>(new Eig(vectors)); }

}  // namespace weft
