// The team: every piece once, whoever takes it; threads that are lent to it while they wait.
#include "engine/team.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// Threads that lend themselves again and again until they are told to stop.
class Lenders {
 public:
  explicit Lenders(int count) {
    spin_always(true);
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!stop_.load()) lend_to_team(stop_);
      });
    for (std::thread& thread : threads_) ids_.insert(thread.get_id());
  }
  ~Lenders() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  bool here() const { return ids_.contains(std::this_thread::get_id()); }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
  std::set<std::thread::id> ids_;
};

void spin_us(int us) {
  for (const auto until = Clock::now() + std::chrono::microseconds(us); Clock::now() < until;) {
  }
}

// Opens regions until `happened`; fails after 20 s.
template <class Body, class Happened>
void repeat_regions(Body&& body, Happened&& happened) {
  for (const auto limit = Clock::now() + std::chrono::seconds(20); !happened();) {
    parallel_for(16, 1, body);
    CHECK(Clock::now() < limit);
  }
}

}  // namespace

TEST(team_takes_every_piece_once) {
  for (const int threads : {1, 2, 4}) {
    set_team_size(threads);
    const Lenders lenders(threads == 2 ? 3 : 1);
    for (int round = 0; round < scaled(300); ++round) {
      const int64_t count = 1 + round * 7 % 400, grain = 1 + round % 9;
      std::vector<std::atomic<int>> taken(static_cast<size_t>(count));
      parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++taken[static_cast<size_t>(i)];
      });
      for (const auto& times : taken) CHECK_EQ(times.load(), 1);
    }
  }
}

TEST(team_gives_each_thread_neighbouring_pieces) {
  set_team_size(2);
  for (int round = 0; round < scaled(50); ++round) {
    const auto caller = std::this_thread::get_id();
    std::vector<int64_t> of_caller, of_helper;
    parallel_for(100, 3, [&](int64_t begin, int64_t end) {  // 34 pieces, 17 each
      CHECK_EQ(end, std::min<int64_t>(begin + 3, 100));
      (std::this_thread::get_id() == caller ? of_caller : of_helper).push_back(begin);
      spin_us(20);
    });
    CHECK_EQ(of_caller.size() + of_helper.size(), size_t{34});
    // Each in order; and nobody helps before its own share is done. One may have been kept from its core.
    CHECK(of_caller.empty() || of_caller.front() < 51);
    CHECK(of_helper.empty() || of_helper.front() >= 51);
    CHECK(std::is_sorted(of_caller.begin(), of_caller.end()));
    const auto helped = std::find_if(of_helper.begin(), of_helper.end(), [](int64_t at) { return at < 51; });
    CHECK(std::is_sorted(of_helper.begin(), helped) && std::is_sorted(helped, of_helper.end()));
  }
}

TEST(team_is_never_wider_than_its_size) {
  set_team_size(3);
  const Lenders lenders(6);
  std::atomic<int> inside{0}, most{0};
  for (int round = 0; round < scaled(300); ++round)
    parallel_for(64, 1, [&](int64_t, int64_t) {
      const int now = ++inside;
      for (int before = most.load(); before < now && !most.compare_exchange_weak(before, now);) {
      }
      spin_us(2);
      --inside;
    });
  CHECK(most.load() <= 3);
}

TEST(team_takes_lent_threads) {
  set_team_size(2);
  const Lenders lenders(1);
  std::atomic<int> by_lender{0};
  repeat_regions(
      [&](int64_t, int64_t) {
        by_lender += lenders.here();
        spin_us(20);
      },
      [&] { return by_lender.load() > 0; });
}

TEST(team_errors_of_lent_threads_reach_the_caller) {
  set_team_size(2);
  const Lenders lenders(1);
  bool thrown = false;
  for (const auto limit = Clock::now() + std::chrono::seconds(20); !thrown;) {
    try {
      parallel_for(16, 1, [&](int64_t, int64_t) {
        spin_us(20);
        if (lenders.here()) throw std::runtime_error("here");
      });
    } catch (const std::runtime_error& error) {
      CHECK_EQ(std::string(error.what()), "here");
      thrown = true;
    }
    CHECK(Clock::now() < limit);
  }
}

TEST(team_lent_threads_leave_when_told) {
  set_team_size(2);
  spin_always(true);
  std::atomic<bool> told{false};
  std::atomic<int> after{0};
  for (int round = 0; round < 20; ++round) {
    told = false;
    after = 0;
    std::thread lender([&] {
      while (!told.load()) lend_to_team(told);
    });
    const auto id = lender.get_id();
    parallel_for(100, 1, [&](int64_t begin, int64_t) {
      if (std::this_thread::get_id() == id && told.load()) ++after;
      if (begin == 30) told = true;
      spin_us(20);
    });
    lender.join();
    CHECK(after.load() <= 1);
  }
}

TEST(team_lending_ends_at_its_deadline) {
  set_team_size(2);
  spin_always(true);
  std::atomic<bool> never{false}, ended{false};
  std::thread lender([&] {
    lend_to_team(never, Clock::now() + std::chrono::milliseconds(5));
    ended = true;
  });
  repeat_regions([](int64_t, int64_t) { spin_us(20); }, [&] { return ended.load(); });
  lender.join();
}

TEST(team_lending_ends_without_regions) {
  set_team_size(2);
  const std::atomic<bool> never{false};
  lend_to_team(never);
}

TEST(team_is_lent_nothing_on_a_crowded_machine) {
  set_team_size(2);
  machine_is_crowded();
  CHECK(!spinning_pays(Clock::now()));
  CHECK(spinning_pays(Clock::now() + std::chrono::seconds(1)));
  const std::atomic<bool> never{false};
  lend_to_team(never, kNever);
}

TEST(team_is_lent_threads_that_wait_for_wide_work) {
  set_team_size(3);  // a place for a helper and one for the waiting thread
  spin_always(true);
  auto engine = make_engine();
  Variable x(engine);
  const auto waiting = std::this_thread::get_id();
  std::atomic<int> by_waiting{0};
  for (const auto limit = Clock::now() + std::chrono::seconds(30); by_waiting.load() == 0;) {
    push(*engine,
         [&](RunContext&) {
           parallel_for(16, 1, [&](int64_t, int64_t) {
             if (std::this_thread::get_id() == waiting) ++by_waiting;
             for (int i = 0; i < 10 && by_waiting.load() == 0; ++i)
               std::this_thread::sleep_for(std::chrono::milliseconds(1));
           });
         },
         {}, {x}, {.queue = QueueKind::wide});
    engine->wait_for_var(*x);
    CHECK(Clock::now() < limit);
  }
}
