#include "engine/team.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/parking.h"

namespace weft {
namespace {

// A helper that has just worked looks for the next region for so long before it sleeps
// (docs/design/threads.md).
constexpr auto kSpin = std::chrono::microseconds(20);

// The region in progress. `joined` counts helpers that may look at it: a helper joins first and then checks
// that the region is still open; the caller closes it first and then waits until nobody is joined. Both are
// sequentially consistent, so a helper that comes too late touches nothing.
struct Region {
  const detail::TeamBody body;
  void* const state;
  const int64_t count, grain;
  std::atomic<int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  Region(detail::TeamBody run, void* of, int64_t size, int64_t piece)
      : body(run), state(of), count(size), grain(piece) {}

  void work() noexcept {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      try {
        body(state, begin, std::min(begin + grain, count));
      } catch (...) {
        next.store(count, std::memory_order_relaxed);
        const std::lock_guard guard(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
  }
};

class Team {
 public:
  static Team& get() {
    static Team* team = [] {
      pthread_atfork([] { get().busy_.lock(); }, [] { get().busy_.unlock(); },
                     [] { get().reset_in_child(); });
      return new Team;  // never destroyed: its helpers sleep until the process ends
    }();
    return *team;
  }

  int size() const noexcept { return size_.load(std::memory_order_relaxed); }
  void set_size(int threads) {
    const std::lock_guard guard(busy_);
    size_.store(std::clamp(threads, 1, 256), std::memory_order_relaxed);
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
    const auto wanted = static_cast<size_t>(std::min<int64_t>(size() - 1, (region.count - 1) / region.grain));
    while (helpers_.size() < wanted) {
      helpers_.push_back(std::make_unique<Helper>());
      std::thread([this, helper = helpers_.back().get()] { help(*helper); }).detach();
    }
    region_.store(&region, std::memory_order_seq_cst);
    for (size_t i = 0; i < wanted; ++i)
      if (helpers_[i]->asleep.load(std::memory_order_seq_cst)) helpers_[i]->parker.unpark();
  }

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

  void help(Helper& self) {
    inside_ = true;
    auto until = Clock::now() + kSpin;
    for (;;) {
      if (region_.load(std::memory_order_relaxed)) {
        joined_.fetch_add(1, std::memory_order_seq_cst);
        if (Region* region = region_.load(std::memory_order_seq_cst)) region->work();
        joined_.fetch_sub(1, std::memory_order_seq_cst);
        while (region_.load(std::memory_order_relaxed) && Clock::now() < until) cpu_relax();
        until = Clock::now() + kSpin;
        continue;
      }
      for (int i = 0; i < 32 && !region_.load(std::memory_order_relaxed); ++i) cpu_relax();
      if (Clock::now() < until) continue;
      self.asleep.store(true, std::memory_order_seq_cst);
      if (!region_.load(std::memory_order_seq_cst)) self.parker.park();
      self.asleep.store(false, std::memory_order_seq_cst);
      until = Clock::now() + kSpin;
    }
  }

  void reset_in_child() {
    new (&busy_) std::mutex;
    for (auto& helper : helpers_) static_cast<void>(helper.release());
    helpers_.clear();
    region_.store(nullptr);
    joined_.store(0);
  }

  std::mutex busy_;
  std::atomic<int> size_{std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  std::vector<std::unique_ptr<Helper>> helpers_;
  alignas(64) std::atomic<Region*> region_{nullptr};
  alignas(64) std::atomic<int> joined_{0};
  static thread_local bool inside_;
};
thread_local bool Team::inside_ = false;

}  // namespace

int team_size() noexcept { return Team::get().size(); }
void set_team_size(int threads) { Team::get().set_size(threads); }

void detail::run_on_team(int64_t count, int64_t grain, TeamBody body, void* state) {
  if (count <= 0) return;
  Region region(body, state, count, std::max<int64_t>(grain, 1));
  Team::get().run(region);
}

}  // namespace weft
