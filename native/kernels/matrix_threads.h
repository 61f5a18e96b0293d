// matrix_threads.h: kernels of linear algebra on GPUs: a block of threads for each matrix of a stack, and the
// error of the first one that has no result.
#pragma once

#include <string>
#include <vector>

#include "program/kernel.h"

namespace weft {

struct MatrixForm {
  std::string function, operand;  // that errors name
  // Why a matrix has no result, by the number that code stores, from 1 on. A single fact is of all numbers;
  // its # stands for the number, counted from `first`.
  std::vector<std::string> facts;
  int64_t first;
  int stack, own_axes;   // the operand whose leading axes are the stack, and how many others it has
  Ref<Kernel> launches;  // operands, int32 failures of the stack's shape, 0 for none
  Ref<Kernel> find;      // failures in one dimension -> as of IndexedForm
};
Ref<Kernel> make_matrix_threads(MatrixForm form);

}  // namespace weft
