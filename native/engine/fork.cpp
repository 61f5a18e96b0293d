#include "engine/fork.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <typeinfo>
#include <vector>

namespace weft {

struct ForkList {
  std::mutex mutex;
  HeldInFork* first = nullptr;
  std::vector<HeldInFork*> held;  // by the thread that forks
  std::vector<void (*)(bool)> hooks;

  static ForkList& get() {
    static ForkList* list = [] {
      pthread_atfork(before, [] { after(false); }, [] { after(true); });
      return new ForkList;  // never destroyed: locks may outlive static destructors
    }();
    return *list;
  }

  void add(HeldInFork* lock) {
    const std::lock_guard guard(mutex);
    lock->next_ = first;
    if (first) first->previous_ = lock;
    first = lock;
  }
  void remove(HeldInFork* lock) {
    const std::lock_guard guard(mutex);
    (lock->previous_ ? lock->previous_->next_ : first) = lock->next_;
    if (lock->next_) lock->next_->previous_ = lock->previous_;
  }

  // Another thread may be making a lock that is in the list, or ending it: it waits in `remove` until the
  // fork is over. Then the object is a HeldInFork and nothing more, as its vtable says, and no thread uses
  // the lock.
  static bool is_whole(const HeldInFork* lock) noexcept { return typeid(*lock) != typeid(HeldInFork); }

  void let_all_go() noexcept {
    for (HeldInFork* lock : held)
      if (is_whole(lock)) lock->let_go();
    held.clear();
  }

  // The list's mutex, too, is let go between attempts: a thread may make a lock while it holds another.
  static void before() {
    ForkList& list = get();
    for (auto pause = std::chrono::microseconds(1);; pause = std::min(pause * 2, kLongestPause)) {
      list.mutex.lock();
      bool all = true;
      for (HeldInFork* lock = list.first; lock && all; lock = lock->next_) {
        if (!is_whole(lock)) continue;
        list.held.push_back(lock);
        all = lock->try_hold();
        if (!all) list.held.pop_back();
      }
      if (all) return;
      list.let_all_go();
      list.mutex.unlock();
      std::this_thread::sleep_for(pause);
    }
  }
  static void after(bool in_child) {
    ForkList& list = get();
    list.let_all_go();
    const std::vector<void (*)(bool)> hooks = list.hooks;
    list.mutex.unlock();
    for (const auto hook : hooks) hook(in_child);
  }

  static constexpr std::chrono::microseconds kLongestPause{200};
};

namespace {
[[maybe_unused]] const ForkList& kAtLoad = ForkList::get();
}

HeldInFork::HeldInFork() { ForkList::get().add(this); }
HeldInFork::~HeldInFork() { ForkList::get().remove(this); }

void after_fork(void (*hook)(bool in_child)) {
  ForkList& list = ForkList::get();
  const std::lock_guard guard(list.mutex);
  list.hooks.push_back(hook);
}

}  // namespace weft
