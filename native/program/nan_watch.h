// nan_watch.h: makes steps fail whose results hold NaN, while a search for its origin is on.
#pragma once

#include <atomic>
#include <span>
#include <stdexcept>

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
  // After a step that has run on a device: throws if what it has written holds what is looked for.
  // operand(k): a View with its data.
  template <class Operand>
  static void check(const Program::Step& step, Device device, const Operand& operand) {
    if (!is_on()) [[likely]]
      return;
    std::vector<View> views;
    for (size_t k = 0; k < step.operands.size(); ++k) views.push_back(operand(k));
    check_results(step, device, views);
  }

 private:
  static void check_results(const Program::Step& step, Device device, const std::vector<View>& operands);
  static inline std::atomic<int> on_{0};  // relaxed: a switch, nothing is published by it
};

}  // namespace weft
