// submit.cpp: the way of an operation from the pushing thread into the engine.
#include <algorithm>

#include "engine/session.h"

namespace weft {
namespace {

// Drops an operation that did not get into the engine.
struct Rejected {
  void operator()(Op* op) const noexcept {
    drop_state(op);
    if (Operator* origin = op->origin) {
      Session s(*origin->engine);
      s.run_ended(*origin);
      s.finish();
    }
    free_op(op);
  }
};
using OwnedOp = std::unique_ptr<Op, Rejected>;

}  // namespace

// Collects the calling thread's pushes. standing: because of Engine::set_bulk_size; it is the outermost one,
// stays from push to push, and keeps its engine alive while it holds operations.
struct Bulk {
  Bulk(Engine* of, int most, Bulk* around) : engine(of), size(most), outer(around) {}
  Engine* const engine;
  const int size;
  bool standing = false;
  std::shared_ptr<Engine> alive;
  Bulk* const outer;
  int count = 0;
  Op* first = nullptr;
  Op* last = nullptr;
  size_t accesses = 0;
  std::vector<Ref<Var>> vars;  // another thread may delete them before the flush; kept until the bulk has run
};

namespace {

constexpr size_t kMostInBulk = 65536;  // variables, beyond which the next operation begins another one
constexpr size_t kMostOfPart = 1024;   // and of one that is worth being an operation by itself

// Submits what a standing bulk has collected when its thread ends.
struct EndOfThread {
  void (*flush)(Engine&) = nullptr;
  ~EndOfThread() {
    Bulk* const bulk = context().bulk;
    if (!bulk || !bulk->standing) return;
    const std::shared_ptr<Engine> alive = bulk->alive;
    try {
      if (alive) flush(*alive);
    } catch (...) {  // a stopped engine, or no memory: nothing can be reported any more
    }
    context().bulk = nullptr;
    delete bulk;
  }
};
thread_local EndOfThread end_of_thread;

}  // namespace

void Engine::validate(const Op* op) const {
  const State state = state_.load(std::memory_order_relaxed);
  if (state != State::running && (state == State::stopped || !on_engine_thread()))
    throw EngineMisuse("the engine is stopped; call start() before pushing");
  for (uint32_t i = 0; i < op->access_count; ++i) {
    const Var* var = op->accesses()[i].var;
    if (var->engine != this) throw EngineMisuse("a variable belongs to another engine");
    if (var->deleted.load(std::memory_order_relaxed)) throw EngineMisuse("a variable has been deleted");
  }
}

void Engine::validate(const Operator& plan) const {
  if (plan.engine != this) throw EngineMisuse("the operator belongs to another engine");
  if (plan.deleted.load(std::memory_order_relaxed)) throw EngineMisuse("the operator has been deleted");
}

void Engine::submit(Op* raw, const PushOptions& options) {
  OwnedOp op(raw);
  op->queue = &queue_of(options.device, options.queue);
  op->priority = options.priority;
  op->size_bytes = options.size_bytes;
  Context& here = context();
  admit(raw, options.size_bytes, here);
  if (notify_push(raw)) validate(raw);  // so may an observer
  if (bulk_size_.load(std::memory_order_relaxed) > 1 || (here.bulk && here.bulk->standing))
    settle_standing_bulk();
  if (Bulk* bulk = here.bulk; bulk && bulk->engine == this) {
    const bool fits_in_bulk =
        op->kind == OpKind::task && op->access_count <= kMostOfPart &&
        (!bulk->first || (bulk->first->queue == op->queue && bulk->first->priority == op->priority));
    if (!fits_in_bulk || bulk->accesses + op->access_count > kMostInBulk) flush_bulk();
    if (op->kind == OpKind::task && op->access_count <= kMostOfPart) {
      if (op->type->persist) op->type->persist(*op);
      bulk->accesses += op->access_count;
      for (uint32_t i = 0; i < op->access_count; ++i) bulk->vars.emplace_back(op->accesses()[i].var);
      (bulk->last ? bulk->last->next : bulk->first) = raw;
      bulk->last = op.release();
      raw->next = nullptr;
      if (bulk->standing && !bulk->alive) bulk->alive = weak_from_this().lock();
      if (++bulk->count == bulk->size) flush_bulk();
      return;
    }
  }
  if (op->kind == OpKind::async) {
    std::shared_ptr<Engine> self = weak_from_this().lock();
    if (!self) throw EngineMisuse("the engine is being destroyed");
    op->completion = new Completion(std::move(self), raw);
    op->completion->retain();
  }
  if (raw->type && raw->type->persist) {
    if (options_.kind == EngineKind::threaded && raw->cheap && try_inline(raw, here)) {
      static_cast<void>(op.release());
      return;
    }
    raw->type->persist(*raw);
    raw->cheap = false;  // it has been tried
  }
  enqueue(op.release(), here);
}

// The common case travels as one word; what needs more than the Operator itself holds becomes an operation
// here.
void Engine::submit(Operator& plan, PushOptions options) {
  const Context& here = context();
  options.queue = plan.queue;
  const bool plain = plan.plan->kind == OpKind::task && !plan.plan->cheap && !options.priority &&
                     !options.size_bytes && options.device.kind == DeviceKind::cpu &&
                     options.device.index <= Parcel::kMostDevice && options_.kind != EngineKind::naive &&
                     !here.bulk && bulk_size_.load(std::memory_order_relaxed) <= 1 &&
                     !observers_.load(std::memory_order_relaxed);
  if (!plain) {
    submit(instantiate(plan), options);
    return;
  }
  validate(plan);
  Queue& queue = queue_of(options.device, options.queue);
  admit(plan.plan, 0, here);
  plan.pushed.fetch_add(1, std::memory_order_relaxed);
  send(Parcel(&plan, options.device.index), queue, !on_engine_thread(here));
}

// Before an operation is accepted: waits for room, then looks whether it may be pushed.
void Engine::admit(const Op* op, uint64_t size_bytes, const Context& here) {
  if (options_.kind == EngineKind::threaded && !on_engine_thread(here)) throttle(size_bytes);
  validate(op);  // after throttle, which may have let other threads in
}

// Tells the observers; false if there are none.
bool Engine::notify_push(Op* op) {
  if (!observers_.load(std::memory_order_relaxed)) return false;
  op->trace_id = next_trace_id_.fetch_add(1, std::memory_order_relaxed);
  notify(&Observer::on_push, op, nullptr);
  return true;
}

Op* Engine::instantiate(Operator& plan) {
  validate(plan);
  Op* op = plan.copy_plan();
  plan.pushed.fetch_add(1, std::memory_order_relaxed);
  return op;
}

Op* Operator::copy_plan() {
  Op* op = new_op(plan->access_count);
  op->type = plan->type;
  op->state = plan->state;
  op->kind = plan->kind;
  op->cheap = plan->cheap;
  op->run_on_error = plan->run_on_error;
  op->origin = this;
  for (uint32_t i = 0; i < plan->access_count; ++i)
    op->add(plan->accesses()[i].var, plan->accesses()[i].mode);
  return op;
}

std::shared_ptr<Operator> Engine::new_operator(Op* plan, QueueKind queue) {
  OwnedOp owned(plan);
  validate(plan);
  auto op = std::make_unique<Operator>();
  op->engine = this;
  for (uint32_t i = 0; i < plan->access_count; ++i) op->vars.emplace_back(plan->accesses()[i].var);
  op->plan = owned.release();
  op->queue = queue;
  return {op.release(), [](Operator* retired) {
            Session s(*retired->engine);
            retired->retired = true;
            if (retired->idle()) s.discard(retired);
            s.finish();
          }};
}

Op* Operator::take_spare() {
  Op* op = spare;
  if (!op) {
    op = copy_plan();
    op->is_reused = true;
    return op;
  }
  spare = op->next;
  op->inherited_rank = UINT32_MAX;
  op->skipped = false;
  return op;
}

Operator::~Operator() {
  while (Op* op = spare) {
    spare = op->next;
    free_op(op);
  }
  drop_state(plan);
  free_op(plan);
}

void Engine::enqueue(Op* op, Context& here) {
  if (options_.kind == EngineKind::threaded && op->kind == OpKind::task &&
      ((op->cheap && try_inline(op, here)) || (op->brief && try_brief(op, here))))
    return;
  if (op->size_bytes) pending_bytes_.fetch_add(op->size_bytes, std::memory_order_relaxed);
  if (options_.kind == EngineKind::naive) {
    Session s(*this);
    op->direct = true;
    schedule(op, s);
    s.finish();
    return;
  }
  // Variables are also dropped by the garbage collector, at moments that do not repeat.
  const bool decides = op->kind != OpKind::erase && !on_engine_thread(here);
  send(Parcel(op), *op->queue, decides);
}

// From here on the operation may be finished and gone at any moment.
void Engine::send(Parcel parcel, Queue& queue, bool decides) {
  uint64_t ticket;
  while (!inbox_.try_push(parcel, ticket)) {
    Session s(*this);
    drain_all(s);
  }
  if (options_.kind == EngineKind::explore) {
    if (decides) {
      Blocking blocking;
      drive(nullptr);
    }
    return;
  }
  // Later tickets may already be stored behind ours; their producers saw nothing to do, so we look for all
  // queues.
  const bool alone = inbox_.tickets() == ticket + 1;
  const std::atomic<int>& available = alone ? queue.available : available_;
  if (available.load(std::memory_order_seq_cst) > 0) nudge();
}

// A thread could run the operation but sleeps: hand it over here and now. If the lock is taken, its holder
// looks at the inbox again when it unlocks (Session::pause).
void Engine::nudge() {
  if (!lock_.try_lock()) {
    nudge_missed_.store(true, std::memory_order_seq_cst);
    if (!lock_.try_lock()) return;
  }
  Session s(*this, std::adopt_lock);
  drain_all(s);
  s.finish();
}

// Runs a cheap native kernel at once if nothing it needs is busy. It takes part in the order like any other
// operation; errors poison, they are not thrown here: callers cannot see where it ran. False: not possible,
// nothing done.
bool Engine::try_inline(Op* op, Context& here) {
  if (has_streams_.load(std::memory_order_relaxed) && would_wait_for_streams(*op)) return false;
  Session s(*this);
  drain_all(s);
  DeviceState& device = *op->queue->device;
  if (device.wide_running && device.inlined_beside_wide++ >= DeviceState::kInlineBesideWide) return false;
  if (!is_free(*op)) return false;
  begin_here(op, s, here);
  s.finish();
  DomainHold hold(here, false);
  execute(op, -1, hold);
  s.relock();
  end_here(op, s, here);
  s.finish();
  return true;
}

// The same for a kernel of up to some hundred microseconds, if its whole device is idle: waking the device's
// threads would take as long as part of it, and there is nothing else that it could keep waiting. The host
// language's lock is released meanwhile.
bool Engine::try_brief(Op* op, Context& here) {
  if (on_engine_thread(here)) return false;
  if (has_streams_.load(std::memory_order_relaxed) && would_wait_for_streams(*op)) return false;
  Session s(*this);
  drain_all(s);
  DeviceState& device = *op->queue->device;
  if (device.wide_running || device.narrow_running > 0 || device.brief_running > 0 ||
      !device.queue(QueueKind::wide).ready.empty() || !device.queue(QueueKind::compute).ready.empty() ||
      !is_free(*op))
    return false;
  begin_here(op, s, here);
  ++device.brief_running;
  s.finish();
  {
    const Blocking blocking;
    DomainHold hold(here, false);
    execute(op, -1, hold);
  }
  s.relock();
  if (--device.brief_running == 0 && device.narrow_running == 0) wake(device.queue(QueueKind::wide), s);
  end_here(op, s, here);
  s.finish();
  return true;
}

// Whether an operation could run now, were it pushed.
bool Engine::is_free(const Op& op) const {
  if (inbox_.tickets() != inbox_.taken()) return false;  // an earlier push is only half stored
  for (const Access *a = op.accesses(), *end = a + op.access_count; a != end; ++a)
    if (!(a->mode == Mode::read ? a->var->readable() : a->var->idle())) return false;
  return true;
}

// Puts an operation that is free into the order, to be run by the calling thread.
void Engine::begin_here(Op* op, Session& s, const Context& here) {
  Queue* queue = op->queue;
  op->size_bytes = 0;   // it is never pending
  op->queue = nullptr;  // so that `ready` leaves it to us
  op->direct = true;
  schedule(op, s);
  op->queue = queue;
  ++running_;
  track_user_thread(op, here);
}

void Engine::end_here(Op* op, Session& s, const Context& here) {
  --running_;
  ++inlined_;
  untrack_user_thread(op, here);
  finish_op(op, s);
}

void Engine::begin_bulk(int size) {
  if (size < 1) throw EngineMisuse("bulk: the size must be at least 1, not " + std::to_string(size));
  // Of a block around this one, perhaps of another engine, which may have ended if nothing is collected.
  if (context().bulk && context().bulk->first) context().bulk->engine->flush_bulk();
  context().bulk = new Bulk{this, size, context().bulk};
}

int Engine::set_bulk_size(int size) {
  if (size < 1) throw EngineMisuse("set_bulk_size: size must be at least 1, not " + std::to_string(size));
  flush_bulk();
  return bulk_size_.exchange(size);
}

// The calling thread's standing bulk as set_bulk_size has it now: one of another engine, or of another size,
// ends.
void Engine::settle_standing_bulk() {
  const int size = bulk_size_.load(std::memory_order_relaxed);
  Bulk* const bulk = context().bulk;
  if (on_engine_thread() || (bulk && !bulk->standing)) return;
  if (bulk) {
    if (bulk->engine == this && bulk->size == size) return;
    if (bulk->first) bulk->engine->flush_bulk();
    context().bulk = nullptr;
    delete bulk;
  }
  if (size <= 1) return;
  end_of_thread.flush = [](Engine& engine) { engine.flush_bulk(); };
  context().bulk = new Bulk{this, size, nullptr};
  context().bulk->standing = true;
}

void Engine::end_bulk() {
  if (!context().bulk || context().bulk->engine != this)
    throw EngineMisuse("bulk: ended on a thread that did not begin it");
  std::unique_ptr<Bulk> bulk(context().bulk);
  struct Restore {
    Bulk* outer;
    ~Restore() { context().bulk = outer; }
  } restore{bulk->outer};
  flush_bulk();
}

void Engine::flush_bulk() {
  Bulk* bulk = context().bulk;
  if (!bulk || bulk->engine != this || !bulk->first) return;
  Op* first = bulk->first;
  auto vars = std::make_unique<std::vector<Ref<Var>>>();
  Op* op = new_op(bulk->accesses);  // without memory for it, all stays in the bulk
  const std::shared_ptr<Engine> alive = std::move(bulk->alive);  // to the end of this function
  bulk->first = bulk->last = nullptr;
  bulk->accesses = 0;
  bulk->count = 0;
  for (Op* part = first; part; part = part->next) part->merge_duplicates();
  op->kind = OpKind::bulk;
  op->parts = first;
  vars->swap(bulk->vars);
  op->state = vars.release();
  op->queue = first->queue;
  op->priority = first->priority;
  for (const Op* part = first; part; part = part->next) op->size_bytes += part->size_bytes;
  // Writes before reads, so that a variable that one part writes and another reads is held for writing.
  for (const bool reads : {false, true}) {
    for (Op* part = first; part; part = part->next) {
      for (const Access *a = part->accesses(), *end = a + part->access_count; a != end; ++a)
        if ((a->mode == Mode::read) == reads) op->add(a->var, a->mode);
    }
  }
  enqueue(op, context());
}

Ref<Var> Engine::new_variable() {
  Ref<Var> var(new Var(this));
  var->retain();  // the engine's own count, given back when the variable has been deleted
  return var;
}

void Engine::delete_variable(const Ref<Var>& var, Op* raw, PushOptions options) {
  OwnedOp op(raw);
  if (var->engine != this) throw EngineMisuse("the variable belongs to another engine");
  op->queue = &queue_of(options.device, options.queue);
  if (var->deleted.exchange(true)) throw EngineMisuse("the variable has been deleted already");
  flush_bulk();
  op->kind = op->type ? OpKind::destroy : OpKind::erase;
  op->add(var.get(), Mode::overwrite);
  if (op->kind == OpKind::destroy) notify_push(raw);
  enqueue(op.release(), context());
}

void Engine::delete_variable(const Ref<Var>& var) { delete_variable(var, new_op(1), {}); }

void Engine::drop_variable(Ref<Var>&& var) noexcept {
  if (!var->deleted.load()) var->engine->delete_variable(var);
}

}  // namespace weft
