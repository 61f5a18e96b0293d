// nan_watch.h: makes steps fail whose results hold NaN, while a search for its origin is on.
#pragma once

#include <atomic>
#include <span>
#include <stdexcept>

#include "program/kernel.h"
#include "program/program.h"

namespace weft {

struct FloatingPointError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class NanWatch {
 public:
  static bool is_on() noexcept { return on_.load(std::memory_order_relaxed); }
  // infinite: infinite results fail as well. Returns what was set before, as 0 off, 1 NaN, 2 infinite, too.
  static int set(int what) noexcept;
  // Makes the kernel that counts on a device: x of this type and rank -> int64 NaN, infinite elements, and
  // the places in row-major order of the first NaN and of the first of both, -1: none. Parameters: x's sizes.
  // Set where the native module is loaded.
  using MakeCount = Ref<Kernel> (*)(DType dtype, int ndim);
  static inline std::atomic<MakeCount> make_count{nullptr};

  // After a step that has run: throws if what it has written holds what is looked for. operand(k): a View
  // with its data.
  template <class Operand>
  static void check(const Program::Step& step, const RunContext& context, const Operand& operand) {
    if (!is_on()) [[likely]]
      return;
    std::vector<View> views;
    for (size_t k = 0; k < step.operands.size(); ++k) views.push_back(operand(k));
    check_results(step, context, views);
  }

 private:
  static void check_results(const Program::Step& step, const RunContext& context,
                            const std::vector<View>& operands);
  static inline std::atomic<int> on_{0};  // relaxed: a switch, nothing is published by it
};

}  // namespace weft
