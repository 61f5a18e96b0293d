// attention_tile.cpp: tiles with AVX-512, and as plain loops.
//
// The product keeps up to 6 rows of 4 vectors in registers: 24 chains of multiply-adds hide their latency,
// and each vector of b that is loaded serves 6 of them. exp is 2^n * p(f), p being of degree 6, with a
// relative error below 2e-7; what underflows becomes 0.
#include "kernels/attention_tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/simd.h"
#include "storage/isa.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
constexpr float kSmallest = -87.3f;  // exp of less is not a normal number
// 1 + f + f^2 * (...), from the highest power.
constexpr float kExp[] = {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 1.f / 2, 1.f, 1.f};

inline float exp_of(float x) {
  const float bounded = x < kSmallest ? kSmallest : x;
  constexpr float kMagic = 0x1.8p23f;  // its addition rounds to an integer, found in the last bits
  const float shifted = bounded * kLog2E + kMagic;
  const float n = shifted - kMagic;
  const float f = bounded - n * kLn2High - n * kLn2Low;
  float p = kExp[0];
  for (int i = 1; i < 7; ++i) p = p * f + kExp[i];
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127) << 23);
  return x < kSmallest ? 0 : p * power;
}

// What is subtracted from the scores of a lane: where all are -inf, anything finite.
inline float safe(float maximum) { return maximum == -kInfinity ? 0 : maximum; }

void multiply_plain(int64_t rows, int64_t depth, const Scalars& a, const float* b, int64_t b_stride, float* c,
                    int64_t c_stride, int64_t columns, bool add) {
  for (int64_t i = 0; i < rows; ++i) {
    float* const to = c + i * c_stride;
    if (!add) std::fill_n(to, columns, 0.f);
    for (int64_t k = 0; k < depth; ++k) {
      const float factor = a.data[i * a.row + k * a.step];
      const float* const from = b + k * b_stride;
      for (int64_t j = 0; j < columns; ++j) to[j] += factor * from[j];
    }
  }
}

void soften_plain(float* scores, int64_t keys, float* maximum, float* sum, float* shrink) {
  for (int64_t r = 0; r < kRows; ++r) {
    float most = maximum[r], total = 0;
    for (int64_t c = 0; c < keys; ++c) most = std::max(most, scores[c * kRows + r]);
    for (int64_t c = 0; c < keys; ++c) {
      scores[c * kRows + r] = exp_of(scores[c * kRows + r] - safe(most));
      total += scores[c * kRows + r];
    }
    shrink[r] = exp_of(maximum[r] - safe(most));
    sum[r] = sum[r] * shrink[r] + total;
    maximum[r] = most;
  }
}

void scale_plain(float* x, int64_t rows, const float* factor) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t r = 0; r < kRows; ++r) x[i * kRows + r] *= factor[r];
}

void exponentials_plain(float* scores, int64_t keys, const float* shift) {
  for (int64_t c = 0; c < keys; ++c)
    for (int64_t r = 0; r < kRows; ++r) scores[c * kRows + r] = exp_of(scores[c * kRows + r] - shift[r]);
}

void slopes_plain(float* slopes, const float* weights, int64_t keys, const float* mean) {
  for (int64_t c = 0; c < keys; ++c)
    for (int64_t r = 0; r < kRows; ++r)
      slopes[c * kRows + r] = weights[c * kRows + r] * (slopes[c * kRows + r] - mean[r]);
}

constexpr TileFunctions kPlain{multiply_plain, soften_plain, scale_plain, exponentials_plain, slopes_plain};

}  // namespace

#ifdef WEFT_X86
WEFT_AVX512_BEGIN
namespace {

constexpr int kLanes = 16;
constexpr int kGroups = kRows / kLanes;
constexpr int kMostRows = 6;

template <int rows, int vectors>
void multiply_block(int64_t depth, const Scalars& a, const float* b, int64_t b_stride, float* c,
                    int64_t c_stride, bool add) {
  __m512 sums[rows][vectors];
#pragma GCC unroll 6
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      sums[i][v] = add ? _mm512_loadu_ps(c + i * c_stride + v * kLanes) : _mm512_setzero_ps();
  const float* from = a.data;
  for (int64_t k = 0; k < depth; ++k, from += a.step, b += b_stride) {
    __m512 factors[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) factors[v] = _mm512_loadu_ps(b + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < rows; ++i) {
      const __m512 scalar = _mm512_set1_ps(from[i * a.row]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[i][v] = _mm512_fmadd_ps(scalar, factors[v], sums[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(c + i * c_stride + v * kLanes, sums[i][v]);
}

template <int vectors, int rows = kMostRows>
void multiply_rows(int64_t count, int64_t depth, Scalars a, const float* b, int64_t b_stride, float* c,
                   int64_t c_stride, bool add) {
  for (; count >= rows; count -= rows) {
    multiply_block<rows, vectors>(depth, a, b, b_stride, c, c_stride, add);
    a.data += rows * a.row;
    c += rows * c_stride;
  }
  if constexpr (rows > 1)
    if (count > 0) multiply_rows<vectors, rows - 1>(count, depth, a, b, b_stride, c, c_stride, add);
}

void multiply_wide(int64_t rows, int64_t depth, const Scalars& a, const float* b, int64_t b_stride, float* c,
                   int64_t c_stride, int64_t columns, bool add) {
  constexpr int64_t kWide = 4 * kLanes;
  for (; columns >= kWide; columns -= kWide, b += kWide, c += kWide)
    multiply_rows<4>(rows, depth, a, b, b_stride, c, c_stride, add);
  if (columns == 3 * kLanes) return multiply_rows<3>(rows, depth, a, b, b_stride, c, c_stride, add);
  if (columns == 2 * kLanes) return multiply_rows<2>(rows, depth, a, b, b_stride, c, c_stride, add);
  if (columns == kLanes) return multiply_rows<1>(rows, depth, a, b, b_stride, c, c_stride, add);
}

[[gnu::always_inline]] inline __m512 exp_wide(__m512 x) {
  const __mmask16 small = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kSmallest), _CMP_LT_OQ);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), 0);
  __m512 f = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), x);
  f = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), f);
  __m512 p = _mm512_set1_ps(kExp[0]);
#pragma GCC unroll 6
  for (int i = 1; i < 7; ++i) p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp[i]));
  return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), small, _mm512_setzero_ps());
}

[[gnu::always_inline]] inline __m512 safe_wide(__m512 maximum) {
  const __mmask16 none = _mm512_cmp_ps_mask(maximum, _mm512_set1_ps(-kInfinity), _CMP_EQ_OQ);
  return _mm512_mask_mov_ps(maximum, none, _mm512_setzero_ps());
}

void soften_wide(float* scores, int64_t keys, float* maximum, float* sum, float* shrink) {
  for (int g = 0; g < kGroups; ++g) {
    float* const lane = scores + g * kLanes;
    const __m512 before = _mm512_loadu_ps(maximum + g * kLanes);
    __m512 most = before, total = _mm512_setzero_ps();
    // Of two operands, max_ps gives the second if one is NaN: NaN scores do not become the maximum.
    for (int64_t c = 0; c < keys; ++c) most = _mm512_max_ps(_mm512_loadu_ps(lane + c * kRows), most);
    const __m512 shift = safe_wide(most);
    for (int64_t c = 0; c < keys; ++c) {
      const __m512 weight = exp_wide(_mm512_sub_ps(_mm512_loadu_ps(lane + c * kRows), shift));
      _mm512_storeu_ps(lane + c * kRows, weight);
      total = _mm512_add_ps(total, weight);
    }
    const __m512 less = exp_wide(_mm512_sub_ps(before, shift));
    _mm512_storeu_ps(shrink + g * kLanes, less);
    _mm512_storeu_ps(sum + g * kLanes, _mm512_fmadd_ps(_mm512_loadu_ps(sum + g * kLanes), less, total));
    _mm512_storeu_ps(maximum + g * kLanes, most);
  }
}

void scale_wide(float* x, int64_t rows, const float* factor) {
  for (int g = 0; g < kGroups; ++g) {
    const __m512 by = _mm512_loadu_ps(factor + g * kLanes);
    for (int64_t i = 0; i < rows; ++i) {
      float* const at = x + i * kRows + g * kLanes;
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), by));
    }
  }
}

void exponentials_wide(float* scores, int64_t keys, const float* shift) {
  for (int g = 0; g < kGroups; ++g) {
    const __m512 by = _mm512_loadu_ps(shift + g * kLanes);
    for (int64_t c = 0; c < keys; ++c) {
      float* const at = scores + c * kRows + g * kLanes;
      _mm512_storeu_ps(at, exp_wide(_mm512_sub_ps(_mm512_loadu_ps(at), by)));
    }
  }
}

void slopes_wide(float* slopes, const float* weights, int64_t keys, const float* mean) {
  for (int g = 0; g < kGroups; ++g) {
    const __m512 middle = _mm512_loadu_ps(mean + g * kLanes);
    for (int64_t c = 0; c < keys; ++c) {
      float* const at = slopes + c * kRows + g * kLanes;
      const __m512 weight = _mm512_loadu_ps(weights + c * kRows + g * kLanes);
      _mm512_storeu_ps(at, _mm512_mul_ps(weight, _mm512_sub_ps(_mm512_loadu_ps(at), middle)));
    }
  }
}

constexpr TileFunctions kWide{multiply_wide, soften_wide, scale_wide, exponentials_wide, slopes_wide};

}  // namespace
WEFT_AVX512_END
#endif

const TileFunctions& tile_functions(bool portable) {
#ifdef WEFT_X86
  if (!portable && isa() == Isa::avx512) return kWide;
#endif
  return kPlain;
}

}  // namespace weft
