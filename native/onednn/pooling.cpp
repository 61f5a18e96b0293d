// pooling.cpp: maxima and averages over windows.
//
// The workspace of a maximum (which element won) depends on the layouts that the forward kernel worked in. So
// the backward kernel gets those, works in them, and reorders gradients with other strides.
#include <omp.h>

#include <algorithm>

#include "onednn/cache.h"
#include "onednn/division.h"
#include "onednn/recipe.h"

namespace weft::onednn {

const char* name_of_pooling(bool backward) { return backward ? "onednn_pooling_backward" : "onednn_pooling"; }

namespace {

dnnl::algorithm algorithm_of(Pooling::Kind kind) {
  switch (kind) {
    case Pooling::Kind::max:
      return dnnl::algorithm::pooling_max;
    case Pooling::Kind::average:
      return dnnl::algorithm::pooling_avg_exclude_padding;
    default:
      return dnnl::algorithm::pooling_avg_include_padding;
  }
}

void check(const Pooling& r) {
  const char* what = name_of_pooling(r.backward);
  for (const Geometry* x : {&r.x, &r.y, &r.dx, &r.dy}) require_strided(*x, what, "an operand");
  const size_t ndim = r.x.shape.size(), spatial = ndim - 2;
  if (ndim < 3 || ndim > 5 || r.y.shape.size() != ndim || r.x.shape[0] != r.y.shape[0] ||
      r.x.shape[1] != r.y.shape[1])
    throw ShapeError(std::string(what) + ": src " + describe(r.x) + " and dst " + describe(r.y) +
                     " need the same 3 to 5 dimensions, batch and channels");
  check_window(r.window, spatial, what);
  if (r.size.size() != spatial || std::any_of(r.size.begin(), r.size.end(), [](int64_t n) { return n < 1; }))
    throw ValueError(std::string(what) + ": window needs " + std::to_string(spatial) + " positive numbers");
  for (size_t d = 0; d < spatial; ++d) {
    if (r.y.shape[d + 2] != windows(r.window, d, r.x.shape[d + 2], r.size[d]))
      throw ShapeError(std::string(what) + ": spatial size " + std::to_string(d) + " of dst " +
                       describe(r.y) + " does not follow from src " + describe(r.x));
  }
  if (r.backward && (r.dx.shape != r.x.shape || r.dy.shape != r.y.shape))
    throw ShapeError(std::string(what) + ": gradients have other shapes than what they are of: " +
                     describe(r.dx) + ", " + describe(r.dy));
}

using forward_pd = dnnl::pooling_forward::primitive_desc;

struct Forward {
  forward_pd pd;
  memory::desc x, y;
};

// oneDNN 3.2 spoils the gradient of a maximum in bfloat16 where the workspace holds 32-bit numbers, which it
// does for windows of 256 elements and more. Those are computed in float32.
DType computed_in(const Pooling& r, const Geometry& x) {
  int64_t elements = 1;
  for (const int64_t n : r.size) elements *= n;
  const bool is_wrong = r.kind == Pooling::Kind::max && elements >= 256 && x.dtype == DType::bfloat16;
  return is_wrong ? DType::float32 : computed_in(x.dtype, precision_of({r.x.dtype, r.y.dtype}));
}

// Always the same for the same request, so that both passes agree on the workspace.
Forward choose(const Pooling& r, bool training) {
  const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const DnnlWindow w = as_dnnl(r.window);
  Geometry from = r.x, to = r.y;
  from.dtype = computed_in(r, r.x);
  to.dtype = computed_in(r, r.y);
  Forward best;
  for (const bool stage : {false, true}) {
    const memory::desc x = stage ? channels_last_desc(from) : activation_desc(from);
    const memory::desc y = stage ? channels_last_desc(to) : activation_desc(to);
    forward_pd pd(engine(), kind, algorithm_of(r.kind), x, y, w.stride, r.size, w.dilation, w.low, w.high,
                  plain_attributes(), true);
    if (!pd) continue;
    best = {pd, x, y};  // the reference code, too, is better staged: in bfloat16 it fails on arrays with gaps
    if (!is_reference_code(pd.impl_info_str())) break;
  }
  if (!best.pd) throw Unsupported("no implementation for " + describe(r.x) + " -> " + describe(r.y));
  return best;
}

std::unique_ptr<Steps> forward(const Pooling& r) {
  const Forward f = choose(r, r.training);
  Recipe recipe;
  recipe.set_precision(precision_of({r.x.dtype, r.y.dtype}));
  const int x = recipe.next_operand(), y = recipe.next_operand();
  std::vector<Argument> arguments{{DNNL_ARG_SRC, f.x, recipe.input(x, activation_desc(r.x), f.x)},
                                  {DNNL_ARG_DST, f.y, recipe.output(y, activation_desc(r.y), f.y)}};
  if (r.training && r.kind == Pooling::Kind::max) {
    const int workspace = recipe.next_operand();
    recipe.set_layout(workspace, f.pd.workspace_desc());
    arguments.push_back({DNNL_ARG_WORKSPACE, f.pd.workspace_desc(), Recipe::operand(workspace)});
  }
  recipe.add<dnnl::pooling_forward>(f.pd, std::move(arguments));
  return recipe.finish_steps(f.pd.impl_info_str());
}

std::unique_ptr<Steps> backward(const Pooling& r) {
  const Forward f = choose(r, true);
  const DnnlWindow w = as_dnnl(r.window);
  const memory::desc dx(f.x.get_dims(), type_of(computed_in(r, r.dx)), f.x.get_strides());
  const memory::desc dy(f.y.get_dims(), type_of(computed_in(r, r.dy)), f.y.get_strides());
  const dnnl::pooling_backward::primitive_desc pd(engine(), algorithm_of(r.kind), dx, dy, w.stride, r.size,
                                                  w.dilation, w.low, w.high, f.pd, plain_attributes());
  Recipe recipe;
  recipe.set_precision(precision_of({r.x.dtype, r.y.dtype}));
  const int from = recipe.next_operand();
  std::vector<Argument> arguments{{DNNL_ARG_DIFF_DST, dy, recipe.input(from, activation_desc(r.dy), dy)}};
  if (r.kind == Pooling::Kind::max) {
    const int workspace = recipe.next_operand();
    recipe.set_layout(workspace, pd.workspace_desc());
    arguments.push_back({DNNL_ARG_WORKSPACE, pd.workspace_desc(), Recipe::operand(workspace)});
  }
  const int to = recipe.next_operand();
  arguments.push_back({DNNL_ARG_DIFF_SRC, dx, recipe.output(to, activation_desc(r.dx), dx)});
  recipe.add<dnnl::pooling_backward>(pd, std::move(arguments));
  return recipe.finish_steps(pd.impl_info_str());
}

// On one thread: a window's elements come from the cache, by the vector.
double time_ns(const Pooling& r) {
  double bytes_read = static_cast<double>(activation_desc(r.y).get_size());
  for (const int64_t n : r.size) bytes_read *= static_cast<double>(n);
  return copying_ns(activation_desc(r.x).get_size()) + bytes_read / 32;
}

}  // namespace

KernelRef make_pooling(const Pooling& r) {
  check(r);
  Key key(name_of_pooling(r.backward));
  key << r.kind << r.training << r.x << r.y << r.size << r.window;
  if (r.backward) key << r.dx << r.dy;
  return cached(key, name_of_pooling(r.backward), [&] {
    return make_for_width(width_of(time_ns(r), omp_get_max_threads()),
                          [&] { return r.backward ? backward(r) : forward(r); });
  });
}

}  // namespace weft::onednn
