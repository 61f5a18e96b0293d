// kernels.h: the kernels of this folder: what neither oneDNN nor the expression compiler covers.
//
// Each takes operands of any strides; sizes come with the call, so one kernel serves all shapes. Axes may be
// negative. Operands are listed inputs first; shapes and types are the caller's to have checked, values
// (indices) are checked here, before anything is written.
#pragma once

#include "program/kernel.h"

namespace weft {

// x -> values, and or int64 indices, of x's shape. Always stable; NaN is last in both directions. In sorted
// values without indices -0 comes before 0.
Ref<Kernel> make_sort(int axis, bool descending, bool values, bool indices);
// x -> values, int64 indices: the first k of the order along the axis, k being their size there. Among equals
// the lower index wins; NaN counts as the largest.
Ref<Kernel> make_topk(int axis, bool largest);

}  // namespace weft
