// program.cpp: kernels and programs for Python.
#include "bindings/program.h"

#include <nanobind/stl/vector.h>

#include "storage/runtime.h"

namespace weft {

void bind_program(nb::module_& m) {
  nb::class_<PyKernel>(m, "Kernel", "A computation on memory that native code runs.");
  // Runs a kernel here and now; for tests of kernels by themselves.
  m.def(
      "run_kernel",
      [](const PyKernel& kernel, const std::vector<nb::handle>& operands, nb::bytes parameters) {
        const PythonEntry entry;
        std::vector<View> views;
        for (nb::handle operand : operands) {
          const Tensor& x = tensor_of(operand, "run_kernel");
          wait_for(x, true);
          views.push_back(x.view());
        }
        std::vector<uint64_t> slots((parameters.size() + 7) / 8);
        std::copy_n(parameters.c_str(), parameters.size(), reinterpret_cast<char*>(slots.data()));
        char* scratch = temp_space({}, kernel.kernel->scratch_bytes(views.data()));
        kernel.kernel->run({views.data(), slots.data(), scratch});
      },
      nb::arg("kernel"), nb::arg("operands"), nb::arg("parameters") = nb::bytes("", 0));
}

}  // namespace weft
