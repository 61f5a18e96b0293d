#include "data/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "storage/isa.h"
#include "storage/simd.h"

namespace weft {
namespace {

// Of fractions in weights of resize: weights sum to 1.3 at most, so sums of bytes fit 32 bits.
constexpr int kBits = 22;

uint8_t clamped(int32_t value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }
uint8_t rounded(float value) { return static_cast<uint8_t>(std::lrintf(std::clamp(value, 0.0f, 255.0f))); }

double weight_of(Resample filter, double x) {
  x = std::abs(x);
  if (filter != Resample::cubic) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;  // Keys 1981, "Cubic convolution interpolation for digital image processing"
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// For each pixel of a line of the result: which pixels of the source it is made of, and their weights.
struct Taps {
  std::vector<int32_t> first;
  std::vector<int32_t> count;
  std::vector<int32_t> weights;  // `most` for each
  int most = 1;

  Taps(int64_t from, double begin, double length, int64_t to, Resample filter) {
    const double scale = length / static_cast<double>(to);
    const bool wide = filter == Resample::area || filter == Resample::cubic;
    const double stretch = wide && scale > 1 ? scale : 1;
    const double support = filter == Resample::nearest ? 0 : (filter == Resample::cubic ? 2 : 1) * stretch;
    most = static_cast<int>(std::min(std::ceil(support) * 2 + 1, static_cast<double>(from)));
    first.resize(static_cast<size_t>(to));
    count.resize(static_cast<size_t>(to));
    weights.resize(static_cast<size_t>(to * most));
    std::vector<double> exact(static_cast<size_t>(most));
    for (int64_t i = 0; i < to; ++i) {
      const double center = begin + (static_cast<double>(i) + 0.5) * scale;
      int32_t* const w = &weights[static_cast<size_t>(i * most)];
      const auto k = static_cast<size_t>(i);
      if (filter == Resample::nearest) {
        first[k] =
            static_cast<int32_t>(std::clamp<int64_t>(static_cast<int64_t>(std::floor(center)), 0, from - 1));
        count[k] = 1;
        w[0] = 1 << kBits;
        continue;
      }
      // At least the nearest pixel, also where fractions leave no other.
      const auto low =
          std::clamp<int64_t>(static_cast<int64_t>(std::floor(center - support + 0.5)), 0, from - 1);
      const auto high =
          std::clamp<int64_t>(static_cast<int64_t>(std::floor(center + support + 0.5)), low + 1, from);
      const int64_t n = std::min<int64_t>(high - low, most);
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double x = (static_cast<double>(low + j) + 0.5 - center) / stretch;
        sum += exact[static_cast<size_t>(j)] = weight_of(filter, x);
      }
      first[k] = static_cast<int32_t>(low);
      count[k] = static_cast<int32_t>(n);
      // Beyond the edges negative weights can leave hardly anything to divide by: then the nearest pixel
      // alone. With 0.45 and more of it, absolute weights sum to 1.6 at most, and sums of bytes stay below
      // 2^31.
      if (sum == 0 || (filter == Resample::cubic && sum < 0.45 * stretch)) {
        std::fill(exact.begin(), exact.end(), 0.0);
        const auto nearest = static_cast<int64_t>(std::floor(center));
        exact[static_cast<size_t>(std::clamp<int64_t>(nearest - low, 0, n - 1))] = sum = 1;
      }
      // Rounded so that they sum to exactly one: a picture of one colour stays that colour.
      int32_t rest = 1 << kBits, largest = 0;
      for (int64_t j = 0; j < n; ++j) {
        w[j] = static_cast<int32_t>(std::lround(exact[static_cast<size_t>(j)] / sum * (1 << kBits)));
        rest -= w[j];
        if (w[j] > w[largest]) largest = static_cast<int32_t>(j);
      }
      w[largest] += rest;
    }
  }
};

template <int C>
void resize_row(const uint8_t* from, const Taps& taps, int64_t width, bool mirror, uint8_t* to) {
  for (int64_t j = 0; j < width; ++j) {
    const auto k = static_cast<size_t>(j);
    const int32_t* w = &taps.weights[k * static_cast<size_t>(taps.most)];
    const uint8_t* pixel = from + int64_t{taps.first[k]} * C;
    int32_t sum[C];
    for (int c = 0; c < C; ++c) sum[c] = 1 << (kBits - 1);
    for (int32_t n = taps.count[k], t = 0; t < n; ++t, pixel += C)
      for (int c = 0; c < C; ++c) sum[c] += w[t] * pixel[c];
    uint8_t* out = to + (mirror ? width - 1 - j : j) * C;
    for (int c = 0; c < C; ++c) out[c] = clamped(sum[c] >> kBits);
  }
}

// Calls f(std::integral_constant<int, channels>).
template <class F>
void with_channels(int64_t channels, F&& f) {
  switch (channels) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 3:
      return f(std::integral_constant<int, 3>{});
    default:
      return f(std::integral_constant<int, 4>{});
  }
}

uint8_t* row_of(const Picture& p, int64_t i) { return p.data + i * p.row; }

template <int C, bool mirror>
void normalize_row(const uint8_t* from, int64_t width, const float* mean, const float* factor,
                   float* const* to) {
  // One loop for each channel: the compiler makes vectors of a constant stride.
  for (int c = 0; c < C; ++c) {
    const float m = mean[c], f = factor[c];
    float* out = to[c];
    if (mirror) {
      for (int64_t j = 0; j < width; ++j) out[width - 1 - j] = (static_cast<float>(from[j * C + c]) - m) * f;
    } else {
      for (int64_t j = 0; j < width; ++j) out[j] = (static_cast<float>(from[j * C + c]) - m) * f;
    }
  }
}

#ifdef WEFT_X86
// 16 pixels of 3 channels are 48 bytes; each channel's 16 are gathered by 3 shuffles.
__attribute__((target("avx2,fma"))) void normalize_row_3_avx2(const uint8_t* from, int64_t width, bool mirror,
                                                              const float* mean, const float* factor,
                                                              float* const* to) {
  alignas(16) int8_t shuffles[3][3][16];
  for (int c = 0; c < 3; ++c) {
    for (int part = 0; part < 3; ++part) {
      for (int j = 0; j < 16; ++j) {
        const int position = 3 * (mirror ? 15 - j : j) + c - 16 * part;
        shuffles[c][part][j] = static_cast<int8_t>(position >= 0 && position < 16 ? position : -1);
      }
    }
  }
  int64_t j = 0;
  for (; j + 16 <= width; j += 16) {
    const auto* source = reinterpret_cast<const __m128i*>(from + 3 * j);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                  d = _mm_loadu_si128(source + 2);
    for (int c = 0; c < 3; ++c) {
      const auto* s = reinterpret_cast<const __m128i*>(shuffles[c]);
      const __m128i bytes = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, s[0]), _mm_shuffle_epi8(b, s[1])),
                                         _mm_shuffle_epi8(d, s[2]));
      const __m256 m = _mm256_set1_ps(mean[c]), f = _mm256_set1_ps(factor[c]);
      const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
      const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
      float* out = to[c] + (mirror ? width - 16 - j : j);
      _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_sub_ps(low, m), f));
      _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_sub_ps(high, m), f));
    }
  }
  for (; j < width; ++j) {
    for (int c = 0; c < 3; ++c) {
      to[c][mirror ? width - 1 - j : j] = (static_cast<float>(from[3 * j + c]) - mean[c]) * factor[c];
    }
  }
}
#endif

template <int C>
void normalize_rows(const Picture& from, int64_t y, int64_t x, int64_t h, int64_t w, bool mirror,
                    const float* mean, const float* factor, float* to) {
  for (int64_t i = 0; i < h; ++i) {
    const uint8_t* source = row_of(from, y + i) + x * C;
    float* rows[C];
    for (int c = 0; c < C; ++c) rows[c] = to + (c * h + i) * w;
#ifdef WEFT_X86
    if constexpr (C == 3) {
      if (isa() >= Isa::avx2) {
        normalize_row_3_avx2(source, w, mirror, mean, factor, rows);
        continue;
      }
    }
#endif
    if (mirror)
      normalize_row<C, true>(source, w, mean, factor, rows);
    else
      normalize_row<C, false>(source, w, mean, factor, rows);
  }
}

}  // namespace

void resize(const Picture& from, double y, double x, double h, double w, const Picture& to, Resample filter,
            bool mirror) {
  const Taps across(from.width, x, w, to.width, filter), down(from.height, y, h, to.height, filter);
  const int64_t row = to.width * to.channels;
  // Rows of the source, made as wide as the result: those that the current row of the result is made of, in a
  // ring.
  const auto ring = static_cast<int64_t>(down.most);
  std::vector<uint8_t> rows(static_cast<size_t>(ring * row));
  std::vector<int64_t> holds(static_cast<size_t>(ring), -1);
  std::vector<int32_t> sums(static_cast<size_t>(row));
  for (int64_t i = 0; i < to.height; ++i) {
    const auto k = static_cast<size_t>(i);
    std::fill(sums.begin(), sums.end(), 1 << (kBits - 1));
    for (int32_t t = 0; t < down.count[k]; ++t) {
      const int64_t line = down.first[k] + t;
      uint8_t* resized = &rows[static_cast<size_t>(line % ring * row)];
      if (holds[static_cast<size_t>(line % ring)] != line) {
        with_channels(to.channels, [&](auto channels) {
          resize_row<channels>(row_of(from, line), across, to.width, mirror, resized);
        });
        holds[static_cast<size_t>(line % ring)] = line;
      }
      const int32_t weight = down.weights[k * static_cast<size_t>(down.most) + static_cast<size_t>(t)];
      int32_t* const sum = sums.data();
      for (int64_t j = 0; j < row; ++j) sum[j] += weight * resized[j];
    }
    uint8_t* out = row_of(to, i);
    for (int64_t j = 0; j < row; ++j) out[j] = clamped(sums[static_cast<size_t>(j)] >> kBits);
  }
}

void warp(const Picture& from, const double m[6], const Picture& to, Resample filter, const uint8_t* fill) {
  const int64_t channels = from.channels;
  const auto pixel = [&](int64_t y, int64_t x) {
    return y >= 0 && y < from.height && x >= 0 && x < from.width ? row_of(from, y) + x * channels : fill;
  };
  for (int64_t i = 0; i < to.height; ++i) {
    uint8_t* out = row_of(to, i);
    for (int64_t j = 0; j < to.width; ++j, out += channels) {
      const double x = m[0] * static_cast<double>(j) + m[1] * static_cast<double>(i) + m[2];
      const double y = m[3] * static_cast<double>(j) + m[4] * static_cast<double>(i) + m[5];
      // Also false for NaN; far outside, where integers would overflow, there is only fill.
      if (!(x > -1 && x < static_cast<double>(from.width) && y > -1 &&
            y < static_cast<double>(from.height))) {
        std::memcpy(out, fill, static_cast<size_t>(channels));
        continue;
      }
      if (filter == Resample::nearest) {
        std::memcpy(out, pixel(std::lround(y), std::lround(x)), static_cast<size_t>(channels));
        continue;
      }
      const double floor_x = std::floor(x), floor_y = std::floor(y);
      const auto x0 = static_cast<int64_t>(floor_x), y0 = static_cast<int64_t>(floor_y);
      const auto fx = static_cast<float>(x - floor_x), fy = static_cast<float>(y - floor_y);
      const uint8_t *a = pixel(y0, x0), *b = pixel(y0, x0 + 1), *c = pixel(y0 + 1, x0),
                    *d = pixel(y0 + 1, x0 + 1);
      for (int64_t k = 0; k < channels; ++k) {
        const float top = static_cast<float>(a[k]) + fx * static_cast<float>(b[k] - a[k]);
        const float bottom = static_cast<float>(c[k]) + fx * static_cast<float>(d[k] - c[k]);
        out[k] = rounded(top + fy * (bottom - top));
      }
    }
  }
}

void mix_channels(const Picture& from, const float* matrix, const Picture& to) {
  for (int64_t i = 0; i < from.height; ++i) {
    const uint8_t* in = row_of(from, i);
    uint8_t* out = row_of(to, i);
    for (int64_t j = 0; j < from.width; ++j, in += 3, out += 3) {
      const auto r = static_cast<float>(in[0]), g = static_cast<float>(in[1]), b = static_cast<float>(in[2]);
      for (int c = 0; c < 3; ++c) {
        const float* row = matrix + 4 * c;
        // 0 for NaN: `max` gives its first argument where the two do not compare.
        const float value = row[0] * r + row[1] * g + row[2] * b + row[3];
        out[c] = static_cast<uint8_t>(std::min(std::max(0.0f, value), 255.0f) + 0.5f);
      }
    }
  }
}

void look_up(const Picture& from, const uint8_t* table, const Picture& to) {
  for (int64_t i = 0; i < from.height; ++i) {
    const uint8_t* in = row_of(from, i);
    uint8_t* out = row_of(to, i);
    for (int64_t j = 0; j < from.width; ++j)
      for (int64_t c = 0; c < from.channels; ++c) *out++ = table[256 * c + *in++];
  }
}

void count_values(const Picture& from, int64_t* counts) {
  std::memset(counts, 0, static_cast<size_t>(from.channels) * 256 * sizeof(int64_t));
  for (int64_t i = 0; i < from.height; ++i) {
    const uint8_t* in = row_of(from, i);
    for (int64_t j = 0; j < from.width; ++j)
      for (int64_t c = 0; c < from.channels; ++c) ++counts[256 * c + *in++];
  }
}

void sharpen(const Picture& from, float amount, const Picture& to) {
  const int64_t channels = from.channels;
  for (int64_t i = 0; i < from.height; ++i) {
    const uint8_t* in = row_of(from, i);
    uint8_t* out = row_of(to, i);
    if (i == 0 || i + 1 == from.height || from.width < 3) {
      std::memcpy(out, in, static_cast<size_t>(from.width * channels));
      continue;
    }
    const uint8_t *above = row_of(from, i - 1), *below = row_of(from, i + 1);
    std::memcpy(out, in, static_cast<size_t>(channels));
    const int64_t last = (from.width - 1) * channels;
    std::memcpy(out + last, in + last, static_cast<size_t>(channels));
    for (int64_t j = channels; j < last; ++j) {
      const int32_t sum = above[j - channels] + above[j] + above[j + channels] + in[j - channels] +
                          5 * in[j] + in[j + channels] + below[j - channels] + below[j] + below[j + channels];
      const auto value = static_cast<float>(in[j]);
      out[j] = rounded(value + amount * (value - static_cast<float>(sum) / 13.0f));
    }
  }
}

void crop(const Picture& from, int64_t y, int64_t x, bool mirror, const Picture& to) {
  const int64_t channels = from.channels;
  for (int64_t i = 0; i < to.height; ++i) {
    const uint8_t* in = row_of(from, y + i) + x * channels;
    uint8_t* out = row_of(to, i);
    if (!mirror) {
      std::memcpy(out, in, static_cast<size_t>(to.width * channels));
      continue;
    }
    for (int64_t j = 0; j < to.width; ++j)
      for (int64_t c = 0; c < channels; ++c) out[j * channels + c] = in[(to.width - 1 - j) * channels + c];
  }
}

void normalize(const Picture& from, int64_t y, int64_t x, int64_t h, int64_t w, bool mirror,
               const float* mean, const float* factor, bool planar, float* to) {
  if (!planar) {
    const int64_t channels = from.channels;
    for (int64_t i = 0; i < h; ++i) {
      const uint8_t* in = row_of(from, y + i) + x * channels;
      for (int64_t j = 0; j < w; ++j) {
        float* out = to + (i * w + (mirror ? w - 1 - j : j)) * channels;
        for (int64_t c = 0; c < channels; ++c)
          out[c] = (static_cast<float>(in[j * channels + c]) - mean[c]) * factor[c];
      }
    }
    return;
  }
  with_channels(from.channels,
                [&](auto channels) { normalize_rows<channels>(from, y, x, h, w, mirror, mean, factor, to); });
}

}  // namespace weft
