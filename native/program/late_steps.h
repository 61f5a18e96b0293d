// late_steps.h: what becomes of the steps of a run, and of what they write, if one fails or may turn out to
// have failed (engine/late_checks.h).
//
// A check that fails late counts as if that had been known where its step ran. So one pass over the steps,
// StepFailures, says what is left out and which outputs fail with it, at once or later (StepChecks). What a
// failed run keeps (Output::commits) must not be written in vain: steps that do so look at what checks find
// (Gate), first those of earlier operations, then those of the run.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/error.h"
#include "engine/late_checks.h"
#include "program/run.h"
#include "storage/runtime.h"

namespace weft {

// What a step has noted.
struct StepCheck {
  size_t step;
  Ref<LateCheck> check;
};

// Steps after one that failed: those that touch nothing of what it touched still run, so that the outcome is
// what separate operations would have given; but nothing is committed any more.
class Program::StepFailures {
 public:
  explicit StepFailures(const Program& program, LateSteps* late = nullptr) : program_(program), late_(late) {}
  explicit operator bool() const noexcept { return static_cast<bool>(error_); }

  void failed(size_t t, Ref<Error> error) {
    if (late_ && settles_before(t)) [[unlikely]]
      return;
    if (!error_) error_ = std::move(error);
    mark(t, kTorn);
  }
  void ran(size_t t) {
    if (late_) [[unlikely]]
      note(t);
  }
  // The steps before `end` whose checks have failed count as if that had been known when they ran. checks: in
  // the order of steps.
  void settle(const std::vector<StepCheck>& checks, size_t end);
  // Whether a step is left out.
  bool skips(size_t t) {
    if (late_) [[unlikely]]
      gate(t);
    if (!error_) return false;
    const bool reads_failed =
        std::ranges::any_of(program_.steps[t].operands, [&](int v) { return state(v) != kGood; });
    if (!reads_failed && !program_.commits_[t]) return false;
    mark(t, kStale);
    return true;
  }
  bool is_good(const Output& output) const { return !error_ || state(output.value) == kGood; }
  OnFailure outcome(const Output& output) const {
    const uint8_t value_state = state(output.value);
    if (value_state == kGood) return OnFailure::done;
    return value_state == kStale && output.commits && output.writes >= 0 ? OnFailure::keep
                                                                         : OnFailure::poison;
  }
  [[noreturn]] void raise() const { throw TaskFailure{error_}; }

 private:
  void note(size_t t);
  void gate(size_t t);
  // Waits for what the steps before `end` have noted; later ones wait for what they check.
  void settle_noted(size_t end);
  // Step t has failed here and now: those before it are waited for, since one of them may have failed first,
  // and then perhaps t is left out.
  bool settles_before(size_t t) {
    settle_noted(t);
    return skips(t);
  }
  static constexpr uint8_t kGood = 0, kStale = 1, kTorn = 2;
  uint8_t state(int value) const {
    return states_.empty() ? kGood
                           : states_[static_cast<size_t>(program_.roots_[static_cast<size_t>(value)])];
  }
  void mark(size_t t, uint8_t as);

  const Program& program_;
  LateSteps* late_;  // null: steps wait for what they check
  Ref<Error> error_;
  std::vector<uint8_t> states_;  // of values, once something has failed
};

// What the steps of a run have noted, as one check of the operation: its error is that of the first step that
// failed, and an output fails with the steps that it depends on.
class Program::StepChecks final : public LateCheck {
 public:
  explicit StepChecks(const Program& program) : program_(&program) {}

  // Takes what step t has noted.
  void take(size_t t, LateChecks& noted);
  std::vector<StepCheck> take_all() noexcept { return std::exchange(checks_, {}); }
  // The accesses that write are outputs, then the copies of the run.
  void set_accesses(std::span<const Copy> copies);

  bool is_divided() const noexcept override { return true; }
  bool may_fail(uint32_t access) const noexcept override {
    return access >= written_.size() || program_->may_fail_late_[written_[access]];
  }
  OnFailure outcome(uint32_t access) const override {
    return access < outcomes_.size() ? outcomes_[access] : OnFailure::poison;
  }
  bool add_findings_of(uint32_t access, std::vector<const void*>& places) const override;

 private:
  void read() override;

  const Ref<const Program> program_;
  std::vector<StepCheck> checks_;
  std::vector<size_t> written_;      // of each access the output
  std::vector<OnFailure> outcomes_;  // of each access, once it is settled with an error
};

// Where code of a run finds what decides about its updates in place: entries of checks that its inputs depend
// on, which are copied there, then room for its own.
struct Program::Gate {
  // room: for so many of its own.
  Gate(const Program& program, const RunContext& of_run, size_t room);
  // Copies what a failed run keeps, unless one of the first `count` is a failure.
  void copy(size_t count, const Tensor& from, const Tensor& to) const;

  const size_t inherited;  // entries of checks of earlier operations
  const TempSpace memory;
  Findings findings;
  RunContext context;  // that of the run, gated by those entries

 private:
  Gate(const Program& program, const RunContext& of_run, size_t room, const std::vector<const void*>& places);
};

// A run whose steps may note checks, or depend on some.
struct Program::LateSteps {
  LateSteps(const Program& program, const RunContext& of_run);
  // Copies what a failed run keeps, behind the checks that were noted before the step that made it.
  void copy_gated(const Output& output, const Tensor& from, const Tensor& to) const {
    gate.copy(findings_before[static_cast<size_t>(output.step)], from, to);
  }

  Gate gate;
  Ref<StepChecks> checks;               // null: none was noted yet
  LateChecks noted;                     // by the step that runs
  std::vector<size_t> findings_before;  // of each gated step, how many it looks at
};

}  // namespace weft
