// products.cpp: products of stacks of matrices by BLAS: those of numbers that oneDNN does not multiply.
#include "kernels/blas.h"
#include "kernels/lapack.h"
#include "kernels/linalg.h"

namespace weft {
namespace {

using lapack::Integer;
using lapack::kLength;
using lapack::Routine;

class Product final : public Kernel {
 public:
  explicit Product(bool accumulate) : accumulate_(accumulate) {}

  void run(const Call& call) const override {
    const auto lead = lead_of(call.operands[2], 2);
    const Stack a(call.operands[0], 2, lead), b(call.operands[1], 2, lead), y(call.operands[2], 2, lead);
    const int64_t count = product_of(lead), terms = a.columns();
    if (count == 0 || y.rows() == 0 || y.columns() == 0) return;
    with_number("matmul", call.operands[2].dtype, [&]<class T>(std::type_identity<T>) {
      for_matrices(count, 2 * y.rows() * y.columns() * terms, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) multiply<T>(a.at(k), b.at(k), y.at(k));
      });
    });
  }

 private:
  // Of what is read in columns the transposes are multiplied, y^T = b^T a^T; and of a result in columns it is
  // y itself.
  template <class T>
  void multiply(const Matrix& a, const Matrix& b, const Matrix& y) const {
    const blas::Operand<T> to(y);
    if (to.is_transposed()) return multiply<T>(b.transposed(), a.transposed(), y.transposed());
    const blas::Operand<T> left(b), right(a);
    Integer columns(y.columns), rows(y.rows), terms(a.columns);
    Integer left_step(std::max<int64_t>(left.step(), 1)), right_step(std::max<int64_t>(right.step(), 1)),
        step(to.step());
    T one{1}, before{accumulate_ ? T{1} : T{0}};
    lapack::call<T>(Routine::gemm, left.is_transposed() ? "T" : "N", right.is_transposed() ? "T" : "N",
                    columns.address(), rows.address(), terms.address(), &one, left.data(),
                    left_step.address(), right.data(), right_step.address(), &before, to.data(),
                    step.address(), kLength, kLength);
    if (to.is_copy()) y.write(to.data(), to.step());
  }

  const bool accumulate_;
};

}  // namespace

Ref<Kernel> make_product(bool accumulate) { return Ref<Kernel>(new Product(accumulate)); }

}  // namespace weft
