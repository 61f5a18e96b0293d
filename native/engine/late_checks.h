// late_checks.h: failures that are found on a device, after the engine has finished their operations.
//
// Code of a device may find that its operation fails, as at an index out of range. The operation is finished
// when it is enqueued, so it notes a LateCheck: what the code has found can be read once a ticket has passed.
// What the operation wrote is in doubt until then, and so is what is computed from that. The Doubt of a
// variable lists the checks that decide: its error is that of the first one that fails. An operation hands on
// the doubts of what it reads, in the order in which it would inherit errors, before its own checks. So the
// outcome is that of an engine that waits for each operation: the same variables are poisoned, by the same
// error with its operation and line. An operation that overwrites cures a variable only if it does not fail
// itself, else the first cause stays (Doubt::before).
//
// A check may be divided: the steps of a program note checks, and each output is in doubt by those that it
// depends on. Then what a variable is in doubt by is a PartCheck for its access.
//
// An update in place must not be made in vain, since it keeps its content if the operation fails
// (OnFailure::keep). Code of the device decides that: what checks find lies side by side (Findings), and a
// kernel that is gated looks at it first. So it does with checks of other operations that what it reads is in
// doubt by, if they can say where their findings are (add_findings). Then the variable is not in doubt: it is
// updated, or keeps its content.
//
// A check is settled where its outcome must be known: when the host waits for a variable or for all; before
// an operation runs that is not on a stream, that looks at values itself, or that updates in place and
// depends on checks of others that its code cannot look at. A failure that is known by then is inherited as
// any other.
//
// Any thread may settle; one of them reads. A variable's doubt is set by the operation that writes it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "engine/error.h"
#include "engine/operation.h"
#include "engine/ref.h"
#include "engine/tickets.h"

namespace weft {

class Engine;

// What the checks of one operation find, in memory of the device. An entry begins with a word of 64 bits that
// is negative unless it is a failure (weft.expr.targets).
struct Findings {
  static constexpr size_t kBytes = 16;  // of an entry
  char* memory;
  size_t room;       // entries
  size_t count = 0;  // those that checks have taken
  // Memory for one more; null: there is none.
  char* next() const noexcept { return count < room ? memory + count * kBytes : nullptr; }
};

class LateCheck : public Counted<LateCheck> {
 public:
  virtual ~LateCheck() = default;
  // Of what is checked, if that is not the whole operation.
  void set_name(std::string operation, std::string where) {
    operation_ = std::move(operation);
    where_ = std::move(where);
  }
  // Whether settle() does not wait.
  bool is_known() const noexcept;
  // The error, null: it has passed. Waits for the ticket. Raises DeviceError if the device has failed
  // meanwhile.
  Ref<Error> settle();
  // Whether only some of what the operation writes fails with it. Then: whether an access may fail, and once
  // it is settled with an error, what becomes of the access.
  virtual bool is_divided() const noexcept { return false; }
  virtual bool may_fail(uint32_t access) const noexcept { return static_cast<void>(access), true; }
  virtual OnFailure outcome(uint32_t access) const {
    static_cast<void>(access);
    return OnFailure::poison;
  }
  // For what is enqueued behind its ticket: adds the places (DeviceBackend::fetch_later) of findings, one of
  // which is a failure if this check fails, or one of those that it is listed behind, and else none. They
  // last as long as the check. False, with perhaps some added: that cannot be said.
  virtual bool add_findings(std::vector<const void*>& places) const {
    return static_cast<void>(places), false;
  }
  // The same for one access of a divided one, whose variable had not failed before.
  virtual bool add_findings_of(uint32_t access, std::vector<const void*>& places) const {
    return static_cast<void>(access), static_cast<void>(places), false;
  }

 protected:
  // Called once, after the ticket: throws what the operation would have thrown.
  virtual void read() = 0;

 private:
  friend class Engine;
  enum : int { open, reading, settled };
  Engine* engine_ = nullptr;  // that is told of the failure; null: a part of another check
  Ticket ticket_;             // behind the check
  std::string operation_, where_;
  std::atomic<int> state_{open};
  Ref<Error> error_;  // once it is settled
};

using LateChecks = std::vector<Ref<LateCheck>>;

// Of a divided check what decides about one access of the operation. had_failed: the variable had failed
// before, so it has where its content is kept.
class PartCheck final : public LateCheck {
 public:
  PartCheck(Ref<LateCheck> whole, uint32_t access, bool had_failed)
      : whole_(std::move(whole)), access_(access), had_failed_(had_failed) {}
  bool add_findings(std::vector<const void*>& places) const override {
    return !had_failed_ && whole_->add_findings_of(access_, places);
  }

 private:
  void read() override;

  const Ref<LateCheck> whole_;
  const uint32_t access_;
  const bool had_failed_;
};

// Keeps checks, and so the places of their findings, until code that looks at them has run. Nothing fails
// with it.
class HeldChecks final : public LateCheck {
 public:
  explicit HeldChecks(LateChecks checks) : checks_(std::move(checks)) {}
  bool is_divided() const noexcept override { return true; }
  bool may_fail(uint32_t) const noexcept override { return false; }
  bool add_findings(std::vector<const void*>&) const override { return true; }
  bool add_findings_of(uint32_t, std::vector<const void*>&) const override { return true; }

 private:
  void read() override { checks_.clear(); }

  LateChecks checks_;
};

struct Doubt : Counted<Doubt> {
  explicit Doubt(LateChecks all) : checks(std::move(all)) {}
  const LateChecks checks;
  // Why the variable had failed, or may have, when it was overwritten: the cause that stays if a check fails.
  Ref<Error> cause;
  Ref<Doubt> before;

  bool is_known() const noexcept;
  Ref<Error> settle() const;
};

}  // namespace weft
