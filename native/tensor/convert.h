// convert.h: one element of any type to any other: convert<To>(from). Pure, without undefined behaviour, the
// same on every machine.
//
// What NumPy's astype gives, with these rules where NumPy's answer depends on the code path it took:
//   integer -> integer    wraps.
//   anything -> bool      x != 0; NaN is true.
//   float -> int8, int16, int32, uint8, uint16   truncated towards zero to int32, then wrapped. What does not
//                         fit int32, and NaN, is -2^31 (so 0 in the 8- and 16-bit types), as cvttss2si has
//                         it.
//   float -> int64        truncated; what does not fit, and NaN, is -2^63.
//   float -> uint32       as to int64, then wrapped: -1.5 is 2^32 - 1, NaN is 0. (NumPy does this in scalar
//                         loops; its vectorised ones give other values for NaN and above 2^32.)
//   float -> uint64       below 2^63 as to int64, wrapped (-1.5 is 2^64 - 1, NaN is 2^63); above, exact while
//                         below 2^64, else 0.
//   -> float16            one rounding to nearest even, from float64 too. Integers go through float32, which
//                         changes nothing: those that float32 rounds are infinite in float16.
//   -> bfloat16           to float32 (so float64 is rounded twice, as by ml_dtypes), then to nearest even.
//                         Subnormal numbers of float32 become zeros, as in processors' instructions and
//                         oneDNN's kernels; everywhere else subnormals are kept.
//   float16, bfloat16 <- NaN   quiet, with the upper bits of the payload, as instructions have it.
//   complex -> real       the real part; a bool is true if a part is not 0. -> complex: the imaginary part is
//   0.
// An element may be at any address, and one of one type may be read where another was: hence memcpy.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>

#include "tensor/dtype.h"

namespace weft {

// The types without a C++ type of their own. Any byte but 0 is a true bool.
struct Bool {
  uint8_t byte;
};
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
template <class Part>
struct Complex {
  Part re, im;
};
template <class T>
inline constexpr bool is_pair = false;
template <class Part>
inline constexpr bool is_pair<Complex<Part>> = true;

// In the order of DType.
using Elements = std::tuple<Bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
                            Float16, BFloat16, float, double, Complex<float>, Complex<double>>;
template <DType dtype>
using ElementOf = std::tuple_element_t<static_cast<size_t>(dtype), Elements>;

template <class T>
inline T load_as(const void* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
inline void store_as(void* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

namespace detail {

// After F. Giesen, "float_to_half_fast3_rtne": the addition of a magic number lets the processor
// round a subnormal; elsewhere rounding is an integer addition below the kept bits.
inline uint16_t to_float16(float value) noexcept {
  const auto all = std::bit_cast<uint32_t>(value);
  const uint32_t x = all & 0x7fffffff;
  constexpr uint32_t kMagic = (127u - 15 + 23 - 10 + 1) << 23;  // 0.5: its last bit is worth 2^-24
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(x) + std::bit_cast<float>(kMagic)) - kMagic;
  const uint32_t normal = (x - ((127u - 15) << 23) + 0xfff + ((x >> 13) & 1)) >> 13;
  const uint32_t special = x > 0x7f800000 ? 0x7e00 | ((x >> 13) & 0x3ff) : 0x7c00;
  const uint32_t finite = x < (127u - 14) << 23 ? small : normal;
  const uint32_t result = x >= (127u + 16) << 23 ? special : finite;
  return static_cast<uint16_t>(result | ((all >> 16) & 0x8000));
}

// The same with 52 bits of fraction: through float32 it would round twice.
inline uint16_t to_float16(double value) noexcept {
  const auto all = std::bit_cast<uint64_t>(value);
  const uint64_t x = all & 0x7fffffffffffffff;
  constexpr uint64_t kMagic = (1023ull + 28) << 52;
  const uint64_t small =
      std::bit_cast<uint64_t>(std::bit_cast<double>(x) + std::bit_cast<double>(kMagic)) - kMagic;
  const uint64_t normal = (x - ((1023ull - 15) << 52) + ((1ull << 41) - 1) + ((x >> 42) & 1)) >> 42;
  const uint64_t special = x > 0x7ffull << 52 ? 0x7e00 | ((x >> 42) & 0x3ff) : 0x7c00;
  const uint64_t finite = x < (1023ull - 14) << 52 ? small : normal;
  const uint64_t result = x >= (1023ull + 16) << 52 ? special : finite;
  return static_cast<uint16_t>(result | ((all >> 48) & 0x8000));
}

inline float from_float16(uint16_t bits) noexcept {
  const uint32_t x = (bits & 0x7fffu) << 13;  // exponent and fraction at their places in a float32
  constexpr uint32_t kMagic = (127u - 14) << 23;
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(x + kMagic) - std::bit_cast<float>(kMagic));
  const uint32_t normal = x + ((127u - 15) << 23);
  const uint32_t special = x | (x > 0x7c00u << 13 ? 0x7fc00000 : 0x7f800000);
  const uint32_t finite = x < 0x400u << 13 ? small : normal;
  const uint32_t result = x >= 0x7c00u << 13 ? special : finite;
  return std::bit_cast<float>(result | (bits & 0x8000u) << 16);
}

inline uint16_t to_bfloat16(float value) noexcept {
  const auto x = std::bit_cast<uint32_t>(value);
  const uint32_t size = x & 0x7fffffff;
  const uint32_t rounded = (x + 0x7fff + ((x >> 16) & 1)) >> 16;
  const uint32_t zero = (x >> 16) & 0x8000;
  const uint32_t nan = x >> 16 | 0x40;
  const uint32_t finite = size < 0x00800000 ? zero : rounded;
  return static_cast<uint16_t>(size > 0x7f800000 ? nan : finite);
}

inline float from_bfloat16(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Truncates what fits into Int; anything else and NaN become the smallest Int.
template <std::signed_integral Int, std::floating_point Float>
inline Int truncate(Float value) noexcept {
  constexpr auto kLow = static_cast<Float>(std::numeric_limits<Int>::min());
  // int32 from double: everything above kLow - 1 fits. Elsewhere the type has nothing between the two.
  constexpr bool kFiner = std::numeric_limits<Float>::digits > std::numeric_limits<Int>::digits;
  const bool above = kFiner ? value > kLow - 1 : value >= kLow;
  return static_cast<Int>(above & (value < -kLow) ? value : kLow);
}

template <class To, std::floating_point Float>
inline To float_to_integer(Float value) noexcept {
  if constexpr (std::same_as<To, uint64_t>) {
    constexpr auto kHalf = static_cast<Float>(1ull << 63);
    const bool upper = value >= kHalf;
    const auto lower = static_cast<uint64_t>(truncate<int64_t>(upper ? value - kHalf : value));
    return upper ? lower ^ (1ull << 63) : lower;  // from 2^64 on: 2^63 ^ 2^63
  } else if constexpr (std::same_as<To, uint32_t> || std::same_as<To, int64_t>) {
    return static_cast<To>(truncate<int64_t>(value));
  } else {
    return static_cast<To>(truncate<int32_t>(value));
  }
}

// To a type that C++ computes with.
// Not `!= 0`: a loop over this one vectorises.
inline uint8_t decode(Bool value) noexcept { return static_cast<uint8_t>(value.byte | -value.byte) >> 7; }
inline float decode(Float16 value) noexcept { return from_float16(value.bits); }
inline float decode(BFloat16 value) noexcept { return from_bfloat16(value.bits); }
template <class Part>
inline Part decode(Complex<Part> value) noexcept {
  return value.re;
}
template <class T>
  requires std::is_arithmetic_v<T>
inline T decode(T value) noexcept {
  return value;
}

}  // namespace detail

template <class To, class From>
inline To convert(From from) noexcept {
  if constexpr (std::same_as<To, From>) {
    return from;
  } else if constexpr (is_pair<From> && std::same_as<To, Bool>) {
    return {static_cast<uint8_t>((from.re != 0) | (from.im != 0))};
  } else if constexpr (is_pair<From> && is_pair<To>) {
    return {convert<decltype(To::re)>(from.re), convert<decltype(To::im)>(from.im)};
  } else if constexpr (is_pair<From>) {
    return convert<To>(from.re);
  } else if constexpr (is_pair<To>) {
    return {convert<decltype(To::re)>(from), 0};
  } else {
    const auto value = detail::decode(from);
    using Value = std::remove_const_t<decltype(value)>;
    if constexpr (std::same_as<To, Bool>) {
      return {static_cast<uint8_t>(value != 0)};
    } else if constexpr (std::same_as<To, Float16>) {
      if constexpr (std::same_as<Value, double>) {
        return {detail::to_float16(value)};
      } else {
        return {detail::to_float16(static_cast<float>(value))};
      }
    } else if constexpr (std::same_as<To, BFloat16>) {
      return {detail::to_bfloat16(static_cast<float>(value))};
    } else if constexpr (std::integral<To> && std::floating_point<Value>) {
      return detail::float_to_integer<To>(value);
    } else {
      return static_cast<To>(value);
    }
  }
}

// A loop over one dimension; strides count elements.
using RowFunction = void (*)(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                             int64_t count);
struct RowFunctions {
  RowFunction contiguous;  // both strides are 1, and not looked at
  RowFunction strided;
};
// The loops that convert between two types; the same bits, if the types are the same.
RowFunctions row_functions(DType to, DType from) noexcept;

}  // namespace weft
