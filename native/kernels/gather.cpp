// gather.cpp: reading at computed indices: take_along_axis and general advanced indexing. All indices are
// checked before the first element is written; then everything is plain copying, so only sizes of elements
// matter, not their types.
#include <cstring>

#include "engine/team.h"
#include "kernels/indices.h"
#include "kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kPieceBytes = 64 << 10;
constexpr int64_t kShortRow = 1024;  // bytes; a call of memcpy takes longer than to copy fewer
constexpr int64_t kRowBlock = 16;

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/gather_rows.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

// to[k * to_step] = from[k * step], offsets[k] bytes further; steps in elements.
template <class Word>
void gather(char* to, int64_t to_step, const char* from, int64_t step, const int64_t* offsets,
            int64_t count) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
  if (to_step == 1 && step == 0)
    for (int64_t k = 0; k < count; ++k) store_as(to + k * kSize, load_as<Word>(from + offsets[k]));
  else
    for (int64_t k = 0; k < count; ++k)
      store_as(to + k * to_step * kSize, load_as<Word>(from + k * step * kSize + offsets[k]));
}

class TakeAlongAxis final : public Kernel {
 public:
  explicit TakeAlongAxis(int axis) : axis_(axis) {}

  int64_t moved_bytes(const View* x) const override {
    return distinct_bytes(x[1]) + 2 * distinct_bytes(x[2]);
  }

  void run(const Call& call) const override {
    const View &x = call.operands[0], &indices = call.operands[1], &y = call.operands[2];
    const int axis = axis_of(x, axis_);
    const int64_t size = size_along(x, axis), stride = stride_along(x, axis);
    check_indices(indices, size, axis, "take_along_axis");
    if (count_of(y) == 0) return;
    OwnView base(x);  // of the elements with index 0 along the axis
    std::copy_n(indices.shape, indices.ndim, base.shape);
    if (x.ndim) base.strides[axis] = 0;
    const View from = base.view();
    const int along = indices.ndim && indices.shape[indices.ndim - 1] > 1 ? indices.ndim - 1 : axis;
    const Lines<3> lines({&indices, &from, &y}, along);
    with_word(x.dtype, [&]<class Word>(Word) { take<Word>(lines, indices.dtype, size, stride); });
  }

 private:
  template <class Word>
  static void take(const Lines<3>& lines, DType index_type, int64_t size, int64_t stride) {
    const int64_t length = lines.length[0], chunks = (length + kIndexChunk - 1) / kIndexChunk;
    constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
    const auto item = static_cast<int64_t>(size_of(index_type));
    parallel_for(lines.count * chunks, lines_per_piece(std::min(length, kIndexChunk)),
                 [&](int64_t begin, int64_t end) {
                   int64_t positions[kIndexChunk];
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const auto [index, from, to] = lines.at(unit / chunks);
                     const int64_t start = unit % chunks * kIndexChunk;
                     const int64_t count = std::min(kIndexChunk, length - start);
                     load_indices(index + start * lines.step[0] * item, index_type, lines.step[0], count,
                                  size, stride * kSize, positions);
                     gather<Word>(to + start * lines.step[2] * kSize, lines.step[2],
                                  from + start * lines.step[1] * kSize, lines.step[1], positions, count);
                   }
                 });
  }

  const int axis_;
};

class IndexGet final : public Kernel {
 public:
  IndexGet(std::vector<int> dims, int position) : dims_(std::move(dims)), position_(position) {}

  size_t scratch_bytes(const View* operands) const override {
    return Indexed::scratch_bytes(operands[0], operands + 1, dims_, false);
  }

  int64_t moved_bytes(const View* x) const override {
    int64_t bytes = 2 * distinct_bytes(x[1 + dims_.size()]);
    for (size_t k = 1; k <= dims_.size(); ++k) bytes += distinct_bytes(x[k]);
    return bytes;
  }

  void run(const Call& call) const override {
    const View &x = call.operands[0], *indices = call.operands + 1, &y = call.operands[1 + dims_.size()];
    check_indexed(x, indices, dims_, "index");
    if (count_of(y) == 0) return;
    Indexed plan(x, indices, dims_, position_, y);
    plan.find_offsets(x, indices, dims_, call.scratch, false);
    with_word(x.dtype, [&]<class Word>(Word) { get<Word>(plan, x.data, y.data); });
  }

 private:
  template <class Word>
  static void get(Indexed& plan, const char* x, char* y) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
    const Pair::Dim inner = plan.after.take_last();
    const int64_t rows = plan.after.count();
    const int64_t run_bytes = rows * inner.size * kSize;
    const Pair::Dim along = plan.point_dims.take_last();
    // A unit: some of the points in one line of the index shape.
    const int64_t step = std::clamp<int64_t>(kPieceBytes / run_bytes, 1, along.size);
    const int64_t pieces = (along.size + step - 1) / step, lines = plan.point_dims.count();
    const int64_t grain = std::max<int64_t>(1, kPieceBytes / (step * run_bytes));
    const bool are_blocks = rows == 1 && inner.first == kSize && inner.second == kSize &&
                            run_bytes % kRowBlock == 0 && run_bytes <= kShortRow;
    const auto copy_blocks = WEFT_AT_LEVEL(copy_rows);
    parallel_for(plan.before.count() * lines * pieces, grain, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const auto [x_base, y_base] = plan.before.at(unit / (lines * pieces));
        const auto [first, y_line] = plan.point_dims.at(unit / pieces % lines);
        const int64_t start = unit % pieces * step, count = std::min(step, along.size - start);
        char* to = y + y_base + y_line + start * along.second;
        const char* from = x + x_base;
        const int64_t unit_point = first / static_cast<int64_t>(sizeof(int64_t)) + start;
        if (run_bytes == kSize && get_plain<Word>(plan, unit_point, count, to, along.second, from)) continue;
        int64_t buffer[kIndexChunk];
        for (int64_t done = 0; done < count; done += kIndexChunk) {
          const int64_t now = std::min(kIndexChunk, count - done);
          const int64_t* offset = plan.offsets(unit_point + done, now, buffer);
          char* to_now = to + done * along.second;
          if (run_bytes == kSize) {
            for (int64_t p = 0; p < now; ++p)
              store_as(to_now + p * along.second, load_as<Word>(from + offset[p]));
            continue;
          }
          if (are_blocks) {
            copy_blocks(to_now, along.second, from, offset, now, run_bytes);
            continue;
          }
          for (int64_t p = 0; p < now; ++p)
            for (int64_t row = 0; row < rows; ++row) {
              const auto [x_row, y_row] = rows == 1 ? std::pair<int64_t, int64_t>{0, 0} : plan.after.at(row);
              copy_run<Word>(to_now + p * along.second + y_row, from + offset[p] + x_row, inner);
            }
        }
      }
    });
  }

  // Elements at int64 indices, without a list of their offsets; whether the indices are such.
  template <class Word>
  static bool get_plain(const Indexed& plan, int64_t begin, int64_t count, char* to, int64_t to_step,
                        const char* from) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
    int64_t size = 0, step = 0;
    const char* const indices = plan.plain(begin, size, step);
    if (!indices) return false;
    const auto at = [=](int64_t p) {
      return wrapped_index(load_as<int64_t>(indices + p * static_cast<int64_t>(sizeof(int64_t))), size);
    };
    if (step == kSize && to_step == kSize)
      for (int64_t p = 0; p < count; ++p) store_as(to + p * kSize, load_as<Word>(from + at(p) * kSize));
    else
      for (int64_t p = 0; p < count; ++p) store_as(to + p * to_step, load_as<Word>(from + at(p) * step));
    return true;
  }

  template <class Word>
  static void copy_run(char* to, const char* from, const Pair::Dim& inner) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
    if (inner.first == kSize && inner.second == kSize) {
      std::memcpy(to, from, static_cast<size_t>(inner.size * kSize));
    } else {
      for (int64_t i = 0; i < inner.size; ++i)
        store_as(to + i * inner.second, load_as<Word>(from + i * inner.first));
    }
  }

  const std::vector<int> dims_;
  const int position_;
};

// For loops that gather, which cannot stop at an index that is out of range.
class CheckIndices final : public Kernel {
 public:
  CheckIndices(std::string function, std::vector<int> axes)
      : function_(std::move(function)), axes_(std::move(axes)) {}

  void run(const Call& call) const override {
    for (size_t k = 0; k < axes_.size(); ++k)
      check_indices(call.operands[k], load_as<int64_t>(call.parameters + k), axes_[k], function_.c_str());
    store_as(call.operands[axes_.size()].data, int64_t{0});
  }

 private:
  const std::string function_;
  const std::vector<int> axes_;
};

}  // namespace

Ref<Kernel> make_check_indices(std::string function, std::vector<int> axes) {
  return Ref<Kernel>(new CheckIndices(std::move(function), std::move(axes)));
}
Ref<Kernel> make_take_along_axis(int axis) { return Ref<Kernel>(new TakeAlongAxis(axis)); }
Ref<Kernel> make_index_get(std::vector<int> dims, int position) {
  if (dims.empty()) throw ValueError("index: no dimension is indexed");
  return Ref<Kernel>(new IndexGet(std::move(dims), position));
}

}  // namespace weft
