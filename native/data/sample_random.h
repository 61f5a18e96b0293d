// sample_random.h: the random numbers of one sample: a function of (seed, epoch, index, kind) and of how many
// were drawn before, by Philox4x32-10 (storage/random.h). One thread at a time.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "storage/random.h"

namespace weft {

class SampleRandom {
 public:
  SampleRandom(uint64_t seed, uint32_t epoch, uint64_t index, uint32_t kind)
      : counter_{0, (epoch << 1) ^ kind, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)},
        key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  uint32_t bits() {
    if (used_ == 4) {
      block_ = philox(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  // In [0, 1), of 53 bits.
  double uniform() {
    const uint64_t high = bits();
    return static_cast<double>((high << 32 | bits()) >> 11) * 0x1p-53;
  }
  // In [0, count); each probability is off by less than 2^-32 of itself for counts below 2^32.
  int64_t below(int64_t count) {
    const uint64_t high = bits();
    const auto word = static_cast<unsigned __int128>(high << 32 | bits());
    return static_cast<int64_t>(word * static_cast<uint64_t>(count) >> 64);
  }
  // Normal with mean 0 and deviation 1 (Box and Muller 1958).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  std::array<uint32_t, 4> counter_, block_{};
  std::array<uint32_t, 2> key_;
  unsigned used_ = 4;
};

}  // namespace weft
