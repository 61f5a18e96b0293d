// scalar.h: what is asked of one number of any type.
#pragma once

#include "tensor/kernels.h"

namespace weft {

// The number as a float64, rounded.
double real_of(Scalar value) noexcept;
// The number as int64, as a pattern of bits: unsigned ones above the largest wrap, real ones are converted.
uint64_t bits_of(Scalar value) noexcept;
// Whether an integer is among those of the type; true for all other numbers and types.
bool fits(Scalar value, DType dtype) noexcept;

}  // namespace weft
