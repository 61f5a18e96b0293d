#include "engine/late_checks.h"

#include <algorithm>
#include <thread>

#include "engine/engine.h"
#include "engine/session.h"

namespace weft {

bool LateCheck::is_known() const noexcept {
  return state_.load(std::memory_order_acquire) == settled || has_run(ticket_);
}

Ref<Error> LateCheck::settle() {
  if (state_.load(std::memory_order_acquire) == settled) return error_;
  if (ticket_) wait_for(ticket_);  // none: a part of another check, which has waited
  int before = open;
  if (!state_.compare_exchange_strong(before, reading, std::memory_order_acquire)) {
    while (state_.load(std::memory_order_acquire) != settled) std::this_thread::yield();
    return error_;
  }
  try {
    read();
  } catch (...) {
    error_ = error_from_current_exception();
    // A divided check has the error of one of its parts, which may know no line; its own parts have neither.
    if (error_->operation.empty() && !operation_.empty()) error_->operation = operation_;
    if (error_->where.empty() && !where_.empty()) error_->where = where_;
  }
  const Ref<Error> error = error_;
  state_.store(settled, std::memory_order_release);
  if (error && engine_) engine_->report_late(error);
  return error;
}

void PartCheck::read() {
  Ref<Error> error = whole_->settle();
  if (!error) return;
  const OnFailure outcome = whole_->outcome(access_);
  if (outcome == OnFailure::poison || (outcome == OnFailure::keep && had_failed_)) throw TaskFailure{error};
}

bool Doubt::is_known() const noexcept {
  return (!before || before->is_known()) &&
         std::ranges::all_of(checks, [](const Ref<LateCheck>& check) { return check->is_known(); });
}

Ref<Error> Doubt::settle() const {
  Ref<Error> error;
  for (const Ref<LateCheck>& check : checks)
    if ((error = check->settle())) break;
  if (!error) return {};
  Ref<Error> first = before ? before->settle() : Ref<Error>();
  return first ? first : cause ? cause : error;
}

// The error that an operation inherits, from variables and from checks that were noted before it, whichever
// is first in the order of its accesses; the checks that are still open, in their order. An operation that
// may not run in doubt, or has inherited an error, waits for them.
Ref<Error> Engine::inherit_late(const Op& op, LateChecks& open) {
  const Access *const begin = op.accesses(), *const end = begin + op.access_count;
  const bool keeps = std::any_of(begin, end, [](const Access& a) { return a.on_failure == OnFailure::keep; });
  const bool waits = op.error || !op.only_enqueues || op.run_on_error || op.queue->stream_number == 0 ||
                     (keeps && !op.heeds_gate);
  std::vector<const void*> places;
  // Where content is kept, code of the operation has to look at the check. What is in doubt itself is no
  // longer so behind an update, and has to be known.
  const auto stays_open = [&](const Access& a, const LateCheck& check) {
    if (waits || check.is_known()) return false;
    return !keeps || (a.on_failure != OnFailure::keep && check.add_findings(places));
  };
  // A failure counts once those before it have passed.
  const auto first_of = [&](Ref<Error> error) {
    for (const Ref<LateCheck>& check : open)
      if (Ref<Error> earlier = check->settle()) return earlier;
    return error;
  };
  for (const bool reads : {true, false})
    for (const Access* a = begin; a != end; ++a) {
      if (a->is_duplicate || a->mode == Mode::overwrite || (a->mode == Mode::read) != reads) continue;
      const StreamUses* const uses = a->var->uses.load(std::memory_order_acquire);
      const Ref<Doubt> doubt = uses ? uses->doubt() : Ref<Doubt>();
      if (doubt && (doubt->before || doubt->cause)) {  // its list alone does not say which error
        if (Ref<Error> error = doubt->settle()) return first_of(error);
      } else if (doubt) {
        for (const Ref<LateCheck>& check : doubt->checks)
          if (stays_open(*a, *check)) {
            if (std::ranges::find(open, check) == open.end()) open.push_back(check);
          } else if (Ref<Error> error = check->settle()) {
            return first_of(error);
          }
      }
      if (op.error && a->var->error) return a->var->error;
    }
  return {};
}

// The operation has failed: of what it was to write the first cause stays, so it has to be known.
void Engine::keep_first_causes(const Op& op) {
  for (const Access *a = op.accesses(), *end = a + op.access_count; a != end; ++a)
    if (!a->is_duplicate && a->mode != Mode::read && !a->var->error) a->var->error = late_error_of(*a->var);
}

// What the operation has written is in doubt from now on, or no more. `checks` are those that it inherited,
// then, from `own` on, its own, all behind the ticket.
void Engine::note_doubts(const Op& op, LateChecks checks, size_t own, Ticket ticket) {
  if (op.error) {  // what it did not write keeps its doubts; its own checks are not looked at
    if (own < checks.size() && ticket) wait_for(ticket);
    keep_first_causes(op);
    return;
  }
  for (size_t k = own; k < checks.size(); ++k) {
    LateCheck& check = *checks[k];
    check.engine_ = this;
    check.ticket_ = ticket;
    if (check.operation_.empty()) check.operation_ = op.name();
    if (check.where_.empty()) check.where_ = op.where();
  }
  if (own < checks.size()) {
    settle_passed_checks();
    const std::lock_guard guard(late_mutex_);
    late_checks_.insert(late_checks_.end(), checks.begin() + static_cast<std::ptrdiff_t>(own), checks.end());
  }
  const auto first_own = checks.begin() + static_cast<std::ptrdiff_t>(own);
  const bool is_divided =
      std::any_of(first_own, checks.end(), [](const Ref<LateCheck>& check) { return check->is_divided(); });
  const auto doubt_of = [&](const Access& a, bool had_failed) {
    const auto access = static_cast<uint32_t>(&a - op.accesses());
    // An update that is left out where one of them fails; but then its variable keeps its failure, too.
    const bool is_kept = a.on_failure == OnFailure::keep && !had_failed;
    LateChecks parts(is_kept ? first_own : checks.begin(), first_own);
    for (auto check = first_own; check != checks.end(); ++check) {
      if (!(*check)->is_divided()) {
        parts.push_back(*check);
      } else if (had_failed || (*check)->may_fail(access)) {
        parts.push_back(Ref<LateCheck>(new PartCheck(*check, access, had_failed)));
        parts.back()->ticket_ = ticket;
      }
    }
    return parts.empty() ? Ref<Doubt>() : make_ref<Doubt>(std::move(parts));
  };
  const Ref<Doubt> whole = checks.empty() || is_divided ? Ref<Doubt>() : make_ref<Doubt>(checks);
  for (const Access *a = op.accesses(), *end = a + op.access_count; a != end; ++a) {
    if (a->is_duplicate || a->mode == Mode::read) continue;
    StreamUses* const uses = a->var->uses.load(std::memory_order_acquire);
    if (!uses) continue;
    const bool is_cured = !checks.empty() && a->mode == Mode::overwrite;  // unless a check fails
    Ref<Doubt> before = is_cured ? uses->doubt() : Ref<Doubt>();
    Ref<Error> cause = is_cured ? a->var->error : Ref<Error>();
    // One that is known keeps no row of others. What may keep its content may keep its error, which has to be
    // known then.
    if (before && (before->is_known() || a->on_failure == OnFailure::keep)) {
      Ref<Error> first = before->settle();
      if (!cause) cause = std::move(first);
      before = {};
    }
    Ref<Doubt> doubt = is_divided ? doubt_of(*a, static_cast<bool>(cause)) : whole;
    // What it reads as well as writes has its first cause, whatever the operation inherits before.
    const Ref<Doubt> earlier = a->mode == Mode::write ? uses->doubt() : Ref<Doubt>();
    if (doubt && earlier) {
      LateChecks ordered = doubt->checks;
      std::ranges::stable_partition(ordered, [&](const Ref<LateCheck>& check) {
        return std::ranges::find(earlier->checks, check) != earlier->checks.end();
      });
      doubt = make_ref<Doubt>(std::move(ordered));
    }
    if (doubt && (before || cause)) {
      doubt = make_ref<Doubt>(doubt->checks);
      doubt->cause = std::move(cause);
      doubt->before = std::move(before);
    }
    uses->set_doubt(std::move(doubt));
  }
}

// Checks whose streams have passed them are looked at now, so that a program that reads no result keeps few.
void Engine::settle_passed_checks() {
  try {
    for (;;) {
      Ref<LateCheck> check;
      {
        const std::lock_guard guard(late_mutex_);
        if (late_checks_.empty() || !late_checks_.front()->is_known()) return;
        check = late_checks_.front();
      }
      check->settle();
      const std::lock_guard guard(late_mutex_);
      if (!late_checks_.empty() && late_checks_.front() == check) late_checks_.pop_front();
    }
  } catch (const DeviceError&) {  // of a device that has failed, for those who wait for it
  }
}

// Streams have run everything. Raises DeviceError.
void Engine::settle_late_checks() {
  for (;;) {
    Ref<LateCheck> check;
    {
      const std::lock_guard guard(late_mutex_);
      if (late_checks_.empty()) return;
      check = late_checks_.front();
    }
    check->settle();
    const std::lock_guard guard(late_mutex_);
    if (!late_checks_.empty() && late_checks_.front() == check) late_checks_.pop_front();
  }
}

// The error that checks have found of a variable; waits for them.
Ref<Error> Engine::late_error_of(const Var& var) {
  const StreamUses* const uses = var.uses.load(std::memory_order_acquire);
  const Ref<Doubt> doubt = uses ? uses->doubt() : Ref<Doubt>();
  return doubt ? doubt->settle() : Ref<Error>();
}

void Engine::report_late(const Ref<Error>& error) {
  Session s(*this);
  report(error);
  s.finish();
}

}  // namespace weft
