// ahead.cpp: finds kernels that were compiled when the package was built.
#include "bindings/ahead.h"

#include <algorithm>
#include <string_view>

#include "bindings/python.h"
#include "storage/isa.h"

namespace weft {
namespace {

// Whether kernels of LLVM's level of this name may run.
bool runs_here(std::string_view level) {
  return (level == "x86-64-v3" && isa() >= Isa::avx2) || (level == "x86-64-v4" && isa() >= Isa::avx512);
}

const AheadLevel* level_here() {
  const AheadLevel* best = nullptr;
  for (const AheadLevel* level = ahead_levels; level->name; ++level)
    if (runs_here(level->name)) best = level;
  return best;
}

}  // namespace

void bind_ahead(nb::module_& m) {
  def(
      m, "prebuilt_kernel",
      [](uint64_t key) -> uintptr_t {
        static constinit const AheadLevel* level = nullptr;
        if (!level) level = level_here();
        if (!level) return 0;
        const AheadKernel* end = level->kernels + level->count;
        const AheadKernel* entry = std::lower_bound(
            level->kernels, end, key,
            [](const AheadKernel& kernel, uint64_t searched) { return kernel.key < searched; });
        return entry != end && entry->key == key ? reinterpret_cast<uintptr_t>(entry->function) : 0;
      },
      "key"_a, "The address of a kernel compiled with the package, by its text's hash; 0: none.");
  def(
      m, "isa", [] { return nb::make_tuple(name_of(processor_isa()), name_of(isa()), isa_is_capped()); },
      nb::sig("def isa() -> tuple[str, str, bool]"),
      "The levels of instructions that the processor has and that are used, and whether $WEFT_ISA names the "
      "latter,\n"
      "so that the processor's other instructions are not used.");
}

}  // namespace weft
