#include "engine/parking.h"

#include <cerrno>
#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft {
namespace {

constexpr auto kLate = std::chrono::microseconds(30);  // longer than an interrupt takes
constexpr auto kCrowded = std::chrono::milliseconds(50);
std::atomic<Clock::rep> crowded_until{0};
std::atomic<bool> always{false};

}  // namespace

bool spinning_pays(Clock::time_point now) noexcept {
  return now.time_since_epoch().count() >= crowded_until.load(std::memory_order_relaxed) ||
         always.load(std::memory_order_relaxed);
}

void spin_always(bool on) noexcept { always.store(on, std::memory_order_relaxed); }

void machine_is_crowded() noexcept {
  crowded_until.store((Clock::now() + kCrowded).time_since_epoch().count(), std::memory_order_relaxed);
}

Clock::time_point give_way(Clock::time_point before) noexcept {
  sched_yield();
  const auto now = Clock::now();
  if (now - before > kLate) machine_is_crowded();
  return now;
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain 32-bit word");

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Deadline deadline) noexcept {
  timespec limit{};
  timespec* timeout = nullptr;
  if (deadline != kNever) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (left <= 0) return;
    limit.tv_sec = static_cast<time_t>(left / 1000000000);
    limit.tv_nsec = static_cast<long>(left % 1000000000);
    timeout = &limit;
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void Lock::lock_slow() noexcept {
  for (int i = 0; i < 64; ++i) {
    cpu_relax();
    if (word_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
  }
  while (word_.exchange(2, std::memory_order_seq_cst) != 0) futex_wait(word_, 2);
}

}  // namespace weft
