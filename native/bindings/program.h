// program.h: kernels as Python holds them.
#pragma once

#include "bindings/tensor.h"
#include "program/kernel.h"

namespace weft {

// `_core.Kernel`: what the planner gets from the modules that make kernels, and puts into programs.
struct PyKernel {
  Ref<Kernel> kernel;
};

}  // namespace weft
