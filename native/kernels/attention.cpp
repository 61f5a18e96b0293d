// attention.cpp: softmax(q k^T * scale + mask) v without the matrix of scores, and its gradient.
//
// Forward (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao and others 2022, arXiv:2205.14135): a block of
// queries walks over tiles of keys with a running maximum and sum. Backward computes the weights again from
// the saved logarithms of the sums. Everything inside is float32, for all types of arrays. Pieces of work
// share nothing: blocks of queries in the forward direction; in the backward one, where a block of queries
// adds to the gradients of all keys, heads, or groups of blocks with sums of their own. So results do not
// depend on the threads.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "engine/team.h"
#include "kernels/attention_tile.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

namespace weft {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

int64_t padded(int64_t columns) { return (columns + 15) / 16 * 16; }

// One [n, d] matrix of an array [b, h, n, d]; strides in elements.
struct Matrix {
  char* data;
  DType dtype;
  int64_t rows, columns, row, column;

  char* at(int64_t i) const { return data + i * row * static_cast<int64_t>(size_of(dtype)); }
};

Matrix matrix_of(const View& view, int64_t b, int64_t h) {
  const int64_t offset = b * view.strides[0] + h * view.strides[1];
  return {view.data + offset * static_cast<int64_t>(size_of(view.dtype)),
          view.dtype,
          view.shape[2],
          view.ndim > 3 ? view.shape[3] : 1,
          view.strides[2],
          view.ndim > 3 ? view.strides[3] : 1};
}

// Rows [begin, begin + count) as float32: where they are, or in `space` ([count][columns]).
Scalars float_rows(const Matrix& m, int64_t begin, int64_t count, float* space) {
  if (m.dtype == DType::float32) return {reinterpret_cast<const float*>(m.at(begin)), m.row, m.column};
  const RowFunction convert_row = row_functions(DType::float32, m.dtype).strided;
  const RowFunction convert_run = row_functions(DType::float32, m.dtype).contiguous;
  for (int64_t i = 0; i < count; ++i)
    (m.column == 1 ? convert_run : convert_row)(reinterpret_cast<char*>(space + i * m.columns), 1,
                                                m.at(begin + i), m.column, m.columns);
  return {space, m.columns, 1};
}

// to[row][columns padded] = rows * factor.
void pad_in(const Scalars& from, int64_t count, int64_t columns, float factor, float* to) {
  const int64_t width = padded(columns);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t j = 0; j < columns; ++j)
      to[r * width + j] = from.data[r * from.row + j * from.step] * factor;
    std::fill(to + r * width + columns, to + (r + 1) * width, 0.f);
  }
}

// Rows [begin, begin + count) of m = from[column][kRows] * factor[row]. `space`: [count][columns].
void transpose_out(const TileFunctions& tile, const float* from, const float* factor, const Matrix& m,
                   int64_t begin, int64_t count, float* space) {
  if (m.dtype == DType::float32 && m.column == 1)
    return tile.transpose_out(from, factor, count, m.columns, reinterpret_cast<float*>(m.at(begin)), m.row);
  tile.transpose_out(from, factor, count, m.columns, space, m.columns);
  const RowFunctions store = row_functions(m.dtype, DType::float32);
  for (int64_t r = 0; r < count; ++r)
    (m.column == 1 ? store.contiguous : store.strided)(
        m.at(begin + r), m.column, reinterpret_cast<const char*>(space + r * m.columns), 1, m.columns);
}

// What the two directions share.
class Attention : public Kernel {
 protected:
  Attention(bool causal, bool mask) : causal_(causal), mask_(mask) {}

  struct Options {
    float scale;
    int64_t diagonal;  // query i sees keys up to i + diagonal
  };
  Options options_of(const Call& call) const {
    const auto scale = static_cast<float>(load_as<double>(call.parameters));
    return {scale, causal_ ? load_as<int64_t>(call.parameters + 1) : 0};
  }

  static void check(const View& view, const char* function) {
    if (view.dtype == DType::float32 || view.dtype == DType::bfloat16 || view.dtype == DType::float16) return;
    throw DTypeError(std::string(function) + ": float32, bfloat16 or float16 is needed, got " +
                     name_of(view.dtype));
  }

  // Keys that a block of queries sees.
  int64_t visible_keys(const Options& options, int64_t row, int64_t count, int64_t keys) const {
    return causal_ ? std::clamp<int64_t>(row + count + options.diagonal, 0, keys) : keys;
  }

  // scores[key][lane] for keys [key, key + keys) and queries [row, row + count), masked.
  void score(const Options& options, const float* queries, int64_t depth, const Scalars& k, int64_t row,
             int64_t count, int64_t key, int64_t keys, const Matrix* mask, float* scores) const {
    tile_.multiply(keys, depth, k, queries, kRows, scores, kRows, padded(count), false);
    if (mask) apply(*mask, row, count, key, keys, scores);
    if (!causal_ || key + keys - 1 <= row + options.diagonal) return;
    for (int64_t c = 0; c < keys; ++c) {
      const int64_t hidden = std::clamp<int64_t>(key + c - options.diagonal - row, 0, kRows);
      std::fill_n(scores + c * kRows, hidden, kNothing);
    }
  }

  static void apply(const Matrix& mask, int64_t row, int64_t count, int64_t key, int64_t keys,
                    float* scores) {
    const auto size = static_cast<int64_t>(size_of(mask.dtype));
    const RowFunctions load = row_functions(DType::float32, mask.dtype);
    const RowFunction function = mask.column == 1 ? load.contiguous : load.strided;
    float line[kKeys];
    for (int64_t r = 0; r < count; ++r) {
      function(reinterpret_cast<char*>(line), 1, mask.at(row + r) + key * mask.column * size, mask.column,
               keys);
      if (mask.dtype == DType::bool_)
        for (int64_t c = 0; c < keys; ++c) line[c] = line[c] != 0 ? 0 : kNothing;
      for (int64_t c = 0; c < keys; ++c) scores[c * kRows + r] += line[c];
    }
  }

  const bool causal_, mask_;
  const TileFunctions& tile_ = tile_functions();
};

// Memory of the thread, for one piece of work; in whole lines of the cache, so that vectors of a row share
// one.
float* thread_space(size_t floats) {
  struct alignas(64) Line {
    float items[16];
  };
  thread_local std::unique_ptr<Line[]> space;
  thread_local size_t size = 0;
  const size_t lines = (floats + 15) / 16;
  if (size < lines) {
    space.reset();
    space = std::make_unique_for_overwrite<Line[]>(lines);
    size = lines;
  }
  return space[0].items;
}

class Space {
 public:
  explicit Space(int64_t floats) : next_(thread_space(static_cast<size_t>(floats))) {}
  float* take(int64_t floats) { return std::exchange(next_, next_ + floats); }

 private:
  float* next_;
};

// q, k, v, [mask] -> y, logarithm of the sums.
class AttentionForward final : public Attention {
 public:
  AttentionForward(bool causal, bool mask) : Attention(causal, mask) {}

  void run(const Call& call) const override {
    const View *q = call.operands, *rest = q + (mask_ ? 4 : 3);
    for (int i = 0; i < 3; ++i) check(q[i], "attention");
    const int64_t heads = q->shape[1], blocks = (q->shape[2] + kRows - 1) / kRows;
    const Options options = options_of(call);
    parallel_for(q->shape[0] * heads * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t b = unit / blocks / heads, h = unit / blocks % heads;
        Matrix mask;
        if (mask_) mask = matrix_of(q[3], b, h);
        run_block(options, matrix_of(q[0], b, h), matrix_of(q[1], b, h), matrix_of(q[2], b, h),
                  mask_ ? &mask : nullptr, matrix_of(rest[0], b, h), matrix_of(rest[1], b, h),
                  unit % blocks * kRows);
      }
    });
  }

 private:
  void run_block(const Options& options, const Matrix& q, const Matrix& k, const Matrix& v,
                 const Matrix* mask, const Matrix& y, const Matrix& logs, int64_t row) const {
    const int64_t count = std::min(kRows, q.rows - row), lanes = padded(count);
    const int64_t wide = std::max(q.columns, v.columns);
    Space space((2 * wide + kKeys) * kRows + kKeys * (q.columns + v.columns) + 3 * kRows + kRows * wide);
    float *queries = space.take(q.columns * kRows), *sums = space.take(v.columns * kRows);
    float *scores = space.take(kKeys * kRows), *key_space = space.take(kKeys * q.columns);
    float *value_space = space.take(kKeys * v.columns), *rescale = space.take(kRows);
    float *maximum = space.take(kRows), *sum = space.take(kRows), *spare = space.take(kRows * wide);
    tile_.transpose_in(float_rows(q, row, count, spare), count, q.columns, options.scale, queries);
    std::fill_n(sums, v.columns * kRows, 0.f);
    std::fill_n(maximum, kRows, kNothing);
    std::fill_n(sum, kRows, 0.f);
    const int64_t visible = visible_keys(options, row, count, k.rows);
    for (int64_t key = 0; key < visible; key += kKeys) {
      const int64_t keys = std::min(kKeys, visible - key);
      score(options, queries, q.columns, float_rows(k, key, keys, key_space), row, count, key, keys, mask,
            scores);
      tile_.online_softmax(scores, keys, lanes, maximum, sum, rescale);
      if (key > 0) tile_.scale(sums, v.columns, lanes, rescale);
      const Scalars values = float_rows(v, key, keys, value_space);
      tile_.multiply(v.columns, keys, {values.data, values.step, values.row}, scores, kRows, sums, kRows,
                     lanes, true);
    }
    finish(sums, maximum, sum, y, logs, row, count, spare);
  }

  void finish(const float* sums, const float* maximum, const float* sum, const Matrix& y, const Matrix& logs,
              int64_t row, int64_t count, float* spare) const {
    float factor[kRows];
    for (int64_t r = 0; r < count; ++r) {
      factor[r] = sum[r] == 0 ? 0 : 1 / sum[r];
      store_as(logs.at(row + r), sum[r] == 0 ? kNothing : maximum[r] + std::log(sum[r]));
    }
    transpose_out(tile_, sums, factor, y, row, count, spare);
  }
};

// Sums of float32 for the gradient of keys or values: in the output, if that has their layout.
class Sums {
 public:
  Sums(const Matrix& to, bool in_output) : to_(to), width_(padded(to.columns)) {
    if (in_output && to.dtype == DType::float32 && to.column == 1 && width_ == to.columns) {
      data_ = reinterpret_cast<float*>(to.data);
      row_ = to.row;
    } else {
      storage_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(to.rows * width_));
      data_ = storage_.get();
      row_ = width_;
    }
    for (int64_t i = 0; i < to.rows; ++i) std::fill_n(data_ + i * row_, width_, 0.f);
  }
  float* at(int64_t i) const { return data_ + i * row_; }
  int64_t row() const { return row_; }
  int64_t width() const { return width_; }
  void add(const Sums& other) {
    for (int64_t i = 0; i < to_.rows; ++i)
      for (int64_t j = 0; j < width_; ++j) at(i)[j] += other.at(i)[j];
  }
  void finish() const {
    if (!storage_) return;
    const RowFunction store = row_functions(to_.dtype, DType::float32).strided;
    for (int64_t i = 0; i < to_.rows; ++i)
      store(to_.at(i), to_.column, reinterpret_cast<const char*>(at(i)), 1, to_.columns);
  }

 private:
  const Matrix to_;
  const int64_t width_;
  std::unique_ptr<float[]> storage_;
  float* data_;
  int64_t row_;
};

// dy, q, k, v, [mask], y, logarithms -> dq, dk, dv.
class AttentionBackward final : public Attention {
 public:
  AttentionBackward(bool causal, bool mask) : Attention(causal, mask) {}

  void run(const Call& call) const override {
    const View* in = call.operands;
    const View* rest = in + (mask_ ? 5 : 4);
    for (int i = 0; i < 4; ++i) check(in[i], "attention_backward");
    const int64_t heads = in[0].shape[1], all = in[0].shape[0] * heads;
    const Options options = options_of(call);
    const auto head_of = [&](int64_t i) {
      const int64_t b = i / heads, h = i % heads;
      return Head{matrix_of(in[0], b, h),
                  matrix_of(in[1], b, h),
                  matrix_of(in[2], b, h),
                  matrix_of(in[3], b, h),
                  mask_ ? matrix_of(in[4], b, h) : Matrix{},
                  matrix_of(rest[0], b, h),
                  matrix_of(rest[1], b, h),
                  matrix_of(rest[2], b, h),
                  matrix_of(rest[3], b, h),
                  matrix_of(rest[4], b, h)};
    };
    const int64_t groups = groups_for(all, in[1].shape[2]);
    std::vector<std::unique_ptr<KeySums>> sums(static_cast<size_t>(all * groups));
    parallel_for(all * groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t group = unit % groups;
        const Head head = head_of(unit / groups);
        auto unit_sums = std::make_unique<KeySums>(head.dk, head.dv, group == 0);
        for (int64_t row = group * kRows; row < head.q.rows; row += groups * kRows)
          run_block(options, head, row, unit_sums->dk, unit_sums->dv);
        if (groups == 1) {
          unit_sums->finish();
        } else {
          sums[static_cast<size_t>(unit)] = std::move(unit_sums);
        }
      }
    });
    if (groups > 1)
      parallel_for(all, 1, [&](int64_t begin, int64_t end) { finish(sums, groups, begin, end); });
  }

 private:
  struct Head {
    Matrix dy, q, k, v, mask, y, logs, dq, dk, dv;
  };

  struct KeySums {
    KeySums(const Matrix& to_dk, const Matrix& to_dv, bool in_output)
        : dk(to_dk, in_output), dv(to_dv, in_output) {}
    void finish() const {
      dk.finish();
      dv.finish();
    }
    Sums dk, dv;
  };

  // Where there are few heads, the blocks of queries of each are dealt out to some groups, whose sums for the
  // keys are added in their order. How many depends on the shape alone, so that the threads change no bit.
  static int64_t groups_for(int64_t heads, int64_t queries) {
    constexpr int64_t kWanted = 16, kMost = 8;
    if (heads == 0) return 1;
    const int64_t blocks = (queries + kRows - 1) / kRows;
    return std::clamp<int64_t>(std::min((kWanted + heads - 1) / heads, blocks), 1, kMost);
  }

  static void finish(std::vector<std::unique_ptr<KeySums>>& sums, int64_t groups, int64_t begin,
                     int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      KeySums& first = *sums[static_cast<size_t>(i * groups)];
      for (int64_t g = 1; g < groups; ++g) {
        const auto other = std::move(sums[static_cast<size_t>(i * groups + g)]);
        first.dk.add(other->dk);
        first.dv.add(other->dv);
      }
      first.finish();
    }
  }

  void run_block(const Options& options, const Head& head, int64_t row, const Sums& dk,
                 const Sums& dv) const {
    const Matrix &q = head.q, &k = head.k, &v = head.v;
    const int64_t count = std::min(kRows, q.rows - row), lanes = padded(count), d = q.columns, e = v.columns;
    const int64_t wide = std::max(dk.width(), dv.width());
    Space space(kRows * (3 * d + 3 * e + 2 * wide + 2 * kKeys + wide + 2) + kKeys * (d + e));
    float *queries = space.take(d * kRows), *rows_q = space.take(kRows * wide);
    float *dy_columns = space.take(e * kRows), *rows_dy = space.take(kRows * wide);
    float *sums = space.take(d * kRows), *weights = space.take(kKeys * kRows);
    float *dscores = space.take(kKeys * kRows), *spare = space.take(kRows * wide);
    float *shift = space.take(kRows), *mean = space.take(kRows), *outputs = space.take(e * kRows);
    float *key_space = space.take(kKeys * d), *value_space = space.take(kKeys * e);

    const Scalars from_q = float_rows(q, row, count, spare);
    tile_.transpose_in(from_q, count, d, options.scale, queries);
    pad_in(from_q, count, d, options.scale, rows_q);  // the factor of dscores, for dk
    const Scalars from_dy = float_rows(head.dy, row, count, spare);
    tile_.transpose_in(from_dy, count, e, 1, dy_columns);
    pad_in(from_dy, count, e, 1, rows_dy);
    // The mean of dscores of each query: sum of dy * y.
    tile_.transpose_in(float_rows(head.y, row, count, spare), count, e, 1, outputs);
    tile_.dots(dy_columns, outputs, e, lanes, mean);
    for (int64_t r = 0; r < kRows; ++r) {
      const float log = r < count ? load_as<float>(head.logs.at(row + r)) : kNothing;
      shift[r] = log == kNothing ? -kNothing : log;  // weights of 0 for what saw nothing
    }
    std::fill_n(sums, d * kRows, 0.f);

    const int64_t visible = visible_keys(options, row, count, k.rows);
    for (int64_t key = 0; key < visible; key += kKeys) {
      const int64_t keys = std::min(kKeys, visible - key);
      const Scalars from_k = float_rows(k, key, keys, key_space);
      const Scalars from_v = float_rows(v, key, keys, value_space);
      score(options, queries, d, from_k, row, count, key, keys, mask_ ? &head.mask : nullptr, weights);
      tile_.exponentials(weights, keys, lanes, shift);
      tile_.multiply(keys, e, from_v, dy_columns, kRows, dscores, kRows, lanes, false);
      tile_.score_gradients(dscores, weights, keys, lanes, mean);
      tile_.multiply(keys, count, {weights, kRows, 1}, rows_dy, dv.width(), dv.at(key), dv.row(), dv.width(),
                     true);
      tile_.multiply(keys, count, {dscores, kRows, 1}, rows_q, dk.width(), dk.at(key), dk.row(), dk.width(),
                     true);
      tile_.multiply(d, keys, {from_k.data, from_k.step, from_k.row}, dscores, kRows, sums, kRows, lanes,
                     true);
    }
    float factor[kRows];
    std::fill_n(factor, kRows, options.scale);
    transpose_out(tile_, sums, factor, head.dq, row, count, spare);
  }
};

}  // namespace

Ref<Kernel> make_attention(bool causal, bool mask) { return Ref<Kernel>(new AttentionForward(causal, mask)); }
Ref<Kernel> make_attention_backward(bool causal, bool mask) {
  return Ref<Kernel>(new AttentionBackward(causal, mask));
}

}  // namespace weft
