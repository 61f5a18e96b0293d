// testing.cpp: native functions for the tests and benchmarks, as addresses for NativeFunction.
#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "bindings/python.h"
#include "engine/machine.h"
#include "engine/team.h"

namespace weft {
namespace {

void noop(void*) {}

void spin_us(void* data) {
  const auto us = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  const auto until = Clock::now() + std::chrono::microseconds(us);
  while (Clock::now() < until) cpu_relax();
}

// Work rather than time: a thread that is interrupted has not done it.
void burn(double us) {
  static constinit std::atomic<double> steps_per_us{0};
  if (steps_per_us == 0)
    steps_per_us = [] {
      constexpr int kSteps = 200000;
      double best = 1e9;
      for (int i = 0; i < 20; ++i) {
        const auto from = Clock::now();
        volatile uint64_t x = 1;
        for (int k = 0; k < kSteps; ++k) x = x * 6364136223846793005u + 1;
        best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - from).count());
      }
      return kSteps / best;
    }();
  volatile uint64_t x = 1;
  for (auto k = static_cast<int64_t>(us * steps_per_us); k > 0; --k) x = x * 6364136223846793005u + 1;
}

// A parallel region of `data` microseconds when every core of the team is free.
void parallel_spin_us(void* data) {
  constexpr double kPiece = 10;
  const auto pieces =
      static_cast<int64_t>(static_cast<double>(reinterpret_cast<uintptr_t>(data)) * team_size() / kPiece);
  parallel_for(pieces, 1, [](int64_t begin, int64_t end) {
    for (; begin < end; ++begin) burn(kPiece);
  });
}

void throw_std(void*) { throw std::runtime_error("a C++ exception"); }
void throw_int(void*) { throw 42; }

// Two threads that run it at a time race, for long enough that they meet: what shows that a sanitizer looks.
volatile int64_t unguarded = 0;
void race(void*) {
  for (int k = 0; k < 1000000; ++k) unguarded = unguarded + 1;
}

template <class F>
uintptr_t address(F* fn) {
  return reinterpret_cast<uintptr_t>(fn);
}

}  // namespace

void bind_testing(nb::module_& m) {
  nb::module_ testing = m.def_submodule("testing", "C functions by address, for tests and benchmarks.");
  // (cores, bytes) that a file tree like /sys/fs/cgroup allows a process of these groups; 0: no bound.
  def(
      testing, "control_group_bounds",
      [](const std::string& root, const std::string& membership) {
        return nb::make_tuple(quota_cores(root, membership), memory_bound(root, membership));
      },
      "root"_a, "membership"_a);
  // Whether what nanobind still knows of at the end of the process is printed.
  def(testing, "set_leak_warnings", [](bool enabled) { nb::set_leak_warnings(enabled); });
  testing.attr("noop") = address(noop);
  testing.attr("spin_us") = address(spin_us);                    // data: microseconds
  testing.attr("parallel_spin_us") = address(parallel_spin_us);  // data: microseconds; for the queue "wide"
  testing.attr("throw_std") = address(throw_std);
  testing.attr("throw_int") = address(throw_int);
  testing.attr("race") = address(race);
}

}  // namespace weft
