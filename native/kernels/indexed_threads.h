// indexed_threads.h: kernels for GPUs that read or write elements at indices, made of loops for threads.
//
// Indices are checked first. Where the operation may note a check (late_checks.h), the code then reads and
// writes element 0 in place of one that is refused; else the host waits, and IndexError is raised before
// anything is written.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program/kernel.h"

namespace weft {

// How a loop sees the operands of a kernel. Where something is written at indices, x is operand 0, y the last
// one of the loop, and the loop runs on what x is copied to.
struct IndexedForm {
  struct Operand {
    int operand;                // of the kernel
    std::vector<int> dims;      // for each loop its dimension that moves, or -1
    std::vector<int> gathered;  // its dimensions where the code computes positions
  };
  // Indices in -n ... n-1, n being the size of dimension `dim` of operand `of`. The loop has these n as
  // parameters.
  struct Check {
    int indices, of, dim;
  };
  std::string function;                    // that errors name
  std::vector<std::pair<int, int>> loops;  // operand and dimension that have the size of each
  std::vector<Operand> operands;           // of the loop, in order
  std::vector<Check> checks;
  std::vector<Ref<Kernel>>
      find;  // for each check, (indices) -> int64 place of the first one that is refused, else -1, and its
             // value; or none. Parameters: n, then the sizes of the indices
  Ref<Kernel> loop;  // a ThreadLoop
  Ref<Kernel> copy;  // x -> y, or null
};
Ref<Kernel> make_indexed_threads(IndexedForm form);

// x -> y, x's slices along the first axis in random order. Parameters: key, stream, offset. gather: (x, int64
// order, y).
Ref<Kernel> make_permuted_threads(Ref<Kernel> gather);

// labels -> int64 y, with class 0 in place of one that is refused. Parameters, also of copy: classes,
// ignored. find: as above, with these parameters first.
Ref<Kernel> make_checked_labels(std::string function, Ref<Kernel> find, Ref<Kernel> copy);

// The loop on its operands, behind checks of their numbers, which raise ValueError of a fact and the number.
// find: as above, without parameters but the sizes; its value is the bits of a float64.
struct NumberCheck {
  int operand;
  std::string fact;
  Ref<Kernel> find;
};
Ref<Kernel> make_checked_numbers(std::vector<NumberCheck> checks, Ref<Kernel> loop);

// trials[.., 1], p[.., k], bits[.., 1] -> counts[.., k]. checks: of the first two; without: as theirs, of
// trials and of the sums of the rows' chances. rows: a ThreadLoop of trials, p, bits, the sums of chances
// from each to the row's end (float64, like p), and counts.
Ref<Kernel> make_multinomial_threads(std::vector<NumberCheck> checks, Ref<Kernel> without, Ref<Kernel> rows);

}  // namespace weft
