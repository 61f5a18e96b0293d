// testing.cpp: native functions for the tests and benchmarks, as addresses for NativeFunction.
#include <chrono>
#include <stdexcept>

#include "bindings/python.h"

namespace weft {
namespace {

void noop(void*) {}

void spin_us(void* data) {
  const auto us = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  const auto until = Clock::now() + std::chrono::microseconds(us);
  while (Clock::now() < until) cpu_relax();
}

void throw_std(void*) { throw std::runtime_error("a C++ exception"); }
void throw_int(void*) { throw 42; }

template <class F>
uintptr_t address(F* fn) {
  return reinterpret_cast<uintptr_t>(fn);
}

}  // namespace

void bind_testing(nb::module_& m) {
  nb::module_ testing = m.def_submodule("testing", "C functions by address, for tests and benchmarks.");
  testing.attr("noop") = address(noop);
  testing.attr("spin_us") = address(spin_us);  // data: microseconds
  testing.attr("throw_std") = address(throw_std);
  testing.attr("throw_int") = address(throw_int);
}

}  // namespace weft
