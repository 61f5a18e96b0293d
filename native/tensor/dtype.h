// dtype.h: element types: what kernels know of them. dtype_table.h has one row for each, written from
// Python's table (src/weft/base/dtype.py), which also has their NumPy counterparts. The numbers are saved
// nowhere; new types come last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype_table.h"

namespace weft {

enum class DTypeKind : uint8_t { boolean, signed_integer, unsigned_integer, floating, complex_floating };

enum class DType : uint8_t {
#define WEFT_ROW(id, ...) id,
  WEFT_DTYPES(WEFT_ROW)
#undef WEFT_ROW
};

struct DTypeInfo {
  const char* name;        // float32
  const char* short_name;  // f32
  DTypeKind kind;
  uint16_t bits;
  uint8_t digits;      // significant binary digits of a number, without the sign
  DType accumulation;  // the type that sums are computed in
  const char* format;  // of the buffer protocol; null: it has none
};

inline constexpr DTypeInfo kDTypeTable[] = {
#define WEFT_ROW(id, name, short_name, kind, bits, digits, accumulation, format) \
  {name, short_name, DTypeKind::kind, bits, digits, DType::accumulation, format},
    WEFT_DTYPES(WEFT_ROW)
#undef WEFT_ROW
};
inline constexpr int kDTypes = sizeof kDTypeTable / sizeof kDTypeTable[0];

constexpr const DTypeInfo& info_of(DType dtype) noexcept { return kDTypeTable[static_cast<int>(dtype)]; }
constexpr size_t size_of(DType dtype) noexcept { return info_of(dtype).bits / 8; }
constexpr DTypeKind kind_of(DType dtype) noexcept { return info_of(dtype).kind; }

constexpr bool is_floating(DType dtype) noexcept {
  return kind_of(dtype) == DTypeKind::floating;
}  // and real
constexpr bool is_complex(DType dtype) noexcept { return kind_of(dtype) == DTypeKind::complex_floating; }
constexpr bool is_inexact(DType dtype) noexcept { return is_floating(dtype) || is_complex(dtype); }
constexpr bool is_unsigned(DType dtype) noexcept { return kind_of(dtype) == DTypeKind::unsigned_integer; }
constexpr bool is_integer(DType dtype) noexcept {
  return is_unsigned(dtype) || kind_of(dtype) == DTypeKind::signed_integer;
}
constexpr bool is_differentiable(DType dtype) noexcept { return is_inexact(dtype); }

constexpr const char* short_name(DType dtype) noexcept { return info_of(dtype).short_name; }
constexpr const char* name_of(DType dtype) noexcept { return info_of(dtype).name; }

}  // namespace weft
