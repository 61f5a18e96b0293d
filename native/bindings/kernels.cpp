// kernels.cpp: the kernels of native/kernels for the planner, as _core.Kernel. Operands and edge cases:
// kernels/kernels.h.
#include "kernels/kernels.h"

#include "bindings/program.h"

namespace weft {

void bind_kernels(nb::module_& m) {
  m.def(
      "kernel_sort",
      [](int axis, bool descending, bool values, bool indices) {
        return PyKernel{make_sort(axis, descending, values, indices)};
      },
      nb::arg("axis"), nb::arg("descending") = false, nb::arg("values") = true, nb::arg("indices") = false,
      "x -> [values,] [int64 indices]. Stable; NaN last.");
  m.def(
      "kernel_topk", [](int axis, bool largest) { return PyKernel{make_topk(axis, largest)}; },
      nb::arg("axis"), nb::arg("largest") = true,
      "x -> values, int64 indices: best first; k is their size along the axis.");
}

}  // namespace weft
