// convolution.cpp: convolutions and their gradients.
//
// Weights take the layout that oneDNN likes best: from a caller's strides by a reorder in each run, or as
// they are if the caller holds them in that layout. Activations stay where they are unless only slow code
// would take them; then they go through copies in scratch memory, channels last or in blocks.
#include <omp.h>

#include <algorithm>

#include "onednn/byte_convolution.h"
#include "onednn/cache.h"
#include "onednn/division.h"
#include "onednn/recipe.h"

namespace weft::onednn {

using Pass = Convolution::Pass;

const char* name_of_pass(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "onednn_convolution";
    case Pass::data:
      return "onednn_convolution_backward_data";
    default:
      return "onednn_convolution_backward_weights";
  }
}

namespace {

[[noreturn]] void misfit(const std::string& why, const Convolution& r) {
  throw ShapeError(std::string(name_of_pass(r.pass)) + ": " + why + ": src is " + describe(r.x) +
                   ", weights are " + describe(r.w) + ", dst is " + describe(r.y));
}

// [out, in / groups, ...], of chosen layouts, too.
std::vector<int64_t> weight_sizes(const Convolution& r) {
  if (!r.w.layout) return r.w.shape;
  std::vector<int64_t> sizes = r.w.layout->desc.get_dims();
  if (r.groups > 1 && sizes.size() > 1) {
    sizes[1] *= sizes[0];
    sizes.erase(sizes.begin());
  }
  return sizes;
}

void check(const Convolution& r) {
  const char* what = name_of_pass(r.pass);
  require_strided(r.x, what, "src");
  require_strided(r.y, what, "dst");
  if (r.bias) require_strided(*r.bias, what, "bias");
  const size_t ndim = r.x.shape.size(), spatial = ndim - 2;
  if (ndim < 3 || ndim > 5 || r.y.shape.size() != ndim)
    misfit("src and dst need the same 3 to 5 dimensions", r);
  check_window(r.window, spatial, what);
  if (r.groups < 1 || r.x.shape[1] % r.groups || r.y.shape[1] % r.groups)
    misfit(std::to_string(r.groups) + " groups do not divide the channels", r);
  if (r.x.shape[0] != r.y.shape[0]) misfit("batch sizes differ", r);
  const std::vector<int64_t> w = weight_sizes(r);
  if (w.size() != ndim) misfit("weights need the dimensions of src", r);
  if (w[0] != r.y.shape[1] || w[1] * r.groups != r.x.shape[1])
    misfit("weights are not [out, in / groups, ...]", r);
  for (size_t d = 0; d < spatial; ++d) {
    if (r.y.shape[d + 2] != windows(r.window, d, r.x.shape[d + 2], w[d + 2]))
      misfit("spatial size " + std::to_string(d) + " of dst does not follow from the others", r);
  }
  if (r.bias && (r.bias->shape.size() != 1 || r.bias->shape[0] != r.y.shape[1]))
    misfit("bias must have one number for each channel of dst, it is " + describe(*r.bias), r);
  check_post_ops(r.post_ops, r.y.shape, what);
}

// [groups, out / groups, in / groups, ...] where there are groups.
Geometry grouped(const Geometry& w, int64_t groups) {
  if (groups == 1 || w.layout) return w;
  Geometry split = w;
  split.shape[0] /= groups;
  split.shape.insert(split.shape.begin(), groups);
  if (!w.any) split.strides.insert(split.strides.begin(), w.strides[0] * split.shape[1]);
  return split;
}

// The descriptor of the weights for oneDNN: in the caller's chosen layout, or in any.
memory::desc weights_desc(const Geometry& w) {
  return w.layout ? w.layout->desc : any_desc(w.dtype, w.shape);
}

struct Descs {
  memory::desc x, w, y, bias;
};

class Builder {
 public:
  explicit Builder(const Convolution& request)
      : r_(request),
        w_(grouped(request.w, request.groups)),
        window_(as_dnnl(request.window)),
        precision_(precision_of_request()),
        post_ops_(request.post_ops) {
    take_own_steps();
  }

  std::unique_ptr<Steps> build() {
    switch (r_.pass) {
      case Pass::forward:
        return forward();
      case Pass::data:
        return data();
      default:
        return weights();
    }
  }

 private:
  using forward_pd = dnnl::convolution_forward::primitive_desc;
  static constexpr auto kDirect = dnnl::algorithm::convolution_direct;

  // How oneDNN gets activations: as they are, or copied.
  enum class Staging : uint8_t { none, channels_last, blocked };

  memory::desc staged(const Geometry& array, Staging how) const {
    const Geometry x = computed_in(array, precision_);
    switch (how) {
      case Staging::none:
        return activation_desc(x);
      case Staging::channels_last:
        return channels_last_desc(x);
      default:
        return {x.shape, type_of(x.dtype), memory::format_tag::nChw16c};
    }
  }

  // Gradients of float32 weights are faster over blocks of 16 channels where the window moves by more than
  // one, though both activations are copied (docs/design/onednn.md).
  bool prefers_blocks() const {
    const auto above_one = [](int64_t n) { return n > 1; };
    const std::vector<int64_t> w = weight_sizes(r_);
    return r_.pass == Pass::weights && dtype() == DType::float32 && w.size() == 4 && r_.groups == 1 &&
           w[0] % 16 == 0 && w[1] % 16 == 0 && std::ranges::any_of(r_.window.stride, above_one) &&
           std::any_of(w.begin() + 2, w.end(), above_one);
  }

  // oneDNN multiplies sums of bytes by a number for each channel and adds another with less code than
  // post-ops take, and storing bytes rounds to even and saturates. So the first post-ops become its scale and
  // bias, and the last ones are left out where storing does the same. The operations and their order stay.
  void take_own_steps() {
    if (r_.pass != Pass::forward || r_.bias || r_.accumulate || precision_ != Precision::native ||
        !is_byte(r_.x.dtype))
      return;
    const auto take = [&](const char* kind, std::optional<Geometry>& numbers) {
      if (post_ops_.empty() || post_ops_.front().kind != kind) return false;
      const Geometry& x = post_ops_.front().operand;
      if (!is_by_channel(x, r_.y) || x.shape[1] != r_.y.shape[1]) return false;
      numbers = x;
      post_ops_.erase(post_ops_.begin());
      return true;
    };
    if (take("mul", scale_)) take("add", bias_);
    if (!is_byte(r_.y.dtype)) return;
    const auto leave_out = [&](const char* kind) {
      if (!post_ops_.empty() && post_ops_.back().kind == kind) post_ops_.pop_back();
    };
    leave_out("round");
    if (r_.y.dtype == DType::uint8) leave_out("relu");
  }

  // Numbers of channels as oneDNN reads scales and biases.
  memory::desc channels_desc() const { return row_major_desc(DType::float32, {r_.y.shape[1]}); }
  Location channels_input(Recipe& recipe, const Geometry& numbers) const {
    Geometry row = numbers;
    row.shape = {numbers.shape[1]};
    row.strides = {numbers.strides[1]};
    return recipe.input(recipe.next_operand(), desc_of(row), channels_desc());
  }

  // What oneDNN computes with.
  DType dtype() const { return computed_in(r_.x.dtype, precision_); }

  std::vector<Staging> stagings() const {
    std::vector<Staging> result{Staging::none, Staging::channels_last};
    if (prefers_blocks()) result.insert(result.begin(), Staging::blocked);
    return result;
  }

  Descs descs(Staging how) const {
    Descs d{staged(r_.x, how), weights_desc(computed_in(w_, precision_)), staged(r_.y, how), {}};
    if (r_.bias) d.bias = row_major_desc(computed_in(r_.bias->dtype, precision_), r_.bias->shape);
    if (bias_) d.bias = channels_desc();
    return d;
  }

  forward_pd forward_desc(const Descs& d, const dnnl::primitive_attr& attributes, bool training) const {
    const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const DnnlWindow& w = window_;
    if ((r_.bias || bias_) && r_.pass == Pass::forward)
      return {engine(), kind,       kDirect, d.x,    d.w,        d.bias, d.y,
              w.stride, w.dilation, w.low,   w.high, attributes, true};
    return {engine(), kind, kDirect, d.x, d.w, d.y, w.stride, w.dilation, w.low, w.high, attributes, true};
  }

  // 0: fast; 1: by a product of matrices that oneDNN unrolls the windows into, which channels first gets and
  // which loses to copies into channels last, but for float32 and windows of one element; 2: reference code.
  int slowness(const std::string& implementation) const {
    if (is_reference_code(implementation)) return 2;
    if (implementation.find("gemm") == std::string::npos) return 0;
    const std::vector<int64_t> w = weight_sizes(r_);
    const bool single = std::all_of(w.begin() + 2, w.end(), [](int64_t size) { return size == 1; });
    return single && dtype() == DType::float32 ? 0 : 1;
  }

  // Makes the primitive's description with activations as they are, or staged if that is faster. `make` gives
  // an empty one where oneDNN has no code. Returns what was chosen.
  template <class Make>
  auto choose(Descs& best_descs, bool& staged, Make&& make) const {
    decltype(make(best_descs, false)) best;
    for (const Staging how : stagings()) {
      const bool stage = how != Staging::none;
      const Descs d = descs(how);
      auto pd = make(d, stage);
      if (!pd || (best && slowness(pd.impl_info_str()) >= slowness(best.impl_info_str()))) continue;
      best = pd;
      best_descs = d;
      staged = stage;
      if (slowness(pd.impl_info_str()) == 0) break;
    }
    if (!best)
      throw Unsupported("no implementation for src " + describe(r_.x) + ", weights " + describe(r_.w) +
                        ", dst " + describe(r_.y));
    return best;
  }

  Location weights_input(Recipe& recipe, int operand, const memory::desc& required) const {
    recipe.hold_layout(w_);
    if (!w_.any && !w_.layout) return recipe.input(operand, desc_of(w_), required);
    recipe.set_layout(operand, required);
    return Recipe::operand(operand);
  }

  std::unique_ptr<Steps> forward() {
    Descs d;
    bool staged = false;
    // The copy of the result accumulates, if there is one.
    const auto copied = [&](bool stage) {
      return stage || computed_in(r_.y.dtype, precision_) != r_.y.dtype;
    };
    const auto post_ops = [&](const Descs& descs, bool stage) {
      PostOps result(post_ops_, descs.y, r_.accumulate && !copied(stage), precision_);
      if (scale_) result.attributes.set_scales_mask(DNNL_ARG_WEIGHTS, r_.groups == 1 ? 1 : 3);
      return result;
    };
    const auto pd = choose(d, staged, [&](const Descs& descs, bool stage) {
      return forward_desc(descs, post_ops(descs, stage).attributes, false);
    });
    if (!r_.post_ops.empty() && slowness(pd.impl_info_str()) > slowness_without_post_ops())
      refuse_post_ops(r_.post_ops, r_.y.shape);
    Recipe recipe = begin();
    const int x = recipe.next_operand(), w = recipe.next_operand();
    std::vector<Argument> arguments{
        {DNNL_ARG_SRC, d.x, recipe.input(x, activation_desc(r_.x), d.x)},
        {DNNL_ARG_WEIGHTS, pd.weights_desc(), weights_input(recipe, w, pd.weights_desc())}};
    if (r_.bias) {
      const int bias = recipe.next_operand();
      arguments.push_back({DNNL_ARG_BIAS, d.bias, recipe.input(bias, desc_of(*r_.bias), d.bias)});
    }
    if (scale_)
      arguments.push_back(
          {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, channels_desc(), channels_input(recipe, *scale_)});
    if (bias_) arguments.push_back({DNNL_ARG_BIAS, d.bias, channels_input(recipe, *bias_)});
    const int first = recipe.next_operand();
    for (int i = 0; i < count_operands(post_ops_); ++i) recipe.next_operand();
    post_ops(d, staged).add_arguments(recipe, first, arguments);
    const int y = first + count_operands(post_ops_);
    const Location result = recipe.output(y, activation_desc(r_.y), d.y, copied(staged) && r_.accumulate,
                                          reads_result(r_.post_ops));
    arguments.push_back({DNNL_ARG_DST, d.y, result});
    recipe.add<dnnl::convolution_forward>(pd, std::move(arguments));
    return recipe.finish_steps(pd.impl_info_str());
  }

  int slowness_without_post_ops() const {
    Descs d;
    bool staged = false;
    const auto pd = choose(
        d, staged, [&](const Descs& descs, bool) { return forward_desc(descs, plain_attributes(), false); });
    return slowness(pd.impl_info_str());
  }

  std::unique_ptr<Steps> data() {
    using data_pd = dnnl::convolution_backward_data::primitive_desc;
    Descs d;
    bool staged = false;
    const auto pd = choose(d, staged, [&](const Descs& descs, bool) {
      Descs loose = descs;
      loose.w = any_desc_like(descs.w);
      const forward_pd hint = forward_desc(loose, plain_attributes(), true);
      const DnnlWindow& w = window_;
      return hint ? data_pd(engine(), kDirect, descs.x, descs.w, descs.y, w.stride, w.dilation, w.low, w.high,
                            hint, plain_attributes(), true)
                  : data_pd();
    });
    Recipe recipe = begin();
    const int y = recipe.next_operand(), w = recipe.next_operand(), x = recipe.next_operand();
    std::vector<Argument> arguments{
        {DNNL_ARG_DIFF_DST, d.y, recipe.input(y, activation_desc(r_.y), d.y)},
        {DNNL_ARG_WEIGHTS, pd.weights_desc(), weights_input(recipe, w, pd.weights_desc())},
        {DNNL_ARG_DIFF_SRC, d.x, recipe.output(x, activation_desc(r_.x), d.x, r_.accumulate)}};
    recipe.add<dnnl::convolution_backward_data>(pd, std::move(arguments));
    return recipe.finish_steps(pd.impl_info_str());
  }

  std::unique_ptr<Steps> weights() {
    using weights_pd = dnnl::convolution_backward_weights::primitive_desc;
    Descs d;
    bool staged = false;
    const auto pd = choose(d, staged, [&](const Descs& descs, bool) {
      Descs loose = descs;
      // The forward pass is only a hint, and takes weights of the activations' type.
      loose.w = any_desc(dtype(), w_.shape);
      const forward_pd hint = forward_desc(loose, plain_attributes(), true);
      const DnnlWindow& w = window_;
      if (!hint) return weights_pd();
      if (r_.bias)
        return weights_pd(engine(), kDirect, descs.x, descs.w, descs.bias, descs.y, w.stride, w.dilation,
                          w.low, w.high, hint, plain_attributes(), true);
      return weights_pd(engine(), kDirect, descs.x, descs.w, descs.y, w.stride, w.dilation, w.low, w.high,
                        hint, plain_attributes(), true);
    });
    Recipe recipe = begin();
    const int x = recipe.next_operand(), y = recipe.next_operand(), w = recipe.next_operand();
    const memory::desc required = pd.diff_weights_desc();
    if (w_.any) recipe.set_layout(w, required);
    const memory::desc stored = w_.any ? required : desc_of(w_);
    std::vector<Argument> arguments{
        {DNNL_ARG_SRC, d.x, recipe.input(x, activation_desc(r_.x), d.x)},
        {DNNL_ARG_DIFF_DST, d.y, recipe.input(y, activation_desc(r_.y), d.y)},
        {DNNL_ARG_DIFF_WEIGHTS, required, recipe.output(w, stored, required, r_.accumulate)}};
    if (r_.bias) {
      const int bias = recipe.next_operand();
      arguments.push_back(
          {DNNL_ARG_DIFF_BIAS, d.bias, recipe.output(bias, desc_of(*r_.bias), d.bias, r_.accumulate)});
    }
    recipe.add<dnnl::convolution_backward_weights>(pd, std::move(arguments));
    return recipe.finish_steps(pd.impl_info_str());
  }

  static memory::desc any_desc_like(const memory::desc& desc) {
    return {desc.get_dims(), desc.get_data_type(), memory::format_tag::any};
  }

  Precision precision_of_request() const {
    int64_t products = 1;
    const std::vector<int64_t> w = weight_sizes(r_);
    for (size_t d = 1; d < w.size(); ++d) products *= w[d];
    const bool adds = r_.accumulate || (r_.bias && r_.bias->dtype == DType::int32);
    const bool exact = r_.y.dtype == DType::int32 || !r_.post_ops.empty();
    return precision_of_product(r_.x.dtype, r_.w.dtype, r_.y.dtype, products, exact, adds,
                                r_.narrow && has_whole_vectors(w));
  }

  // oneDNN's code for groups reads operands of post-ops wrongly for channels that are no whole vector: of
  // depthwise convolutions of 2 to 7 channels, say, at AVX2.
  bool has_whole_vectors(const std::vector<int64_t>& w) const {
    const int64_t each = w[0] / r_.groups;
    if (r_.groups == 1) return true;
    return each == 1 && w[1] == 1 ? w[0] % 8 == 0 : each % 8 == 0 && w[1] % 8 == 0;
  }

  Recipe begin() const {
    Recipe recipe;
    recipe.set_precision(precision_);
    return recipe;
  }

  const Convolution& r_;
  Geometry w_;
  DnnlWindow window_;
  Precision precision_;
  std::vector<PostOp> post_ops_;          // without oneDNN's own steps
  std::optional<Geometry> scale_, bias_;  // of these
};

// What the threads of the team compute. Pieces of equal size share their code.
KernelRef in_pieces(const Convolution& r, const Division& division) {
  std::vector<std::unique_ptr<Steps>> pieces;
  std::unique_ptr<const Steps> steps;
  size_t scratch = 0;
  const int64_t images = r.x.shape[0];
  for (int64_t begin = 0; begin < images; begin += division.grain) {
    const int64_t size = std::min(division.grain, images - begin);
    const Images piece = cut(r, begin, size);
    if (!steps || size != division.grain) steps = Builder(piece.convolution).build();
    pieces.push_back(steps->shifted(piece.shifts, scratch));
    scratch += pieces.back()->scratch_bytes;
  }
  return make_ref<OnednnKernel>(std::move(pieces));
}

KernelRef build(const Convolution& r) {
  if (KernelRef own = byte_convolution(r)) return own;
  const Division division = divide(r, omp_get_max_threads());
  if (division.width != Division::Width::team)
    return make_for_width(division.width, [&] { return Builder(r).build(); });
  const OpenMpScope alone(1);
  return in_pieces(r, division);
}

}  // namespace

KernelRef make_convolution(const Convolution& request) {
  const char* what = name_of_pass(request.pass);
  check(request);
  Convolution r = request;
  r.post_ops = padded_post_ops(request.post_ops, request.y.shape.size());
  if (r.pass == Pass::weights && r.w.layout)
    throw ValueError(std::string(what) + ": dweights need strides, or 'any'");
  if (r.pass != Pass::forward && !r.post_ops.empty())
    throw ValueError(std::string(what) + ": only the forward pass has post-ops");
  if (const auto product = as_product(r)) return make_matmul(*product);
  return cached(Key(what) << r.x << r.w << r.y << r.bias << r.window << r.groups << r.post_ops << r.accumulate
                          << r.narrow,
                what, [&] { return build(r); });
}

}  // namespace weft::onednn
