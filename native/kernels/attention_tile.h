// attention_tile.h: the arithmetic inside of attention, on tiles of float32: chosen once for the processor.
//
// A tile of scores is stored transposed, [keys][kRows]: a query is a lane of vectors. So maxima and sums over
// keys need no work across lanes, and every product is of one form: scalars of one matrix, wherever they
// are, times vectors of another, in rows. The products are one function, to be replaced by another library's.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kRows = 64;  // queries in a tile
inline constexpr int64_t kKeys = 64;  // keys in a tile, at most

// A factor whose element (i, k) is at data[i * row + k * step].
struct Scalars {
  const float* data;
  int64_t row, step;
};

// `lanes`: how many of a tile's are used, rounded up to a multiple of 16; what the others hold is never read.
struct TileFunctions {
  // c[i][j] (+)= sum over k of a(i, k) * b[k][j]; `columns` is a multiple of 16; `add` keeps what is in c.
  void (*multiply)(int64_t rows, int64_t depth, const Scalars& a, const float* b, int64_t b_stride, float* c,
                   int64_t c_stride, int64_t columns, bool add);
  // scores become exp(scores - maximum); maximum and sum go on from earlier tiles, whose results are to be
  // multiplied by `rescale`. A lane that has only seen -inf has maximum -inf and sum 0.
  void (*online_softmax)(float* scores, int64_t keys, int64_t lanes, float* maximum, float* sum,
                         float* rescale);
  // x[i][lane] *= factor[lane].
  void (*scale)(float* x, int64_t rows, int64_t lanes, const float* factor);
  // scores become exp(scores - shift).
  void (*exponentials)(float* scores, int64_t keys, int64_t lanes, const float* shift);
  // dscores become weights * (dscores - mean).
  void (*score_gradients)(float* dscores, const float* weights, int64_t keys, int64_t lanes,
                          const float* mean);
  // scores become cap * tanh(scores / cap).
  void (*soft_cap)(float* scores, int64_t keys, int64_t lanes, float cap);
  // dscores become dscores * (1 - (capped / cap)^2).
  void (*cap_gradients)(float* dscores, const float* capped, int64_t keys, int64_t lanes, float cap);
  // to[column][kRows] = rows * factor; the used lanes behind `count` are 0.
  void (*transpose_in)(const Scalars& rows, int64_t count, int64_t columns, float factor, float* to);
  // sums[lane] = sum over i of a[i][lane] * b[i][lane].
  void (*dots)(const float* a, const float* b, int64_t rows, int64_t lanes, float* sums);
  // to[row][column] = from[column][kRows] * factor[row].
  void (*transpose_out)(const float* from, const float* factor, int64_t count, int64_t columns, float* to,
                        int64_t to_row);
};

// For kernel_isa() (kernels/level.h).
const TileFunctions& tile_functions();

}  // namespace weft
