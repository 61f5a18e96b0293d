// step_log.h: records when the steps of programs ran, also those inside of loops and branches, while a
// profiler is on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace weft {

class StepLog {
 public:
  struct Span {
    Ref<const Program> program;
    size_t step;
    int64_t thread;  // the system's number
    int64_t bytes;   // that it reads and writes
    int64_t start_ns, end_ns;
    uint64_t operation;  // trace_id of the engine's operation that it is part of; 0: not known
    uint32_t shapes;     // of the operands, a number of Closed::shapes
  };
  static bool is_open() noexcept { return open_.load(std::memory_order_relaxed); }
  // False if it is open: there is one for the process.
  static bool open();
  // The spans that have ended since, in the order of their ends, and the shapes of their operands: for each
  // its dtype, its number of dimensions and its sizes. dropped: how many spans there was no room for.
  struct Closed {
    std::vector<Span> spans;
    std::vector<std::vector<int64_t>> shapes;
    uint64_t dropped = 0;
  };
  static Closed close();
  static constexpr size_t kMost = 4'000'000;  // spans

  // Runs a step, and writes it down if the log is open and it does not throw. operand(k): its View.
  template <class Operand, class Body>
  static void run(const Program& program, size_t step, const Operand& operand, const Body& body) {
    if (!is_open()) [[likely]]
      return body();
    const int64_t start = now();
    body();
    const int64_t end = now();
    std::vector<View> operands;
    Shapes shapes;
    for (size_t k = 0; k < program.steps[step].operands.size(); ++k)
      shapes.add(operands.emplace_back(operand(k)));
    int64_t bytes = program.steps[step].kernel->moved_bytes(operands.data());
    if (bytes < 0) {
      bytes = 0;
      for (const View& x : operands) bytes += distinct_bytes(x);
    }
    add({Ref<const Program>(&program), step, 0, bytes, start, end, 0, 0}, shapes);
  }

 private:
  static int64_t now() noexcept {  // the clock of Python's time.perf_counter
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  struct Shapes {
    static constexpr int kRoom = 64;  // numbers; operands that do not fit are left out
    int64_t numbers[kRoom];
    int count = 0;
    void add(const View& x) noexcept {
      if (count + 2 + x.ndim > kRoom) return;
      numbers[count++] = static_cast<int64_t>(x.dtype);
      numbers[count++] = x.ndim;
      for (int d = 0; d < x.ndim; ++d) numbers[count++] = x.shape[d];
    }
  };
  static void add(Span span, const Shapes& shapes);

  static inline std::atomic<bool> open_{false};
};

}  // namespace weft
