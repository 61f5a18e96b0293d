// program.h: kernels and programs as Python holds them, and the plans of operators' functions.
#pragma once

#include "bindings/tensor.h"
#include "calls/plan.h"
#include "program/program.h"

namespace weft {

// `_core.Kernel`: what the planner gets from the modules that make kernels, and puts into programs.
struct PyKernel {
  Ref<Kernel> kernel;
};

// `_core.Plan`
struct PyPlan {
  Ref<Plan> plan;
};

}  // namespace weft
