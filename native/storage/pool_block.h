// pool_block.h: for the files of the pool only: the sizes that memory comes in, and what they report.
#pragma once

#include "storage/pool.h"

namespace weft {

inline constexpr uint64_t kStep = 2 << 20;  // the usable part ends at multiples of it: a huge page
inline constexpr uint64_t kCanary = 64;     // checking mode: before the user's bytes, at least one behind
inline constexpr int kShiftBeside = 3;      // of an index beside the memory: blocks are of 512 bytes

std::string show_bytes(uint64_t bytes);
// Adds a text, unless there is no memory for it.
void add_violation(std::vector<std::string>& violations, auto&& text) noexcept {
  try {
    violations.push_back(text());
  } catch (...) {
  }
}

// What a live block counts for.
inline uint64_t in_use_by(const auto* block) noexcept { return round_up(block->requested, Pool::kAlignment); }

}  // namespace weft
