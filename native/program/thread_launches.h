// thread_launches.h: a kernel on a GPU that is a few launches, each of code that was written for its operands
// (weft/expr/launches.py, thread_launches).
//
// What a launch's code is given, in words of 8 bytes: addresses, the loops' sizes, for each operand its
// strides along them in bytes, parameters. An operand whose size is 1 does not move. As ThreadLoop, it does
// not wait, and does nothing where its context is gated and a check has found a failure.
//
// Code that works in memory of its own has it in shared memory where it fits, else in arrays of scratch.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "engine/device_kind.h"
#include "program/code_table.h"
#include "program/kernel.h"

namespace weft {

// What code of a launch is compiled for. memory: what it works in, 1 + the number of the least sufficient one
// of LaunchesForm::limits, or 0: scratch. is_narrow: positions, and offsets along each loop, fit into 31
// bits.
struct LaunchPattern {
  int device = 0, memory = 0;
  bool is_narrow = false, is_gated = false;
  bool operator==(const LaunchPattern&) const = default;
};

struct LaunchForm {
  // Makes the code, and keeps it as long as the process. May throw.
  using Compile = std::function<const DeviceFunction*(const LaunchPattern&)>;
  // An operand of the kernel, or behind them an array of scratch; for each loop its dimension, or -1.
  struct Operand {
    int operand;
    std::vector<int> dims;
  };
  std::vector<Operand> operands;
  // How many elements of these loops are a turn of a block; all turns together are the launch's items.
  std::vector<std::pair<int, int64_t>> tiles;
  Compile compile;
};

struct LaunchesForm {
  // An array that launches hand on, row-major: the loops whose sizes it has, and its type.
  struct Array {
    std::vector<int> loops;
    DType dtype;
  };
  int operands;
  std::vector<std::pair<int, int>> loops;  // operand and dimension that have the size of each
  std::vector<Array> scratch;              // none of it where code works in shared memory
  std::vector<LaunchForm> launches;
  // What a block works on, one or two loops each, and the bytes of shared memory that code may be compiled
  // for.
  std::vector<Array> work;
  std::vector<int64_t> limits;
};
Ref<Kernel> make_thread_launches(LaunchesForm form);

}  // namespace weft
