// image.h: operations on pictures: bytes, row by row, channels innermost (u8[h, w, c]), c from 1 to 4.
//
// Every function reads all it needs from its arguments and writes only `to`, which does not overlap `from`.
#pragma once

#include <cstdint>

namespace weft {

struct Picture {
  uint8_t* data;
  int64_t height, width, channels;
  int64_t row;  // bytes from one row to the next; pixels of a row are side by side
};

// How values between pixels come about. `area` filters are wide enough to see every pixel of a picture that
// is made smaller (antialiased); `linear` looks at 4 pixels however small it becomes.
enum class Resample : uint8_t { nearest, linear, area, cubic };

// The part [y, y + h) x [x, x + w) of `from`, in pixels and fractions of them, as large as `to`.
void resize(const Picture& from, double y, double x, double h, double w, const Picture& to, Resample filter,
            bool mirror);

// to(i, j) = from at (m0 * j + m1 * i + m2, m3 * j + m4 * i + m5), x first, pixel centres at integers; `fill`
// outside.
void warp(const Picture& from, const double m[6], const Picture& to, Resample filter, const uint8_t* fill);

// Each pixel's channels times a matrix [3, 4] (the last column is added), rounded, bounded to 0..255. 3
// channels.
void mix_channels(const Picture& from, const float* matrix, const Picture& to);
// Each channel's values looked up in a table [channels, 256].
void look_up(const Picture& from, const uint8_t* table, const Picture& to);
// [channels, 256]: how often each value occurs.
void count_values(const Picture& from, int64_t* counts);
// from + amount * (from - its mean over 3 x 3 pixels with weights 1, and 5 in the middle), edges as they are.
void sharpen(const Picture& from, float amount, const Picture& to);
// Copies a part, mirrored or not.
void crop(const Picture& from, int64_t y, int64_t x, bool mirror, const Picture& to);
// (x - mean) * factor of the part at (y, x), as f32[c, h, w], or f32[h, w, c] if not `planar`.
void normalize(const Picture& from, int64_t y, int64_t x, int64_t h, int64_t w, bool mirror,
               const float* mean, const float* factor, bool planar, float* to);

}  // namespace weft
