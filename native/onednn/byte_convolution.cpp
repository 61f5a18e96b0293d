#include "onednn/byte_convolution.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "engine/team.h"
#include "kernels/byte_products.h"
#include "storage/simd.h"

namespace weft::onednn {

#ifdef WEFT_X86
namespace {

bool is_one(const Geometry& x) {
  return std::ranges::all_of(x.shape, [](int64_t size) { return size == 1; });
}

// The post-ops as a Rounding, whose numbers are in operands: which of the post-ops' operands they are, -1:
// none.
struct Plan {
  int scale = -1, bias = -1, residual = -1, ratio = -1, top = -1, zero_point = -1;
  Rounding rounding;  // without them
};

// Takes the post-ops one by one; what is left in the end is beyond our code.
class Parser {
 public:
  Parser(const std::vector<PostOp>& ops, const Geometry& y) : ops_(ops), y_(y) {}

  std::optional<Plan> parse() {
    Plan plan;
    Rounding& r = plan.rounding;
    r.is_signed = y_.dtype == DType::int8;
    r.least = r.is_signed ? -128 : 0;
    r.most = r.is_signed ? 127 : 255;
    const auto channels = [&](const PostOp& op) { return is_by_channel(op.operand, y_); };
    const auto number = [&](const PostOp& op) {
      return op.operand.dtype == DType::float32 && is_one(op.operand);
    };
    const auto bytes = [&](const PostOp& op) { return is_byte(op.operand.dtype) && is_like_result(op); };
    const auto zero = [&](const PostOp& op) { return is_byte(op.operand.dtype) && is_one(op.operand); };
    take("mul", channels, plan.scale, [&](const PostOp& op) { r.scale_stride = stride_of(op); });
    take("add", channels, plan.bias, [&](const PostOp& op) { r.bias_stride = stride_of(op); });
    take("add", bytes, plan.residual,
         [&](const PostOp& op) { r.residual_is_signed = op.operand.dtype == DType::int8; });
    if (plan.residual >= 0) take("mul", number, plan.ratio);
    if (!take_plain("relu", [&](const PostOp&) { r.low = 0; }))
      take_plain("clip", [&](const PostOp& op) { r.low = op.alpha, r.high = op.beta; });
    take("min", number, plan.top);
    if (!take_plain("round")) return std::nullopt;
    take("add", zero, plan.zero_point,
         [&](const PostOp& op) { zero_point_is_signed = op.operand.dtype == DType::int8; });
    take_plain("clip", [&](const PostOp& op) {
      r.least = static_cast<int>(op.alpha), r.most = static_cast<int>(op.beta);
    });
    if (next_ != ops_.size()) return std::nullopt;
    return plan;
  }

  bool zero_point_is_signed = false;

 private:
  // A residual is read as the result is written.
  bool is_like_result(const PostOp& op) const {
    for (size_t d = 0; d < y_.shape.size(); ++d)
      if (op.operand.shape[d] != y_.shape[d] || (y_.shape[d] != 1 && op.operand.strides[d] != y_.strides[d]))
        return false;
    return true;
  }
  static int64_t stride_of(const PostOp& op) { return is_one(op.operand) ? 0 : op.operand.strides[1]; }

  template <class Fits, class Found = void (*)(const PostOp&)>
  void take(const char* kind, Fits fits, int& operand, Found found = [](const PostOp&) {}) {
    if (next_ == ops_.size() || ops_[next_].kind != kind || !fits(ops_[next_])) return;
    found(ops_[next_++]);
    operand = operands_++;
  }
  template <class Found = void (*)(const PostOp&)>
  bool take_plain(const char* kind, Found found = [](const PostOp&) {}) {
    if (next_ == ops_.size() || ops_[next_].kind != kind) return false;
    found(ops_[next_++]);
    return true;
  }

  const std::vector<PostOp>& ops_;
  const Geometry& y_;
  size_t next_ = 0;
  int operands_ = 0;
};

// The rounding of a run: the addresses of x and the weight, then of the post-ops' operands.
Rounding rounding_of(const Plan& plan, bool zero_point_is_signed, char* const* data) {
  Rounding r = plan.rounding;
  char* const* operands = data + 2;
  const auto floats = [&](int k) { return reinterpret_cast<const float*>(operands[k]); };
  if (plan.scale >= 0) r.scale = floats(plan.scale);
  if (plan.bias >= 0) r.bias = floats(plan.bias);
  if (plan.residual >= 0) r.residual = reinterpret_cast<const uint8_t*>(operands[plan.residual]);
  if (plan.ratio >= 0) r.ratio = *floats(plan.ratio);
  if (plan.top >= 0) r.high = std::min(r.high, *floats(plan.top));
  if (plan.zero_point >= 0) {
    const char stored = *operands[plan.zero_point];
    r.zero_point = zero_point_is_signed ? static_cast<int8_t>(stored) : static_cast<uint8_t>(stored);
  }
  return r;
}

bool is_channels_last(const Geometry& x) { return x.shape[1] == 1 || x.strides[1] == 1; }

bool fits(const Convolution& r) {
  return r.pass == Convolution::Pass::forward && r.x.shape.size() == 4 && !r.bias && !r.accumulate &&
         is_byte(r.x.dtype) && (r.w.layout || r.w.dtype == DType::int8) && is_byte(r.y.dtype) &&
         is_channels_last(r.x) && is_channels_last(r.y);
}

// About how long ours takes on one thread, in nanoseconds: for a result, and for a product of it.
constexpr double kResult_ns = 0.08, kProduct_ns = 0.005, kDepthwiseProduct_ns = 0.011;
constexpr double kPiece_ns = 5e3;     // what a piece takes at the least
constexpr double kRegion_ns = 200e3;  // what takes longer opens a region, as oneDNN's kernels around it do

double time_ns(const Geometry& y, int64_t products, double product_ns) {
  double results = 1;
  for (const int64_t size : y.shape) results *= static_cast<double>(size);
  return results * (kResult_ns + static_cast<double>(products) * product_ns);
}

// One step of ours: `code` gets the addresses of x, the weight, and the post-ops' operands, and that of y.
template <class Code>
KernelRef own_kernel(const Convolution& r, const Geometry& w, const memory::desc& required, const char* name,
                     double time, Code code) {
  Recipe recipe;
  const int x = recipe.next_operand(), weight = recipe.next_operand();
  recipe.hold_layout(w);
  Location packed = Recipe::operand(weight);
  if (w.any || w.layout)
    recipe.set_layout(weight, required);
  else
    packed = recipe.input(weight, desc_of(w), required);
  std::vector<Argument> arguments{{0, desc_of(r.x), Recipe::operand(x)}, {0, required, packed}};
  for (const PostOp& op : r.post_ops)
    if (op.has_operand())
      arguments.push_back({0, desc_of(op.operand), Recipe::operand(recipe.next_operand())});
  arguments.push_back({0, desc_of(r.y), Recipe::operand(recipe.next_operand())});
  const size_t last = arguments.size() - 1;
  recipe.add_code([code, last](char* const* data) { code(data, data[last]); }, std::move(arguments));
  std::unique_ptr<Steps> steps = recipe.finish_steps(name);
  if (time >= kRegion_ns) return make_ref<OnednnKernel>(std::move(steps));
  std::vector<std::unique_ptr<Steps>> whole;
  whole.push_back(std::move(steps));
  return make_ref<OnednnKernel>(std::move(whole));
}

// All items: in pieces for the team or, of long work, in a region as oneDNN's kernels around it open them.
template <class Shape, class Compute>
void run_shared(Compute compute, const Shape& shape, const Rounding& rounding, double time, char* const* data,
                char* y) {
  const auto run = [&](int64_t begin, int64_t end) {
    return compute(shape, reinterpret_cast<const uint8_t*>(data[0]), reinterpret_cast<const int8_t*>(data[1]),
                   rounding, reinterpret_cast<uint8_t*>(y), begin, end);
  };
  const int64_t count = run(0, -1);
  if (time < kRegion_ns) {
    const auto pieces = std::clamp<int64_t>(static_cast<int64_t>(time / kPiece_ns), 1, 2 * team_size());
    parallel_for(count, (count + pieces - 1) / pieces, run);
    return;
  }
#ifdef WEFT_OPENMP  // else it is one thread that gets all
#pragma omp parallel
#endif
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    run(count * thread / threads, count * (thread + 1) / threads);
  }
}

// [window elements][channels in whole 16s].
KernelRef depthwise_kernel(const Convolution& r, const Plan& plan, bool zero_point_is_signed) {
  const int64_t channels = r.x.shape[1];
  Geometry w = r.w;
  std::array<int64_t, 2> window{};
  if (r.w.layout) {
    const auto sizes = r.w.layout->desc.get_dims();
    window = {sizes[3], sizes[4]};
  } else {
    window = {w.shape[2], w.shape[3]};
    w.shape = {channels, 1, 1, window[0], window[1]};
    if (!w.any) w.strides.insert(w.strides.begin() + 1, w.strides[0]);
  }
  const memory::desc required({channels, 1, 1, window[0], window[1]}, memory::data_type::s8,
                              memory::format_tag::hwioG16g);
  if (window[0] * window[1] > kMostTaps || (r.w.layout && r.w.layout->desc != required)) return {};
  Depthwise shape{r.x.shape[0],
                  channels,
                  r.x.shape[2],
                  r.x.shape[3],
                  r.y.shape[2],
                  r.y.shape[3],
                  {window[0], window[1]},
                  {r.window.stride[0], r.window.stride[1]},
                  {r.window.padding_low[0], r.window.padding_low[1]},
                  {r.window.dilation[0], r.window.dilation[1]},
                  r.x.strides[0],
                  r.x.strides[2],
                  r.x.strides[3],
                  r.y.strides[0],
                  r.y.strides[2],
                  r.y.strides[3],
                  r.x.dtype == DType::int8};
  const double time = time_ns(r.y, window[0] * window[1], kDepthwiseProduct_ns);
  return own_kernel(r, w, required, "weft:depthwise_bytes", time, [=](char* const* data, char* y) {
    run_shared(&depthwise, shape, rounding_of(plan, zero_point_is_signed, data), time, data, y);
  });
}

// Whether the pixels of all images are equally far from one another.
bool is_one_row(const Geometry& x) {
  const auto& [n, h, w, s] = std::tie(x.shape[0], x.shape[2], x.shape[3], x.strides);
  const int64_t step = w != 1 ? s[3] : h != 1 ? s[2] : s[0];
  return (h == 1 || w == 1 || s[2] == w * step) && (n == 1 || s[0] == h * w * step);
}
int64_t pixel_stride(const Geometry& x) {
  if (x.shape[3] != 1) return x.strides[3];
  return x.shape[2] != 1 ? x.strides[2] : x.strides[0];
}

// [outputs in 16s][inputs in 4s][16][4].
KernelRef pointwise_kernel(const Convolution& r, const Plan& plan, bool zero_point_is_signed) {
  const int64_t inputs = r.x.shape[1], outputs = r.y.shape[1];
  const auto all_are = [](const std::vector<int64_t>& numbers, int64_t n) {
    return std::ranges::all_of(numbers, [n](int64_t number) { return number == n; });
  };
  const std::vector<int64_t> sizes = r.w.layout ? r.w.layout->desc.get_dims() : r.w.shape;
  const PointwiseCode code = pointwise_code(r.narrow);
  const double time = time_ns(r.y, inputs, kProduct_ns);
  // oneDNN's code for long ones adds residuals as quickly.
  if (!r.w.layout && plan.residual >= 0 && time >= kRegion_ns) return {};
  if (!code || inputs % 4 || sizes[2] != 1 || sizes[3] != 1 || !all_are(r.window.stride, 1) ||
      !all_are(r.window.padding_low, 0) || !all_are(r.window.padding_high, 0) || !is_one_row(r.x) ||
      !is_one_row(r.y))
    return {};
  const memory::desc required({outputs, inputs, 1, 1}, memory::data_type::s8, memory::format_tag::AcdB16a4b);
  if (r.w.layout && r.w.layout->desc != required) return {};
  const Pointwise shape{r.x.shape[0] * r.x.shape[2] * r.x.shape[3],
                        inputs,
                        outputs,
                        pixel_stride(r.x),
                        pixel_stride(r.y),
                        r.x.dtype == DType::int8};
  return own_kernel(r, r.w, required, "weft:pointwise_bytes", time, [=](char* const* data, char* y) {
    run_shared(code, shape, rounding_of(plan, zero_point_is_signed, data), time, data, y);
  });
}

}  // namespace

KernelRef byte_convolution(const Convolution& r) {
  if (!fits(r)) return {};
  Parser parser(r.post_ops, r.y);
  const std::optional<Plan> plan = parser.parse();
  if (!plan) return {};
  if (r.groups == r.x.shape[1] && r.groups == r.y.shape[1] && plan->residual < 0)
    return depthwise_kernel(r, *plan, parser.zero_point_is_signed);
  return r.groups == 1 ? pointwise_kernel(r, *plan, parser.zero_point_is_signed) : KernelRef();
}
#else
KernelRef byte_convolution(const Convolution&) { return {}; }
#endif

}  // namespace weft::onednn
