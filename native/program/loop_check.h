// loop_check.h: whether what a Loop passes to its code lies in its operands (WEFT_CHECK_LOOPS).
//
// Code tests what it loads and stores against the sizes and strides that it gets
// (src/weft/expr/llvm_checked.py); here those are tested against the operands of the step, or the array that
// the Loop itself has made.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace weft {

// Bytes of an operand, counted from its first element.
struct LoopReach {
  int64_t begin = 0, end = 0;

  // Of `rank` loops, strides in bytes; a loop of no turns moves nowhere.
  static LoopReach of(int rank, const int64_t* sizes, const int64_t* strides, int64_t item) noexcept;
  static LoopReach of(const View& view) noexcept;
  bool contains(const LoopReach& part, int64_t moved) const noexcept {
    return begin <= part.begin + moved && part.end + moved <= end;
  }
};

// Set where the native module is loaded, from the environment.
extern bool checks_loops;

// Ends the process unless the elements at `at` are among those that `reach` has at `operand`.
void check_piece(int number, const LoopReach& reach, const char* operand, const char* at, int rank,
                 const int64_t* sizes, const int64_t* strides, int64_t item) noexcept;

}  // namespace weft
