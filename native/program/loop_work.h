// loop_work.h: what a Loop does when it runs; private to loop.cpp and loop_stages.cpp.
#pragma once

#include "program/loop.h"
#include "program/loop_check.h"

namespace weft {

// What is done with the code: called once, for pieces of a loop, or for pieces of a row; or other code for
// each stage. Points into a Space.
struct Loop::Work {
  enum class Kind : uint8_t { once, pieces, parts, stages } kind = Kind::once;
  Code code = nullptr;  // of stages: none
  int rank = 0, operands = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  // of operand k in loop d: k * rank + d
  const DType* dtypes = nullptr;
  int loop = -1;      // that is split
  int64_t grain = 1;  // of its pieces
  LoopPattern pattern{};
  bool large = false;                // the cache would not keep the results
  const LoopReach* reach = nullptr;  // of the operands; null: pieces are not checked

  // That a piece, or all, lies in the operands of the Loop, which are at `data`.
  void check(char* const* data, char* const* moved, const int64_t* piece_sizes) const noexcept {
    if (!reach) [[likely]]
      return;
    for (int k = 0; k < operands; ++k)
      check_piece(k, reach[k], data[k], moved[k], rank, piece_sizes, strides + k * rank,
                  static_cast<int64_t>(size_of(dtypes[k])));
  }
};

// Whether results may go past the cache: nothing is read from their memory, and lines of the cache begin
// where they are stored in one go. strides: of operand k in loop d: k * rank + d.
bool may_stream(const LoopPattern& pattern, int inputs, char* const* data, const int64_t* strides) noexcept;

}  // namespace weft
