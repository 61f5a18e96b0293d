// wait.cpp: threads that wait for the engine, and those it holds back.
#include "engine/session.h"
#include "engine/team.h"

namespace weft {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(100);  // how often a blocked thread looks at signals
// Back-pressure that lasts this long without anything finishing is not what the program needs: it may be
// waiting for the very thread that is held back. Then the limit is doubled, until a later stall ends as it
// should.
constexpr auto kPatience = std::chrono::seconds(1);

// A wait that finds no thread in so many slices gives up, if nothing runs.
constexpr int kRefusals = 20;

}  // namespace

// lend: wide work is under way, which this thread can take part in meanwhile.
Engine::WaitResult Engine::wait(Waiter& waiter, Deadline deadline, bool lend) {
  struct Notice {  // ends after Blocking does, so that observers find the host language as it was
    std::vector<std::shared_ptr<Observer>>* observers;
    std::chrono::steady_clock::time_point start;
    ~Notice() {
      if (observers)
        for (const auto& observer : *observers) observer->on_wait(start);
    }
  };
  const bool blocks = !waiter.done.load(std::memory_order_acquire);
  auto* const observers = blocks ? observers_.load(std::memory_order_acquire) : nullptr;
  const Notice notice{observers, observers ? std::chrono::steady_clock::now() : decltype(Notice::start)()};
  Blocking blocking;
  int refusals = 0;
  while (!waiter.done.load(std::memory_order_acquire)) {
    auto slice = Clock::now() + kSlice;
    if (options_.kind == EngineKind::explore && !context().running) {
      drive(&waiter);
      slice = Clock::now() + std::chrono::milliseconds(1);  // only functions of other threads are left
    }
    if (lend) lend_to_team(waiter.done, std::min(slice, deadline));
    if (waiter.parker.park_once(std::min(slice, deadline))) continue;
    refusals = retry_refused_threads() ? refusals + 1 : 0;
    if (waiter.done.load(std::memory_order_acquire)) break;
    if (host_hooks.interrupted && host_hooks.interrupted()) {
      note_interrupt();
      return WaitResult::interrupted;
    }
    if (Clock::now() >= deadline) return WaitResult::timed_out;
    if (refusals == kRefusals)
      throw EngineMisuse(
          "the system refuses to start a thread, and without one the operations that this waits for never "
          "run; "
          "hint: end other threads or raise the limit of the user or container (ulimit -u), then wait again");
  }
  return WaitResult::done;
}

// The time is stored before the number that has a loop look at it.
void Engine::note_interrupt() noexcept {
  loops_end_at_.store((Clock::now() + kLoopGrace).time_since_epoch().count(), std::memory_order_relaxed);
  uint64_t before = interrupts_.load(std::memory_order_relaxed);
  while (before && !interrupts_.compare_exchange_weak(before, before + 1, std::memory_order_release)) {
  }
}

void Engine::end_loops() noexcept {
  loops_end_at_.store(0, std::memory_order_relaxed);
  interrupts_.store(0, std::memory_order_release);
}

void Engine::end_loop() const {
  if (!interrupts_.load(std::memory_order_acquire)) throw LoopEnded("ended, because the process ends");
  if (Clock::now().time_since_epoch().count() >= loops_end_at_.load(std::memory_order_relaxed))
    throw LoopEnded("ended, because a wait was interrupted while it ran");
}

// Whether wide work runs or could.
bool Engine::has_wide_work() {
  bool is_wide = false;
  each_queue([&](Queue& queue) {
    is_wide |= queue.kind == QueueKind::wide && (queue.device->wide_running || !queue.ready.empty());
  });
  return is_wide && options_.kind == EngineKind::threaded;
}

// Whether the system refused again, and nothing runs: then nothing will happen until it gives a thread.
bool Engine::retry_refused_threads() {
  Session s(*this);
  if (std::exchange(thread_refused_, false)) each_queue([&](Queue& queue) { wake(queue, s); });
  const bool stuck = thread_refused_ && running_ == 0 && outstanding_count_ == 0;
  s.finish();
  return stuck;
}

bool Engine::declared_by_running(const Var* var) const {
  const Running* const here = context().running;
  return here && here->engine == this && here->op && here->op->find(var);
}

bool Engine::read_only_here(const Var& var) const noexcept {
  const Running* const here = context().running;
  const Op* op = here && here->engine == this ? here->op : nullptr;
  const Access* access = op ? op->find(&var) : nullptr;
  return access && access->mode == Mode::read;
}

void Engine::refuse_inside(const char* what, const Var* var) {
  if (!on_engine_thread()) return;
  const Running* const here = context().running;
  const std::string name = here && here->op ? here->op->name() : "a callback";
  throw EngineMisuse(
      std::string(what) + " inside the engine function '" + name + "' would block a worker" +
      (var ? "; declare the variable, or push what depends on it as an operation of its own" : ""));
}

// Sees to it that everything pushed before is in the variables' queues.
void Engine::settle_inbox(Session& s) {
  const uint64_t until = inbox_.tickets();
  drain_all(s);
  while (inbox_.taken() < until) {  // another thread is between its ticket and its slot
    s.finish();
    std::this_thread::yield();
    s.relock();
    drain_all(s);
  }
}

void Engine::submit_marker(OpKind kind, Var& var, Mode mode, Waiter* waiter, Session& s) {
  Op* op = new_op(1);
  op->kind = kind;
  op->waiter = waiter;
  if (waiter) waiter->retain();
  op->add(&var, mode);
  schedule(op, s);
  run_markers(s);
}

// waits(gives_up) waits for streams, and says whether it did. What is raised is that of `wait`.
template <class F>
void Engine::wait_on_streams(const char* late, Deadline deadline, F&& waits) {
  auto slice = Clock::now() + kSlice;
  WaitResult result = WaitResult::done;
  const GivesUp gives_up = [&] {
    const auto now = Clock::now();
    if (now >= deadline) result = WaitResult::timed_out;
    if (now < slice || result != WaitResult::done) return result != WaitResult::done;
    slice = now + kSlice;
    if (!host_hooks.interrupted || !host_hooks.interrupted()) return false;
    note_interrupt();
    result = WaitResult::interrupted;
    return true;
  };
  if (waits(gives_up)) return;
  if (result == WaitResult::interrupted) throw Interrupted();
  throw TimedOut(late);
}

void Engine::wait_for_var(Var& var, bool writes_only, Deadline deadline) {
  wait_until_enqueued(var, writes_only, deadline);
  if (!has_streams_.load(std::memory_order_relaxed)) return;
  if (declared_by_running(&var)) {
    wait_for_streams(var, writes_only);
    return;
  }
  wait_on_streams("wait_for_var: a stream still uses the variable", deadline,
                  [&](const GivesUp& gives_up) { return wait_for_streams(var, writes_only, gives_up); });
  if (Ref<Error> late = late_error_of(var)) throw OperationFailed({late});
}

void Engine::wait_until_enqueued(Var& var, bool writes_only, Deadline deadline) {
  if (var.engine != this) throw EngineMisuse("the variable belongs to another engine");
  if (declared_by_running(&var)) return;  // the engine has waited before it started the function
  refuse_inside("wait_for_var", &var);
  flush_bulk();
  Session s(*this);
  settle_inbox(s);
  Ref<Error> error;
  if (writes_only ? var.readable() : var.idle()) {
    error = var.error;
    s.finish();
  } else {
    if (var.deleted.load()) throw EngineMisuse("the variable has been deleted");
    auto waiter = make_ref<Waiter>();
    submit_marker(OpKind::wait, var, writes_only ? Mode::read : Mode::write, waiter.get(), s);
    const bool lend = has_wide_work();
    s.finish();
    switch (wait(*waiter, deadline, lend)) {
      case WaitResult::done:
        break;
      case WaitResult::timed_out:
        throw TimedOut("wait_for_var: the variable is still busy");
      case WaitResult::interrupted:
        throw Interrupted();
    }
    error = waiter->error;
  }
  if (!error) return;
  if (Ref<Error> late = late_error_of(var)) error = late;  // it was in doubt before it failed otherwise
  throw OperationFailed({error});
}

bool Engine::is_ready(Var& var, bool to_write) {
  if (var.engine != this) throw EngineMisuse("the variable belongs to another engine");
  flush_bulk();
  Session s(*this);
  settle_inbox(s);
  const bool ready = (to_write ? var.idle() : var.readable()) && !var.error;
  s.finish();
  const StreamUses* const uses = var.uses.load(std::memory_order_acquire);
  if (!ready || !uses) return ready;
  if (to_write ? !uses->has_run() : uses->write() && !has_run(uses->write())) return false;
  const Ref<Doubt> doubt = uses->doubt();
  return !doubt || !doubt->settle();
}

// A waiter for everything that is pending; null if nothing is.
Ref<Waiter> Engine::wait_all_marker(Session& s) {
  settle_inbox(s);
  if (pending_ == 0) return {};
  auto waiter = make_ref<Waiter>();
  if (epochs_.back().pending == 0) {  // the newest closed epoch is the last that has pending operations
    epochs_[epochs_.size() - 2].waiters.push_back(waiter);
  } else {
    epochs_.back().waiters.push_back(waiter);
    epochs_.emplace_back();
  }
  return waiter;
}

void Engine::wait_until_idle(Deadline deadline) {
  refuse_inside("wait_for_all", nullptr);
  flush_bulk();
  Session s(*this);
  const Ref<Waiter> waiter = wait_all_marker(s);
  const bool lend = has_wide_work();
  s.finish();
  switch (waiter ? wait(*waiter, deadline, lend) : WaitResult::done) {
    case WaitResult::done:
      break;
    case WaitResult::timed_out:
      throw TimedOut("wait_for_all: operations are still pending");
    case WaitResult::interrupted:
      throw Interrupted();
  }
  // Operations of devices are finished when they are enqueued.
  if (has_streams_.load(std::memory_order_relaxed))
    wait_on_streams("wait_for_all: streams still run", deadline,
                    [](const GivesUp& gives_up) { return wait_for_all_streams(gives_up); });
  settle_late_checks();
}

void Engine::wait_for_all(Deadline deadline) {
  wait_until_idle(deadline);
  std::vector<Ref<Error>> causes;
  {
    Session s(*this);
    for (Ref<Error>& cause : std::exchange(causes_, {})) {
      if (cause->handled)
        s.discard(std::move(cause));
      else
        causes.push_back(std::move(cause));
    }
    if (const uint64_t more = std::exchange(causes_dropped_, 0))
      causes.push_back(make_ref<Error>("and " + std::to_string(more) + " more operations failed"));
    s.finish();
  }
  if (!causes.empty()) throw OperationFailed(std::move(causes));
}

void Engine::throw_if_failed(Var& var) {
  if (var.engine != this) throw EngineMisuse("the variable belongs to another engine");
  Session s(*this);
  Ref<Error> error = var.error;
  s.finish();
  const StreamUses* const uses = var.uses.load(std::memory_order_acquire);
  const Ref<Doubt> doubt = uses ? uses->doubt() : Ref<Doubt>();
  if (doubt && doubt->is_known())
    if (Ref<Error> late = doubt->settle()) error = late;
  if (error) throw OperationFailed({error});
}

void Engine::clear_error(Var& var) {
  if (var.engine != this) throw EngineMisuse("the variable belongs to another engine");
  if (var.deleted.load()) throw EngineMisuse("the variable has been deleted");
  flush_bulk();
  Ref<Error> late;
  if (has_streams_.load(std::memory_order_relaxed)) {
    try {
      wait_for_var(var, true);
    } catch (const OperationFailed& failed) {
      late = failed.errors.front();
    }
    if (StreamUses* const uses = var.uses.load(std::memory_order_acquire)) uses->set_doubt({});
  }
  Session s(*this);
  if (late) late->handled = true;
  settle_inbox(s);
  submit_marker(OpKind::clear, var, Mode::write, nullptr, s);
  s.finish();
}

// Holds a user's thread back while the engine is too far behind. The common case reads two of its own cache
// lines.
void Engine::throttle(uint64_t size_bytes) {
  auto has_room = [&](uint64_t finished) {
    return inbox_.tickets() - finished < limit_.load(std::memory_order_relaxed) &&
           (!size_bytes ||
            pending_bytes_.load(std::memory_order_relaxed) + size_bytes <= options_.max_pending_bytes ||
            pending_bytes_.load(std::memory_order_relaxed) == 0);
  };
  if (has_room(finished_seen_.load(std::memory_order_relaxed))) return;
  finished_seen_.store(finished_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (has_room(finished_seen_.load(std::memory_order_relaxed))) return;
  for (bool counted = false;;) {
    auto waiter = make_ref<Waiter>();
    uint64_t finished_before;
    {
      Session s(*this);
      drain_all(s);
      finished_before = finished_count_;
      if (has_room(finished_.load(std::memory_order_relaxed)) || !can_progress()) return s.finish();
      stalled_.push_back(waiter);
      if (!counted) ++stalls_;
      counted = true;
      s.finish();
    }
    switch (wait(*waiter, Clock::now() + kPatience)) {
      case WaitResult::done:
        return;
      case WaitResult::interrupted:
        throw Interrupted();
      case WaitResult::timed_out:
        break;
    }
    Session s(*this);
    std::erase(stalled_, waiter);
    if (finished_count_ == finished_before) {
      limit_.store(limit_.load(std::memory_order_relaxed) * 2, std::memory_order_relaxed);
      return s.finish();
    }
    s.finish();
  }
}

void Engine::check_access(Var& var, bool write) {
  if (!options_.check) return;
  if (const Running* const here = context().running) {
    const Access* access = here->op ? here->op->find(&var) : nullptr;
    const std::string name = here->op ? here->op->name() : std::string();
    if (!access)
      throw EngineMisuse("the engine function '" + name + "' uses a variable that it did not declare");
    if (write && access->mode == Mode::read)
      throw EngineMisuse("the engine function '" + name +
                         "' writes a variable that it declared as read only");
    if (!write && access->mode == Mode::overwrite)
      throw EngineMisuse("the engine function '" + name +
                         "' reads a variable that it declared as overwritten");
    return;
  }
  flush_bulk();
  Session s(*this);
  settle_inbox(s);
  const bool fits = write ? var.idle() : var.readable();
  s.finish();
  if (!fits)
    throw EngineMisuse(std::string("a variable is ") + (write ? "written" : "read") +
                       " outside of the engine while pending operations use it; wait for it first");
}

}  // namespace weft
