// level.h: the instruction set level that native kernels use.
#pragma once

#include "storage/isa.h"

namespace weft {

// isa(), unless a test sets less.
Isa kernel_isa() noexcept;

// For tests and benchmarks of kernels: from now on at most `level`; returns the level used before.
Isa set_kernel_isa(Isa level) noexcept;

}  // namespace weft
