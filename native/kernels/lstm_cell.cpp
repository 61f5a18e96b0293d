// lstm_cell.cpp: loops over short pieces of rows, compiled twice; the compiler makes the vectors.
//
// exp is 2^n * p(f), p being of degree 6, with a relative error below 2e-7; it is only taken of numbers
// below 0. tanh is a polynomial near 0, where 1 - exp would cancel.
// Source of the polynomial: S. L. Moshier, Methods and Programs for Mathematical Functions, 1989 (tanhf).
#include "kernels/lstm_cell.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/rows.h"
#include "kernels/simd.h"
#include "storage/isa.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 128;  // elements that are worked on at once

[[gnu::always_inline]] inline float exp_of_negative(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
  constexpr float kSmallest = -87.3f;  // exp of less is not a normal number
  constexpr float kMagic = 0x1.8p23f;  // its addition rounds to an integer, found in the last bits
  const float bounded = x < kSmallest ? kSmallest : x;
  const float shifted = bounded * kLog2E + kMagic;
  const float n = shifted - kMagic;
  const float f = bounded - n * kLn2High - n * kLn2Low;
  float p = 1.f / 720;
  p = p * f + 1.f / 120;
  p = p * f + 1.f / 24;
  p = p * f + 1.f / 6;
  p = p * f + 0.5f;
  p = p * f + 1.f;
  p = p * f + 1.f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127) << 23);
  return x < kSmallest ? 0 : p * power;
}

[[gnu::always_inline]] inline float sigmoid(float x) {
  const float e = exp_of_negative(-std::abs(x));
  return (x < 0 ? e : 1.f) / (1.f + e);
}

[[gnu::always_inline]] inline float tanh_of(float x) {
  const float size = std::abs(x), e = exp_of_negative(-2.f * size);
  const float far = std::copysign((1.f - e) / (1.f + e), x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  return size < 0.625f ? x + x * z * p : far;
}

// The gates and cells of some elements; the outputs go to h. `after` may be `before`, so the loop is marked.
[[gnu::always_inline]] inline void forward_piece(int64_t count, int64_t units, float* gates,
                                                 const float* more, const float* before, float* after,
                                                 float* h) {
#pragma GCC ivdep
  for (int64_t j = 0; j < count; ++j) {
    const float i = sigmoid(gates[j] + more[j]), f = sigmoid(gates[units + j] + more[units + j]),
                g = tanh_of(gates[2 * units + j] + more[2 * units + j]),
                o = sigmoid(gates[3 * units + j] + more[3 * units + j]);
    const float c = f * before[j] + i * g;
    gates[j] = i;
    gates[units + j] = f;
    gates[2 * units + j] = g;
    gates[3 * units + j] = o;
    after[j] = c;
    h[j] = o * tanh_of(c);
  }
}

// dy: of these elements. slopes[4][kPiece].
[[gnu::always_inline]] inline void backward_piece(int64_t count, int64_t units, const float* gates,
                                                  const float* before, const float* after, const float* dh,
                                                  const float* dy, float* dc, float* slopes) {
#pragma GCC ivdep
  for (int64_t j = 0; j < count; ++j) {
    const float i = gates[j], f = gates[units + j], g = gates[2 * units + j], o = gates[3 * units + j];
    const float slope = dy[j] + dh[j], c = tanh_of(after[j]);
    const float total = dc[j] + slope * o * (1.f - c * c);
    slopes[j] = total * g * i * (1.f - i);
    slopes[kPiece + j] = total * before[j] * f * (1.f - f);
    slopes[2 * kPiece + j] = total * i * (1.f - g * g);
    slopes[3 * kPiece + j] = slope * c * o * (1.f - o);
    dc[j] = total * f;
  }
}

// Compiled for these arguments in both parts of the file.
#define WEFT_CELL_FUNCTIONS                                                                                \
  void forward(int64_t count, int64_t units, float* gates, const float* more, const float* before,         \
               float* after, float* h) {                                                                   \
    forward_piece(count, units, gates, more, before, after, h);                                            \
  }                                                                                                        \
  void backward(int64_t count, int64_t units, const float* gates, const float* before, const float* after, \
                const float* dh, const float* dy, float* dc, float* slopes) {                              \
    backward_piece(count, units, gates, before, after, dh, dy, dc, slopes);                                \
  }

struct Functions {
  decltype(&forward_piece) forward;
  decltype(&backward_piece) backward;
};

namespace plain {
WEFT_CELL_FUNCTIONS
}

}  // namespace

#ifdef WEFT_X86
WEFT_AVX512_BEGIN
namespace {
namespace wide {
WEFT_CELL_FUNCTIONS
}
}  // namespace
WEFT_AVX512_END
#endif

namespace {

Functions functions() {
#ifdef WEFT_X86
  if (isa() == Isa::avx512) return {wide::forward, wide::backward};
#endif
  return {plain::forward, plain::backward};
}

// body(offset, count) for short pieces of units [begin, end) of every row, with the row's number.
template <class F>
void for_pieces(const LstmCell& step, int64_t begin, int64_t end, F&& body) {
  for (int64_t row = 0; row < step.rows; ++row)
    for (int64_t at = begin; at < end; at += kPiece) body(row, at, std::min(kPiece, end - at));
}

}  // namespace

void lstm_forward(const LstmForward& step, int64_t begin, int64_t end) {
  const auto cell = functions().forward;
  const RowFunction store = row_functions(step.dtype, DType::float32).contiguous;
  const int64_t units = step.units, item = static_cast<int64_t>(size_of(step.dtype));
  float h[kPiece];
  for_pieces(step, begin, end, [&](int64_t row, int64_t at, int64_t count) {
    const int64_t place = row * units + at;
    const int64_t first = row * 4 * units + at;
    cell(count, units, step.gates + first, step.recurrent + first, step.before + place, step.after + place,
         h);
    store(step.h + (row * step.h_row + at) * item, 1, reinterpret_cast<const char*>(h), 1, count);
  });
}

void lstm_backward(const LstmBackward& step, int64_t begin, int64_t end) {
  const auto cell = functions().backward;
  const RowFunction load = row_functions(DType::float32, step.dtype).contiguous;
  const RowFunction store = row_functions(step.dtype, DType::float32).contiguous;
  const int64_t units = step.units, item = static_cast<int64_t>(size_of(step.dtype));
  float dy[kPiece], slopes[4 * kPiece];
  for_pieces(step, begin, end, [&](int64_t row, int64_t at, int64_t count) {
    const int64_t place = row * units + at;
    load(reinterpret_cast<char*>(dy), 1, step.dy + (row * step.dy_row + at) * item, 1, count);
    cell(count, units, step.gates + row * 4 * units + at, step.before + place, step.after + place,
         step.dh + place, dy, step.dc + place, slopes);
    for (int64_t gate = 0; gate < 4; ++gate)
      store(step.slopes + ((row * 4 + gate) * units + at) * item, 1,
            reinterpret_cast<const char*>(slopes + gate * kPiece), 1, count);
  });
}

}  // namespace weft
