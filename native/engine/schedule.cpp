// schedule.cpp: the one rule. Everything here runs under the engine lock.
#include "engine/session.h"

namespace weft {
namespace {

void append(Var& var, Access& access) noexcept {
  access.next = nullptr;
  (var.tail ? var.tail->next : var.head) = &access;
  var.tail = &access;
}

Access& shift(Var& var) noexcept {
  Access& access = *var.head;
  var.head = access.next;
  if (!var.head) var.tail = nullptr;
  return access;
}

bool is_marker(const Op& op) noexcept {
  return op.kind == OpKind::wait || op.kind == OpKind::clear || op.kind == OpKind::erase;
}

bool inherits(const Op& op) noexcept { return op.kind == OpKind::task || op.kind == OpKind::async; }

// Reads count before writes, then in the order of declaration: which error is inherited must not depend on
// timing.
void inherit(Access& access) {
  Op& op = *access.op();
  if (access.mode == Mode::overwrite || !access.var->error || !inherits(op)) return;
  const uint32_t rank = access.index + (access.mode == Mode::read ? 0 : kMostAccesses + 1);
  if (rank >= op.inherited_rank) return;
  op.inherited_rank = rank;
  op.error = access.var->error;  // an error it replaces is still held by its own variable
}

}  // namespace

// The next operation in push order, or null. Without memory for a run of an Operator its parcel stays, and
// with it all that was pushed later, until the next look.
Op* Engine::next_arrived() {
  const Parcel parcel = inbox_.front();
  if (!parcel) return nullptr;
  Op* op = parcel.op();
  if (!op) {
    Operator& plan = *parcel.plan();
    try {
      op = plan.take_spare();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    op->queue = &devices_[parcel.device_index()].load(std::memory_order_relaxed)->queue(plan.queue);
  }
  inbox_.pop();
  return op;
}

void Engine::drain(Session& s, int most) {
  while (most-- > 0) {
    Op* op = next_arrived();
    if (!op) break;
    schedule(op, s);
  }
  if (markers_) run_markers(s);
}

void Engine::drain_all(Session& s) {
  while (Op* op = next_arrived()) schedule(op, s);
  if (markers_) run_markers(s);
}

void Engine::schedule(Op* op, Session& s) {
  if (!is_marker(*op)) {
    ++pushed_;
    ++pending_;
    op->epoch = &epochs_.back();
    ++op->epoch->pending;
  }
  op->waiting = op->access_count + 1u;
  for (Access *a = op->accesses(), *end = a + op->access_count; a != end; ++a) {
    Var& var = *a->var;
    if (var.last &&
        var.last->op() == op) {  // listed twice; the first one is the strongest, with one exception:
      Access& first = *var.last;
      a->is_duplicate = true;
      --op->waiting;
      if (first.mode == Mode::overwrite && a->mode == Mode::read) {  // also read, so not just overwritten
        first.mode = Mode::write;
        if (var.tail != &first) inherit(first);
      }
      continue;
    }
    var.last = a;
    if (a->mode == Mode::read ? var.readable() : var.idle()) {
      if (a->mode == Mode::read)
        ++var.readers;
      else
        var.writing = true;
      grant(*a, s);
    } else {
      append(var, *a);
    }
  }
  if (--op->waiting == 0) make_ready(op, s);
}

void Engine::grant(Access& access, Session& s) {
  inherit(access);
  Op* op = access.op();
  if (--op->waiting == 0) make_ready(op, s);
}

// The variable has become free: admits the next writer, or all readers up to the next writer.
void Engine::grant_next(Var& var, Session& s) {
  if (!var.head) return;
  if (var.head->mode != Mode::read) {
    var.writing = true;
    grant(shift(var), s);
    return;
  }
  while (var.head && var.head->mode == Mode::read) {
    ++var.readers;
    grant(shift(var), s);
  }
}

void Engine::make_ready(Op* op, Session& s) {
  if (is_marker(*op)) {
    op->next = std::exchange(markers_, op);
    return;
  }
  if (!op->queue) return;  // try_inline keeps it
  ++ready_count_;
  if (options_.kind == EngineKind::naive) {
    track_user_thread(op, context());
    s.run_here(op);
  } else if (options_.kind == EngineKind::explore) {
    explore_ready_.push_back(op);
  } else {
    op->queue->ready.push(op);
    op->queue->has_ready.store(true, std::memory_order_relaxed);
    if (!s.takes_from(*op->queue)) wake(*op->queue, s);
  }
}

// A loop, not a recursion: thousands of waits may follow each other in one queue.
void Engine::run_markers(Session& s) {
  while (Op* op = markers_) {
    markers_ = op->next;
    Access& access = op->accesses()[0];
    Var& var = *access.var;
    switch (op->kind) {
      case OpKind::wait: {
        Ref<Waiter> waiter(op->waiter);
        waiter->release();  // the operation's own count
        waiter->error = var.error;
        s.signal(std::move(waiter));
        break;
      }
      case OpKind::clear:
        if (var.error) var.error->handled = true;
        s.discard(std::move(var.error));
        break;
      default:
        break;  // erase: see complete
    }
    if (op->kind == OpKind::erase)
      complete(op, s);
    else
      release(access, op, false, s);
    s.discard(op);
  }
}

void Engine::release(Access& access, Op* op, bool ran, Session& s) {
  if (access.is_duplicate) return;
  Var& var = *access.var;
  if (var.last == &access) var.last = nullptr;
  if (access.mode == Mode::read) {
    if (--var.readers == 0) grant_next(var, s);
    return;
  }
  if (inherits(*op)) {  // the parts of a bulk have done this themselves
    if (ran) var.version.fetch_add(1, std::memory_order_release);
    if (op->error && access.on_failure != OnFailure::done) {
      // Else the first cause stays, until an overwriting succeeds.
      if (!var.error && access.on_failure == OnFailure::poison) var.error = op->error;
    } else if (access.mode == Mode::overwrite) {
      s.discard(std::move(var.error));
    }
  }
  var.writing = false;
  grant_next(var, s);
}

void Engine::complete(Op* op, Session& s) {
  const bool ran = !op->skipped;
  if (op->kind == OpKind::destroy || op->kind == OpKind::erase) {
    Access& access = op->accesses()[0];
    Var* var = access.var;
    release(access, op, false, s);
    // The engine's own count, taken in new_variable. If an operation got in behind, through a race of the
    // user's between pushing and deleting, the variable stays.
    if (var->idle()) {
      Ref<Var> last(var);
      var->release();
      s.discard(std::move(last));
    }
  } else {
    for (Access *a = op->accesses(), *end = a + op->access_count; a != end; ++a) release(*a, op, ran, s);
  }
  account_finished(op, s);
  if (markers_ && op->kind != OpKind::erase) run_markers(s);
}

void Engine::account_finished(Op* op, Session& s) {
  if (!op->direct) finished_.store(finished_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!is_marker(*op)) {
    --pending_;
    ++finished_count_;
    if (op->error) ++(op->skipped ? skipped_ : failed_);
    s.discard(std::move(op->error));
    if (op->size_bytes) pending_bytes_.fetch_sub(op->size_bytes, std::memory_order_relaxed);
    if (--op->epoch->pending == 0) {
      while (epochs_.size() > 1 && epochs_.front().pending == 0) {
        for (Ref<Waiter>& waiter : epochs_.front().waiters) s.signal(std::move(waiter));
        epochs_.pop_front();
      }
    }
  }
  if (!stalled_.empty()) release_stalled(s);
}

bool Engine::can_progress() const noexcept { return running_ + ready_count_ > 0 || !inbox_.empty(); }

void Engine::release_stalled(Session& s) {
  const uint64_t in_flight = inbox_.tickets() - finished_.load(std::memory_order_relaxed);
  const bool has_room = in_flight <= options_.max_pending / 2 &&
                        pending_bytes_.load(std::memory_order_relaxed) <= options_.max_pending_bytes / 2;
  if (!has_room && can_progress()) return;
  limit_.store(options_.max_pending, std::memory_order_relaxed);
  for (Ref<Waiter>& waiter : stalled_) s.signal(std::move(waiter));
  stalled_.clear();
}

void Engine::report(const Ref<Error>& cause) {
  constexpr size_t kMost = 1000;  // each may hold a traceback with all its frames
  if (causes_.size() < kMost)
    causes_.push_back(cause);
  else
    ++causes_dropped_;
}

}  // namespace weft
