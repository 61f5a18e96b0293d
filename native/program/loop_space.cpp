#include "program/loop_space.h"

namespace weft {

uint64_t LoopPattern::key() const noexcept {
  uint64_t key = static_cast<uint64_t>(rank) | static_cast<uint64_t>(row_rank) << 5 |
                 static_cast<uint64_t>(lanes) << 10 | static_cast<uint64_t>(tile + 1) << 11;
  for (int k = 0; k < operands; ++k) key |= static_cast<uint64_t>(inner[k]) << (16 + 2 * k);
  static_assert(16 + 2 * kOperands < 62);
  if (length) {  // the row is one loop, and nothing runs in tiles
    constexpr int kFirst = 8, kBits = 7;
    static_assert(kFirst + kBits * kShortOperands < 62 && 4 * kLongestStep + 3 < 1 << kBits);
    key = static_cast<uint64_t>(rank) | static_cast<uint64_t>(length - 1) << 5 | uint64_t{1} << 62;
    for (int k = 0; k < operands; ++k)
      key |= static_cast<uint64_t>(4 * step[k] + along[k]) << (kFirst + kBits * k);
  }
  return key | static_cast<uint64_t>(streaming) << 63;
}

std::string LoopPattern::letters() const {
  std::string text;
  for (int k = 0; k < operands; ++k)
    text +=
        length && step[k] > 1 ? static_cast<char>('A' + step[k]) : (tile >= 0 ? "uzac" : "uzar")[inner[k]];
  if (!length) return text;
  text += std::to_string(length);
  for (int k = 0; k < operands; ++k)
    text += along[k] == any     ? 'a'
            : along[k] == other ? static_cast<char>('A' + step[k] / length)
                                : static_cast<char>('A' + (along[k] == unit));
  return text;
}

bool LoopSpace::arrange(const LoopForm& form, const View* views) {
  operands = form.operands;
  for (int k = 0; k < operands; ++k) dtypes[k] = views[k].dtype;
  int ndim = 0;
  for (int k = 0; k < operands; ++k) ndim = std::max(ndim, views[k].ndim);

  // The space, loops of rows behind the others; what has size 1 is left out.
  bool rows_empty = false;
  const uint32_t row_axes = form.row_axes;
  for (const bool row : {false, true}) {
    if (row && !row_axes) break;
    for (int d = ndim; d-- > 0;) {
      if ((row_axes >> d & 1) != row) continue;
      int64_t size = 1;
      for (int k = 0; k < operands && size == 1; ++k)
        if (d < views[k].ndim) size = views[k].shape[views[k].ndim - 1 - d];
      if (size == 0) {
        if (!row) return false;
        rows_empty = true;
      }
      if (size == 1 && !form.fixed()) continue;
      for (int k = 0; k < operands; ++k) {
        const View& view = views[k];
        const int at = view.ndim - 1 - d;
        strides[k][rank] =
            at >= 0 && view.shape[at] != 1 ? view.strides[at] * static_cast<int64_t>(size_of(view.dtype)) : 0;
      }
      sizes[rank++] = size;
      rows += row;
    }
  }
  int outer = rank - rows;
  if (!form.fixed()) {
    const int last = operands - 1;
    if (rows_empty) {  // what is stored once a row is stored all the same
      while (rows > 1) drop(rank - 1), --rows;
      sizes[rank - 1] = 0;
    } else if (rows > 1) {
      const int outer_now = outer;
      if (!form.ordered) order(outer_now, rank, widest());
      rows = join(outer_now, rank) - outer_now;
    }
    if (outer > 1) {
      order(0, outer, last);
      outer = join(0, outer);
    }
  }
  if (row_axes && rows == 0) {
    append(views);
    rows = 1;
  }
  if (rank == 0) append(views);

  // Rows whose elements are far apart, while those of neighbouring rows are side by side.
  if (row_axes && outer > 0 && !form.fixed() && !rows_empty) {
    if (int d = lane_loop(views, outer); d >= 0) {
      for (; d < outer - 1; ++d) swap(d, d + 1);
      pattern.lanes = true;
    }
  }
  pattern.rank = rank;
  pattern.row_rank = row_axes ? rows : 1;
  pattern.operands = operands;
  set_inner(pattern.lanes ? outer - 1 : rank - 1);
  return true;
}

}  // namespace weft
