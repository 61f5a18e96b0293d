// run.h: what launching and executing a program share. For program.cpp and execute.cpp only.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "program/program.h"
#include "program/scratch.h"

namespace weft {

struct Program::Copy {
  size_t output;
  const Tensor* to;
};

// A launch that has not been queued: it reads the caller's arrays.
struct Program::Run {
  const Program* program;
  const Tensor* const* inputs;
  const Tensor* const* outputs;
  const uint64_t* slots;
  const int64_t* registers;
  // Outputs that no kernel could write into their destination, and that destination. Not operations of their
  // own: another thread's launch could come between.
  std::span<const Copy> copies;
  // Of prepack: only the hoisted steps run, without outputs, and this is called after each.
  const std::function<void(size_t step)>* after_hoisted = nullptr;
};

// Geometry, addresses and scratch memory of an exact program.
struct Program::Layout {
  std::vector<int64_t> geometry;  // what views point to
  std::vector<View> views;        // of all values as planned, without data
  struct Address {
    int value, base;  // base: -1: the arena
    int64_t offset;   // in bytes
  };
  std::vector<Address> addresses;  // of what stays inside
  size_t arena_size = 0, scratch_size = 0, most_operands = 0;
  // Of every step, made when it runs first.
  mutable std::vector<std::atomic<const Bound*>> bound;
  std::vector<bool> binds;   // of every step, whether it has something to find out
  std::vector<bool> copies;  // whether it copies to an array of the same geometry

  explicit Layout(size_t steps) : bound(steps), binds(steps), copies(steps) {}
  ~Layout() {
    for (auto& one : bound) delete one.load(std::memory_order_relaxed);
  }
};

}  // namespace weft
