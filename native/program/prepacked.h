// prepacked.h: values that a program prepares once for many runs, and how it detects that they are stale.
//
// The first steps of a program (Program::hoisted) make the values of kind `prepacked` from inputs that
// seldom change. Each has a chunk of its own, which does not change once it is published: runs on several
// threads read it together. A run that finds an input written makes what depends on it again, and publishes
// that; the old chunks go with their last reader.
//
// Exact: a run looks while it holds its inputs for reading, so nothing writes them meanwhile, and
// Var::version counts all writes that ran before, of all threads. Writes of other libraries to memory lent to
// them are not counted: while memory is lent, nothing that depends on it is taken for fresh.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "program/program.h"

namespace weft {

// One state of one input.
struct Mark {
  static constexpr uint64_t kNever = ~uint64_t{0};
  uint64_t serial = 0, version = kNever;
  const char* data = nullptr;
  uint32_t exports = 0;
  static Mark of(const Tensor& x) noexcept;
  bool operator==(const Mark& o) const noexcept {
    return version != kNever && version == o.version && serial == o.serial && data == o.data &&
           exports == o.exports;
  }
};

struct PrepackedValues {
  std::vector<Mark> marks;  // of the inputs, as they were
  std::vector<Ref<Chunk>> chunks;
};

class Program::Prepacker {
 public:
  // A prepacked value.
  struct Value {
    int number;
    size_t bytes;
    std::vector<bool> origins;  // of the inputs looked at, those that it depends on
  };
  // sizes: of each value of the program, in bytes.
  Prepacker(const Program& program, const std::vector<size_t>& sizes);

  const std::vector<Value>& values() const noexcept { return values_; }

  // One run's use of the prepacked values. Runs that notice the same change at the same time each prepare the
  // values separately, and those of the last one are published. A run does not wait for another one here: the
  // waiting thread may hold a lock that the other run's kernels need, such as the GIL.
  class Use {
   public:
    Use(Prepacker& prepacker, const Tensor* const* inputs);
    char* data(size_t k) const noexcept { return current_->chunks[k]->data; }  // of the k-th value
    bool needs_step(size_t step) const noexcept { return !steps_.empty() && steps_[step]; }
    // After the steps that it needs have run. No newer state is lost: the inputs are still held.
    void publish();

   private:
    Prepacker& prepacker_;
    std::shared_ptr<const PrepackedValues> current_;
    std::vector<bool> steps_;  // empty: all is fresh
  };

 private:
  void select_steps(std::vector<bool>& stale, std::vector<bool>& steps) const;
  const Program& program_;
  std::vector<int> inputs_;  // those looked at
  std::vector<Value> values_;
  ForkMutex guard_;  // of newest_
  std::shared_ptr<const PrepackedValues> newest_;
};

}  // namespace weft
