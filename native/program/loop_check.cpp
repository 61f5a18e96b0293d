#include "program/loop_check.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft {

bool checks_loops = [] {
  const char* const flag = std::getenv("WEFT_CHECK_LOOPS");
  return flag && std::strcmp(flag, "1") == 0;
}();

LoopReach LoopReach::of(int rank, const int64_t* sizes, const int64_t* strides, int64_t item) noexcept {
  LoopReach reach{0, item};
  for (int d = 0; d < rank; ++d) {
    const int64_t last = std::max<int64_t>(sizes[d] - 1, 0) * strides[d];
    (last < 0 ? reach.begin : reach.end) += last;
  }
  return reach;
}

LoopReach LoopReach::of(const View& view) noexcept {
  const auto item = static_cast<int64_t>(size_of(view.dtype));
  int64_t strides[kMaxDims];
  for (int d = 0; d < view.ndim; ++d) strides[d] = view.strides[d] * item;
  return of(view.ndim, view.shape, strides, item);
}

void check_piece(int number, const LoopReach& reach, const char* operand, const char* at, int rank,
                 const int64_t* sizes, const int64_t* strides, int64_t item) noexcept {
  const LoopReach part = LoopReach::of(rank, sizes, strides, item);
  const int64_t moved = at - operand;
  if (reach.contains(part, moved)) return;
  std::fprintf(stderr,
               "weft: a piece of a loop is outside of operand %d: bytes %" PRId64 " to %" PRId64
               " of %" PRId64 " to %" PRId64 "\n",
               number, part.begin + moved, part.end + moved, reach.begin, reach.end);
  std::abort();
}

}  // namespace weft
