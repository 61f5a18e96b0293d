// engine.h: the dependency engine: runs any functions, in parallel where their declared reads and writes
// allow.
//
// How it works, in one paragraph. A push builds an Op and stores it into the inbox, a lock-free ring. All
// dependency state (variables' queues, ready lists) is plain data under one engine lock that is held for tens
// of nanoseconds at a time. Its holder drains the inbox: usually a worker between two functions,
// so that pushing threads need not touch variables at all; a pushing thread does it itself only when a worker
// sleeps that could be used. Functions, callbacks, destructors of captured objects, wakes and thread exits
// all happen outside the lock: see Session.
//
// Lock order: the drive mutex (exploration) before the engine lock; nothing is acquired under the engine
// lock, and a Domain (the GIL) least of all.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/device_kind.h"
#include "engine/error.h"
#include "engine/fork.h"
#include "engine/inbox.h"
#include "engine/late_checks.h"
#include "engine/operation.h"
#include "engine/parking.h"
#include "engine/queue.h"
#include "engine/variable.h"

namespace weft {

enum class EngineKind : uint8_t {
  threaded,
  naive,    // a function runs on the pushing thread, at the call
  explore,  // one function at a time, in a legal order drawn from a seed
};

struct Options {
  EngineKind kind = EngineKind::threaded;
  int workers = 0;  // narrow compute threads per device; 0: the number of cores
  int io_workers = 4;
  uint64_t max_pending = 2048;
  uint64_t max_pending_bytes = uint64_t{64} << 20;
  uint64_t seed = 0;   // exploration
  bool check = false;  // find accesses that were not declared
};

struct PushOptions {
  Device device{};
  QueueKind queue = QueueKind::compute;
  int priority = 0;
  uint64_t size_bytes = 0;  // memory that the pending operation holds, for back-pressure
  const char* name = "";
};

// What the embedding language does around a blocking wait, and how it requests its end (Ctrl-C). Set once.
struct HostHooks {
  void* (*release)() = nullptr;  // before blocking: give up the GIL if held; the result goes to `restore`
  void (*restore)(void*) = nullptr;
  bool (*interrupted)() = nullptr;  // called every 100 ms and after signals while blocked
};
inline HostHooks host_hooks;

class Observer {
 public:
  struct Event {
    const Op* op;
    Device device;
    QueueKind queue;
    int worker;  // -1: not on a worker
    const Error* error;
  };
  virtual ~Observer() = default;
  virtual void on_push(const Event&) {}
  virtual void on_start(const Event&) {}  // not called for skipped operations
  virtual void on_end(const Event&) {}
  // A thread has waited for others' work since `start`: for an array, for all, or for room in the engine.
  virtual void on_wait(std::chrono::steady_clock::time_point) {}
};

struct Stats {
  uint64_t pushed, finished, failed, skipped, inlined, stalls, wakes;
  uint64_t pending, running, async_outstanding, threads;
};

// Handed to asynchronous operations; they end when `finish` is called, from any thread, or the last reference
// goes.
class Completion : public Counted<Completion> {
 public:
  Completion(std::shared_ptr<Engine> engine, Op* op);
  ~Completion();
  // False if the operation had ended already.
  bool finish(Ref<Error> error = {});

 private:
  friend class Engine;
  bool unlink(Engine& engine) noexcept;  // false if it is not linked; engine lock
  std::shared_ptr<Engine> engine_;
  Op* op_;
  std::atomic<bool> done_{false};
  bool linked_ = false;  // in the engine's list of those that are not complete; engine lock
  Completion* previous_ = nullptr;
  Completion* next_ = nullptr;
};

class Session;

// The function that the calling thread executes, if any.
struct Running {
  const Op* op;
  Engine* engine;
  Running* outer;
  const Queue* queue;  // on whose stream it works: the operation's, or another one's for a while (OtherQueue)
};

// While it lives, what the calling thread's operation does goes on the stream of another queue; null: of its
// own. The caller orders the streams.
class OtherQueue {
 public:
  explicit OtherQueue(const Queue* queue) noexcept
      : here_(context().running), own_(here_ ? here_->queue : nullptr) {
    if (here_ && queue) here_->queue = queue;
  }
  ~OtherQueue() {
    if (here_) here_->queue = own_;
  }
  OtherQueue(const OtherQueue&) = delete;

 private:
  Running* const here_;
  const Queue* const own_;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  static std::shared_ptr<Engine> create(Options options);
  Engine(const Engine&) = delete;

  const Options& options() const noexcept { return options_; }
  // A queue of a device, whose streams are made when one is asked for first. Raises DeviceError.
  Queue& queue_of(Device device, QueueKind kind);

  // Variables. The caller holds one reference; `delete_variable` may come with a function to run afterwards.
  Ref<Var> new_variable();
  void delete_variable(const Ref<Var>& var);
  void delete_variable(const Ref<Var>& var, Op* on_deleted, PushOptions options);
  // When a handle goes without `delete_variable`; never throws, needs no order.
  static void drop_variable(Ref<Var>&& var) noexcept;

  // Takes the operation over in every case: if this throws, the operation has been dropped, and nothing else
  // happened.
  void submit(Op* op, const PushOptions& options);
  // One more run, on the Operator's own queue.
  void submit(Operator& plan, PushOptions options);
  // The same in two steps, for a caller that adds something to the operation before it submits it.
  Op* instantiate(Operator& plan);

  template <class F>  // fn(RunContext&)
  void push(F&& fn, std::span<Var* const> reads, std::span<Var* const> writes,
            const PushOptions& options = {}) {
    Op* op = new_op(reads.size() + writes.size());
    for (Var* v : writes) op->add(v, Mode::write);
    for (Var* v : reads) op->add(v, Mode::read);
    op->emplace(std::forward<F>(fn), options.name);
    submit(op, options);
  }
  template <class F>  // fn(RunContext&, Ref<Completion>)
  void push_async(F&& fn, std::span<Var* const> reads, std::span<Var* const> writes,
                  PushOptions options = {}) {
    Op* op = new_op(reads.size() + writes.size());
    for (Var* v : writes) op->add(v, Mode::write);
    for (Var* v : reads) op->add(v, Mode::read);
    op->kind = OpKind::async;
    op->emplace([fn = std::forward<F>(fn)](RunContext& c) mutable { fn(c, Ref<Completion>(c.completion)); },
                options.name);
    submit(op, options);
  }
  // `plan` is an Op with function and accesses, as for `submit`.
  // The handle must go before the engine does; runs still pending then finish.
  std::shared_ptr<Operator> new_operator(Op* plan, QueueKind queue);
  static void delete_operator(Operator& op) noexcept { op.deleted.store(true); }

  void wait_for_var(Var& var, bool writes_only = false, Deadline deadline = kNever);
  // The same without waiting for what is on streams.
  void wait_until_enqueued(Var& var, bool writes_only = false, Deadline deadline = kNever);
  void wait_for_all(Deadline deadline = kNever);
  // The same without looking at errors: they stay for the next check.
  void wait_until_idle(Deadline deadline = kNever);
  void clear_error(Var& var);
  // Raises the error that the variable has now, even if more is pending on it.
  void throw_if_failed(Var& var);
  // Whether nothing that was pushed has still to write the variable (to_write: or to read it), and it has not
  // failed.
  bool is_ready(Var& var, bool to_write = false);
  // The backend has new streams for a device, on which nothing is pending.
  void renew_streams(Device device);
  // A failure that was found after its operation had finished: wait_for_all raises it.
  void report_late(const Ref<Error>& error);

  // The calling thread's following pushes are collected and submitted as one operation, `size` at a time.
  void begin_bulk(int size);
  void end_bulk();
  // The same for all threads, where no begin_bulk says otherwise; 1: none is collected. Gives what it was.
  int set_bulk_size(int size);

  void start();
  void stop(Deadline deadline = kNever);
  bool running() const noexcept { return state_.load() == State::running; }
  // At the end of the process or of the engine: finishes what can finish until the deadline, gives up the
  // rest. Returns which threads still run a function; they are abandoned.
  // interruptible: raises Interrupted if the host wants to; it can be called again.
  std::vector<std::string> shutdown(Deadline deadline, bool interruptible = false);

  // A function that may go on for ever (a loop of a program) asks at each turn, with the context that it runs
  // in. Raises LoopEnded if a wait has been interrupted since it began, kLoopGrace ago or longer, or if the
  // process ends and waits no longer: what finishes by itself in that time is not torn.
  void check_interrupts(const RunContext& context) const {
    if (interrupts_.load(std::memory_order_relaxed) != context.interrupts) [[unlikely]]
      end_loop();
  }
  static constexpr auto kLoopGrace = std::chrono::seconds(2);
  // Functions that ask end now, those that begin later, too.
  void end_loops() noexcept;
  // Failures that no wait has raised and that were not cleared; forgets all failures.
  std::vector<Ref<Error>> take_unseen_errors();
  // Engines whose last handle went inside one of their own functions end on a thread of their own; waits for
  // these.
  static bool wait_for_dying(Deadline deadline);

  // Raises EngineMisuse if the running function did not declare this access, or, outside of functions, if
  // pending operations conflict with it. Does nothing unless Options::check.
  void check_access(Var& var, bool write);
  // True inside a function that declared the variable as read only.
  bool read_only_here(const Var& var) const noexcept;

  void add_observer(std::shared_ptr<Observer> observer);
  void remove_observer(const Observer* observer);
  Stats stats();

  // True on a thread that is executing a function of any engine.
  static bool inside_function() noexcept;
  // Also in callbacks, and in destructors that a worker runs: where nothing may wait.
  static bool on_engine_thread() noexcept { return on_engine_thread(context()); }
  static bool on_engine_thread(const Context& here) noexcept { return here.running || here.worker_of; }

  // Before fork: waits until nothing more can finish by itself, or the deadline. False: functions still run.
  static bool settle_all(Deadline deadline);
  // All engines that exist, for the end of the process.
  static std::vector<std::shared_ptr<Engine>> all();

 private:
  friend class Completion;
  friend class Session;
  friend struct Registry;
  explicit Engine(Options options);
  ~Engine();
  static void destroy(Engine* engine);

  // Scheduling (schedule.cpp); engine lock held, effects that must wait for unlocking go to the session.
  Op* next_arrived();
  void drain(Session& s, int most);
  void drain_all(Session& s);
  void schedule(Op* op, Session& s);
  void grant(Access& access, Session& s);
  void grant_next(Var& var, Session& s);
  void make_ready(Op* op, Session& s);
  void run_markers(Session& s);
  void release(Access& access, Op* op, bool ran, Session& s);
  void complete(Op* op, Session& s);
  void account_finished(Op* op, Session& s);
  void release_stalled(Session& s);
  bool can_progress() const noexcept;
  void report(const Ref<Error>& cause);

  // Running (run.cpp); no lock held.
  class DomainHold;
  class Reporting;
  bool execute(Op* op, int worker, DomainHold& hold);
  void run_task(Op* op, RunContext& context, DomainHold& hold);
  void run_async(Op* op, RunContext& context, DomainHold& hold);
  void release_async(Op* op, Session& s);
  void run_bulk(Op* op, RunContext& context, DomainHold& hold);
  void finish_async(Completion& completion, Ref<Error> error);
  void finish_op(Op* op, Session& s);
  void call_finished(Op* op, Error* error);
  void begin_on_streams(Op* op, RunContext& context, LateChecks& checks);
  void note_use(Op* op, LateChecks checks, size_t own) noexcept;

  // Late checks (late_checks.cpp)
  Ref<Error> inherit_late(const Op& op, LateChecks& open);
  void note_doubts(const Op& op, LateChecks checks, size_t own, Ticket ticket);
  void keep_first_causes(const Op& op);
  void settle_passed_checks();
  void settle_late_checks();
  static Ref<Error> late_error_of(const Var& var);
  void run_here(Op* op, Session& s);
  void track_user_thread(Op* op, const Context& here) { on_user_threads_.push_back({op, &here}); }
  void untrack_user_thread(const Op* op, const Context& here) {
    std::erase_if(on_user_threads_,
                  [&](const UserThreadRun& entry) { return entry.op == op && entry.thread == &here; });
  }
  void notify(void (Observer::*event)(const Observer::Event&), const Op* op, const RunContext* context);

  // Workers (workers.cpp)
  void wake(Queue& queue, Session& s);
  void wake_compute_queues(DeviceState& device, Session& s);
  bool runnable(Queue& queue);
  Op* take(Queue& queue, Worker& worker, bool force);
  void after_run(Queue& queue, Worker& worker, Session& s);
  bool can_take(Queue& queue);
  bool start_thread(Queue& queue);
  void worker_main(Worker& worker);
  bool spin_for_work(Queue& queue, bool worked, Session& s);
  bool park(Worker& worker, Deadline deadline, Session& s);
  void consider_standby(Worker& worker, std::chrono::nanoseconds tiny, Session& s);
  void stand_by(Worker& worker, Session& s);

  // Waiting (wait.cpp)
  void submit_marker(OpKind kind, Var& var, Mode mode, Waiter* waiter, Session& s);
  enum class WaitResult { done, timed_out, interrupted };
  WaitResult wait(Waiter& waiter, Deadline deadline, bool lend = false);
  bool has_wide_work();
  Ref<Waiter> wait_all_marker(Session& s);
  void settle_inbox(Session& s);
  void throttle(uint64_t size_bytes);
  bool retry_refused_threads();
  template <class F>
  void wait_on_streams(const char* late, Deadline deadline, F&& waits);
  void end_loop() const;
  void note_interrupt() noexcept;
  void refuse_inside(const char* what, const Var* var);
  bool declared_by_running(const Var* var) const;

  // Submitting (submit.cpp). here: of the calling thread; a call of an operator looks it up once.
  void admit(const Op* op, uint64_t size_bytes, const Context& here);
  void validate(const Op* op) const;
  void validate(const Operator& plan) const;
  bool notify_push(Op* op);
  void enqueue(Op* op, Context& here);
  void send(Parcel parcel, Queue& queue, bool decides);
  void nudge();
  bool try_inline(Op* op, Context& here);
  bool try_brief(Op* op, Context& here);
  bool is_free(const Op& op) const;
  void begin_here(Op* op, Session& s, const Context& here);
  void end_here(Op* op, Session& s, const Context& here);
  void flush_bulk();
  void settle_standing_bulk();

  // Exploration (explore.cpp)
  bool drive(Waiter* until);
  bool start_explorer();
  void explore_worker_main(Worker& worker);
  uint64_t draw() noexcept;

  // Fork (lifecycle.cpp)
  void abandon_outstanding(const char* reason, Session& s);
  bool settle(Deadline deadline);
  void reset_in_child();
  std::vector<Op*> forget_threads();
  void fail_in_child(Op* op, bool ran, Session& s);
  std::vector<std::string> end_threads(Deadline deadline);
  void drop_references();
  template <class F>
  void each_queue(F&& f) {
    for (int number = 0, end = device_numbers(); number < end; ++number)
      if (DeviceState* device = devices_[number].load(std::memory_order_acquire))
        for (Queue& queue : device->queues) f(queue);
  }

  enum class State : uint8_t {
    running,
    draining,  // stop() waits; only functions of the engine may still push
    stopped,
  };
  const Options options_;
  Inbox inbox_;

  // Cache lines: what pushing threads read at each push, what they write, and what the working core writes at
  // each operation must not share one.
  alignas(64) std::atomic<uint64_t> finished_{0};       // of operations that came through the inbox
  alignas(64) std::atomic<uint64_t> finished_seen_{0};  // pushers' old copy
  std::atomic<uint64_t> pending_bytes_{0};
  std::atomic<uint64_t> limit_{0};  // max_pending, doubled while nothing finishes
  std::atomic<int> bulk_size_{1};   // see set_bulk_size
  std::atomic<State> state_{State::running};
  std::atomic<std::vector<std::shared_ptr<Observer>>*> observers_{nullptr};
  std::atomic<uint64_t> next_trace_id_{1};
  // Waits that were interrupted, one at least; all are for ever 0 once loops end. Written before it is
  // raised.
  std::atomic<uint64_t> interrupts_{1};
  std::atomic<Clock::rep> loops_end_at_{0};
  std::atomic<DeviceState*> devices_[kDeviceKinds * kDevicesOfKind]{};  // by device_number
  // Some device has streams. Relaxed: a variable that a stream has used came from a thread that saw it,
  // through the engine's lock.
  std::atomic<bool> has_streams_{false};
  ForkMutex late_mutex_;
  std::deque<Ref<LateCheck>> late_checks_;  // late_mutex_: those that may be open

  alignas(64) Lock lock_;
  std::atomic<bool> nudge_missed_{false};  // a thread left an operation to the holder of the lock
  // Below: engine lock.
  std::atomic<int> available_{0};  // over all queues; also read without the lock
  std::deque<Epoch> epochs_;
  Op* markers_ = nullptr;  // granted markers, performed before the lock is left
  uint64_t finished_count_ = 0, failed_ = 0, skipped_ = 0, inlined_ = 0, stalls_ = 0, wakes_ = 0;
  uint64_t pushed_ = 0, pending_ = 0, running_ = 0, ready_count_ = 0, threads_ = 0, reporting_ = 0;
  std::vector<Ref<Error>> causes_;  // not yet reported by wait_for_all
  uint64_t causes_dropped_ = 0;
  std::vector<Ref<Waiter>> stalled_;
  struct UserThreadRun {
    Op* op;
    const Context* thread;
  };
  std::vector<UserThreadRun>
      on_user_threads_;  // being run, or about to be, by threads that are not workers; for fork
  Completion* outstanding_ = nullptr;
  uint64_t outstanding_count_ = 0;
  bool stopping_ = false;
  bool thread_refused_ = false;                         // a queue has work and no thread
  std::vector<std::unique_ptr<Worker>> ended_workers_;  // a thread may still be about to unpark one
  uint64_t generation_ = 0;  // +1 in a forked child: threads of the parent do not exist here
  std::mutex lifecycle_;     // start, stop, shutdown
  bool abandoned_ = false;   // a function never returned: the engine is leaked; under lifecycle_
  std::mutex observer_mutex_;
  std::mutex making_device_;
  std::vector<std::unique_ptr<std::vector<std::shared_ptr<Observer>>>> old_observers_;

  // Exploration
  std::mutex drive_mutex_;
  std::vector<Op*> explore_ready_;
  std::vector<std::unique_ptr<Worker>> explorers_;
  Parker drive_parker_;
  uint64_t random_ = 0;

  HoldInFork<Lock> held_in_fork_{lock_};
};

// Operations pushed between two calls of wait_for_all.
struct Epoch {
  uint64_t pending = 0;
  std::vector<Ref<Waiter>> waiters;  // of the calls that closed it
};

// Gives up the host's lock (GIL) for as long as it lives.
class Blocking {
 public:
  Blocking() : token_(host_hooks.release ? host_hooks.release() : nullptr) {}
  ~Blocking() noexcept(false) {  // a thread may be ended here, when the host language ends
    if (token_) host_hooks.restore(token_);
  }
  Blocking(const Blocking&) = delete;

 private:
  void* token_;
};

}  // namespace weft
