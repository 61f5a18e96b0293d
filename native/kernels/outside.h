// outside.h: kernels of libraries that are not weft's (c/include/weft/kernel.h).
//
// They are kept by name, with what their operands may be, and stay for the life of the process: programs have
// their addresses. Any thread may call.
#pragma once

#include <string>
#include <vector>

#include "program/kernel.h"
#include "weft/kernel.h"

namespace weft {

// Raises std::invalid_argument, with the reason, if it is not as kernel.h says or is there already.
void add_kernel(const weft_kernel& kernel);
// Loads a library, and gives the names of the kernels that it has added. Raises std::invalid_argument.
std::vector<std::string> load_kernels(const std::string& path);
// The alternatives of a name, "float32,float32->float32"; none: there is no such kernel.
std::vector<std::string> alternatives_of(const std::string& name);

// signature: one of the alternatives. numbers: how many parameters it takes, float64 each. Raises
// std::invalid_argument if there is none.
Ref<Kernel> make_outside(const std::string& name, const std::string& signature, int numbers);

}  // namespace weft
