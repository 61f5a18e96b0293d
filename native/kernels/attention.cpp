// attention.cpp: softmax(scores) v without the matrix of scores, and its gradient.
//
// Scores are q k^T * scale, then cap * tanh(scores / cap), less slope * |distance|, plus the mask; weights
// are dropped after the softmax. All of it happens in a tile; tiles that no query of a block sees are passed
// over. Heads of q share those of k and v in groups of neighbours. Forward (Milakov and Gimelshein 2018,
// arXiv:1805.02867; Dao and others 2022, arXiv:2205.14135): a block of queries walks over tiles of keys with
// a running maximum and sum. Backward computes the weights again from the saved logarithms of the sums.
// Everything inside is float32, for all types of arrays. Pieces of work share nothing: blocks of queries in
// the forward direction; in the backward one, where a block of queries adds to the gradients of all keys,
// heads, or groups of blocks with sums of their own. So results do not depend on the threads.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "engine/team.h"
#include "kernels/attention_tile.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "storage/random.h"

namespace weft {
namespace {

constexpr int64_t kFar = int64_t{1} << 60;  // beyond every key
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
  explicit Attention(const AttentionForm& form) : form_(form) {}

  // The optional operands, from the first one on, and the numbers of a call.
  struct Options {
    Options(const AttentionForm& form, const View* optional, const uint64_t* parameters) {
      if (form.mask) mask = optional++;
      if (form.ranges) ranges = optional++;
      if (form.slopes) slopes = optional++;
      if (form.dropout) words = optional++;
      end = optional;
      scale = static_cast<float>(load_as<double>(parameters));
      cap = static_cast<float>(load_as<double>(parameters + 1));
      const auto before = load_as<int64_t>(parameters + 2), after = load_as<int64_t>(parameters + 3);
      offset = load_as<int64_t>(parameters + 4);
      lowest = before < 0 ? -kFar : offset - before;
      highest = after < 0 ? kFar : offset + after;
      drop = load_as<double>(parameters + 5);
    }
    const View *mask = nullptr, *ranges = nullptr, *slopes = nullptr, *words = nullptr, *end;
    float scale, cap;                 // cap: 0, none
    int64_t lowest, highest, offset;  // query i sees keys i + lowest ... i + highest
    double drop;
  };

  // A block of queries of one head: where they are, and which keys each of them sees.
  struct Block {
    int64_t b = 0, h = 0, head = 0, row = 0, count = 0;  // head: numbered over the batch
    int64_t begin = 0, end = 0;          // of the keys that any query sees; begin: a multiple of kKeys
    int64_t all_begin = 0, all_end = 0;  // of those that all see
    int64_t first[kRows] = {}, last[kRows] = {};  // of each query: first ... last - 1
    float slope = 0;
  };

  static Block block_of(const Options& options, int64_t b, int64_t h, int64_t heads, int64_t row,
                        int64_t queries, int64_t keys) {
    Block block;
    block.b = b;
    block.h = h;
    block.head = b * heads + h;
    block.row = row;
    block.count = std::min(kRows, queries - row);
    block.begin = block.all_end = keys;
    for (int64_t r = 0; r < block.count; ++r) {
      int64_t first = std::max<int64_t>(row + r + options.lowest, 0);
      int64_t last = std::min(row + r + options.highest + 1, keys);
      if (const View* const ranges = options.ranges) {
        const int64_t* const range = reinterpret_cast<const int64_t*>(ranges->data) + b * ranges->strides[0] +
                                     h * ranges->strides[1] + (row + r) * ranges->strides[2];
        first = std::max(first, range[0]);
        last = std::min(last, range[ranges->strides[3]]);
      }
      block.first[r] = first;
      block.last[r] = last;
      block.all_begin = std::max(block.all_begin, first);
      block.all_end = std::min(block.all_end, last);
      if (first >= last) continue;
      block.begin = std::min(block.begin, first / kKeys * kKeys);
      block.end = std::max(block.end, last);
    }
    if (options.slopes)
      block.slope = reinterpret_cast<const float*>(options.slopes->data)[h * options.slopes->strides[0]];
    return block;
  }

  static void check(const View& view, const char* function) {
    if (view.dtype == DType::float32 || view.dtype == DType::bfloat16 || view.dtype == DType::float16) return;
    throw DTypeError(std::string(function) + ": float32, bfloat16 or float16 is needed, got " +
                     name_of(view.dtype));
  }

  // scores[key][lane] for keys [key, key + keys) and a block's queries. `capped`: where the scores are stored
  // before what is added to them, for the gradient of the cap.
  void score(const Options& options, const Block& block, const float* queries, int64_t depth,
             const Scalars& k, int64_t key, int64_t keys, float* scores, float* capped) const {
    const int64_t lanes = padded(block.count);
    tile_.multiply(keys, depth, k, queries, kRows, scores, kRows, lanes, false);
    if (options.cap != 0) {
      tile_.soft_cap(scores, keys, lanes, options.cap);
      if (capped) std::copy_n(scores, keys * kRows, capped);
    }
    if (options.slopes)
      for (int64_t c = 0; c < keys; ++c) {
        const auto distance = static_cast<float>(block.row + options.offset - key - c);
        for (int64_t r = 0; r < lanes; ++r)
          scores[c * kRows + r] -= block.slope * std::abs(distance + static_cast<float>(r));
      }
    if (options.mask)
      apply(matrix_of(*options.mask, block.b, block.h), block.row, block.count, key, keys, scores);
    if (key >= block.all_begin && key + keys <= block.all_end) return;
    for (int64_t c = 0; c < keys; ++c)
      for (int64_t r = 0; r < block.count; ++r)
        if (key + c < block.first[r] || key + c >= block.last[r]) scores[c * kRows + r] = kNothing;
  }

  // Multiplies a tile by 0 or 1 / (1 - p). Its bits are items of 32 bits of the stream that `words` names:
  // tile t of all has items t * kKeys * kRows and so on, transposed as scores are.
  void drop(const Options& options, const Block& block, int64_t queries, int64_t all_keys, int64_t key,
            int64_t keys, float* tile) const {
    const auto* const words = reinterpret_cast<const uint64_t*>(options.words->data);
    const int64_t row_blocks = (queries + kRows - 1) / kRows, key_tiles = (all_keys + kKeys - 1) / kKeys;
    const int64_t number = (block.head * row_blocks + block.row / kRows) * key_tiles + key / kKeys;
    constexpr int64_t kItems = kKeys * kRows;
    const int64_t one = 1;
    std::array<uint32_t, kItems> bits;
    fill_bits({reinterpret_cast<char*>(bits.data()), DType::uint32, 1, &kItems, &one},
              {words[0], words[options.words->strides[0]],
               static_cast<uint64_t>(number) * blocks_for(Draw::bits, DType::uint32, kItems)});
    const auto threshold = static_cast<uint32_t>(std::min(options.drop * 0x1p32, 0x1p32 - 1));
    const float factor = options.drop < 1 ? static_cast<float>(1 / (1 - options.drop)) : 0.f;
    for (int64_t i = 0; i < keys * kRows; ++i)
      tile[i] *= bits[static_cast<size_t>(i)] >= threshold ? factor : 0.f;
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

  const AttentionForm form_;
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

// q, k, v, [mask], [ranges], [slopes], [words] -> y, logarithm of the sums.
class AttentionForward final : public Attention {
 public:
  explicit AttentionForward(const AttentionForm& form) : Attention(form) {}

  void run(const Call& call) const override {
    const View* const in = call.operands;
    for (int i = 0; i < 3; ++i) check(in[i], "attention");
    const Options options(form_, in + 3, call.parameters);
    const View *y = options.end, *logs = y + 1;
    const int64_t heads = in->shape[1], blocks = (in->shape[2] + kRows - 1) / kRows;
    const int64_t shared = in[1].shape[1] ? heads / in[1].shape[1] : 1;
    parallel_for(in->shape[0] * heads * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t b = unit / blocks / heads, h = unit / blocks % heads;
        run_block(options,
                  block_of(options, b, h, heads, unit % blocks * kRows, in->shape[2], in[1].shape[2]),
                  matrix_of(in[0], b, h), matrix_of(in[1], b, h / shared), matrix_of(in[2], b, h / shared),
                  matrix_of(*y, b, h), matrix_of(*logs, b, h));
      }
    });
  }

 private:
  void run_block(const Options& options, const Block& block, const Matrix& q, const Matrix& k,
                 const Matrix& v, const Matrix& y, const Matrix& logs) const {
    const int64_t row = block.row, count = block.count, lanes = padded(count);
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
    for (int64_t key = block.begin; key < block.end; key += kKeys) {
      const int64_t keys = std::min(kKeys, block.end - key);
      score(options, block, queries, q.columns, float_rows(k, key, keys, key_space), key, keys, scores,
            nullptr);
      tile_.online_softmax(scores, keys, lanes, maximum, sum, rescale);
      if (options.words) drop(options, block, q.rows, k.rows, key, keys, scores);
      if (key > block.begin) tile_.scale(sums, v.columns, lanes, rescale);
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

// dy, q, k, v, [mask], [ranges], [slopes], [words], y, logarithms -> dq, dk, dv.
class AttentionBackward final : public Attention {
 public:
  explicit AttentionBackward(const AttentionForm& form) : Attention(form) {}

  void run(const Call& call) const override {
    const View* in = call.operands;
    for (int i = 0; i < 4; ++i) check(in[i], "attention_backward");
    const Options options(form_, in + 4, call.parameters);
    const View* rest = options.end;
    const int64_t heads = in[1].shape[1], key_heads = in[2].shape[1], all = in[2].shape[0] * key_heads;
    const int64_t shared = key_heads ? heads / key_heads : 1, queries = in[1].shape[2];
    const int64_t row_blocks = (queries + kRows - 1) / kRows, blocks = shared * row_blocks;
    const auto head_of = [&](int64_t b, int64_t h) {
      return Head{matrix_of(in[0], b, h),          matrix_of(in[1], b, h),   matrix_of(in[2], b, h / shared),
                  matrix_of(in[3], b, h / shared), matrix_of(rest[0], b, h), matrix_of(rest[1], b, h),
                  matrix_of(rest[2], b, h)};
    };
    const int64_t groups = groups_for(all, blocks);
    std::vector<std::unique_ptr<KeySums>> sums(static_cast<size_t>(all * groups));
    parallel_for(all * groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t group = unit % groups, b = unit / groups / key_heads, g = unit / groups % key_heads;
        auto unit_sums =
            std::make_unique<KeySums>(matrix_of(rest[3], b, g), matrix_of(rest[4], b, g), group == 0);
        for (int64_t number = group; number < blocks; number += groups) {
          const int64_t h = g * shared + number / row_blocks, row = number % row_blocks * kRows;
          run_block(options, block_of(options, b, h, heads, row, queries, in[2].shape[2]), head_of(b, h),
                    unit_sums->dk, unit_sums->dv);
        }
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
    Matrix dy, q, k, v, y, logs, dq;
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
  static int64_t groups_for(int64_t heads, int64_t blocks) {
    constexpr int64_t kWanted = 16, kMost = 8;
    if (heads == 0) return 1;
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

  void run_block(const Options& options, const Block& block, const Head& head, const Sums& dk,
                 const Sums& dv) const {
    const Matrix &q = head.q, &k = head.k, &v = head.v;
    const int64_t row = block.row, count = block.count, lanes = padded(count), d = q.columns, e = v.columns;
    const int64_t wide = std::max(dk.width(), dv.width());
    Space space(kRows * (3 * d + 3 * e + 2 * wide + 3 * kKeys + wide + 2) + kKeys * (d + e));
    float *queries = space.take(d * kRows), *rows_q = space.take(kRows * wide);
    float *dy_columns = space.take(e * kRows), *rows_dy = space.take(kRows * wide);
    float *sums = space.take(d * kRows), *weights = space.take(kKeys * kRows);
    float *dscores = space.take(kKeys * kRows), *spare = space.take(kRows * wide);
    float *shift = space.take(kRows), *mean = space.take(kRows), *outputs = space.take(e * kRows);
    float *key_space = space.take(kKeys * d), *value_space = space.take(kKeys * e);
    float* capped = space.take(kKeys * kRows);

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

    for (int64_t key = block.begin; key < block.end; key += kKeys) {
      const int64_t keys = std::min(kKeys, block.end - key);
      const Scalars from_k = float_rows(k, key, keys, key_space);
      const Scalars from_v = float_rows(v, key, keys, value_space);
      score(options, block, queries, d, from_k, key, keys, weights, capped);
      tile_.exponentials(weights, keys, lanes, shift);
      tile_.multiply(keys, e, from_v, dy_columns, kRows, dscores, kRows, lanes, false);
      if (options.words) drop(options, block, q.rows, k.rows, key, keys, dscores);
      tile_.score_gradients(dscores, weights, keys, lanes, mean);
      if (options.cap != 0) tile_.cap_gradients(dscores, capped, keys, lanes, options.cap);
      if (options.words) drop(options, block, q.rows, k.rows, key, keys, weights);
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

Ref<Kernel> make_attention(const AttentionForm& form) { return Ref<Kernel>(new AttentionForward(form)); }
Ref<Kernel> make_attention_backward(const AttentionForm& form) {
  return Ref<Kernel>(new AttentionBackward(form));
}

}  // namespace weft
