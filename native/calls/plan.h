// plan.h: what a planner makes for calls: a program, and what calls need of it beyond what it computes.
#pragma once

#include <utility>
#include <vector>

#include "calls/host.h"
#include "program/program.h"

namespace weft {

// A set of small numbers, of inputs or outputs of a program. Those below 64 take no memory of their own.
class Bits {
 public:
  bool test(size_t k) const noexcept {
    if (k < 64) return low_ >> k & 1;
    return k / 64 <= more_.size() && (more_[k / 64 - 1] >> k % 64 & 1);
  }
  void set(size_t k) {
    if (k >= 64 && more_.size() < k / 64) more_.resize(k / 64);
    (k < 64 ? low_ : more_[k / 64 - 1]) |= uint64_t{1} << k % 64;
  }
  bool any() const noexcept { return low_ || !more_.empty(); }
  bool operator==(const Bits&) const = default;  // the last word of `more_` is never 0

 private:
  uint64_t low_ = 0;
  std::vector<uint64_t> more_;
};

// What the planner makes: a program, and what only calls from Python need of it.
struct Plan : Counted<Plan> {
  Ref<const Program> program;
  int visible = 0;          // outputs that callers get; hidden ones and those that write an input follow
  bool as_tuple = false;    // callers get a tuple even of one
  _object* info = nullptr;  // the planner's own object, with the graph; for gradients; owned
  // The plans of its gradients, by the inputs that need one and the outputs whose gradients come in.
  struct Backward {
    Bits needs_gradient;
    std::vector<bool> has_cotangent;  // for each output whether its gradient comes in
    Ref<Plan> plan;                   // null: all are zero
  };
  std::vector<Backward> backwards;  // GIL
  std::vector<bool> with_history;   // of such a plan: outputs that have a gradient at all; empty: all
  Bits gradients;                   // of a plan of gradients: the inputs that it gives one for, in order
  // Outputs that are new contents of inputs and have a history of their own: (output, input).
  std::vector<std::pair<size_t, size_t>> writes;
  bool many = false;   // of many operators: its form for recording has to be requested
  Ref<Plan> recorded;  // that form, once it is known; null: this one (tape.h, recorded_form). GIL
  std::vector<std::vector<int64_t>> strides;  // that the inputs must have, in elements; empty: any will do

  ~Plan() { release_now(info); }
};

}  // namespace weft
