// kept.h: what a program prepares once for many runs, and how it sees that it has to do so again.
//
// The first steps of a program (Program::hoisted) make the values of kind `kept` from inputs that seldom
// change. Each has a chunk of its own, which does not change once it is published: runs on several threads
// read it together. A run that finds an input written makes what depends on it again, and publishes that; the
// old chunks go with their last reader.
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
  uint32_t lent = 0;
  static Mark of(const Tensor& x) noexcept;
  bool operator==(const Mark& o) const noexcept {
    return version != kNever && version == o.version && serial == o.serial && data == o.data &&
           lent == o.lent;
  }
};

struct Kept {
  std::vector<Mark> marks;  // of the inputs, as they were
  std::vector<Ref<Chunk>> chunks;
};

class Program::Keeper {
 public:
  // What is known of a value that is kept.
  struct Value {
    int number;
    size_t bytes;
    std::vector<bool> origins;  // of the inputs looked at, those that it depends on
  };
  // sizes: of each value of the program, in bytes.
  Keeper(const Program& program, const std::vector<size_t>& sizes);

  const std::vector<Value>& values() const noexcept { return values_; }

  // One run's use of the kept values. Runs that notice the same change at the same time each prepare the
  // values separately, and those of the last one are kept. A run does not wait for another one here: the
  // waiting thread may hold a lock that the other run's kernels need, such as the GIL.
  class Use {
   public:
    Use(Keeper& keeper, const Tensor* const* inputs);
    char* data(size_t k) const noexcept { return kept_->chunks[k]->data; }  // of the k-th value
    bool wants(size_t step) const noexcept { return !steps_.empty() && steps_[step]; }
    // After the steps that it needs have run. No newer state is lost: the inputs are still held.
    void publish();

   private:
    Keeper& keeper_;
    std::shared_ptr<const Kept> kept_;
    std::vector<bool> steps_;  // empty: all is fresh
  };

 private:
  void choose(std::vector<bool>& stale, std::vector<bool>& steps) const;
  const Program& program_;
  std::vector<int> inputs_;  // those looked at
  std::vector<Value> values_;
  std::mutex guard_;  // of newest_
  std::shared_ptr<const Kept> newest_;
};

}  // namespace weft
