// dtype.h: element types. The names, kinds and NumPy counterparts are Python's (base/dtype.py); here is what
// kernels need. The numbers are saved nowhere; Python checks at import that both sides agree.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

enum class DType : uint8_t {
  bool_,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
};
inline constexpr int kDTypes = 13;

constexpr size_t size_of(DType dtype) noexcept {
  constexpr uint8_t kSizes[kDTypes] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}
constexpr bool is_float(DType dtype) noexcept { return dtype >= DType::float16; }
constexpr bool is_unsigned(DType dtype) noexcept { return dtype >= DType::uint8 && dtype <= DType::uint64; }
constexpr bool is_integer(DType dtype) noexcept { return dtype >= DType::int8 && dtype <= DType::uint64; }

// Short and long names: f32, float32.
const char* short_name(DType dtype) noexcept;
const char* name_of(DType dtype) noexcept;

}  // namespace weft
