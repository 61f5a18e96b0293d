// ahead.h: generated kernels that were compiled when the package was built (weft/executor/aot.py).
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// As weft/expr/llvm.py describes it.
using AheadFunction = void(char* const* data, const int64_t* sizes, const int64_t* strides,
                           const void* parameters);

struct AheadKernel {
  uint64_t key;  // a hash of the kernel's text
  AheadFunction* function;
};

// One kind of processor, and its kernels in ascending order of their keys.
struct AheadLevel {
  const char* name;
  const AheadKernel* kernels;
  size_t count;
};

// From the lowest to the highest; ends with a level without a name. Written by the build.
extern const AheadLevel ahead_levels[];

}  // namespace weft
