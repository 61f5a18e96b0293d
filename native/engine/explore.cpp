// explore.cpp: trying legal schedules. Functions run one at a time; which of the ready ones is next, and on
// which thread, is drawn from a seed. A decision is made only at a push or a wait of a user's thread, so a
// program with one pushing thread and no asynchronous functions meets the same decisions whenever it runs
// with the same seed.
#include <system_error>

#include "engine/session.h"

namespace weft {

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Engine::draw() noexcept {
  uint64_t z = (random_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Runs ready operations until `until` is done or nothing is ready; without `until`, zero to three of them.
// True if it stopped for another reason than that nothing was ready. The caller has given up the host's lock.
bool Engine::drive(Waiter* until) {
  std::unique_lock driving(drive_mutex_, std::try_to_lock);
  if (!driving) return false;  // another thread decides; waits look again
  for (int steps = until ? -1 : static_cast<int>(draw() % 4); steps != 0; --steps) {
    Session s(*this);
    settle_inbox(s);
    s.finish();
    if (until && until->done.load(std::memory_order_acquire)) return true;
    s.relock();
    if (explore_ready_.empty()) return false;
    while (static_cast<int>(explorers_.size()) < options_.workers && start_explorer()) {
    }
    if (explorers_.empty()) return false;  // waits try again
    const auto it = explore_ready_.begin() + static_cast<ptrdiff_t>(draw() % explore_ready_.size());
    Op* op = *it;
    explore_ready_.erase(it);
    --ready_count_;
    ++running_;
    Worker& worker = *explorers_[draw() % explorers_.size()];
    worker.assigned = worker.current = op;
    s.finish();
    worker.parker.unpark();
    drive_parker_.park();
  }
  return true;
}

// False if the system gives no thread.
bool Engine::start_explorer() {
  auto worker = std::make_unique<Worker>();
  worker->index = static_cast<int>(explorers_.size());
  try {
    worker->thread = std::thread([this, w = worker.get()] { explore_worker_main(*w); });
  } catch (const std::system_error&) {
    return false;
  }
  explorers_.push_back(std::move(worker));
  ++threads_;
  return true;
}

void Engine::explore_worker_main(Worker& worker) {
  context().worker_of = this;
  {
    DomainHold hold(context(), true);
    const uint64_t generation = generation_;
    for (;;) {
      worker.parker.park();
      Op* op = std::exchange(worker.assigned, nullptr);
      if (!op) break;  // the engine stops
      const bool ended = execute(op, worker.index, hold);
      hold.release();
      if (generation != generation_) return;
      Session s(*this);
      worker.current = nullptr;
      --running_;
      if (ended)
        finish_op(op, s);
      else
        release_async(op, s);
      s.finish();
      drive_parker_.unpark();
    }
  }
  context().worker_of = nullptr;
  worker.exited.store(true, std::memory_order_release);
}

}  // namespace weft
