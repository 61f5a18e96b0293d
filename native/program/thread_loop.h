// thread_loop.h: a kernel of the expression compiler on a GPU: each run enqueues one launch on a stream.
//
// `run` arranges the operands as a Loop does (loop_space.h), picks the code that was compiled for their
// pattern, for the device and for what a schedule of threads has to know, and packs addresses, sizes, strides
// and parameters into one block of words (weft/expr/llvm_threads.py). It does not wait. Where the context is
// gated, the code does nothing if a check has found a failure.
//
// `run` may be called from any thread. Code is made on the first use of a pattern, by the thread that uses
// it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/device_kind.h"
#include "engine/late_checks.h"
#include "program/code_table.h"
#include "program/kernel.h"
#include "program/loop.h"
#include "program/loop_space.h"

namespace weft {

// What code for threads is compiled for; weft.expr.llvm_threads.Schedule has the meaning of the parts.
struct ThreadPattern {
  LoopPattern loop;
  int device = 0;    // index of the GPU
  int row_bits = 0;  // rows have at most 2 ** row_bits elements; 0: they may have more
  bool is_narrow = false;
  int width = 1;
  // Rows are products: of the loops before them, those of n are the last ones, and those of m the ones
  // before. seconds: bit k, operand k moves along those of n. None: 0.
  int m_loops = 0, n_loops = 0;
  uint32_t seconds = 0;
  bool is_gated = false;  // it looks at Findings first

  // Of loops that keep rows in registers all from kFirstBits to kLastBits, else kShortBits.
  static constexpr int kShortBits = 10, kFirstBits = 5, kLastBits = 13;
  struct Key {
    uint64_t pattern, pairs;
    int device;
    bool operator==(const Key&) const = default;
  };
  Key key() const noexcept;
};

class ThreadLoop final : public Kernel {
 public:
  // Makes the code of a pattern, and keeps it as long as the process. May throw.
  using Compile = std::function<const DeviceFunction*(const ThreadPattern&)>;

  // How long rows are gone through where there are too few of them for a GPU (thread_pieces.cpp): folded by
  // the parts of a Split, whose `join` reads what pieces come to as a row, and has the outputs; or stage by
  // stage. Null: not.
  using Split = Loop::Split;
  using MakeStages = Loop::MakeStages;

  // may_join: it computes every element by itself, so that a thread may load and store several at once.
  // keeps: its code depends on how long rows are, since threads keep their elements. factors: bit k, operand
  // k is read where rows are folded, if these may be products, else 0.
  ThreadLoop(LoopForm form, bool may_join, bool keeps, uint32_t factors, Compile compile, Split split = {},
             MakeStages make_stages = {})
      : form_(form),
        may_join_(may_join),
        keeps_(keeps),
        factors_(factors),
        compile_(std::move(compile)),
        split_(std::move(split)),
        make_stages_(std::move(make_stages)) {}

  void run(const Call& call) const override { run(call, {}); }
  size_t scratch_bytes(const View* operands) const override;
  // gathered: strides in bytes of the dimensions where code computes positions, operand by operand.
  void run(const Call& call, std::span<const uint64_t> gathered) const;
  const LoopForm* loop_form() const override { return &form_; }
  std::unique_ptr<Bound> bind(const View* operands) const override;
  int operand_count() const override { return form_.operands; }
  bool reaches_devices() const override { return true; }
  bool enqueues() const override { return true; }
  bool heeds_gate() const override { return true; }

 private:
  // A launch without its addresses and parameters.
  struct Work {
    LoopSpace space;
    ThreadPattern pattern;
    int64_t items = 0;       // elements, rows or columns
    int64_t most_width = 1;  // elements of a thread's turn, if the addresses allow it
  };
  class BoundLoop;
  class LongRows;
  bool prepare(const View* operands, Work& work) const;
  void launch(const Work& work, char* const* data, std::span<const uint64_t> gathered,
              const uint64_t* parameters, const RunContext& context) const;

  const LoopForm form_;
  const bool may_join_, keeps_;
  const uint32_t factors_;
  // Elements of a piece of a row, which depend on the shape alone; 0: rows are not split.
  int64_t piece_of(const Work& work) const;
  void run_pieces(const Call& call, const LoopSpace& space, int64_t piece) const;
  const Loop::Stages& stages() const;

  const Compile compile_;
  const Split split_;
  const MakeStages make_stages_;
  mutable std::atomic<const Loop::Stages*> stages_{nullptr};  // when they have been requested
  mutable std::unique_ptr<const Loop::Stages> owned_stages_;
  mutable ForkMutex mutex_;  // of owned_stages_
  CodeTable<ThreadPattern::Key, const DeviceFunction*> codes_;
};

inline constexpr int64_t kNarrow = (int64_t{1} << 31) - 1;  // the largest position of narrow code

// Whether what is enqueued has to look at checks first.
inline bool is_gated_now(const RunContext& context) noexcept {
  return context.is_gated && context.findings && context.findings->count;
}

// Enqueues a launch for so many items, whose first `count` words are there: parameters, and for gated code
// the findings, fill the others that the function takes.
void enqueue_launch(const RunContext& context, const DeviceFunction& function, int64_t items, uint64_t* words,
                    size_t count, const uint64_t* parameters, bool is_gated);

// A loop of weft.kernels.gpu.arrays, kept for the process; what makes it is set where the native module is
// loaded. from: the type of what it reads, if it reads something; rank: where it counts elements.
inline std::atomic<Ref<Kernel> (*)(const char* what, DType to, DType from, int rank)> make_array_loop{
    nullptr};
const Kernel& array_loop(const char* what, DType to, DType from, int rank);
// RunArrayLoop (tensor/staging.h).
void enqueue_array_loop(const char* what, std::span<const View> operands, const uint64_t* parameters,
                        const RunContext& context);

}  // namespace weft
