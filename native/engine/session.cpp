#include "engine/session.h"

namespace weft {

void Session::after_unlock() {
  for (Worker* worker : wakes_) worker->parker.unpark();
  wakes_.clear();
  // Before the signals: a thread that has waited for an operation finds the memory that it held given back.
  while (Op* op = ops_) {
    ops_ = op->next;
    free_op(op);
  }
  while (!signals_.empty()) {
    Ref<Waiter> waiter = std::move(signals_.back());
    signals_.pop_back();
    waiter->signal();
  }
  while (Operator* op = operators_) {
    operators_ = op->next_retired;
    delete op;  // drops the function
  }
  // Moved out first: a destructor may come back into the engine through this thread.
  if (!errors_.empty()) std::vector<Ref<Error>>(std::move(errors_)).clear();
  if (!vars_.empty()) std::vector<Ref<Var>>(std::move(vars_)).clear();
}

void Session::pause() {
  for (;;) {
    if (engine_.markers_) engine_.run_markers(*this);
    if (Queue* queue = std::exchange(taking_, nullptr)) engine_.wake(*queue, *this);
    locked_ = false;
    engine_.lock_.unlock();
    after_unlock();
    // A push that found the lock taken left its operation to us (Engine::nudge). The unlock and this load are
    // sequentially consistent, as are its store and its second attempt: one of us sees the other.
    if (!engine_.nudge_missed_.load(std::memory_order_seq_cst) || !engine_.lock_.try_lock()) return;
    locked_ = true;
    engine_.nudge_missed_.store(false, std::memory_order_relaxed);
    engine_.drain_all(*this);
  }
}

void Session::finish() {
  for (pause(); here_; pause()) {
    Op* op = here_;
    here_ = op->next;
    if (!here_) here_tail_ = nullptr;
    engine_.run_here(op, *this);  // comes back locked
  }
}

}  // namespace weft
