// random.h: random numbers that depend only on the seed, the stream and the order of reservations.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") is a
// function from a counter of 128 bits and a key of 64 to a block of 128 random bits. Key: the seed. Counter:
// the lower half is a position, the upper half the stream (the device). A Generator only hands out positions,
// when an operation is pushed; the operation makes its numbers from them at any time, on any thread and in
// any pieces. Which part of which block makes element i, counted in row-major order, is fixed (random.cpp),
// so neither strides nor threads nor the processor's instructions change a number. (float64 normals use the C
// library's log, sin and cos, whose last bit may differ between libraries.)
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/fork.h"
#include "tensor/kernels.h"

namespace weft {

// Positions [offset, offset + reserved) of a stream.
struct Reservation {
  uint64_t key, stream, offset;
};

// Any thread may call; one lock, held for three loads and stores.
class Generator {
 public:
  struct State {
    uint64_t seed, stream, offset;
    bool operator==(const State&) const = default;
  };

  explicit Generator(uint64_t seed = 0, uint64_t stream = 0) : state_{seed, stream, 0} {}

  // Starts over, on the same stream.
  void seed(uint64_t seed) {
    const std::lock_guard guard(mutex_);
    state_ = {seed, state_.stream, 0};
  }
  // The next `blocks` positions, which no other call gets. After 2^64 of them it begins again.
  Reservation reserve(uint64_t blocks) {
    const std::lock_guard guard(mutex_);
    const Reservation reservation{state_.seed, state_.stream, state_.offset};
    state_.offset += blocks;
    return reservation;
  }
  State state() const {
    const std::lock_guard guard(mutex_);
    return state_;
  }
  void set_state(const State& state) {
    const std::lock_guard guard(mutex_);
    state_ = state;
  }

 private:
  mutable ForkMutex mutex_;
  State state_;
};

// One block, by the definition.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) noexcept;

enum class Draw : uint8_t { uniform, normal, integers, bits };
// Positions that filling `count` elements takes.
uint64_t blocks_for(Draw kind, DType dtype, int64_t count) noexcept;

// Uniform in [low, high), for float types. float64 has 53 random bits; the others have 24, computed in
// float32. The limits are first rounded to the type. `high` is never returned: what would round to it becomes
// the largest number below it (in float16 and bfloat16 that number is therefore up to 1.5 times as likely as
// its neighbours). If there is nothing between the limits, every element is `low`.
void fill_uniform(const View& to, const Reservation& from, double low, double high);
// mean + std * z with z normal (Box and Muller 1958), for float types. z comes from 32-bit words, in float32,
// and is below 6.7; for float64 from 64-bit words, and below 8.7: finite, unless mean + std * z does not fit
// the type.
void fill_normal(const View& to, const Reservation& from, double mean, double std);
// Uniform in [low, high), for integer types; low < high, else every element is `low`. The value is the upper
// half of a 64-bit draw times the size of the range: the same work for every element, at the price of a bias.
// Each probability is off by less than 2^-64, which is a share below 2^-32 for up to 2^32 values.
void fill_integers(const View& to, const Reservation& from, int64_t low, int64_t high);
// Random bits, for integer types.
void fill_bits(const View& to, const Reservation& from);
// A random order of 0 ... count-1 (Fisher and Yates), from blocks_for(integers, int64, count).
std::vector<int64_t> permutation(int64_t count, const Reservation& from);

}  // namespace weft
