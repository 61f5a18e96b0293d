// lifecycle.cpp: the beginning and the end of engines, and fork.
//
// Fork copies the process with one thread. Before it, the host calls `settle_all`, so that normally nothing
// is pending. All engine locks are held across the fork itself (fork.h), so that the child finds consistent
// queues, and the child forgets the parent's threads; what was still pending fails there, because only the
// parent can finish it.
#include <algorithm>
#include <new>
#include <system_error>

#include "engine/fork.h"
#include "engine/machine.h"
#include "engine/session.h"

namespace weft {

static constexpr const char* kLostInFork =
    "was pending when the process forked, and goes on in the parent only";

struct Registry {
  ForkMutex mutex;
  std::vector<Engine*> engines;

  static Registry& get() {
    static Registry* registry = [] {
      after_fork(forked);
      return new Registry;  // never destroyed: engines may outlive static destructors
    }();
    return *registry;
  }

  static void forked(bool in_child) {
    if (in_child) {
      for (Engine* engine : get().engines) engine->reset_in_child();
      return;
    }
    for (const auto& engine : Engine::all())  // a push may have found the lock taken
      if (engine->nudge_missed_.load(std::memory_order_seq_cst)) engine->nudge();
  }
};

namespace {

[[maybe_unused]] const Registry& kAtLoad = Registry::get();

// Polls `done` with growing pauses: for the rare moments when the whole engine has to come to rest.
template <class F>
bool poll(Deadline deadline, F&& done) {
  auto pause = std::chrono::microseconds(50);
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5000));
  }
  return true;
}

// What a thread that was given up may still come back to: never destroyed.
void keep_for_ever(const void* object) {
  const std::lock_guard guard(lasting_fork_mutex<struct KeptForEver>());
  static auto* objects = new std::vector<const void*>;
  objects->push_back(object);
}

// At the end, asynchronous operations are waited for as long as now and then one of them completes.
constexpr auto kAsyncGrace = std::chrono::seconds(1);

std::string describe(const Worker& worker) {
  if (!worker.queue) return "exploration worker " + std::to_string(worker.index);
  return "worker " + std::to_string(worker.index) + " of the " + queue_name(worker.queue->kind) +
         " queue of cpu(" + std::to_string(worker.queue->device->device.index) + ")";
}

}  // namespace

Engine::Engine(Options options) : options_(options), random_(options.seed) {
  limit_.store(options.max_pending, std::memory_order_relaxed);
  epochs_.emplace_back();
}

std::shared_ptr<Engine> Engine::create(Options options) {
  if (options.workers == 0) options.workers = usable_cores();
  if (options.workers < 0 || options.workers > 1024) throw EngineMisuse("workers must be in 1..1024");
  if (options.io_workers < 1 || options.io_workers > 1024)
    throw EngineMisuse("io_workers must be in 1..1024");
  if (options.max_pending < 1 || options.max_pending_bytes < 1)
    throw EngineMisuse("max_pending and max_pending_bytes must be at least 1");
  std::shared_ptr<Engine> engine(new Engine(options), destroy);
  const std::lock_guard guard(Registry::get().mutex);
  Registry::get().engines.push_back(engine.get());
  return engine;
}

std::vector<std::shared_ptr<Engine>> Engine::all() {
  const std::lock_guard guard(Registry::get().mutex);
  std::vector<std::shared_ptr<Engine>> result;
  for (Engine* engine : Registry::get().engines)
    if (auto shared = engine->weak_from_this().lock()) result.push_back(std::move(shared));
  return result;
}

// The last handle has gone, perhaps inside one of the engine's own functions: then another thread has to do
// it.
void Engine::destroy(Engine* engine) {
  auto end = [engine] {
    const bool stuck = !engine->shutdown(kNever).empty();
    engine->drop_references();
    {
      const std::lock_guard guard(Registry::get().mutex);
      std::erase(Registry::get().engines, engine);
    }
    if (stuck)
      keep_for_ever(engine);
    else
      delete engine;
  };
  if (context().worker_of == engine) {
    try {
      std::thread(end).detach();
    } catch (
        const std::system_error&) {  // no thread to be had: the engine is left as it is, its threads asleep
      keep_for_ever(engine);
    }
  } else {
    Blocking blocking;
    end();
  }
}

bool Engine::wait_for_dying(Deadline deadline) {
  Blocking blocking;
  return poll(deadline, [] {
    const std::lock_guard guard(Registry::get().mutex);
    return std::none_of(Registry::get().engines.begin(), Registry::get().engines.end(),
                        [](Engine* engine) { return engine->weak_from_this().expired(); });
  });
}

// What may belong to the host language, and so must not be destroyed under a lock.
void Engine::drop_references() {
  take_unseen_errors();
  delete observers_.exchange(nullptr);
  old_observers_.clear();
}

Engine::~Engine() {
  for (auto& slot : devices_) delete slot.load();
  delete observers_.load();
}

void Engine::start() {
  refuse_inside("start", nullptr);
  Blocking blocking;
  const std::lock_guard guard(lifecycle_);
  state_.store(State::running);
}

void Engine::stop(Deadline deadline) {
  refuse_inside("stop", nullptr);
  flush_bulk();
  Blocking blocking;
  std::unique_lock guard(lifecycle_, std::defer_lock);
  if (!poll(deadline, [&] { return guard.try_lock(); }))
    throw TimedOut("stop: another thread is stopping or ending the engine");
  if (state_.load() == State::stopped) return;
  state_.store(State::draining);
  struct Undo {
    std::atomic<State>& state;
    ~Undo() {
      if (state.load() == State::draining) state.store(State::running);
    }
  } undo{state_};
  for (;;) {
    Session s(*this);
    const Ref<Waiter> waiter = wait_all_marker(s);
    s.finish();
    if (!waiter) break;
    switch (wait(*waiter, deadline)) {
      case WaitResult::done:
        break;
      case WaitResult::timed_out:
        throw TimedOut("stop: operations are still pending; the engine goes on");
      case WaitResult::interrupted:
        throw Interrupted();
    }
  }
  state_.store(State::stopped);
  end_threads(kNever);
  // A push that was let in before and arrives only now has been promised to run.
  Session s(*this);
  drain_all(s);
  each_queue([&](Queue& queue) { wake(queue, s); });
  s.finish();
}

// Ends all idle threads; returns the descriptions of those that had not ended at the deadline, which are
// detached.
std::vector<std::string> Engine::end_threads(Deadline deadline) {
  std::vector<std::unique_ptr<Worker>> workers;
  {
    Session s(*this);
    stopping_ = true;
    each_queue([&](Queue& queue) {
      for (auto& worker : std::exchange(queue.workers, {})) workers.push_back(std::move(worker));
      queue.idle.clear();
    });
    for (auto& worker : std::exchange(explorers_, {})) workers.push_back(std::move(worker));
    s.finish();
  }
  for (auto& worker : workers) worker->parker.unpark();
  deadline = std::max(deadline, Clock::now() + std::chrono::milliseconds(100));  // for idle ones, too
  std::vector<std::string> stuck;
  for (auto& worker : workers) {
    if (poll(deadline, [&] { return worker->exited.load(std::memory_order_acquire); })) {
      worker->thread.join();
    } else {
      stuck.push_back(describe(*worker));
      worker->thread.detach();
      keep_for_ever(worker.release());
    }
  }
  Session s(*this);
  each_queue([&](Queue& queue) {
    available_.fetch_add(queue.limit - queue.available.load());
    queue.available.store(queue.limit);
    queue.idle.clear();
    queue.waking = queue.spinning = queue.standby = false;
  });
  for (auto& worker : workers)
    if (worker) ended_workers_.push_back(std::move(worker));
  threads_ = stuck.size();
  stopping_ = !stuck.empty();
  s.finish();
  return stuck;
}

// Waits until nothing can go on by itself: no function runs and none is ready, and each on_done has returned.
bool Engine::settle(Deadline deadline) {
  for (const Running* frame = context().running; frame; frame = frame->outer)
    if (frame->engine == this) return false;  // one of them is below us on this stack
  return poll(deadline, [&] {
    if (options_.kind == EngineKind::explore) {
      Waiter never;
      drive(&never);
    }
    Session s(*this);
    drain_all(s);
    const bool settled = !can_progress() && reporting_ == 0;
    s.finish();
    return settled;
  });
}

bool Engine::settle_all(Deadline deadline) {
  Blocking blocking;
  bool settled = true;
  for (const auto& engine : all()) settled &= engine->settle(deadline);
  return settled;
}

// For the forked child. Releases nothing, see reset_in_child. A thread of the parent may be about to complete
// one of them: it is done, but not complete, as long as it is linked.
void Engine::abandon_outstanding(const char* reason, Session& s) {
  while (Completion* completion = outstanding_) {
    Op* op = completion->op_;
    completion->retain();
    completion->unlink(*this);
    completion->done_.store(true);
    Error* const error = new Error(reason);
    error->operation = op->name();
    error->where = op->where();
    new (&op->error) Ref<Error>(error);
    complete(op, s);
  }
}

std::vector<std::string> Engine::shutdown(Deadline deadline, bool interruptible) {
  Blocking blocking;
  const std::lock_guard guard(lifecycle_);
  if (abandoned_) return {"given up before"};
  const auto settled = [&] {
    for (Deadline slice; Clock::now() < deadline;) {
      slice = std::min(deadline, Clock::now() + std::chrono::milliseconds(50));
      if (settle(slice)) return true;
      if (interruptible && host_hooks.interrupted && host_hooks.interrupted()) throw Interrupted();
    }
    end_loops();
    return settle(std::max(deadline, Clock::now() + std::chrono::milliseconds(100)));
  };
  auto patience = Clock::now() + kAsyncGrace;
  for (uint64_t finished_before = 0; settled();) {
    Session s(*this);
    drain_all(s);
    if (pending_ == 0) break;
    Completion* overdue = nullptr;
    if (finished_count_ != finished_before)
      patience = Clock::now() + kAsyncGrace;
    else if (Clock::now() > std::min(patience, deadline) && !can_progress())
      overdue = outstanding_;
    finished_before = finished_count_;
    if (overdue && !overdue->try_retain()) overdue = nullptr;  // it is ending by itself
    s.finish();
    if (overdue) {
      overdue->finish(make_ref<Error>("given up at the end of the engine: on_complete was not called"));
      overdue->release();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  try {
    if (has_streams_.load(std::memory_order_relaxed))
      wait_for_all_streams([&] { return Clock::now() >= deadline; });
  } catch (...) {  // the device has failed: nothing of it can be waited for
  }
  state_.store(State::stopped);
  std::vector<std::string> stuck = end_threads(deadline);
  abandoned_ = !stuck.empty();
  return stuck;
}

std::vector<Ref<Error>> Engine::take_unseen_errors() {
  std::vector<Ref<Error>> unseen;
  Session s(*this);
  for (Ref<Error>& cause : std::exchange(causes_, {})) {
    if (cause->handled || cause->seen.load(std::memory_order_relaxed))
      s.discard(std::move(cause));
    else
      unseen.push_back(std::move(cause));
  }
  s.finish();
  return unseen;
}

// For the forked child: what its lost threads were running.
std::vector<Op*> Engine::forget_threads() {
  std::vector<Op*> lost;
  auto add_lost = [&](Op* op) {
    if (op->kind != OpKind::async || op->completion) lost.push_back(op);  // else it is among the outstanding
  };
  auto forget = [&](std::vector<std::unique_ptr<Worker>>& workers) {
    for (auto& worker : workers) {
      if (worker->current) add_lost(worker->current);
      static_cast<void>(worker.release());  // its thread object must not be destroyed
    }
    workers.clear();
  };
  each_queue([&](Queue& queue) {
    forget(queue.workers);
    queue.idle.clear();
    queue.waking = queue.spinning = queue.standby = false;
    available_.fetch_add(queue.limit - queue.available.load());
    queue.available.store(queue.limit);
    queue.device->wide_running = false;
    queue.device->narrow_running = 0;
    queue.device->brief_running = 0;
  });
  forget(explorers_);
  running_ = reporting_ = 0;
  stopping_ = true;  // starts no threads
  std::erase_if(on_user_threads_, [&](const UserThreadRun& run) {
    if (run.thread == &context()) return false;  // the thread that forked goes on with these
    if (options_.kind == EngineKind::naive) --ready_count_;
    add_lost(run.op);
    return true;
  });
  return lost;
}

// For the forked child: one of the operations that will not run or be finished there.
void Engine::fail_in_child(Op* op, bool ran, Session& s) {
  if (!op->error) {
    const Op* first_op = op->kind == OpKind::bulk ? op->parts : op;
    op->error = make_ref<Error>(kLostInFork);
    op->error->operation = first_op->name();
    op->error->where = first_op->where();
  }
  op->skipped = !ran;
  for (Op* part = op->kind == OpKind::bulk ? op->parts : nullptr; part; part = part->next)
    for (const Access *a = part->accesses(), *end = a + part->access_count; a != end; ++a)
      if (a->mode != Mode::read && !a->var->error) a->var->error = op->error;
  complete(op, s);
}

// In the forked child, whose only thread finds everything as the engine lock guards it. Destroys nothing:
// destructors may belong to the host language, which has not recovered from the fork yet.
void Engine::reset_in_child() {
  ++generation_;
  new (&lifecycle_) std::mutex;
  new (&observer_mutex_) std::mutex;
  new (&making_device_) std::mutex;
  new (&drive_mutex_) std::mutex;
  Session s(*this);
  const std::vector<Op*> lost = forget_threads();
  threads_ = 0;
  stalled_.clear();
  inbox_.forget_unfilled();
  drain_all(s);
  for (Op* op : lost) fail_in_child(op, true, s);
  abandon_outstanding(kLostInFork, s);
  auto give_up = [&](Op* op) {
    --ready_count_;
    fail_in_child(op, false, s);
  };
  for (bool progressed = true; progressed;) {
    progressed = false;
    each_queue([&](Queue& queue) {
      for (; !queue.ready.empty(); progressed = true) give_up(queue.ready.pop());
      queue.has_ready.store(false);
    });
    for (; !explore_ready_.empty(); progressed = true) {
      Op* op = explore_ready_.back();
      explore_ready_.pop_back();
      give_up(op);
    }
  }
  finished_.store(inbox_.tickets());
  finished_seen_.store(inbox_.tickets());
  pending_bytes_.store(0);
  new (&causes_) std::vector<Ref<Error>>;  // the parent reports them
  stopping_ = false;
  s.leak();
  s.finish();
}

void Engine::add_observer(std::shared_ptr<Observer> observer) {
  const std::lock_guard guard(observer_mutex_);
  const auto* old = observers_.load();
  auto* list =
      old ? new std::vector<std::shared_ptr<Observer>>(*old) : new std::vector<std::shared_ptr<Observer>>;
  list->push_back(std::move(observer));
  observers_.store(list, std::memory_order_release);
  // Threads may be walking the old list: it lives as long as the engine.
  if (old) old_observers_.emplace_back(const_cast<std::vector<std::shared_ptr<Observer>>*>(old));
}

void Engine::remove_observer(const Observer* observer) {
  const std::lock_guard guard(observer_mutex_);
  const auto* old = observers_.load();
  if (!old) return;
  auto* list = new std::vector<std::shared_ptr<Observer>>(*old);
  std::erase_if(*list, [&](const auto& o) { return o.get() == observer; });
  if (list->empty()) {
    delete list;
    list = nullptr;
  }
  observers_.store(list, std::memory_order_release);
  old_observers_.emplace_back(const_cast<std::vector<std::shared_ptr<Observer>>*>(old));
}

Stats Engine::stats() {
  Session s(*this);
  drain_all(s);
  Stats result{};
  result.pushed = pushed_;
  result.finished = finished_count_;
  result.failed = failed_;
  result.skipped = skipped_;
  result.inlined = inlined_;
  result.stalls = stalls_;
  result.wakes = wakes_;
  result.pending = pending_;
  result.running = running_;
  result.async_outstanding = outstanding_count_;
  result.threads = threads_;
  s.finish();
  return result;
}

}  // namespace weft
