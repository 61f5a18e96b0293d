// pointwise.cpp: convolutions whose windows are single elements, as products of matrices.
//
// Channels last, such a convolution is y = x w^T over the rows of all pixels. Products take weights with any
// strides, while convolutions pack them in each run, and the gradient of the weights is quicker
// (docs/design/onednn.md).
#include <algorithm>
#include <numeric>

#include "onednn/recipe.h"

namespace weft::onednn {
namespace {

bool all_are(const std::vector<int64_t>& sizes, int64_t n) {
  return std::ranges::all_of(sizes, [n](int64_t size) { return size == n; });
}

// [n,c,*spatial], channels last without gaps, as [n * pixels, c].
std::optional<Geometry> as_rows(const Geometry& x) {
  const size_t ndim = x.shape.size();
  std::vector<size_t> order(ndim);  // of dimensions, from the last in memory
  std::iota(order.rbegin(), order.rend(), 0);
  order.erase(order.end() - 2);
  order.insert(order.begin(), 1);
  int64_t step = 1;
  for (const size_t d : order) {
    if (x.shape[d] != 1 && x.strides[d] != step) return std::nullopt;
    step *= x.shape[d];
  }
  if (step == 0) return std::nullopt;
  const int64_t channels = x.shape[1];
  return Geometry{x.dtype, {step / channels, channels}, {channels, 1}};
}

// An operand of a post-op: as large as the result, or one number for each channel.
std::optional<Geometry> as_rows(const Geometry& x, const Geometry& result) {
  const size_t ndim = result.shape.size();
  if (x.shape == result.shape) return as_rows(x);
  const size_t missing = ndim - x.shape.size();
  Geometry row{x.dtype, {1, 1}, {0, 0}};
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (x.shape[d] == 1) continue;
    if (d + missing != 1) return std::nullopt;
    row.shape[1] = x.shape[d];
    row.strides[1] = x.strides[d];
  }
  return row;
}

Geometry transposed(Geometry x) {
  std::swap(x.shape[0], x.shape[1]);
  std::swap(x.strides[0], x.strides[1]);
  return x;
}

}  // namespace

std::optional<Matmul> as_product(const Convolution& r) {
  using Pass = Convolution::Pass;
  const auto single = [&] {
    return std::all_of(r.w.shape.begin() + 2, r.w.shape.end(), [](int64_t n) { return n == 1; });
  };
  if (r.groups != 1 || r.w.any || r.w.layout || !single() || !all_are(r.window.stride, 1) ||
      !all_are(r.window.padding_low, 0) || !all_are(r.window.padding_high, 0))
    return std::nullopt;
  const auto x = as_rows(r.x), y = as_rows(r.y);
  if (!x || !y) return std::nullopt;
  const Geometry w{r.w.dtype, {r.w.shape[0], r.w.shape[1]}, {r.w.strides[0], r.w.strides[1]}};
  Matmul product;
  product.accumulate = r.accumulate;
  product.narrow = r.narrow;
  switch (r.pass) {
    case Pass::forward:
      product.a = *x, product.b = transposed(w), product.c = *y, product.bias = r.bias;
      break;
    case Pass::data:
      product.a = *y, product.b = w, product.c = *x;
      break;
    case Pass::weights:  // dw^T, in the order of the operands
      if (r.bias) return std::nullopt;
      product.a = transposed(*x), product.b = *y, product.c = transposed(w);
      break;
  }
  for (const PostOp& op : r.post_ops) {
    product.post_ops.push_back(op);
    if (op.operand.shape.empty()) continue;
    const auto operand = as_rows(op.operand, r.y);
    if (!operand) return std::nullopt;
    product.post_ops.back().operand = *operand;
  }
  return product;
}

}  // namespace weft::onednn
