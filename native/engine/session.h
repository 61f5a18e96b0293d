// session.h: a stay under the engine lock, and what has to happen after it.
//
// Scheduling finds threads to wake, waits to end, objects to destroy, functions to run here (naive engine).
// None of these may happen under the lock: they may sleep, take the GIL, or come back into the engine. The
// session collects them and does them in `finish`, after unlocking; then it looks whether a push went by that
// found the lock taken.
//
// Where the lists of what is collected cannot grow for want of a few words of memory, the process ends
// (std::terminate): what was scheduled by then cannot be undone, and losing a wake or a signal would be a
// hang instead. The same goes for the list of failures, for a variable that is dropped, and for a worker in
// `next_arrived`, which tries again, as long as it takes, because others may give memory back.
#pragma once

#include "engine/engine.h"

namespace weft {

class Waiter : public Counted<Waiter> {
 public:
  Parker parker;
  std::atomic<bool> done{false};
  Ref<Error> error;                // of the variable waited for; written before `done`
  std::vector<Ref<Error>> errors;  // of all, for wait_for_all
  void signal() noexcept {
    done.store(true, std::memory_order_release);
    parker.unpark();
  }
};

class Session {
 public:
  explicit Session(Engine& engine) : engine_(engine) { relock(); }
  Session(Engine& engine, std::adopt_lock_t) : engine_(engine), locked_(true) {}
  Session(const Session&) = delete;
  ~Session() noexcept(false) {
    if (locked_) finish();
  }

  void relock() {
    engine_.lock_.lock();
    locked_ = true;
  }
  void finish();
  // The same without running functions here: for a thread that comes back at once.
  void pause();
  // The calling worker takes an operation of `queue` before it unlocks, so none of its other workers is woken
  // for the first; if more are left by then, `finish` wakes one.
  void will_take_from(Queue& queue) noexcept { taking_ = &queue; }
  void will_take_nothing() noexcept { taking_ = nullptr; }
  bool takes_from(const Queue& queue) const noexcept { return taking_ == &queue; }

  void wake(Worker* worker) { wakes_.push_back(worker); }
  void signal(Ref<Waiter> waiter) { signals_.push_back(std::move(waiter)); }
  void discard(Ref<Error>&& error) {
    if (error) errors_.push_back(std::move(error));
  }
  // Forgets what would be destroyed; sends no signal.
  void leak() {
    new (&signals_) std::vector<Ref<Waiter>>;
    new (&errors_) std::vector<Ref<Error>>;
    new (&vars_) std::vector<Ref<Var>>;
    new (&wakes_) std::vector<Worker*>;
    ops_ = nullptr;
    operators_ = nullptr;
  }
  void discard(Operator* op) noexcept {
    op->next_retired = operators_;
    operators_ = op;
  }
  void discard(Ref<Var>&& var) { vars_.push_back(std::move(var)); }
  // A finished operation; its function object has been dropped or belongs to an Operator.
  void discard(Op* op) noexcept {
    Operator* const origin = op->origin;
    if (op->is_reused) {
      origin->give_spare(op);
    } else {
      op->next = ops_;
      ops_ = op;
    }
    if (origin) run_ended(*origin);
  }
  void run_ended(Operator& origin) noexcept {
    origin.finished.store(origin.finished.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (origin.retired && origin.idle()) discard(&origin);
  }
  void run_here(Op* op) noexcept {
    op->next = nullptr;
    (here_tail_ ? here_tail_->next : here_) = op;
    here_tail_ = op;
  }

 private:
  void after_unlock();

  Engine& engine_;
  bool locked_ = false;
  Queue* taking_ = nullptr;
  std::vector<Worker*> wakes_;
  Op* ops_ = nullptr;
  Operator* operators_ = nullptr;
  Op* here_ = nullptr;
  Op* here_tail_ = nullptr;
  std::vector<Ref<Waiter>> signals_;
  std::vector<Ref<Error>> errors_;
  std::vector<Ref<Var>> vars_;
};

// What a thread that executes functions keeps between them: the domain of the last one, and its context.
class Engine::DomainHold {
 public:
  DomainHold(Context& here, bool on_worker) : here_(here), on_worker_(on_worker) {}
  DomainHold(const DomainHold&) = delete;
  ~DomainHold() {
    release();
    if (initialized_) initialized_->thread_end();
  }
  void take(Domain* domain) {
    if (domain == current_) return;
    release();
    if (!domain) return;
    if (on_worker_ && initialized_ != domain) {
      if (initialized_) initialized_->thread_end();
      domain->thread_begin();
      initialized_ = domain;
    }
    domain->enter();
    current_ = domain;
  }
  void release() {
    if (Domain* domain = std::exchange(current_, nullptr)) domain->leave();
  }
  bool holds() const noexcept { return current_ != nullptr; }
  Context& here() const noexcept { return here_; }

 private:
  Context& here_;
  const bool on_worker_;
  Domain* current_ = nullptr;
  Domain* initialized_ = nullptr;
};

}  // namespace weft
