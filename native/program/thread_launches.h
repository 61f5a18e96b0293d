// thread_launches.h: a kernel on a GPU that is a few launches, each of code that was written for its operands
// (weft/expr/launches.py, thread_launches).
//
// What a launch's code is given, in words of 8 bytes: addresses, the loops' sizes, for each operand its
// strides along them in bytes, parameters. As ThreadLoop, it does not wait, and does nothing where its
// context is gated and a check has found a failure.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "engine/device_kind.h"
#include "program/code_table.h"
#include "program/kernel.h"

namespace weft {

// What code of a launch is compiled for. is_narrow: positions, and offsets along each loop, fit into 31 bits.
struct LaunchPattern {
  int device = 0;
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
  int operands;
  std::vector<std::pair<int, int>> loops;  // operand and dimension that have the size of each
  // Arrays of scratch that launches hand on, row-major: the operand whose shape they have, and their type.
  std::vector<std::pair<int, DType>> scratch;
  std::vector<LaunchForm> launches;
};
Ref<Kernel> make_thread_launches(LaunchesForm form);

}  // namespace weft
