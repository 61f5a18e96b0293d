// parking.h: how threads of the engine sleep: a binary semaphore and a lock, both one futex word.
//
// Nothing here spins for long: on a machine with as many busy threads as cores a spinning waiter takes the
// time slice from the thread it waits for. The lock tries a few times, because its critical sections last
// well under a microsecond, then sleeps in the kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace weft {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline constexpr Deadline kNever = Deadline::max();

// Sleeps while `word` holds `expected`; returns on a wake, a signal, the deadline, or spuriously.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Deadline deadline = kNever) noexcept;
void futex_wake(std::atomic<uint32_t>& word, int count) noexcept;

inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spinning is of use only on a core that no other thread needs. Threads that spin give way again and again;
// if one gets its core back late, or loses it otherwise, the machine is crowded. Then for a while all of them
// sleep instead, which earns a thread its turn sooner.
bool spinning_pays(Clock::time_point now) noexcept;
void machine_is_crowded() noexcept;
void spin_always(bool on) noexcept;  // crowded or not; for tests
// Lets other threads have this core. before: when the caller last looked at the clock; returns what it says
// now.
Clock::time_point give_way(Clock::time_point before) noexcept;

// Fetches memory that another core wrote and this one is about to write. prefetchw is a no-op where it is
// unknown.
inline void prefetch_for_writing(const void* memory, size_t bytes) noexcept {
  for (size_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*(static_cast<const char*>(memory) + i)));
#else
    __builtin_prefetch(static_cast<const char*>(memory) + i, 1);
#endif
  }
}

// A binary semaphore with one sleeper. `unpark` may come first; it is then remembered once.
// 0 nothing, 1 unparked, 2 asleep (so that unparking a thread that is awake costs no system call).
class Parker {
 public:
  // True if unparked, false at the deadline. Wakes by signals are ignored.
  bool park_until(Deadline deadline) noexcept {
    while (!park_once(deadline)) {
      if (deadline != kNever && Clock::now() >= deadline) return false;
    }
    return true;
  }
  void park() noexcept { park_until(kNever); }
  // Sleeps at most once and says whether it was unparked; for waits that also look at signals.
  bool park_once(Deadline deadline) noexcept {
    uint32_t none = 0;
    if (word_.compare_exchange_strong(none, 2, std::memory_order_seq_cst)) futex_wait(word_, 2, deadline);
    return word_.exchange(0, std::memory_order_seq_cst) == 1;
  }
  // The sleeper may destroy the parker as soon as the exchange is seen; the wake that follows uses only
  // the address, which the kernel treats as a number.
  void unpark() noexcept {
    if (word_.exchange(1, std::memory_order_seq_cst) == 2) futex_wake(word_, 1);
  }

 private:
  std::atomic<uint32_t> word_{0};
};

// A small mutex: 0 free, 1 held, 2 held with sleepers. Not recursive, not fair.
// `unlock` is a sequentially consistent exchange: a thread that fails `try_lock` after publishing something
// may rely on the holder seeing it when it looks again after `unlock` (Engine::Session does).
class Lock {
 public:
  bool try_lock() noexcept {
    uint32_t expected = 0;
    return word_.compare_exchange_strong(expected, 1, std::memory_order_seq_cst);
  }
  void lock() noexcept {
    if (!try_lock()) lock_slow();
  }
  void unlock() noexcept {
    if (word_.exchange(0, std::memory_order_seq_cst) == 2) futex_wake(word_, 1);
  }

 private:
  void lock_slow() noexcept;
  std::atomic<uint32_t> word_{0};
};

}  // namespace weft
