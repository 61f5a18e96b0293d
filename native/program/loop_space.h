// loop_space.h: the space of positions that a loop's operands are broadcast to, in as few loops as it has.
//
// Of that space what has size 1 is dropped; dimensions are ordered by memory, and those that are contiguous
// are joined. What is left, the number of loops and how each operand moves in the innermost one, is the
// pattern that code is compiled for. How the work is spread is for the kernel that runs it: loop.h (threads
// of the processor), thread_loop.h (GPUs).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "program/loop_check.h"
#include "tensor/kernels.h"

namespace weft {

// What compiled code is made for; weft/expr/kernel.py has the meaning of the parts.
struct LoopPattern {
  static constexpr int kOperands = 22;
  // other: "cross" where a loop runs in tiles, else "reverse". Two bits are what the key has for an operand.
  enum Stride : uint8_t { unit, zero, any, other };

  int rank = 1, row_rank = 1;
  bool lanes = false;
  bool streaming = false;  // results go past the cache
  int tile = -1;           // the loop that runs in tiles together with the innermost one; -1: none
  int operands = 0;
  Stride inner[kOperands];
  // Short rows that are side by side: their constant length, else 0; each operand's constant stride from row
  // to row, in elements; and how it moves in a row, `other` being a step of stride / length.
  static constexpr int kShortOperands = 7, kLongestStep = 16;  // what the key has room for
  int length = 0;
  uint8_t step[kShortOperands]{};
  Stride along[kShortOperands]{};

  // What weft/executor/loop_code.py has for the operands: the first letter of Operand.inner; C, D ...: a step
  // of 2, 3 ... Behind it, if rows are short, their length, and each operand's step in them: B, C ... or "a".
  std::string letters() const;
  uint64_t key() const noexcept;
};

// What is known of a loop's code before its operands are.
struct LoopForm {
  int operands = 0;
  int inputs = 0;         // the first ones; the others are written
  uint32_t row_axes = 0;  // bit d: dimension d, counted from the last, is part of a row
  // Bit d: code reads the position along dimension d, counted from the last; kGathers: it reads elements of
  // an operand at computed places, which move with the loops like all others.
  uint32_t position_axes = 0;
  bool ordered = false;  // positions within a row count: its dimensions keep their order

  static constexpr uint32_t kGathers = 1U << 31;

  // True if the dimensions may be neither merged nor reordered, because the code reads positions.
  bool fixed() const noexcept { return (position_axes & ~kGathers) != 0; }
  // True if each element of a result depends on those of the operands at its position alone.
  bool elementwise() const noexcept { return position_axes == 0; }
};

// The loops: sizes, and every operand's strides in bytes.
struct LoopSpace {
  int rank = 0, rows = 0;  // loops; those of them, at the end, that make up a row
  int operands = 0;
  int64_t sizes[kMaxDims + 1];
  int64_t strides[LoopPattern::kOperands][kMaxDims + 1];
  DType dtypes[LoopPattern::kOperands];
  LoopReach reach[LoopPattern::kOperands];  // where pieces are checked
  LoopPattern pattern;

  void swap(int a, int b) noexcept {
    std::swap(sizes[a], sizes[b]);
    for (int k = 0; k < operands; ++k) std::swap(strides[k][a], strides[k][b]);
  }
  void drop(int d) noexcept {
    std::move(sizes + d + 1, sizes + rank, sizes + d);
    for (int k = 0; k < operands; ++k) std::move(strides[k] + d + 1, strides[k] + rank, strides[k] + d);
    --rank;
  }
  // A loop of one turn, at the end.
  void append(const View* views) noexcept {
    sizes[rank] = 1;
    for (int k = 0; k < operands; ++k) strides[k][rank] = static_cast<int64_t>(size_of(views[k].dtype));
    ++rank;
  }
  // Loops [begin, end) so that the operand that decides moves the furthest in the first of them. Stable.
  void order(int begin, int end, int decides) noexcept {
    for (int i = begin + 1; i < end; ++i)
      for (int j = i; j > begin && before(j, j - 1, decides); --j) swap(j, j - 1);
  }
  bool before(int a, int b, int decides) const noexcept {
    if (const int64_t by = std::abs(strides[decides][a]) - std::abs(strides[decides][b])) return by > 0;
    for (int k = 0; k < operands; ++k) {  // equal steps of `decides`: the others decide
      if (k == decides) continue;
      if (const int64_t by = std::abs(strides[k][a]) - std::abs(strides[k][b])) return by > 0;
    }
    return false;
  }
  // How many elements an operand has here: repeated ones count once.
  int64_t elements_of(int k) const noexcept {
    int64_t elements = 1;
    for (int d = 0; d < rank; ++d)
      if (strides[k][d] != 0) elements *= sizes[d];
    return elements;
  }
  // The operand with the most elements, the first of equals: how it is stored decides about the order of
  // loops.
  int widest() const noexcept {
    int best = 0;
    for (int k = 1; k < operands; ++k)
      if (elements_of(k) > elements_of(best)) best = k;
    return best;
  }
  // How many elements of all operands are not neighbours along a loop, if that one becomes vectors.
  int64_t scattered(const View* views, int loop) const noexcept {
    int64_t count = 0;
    for (int k = 0; k < operands; ++k) {
      const int64_t stride = strides[k][loop];
      if (stride != 0 && stride != static_cast<int64_t>(size_of(views[k].dtype))) count += elements_of(k);
    }
    return count;
  }
  // The outer loop that becomes vectors instead of the innermost loop of rows; -1: none. It is one in which
  // fewer elements are scattered: an operand that repeats along rows (a number for each of them) says nothing
  // about those that have rows. Where both have as many, the first operand decides, if it has rows.
  int lane_loop(const View* views, int outer) const noexcept {
    const auto item = static_cast<int64_t>(size_of(views[0].dtype));
    const int64_t along_rows = scattered(views, rank - 1);
    if (along_rows == 0) return -1;
    int best = -1;
    int64_t least = along_rows;
    for (int d = outer; d-- > 0;) {
      const int64_t here = scattered(views, d);
      const bool first_decides =
          strides[0][d] == item && strides[0][rank - 1] != 0 && strides[0][rank - 1] != item;
      if (here < least || (best < 0 && here == along_rows && first_decides)) best = d, least = here;
    }
    return best;
  }
  // Joins loops of [begin, end) that are one for every operand; returns the new end.
  int join(int begin, int end) noexcept {
    for (int d = end - 1; d > begin; --d) {
      bool one = true;
      for (int k = 0; one && k < operands; ++k) one = strides[k][d - 1] == strides[k][d] * sizes[d];
      if (!one) continue;
      sizes[d] *= sizes[d - 1];
      drop(d - 1);
      --end;
    }
    return end;
  }

  // How each operand moves along the loop that becomes vectors, for the pattern.
  void set_inner(int loop) noexcept {
    for (int k = 0; k < operands; ++k) {
      const auto item = static_cast<int64_t>(size_of(dtypes[k]));
      int64_t& stride = strides[k][loop];
      if (sizes[loop] == 1) stride = item;  // it does not matter: one pattern for all
      pattern.inner[k] = stride == item ? LoopPattern::unit
                         : stride == 0  ? LoopPattern::zero
                                        : LoopPattern::any;
    }
  }

  // The space of operands, and the pattern of its code. False: there is nothing to do.
  bool arrange(const LoopForm& form, const View* views);
};

}  // namespace weft
