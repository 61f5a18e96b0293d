// two_bits.cpp: gradients as two bits for each element, in one pass over memory: what is added to the
// residual, what of that is sent, and the rest of it. src/weft/distributed/compression.py says what is
// computed.
#include <algorithm>
#include <cstring>

#include "engine/team.h"
#include "kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kGroup = 16;       // elements in one word of four bytes
constexpr int64_t kGrain = 1 << 10;  // groups that are worth another thread

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/two_bits.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

float* element(const View& x, int64_t i) noexcept {
  return reinterpret_cast<float*>(x.data) + i * x.strides[0];
}

class TwoBits final : public Kernel {
 public:
  explicit TwoBits(float threshold) : threshold_(threshold) {}
  int operand_count() const override { return 4; }

  void run(const Call& call) const override {
    const View &x = call.operands[0], &residual = call.operands[1], &packed = call.operands[2],
               &rest = call.operands[3];
    const int64_t n = x.shape[0], groups = (n + kGroup - 1) / kGroup;
    const bool in_row = packed.strides[0] == 1;
    const bool dense = n < 2 || (x.strides[0] == 1 && residual.strides[0] == 1 && rest.strides[0] == 1);
    const auto whole_groups = WEFT_AT_LEVEL(whole_groups);
    parallel_for(groups, kGrain, [&](int64_t begin, int64_t end) {
      int64_t g = begin;
      if (dense && in_row) {
        const int64_t whole = std::min(end, n / kGroup);
        if (whole > g)
          whole_groups(element(x, g * kGroup), element(residual, g * kGroup), element(rest, g * kGroup),
                       reinterpret_cast<uint8_t*>(packed.data) + 4 * g, whole - g, threshold_);
        g = std::max(g, whole);
      }
      for (; g < end; ++g) {
        uint8_t bytes[4];
        part(x, residual, rest, g * kGroup, std::min(kGroup, n - g * kGroup), bytes);
        for (int64_t k = 0; k < 4; ++k)
          reinterpret_cast<uint8_t*>(packed.data)[(4 * g + k) * packed.strides[0]] = bytes[k];
      }
    });
  }

 private:
  // The first element has the highest two bits of the first byte: 11 from the threshold up, 10 from its
  // negative down.
  void part(const View& x, const View& residual, const View& rest, int64_t first, int64_t count,
            uint8_t* bytes) const noexcept {
    std::fill_n(bytes, 4, uint8_t{0});
    for (int64_t i = 0; i < count; ++i) {
      const float sum = *element(residual, first + i) + *element(x, first + i);
      const bool up = sum >= threshold_, down = sum <= -threshold_;
      *element(rest, first + i) = up ? sum - threshold_ : down ? sum + threshold_ : sum;
      const unsigned code = up ? 3u : down ? 2u : 0u;
      bytes[i / 4] = static_cast<uint8_t>(bytes[i / 4] | code << (6 - 2 * (i % 4)));
    }
  }

  const float threshold_;
};

}  // namespace

Ref<Kernel> make_two_bits(float threshold) { return Ref<Kernel>(new TwoBits(threshold)); }

}  // namespace weft
