// first_set.h: for every mask of 8 bits, which of them are set, in order, and behind these which are not.
#pragma once

#include <array>
#include <cstdint>

namespace weft {

inline constexpr auto kFirstSet = [] {
  std::array<std::array<uint8_t, 8>, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    size_t at = 0;
    for (const unsigned value : {1u, 0u})
      for (unsigned bit = 0; bit < 8; ++bit)
        if ((mask >> bit & 1) == value) table[mask][at++] = static_cast<uint8_t>(bit);
  }
  return table;
}();

}  // namespace weft
