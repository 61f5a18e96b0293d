// lstm.cpp: layers of long short-term memory, one primitive for each layer.
//
// oneDNN stacks layers by itself only where all have inputs of one size, so here each layer is a primitive
// with its output in scratch (for training: in the workspace, which holds oneDNN's own workspace of each
// layer and all outputs but the last). Weights come in the usual [gate, out, in] and are brought into the
// layout that oneDNN chooses; its gate order is the same. The two biases are added.
#include "onednn/cache.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

using tag = memory::format_tag;
using type = memory::data_type;
using forward_pd = dnnl::lstm_forward::primitive_desc;
using backward_pd = dnnl::lstm_backward::primitive_desc;

const char* name_of_request(const Lstm& r) { return r.backward ? "onednn_lstm_backward" : "onednn_lstm"; }

void check(const Lstm& r) {
  const std::string what = name_of_request(r);
  require_strided(r.x, what.c_str(), "src");
  require_strided(r.y, what.c_str(), "dst");
  const int64_t directions = r.bidirectional ? 2 : 1;
  if (r.x.shape.size() != 3 || r.y.shape.size() != 3 || r.x.shape[0] != r.y.shape[0] ||
      r.x.shape[1] != r.y.shape[1] || r.y.shape[2] % directions)
    throw ShapeError(what + ": src [t, n, c] and dst [t, n, directions * h] do not fit: " + describe(r.x) +
                     ", " + describe(r.y));
  if (r.x.dtype != r.y.dtype)
    throw DTypeError(what + ": src and dst need one type: " + describe(r.x) + ", " + describe(r.y));
  if (r.layers < 1) throw ValueError(what + ": at least 1 layer, got " + std::to_string(r.layers));
}

constexpr int64_t kGates = 4;

struct Sizes {
  explicit Sizes(const Lstm& r)
      : t(r.x.shape[0]),
        n(r.x.shape[1]),
        c(r.x.shape[2]),
        d(r.bidirectional ? 2 : 1),
        h(r.y.shape[2] / d),
        layers(r.layers) {}
  int64_t t, n, c, d, h, layers;
  int64_t inputs(int64_t layer) const { return layer == 0 ? c : d * h; }
};

// Weights of `directions` directions as users have them: [direction, gate, out, in], row-major.
memory::desc user_weights(type dtype, int64_t directions, int64_t in, int64_t out) {
  return {{1, directions, in, kGates, out}, dtype, tag::ldgoi};
}

// What one layer is described by.
struct LayerDescs {
  memory::desc x, y, state, cell, w_x, w_h, bias;
  forward_pd forward;
};

class Builder {
 public:
  explicit Builder(const Lstm& request)
      : r_(request),
        s_(request),
        type_(type_of(request.x.dtype)),
        training_(request.training || request.backward) {
    if (type_ == type::f32 || type_ == type::bf16) return;
    throw Unsupported(std::string("no implementation for ") + name_of(r_.x.dtype));
  }

  KernelRef forward() {
    describe_layers();
    forward_operands();
    y_ = recipe_.next_operand();
    hn_ = recipe_.next_operand();
    cn_ = recipe_.next_operand();
    if (training_) workspace_ = recipe_.next_operand();
    place_workspace();
    for (int64_t l = 0; l < s_.layers; ++l) run_forward(l);
    if (training_) tell_workspace();
    return recipe_.finish(layers_[0].forward.impl_info_str());
  }

  KernelRef backward() {
    describe_layers();
    forward_operands();
    for (int* operand : {&y_, &hn_, &cn_, &workspace_, &dy_, &dhn_, &dcn_, &dx_, &dh0_, &dc0_})
      *operand = recipe_.next_operand();
    gradients_ = recipe_.next_operand();
    for (int64_t i = 1; i < s_.layers * s_.d * 4; ++i) recipe_.next_operand();
    place_workspace();
    tell_workspace();
    Place above{};
    std::string implementation;
    for (int64_t l = s_.layers; l-- > 0;) implementation = run_backward(l, above);
    return recipe_.finish(implementation);
  }

 private:
  dnnl::rnn_direction direction() const {
    return r_.bidirectional ? dnnl::rnn_direction::bidirectional_concat
                            : dnnl::rnn_direction::unidirectional_left2right;
  }
  size_t item() const { return type_ == type::f32 ? 4 : 2; }

  memory::desc any_weights(type dtype, int64_t in) const {
    return {{1, s_.d, in, kGates, s_.h}, dtype, tag::any};
  }
  memory::desc sequence(type dtype, int64_t channels) const {
    return {{s_.t, s_.n, channels}, dtype, tag::tnc};
  }
  memory::desc states(type dtype) const { return {{1, s_.d, s_.n, s_.h}, dtype, tag::ldnc}; }

  void describe_layers() {
    const auto kind = training_ ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    for (int64_t l = 0; l < s_.layers; ++l) {
      LayerDescs d{sequence(type_, s_.inputs(l)),
                   sequence(type_, s_.d * s_.h),
                   states(type_),
                   states(type::f32),
                   any_weights(type_, s_.inputs(l)),
                   any_weights(type_, s_.h),
                   {{1, s_.d, kGates, s_.h}, type::f32, tag::ldgo},
                   {}};
      d.forward = {engine(), kind, direction(), d.x,    d.state,           d.cell, d.w_x, d.w_h,
                   d.bias,   d.y,  d.state,     d.cell, plain_attributes()};
      layers_.push_back(std::move(d));
    }
  }

  void forward_operands() {
    x_ = recipe_.next_operand();
    h0_ = recipe_.next_operand();
    c0_ = recipe_.next_operand();
    weights_ = recipe_.next_operand();
    for (int64_t i = 1; i < s_.layers * s_.d * 4; ++i) recipe_.next_operand();
  }

  // Where each layer's own workspace and output lie in the workspace.
  void place_workspace() {
    for (const LayerDescs& d : layers_) {
      workspace_at_.push_back(workspace_bytes_);
      if (training_) workspace_bytes_ += (d.forward.workspace_desc().get_size() + 63) / 64 * 64;
    }
    for (int64_t l = 0; l + 1 < s_.layers; ++l) {
      const size_t bytes = (layers_[static_cast<size_t>(l)].y.get_size() + 63) / 64 * 64;
      if (training_) {
        outputs_.push_back(Recipe::operand(workspace_).at(workspace_bytes_));
        workspace_bytes_ += bytes;
      } else {
        outputs_.push_back(recipe_.scratch(bytes));
      }
    }
  }
  void tell_workspace() {
    recipe_.tell_layout(workspace_, {{static_cast<int64_t>(workspace_bytes_)}, type::u8, tag::a});
  }

  // A layer's part of an operand with states of all layers.
  Place part(int operand, int64_t layer, size_t itemsize) const {
    return Recipe::operand(operand).at(static_cast<size_t>(layer * s_.d * s_.n * s_.h) * itemsize);
  }
  // w_ih, w_hh, b_ih, b_hh of one direction of a layer: which = 0..3, from `first` on.
  int parameter(int first, int64_t layer, int64_t direction, int which) const {
    return first + static_cast<int>((layer * s_.d + direction) * 4) + which;
  }

  Place sequence_input(int operand, const Geometry& given, const memory::desc& wanted) {
    return recipe_.input(operand, desc_of(given), wanted);
  }
  Place layer_input(int64_t l) {
    return l == 0 ? sequence_input(x_, r_.x, layers_[0].x) : outputs_[static_cast<size_t>(l - 1)];
  }

  // Through a row-major copy where oneDNN has no way straight from one layout to the other.
  void convert(const memory::desc& from, Place source, const memory::desc& to, Place target) {
    try {
      recipe_.reorder(from, source, to, target);
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
      const memory::desc between(from.get_dims(), from.get_data_type(), tag::ldigo);
      const Place staged = recipe_.scratch(between);
      recipe_.reorder(from, source, between, staged);
      recipe_.reorder(between, staged, to, target);
    }
  }

  Place weights_input(int64_t layer, int which, int64_t in, const memory::desc& wanted) {
    const memory::desc one = user_weights(type_, 1, in, s_.h), all = user_weights(type_, s_.d, in, s_.h);
    Place source = Recipe::operand(parameter(weights_, layer, 0, which));
    if (s_.d > 1) {
      source = recipe_.scratch(all);
      for (int64_t k = 0; k < s_.d; ++k)
        recipe_.reorder(one, Recipe::operand(parameter(weights_, layer, k, which)), one,
                        source.at(static_cast<size_t>(k) * one.get_size()));
    }
    if (all == wanted) return source;
    const Place converted = recipe_.scratch(wanted);
    convert(all, source, wanted, converted);
    return converted;
  }

  Place bias_input(int64_t layer) {
    const memory::desc one({kGates * s_.h}, type::f32, tag::a);
    const Place sum = recipe_.scratch(static_cast<size_t>(s_.d) * one.get_size());
    for (int64_t k = 0; k < s_.d; ++k) {
      const Place target = sum.at(static_cast<size_t>(k) * one.get_size());
      recipe_.reorder(one, Recipe::operand(parameter(weights_, layer, k, 2)), one, target);
      recipe_.reorder(one, Recipe::operand(parameter(weights_, layer, k, 3)), one, target, true);
    }
    return sum;
  }

  void run_forward(int64_t l) {
    const LayerDescs& d = layers_[static_cast<size_t>(l)];
    const memory::desc w_x = d.forward.weights_layer_desc(), w_h = d.forward.weights_iter_desc();
    const Place y =
        l + 1 < s_.layers ? outputs_[static_cast<size_t>(l)] : recipe_.output(y_, desc_of(r_.y), d.y);
    std::vector<Argument> arguments{{DNNL_ARG_SRC_LAYER, d.x, layer_input(l)},
                                    {DNNL_ARG_SRC_ITER, d.state, part(h0_, l, item())},
                                    {DNNL_ARG_SRC_ITER_C, d.cell, part(c0_, l, 4)},
                                    {DNNL_ARG_WEIGHTS_LAYER, w_x, weights_input(l, 0, s_.inputs(l), w_x)},
                                    {DNNL_ARG_WEIGHTS_ITER, w_h, weights_input(l, 1, s_.h, w_h)},
                                    {DNNL_ARG_BIAS, d.bias, bias_input(l)},
                                    {DNNL_ARG_DST_LAYER, d.y, y},
                                    {DNNL_ARG_DST_ITER, d.state, part(hn_, l, item())},
                                    {DNNL_ARG_DST_ITER_C, d.cell, part(cn_, l, 4)}};
    if (training_)
      arguments.push_back({DNNL_ARG_WORKSPACE, d.forward.workspace_desc(),
                           Recipe::operand(workspace_).at(workspace_at_[static_cast<size_t>(l)])});
    recipe_.add<dnnl::lstm_forward>(d.forward, std::move(arguments));
  }

  // A gradient of weights in oneDNN's layout, to those of each direction.
  void weights_output(int64_t layer, int which, int64_t in, const memory::desc& from, Place source) {
    const memory::desc one = user_weights(type::f32, 1, in, s_.h),
                       all = user_weights(type::f32, s_.d, in, s_.h);
    if (s_.d == 1) return convert(from, source, one, Recipe::operand(parameter(gradients_, layer, 0, which)));
    Place staged = source;
    if (from != all) {
      staged = recipe_.scratch(all);
      convert(from, source, all, staged);
    }
    for (int64_t k = 0; k < s_.d; ++k)
      recipe_.reorder(one, staged.at(static_cast<size_t>(k) * one.get_size()), one,
                      Recipe::operand(parameter(gradients_, layer, k, which)));
  }

  void bias_output(int64_t layer, Place source) {
    const memory::desc one({kGates * s_.h}, type::f32, tag::a);
    for (int64_t k = 0; k < s_.d; ++k) {
      for (const int which : {2, 3})
        recipe_.reorder(one, source.at(static_cast<size_t>(k) * one.get_size()), one,
                        Recipe::operand(parameter(gradients_, layer, k, which)));
    }
  }

  Place cleared(const memory::desc& desc) {  // oneDNN adds to gradients of weights
    const Place place = recipe_.scratch(desc);
    recipe_.clear(desc, place);
    return place;
  }

  // `above`: the gradient of this layer's output if there is a layer above, then that of its input.
  std::string run_backward(int64_t l, Place& above) {
    const LayerDescs& d = layers_[static_cast<size_t>(l)];
    const memory::desc dx = sequence(type::f32, s_.inputs(l)), dy = sequence(type::f32, s_.d * s_.h),
                       dstate = states(type::f32), dw_x_any = any_weights(type::f32, s_.inputs(l)),
                       dw_h_any = any_weights(type::f32, s_.h);
    const backward_pd pd(engine(), dnnl::prop_kind::backward, direction(), d.x, d.state, d.cell, d.w_x, d.w_h,
                         d.bias, d.y, d.state, d.cell, dx, dstate, dstate, dw_x_any, dw_h_any, d.bias, dy,
                         dstate, dstate, d.forward, plain_attributes());
    const bool first = l == 0, last = l + 1 == s_.layers;
    Geometry x = r_.x, y = r_.y;
    x.dtype = y.dtype = DType::float32;
    const memory::desc w_x = pd.weights_layer_desc(), w_h = pd.weights_iter_desc();
    const memory::desc dw_x = pd.diff_weights_layer_desc(), dw_h = pd.diff_weights_iter_desc();
    const Place input = layer_input(l);
    const Place output = last ? sequence_input(y_, r_.y, d.y) : outputs_[static_cast<size_t>(l)];
    const Place dy_place = last ? sequence_input(dy_, y, dy) : above;
    const Place dx_place = first ? recipe_.output(dx_, desc_of(x), dx) : recipe_.scratch(dx);
    const Place dw_x_place = cleared(dw_x), dw_h_place = cleared(dw_h), db_place = cleared(d.bias);
    recipe_.add<dnnl::lstm_backward>(pd,
                                     {{DNNL_ARG_SRC_LAYER, d.x, input},
                                      {DNNL_ARG_SRC_ITER, d.state, part(h0_, l, item())},
                                      {DNNL_ARG_SRC_ITER_C, d.cell, part(c0_, l, 4)},
                                      {DNNL_ARG_WEIGHTS_LAYER, w_x, weights_input(l, 0, s_.inputs(l), w_x)},
                                      {DNNL_ARG_WEIGHTS_ITER, w_h, weights_input(l, 1, s_.h, w_h)},
                                      {DNNL_ARG_BIAS, d.bias, bias_input(l)},
                                      {DNNL_ARG_DST_LAYER, d.y, output},
                                      {DNNL_ARG_DST_ITER, d.state, part(hn_, l, item())},
                                      {DNNL_ARG_DST_ITER_C, d.cell, part(cn_, l, 4)},
                                      {DNNL_ARG_WORKSPACE, d.forward.workspace_desc(),
                                       Recipe::operand(workspace_).at(workspace_at_[static_cast<size_t>(l)])},
                                      {DNNL_ARG_DIFF_DST_LAYER, dy, dy_place},
                                      {DNNL_ARG_DIFF_DST_ITER, dstate, part(dhn_, l, 4)},
                                      {DNNL_ARG_DIFF_DST_ITER_C, dstate, part(dcn_, l, 4)},
                                      {DNNL_ARG_DIFF_SRC_LAYER, dx, dx_place},
                                      {DNNL_ARG_DIFF_SRC_ITER, dstate, part(dh0_, l, 4)},
                                      {DNNL_ARG_DIFF_SRC_ITER_C, dstate, part(dc0_, l, 4)},
                                      {DNNL_ARG_DIFF_WEIGHTS_LAYER, dw_x, dw_x_place},
                                      {DNNL_ARG_DIFF_WEIGHTS_ITER, dw_h, dw_h_place},
                                      {DNNL_ARG_DIFF_BIAS, d.bias, db_place}});
    weights_output(l, 0, s_.inputs(l), dw_x, dw_x_place);
    weights_output(l, 1, s_.h, dw_h, dw_h_place);
    bias_output(l, db_place);
    above = dx_place;
    return pd.impl_info_str();
  }

  const Lstm& r_;
  const Sizes s_;
  const type type_;
  const bool training_;
  Recipe recipe_;
  std::vector<LayerDescs> layers_;
  std::vector<size_t> workspace_at_;  // by layer
  std::vector<Place> outputs_;        // by layer, but for the last
  size_t workspace_bytes_ = 0;
  int x_ = 0, h0_ = 0, c0_ = 0, weights_ = 0, y_ = 0, hn_ = 0, cn_ = 0, workspace_ = 0;
  int dy_ = 0, dhn_ = 0, dcn_ = 0, dx_ = 0, dh0_ = 0, dc0_ = 0, gradients_ = 0;
};

}  // namespace

KernelRef make_lstm(const Lstm& r) {
  check(r);
  Key key(name_of_request(r));
  key << r.x << r.y << r.layers << r.bidirectional << r.training;
  return cached(key, name_of_request(r), [&] {
    Builder builder(r);
    return r.backward ? builder.backward() : builder.forward();
  });
}

}  // namespace weft::onednn
