// grouped_linear.cpp: products with weights of 4 bits and a step for each group, for few rows of x, where
// reading the weight takes most of the time. Each byte is read once for 4 rows and becomes floats in
// registers. src/weft/ops/families/quantization.py says how weights are stored.
#include <algorithm>

#include "engine/team.h"
#include "kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 15;  // bytes of weights that are worth another thread

// x [rows, k], weight [n, k / 2] of groups of `group` elements, y [rows, n].
struct GroupedShape {
  int64_t rows, n, groups, group;
  int64_t k() const { return groups * group; }
};

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/grouped_linear.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

template <class T>
T* begin_of(const View& x) noexcept {
  return reinterpret_cast<T*>(x.data);
}

class GroupedLinear final : public Kernel {
 public:
  explicit GroupedLinear(bool bias) : bias_(bias) {}
  int operand_count() const override { return bias_ ? 5 : 4; }

  void run(const Call& call) const override {
    const View &x = call.operands[0], &weight = call.operands[1], &scale = call.operands[2],
               &y = call.operands[bias_ ? 4 : 3];
    int64_t rows = 1;
    for (int d = 0; d + 1 < x.ndim; ++d) rows *= x.shape[d];
    const int64_t groups = scale.shape[1], bytes = weight.shape[1];
    const GroupedShape shape{rows, weight.shape[0], groups, 2 * bytes / groups};
    const float* const bias = bias_ ? begin_of<const float>(call.operands[3]) : nullptr;
    const auto product = WEFT_AT_LEVEL(grouped_linear);
    parallel_for(shape.n, std::max<int64_t>(kGrain / std::max<int64_t>(bytes, 1), 1),
                 [&](int64_t begin, int64_t end) {
                   product(shape, begin_of<const uint8_t>(weight), begin_of<const float>(scale),
                           begin_of<const float>(x), begin_of<float>(y), begin, end);
                   for (int64_t r = 0; bias && r < rows; ++r)
                     for (int64_t i = begin; i < end; ++i) begin_of<float>(y)[r * shape.n + i] += bias[i];
                 });
  }

 private:
  const bool bias_;
};

}  // namespace

Ref<Kernel> make_grouped_linear(bool bias) { return Ref<Kernel>(new GroupedLinear(bias)); }

}  // namespace weft
