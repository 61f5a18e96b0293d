// normalization.cpp: batch and layer normalization.
#include "onednn/cache.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

using flags = dnnl::normalization_flags;

void check_same_shapes(const char* what, std::initializer_list<const Geometry*> arrays, size_t least) {
  const Geometry& first = **arrays.begin();
  for (const Geometry* x : arrays) {
    require_strided(*x, what, "an operand");
    if (x->shape != first.shape)
      throw ShapeError(std::string(what) + ": shapes differ: " + describe(first) + ", " + describe(*x));
  }
  if (first.shape.size() < least || first.shape.size() > 5)
    throw ShapeError(std::string(what) + ": needs " + std::to_string(least) + " to 5 dimensions, got " +
                     describe(first));
}

// The descriptors for oneDNN, whose arrays are converted if need be.
template <class Request>
Precision precision_of(const Request& r) {
  return r.backward ? onednn::precision_of({r.x.dtype, r.y.dtype, r.dx.dtype})
                    : onednn::precision_of({r.x.dtype, r.y.dtype});
}
template <class Request>
Request as_computed(Request r) {
  const Precision precision = precision_of(r);
  for (Geometry* x : {&r.x, &r.y, &r.dx}) *x = computed_in(*x, precision);
  return r;
}

// -- batch normalization --

flags flags_of(const BatchNorm& r) {
  flags result = flags::none;
  if (r.affine) result |= flags::use_scale | flags::use_shift;
  if (!r.training) result |= flags::use_global_stats;
  if (r.relu) result |= flags::fuse_norm_relu;
  return result;
}

using batch_pd = dnnl::batch_normalization_forward::primitive_desc;

struct BatchForward {
  batch_pd pd;
  memory::desc layout;  // x's, and in it everything of x's shape
};

BatchForward choose(const BatchNorm& r) {
  const bool training = r.training || r.backward;
  const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  BatchForward best;
  for (const bool stage : {false, true}) {
    const memory::desc layout = stage ? channels_last_desc(r.x) : activation_desc(r.x);
    batch_pd pd(engine(), kind, layout, like(layout, r.y.dtype), r.epsilon, flags_of(r), plain_attributes(),
                true);
    if (!pd || (best.pd && is_reference_code(pd.impl_info_str()))) continue;
    best = {pd, layout};
    if (!is_reference_code(pd.impl_info_str())) break;
  }
  if (!best.pd) throw Unsupported("no implementation for " + describe(r.x));
  return best;
}

KernelRef forward(const BatchNorm& request) {
  const BatchNorm r = as_computed(request);
  const BatchForward f = choose(r);
  const memory::desc y = like(f.layout, r.y.dtype);
  const memory::desc channels = row_major_desc(DType::float32, {r.x.shape[1]});
  Recipe recipe;
  recipe.set_precision(precision_of(request));
  std::vector<Argument> arguments;
  const auto direct = [&](int name) {
    arguments.push_back({name, channels, Recipe::operand(recipe.next_operand())});
  };
  arguments.push_back(
      {DNNL_ARG_SRC, f.layout, recipe.input(recipe.next_operand(), activation_desc(request.x), f.layout)});
  if (r.affine) direct(DNNL_ARG_SCALE), direct(DNNL_ARG_SHIFT);
  if (!r.training) direct(DNNL_ARG_MEAN), direct(DNNL_ARG_VARIANCE);
  arguments.push_back({DNNL_ARG_DST, y, recipe.output(recipe.next_operand(), activation_desc(request.y), y)});
  if (r.training) direct(DNNL_ARG_MEAN), direct(DNNL_ARG_VARIANCE);
  if (r.training && r.relu) {
    const int workspace = recipe.next_operand();
    recipe.set_layout(workspace, f.pd.workspace_desc());
    arguments.push_back({DNNL_ARG_WORKSPACE, f.pd.workspace_desc(), Recipe::operand(workspace)});
  }
  recipe.add<dnnl::batch_normalization_forward>(f.pd, std::move(arguments));
  return recipe.finish(f.pd.impl_info_str());
}

KernelRef backward(const BatchNorm& request) {
  const BatchNorm r = as_computed(request);
  const BatchForward f = choose(r);
  const memory::desc dy = like(f.layout, r.y.dtype), dx = like(f.layout, r.dx.dtype);
  const memory::desc channels = row_major_desc(DType::float32, {r.x.shape[1]});
  const auto kind = r.affine ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data;
  const dnnl::batch_normalization_backward::primitive_desc pd(engine(), kind, dx, dy, f.layout, r.epsilon,
                                                              flags_of(r), f.pd, plain_attributes());
  Recipe recipe;
  recipe.set_precision(precision_of(request));
  std::vector<Argument> arguments;
  const auto direct = [&](int name) {
    arguments.push_back({name, channels, Recipe::operand(recipe.next_operand())});
  };
  arguments.push_back(
      {DNNL_ARG_SRC, f.layout, recipe.input(recipe.next_operand(), activation_desc(request.x), f.layout)});
  arguments.push_back(
      {DNNL_ARG_DIFF_DST, dy, recipe.input(recipe.next_operand(), activation_desc(request.y), dy)});
  if (r.affine) direct(DNNL_ARG_SCALE);
  direct(DNNL_ARG_MEAN);
  direct(DNNL_ARG_VARIANCE);
  if (r.relu) {
    const int workspace = recipe.next_operand();
    recipe.set_layout(workspace, pd.workspace_desc());
    arguments.push_back({DNNL_ARG_WORKSPACE, pd.workspace_desc(), Recipe::operand(workspace)});
  }
  arguments.push_back(
      {DNNL_ARG_DIFF_SRC, dx, recipe.output(recipe.next_operand(), activation_desc(request.dx), dx)});
  if (r.affine) direct(DNNL_ARG_DIFF_SCALE), direct(DNNL_ARG_DIFF_SHIFT);
  recipe.add<dnnl::batch_normalization_backward>(pd, std::move(arguments));
  return recipe.finish(pd.impl_info_str());
}

// -- layer normalization --

flags flags_of(const LayerNorm& r) { return r.affine ? flags::use_scale | flags::use_shift : flags::none; }

struct LayerForward {
  dnnl::layer_normalization_forward::primitive_desc pd;
  memory::desc x, y, statistics, scale;
};

// Rows must be dense for the fast code; others go through row-major copies.
LayerForward choose(const LayerNorm& r) {
  const bool training = r.training || r.backward;
  const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  LayerForward f;
  f.x = row_major_desc(r.x.dtype, r.x.shape);
  f.y = row_major_desc(r.y.dtype, r.x.shape);
  f.statistics = row_major_desc(DType::float32, {r.x.shape.begin(), r.x.shape.end() - 1});
  f.scale = row_major_desc(r.scale_dtype, {r.x.shape.back()});
  f.pd = {engine(), kind, f.x, f.y, f.statistics, r.epsilon, flags_of(r), plain_attributes(), true};
  if (!f.pd) throw Unsupported("no implementation for " + describe(r.x) + " -> " + describe(r.y));
  return f;
}

KernelRef forward(const LayerNorm& request) {
  const LayerNorm r = as_computed(request);
  const LayerForward f = choose(r);
  // oneDNN 3.2 has scale and shift in float32 only.
  const memory::desc scale = row_major_desc(DType::float32, {r.x.shape.back()});
  Recipe recipe;
  recipe.set_precision(precision_of(request));
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, f.x, recipe.input(recipe.next_operand(), desc_of(request.x), f.x)}};
  if (r.affine) {
    arguments.push_back({DNNL_ARG_SCALE, scale, recipe.input(recipe.next_operand(), f.scale, scale)});
    arguments.push_back({DNNL_ARG_SHIFT, scale, recipe.input(recipe.next_operand(), f.scale, scale)});
  }
  arguments.push_back({DNNL_ARG_DST, f.y, recipe.output(recipe.next_operand(), desc_of(request.y), f.y)});
  if (r.training) {
    arguments.push_back({DNNL_ARG_MEAN, f.statistics, Recipe::operand(recipe.next_operand())});
    arguments.push_back({DNNL_ARG_VARIANCE, f.statistics, Recipe::operand(recipe.next_operand())});
  }
  recipe.add<dnnl::layer_normalization_forward>(f.pd, std::move(arguments));
  return recipe.finish(f.pd.impl_info_str());
}

KernelRef backward(const LayerNorm& request) {
  const LayerNorm r = as_computed(request);
  const LayerForward f = choose(r);
  const memory::desc scale = row_major_desc(DType::float32, {r.x.shape.back()});
  const memory::desc dx = row_major_desc(r.dx.dtype, r.x.shape);
  const auto kind = r.affine ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data;
  const dnnl::layer_normalization_backward::primitive_desc pd(
      engine(), kind, dx, f.y, f.x, f.statistics, r.epsilon, flags_of(r), f.pd, plain_attributes());
  Recipe recipe;
  recipe.set_precision(precision_of(request));
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, f.x, recipe.input(recipe.next_operand(), desc_of(request.x), f.x)}};
  arguments.push_back({DNNL_ARG_DIFF_DST, f.y, recipe.input(recipe.next_operand(), desc_of(request.y), f.y)});
  if (r.affine) {
    const Location location = recipe.input(recipe.next_operand(), f.scale, scale);
    arguments.push_back({DNNL_ARG_SCALE, scale, location});
    arguments.push_back({DNNL_ARG_SHIFT, scale, location});  // oneDNN 3.2 counts it among the inputs, unread
  }
  arguments.push_back({DNNL_ARG_MEAN, f.statistics, Recipe::operand(recipe.next_operand())});
  arguments.push_back({DNNL_ARG_VARIANCE, f.statistics, Recipe::operand(recipe.next_operand())});
  arguments.push_back({DNNL_ARG_DIFF_SRC, dx, recipe.output(recipe.next_operand(), desc_of(request.dx), dx)});
  if (r.affine) {
    for (const int name : {DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT})
      arguments.push_back({name, scale, recipe.output(recipe.next_operand(), f.scale, scale)});
  }
  recipe.add<dnnl::layer_normalization_backward>(pd, std::move(arguments));
  return recipe.finish(pd.impl_info_str());
}

}  // namespace

KernelRef make_batch_norm(const BatchNorm& r) {
  const char* what = r.backward ? "onednn_batch_norm_backward" : "onednn_batch_norm";
  if (r.backward)
    check_same_shapes(what, {&r.x, &r.y, &r.dx}, 2);
  else
    check_same_shapes(what, {&r.x, &r.y}, 2);
  if (r.backward && r.relu && !r.training)
    throw ValueError(std::string(what) + ": relu has a gradient only with training=True");
  Key key(what);
  key << r.x << r.y << r.training << r.affine << r.relu << r.epsilon;
  if (r.backward) key << r.dx;
  return cached(key, what, [&] { return r.backward ? backward(r) : forward(r); });
}

KernelRef make_layer_norm(const LayerNorm& r) {
  const char* what = r.backward ? "onednn_layer_norm_backward" : "onednn_layer_norm";
  if (r.backward)
    check_same_shapes(what, {&r.x, &r.y, &r.dx}, 2);
  else
    check_same_shapes(what, {&r.x, &r.y}, 2);
  Key key(what);
  key << r.x << r.y << r.training << r.affine << r.scale_dtype << r.epsilon;
  if (r.backward) key << r.dx;
  return cached(key, what, [&] { return r.backward ? backward(r) : forward(r); });
}

}  // namespace weft::onednn
