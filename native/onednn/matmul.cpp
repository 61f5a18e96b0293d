// matmul.cpp: products of matrices.
//
// oneDNN's fast code takes dense matrices of few dimensions. So leading dimensions are folded where the
// strides allow it, and a matrix that only the reference code would take goes through a dense copy in scratch
// memory.
#include <omp.h>

#include <algorithm>

#include "onednn/cache.h"
#include "onednn/division.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

constexpr const char* kWhat = "onednn_matmul";

[[noreturn]] void misfit(const std::string& why, const Matmul& r) {
  throw ShapeError(std::string(kWhat) + ": " + why + ": a is " + describe(r.a) + ", b is " + describe(r.b) +
                   ", c is " + describe(r.c));
}

void pad(Geometry& x, size_t ndim) {
  if (x.layout || x.shape.size() >= ndim) return;
  x.shape.insert(x.shape.begin(), ndim - x.shape.size(), 1);
  x.strides.insert(x.strides.begin(), ndim - x.strides.size(), 0);
}

std::vector<int64_t> sizes_of(const Geometry& x) {
  if (!x.layout) return x.shape;
  const memory::dims dims = x.layout->desc.get_dims();
  return {dims.begin(), dims.end()};
}

// A dimension of size 1 more, as number `at` from the end.
void insert_one(Geometry& x, size_t at) {
  if (x.shape.size() < at) return;
  x.shape.insert(x.shape.end() - static_cast<ptrdiff_t>(at), 1);
  x.strides.insert(x.strides.end() - static_cast<ptrdiff_t>(at), 1);
}

// The same with matrices of one row or column for vectors.
Matmul as_matrices(Matmul r) {
  require_strided(r.a, kWhat, "a");
  require_strided(r.c, kWhat, "c");
  if (r.bias) require_strided(*r.bias, kWhat, "bias");
  const auto insert_into_result = [&](size_t at) {
    insert_one(r.c, at);
    for (PostOp& op : r.post_ops) insert_one(op.operand, at);
  };
  if (!r.b.layout && r.b.shape.size() == 1) {
    insert_one(r.b, 0);
    insert_into_result(0);
  }
  if (r.a.shape.size() == 1) {
    insert_one(r.a, 1);
    insert_into_result(1);
  }
  return r;
}

void check(const Matmul& r) {
  const auto a = sizes_of(r.a), b = sizes_of(r.b), c = sizes_of(r.c);
  if (a.size() < 2 || b.size() < 2 || c.size() < 2) misfit("a and b need at least 1 dimension", r);
  if ((r.b.any || r.b.layout) && b.size() != 2) misfit("b in a chosen layout has 2 dimensions", r);
  if (c.size() != std::max(a.size(), b.size())) misfit("c has not the dimensions of a @ b", r);
  if (a.back() != b[b.size() - 2]) misfit("inner sizes differ", r);
  if (c[c.size() - 2] != a[a.size() - 2] || c.back() != b.back()) misfit("c has not the shape of a @ b", r);
  for (size_t back = 3; back <= c.size(); ++back) {
    const int64_t x = back <= a.size() ? a[a.size() - back] : 1,
                  y = back <= b.size() ? b[b.size() - back] : 1;
    if ((x != y && x != 1 && y != 1) || c[c.size() - back] != (x == 1 ? y : x))
      misfit("leading sizes do not broadcast", r);
  }
  if (r.bias &&
      (r.bias->shape.empty() || r.bias->shape.back() != c.back() ||
       std::any_of(r.bias->shape.begin(), r.bias->shape.end() - 1, [](int64_t n) { return n != 1; })))
    misfit("bias must have one number for each column, it is " + describe(*r.bias), r);
  check_post_ops(r.post_ops, c, kWhat);
}

// Whether dimensions d and d + 1 can be seen as one.
bool folds(const Geometry& x, size_t d) {
  return x.shape[d] == 1 || x.shape[d + 1] == 1 || x.strides[d] == x.strides[d + 1] * x.shape[d + 1];
}
void fold(Geometry& x, size_t d) {
  if (x.shape[d + 1] == 1) x.strides[d + 1] = x.strides[d];
  x.shape[d + 1] *= x.shape[d];
  x.shape.erase(x.shape.begin() + static_cast<ptrdiff_t>(d));
  x.strides.erase(x.strides.begin() + static_cast<ptrdiff_t>(d));
}

// Folds c's dimensions d and d + 1 in all that `moving` holds (they follow c) if each can.
bool fold_all(const std::vector<Geometry*>& moving, const Geometry& c, size_t d) {
  const int64_t outer = c.shape[d], inner = c.shape[d + 1];
  for (const Geometry* x : moving) {
    const bool full = x->shape[d] == outer && x->shape[d + 1] == inner;
    const bool single = x->shape[d] == 1 && x->shape[d + 1] == 1;
    if (!single && !(full && folds(*x, d))) return false;
  }
  for (Geometry* x : moving) fold(*x, d);
  return true;
}

// The same product with as few leading dimensions as possible.
Matmul folded(Matmul r) {
  const size_t ndim = r.c.shape.size();
  const bool is_blocked = r.b.any || r.b.layout;
  for (Geometry* x : {&r.a, &r.c}) pad(*x, ndim);
  if (!is_blocked) pad(r.b, ndim);
  std::vector<Geometry*> rows{&r.c, &r.a};  // what has c's dimensions but for the last
  r.post_ops = padded_post_ops(std::move(r.post_ops), ndim);
  for (PostOp& op : r.post_ops)
    if (op.has_operand()) rows.push_back(&op.operand);
  for (Geometry* x : {&r.a, &r.b}) {
    if (x == &r.b && is_blocked) continue;
    for (size_t d = 0; d + 2 < ndim; ++d) {
      if (x->strides[d] == 0) x->shape[d] = 1;
    }
  }
  std::vector<Geometry*> all = rows;
  if (!is_blocked) all.push_back(&r.b);
  for (size_t d = ndim - 2; d-- > 0;) {  // neighbours among the leading dimensions, then the rows
    const size_t last = r.c.shape.size() - 3;
    if (d < last) fold_all(all, r.c, d);
  }
  while (r.c.shape.size() > 2) {
    const size_t d = r.c.shape.size() - 3;
    if (!is_blocked && r.b.shape[d] != 1) break;
    if (!fold_all(rows, r.c, d)) break;
    if (!is_blocked) fold(r.b, d);
  }
  return r;
}

// Whether the columns of x are dense, and not its rows.
bool is_column_major(const Geometry& x) {
  const size_t n = x.shape.size();
  return x.strides[n - 2] == 1 && x.strides[n - 1] != 1 && x.shape[n - 2] > 1 && x.shape[n - 1] > 1;
}
void transpose(Geometry& x) {
  const size_t n = x.shape.size();
  std::swap(x.shape[n - 2], x.shape[n - 1]);
  std::swap(x.strides[n - 2], x.strides[n - 1]);
}

// Where c is column-major, the product that gives its transpose: c^T = b^T a^T. Only elementwise post-ops
// go along, since others name dimensions.
bool transposes(const Matmul& r) {
  return is_column_major(r.c) && !r.bias && !r.b.any && !r.b.layout && count_operands(r.post_ops) == 0;
}

// How a product is given to oneDNN: inputs and result as they are or dense, and the sum with what is in c
// done by oneDNN's code or by the copy of the result.
struct Attempt {
  bool stage_inputs, stage_result, add_late;
};

struct Candidate {
  dnnl::matmul::primitive_desc pd;
  memory::desc a, b, c, bias;
  std::unique_ptr<PostOps> post_ops;
  bool accumulate_late = false;
};

Precision precision_of(const Matmul& r) {
  const bool adds = r.accumulate || (r.bias && r.bias->dtype == DType::int32);
  const bool exact = r.c.dtype == DType::int32 || !r.post_ops.empty();
  return precision_of_product(r.a.dtype, r.b.dtype, r.c.dtype, r.a.shape.back(), exact, adds, r.narrow);
}

// As oneDNN gets it: with its own strides, or dense. What is converted is dense at the same time.
memory::desc operand_desc(const Geometry& x, bool stage, Precision precision) {
  if (x.any || x.layout) return desc_of(computed_in(x, precision));
  const DType dtype = computed_in(x.dtype, precision);
  return stage || dtype != x.dtype ? row_major_desc(dtype, x.shape) : desc_of(x);
}

// What oneDNN makes of the product; pd is empty if nothing.
Candidate attempt(const Matmul& r, Attempt how) {
  const Precision precision = precision_of(r);
  Candidate candidate;
  candidate.a = operand_desc(r.a, how.stage_inputs, precision);
  candidate.b = operand_desc(r.b, how.stage_inputs, precision);
  candidate.c = operand_desc(r.c, how.stage_result, precision);
  candidate.accumulate_late = r.accumulate && (how.add_late || candidate.c != desc_of(r.c));
  candidate.post_ops = std::make_unique<PostOps>(r.post_ops, candidate.c,
                                                 r.accumulate && !candidate.accumulate_late, precision);
  const auto& attributes = candidate.post_ops->attributes;
  if (r.bias) {
    std::vector<int64_t> shape(r.c.shape.size(), 1);
    shape.back() = r.c.shape.back();
    candidate.bias = row_major_desc(computed_in(r.bias->dtype, precision), shape);
  }
  candidate.pd = r.bias ? dnnl::matmul::primitive_desc(engine(), candidate.a, candidate.b, candidate.bias,
                                                       candidate.c, attributes, true)
                        : dnnl::matmul::primitive_desc(engine(), candidate.a, candidate.b, candidate.c,
                                                       attributes, true);
  return candidate;
}

constexpr int64_t kSmall =
    128 * 128 * 128;  // products of one matrix, up to which the code for many is faster

// 0: fast; 1: of many small matrices, a general product for each; 2: reference code.
int slowness(const Matmul& r, const Candidate& candidate) {
  const std::string implementation = candidate.pd.impl_info_str();
  if (is_reference_code(implementation)) return 2;
  const auto& c = r.c.shape;
  const bool many_small = c.size() > 2 && c.back() * c[c.size() - 2] * r.a.shape.back() <= kSmall &&
                          implementation.starts_with("gemm");
  return many_small ? 1 : 0;
}

// The least slow way to do it, the first one of several.
std::pair<Candidate, int> quickest(const Matmul& r) {
  std::pair<Candidate, int> best;
  for (const Attempt how :
       {Attempt{false, false, false}, {true, false, false}, {true, true, false}, {false, false, true}}) {
    if (how.add_late && !r.accumulate) continue;
    Candidate candidate = attempt(r, how);
    if (!candidate.pd) continue;
    const int slow = slowness(r, candidate);
    if (!best.first.pd || slow < best.second) best = {std::move(candidate), slow};
    if (slow == 0) break;
  }
  if (!best.first.pd)
    throw Unsupported("no implementation for " + describe(r.a) + " @ " + describe(r.b) + " -> " +
                      describe(r.c));
  return best;
}

// Throws Unsupported where the product is slower code because of its post-ops: the product without them and a
// loop after it are faster, many times if it is reference code.
Candidate choose(const Matmul& r) {
  auto [best, slow] = quickest(r);
  if (!r.post_ops.empty() && slow > 0) {
    Matmul plain = r;
    plain.post_ops.clear();
    if (quickest(plain).second < slow) refuse_post_ops(r.post_ops, r.c.shape);
  }
  return std::move(best);
}

// Which operand of the request is a, and which b.
struct Order {
  int a = 0, b = 1;
};

std::unique_ptr<Steps> steps_of(const Matmul& r, Order order) {
  Recipe recipe;
  recipe.hold_layout(r.b);
  recipe.set_precision(precision_of(r));
  recipe.next_operand(), recipe.next_operand();
  Candidate candidate = choose(r);
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, candidate.a, recipe.input(order.a, desc_of(r.a), candidate.a)}};
  const memory::desc weights = candidate.pd.weights_desc();
  if (r.b.any || r.b.layout) {
    recipe.set_layout(order.b, weights);
    arguments.push_back({DNNL_ARG_WEIGHTS, weights, Recipe::operand(order.b)});
  } else {
    arguments.push_back({DNNL_ARG_WEIGHTS, weights, recipe.input(order.b, desc_of(r.b), weights)});
  }
  if (r.bias) {
    const int bias = recipe.next_operand();
    std::vector<int64_t> strides(r.c.shape.size(), 0);
    strides.back() = r.bias->strides.back();
    const memory::desc stored = desc_of(r.bias->dtype, {candidate.bias.get_dims()}, strides);
    arguments.push_back({DNNL_ARG_BIAS, candidate.bias, recipe.input(bias, stored, candidate.bias)});
  }
  const int first = recipe.next_operand();
  for (int i = 0; i < count_operands(r.post_ops); ++i) recipe.next_operand();
  candidate.post_ops->add_arguments(recipe, first, arguments);
  const int c = first + count_operands(r.post_ops);
  const Location result =
      recipe.output(c, desc_of(r.c), candidate.c, candidate.accumulate_late, reads_result(r.post_ops));
  arguments.push_back({DNNL_ARG_DST, candidate.c, result});
  recipe.add<dnnl::matmul>(candidate.pd, std::move(arguments));
  return recipe.finish_steps(candidate.pd.impl_info_str());
}

// What the threads of the team compute. Pieces of equal size share their code.
KernelRef in_pieces(const Matmul& r, Order order, const Division& division) {
  std::vector<std::unique_ptr<Steps>> pieces;
  std::unique_ptr<const Steps> steps;
  size_t scratch = 0;
  const int64_t size = r.c.shape[division.dim];
  for (int64_t begin = 0; begin < size; begin += division.grain) {
    const int64_t length = std::min(division.grain, size - begin);
    Piece piece = cut(r, division.dim, begin, length);
    if (order.a > order.b) std::swap(piece.shifts[0], piece.shifts[1]);
    if (!steps || length != division.grain) steps = steps_of(piece.product, order);
    pieces.push_back(steps->shifted(piece.shifts, scratch));
    scratch += pieces.back()->scratch_bytes;
  }
  return make_ref<OnednnKernel>(std::move(pieces));
}

KernelRef build(const Matmul& request) {
  Matmul r = folded(request);
  Order order;
  if (transposes(r)) {
    std::swap(order.a, order.b);
    std::swap(r.a, r.b);
    for (Geometry* x : {&r.a, &r.b, &r.c}) transpose(*x);
  }
  const Division division =
      r.alone ? Division{.width = Division::Width::alone} : divide(r, omp_get_max_threads());
  if (division.width != Division::Width::team)
    return make_for_width(division.width, [&] { return steps_of(r, order); });
  const OpenMpScope alone(1);
  return in_pieces(r, order, division);
}

}  // namespace

KernelRef make_matmul(const Matmul& request) {
  const Matmul r = as_matrices(request);
  check(r);
  return cached(
      Key(kWhat) << r.a << r.b << r.c << r.bias << r.post_ops << r.accumulate << r.alone << r.narrow, kWhat,
      [&] { return build(r); });
}

}  // namespace weft::onednn
