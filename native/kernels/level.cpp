// level.cpp: the level of native kernels, which tests lower within a process.
#include "kernels/level.h"

#include <algorithm>
#include <atomic>

namespace weft {
namespace {

// Relaxed: a number that guards nothing.
std::atomic<Isa>& level() noexcept {
  static std::atomic<Isa> current{isa()};
  return current;
}
[[maybe_unused]] const std::atomic<Isa>& kAtLoad = level();

}  // namespace

Isa kernel_isa() noexcept { return level().load(std::memory_order_relaxed); }

Isa set_kernel_isa(Isa requested) noexcept {
  return level().exchange(std::min(requested, isa()), std::memory_order_relaxed);
}

}  // namespace weft
