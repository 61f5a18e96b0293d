// Parker and Lock: no wake is lost, deadlines hold, the lock excludes.
#include <atomic>

#include "engine/parking.h"
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

TEST(parking_remembers_one_unpark) {
  Parker parker;
  parker.unpark();
  parker.unpark();
  CHECK(parker.park_until(in_ms(20000)));
  CHECK(!parker.park_until(in_ms(10)));
}

TEST(parking_ends_at_the_deadline) {
  Parker parker;
  const auto begin = Clock::now();
  CHECK(!parker.park_until(begin + std::chrono::milliseconds(30)));
  CHECK(Clock::now() - begin >= std::chrono::milliseconds(30));
  CHECK(!parker.park_until(begin));  // in the past
  CHECK(!parker.park_once(begin));
}

TEST(parking_ping_pong) {
  Parker here, there;
  int value = 0;  // plain: parking orders it
  const int rounds = scaled(20000);
  std::jthread other([&] {
    for (int i = 0; i < rounds; ++i) {
      there.park();
      ++value;
      here.unpark();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    ++value;
    there.unpark();
    here.park();
  }
  other.join();
  CHECK_EQ(value, 2 * rounds);
}

TEST(parking_with_deadlines_loses_no_wake) {
  Parker here;
  std::atomic<bool> ready{false};
  for (int i = 0; i < scaled(2000); ++i) {
    std::atomic<bool> go{false};
    std::jthread other([&] {
      while (!go) std::this_thread::yield();
      ready = true;
      here.unpark();
    });
    go = true;
    while (!ready) here.park_until(Clock::now() + std::chrono::microseconds(i % 50));
    other.join();
    ready = false;
    here.park_until(Clock::now());  // takes a wake that was not needed
  }
}

TEST(parking_lock_excludes) {
  Lock lock;
  int value = 0;  // plain
  const int each = scaled(100000);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < each; ++k) {
        if (i % 2) {
          lock.lock();
        } else {
          while (!lock.try_lock()) std::this_thread::yield();
        }
        ++value;
        lock.unlock();
      }
    });
  }
  for (std::jthread& thread : threads) thread.join();
  CHECK_EQ(value, 4 * each);
}

TEST(parking_lock_held_long_lets_sleepers_in) {
  Lock lock;
  std::atomic<int> inside{0};
  std::vector<std::jthread> threads;
  lock.lock();
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      lock.lock();
      ++inside;
      lock.unlock();
    });
  }
  sleep_ms(30);
  CHECK_EQ(inside.load(), 0);
  CHECK(!lock.try_lock());
  lock.unlock();
  for (std::jthread& thread : threads) thread.join();
  CHECK_EQ(inside.load(), 4);
}
