// two_bits.cpp: gradients as two bits for each element, in one pass over memory: what is added to the
// residual, what of that is sent, and the rest of it. src/weft/distributed/compression.py says what is
// computed.
#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "engine/team.h"
#include "kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kGroup = 16;       // elements in one word of four bytes
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
    const bool in_row = packed.strides[0] == 1;
    const bool dense = n < 2 || (x.strides[0] == 1 && old.strides[0] == 1 && rest.strides[0] == 1);
    parallel_for(groups, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        uint8_t apart[4];
        uint8_t* const bytes = in_row ? reinterpret_cast<uint8_t*>(packed.data) + 4 * g : apart;
        const int64_t first = g * kGroup, count = std::min(kGroup, n - first);
        if (dense && count == kGroup)
          whole(element(x, first), element(old, first), element(rest, first), bytes);
        else
          part(x, old, rest, first, count, bytes);
        for (int64_t k = 0; k < 4 && !in_row; ++k)
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
    const __m128 high = _mm_set1_ps(threshold_), low = _mm_set1_ps(-threshold_);
    __m128i up[4], down[4];  // all bits of an element, or none
    for (int k = 0; k < 4; ++k) {
      const __m128 sum = _mm_add_ps(_mm_loadu_ps(old + 4 * k), _mm_loadu_ps(x + 4 * k));
      const __m128 is_up = _mm_cmpge_ps(sum, high), is_down = _mm_cmple_ps(sum, low);
      const __m128 sent = _mm_or_ps(_mm_and_ps(is_up, high), _mm_and_ps(is_down, low));
      _mm_storeu_ps(rest + 4 * k, _mm_sub_ps(sum, sent));
      up[k] = _mm_castps_si128(is_up);
      down[k] = _mm_castps_si128(is_down);
    }
    // A byte for each element: 3, 2 or 0; then four of them, the first the lowest, as one.
    const auto narrow = [](const __m128i* m) {
      return _mm_packs_epi16(_mm_packs_epi32(m[0], m[1]), _mm_packs_epi32(m[2], m[3]));
    };
    const __m128i codes = _mm_or_si128(_mm_and_si128(narrow(up), _mm_set1_epi8(3)),
                                       _mm_and_si128(narrow(down), _mm_set1_epi8(2)));
    const auto bits = [](__m128i word, int mask) { return _mm_and_si128(word, _mm_set1_epi32(mask)); };
    const __m128i four =
        _mm_or_si128(_mm_or_si128(bits(_mm_slli_epi32(codes, 6), 0xc0), bits(_mm_srli_epi32(codes, 4), 0x30)),
                     _mm_or_si128(bits(_mm_srli_epi32(codes, 14), 0x0c), _mm_srli_epi32(codes, 24)));
    const __m128i words = _mm_packs_epi32(four, four);
    const int packed = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(bytes, &packed, 4);
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
