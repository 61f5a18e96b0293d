// run.cpp: executing functions. No lock is held here except where a Session says so.
#include <cxxabi.h>

#include "engine/device_kind.h"
#include "engine/session.h"

namespace weft {

namespace {

class RunningScope {
 public:
  RunningScope(const Op* op, Engine* engine, Context& here)
      : here_(here), frame_{op, engine, here.running, op ? op->queue : nullptr} {
    here_.running = &frame_;
  }
  ~RunningScope() { here_.running = frame_.outer; }
  RunningScope(const RunningScope&) = delete;

 private:
  Context& here_;
  Running frame_;
};

// The handled exception as the error of `op`: the first failure gives it the operation's name and line. A
// function that names its own parts may know no line for them.
Ref<Error> caught(const Op& op) {
  Ref<Error> error = error_from_current_exception();
  if (error->operation.empty()) error->operation = op.name();
  if (error->where.empty()) error->where = op.where();
  return error;
}

}  // namespace

bool Engine::inside_function() noexcept { return context().running != nullptr; }

void Engine::notify(void (Observer::*event)(const Observer::Event&), const Op* op,
                    const RunContext* context) {
  const auto* observers = observers_.load(std::memory_order_acquire);
  if (!observers) return;
  Observer::Event e{op, {}, QueueKind::compute, -1, op->error.get()};
  if (context) {
    e.device = context->device;
    e.queue = context->queue;
    e.worker = context->worker;
  } else if (op->queue) {
    e.device = op->queue->device->device;
    e.queue = op->queue->kind;
  }
  for (const auto& observer : *observers) ((*observer).*event)(e);
}

// True if the operation has ended. An asynchronous one ends in finish_async; the caller lets go of it.
bool Engine::execute(Op* op, int worker, DomainHold& hold) {
  RunContext context{this,
                     op->queue->device->device,
                     op->queue->kind,
                     worker,
                     op->queue->stream,
                     op,
                     nullptr,
                     nullptr,
                     interrupts_.load(std::memory_order_relaxed),
                     op->queue->stream_number};
  switch (op->kind) {
    case OpKind::async:
      if (LateChecks checks; has_streams_.load(std::memory_order_relaxed)) [[unlikely]]
        begin_on_streams(op, context, checks);
      if (!op->error || op->run_on_error) {
        run_async(op, context, hold);
        return false;
      }
      [[fallthrough]];
    case OpKind::task:
    case OpKind::destroy:
      run_task(op, context, hold);
      break;
    case OpKind::bulk:
      run_bulk(op, context, hold);
      break;
    default:
      break;  // markers are never ready for a thread
  }
  return true;
}

// Whether there are streams is looked at once: an operation on one, or after one, begins when the flag is
// set.
void Engine::run_task(Op* op, RunContext& context, DomainHold& hold) {
  context.op = op;
  // checks: those that decide whether the operation fails; null without streams, in a copy of this code.
  const auto run = [&](LateChecks* checks) __attribute__((always_inline)) {
    if (checks) begin_on_streams(op, context, *checks);
    const size_t inherited_checks = checks ? checks->size() : 0;
    const Ref<Error> inherited = op->run_on_error ? std::move(op->error) : Ref<Error>();
    context.error = inherited.get();
    if (op->error) {
      op->skipped = true;
      if (op->kind == OpKind::async) {
        if (Completion* unused = std::exchange(op->completion, nullptr)) {
          unused->done_.store(true, std::memory_order_relaxed);
          unused->release();  // the operation's own count
        }
      }
    } else {
      hold.take(op->type->domain);
      notify(&Observer::on_start, op, &context);
      RunningScope scope(op, this, hold.here());
      try {
        if (checks) order_streams(*op);
        const WatchedWork work(checks ? context.stream_number : 0, op, this);
        op->type->run(op->state, context);
      } catch (abi::__forced_unwind&) {
        throw;
      } catch (...) {
        op->error = caught(*op);
      }
      if (checks) note_use(op, std::move(*checks), inherited_checks);
    }
    notify(&Observer::on_end, op, &context);
    if (!op->type->finished) drop_state(op);
  };
  if (has_streams_.load(std::memory_order_relaxed)) [[unlikely]] {
    LateChecks checks;
    run(&checks);
  } else {
    run(nullptr);
  }
}

// Before an operation runs: what checks have found by now; where it may note its own.
void Engine::begin_on_streams(Op* op, RunContext& context, LateChecks& checks) {
  context.late = nullptr;
  try {
    if (Ref<Error> error = inherit_late(*op, checks)) op->error = std::move(error);
    if (op->error) keep_first_causes(*op);
  } catch (...) {
    op->error = caught(*op);
  }
  if (op->only_enqueues && context.stream_number) context.late = &checks;
}

// Gives what the operation used its ticket, also if it failed: it may have enqueued something. checks: that
// decide whether it has failed, from number `own` on its own.
void Engine::note_use(Op* op, LateChecks checks, size_t own) noexcept {
  try {
    const Ticket ticket = note_streams(*op);
    if (ticket && options_.kind == EngineKind::naive) wait_for(ticket);
    note_doubts(*op, std::move(checks), own, ticket);
  } catch (...) {
    if (!op->error) op->error = caught(*op);
  }
}

// The parts run in order on this thread, which holds all their variables: so it may look at and set the
// variables' errors and versions itself, and the outcome is what separate operations would have given.
void Engine::run_bulk(Op* op, RunContext& context, DomainHold& hold) {
  for (Op* part = op->parts; part; part = part->next) {
    const Access *begin = part->accesses(), *end = begin + part->access_count;
    auto inherit_from = [&](bool reads) {
      for (const Access* a = begin; a != end && !part->error; ++a) {
        if (a->is_duplicate || a->mode == Mode::overwrite || (a->mode == Mode::read) != reads) continue;
        part->error = a->var->error;
      }
    };
    inherit_from(true);
    inherit_from(false);
    run_task(part, context, hold);
    if (part->error && !part->skipped) {
      Session s(*this);
      report(part->error);
    }
    for (const Access* a = begin; a != end; ++a) {
      if (a->mode == Mode::read || a->is_duplicate) continue;
      if (!part->skipped) a->var->version.fetch_add(1, std::memory_order_release);
      if (!part->error || a->on_failure == OnFailure::done) {
        if (a->mode == Mode::overwrite) a->var->error = {};
      } else if (!a->var->error && a->on_failure == OnFailure::poison) {
        a->var->error = part->error;
      }
    }
  }
}

void Engine::run_async(Op* op, RunContext& context, DomainHold& hold) {
  op->holders.store(2, std::memory_order_relaxed);
  const Ref<Error> inherited = std::move(op->error);
  context.error = inherited.get();
  Ref<Completion> completion(op->completion);
  completion->release();  // the operation's own count
  {
    Session s(*this);
    op->completion = nullptr;
    completion->next_ = outstanding_;
    if (outstanding_) outstanding_->previous_ = completion.get();
    outstanding_ = completion.get();
    completion->linked_ = true;
    ++outstanding_count_;
  }
  hold.take(op->type->domain);
  notify(&Observer::on_start, op, &context);
  context.completion = completion.get();
  Ref<Error> thrown;
  {
    RunningScope scope(op, this, hold.here());
    try {
      if (has_streams_.load(std::memory_order_relaxed)) [[unlikely]]
        order_streams(*op);
      op->type->run(op->state, context);
    } catch (abi::__forced_unwind&) {
      throw;
    } catch (...) {
      thrown = caught(*op);
    }
  }
  if (thrown && !completion->finish(thrown)) {  // it had said that it was done, and failed afterwards
    Session s(*this);
    report(thrown);
  }
}

// Engine lock held. Of an asynchronous operation by its running thread, once it no longer names it as what it
// runs, and by the thread that completed it.
void Engine::release_async(Op* op, Session& s) {
  if (op->holders.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  s.pause();
  drop_state(op);
  s.relock();
  s.discard(op);
}

// An operation is complete, and its on_done has not returned: a fork waits for that, since the forked child
// has no thread that would call it. Begins and ends under the engine lock.
class Engine::Reporting {
 public:
  explicit Reporting(Engine& engine) noexcept : engine_(engine), generation_(engine.generation_) {
    ++engine.reporting_;
  }
  ~Reporting() {
    if (generation_ == engine_.generation_)
      --engine_.reporting_;  // else on_done has forked: this is the child
  }
  Reporting(const Reporting&) = delete;

 private:
  Engine& engine_;
  const uint64_t generation_;
};

// Complete and no longer outstanding in one step: a child forked before it fails the operation, one forked
// after it finds it complete.
void Engine::finish_async(Completion& completion, Ref<Error> error) {
  Op* const op = completion.op_;
  if (error && error->operation.empty()) {
    error->operation = op->name();
    error->where = op->where();
  }
  op->error = error;
  if (has_streams_.load(std::memory_order_relaxed)) [[unlikely]]
    note_use(op, {}, 0);
  notify(&Observer::on_end, op, nullptr);
  Session s(*this);
  if (!completion.unlink(*this)) return s.finish();  // forked by the observer: this is the child
  if (error) report(error);
  complete(op, s);
  {
    const Reporting reporting(*this);
    s.finish();
    call_finished(op, error.get());
    s.relock();
  }
  release_async(op, s);
  s.finish();
}

// on_done. Like a function, it must not wait.
void Engine::call_finished(Op* op, Error* error) {
  if (!op->type || !op->type->finished) return;
  RunningScope scope(nullptr, this, context());
  op->type->finished(op->state, error);
}

// Engine lock held, the function has run.
void Engine::finish_op(Op* op, Session& s) {
  if (op->error && !op->skipped) report(op->error);
  if (op->kind != OpKind::bulk && !(op->type && op->type->finished)) {
    complete(op, s);
    s.discard(op);
    return;
  }
  const Ref<Error> error = op->error;
  complete(op, s);
  {
    const Reporting reporting(*this);
    s.pause();
    while (Op* part = op->kind == OpKind::bulk ? op->parts : nullptr) {
      op->parts = part->next;
      const Ref<Error> cause = std::move(part->error);
      call_finished(part, cause.get());
      drop_state(part);
      s.relock();
      s.discard(part);
      s.pause();
    }
    if (op->kind == OpKind::bulk)
      delete static_cast<std::vector<Ref<Var>>*>(op->state);
    else
      call_finished(op, error.get());
    drop_state(op);
    s.relock();
  }
  s.discard(op);
}

// The naive engine's worker is the thread that made the operation ready. Called without the lock, returns
// with it.
void Engine::run_here(Op* op, Session& s) {
  Context& here = context();
  bool ended = false;
  {
    const Blocking blocking;  // the function may take long, or need what another thread holds
    DomainHold hold(here, false);
    ended = execute(op, -1, hold);
    hold.release();
  }
  s.relock();
  --ready_count_;
  untrack_user_thread(op, here);
  if (ended)
    finish_op(op, s);
  else
    release_async(op, s);
}

Completion::Completion(std::shared_ptr<Engine> engine, Op* op) : engine_(std::move(engine)), op_(op) {}

Completion::~Completion() {
  if (!done_.load(std::memory_order_acquire))
    finish(make_ref<Error>("on_complete was dropped without having been called"));
}

bool Completion::finish(Ref<Error> error) {
  if (done_.exchange(true, std::memory_order_acq_rel)) return false;
  const std::shared_ptr<Engine> engine = std::move(engine_);  // a finished operation keeps no engine alive
  engine->finish_async(*this, std::move(error));
  return true;
}

bool Completion::unlink(Engine& engine) noexcept {
  if (!std::exchange(linked_, false)) return false;
  if (previous_)
    previous_->next_ = next_;
  else if (engine.outstanding_ == this)
    engine.outstanding_ = next_;
  if (next_) next_->previous_ = previous_;
  --engine.outstanding_count_;
  return true;
}

}  // namespace weft
