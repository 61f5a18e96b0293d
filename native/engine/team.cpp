#include "engine/team.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "engine/fork.h"
#include "engine/machine.h"
#include "engine/parking.h"

namespace weft {
namespace {

// How long threads look for the next region before they sleep: a helper that has just worked, and one that
// waits for a result of wide work, which itself has to be woken first (docs/design/threads.md).
constexpr auto kSpin = std::chrono::microseconds(20);
constexpr auto kLent = std::chrono::microseconds(50);
constexpr int kMostThreads = 256;

// The region in progress. `joined` counts threads that may look at it: one joins first and then checks that
// the region is still open; the caller closes it first and then waits until no thread is joined. Both are
// sequentially consistent, so a thread that comes too late touches nothing.
//
// Every thread has a share of neighbouring pieces and helps with the others' when that is done: the same
// elements stay in the caches of the same core from one region to the next.
struct Region {
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  static constexpr int kMostShares = 64;

  const detail::TeamBody body;
  void* const state;
  const int64_t count, grain;
  const int shares;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::array<Share, kMostShares> share;

  Region(detail::TeamBody run, void* of, int64_t size, int64_t piece, int threads)
      : body(run), state(of), count(size), grain(piece), shares(static_cast<int>(shares_for(threads))) {
    const int64_t pieces = all_pieces();
    for (int64_t k = 0; k < shares; ++k) {
      share[k].next.store(pieces * k / shares * grain, std::memory_order_relaxed);
      share[k].end = std::min(pieces * (k + 1) / shares * grain, count);
    }
  }
  int64_t all_pieces() const noexcept { return (count + grain - 1) / grain; }
  int64_t shares_for(int64_t threads) const noexcept {
    return std::min({threads, all_pieces(), int64_t{kMostShares}});
  }

  // Takes one of the share `at`, or else of the next one that has any, where `at` is then. False: none is
  // left.
  bool take_piece(int& at) noexcept {
    for (int tries = 0; tries < shares; ++tries, at = (at + 1) % shares) {
      const int64_t begin = share[at].next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= share[at].end) continue;
      run(begin, std::min(begin + grain, share[at].end));
      return true;
    }
    return false;
  }
  void run(int64_t begin, int64_t end) noexcept {
    try {
      body(state, begin, end);
    } catch (...) {
      for (int k = 0; k < shares; ++k) share[k].next.store(count, std::memory_order_relaxed);
      const std::lock_guard guard(error_mutex);
      if (!error) error = std::current_exception();
    }
  }
  void work() noexcept {
    for (int at = 0; take_piece(at);) {
    }
  }
};

// How often the system has taken the core from this thread.
long forced_switches() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

class Team {
 public:
  static Team& get() {
    static Team* team = [] {
      after_fork([](bool in_child) {
        if (in_child) get().reset_in_child();
      });
      return new Team;  // never destroyed: its helpers sleep until the process ends
    }();
    return *team;
  }

  // See lend_to_team.
  void lend(const std::atomic<bool>& until, Deadline deadline) {
    if (inside_ || size() == 1) return;
    const auto stop = [&] { return until.load(std::memory_order_acquire) || Clock::now() >= deadline; };
    if (!spinning_pays(Clock::now())) return;
    const long switches = forced_switches();
    inside_ = true;
    do {
      if (lent_.fetch_add(1, std::memory_order_seq_cst) < size() - 1) look_for_work(stop);
      lent_.fetch_sub(1, std::memory_order_seq_cst);
      // A region that has just been opened either does not count on this thread, or is seen here.
    } while (open_to_more() && !stop());
    inside_ = false;
    if (forced_switches() != switches) machine_is_crowded();  // perhaps during a piece that all wait for
    if (open_to_more()) wake_helpers(1);
  }

  static bool inside() noexcept { return inside_; }
  int size() const noexcept { return size_.load(std::memory_order_relaxed); }
  void set_size(int threads) {
    const std::lock_guard guard(busy_);
    size_.store(std::clamp(threads, 1, kMostThreads), std::memory_order_relaxed);
  }

  void run(Region& region) {
    std::unique_lock lock(busy_, std::defer_lock);
    if (inside_ || size() == 1 || region.count <= region.grain || !lock.try_lock()) {
      region.work();
    } else {
      open(region);
      inside_ = true;
      region.work();
      inside_ = false;
      close();
    }
    if (region.error) std::rethrow_exception(region.error);
  }

 private:
  struct Helper {
    Parker parker;
    std::atomic<bool> asleep{false};
  };

  void open(Region& region) {
    const auto others = static_cast<int>(std::min<int64_t>(size() - 1, (region.count - 1) / region.grain));
    for (int n = started_.load(std::memory_order_relaxed); n < others && start_helper(n);)
      started_.store(++n);
    region_.store(&region, std::memory_order_seq_cst);
    wake_helpers(others - lent_elsewhere());
  }

  // False if the system gives no thread; the next region tries again, and the threads that there are do all
  // pieces.
  bool start_helper(int n) {
    auto helper = std::make_unique<Helper>();
    try {
      std::thread([this, self = helper.get(), n] { help(*self, n); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    helpers_[n] = helper.release();
    return true;
  }

  // Lent threads that can run beside this one. Two that share a core take turns; on a busy machine the system
  // often puts the waiting thread and the one it waits for on the same core, and only a helper can find
  // another.
  int lent_elsewhere() const noexcept {
    const int lent = lent_.load(std::memory_order_seq_cst);
    return lent - (lent > 0 && lent_core_.load(std::memory_order_relaxed) == sched_getcpu());
  }

  void wake_helpers(int count) {
    for (int i = 0, n = std::min(count, started_.load()); i < n; ++i)
      if (helpers_[i]->asleep.load(std::memory_order_seq_cst)) helpers_[i]->parker.unpark();
  }

  // Whether there is a region with pieces left, and fewer threads in it than the team has. A hint.
  bool open_to_more() const noexcept {
    return region_.load(std::memory_order_seq_cst) && joined_.load(std::memory_order_relaxed) < size() - 1;
  }

  // Takes pieces of the open region, until none is left or stop(). False: it had no room, or nothing to do.
  // number: of a helper, whose share is the one after the caller's, and so on; lent threads begin where the
  // first helper would.
  template <class Stop>
  bool join(int number, Stop&& stop) {
    bool worked = false;
    if (joined_.fetch_add(1, std::memory_order_seq_cst) < size() - 1) {
      if (Region* region = region_.load(std::memory_order_seq_cst)) {
        bool more = true;
        for (int at = (number + 1) % region->shares; more && !stop();)
          worked |= more = region->take_piece(at);
        // No thread need look at it again. While this thread is joined, no other region has its address.
        if (!more) region_.compare_exchange_strong(region, nullptr, std::memory_order_seq_cst);
      }
    }
    joined_.fetch_sub(1, std::memory_order_seq_cst);
    return worked;
  }

  // Other threads do what they hold in the meantime; yielding lets those run whose priority is not lower.
  // A thread with a real-time policy (SCHED_FIFO) on whose core a helper of lower priority has a piece would
  // wait for it for ever: docs/design/threads.md says not to call from such threads.
  void close() {
    region_.store(nullptr, std::memory_order_seq_cst);
    for (int i = 0; joined_.load(std::memory_order_seq_cst) != 0; ++i) {
      if (i < 1000) {
        cpu_relax();
      } else {
        std::this_thread::yield();  // a helper was interrupted in the middle of a piece: let it run
      }
    }
  }

  template <class Stop>
  void look_for_work(Stop&& stop) {
    auto now = Clock::now();
    for (auto end = now + kLent; !stop() && now < end && spinning_pays(now);) {
      lent_core_.store(sched_getcpu(), std::memory_order_relaxed);
      for (int i = 0; i < 32 && !open_to_more(); ++i) cpu_relax();
      if (open_to_more() && join(0, stop)) {
        now = Clock::now();
        end = now + kLent;
      } else {
        now = give_way(now);
      }
    }
  }

  void help(Helper& self, int number) {
    inside_ = true;
    auto until = Clock::now() + kSpin;
    for (;;) {
      for (int i = 0; i < 32 && !open_to_more(); ++i) cpu_relax();
      if (open_to_more() && join(number, [] { return false; })) {
        until = Clock::now() + kSpin;
      } else if (Clock::now() >= until) {
        self.asleep.store(true, std::memory_order_seq_cst);
        if (!open_to_more()) self.parker.park();
        self.asleep.store(false, std::memory_order_seq_cst);
        until = Clock::now() + kSpin;
      }
    }
  }

  void reset_in_child() {
    started_.store(0);  // the helpers' memory is left to threads that are not there
    region_.store(nullptr);
    joined_.store(0);
    lent_.store(0);
  }

  ForkMutex busy_;
  std::atomic<int> size_{std::min(usable_cores(), kMostThreads)};
  Helper* helpers_[kMostThreads] = {};
  std::atomic<int> started_{0};  // helpers; raised under `busy_`
  alignas(64) std::atomic<Region*> region_{nullptr};
  alignas(64) std::atomic<int> joined_{0};
  std::atomic<int> lent_{0};        // threads that look for work while they wait
  std::atomic<int> lent_core_{-1};  // where the latest of them was seen
  static thread_local bool inside_;
};
[[maybe_unused]] const Team& kAtLoad = Team::get();
thread_local bool Team::inside_ = false;

}  // namespace

bool inside_region() noexcept { return Team::inside(); }
int team_size() noexcept { return Team::get().size(); }
void set_team_size(int threads) { Team::get().set_size(threads); }

void lend_to_team(const std::atomic<bool>& until, Deadline deadline) { Team::get().lend(until, deadline); }

void detail::run_on_team(int64_t count, int64_t grain, TeamBody body, void* state) {
  if (count <= 0) return;
  Region region(body, state, count, std::max<int64_t>(grain, 1), team_size());
  Team::get().run(region);
}

}  // namespace weft
