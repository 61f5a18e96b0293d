// two_bits.cpp: gradients as two bits for each element, in one pass over memory: what is added to the residual, what
// of that is sent, and the rest of it. src/weft/distributed/compression.py says what is computed.
#include <algorithm>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "engine/team.h"
#include "kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kGroup = 16;     // elements in one word of four bytes
constexpr int64_t kGrain = 1 << 10;  // groups that are worth another thread

float* element(const View& x, int64_t i) noexcept {
  return reinterpret_cast<float*>(x.data) + i * x.strides[0];
}

class TwoBits final : public Kernel {
 public:
  explicit TwoBits(float threshold) : threshold_(threshold) {}
  int operand_count() const override { return 4; }

  void run(const Call& call) const override {
    const View &x = call.operands[0], &old = call.operands[1], &packed = call.operands[2],
               &rest = call.operands[3];
    const int64_t n = x.shape[0], groups = (n + kGroup - 1) / kGroup;
    const bool dense = n < 2 || (x.strides[0] == 1 && old.strides[0] == 1 && rest.strides[0] == 1);
    parallel_for(groups, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        uint8_t bytes[4];
        const int64_t first = g * kGroup, count = std::min(kGroup, n - first);
        if (dense && count == kGroup)
          whole(element(x, first), element(old, first), element(rest, first), bytes);
        else
          part(x, old, rest, first, count, bytes);
        for (int64_t k = 0; k < 4; ++k)
          reinterpret_cast<uint8_t*>(packed.data)[(4 * g + k) * packed.strides[0]] = bytes[k];
      }
    });
  }

 private:
  // The first element has the highest two bits of the first byte: 11 from the threshold up, 10 from its
  // negative down.
  void part(const View& x, const View& old, const View& rest, int64_t first, int64_t count,
            uint8_t* bytes) const noexcept {
    std::fill_n(bytes, 4, uint8_t{0});
    for (int64_t i = 0; i < count; ++i) {
      const float sum = *element(old, first + i) + *element(x, first + i);
      const bool up = sum >= threshold_, down = sum <= -threshold_;
      *element(rest, first + i) = up ? sum - threshold_ : down ? sum + threshold_ : sum;
      const unsigned code = up ? 3u : down ? 2u : 0u;
      bytes[i / 4] = static_cast<uint8_t>(bytes[i / 4] | code << (6 - 2 * (i % 4)));
    }
  }

#if defined(__SSE2__)
  void whole(const float* x, const float* old, float* rest, uint8_t* bytes) const noexcept {
    // The bits of four elements, the first the highest, one place apart.
    static constexpr uint8_t kSpread[16] = {0x00, 0x40, 0x10, 0x50, 0x04, 0x44, 0x14, 0x54,
                                            0x01, 0x41, 0x11, 0x51, 0x05, 0x45, 0x15, 0x55};
    const __m128 high = _mm_set1_ps(threshold_), low = _mm_set1_ps(-threshold_);
    for (int k = 0; k < 4; ++k) {
      const __m128 sum = _mm_add_ps(_mm_loadu_ps(old + 4 * k), _mm_loadu_ps(x + 4 * k));
      const __m128 up = _mm_cmpge_ps(sum, high), down = _mm_cmple_ps(sum, low);
      const __m128 sent = _mm_or_ps(_mm_and_ps(up, high), _mm_and_ps(down, low));
      _mm_storeu_ps(rest + 4 * k, _mm_sub_ps(sum, sent));
      const int sign = _mm_movemask_ps(up), any = _mm_movemask_ps(_mm_or_ps(up, down));
      bytes[k] = static_cast<uint8_t>(kSpread[any] << 1 | kSpread[sign]);
    }
  }
#else
  void whole(const float* x, const float* old, float* rest, uint8_t* bytes) const noexcept {
    for (int k = 0; k < 4; ++k) {
      unsigned byte = 0;
      for (int i = 4 * k; i < 4 * k + 4; ++i) {
        const float sum = old[i] + x[i];
        const bool up = sum >= threshold_, down = sum <= -threshold_;
        rest[i] = up ? sum - threshold_ : down ? sum + threshold_ : sum;
        byte = byte << 2 | (up ? 3u : down ? 2u : 0u);
      }
      bytes[k] = static_cast<uint8_t>(byte);
    }
  }
#endif

  const float threshold_;
};

}  // namespace

Ref<Kernel> make_two_bits(float threshold) { return Ref<Kernel>(new TwoBits(threshold)); }

}  // namespace weft
