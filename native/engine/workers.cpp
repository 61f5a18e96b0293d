// workers.cpp: the threads of the queues: when they start, what they take, when they sleep.
//
// Waking is lazy and chained: at most one worker of a queue is on its way at a time, and when it arrives and
// finds more than it can take it wakes the next. So a burst of tiny functions is done by one thread, without
// a system call each, while long functions still spread over all threads.
#include <system_error>

#include "engine/device_kind.h"
#include "engine/session.h"
#include "engine/team.h"

namespace weft {
namespace {

// A worker that runs out of work looks on for this long before it sleeps (docs/design/engine.md, "Spinning").
constexpr auto kSpin = std::chrono::microseconds(3);
// The wide worker, if it has just worked: as long as a program takes to read a result and push what comes
// next.
constexpr auto kSpinWide = std::chrono::microseconds(20);
// Wide work waits this long for narrow functions that run, then goes beside them.
constexpr auto kWideGrace = std::chrono::milliseconds(1);
constexpr int kDrainAtOnce = 64;
// Functions that last less than this, scheduling included, are tiny; a worker decides once in kStreak of
// them.
constexpr auto kTiny = std::chrono::nanoseconds(500);
// In a domain (under the GIL) functions cannot run side by side, unless they leave it, and then they last
// longer.
constexpr auto kTinyInDomain = std::chrono::nanoseconds(4000);
constexpr int kStreak = 64;
constexpr auto kStandby = std::chrono::microseconds(300);

void set_available(std::atomic<int>& all, Queue& queue) noexcept {
  const int sleeping =
      static_cast<int>(queue.idle.size()) + queue.limit - static_cast<int>(queue.workers.size());
  const int now = queue.left_to_others() ? 0 : sleeping;
  const int before = queue.available.exchange(now, std::memory_order_seq_cst);
  all.fetch_add(now - before, std::memory_order_seq_cst);
}

}  // namespace

Queue& Engine::queue_of(Device device, QueueKind kind) {
  if (device.index < 0 || device.index >= kDevicesOfKind)
    throw EngineMisuse(std::string(kind_name(device.kind)) + "(" + std::to_string(device.index) +
                       "): the index must be in 0..63");
  auto& slot = devices_[device_number(device)];
  DeviceState* state = slot.load(std::memory_order_acquire);
  if (!state) {  // a backend makes a stream once; that takes long, and may need what the host's lock guards
    std::unique_lock making(making_device_, std::try_to_lock);
    if (!making.owns_lock()) {
      const Blocking blocking;
      making.lock();
    }
    DeviceBackend* const backend = require_backend(device);
    state = slot.load(std::memory_order_acquire);
    if (state) return state->queue(kind);
    auto new_state = std::make_unique<DeviceState>();
    new_state->device = device;
    const int limits[kQueueKinds] = {options_.workers, 1, 1, options_.io_workers, 1};
    for (int i = 0; i < kQueueKinds; ++i) {
      new_state->queues[i].device = new_state.get();
      new_state->queues[i].kind = static_cast<QueueKind>(i);
      new_state->queues[i].limit = options_.kind == EngineKind::threaded ? limits[i] : 0;
      if (!backend) continue;
      new_state->queues[i].stream = backend->stream(device.index, static_cast<QueueKind>(i));
      new_state->queues[i].stream_number = backend->stream_number(device.index, static_cast<QueueKind>(i));
      if (new_state->queues[i].stream_number) has_streams_.store(true, std::memory_order_relaxed);
    }
    Session s(*this);
    state = new_state.release();
    for (Queue& queue : state->queues) set_available(available_, queue);
    slot.store(state, std::memory_order_release);
  }
  return state->queue(kind);
}

void Engine::renew_streams(Device device) {
  DeviceState* const state = devices_[device_number(device)].load(std::memory_order_acquire);
  DeviceBackend* const backend = backend_of(device.kind);
  if (!state || !backend) return;
  void* streams[kQueueKinds];
  for (int i = 0; i < kQueueKinds; ++i) streams[i] = backend->stream(device.index, static_cast<QueueKind>(i));
  Session s(*this);
  for (int i = 0; i < kQueueKinds; ++i) state->queues[i].stream = streams[i];
  s.finish();
}

bool Engine::runnable(Queue& queue) {
  if (queue.ready.empty()) return false;
  DeviceState& device = *queue.device;
  switch (queue.kind) {
    case QueueKind::compute:
      return !device.wide_running && (device.queue(QueueKind::wide).ready.empty() || device.narrow_turn());
    case QueueKind::wide:  // that narrow functions still run is for `take` to wait for
      return !device.wide_running &&
             (device.queue(QueueKind::compute).ready.empty() || !device.narrow_turn());
    default:
      return true;
  }
}

// Runnable, and not only as soon as narrow functions have ended.
bool Engine::can_take(Queue& queue) {
  const DeviceState& device = *queue.device;
  return runnable(queue) &&
         !(queue.kind == QueueKind::wide && (device.narrow_running > 0 || device.brief_running > 0));
}

void Engine::wake(Queue& queue, Session& s) {
  if (queue.waking || queue.spinning || queue.left_to_others() || !runnable(queue)) return;
  if (!queue.idle.empty()) {
    Worker* worker = queue.idle.back();
    queue.idle.pop_back();
    worker->idle = false;
    s.wake(worker);
    ++wakes_;
  } else if (stopping_ || static_cast<int>(queue.workers.size()) == queue.limit || !start_thread(queue)) {
    return;
  }
  queue.waking = true;
  set_available(available_, queue);
}

void Engine::wake_compute_queues(DeviceState& device, Session& s) {
  wake(device.queue(QueueKind::compute), s);
  wake(device.queue(QueueKind::wide), s);
}

// False if the system gives no thread. The queue's other threads then do the work; if it has none, waits try
// again.
bool Engine::start_thread(Queue& queue) {
  auto worker = std::make_unique<Worker>();
  worker->queue = &queue;
  worker->index = static_cast<int>(queue.workers.size());
  try {
    worker->thread = std::thread([this, w = worker.get()] { worker_main(*w); });
  } catch (const std::system_error&) {
    thread_refused_ |= queue.workers.empty();
    return false;
  }
  queue.workers.push_back(std::move(worker));
  ++threads_;
  return true;
}

// The next operation that this worker may run, or null.
Op* Engine::take(Queue& queue, Worker& worker, bool force) {
  if (!runnable(queue)) return nullptr;
  DeviceState& device = *queue.device;
  if (queue.kind == QueueKind::wide) {
    if ((device.narrow_running > 0 || device.brief_running > 0) && !force) return nullptr;
    if (device.narrow_running > 0) {
      for (auto& narrow : device.queue(QueueKind::compute).workers)
        narrow->long_running = narrow->current != nullptr;
      device.narrow_running = 0;
    }
    device.wide_running = true;
    device.inlined_beside_wide = 0;
    device.wide_started = Clock::now();
  } else if (queue.kind == QueueKind::compute) {
    ++device.narrow_running;
  }
  Op* op = queue.ready.pop();
  if (queue.ready.empty()) queue.has_ready.store(false, std::memory_order_relaxed);
  --ready_count_;
  ++running_;
  ++queue.taken;
  worker.current = op;
  return op;
}

// The worker's function has returned.
void Engine::after_run(Queue& queue, Worker& worker, Session& s) {
  worker.current = nullptr;
  --running_;
  DeviceState& device = *queue.device;
  if (queue.kind == QueueKind::wide) {
    device.wide_running = false;
    const auto now = Clock::now();
    if (!device.queue(QueueKind::compute).ready.empty())
      device.narrow_until = now + (now - device.wide_started) / DeviceState::kNarrowShare;
    wake_compute_queues(device, s);
  } else if (queue.kind == QueueKind::compute) {
    if (worker.long_running)
      worker.long_running = false;
    else if (--device.narrow_running == 0 && !device.queue(QueueKind::wide).ready.empty())
      wake(device.queue(QueueKind::wide), s);
  }
}

// Looks on for a while without counting as idle. True if there may be work. worked: since it looked on last.
bool Engine::spin_for_work(Queue& queue, bool worked, Session& s) {
  DeviceState& device = *queue.device;
  const bool wide = queue.kind == QueueKind::wide && worked && team_size() > 1 && spinning_pays(Clock::now());
  const bool quiet = !device.wide_running && device.queue(QueueKind::wide).ready.empty();
  if (!(wide || queue.kind == QueueKind::compute) || !quiet || queue.spinning || stopping_) return false;
  queue.spinning = true;
  s.finish();
  auto now = Clock::now();
  const auto until = now + (wide ? kSpinWide : kSpin);
  bool has_work = false;
  do {
    for (int i = 0; i < 16 && !has_work; ++i) {
      cpu_relax();
      has_work = queue.has_ready.load(std::memory_order_relaxed) || !inbox_.empty();
    }
    now = wide && !has_work ? give_way(now) : Clock::now();
  } while (!has_work && now < until && !(wide && !spinning_pays(now)));
  s.relock();
  queue.spinning = false;
  return has_work;
}

// Sleeps until another thread wakes the worker; false at the deadline.
bool Engine::park(Worker& worker, Deadline deadline, Session& s) {
  Queue& queue = *worker.queue;
  queue.idle.push_back(&worker);
  worker.idle = true;
  set_available(available_, queue);
  // Having said so, look once more: a push since then either sees `available` or is seen here.
  bool woken = true;
  if (inbox_.empty() && !can_take(queue) && !stopping_) {
    s.finish();
    woken = worker.parker.park_until(deadline);
    s.relock();
  }
  if (worker.idle) {  // not woken for work: the deadline, or a wake meant for an earlier sleep
    std::erase(queue.idle, &worker);
    worker.idle = false;
    set_available(available_, queue);
  } else if (std::exchange(worker.on_standby, false)) {
    stand_by(worker, s);
  } else {
    queue.waking = false;
  }
  return woken;
}

// One thread does tiny functions faster than two that contend for the lock, and pushing threads need not look
// for sleepers meanwhile. But the length of the next function is not known. So one worker stands by: it
// sleeps, and looks again every kStandby whether the others still get on; if not, it works too.
void Engine::consider_standby(Worker& worker, std::chrono::nanoseconds tiny, Session& s) {
  Queue& queue = *worker.queue;
  if (queue.standby) return;
  queue.standby_progress = static_cast<uint64_t>(kStandby / tiny / 4);
  if (queue.active() > 1) {
    stand_by(worker, s);
    return;
  }
  if (!queue.idle.empty()) {
    Worker* other = queue.idle.back();
    queue.idle.pop_back();
    other->idle = false;
    other->on_standby = true;
    s.wake(other);
  } else if (stopping_ || static_cast<int>(queue.workers.size()) == queue.limit || !start_thread(queue)) {
    return;
  } else {  // it would otherwise be missing as long as no push finds it missing, and each push would look
    queue.workers.back()->on_standby = true;
  }
  queue.standby = true;
  set_available(available_, queue);
}

void Engine::stand_by(Worker& worker, Session& s) {
  Queue& queue = *worker.queue;
  queue.standby = true;
  set_available(available_, queue);
  for (bool others_progress = true; others_progress && !stopping_;) {
    const uint64_t before = queue.taken;
    s.finish();
    worker.parker.park_until(Clock::now() + kStandby);
    s.relock();
    others_progress = queue.active() > 0 && queue.taken - before >= queue.standby_progress;
  }
  queue.standby = false;
  set_available(available_, queue);
}

void Engine::worker_main(Worker& worker) {
  context().worker_of = this;
  Queue& queue = *worker.queue;
  {
    DomainHold hold(context(), true);
    Session s(*this);
    const uint64_t generation = generation_;
    if (std::exchange(worker.on_standby, false))
      stand_by(worker, s);
    else
      queue.waking = false;
    bool force = false, worked = false;
    int streak = 0;
    auto streak_began = Clock::now();
    for (;;) {
      if (stopping_) break;
      s.will_take_from(queue);
      drain(s, kDrainAtOnce);
      Op* op = take(queue, worker, force);
      force = false;
      if (!op) {
        if (hold.holds()) {
          s.finish();
          hold.release();
          s.relock();
          continue;
        }
        s.will_take_nothing();
        if (queue.kind == QueueKind::compute || queue.kind == QueueKind::wide)
          wake_compute_queues(*queue.device, s);
        if (spin_for_work(queue, std::exchange(worked, false), s)) continue;
        Deadline deadline = kNever;
        if (queue.kind == QueueKind::wide && !queue.ready.empty())
          deadline = std::max(Clock::now(), queue.device->narrow_until) + kWideGrace;
        force = !park(worker, deadline, s);
        continue;
      }
      s.finish();
      const bool ended = execute(op, worker.index, hold);
      if (generation != generation_) return;  // forked inside the function: this engine was made again
      s.relock();
      s.will_take_from(queue);
      after_run(queue, worker, s);
      worked = true;
      if (ended) {
        finish_op(op, s);
      } else {
        release_async(op, s);
        if (!stalled_.empty()) release_stalled(s);  // perhaps only asynchronous operations are left
      }
      if (++streak < kStreak) continue;
      const auto now = Clock::now();
      const auto tiny = hold.holds() ? kTinyInDomain : kTiny;
      const bool brief = now - streak_began < kStreak * tiny;
      streak = 0;
      streak_began = now;
      if (!brief || queue.standby) continue;
      if (hold.holds()) {
        s.finish();
        hold.release();
        s.relock();
      }
      consider_standby(worker, tiny, s);
    }
    s.finish();
  }
  context().worker_of = nullptr;
  worker.exited.store(true, std::memory_order_release);
}

}  // namespace weft
