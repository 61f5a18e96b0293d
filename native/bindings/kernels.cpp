// kernels.cpp: the kernels of native/kernels for the planner, as _core.Kernel. Operands and edge cases:
// kernels/kernels.h.
#include "kernels/kernels.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>

#include "bindings/convert.h"
#include "engine/team.h"
#include "kernels/indexed_threads.h"
#include "kernels/lapack.h"
#include "kernels/level.h"
#include "kernels/linalg.h"
#include "kernels/matrix_threads.h"
#include "kernels/named.h"

namespace weft {
namespace {

Combine combine_of(const std::string& name) {
  if (name == "set") return Combine::set;
  if (name == "add") return Combine::add;
  if (name == "max") return Combine::max;
  if (name == "min") return Combine::min;
  throw ValueError("mode is one of 'set', 'add', 'max', 'min'; got '" + name + "'");
}

void bind_linalg(nb::module_& m) {
  def(m, "set_lapack", &lapack::set, "addresses"_a, "integer_bytes"_a,
      "The addresses of LAPACK's routines, by type and routine as kernels/lapack.h lists them.");
  def(m, "has_lapack", &lapack::is_set);
  def(m, "kernel_product", &make_product, "accumulate"_a, "a, b -> y.");
  def(m, "kernel_cholesky", &make_cholesky, "upper"_a, "x -> l or u.");
  def(m, "kernel_lu_factor", &make_lu_factor, "x -> lu, int32 pivots, int32 permutation.");
  def(m, "kernel_det", &make_det, "x -> y.");
  def(m, "kernel_solve", &make_solve, "vectors"_a, "a, b -> x.");
  def(m, "kernel_solve_triangular", &make_solve_triangular, "upper"_a, "unit"_a, "vectors"_a, "a, b -> x.");
  def(m, "kernel_inverse", &make_inverse, "x -> y.");
  def(m, "kernel_qr", &make_qr, "x -> q, r.");
  def(m, "kernel_svd", &make_svd, "full"_a, "left"_a, "right"_a, "x -> [u,] s, [vh].");
  def(m, "kernel_eigh", &make_eigh, "vectors"_a, "x -> eigenvalues, [vectors].");
  def(m, "kernel_eig", &make_eig, "vectors"_a, "x -> eigenvalues, [vectors].");
}

}  // namespace

void bind_kernels(nb::module_& m) {
  bind_linalg(m);
  // For tests: results do not depend on it.
  def(
      m, "set_team_size",
      [](int threads) {
        const int before = team_size();
        set_team_size(threads);
        return before;
      },
      "threads"_a);
  def(
      m, "set_kernel_isa",
      [](const std::string& level) {
        static constexpr const char* kNames[] = {"sse4", "avx2", "avx512"};
        const auto* const name = std::find(std::begin(kNames), std::end(kNames), level);
        if (name == std::end(kNames))
          throw ValueError("set_kernel_isa: level is one of 'sse4', 'avx2', 'avx512'; got '" + level + "'");
        return kNames[static_cast<size_t>(set_kernel_isa(static_cast<Isa>(name - kNames)))];
      },
      "level"_a,
      "For tests: native kernels made and run from now on use at most this level. Returns the one before.");
  def(m, "kernel_transfer", &make_transfer, "to"_a, "source"_a, "x on source -> y on `to`.");
  def(m, "load_kernels", &load_kernels, "path"_a, "The names of the kernels that a library has added.");
  def(m, "kernel_alternatives", &alternatives_of, "name"_a);
  def(m, "kernel_outside", &Described<&make_outside>::call, "name"_a, "signature"_a, "numbers"_a,
      "The operands of the signature, as in kernel.h; numbers: float64 each.");
  def(m, "kernel_sort", &Described<&make_sort>::call, "axis"_a, "descending"_a = false, "values"_a = true,
      "indices"_a = false, "x -> [values,] [int64 indices]. Stable; NaN last.");
  def(m, "kernel_topk", &Described<&make_topk>::call, "axis"_a, "largest"_a = true,
      "x -> values, int64 indices: best first; k is their size along the axis.");
  def(m, "kernel_take_along_axis", &Described<&make_take_along_axis>::call, "axis"_a,
      "x, indices -> y of the shape of indices.");
  def(
      m, "kernel_scatter",
      [](int axis, const std::string& mode) {
        return Described<&make_scatter>::call(axis, combine_of(mode));
      },
      "axis"_a, "mode"_a = "set", "x, indices, updates -> y (may be x): set, add, max or min along an axis.");
  def(m, "kernel_index_get", &Described<&make_index_get>::call, "dims"_a, "position"_a,
      "x, an index array for each of dims -> y, their dimensions at position.");
  def(
      m, "kernel_index_put",
      [](std::vector<int> dims, int position, const std::string& mode) {
        return Described<&make_index_put>::call(std::move(dims), position, combine_of(mode));
      },
      "dims"_a, "position"_a, "mode"_a = "set",
      "x, an index array for each of dims, updates -> y (may be x).");
  for (const auto& [name, make] : {std::pair{"kernel_attention", &Described<&make_attention>::call},
                                   std::pair{"kernel_attention_backward", &make_attention_backward}})
    def(
        m, name,
        [make = make](bool mask, bool ranges, bool slopes, bool dropout) {
          return make({mask, ranges, slopes, dropout});
        },
        "mask"_a = false, "ranges"_a = false, "slopes"_a = false, "dropout"_a = false,
        "[dy,] q, k, v, [mask], [ranges], [slopes], [words, of dropout], [y, logs] -> y, logs or dq, dk, dv. "
        "Parameters: scale, cap (float64), before, after, offset (int64), p (float64).");
  def(m, "kernel_dropout", &Described<&make_dropout>::call, "mask"_a = false,
      "x -> y, [mask]. Parameters: key, stream, offset, p (float64).");
  def(
      m, "kernel_random_uniform", [] { return Described<&make_random_fill>::call(Draw::uniform); },
      "-> y. Parameters: key, stream, offset, low, high (float64).");
  def(
      m, "kernel_random_normal", [] { return Described<&make_random_fill>::call(Draw::normal); },
      "-> y. Parameters: key, stream, offset, mean, std (float64).");
  def(
      m, "kernel_random_integers", [] { return Described<&make_random_fill>::call(Draw::integers); },
      "-> y. Parameters: key, stream, offset, low, high (int64).");
  for (const auto& [name, distribution] : std::initializer_list<std::pair<const char*, Distribution>>{
           {"kernel_gamma", Distribution::gamma},
           {"kernel_gamma_slope", Distribution::gamma_slope},
           {"kernel_poisson", Distribution::poisson},
           {"kernel_binomial", Distribution::binomial},
           {"kernel_multinomial", Distribution::multinomial}})
    def(
        m, name, [distribution = distribution] { return Described<&make_distribution>::call(distribution); },
        "parameters, uint64 bits -> y; gamma_slope: alpha, y -> dy/dalpha.");
  def(m, "kernel_drawn", &make_drawn, "kernel"_a, "inputs"_a, "outputs"_a, "parameters"_a, "offset"_a,
      "inputs, int64 words[2], int64 position -> outputs: the kernel's, from a stream that inputs give.");
  def(m, "kernel_position", &Described<&make_position>::call,
      "-> int64 words[2], int64 position. Parameters: key, stream, offset.");
  def(m, "kernel_bernoulli", &Described<&make_bernoulli>::call, "p -> y. Parameters: key, stream, offset.");
  def(m, "kernel_permutation", &Described<&make_permutation>::call,
      "x -> y. Parameters: key, stream, offset.");
  def(m, "kernel_count_nonzero", &Described<&make_count_nonzero>::call, "x -> number of true elements.");
  def(m, "kernel_nonzero", &make_nonzero, "x -> int64 indices [number, ndim].");
  def(m, "kernel_masked_select", &make_masked_select, "x, mask -> y[number].");
  def(m, "kernel_masked_assign", &make_masked_assign, "x, mask, values[number] -> y (may be x).");
  def(m, "kernel_check_indices", &Described<&make_check_indices>::call, "function"_a, "axes"_a,
      "indices of each axis -> int64 0. Parameters: the axes' sizes.");
  def(m, "kernel_check_labels", &Described<&make_check_labels>::call, "function"_a,
      "integers -> int64. Parameters: classes, ignored.");
  // loops: (operand, dimension) that gives the size of each; operands: (operand, dimension that moves in each
  // loop, gathered dimensions) of the loop's; checks: (indices, operand, dimension).
  def(
      m, "make_indexed_threads",
      [](std::string function, std::vector<std::pair<int, int>> loops,
         const std::vector<std::tuple<int, std::vector<int>, std::vector<int>>>& operands,
         const std::vector<std::tuple<int, int, int>>& checks, std::vector<Ref<Kernel>> find,
         const Ref<Kernel>& loop, std::optional<Ref<Kernel>> copy) {
        IndexedForm form;
        form.function = std::move(function);
        form.loops = std::move(loops);
        for (const auto& [operand, dims, gathered] : operands)
          form.operands.push_back({operand, dims, gathered});
        for (const auto& [indices, of, dim] : checks) form.checks.push_back({indices, of, dim});
        form.find = std::move(find);
        form.loop = loop;
        if (copy) form.copy = *copy;
        return make_indexed_threads(std::move(form));
      },
      "function"_a, "loops"_a, "operands"_a, "checks"_a, "find"_a, "loop"_a, "copy"_a.none(),
      "Elements at indices, on a GPU: kernels/indexed_threads.h.");
  def(m, "make_permuted_threads", &make_permuted_threads, "gather"_a,
      "x -> y, on a GPU. Parameters: key, stream, offset.");
  def(m, "make_checked_labels", &make_checked_labels, "function"_a, "find"_a, "copy"_a,
      "integers -> int64. Parameters: classes, ignored.");
  using Checks = std::vector<std::tuple<int, std::string, Ref<Kernel>>>;
  static constexpr auto number_checks = [](const Checks& checks) {
    std::vector<NumberCheck> all;
    for (const auto& [operand, fact, find] : checks) all.push_back({operand, fact, find});
    return all;
  };
  def(
      m, "make_checked_numbers",
      [](const Checks& checks, const Ref<Kernel>& loop) {
        return make_checked_numbers(number_checks(checks), loop);
      },
      "checks"_a, "loop"_a, "A loop on a GPU behind checks of its operands: kernels/indexed_threads.h.");
  def(
      m, "make_matrix_threads",
      [](std::string function, std::string operand, std::vector<std::string> facts, int64_t first, int stack,
         int own_axes, const Ref<Kernel>& launches, const Ref<Kernel>& find) {
        return make_matrix_threads({std::move(function), std::move(operand), std::move(facts), first, stack,
                                    own_axes, launches, find});
      },
      "function"_a, "operand"_a, "facts"_a, "first"_a, "stack"_a, "own_axes"_a, "launches"_a, "find"_a,
      "Matrices of a stack, on a GPU: kernels/matrix_threads.h.");
  def(
      m, "make_multinomial_threads",
      [](const Checks& checks, const Ref<Kernel>& without, const Ref<Kernel>& rows) {
        return make_multinomial_threads(number_checks(checks), without, rows);
      },
      "checks"_a, "without"_a, "rows"_a,
      "trials, chances, bits -> counts, on a GPU: kernels/indexed_threads.h.");
  def(m, "kernel_bincount", &Described<&make_bincount>::call, "x[n] -> int64 [length].");
  def(m, "kernel_searchsorted", &Described<&make_searchsorted>::call, "right"_a = false,
      "sorted[.., n], values[.., m] -> int64[.., m].");
  def(m, "fourier_takes", &takes_points, "points"_a, "Whether kernel_fourier transforms so many points.");
  def(m, "kernel_fourier", &Described<&make_fourier>::call, "axes"_a, "sizes"_a, "inverse"_a, "factor"_a,
      "x -> y: the Fourier transform along axes, times a factor.");
  def(m, "kernel_real_fourier", &Described<&make_real_fourier>::call, "axis"_a, "n"_a, "inverse"_a,
      "factor"_a, "x -> y: n real numbers to n // 2 + 1 complex ones, or back, times a factor.");
  def(m, "kernel_two_bits", &make_two_bits, "threshold"_a,
      "x f32[n], residual f32[n] -> uint8[4 * ceil(n / 16)], what is left f32[n].");
  def(m, "kernel_grouped_linear", &Described<&make_grouped_linear>::call, "bias"_a,
      "x f32[.., k], weight uint8[n, k / 2] of pairs of 4 bits, scale f32[n, groups], [bias f32[n]] -> "
      "f32[.., n]; "
      "all row-major.");
  def(m, "kernel_unique", &Described<&make_unique_kernel>::call,
      "x[n] -> values[n], int64 first[n], inverse[n], counts[n], number.");
}

}  // namespace weft
