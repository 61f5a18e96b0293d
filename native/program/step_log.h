// step_log.h: when the steps of programs ran, written down while somebody wants to know.
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
    int64_t bytes;   // of all operands, each element once
    int64_t start_ns, end_ns;
  };
  static bool is_open() noexcept { return open_.load(std::memory_order_relaxed); }
  // False if it is open: there is one for the process.
  static bool open();
  // All that has ended since, in the order of the ends.
  static std::vector<Span> close();

  // Runs a step, and writes it down if the log is open and it does not throw. operand(k): its View.
  template <class Operand, class Body>
  static void run(const Program& program, size_t step, const Operand& operand, const Body& body) {
    if (!is_open()) [[likely]]
      return body();
    const int64_t start = now();
    body();
    const int64_t end = now();
    int64_t bytes = 0;
    for (size_t k = 0; k < program.steps[step].operands.size(); ++k) bytes += bytes_of(operand(k));
    add({Ref<const Program>(&program), step, 0, bytes, start, end});
  }

 private:
  static int64_t now() noexcept {  // the clock of Python's time.perf_counter
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  static int64_t bytes_of(const View& x) noexcept;
  static void add(Span span);

  static inline std::atomic<bool> open_{false};
};

}  // namespace weft
