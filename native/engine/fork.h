// fork.h: locks that are free in a forked child, with what they guard whole.
//
// Fork copies the process with one thread. A lock that another thread holds at that moment would stay locked
// in the child for ever, and what it guards half changed. So the thread that forks first takes every lock
// that is a ForkMutex, or has a HeldInFork beside it, and both processes let them go again.
//
// In which order threads take several of them does not matter: the thread that forks waits for none while it
// holds others, but lets go of all and tries again (as std::lock does). What it may hold is the host's lock
// (the GIL). So no thread may want that lock while it holds one of these; nor may a thread fork that holds
// one.
//
// A static variable of a function is such a lock, too: a child waits for ever for a thread that was making
// it. So what is made at first use is made when the module is loaded: `kAtLoad` in its file.
#pragma once

#include <mutex>

namespace weft {

// From its construction to its end a lock is held across each fork.
class HeldInFork {
 public:
  HeldInFork(const HeldInFork&) = delete;
  HeldInFork& operator=(const HeldInFork&) = delete;
  virtual bool try_hold() noexcept = 0;
  virtual void let_go() noexcept = 0;

 protected:
  HeldInFork();
  virtual ~HeldInFork();

 private:
  friend struct ForkList;
  HeldInFork* previous_ = nullptr;
  HeldInFork* next_ = nullptr;
};

template <class L>
class HoldInFork final : public HeldInFork {
 public:
  explicit HoldInFork(L& lock) noexcept : lock_(lock) {}
  bool try_hold() noexcept override { return lock_.try_lock(); }
  void let_go() noexcept override { lock_.unlock(); }

 private:
  L& lock_;
};

class ForkMutex {
 public:
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  HoldInFork<std::mutex> held_{mutex_};
};

template <class Tag>
extern const bool kMutexAtLoad;

// Of what lives as long as the process, also when static variables have been destroyed.
template <class Tag>
ForkMutex& lasting_fork_mutex() {
  static auto* const mutex = new ForkMutex;
  static_cast<void>(kMutexAtLoad<Tag>);
  return *mutex;
}

template <class Tag>
const bool kMutexAtLoad = (lasting_fork_mutex<Tag>(), true);

// `hook` runs after each fork in the forked child, when all locks have been let go, and in the parent.
void after_fork(void (*hook)(bool in_child));

}  // namespace weft
