// loop.h: a kernel of the expression compiler, in as many compiled forms as its operands have patterns.
//
// The operands are broadcast to one space. Of that space `run` drops what has size 1, orders dimensions by
// memory, joins those that are contiguous, and picks the code compiled for what is left: the number
// of loops, and how each operand moves in the innermost one. Then it splits the work over the team.
//
// `run` may be called from any thread. Code is made on the first use of a pattern, by the thread that uses
// it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/fork.h"
#include "program/code_table.h"
#include "program/kernel.h"
#include "program/loop_space.h"

namespace weft {

class Loop final : public Kernel {
 public:
  using Code = void (*)(char* const* data, const int64_t* sizes, const int64_t* strides,
                        const void* parameters);
  // Makes the code of a pattern, and keeps it as long as the Loop lives. May throw.
  using Compile = std::function<Code(const LoopPattern&)>;

  using Form = LoopForm;
  // How one long row is folded by several threads: `part` stores what a piece comes to, one number for each
  // reduction, and `join` makes the outputs of these. Pieces have a fixed size, so that results do not depend
  // on the number of threads.
  struct Split {
    Ref<Kernel> part, join;
    std::vector<DType> dtypes;  // of the reductions
  };
  // One stage of rows that are side by side, as a Loop on the inputs, the numbers of rows that earlier stages
  // made, and what it makes itself: of a fold what a piece comes to, one number for each row and reduction,
  // which `join` makes numbers of rows of; of the others all outputs. Once: not for each piece.
  // A scan, of GPUs alone (thread_pieces.cpp): `part` stores what pieces come to, `join` scans that, `loop`
  // scans a piece behind what those before it come to; rows go the other way round if it is reverse.
  struct Stage {
    enum class Kind : uint8_t { fold, each, once, scan } kind = Kind::each;
    Ref<Kernel> loop, join, part;
    std::vector<DType> pieces, numbers;  // what its pieces come to, what a fold's `join` makes
    std::vector<int> outputs{};          // that are read behind the inputs, of GPUs alone
    bool is_reverse = false;
  };
  using Stages = std::vector<Stage>;
  // Makes the stages of a Loop, none if it cannot be taken apart. May throw.
  using MakeStages = std::function<Stages()>;
  // source: what `compile` was made of, for the binding that made it.
  Loop(Form form, Compile compile, Split split = {}, MakeStages make_stages = {}, void* source = nullptr)
      : form_(form),
        compile_(std::move(compile)),
        split_(std::move(split)),
        make_stages_(std::move(make_stages)),
        source_(source) {}

  void run(const Call& call) const override;
  std::unique_ptr<Bound> bind(const View* operands) const override;
  int operand_count() const override { return form_.operands; }
  const LoopForm* loop_form() const override { return &form_; }
  // What an export writes: the patterns that code was made for, and what the work is divided into; of stages
  // those that have been requested, else null.
  std::vector<LoopPattern> patterns() const;
  const Split& parts() const noexcept { return split_; }
  const Stages* stages_made() const noexcept { return stages_.load(std::memory_order_acquire); }
  void* source() const noexcept { return source_; }

 private:
  using Space = LoopSpace;
  struct Work;
  struct StageOperands;
  class BoundLoop;
  bool arrange(const View* operands, Space& space) const;
  bool may_split(const Space& space, int loop) const noexcept;
  Work split(const Space& space) const;
  Work partition(const Space& space) const;
  void run_contiguous(const Call& call, int64_t size) const;
  void run_split_row(char* const* data, const uint64_t* parameters, const Work& work) const;
  void run_stages(char* const* data, const uint64_t* parameters, const Work& work) const;
  void run_work(char* const* data, const uint64_t* parameters, const Work& work) const;
  const Stages& stages() const;
  Code code_for(char* const* data, const Work& work) const;
  Code find(const LoopPattern& pattern) const;

  const Form form_;
  const Compile compile_;
  const Split split_;
  const MakeStages make_stages_;
  void* const source_;
  mutable std::atomic<const Stages*> stages_{nullptr};  // when they have been requested
  mutable std::unique_ptr<const Stages> owned_stages_;
  mutable std::atomic<Code> contiguous_code_{nullptr};  // for one loop of contiguous elements
  mutable std::vector<LoopPattern> patterns_;           // that code was made for
  mutable ForkMutex mutex_;                             // of owned_stages_ and patterns_
  CodeTable<uint64_t, Code> codes_;
};

}  // namespace weft
