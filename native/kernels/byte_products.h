// byte_products.h: convolutions of bytes whose sums are rounded to bytes in registers: those of each channel
// alone, and those of windows of one element. Exact: sums of int32, then one float32 operation for each step.
//
// x and y are channels last; y is bytes. All pointers are to the first element. The work is items, which any
// threads compute: functions do those from begin to end - 1, and return how many there are in all.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft {

// What is done to a sum: (sum * scale + bias + residual) * ratio, bounds, rounding to even, zero point,
// saturation. Bounds of floats (ReLU's, say) and those of the result are separate: NaN becomes the least one.
struct Rounding {
  const float *scale = nullptr, *bias = nullptr;  // null: 1 and 0
  int64_t scale_stride = 0, bias_stride = 0;      // 0: one for all channels
  const uint8_t* residual = nullptr;              // like y; null: none
  bool residual_is_signed = false;
  float ratio = 1;  // read if there is a residual
  float low = -__builtin_inff(), high = __builtin_inff();
  int zero_point = 0, least = 0, most = 255;  // bounds of the result
  bool is_signed = false;                     // of the result

  // Whether saturation alone bounds the results of `count` channels from `first` on, whose sums have so many
  // products and stay within int32 when they are scaled. What is less than a half below 255 is rounded to it.
  bool is_bounded_by_saturation(int64_t first, int64_t count, int64_t products) const {
    const int smallest = is_signed ? -128 : 0, largest = is_signed ? 127 : 255;
    if (zero_point != 0 || least != smallest || most != largest || !(low <= static_cast<float>(smallest)) ||
        !(high > static_cast<float>(largest) - 0.5F))
      return false;
    const float greatest = static_cast<float>(products) * 255.0F * 128.0F;
    for (int64_t c = first; c < first + count; ++c) {
      float x = scale ? greatest * std::fabs(scale[c * scale_stride]) : greatest;
      if (bias) x += std::fabs(bias[c * bias_stride]);
      if (residual) x = (x + 255.0F) * std::fabs(ratio);
      if (!(x < 0x1p30F)) return false;
    }
    return true;
  }
};

// Each channel with a window of its own. Strides are in bytes.
struct Depthwise {
  int64_t images, channels, height, width;  // of x
  int64_t out_height, out_width;
  int64_t window[2], stride[2], padding[2], dilation[2];
  int64_t x_image, x_row, x_column, y_image, y_row, y_column;
  bool is_signed;  // x
};
constexpr int64_t kMostTaps = 64;  // of a window

// weight: int8 [window elements][channels in whole 16s].
int64_t depthwise(const Depthwise& shape, const uint8_t* x, const int8_t* weight, const Rounding& rounding,
                  uint8_t* y, int64_t begin, int64_t end);

// y[pixel] = W x[pixel]. weight: int8 [outputs in 16s][inputs in 4s][16][4], zero beyond the sizes.
struct Pointwise {
  int64_t pixels, inputs, outputs, x_stride, y_stride;  // inputs: a multiple of 4
  bool is_signed;                                       // x
};

// The code for the level of now; null: none. It needs instructions that add products of bytes in 32 bits, or
// else those for numbers from -64 to 63, which `narrow` promises of the weight.
using PointwiseCode = int64_t (*)(const Pointwise& shape, const uint8_t* x, const int8_t* weight,
                                  const Rounding& rounding, uint8_t* y, int64_t begin, int64_t end);
PointwiseCode pointwise_code(bool narrow) noexcept;

}  // namespace weft
