// kernels.cpp: the kernels of native/kernels for the planner, as _core.Kernel. Operands and edge cases:
// kernels/kernels.h.
#include "kernels/kernels.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>

#include "bindings/program.h"
#include "engine/team.h"
#include "kernels/level.h"

namespace weft {
namespace {

Combine combine_of(const std::string& name) {
  if (name == "set") return Combine::set;
  if (name == "add") return Combine::add;
  if (name == "max") return Combine::max;
  if (name == "min") return Combine::min;
  throw ValueError("mode is one of 'set', 'add', 'max', 'min'; got '" + name + "'");
}

}  // namespace

void bind_kernels(nb::module_& m) {
  // For tests: results do not depend on it.
  def(
      m, "set_team_size",
      [](int threads) {
        const int before = team_size();
        set_team_size(threads);
        return before;
      },
      nb::arg("threads"));
  def(
      m, "set_kernel_isa",
      [](const std::string& level) {
        static constexpr const char* kNames[] = {"sse4", "avx2", "avx512"};
        const auto* const wanted = std::find(std::begin(kNames), std::end(kNames), level);
        if (wanted == std::end(kNames))
          throw ValueError("set_kernel_isa: level is one of 'sse4', 'avx2', 'avx512'; got '" + level + "'");
        return kNames[static_cast<size_t>(set_kernel_isa(static_cast<Isa>(wanted - kNames)))];
      },
      nb::arg("level"),
      "For tests: native kernels made and run from now on use at most this level. Returns the one before.");
  def(
      m, "kernel_sort",
      [](int axis, bool descending, bool values, bool indices) {
        return PyKernel{make_sort(axis, descending, values, indices)};
      },
      nb::arg("axis"), nb::arg("descending") = false, nb::arg("values") = true, nb::arg("indices") = false,
      "x -> [values,] [int64 indices]. Stable; NaN last.");
  def(
      m, "kernel_topk", [](int axis, bool largest) { return PyKernel{make_topk(axis, largest)}; },
      nb::arg("axis"), nb::arg("largest") = true,
      "x -> values, int64 indices: best first; k is their size along the axis.");
  def(
      m, "kernel_take_along_axis", [](int axis) { return PyKernel{make_take_along_axis(axis)}; },
      nb::arg("axis"), "x, indices -> y of the shape of indices.");
  def(
      m, "kernel_scatter",
      [](int axis, const std::string& mode) { return PyKernel{make_scatter(axis, combine_of(mode))}; },
      nb::arg("axis"), nb::arg("mode") = "set",
      "x, indices, updates -> y (may be x): set, add, max or min along an axis.");
  def(
      m, "kernel_index_get",
      [](std::vector<int> dims, int position) { return PyKernel{make_index_get(std::move(dims), position)}; },
      nb::arg("dims"), nb::arg("position"),
      "x, an index array for each of dims -> y, their dimensions at position.");
  def(
      m, "kernel_index_put",
      [](std::vector<int> dims, int position, const std::string& mode) {
        return PyKernel{make_index_put(std::move(dims), position, combine_of(mode))};
      },
      nb::arg("dims"), nb::arg("position"), nb::arg("mode") = "set",
      "x, an index array for each of dims, updates -> y (may be x).");
  def(
      m, "kernel_attention", [](bool causal, bool mask) { return PyKernel{make_attention(causal, mask)}; },
      nb::arg("causal"), nb::arg("mask"),
      "q, k, v, [mask] -> y, logs. Parameters: scale (float64), diagonal (int64).");
  def(
      m, "kernel_attention_backward",
      [](bool causal, bool mask) { return PyKernel{make_attention_backward(causal, mask)}; },
      nb::arg("causal"), nb::arg("mask"),
      "dy, q, k, v, [mask], y, logs -> dq, dk, dv. Parameters: scale (float64), diagonal (int64).");
  def(
      m, "kernel_dropout", [](bool mask) { return PyKernel{make_dropout(mask)}; }, nb::arg("mask") = false,
      "x -> y, [mask]. Parameters: key, stream, offset, p (float64).");
  def(
      m, "kernel_random_uniform", [] { return PyKernel{make_random_fill(Draw::uniform)}; },
      "-> y. Parameters: key, stream, offset, low, high (float64).");
  def(
      m, "kernel_random_normal", [] { return PyKernel{make_random_fill(Draw::normal)}; },
      "-> y. Parameters: key, stream, offset, mean, std (float64).");
  def(
      m, "kernel_random_integers", [] { return PyKernel{make_random_fill(Draw::integers)}; },
      "-> y. Parameters: key, stream, offset, low, high (int64).");
  def(
      m, "kernel_drawn",
      [](const PyKernel& kernel, int inputs, int outputs, int parameters, int64_t offset) {
        return PyKernel{make_drawn(kernel.kernel, inputs, outputs, parameters, offset)};
      },
      nb::arg("kernel"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("parameters"), nb::arg("offset"),
      "inputs, int64 words[2], int64 position -> outputs: the kernel's, from a stream that inputs give.");
  def(
      m, "kernel_position", [] { return PyKernel{make_position()}; },
      "-> int64 words[2], int64 position. Parameters: key, stream, offset.");
  def(
      m, "kernel_bernoulli", [] { return PyKernel{make_bernoulli()}; },
      "p -> y. Parameters: key, stream, offset.");
  def(
      m, "kernel_permutation", [] { return PyKernel{make_permutation()}; },
      "x -> y. Parameters: key, stream, offset.");
  def(
      m, "kernel_count_nonzero", [] { return PyKernel{make_count_nonzero()}; },
      "x -> number of true elements.");
  def(m, "kernel_nonzero", [] { return PyKernel{make_nonzero()}; }, "x -> int64 indices [number, ndim].");
  def(m, "kernel_masked_select", [] { return PyKernel{make_masked_select()}; }, "x, mask -> y[number].");
  def(
      m, "kernel_masked_assign", [] { return PyKernel{make_masked_assign()}; },
      "x, mask, values[number] -> y (may be x).");
  def(
      m, "kernel_check_labels",
      [](std::string function) { return PyKernel{make_check_labels(std::move(function))}; },
      nb::arg("function"), "integers -> int64. Parameters: classes, ignored.");
  def(
      m, "kernel_searchsorted", [](bool right) { return PyKernel{make_searchsorted(right)}; },
      nb::arg("right") = false, "sorted[.., n], values[.., m] -> int64[.., m].");
  def(
      m, "kernel_two_bits", [](float threshold) { return PyKernel{make_two_bits(threshold)}; },
      nb::arg("threshold"), "x f32[n], residual f32[n] -> uint8[4 * ceil(n / 16)], what is left f32[n].");
  def(
      m, "kernel_unique", [] { return PyKernel{make_unique_kernel()}; },
      "x[n] -> values[n], int64 first[n], inverse[n], counts[n], number.");
}

}  // namespace weft
