// kernels.h: the few loops over strided arrays that exist without the expression compiler: copying with
// conversion, filling, counting. They run where they are called; ordering is the caller's (the engine's).
#pragma once

#include <cstdint>
#include <utility>

#include "tensor/dtype.h"

namespace weft {

inline constexpr int kMaxDims = 16;

// A strided array that is not owned. Strides count elements, and may be zero or negative.
struct View {
  char* data;  // of the element with index 0 in every dimension
  DType dtype;
  int ndim;
  const int64_t* shape;
  const int64_t* strides;
};

// One number of any type, exactly: integers beyond 2^53 do not go through a double.
struct Scalar {
  enum class Kind : uint8_t { boolean, integer, unsigned_integer, real } kind;
  union {
    bool boolean;
    int64_t integer;
    uint64_t unsigned_integer;  // only above the largest int64
    double real;
  };
  uint32_t origin = 0;  // its origin in a trace (array_recorder.h); 0: a constant
};

// to[i] = convert(from[i]). Equal shapes. Conversion as NumPy's astype does it (tensor/convert.h says
// where NumPy leaves it open); every bit of a value survives where the types are the same. The two must not
// overlap, unless they are the same elements at the same places.
void copy(const View& to, const View& from);
// to[i] = convert(value).
void fill(const View& to, Scalar value);
// to[i] = convert(start + i * step), i counting the elements in row-major order; computed in int64 (wrapping)
// if both are integers, else in float64.
void fill_range(const View& to, Scalar start, Scalar step);
// One element; of a complex number the real part.
Scalar load(const char* element, DType dtype) noexcept;
void store(char* element, DType dtype, Scalar value) noexcept;

// False only if no element of one shares a byte with the other; may return true when unsure.
bool may_overlap(const View& a, const View& b) noexcept;
// The range of an array's elements: the first byte, and behind the last; both 0 if there are none.
std::pair<uintptr_t, uintptr_t> addresses_of(const View& view) noexcept;
// True if two indices of the array mean the same element (a zero stride, or strides that meet); may say true
// when unsure.
bool may_overlap_itself(const View& view) noexcept;

}  // namespace weft
