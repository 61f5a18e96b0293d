// ahead.cpp: finds kernels that were compiled when the package was built.
#include "bindings/ahead.h"

#include <algorithm>
#include <string_view>

#include "bindings/python.h"

namespace weft {
namespace {

// Whether this processor has what LLVM's level of this name may use.
bool runs_here([[maybe_unused]] std::string_view level) {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (level == "x86-64-v3") return v3;
  if (level == "x86-64-v4")
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#endif
  return false;
}

const AheadLevel* level_here() {
  const AheadLevel* best = nullptr;
  for (const AheadLevel* level = ahead_levels; level->name; ++level)
    if (runs_here(level->name)) best = level;
  return best;
}

}  // namespace

void bind_ahead(nb::module_& m) {
  m.def(
      "prebuilt_kernel",
      [](uint64_t key) -> uintptr_t {
        static const AheadLevel* const level = level_here();
        if (!level) return 0;
        const AheadKernel* end = level->kernels + level->count;
        const AheadKernel* found =
            std::lower_bound(level->kernels, end, key,
                             [](const AheadKernel& kernel, uint64_t wanted) { return kernel.key < wanted; });
        return found != end && found->key == key ? reinterpret_cast<uintptr_t>(found->function) : 0;
      },
      nb::arg("key"), "The address of a kernel compiled with the package, by its text's hash; 0: none.");
}

}  // namespace weft
