// arena_check.h: finds steps of a program that touch memory of its arena that is not theirs (WEFT_CHECK).
//
// Memory without an owner holds a pattern: what is written there is found after the step, what is read from
// there is NaN. One for each run.
#pragma once

#include <algorithm>
#include <vector>

#include "program/program.h"

namespace weft {

inline constexpr char kPattern = '\xff';  // of memory without an owner: NaN as floating-point numbers

// The owners of the arena's bytes during a checked run. Steps may not touch bytes without an owner.
class ArenaCheck {
 public:
  ArenaCheck(const std::vector<Program::Span>& spans, char* arena, size_t bytes)
      : spans_(spans), arena_(arena), bytes_(bytes) {
    std::fill_n(arena, bytes, kPattern);
  }

  // After step t: the first byte that it wrote and did not own, or -1. Gives away what is read no more.
  int64_t after(int t) {
    std::vector<bool> owned(bytes_);
    for (const Program::Span& span : spans_)
      if (span.first <= t && t <= span.last) std::fill_n(owned.begin() + span.offset, span.bytes, true);
    for (size_t i = 0; i < bytes_; ++i)
      if (!owned[i] && arena_[i] != kPattern) return static_cast<int64_t>(i);
    for (const Program::Span& span : spans_)
      if (span.last == t) std::fill_n(arena_ + span.offset, span.bytes, kPattern);
    return -1;
  }

 private:
  const std::vector<Program::Span>& spans_;
  char* const arena_;
  const size_t bytes_;
};

}  // namespace weft
