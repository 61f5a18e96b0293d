// softmax.cpp: softmax and its logarithm.
#include "onednn/cache.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

dnnl::algorithm algorithm_of(const Softmax& r) {
  return r.log ? dnnl::algorithm::softmax_log : dnnl::algorithm::softmax_accurate;
}

Precision precision_of(const Softmax& r) {
  return r.backward ? onednn::precision_of({r.y.dtype, r.dy.dtype, r.dx.dtype})
                    : onednn::precision_of({r.x.dtype, r.y.dtype});
}

// The descriptors for oneDNN, whose arrays are converted if need be.
Softmax as_computed(Softmax r) {
  const Precision precision = precision_of(r);
  for (Geometry* x : {&r.x, &r.y, &r.dy, &r.dx}) *x = computed_in(*x, precision);
  return r;
}

// oneDNN's fast code needs the same layout of all arrays: that of x, else row-major.
struct ForwardPlan {
  dnnl::softmax_forward::primitive_desc forward;
  memory::desc layout;
};

ForwardPlan choose(const Softmax& r) {
  const Geometry& array = r.backward ? r.y : r.x;
  const DType from = r.backward ? r.dx.dtype : r.x.dtype;
  const auto kind = r.backward ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  ForwardPlan best;
  for (const bool stage : {false, true}) {
    const memory::desc layout = stage ? row_major_desc(array.dtype, array.shape) : desc_of(array);
    dnnl::softmax_forward::primitive_desc pd(engine(), kind, algorithm_of(r), like(layout, from),
                                             like(layout, r.y.dtype), r.axis, plain_attributes(), true);
    if (!pd || (best.forward && is_reference_code(pd.impl_info_str()))) continue;
    best = {pd, layout};
    if (!is_reference_code(pd.impl_info_str())) break;
  }
  if (!best.forward) throw Unsupported("no implementation for " + describe(array));
  return best;
}

KernelRef forward(const Softmax& request) {
  const Softmax r = as_computed(request);
  const ForwardPlan plan = choose(r);
  const memory::desc x = like(plan.layout, r.x.dtype), y = like(plan.layout, r.y.dtype);
  Recipe recipe;
  recipe.set_precision(precision_of(request));
  const int from = recipe.next_operand(), to = recipe.next_operand();
  recipe.add<dnnl::softmax_forward>(plan.forward,
                                    {{DNNL_ARG_SRC, x, recipe.input(from, desc_of(request.x), x)},
                                     {DNNL_ARG_DST, y, recipe.output(to, desc_of(request.y), y)}});
  return recipe.finish(plan.forward.impl_info_str());
}

KernelRef backward(const Softmax& request) {
  const Softmax r = as_computed(request);
  const ForwardPlan plan = choose(r);
  const memory::desc y = like(plan.layout, r.y.dtype), dy = like(plan.layout, r.dy.dtype),
                     dx = like(plan.layout, r.dx.dtype);
  const dnnl::softmax_backward::primitive_desc pd(engine(), algorithm_of(r), dx, dy, y, r.axis, plan.forward,
                                                  plain_attributes());
  Recipe recipe;
  recipe.set_precision(precision_of(request));
  const int result = recipe.next_operand(), from = recipe.next_operand(), to = recipe.next_operand();
  recipe.add<dnnl::softmax_backward>(pd,
                                     {{DNNL_ARG_DST, y, recipe.input(result, desc_of(request.y), y)},
                                      {DNNL_ARG_DIFF_DST, dy, recipe.input(from, desc_of(request.dy), dy)},
                                      {DNNL_ARG_DIFF_SRC, dx, recipe.output(to, desc_of(request.dx), dx)}});
  return recipe.finish(pd.impl_info_str());
}

}  // namespace

KernelRef make_softmax(const Softmax& request) {
  const char* what = request.backward ? "onednn_softmax_backward" : "onednn_softmax";
  Softmax r = request;
  const std::vector<const Geometry*> arrays = r.backward ? std::vector<const Geometry*>{&r.y, &r.dy, &r.dx}
                                                         : std::vector<const Geometry*>{&r.x, &r.y};
  for (const Geometry* x : arrays) {
    require_strided(*x, what, "an operand");
    if (x->shape != r.y.shape)
      throw ShapeError(std::string(what) + ": shapes differ: " + describe(*x) + ", " + describe(r.y));
  }
  const int ndim = static_cast<int>(r.y.shape.size());
  if (r.axis < -ndim || r.axis >= ndim)
    throw ShapeError(std::string(what) + ": no axis " + std::to_string(r.axis) + " in " + describe(r.y));
  if (r.axis < 0) r.axis += ndim;
  Key key(what);
  key << r.log << r.axis;
  for (const Geometry* x : arrays) key << *x;
  return cached(key, what, [&] { return r.backward ? backward(r) : forward(r); });
}

}  // namespace weft::onednn
