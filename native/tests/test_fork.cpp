// Fork: the parent goes on as if nothing had been, the child has engines that work, and whatever cannot
// finish in the child fails there instead of hanging.
#include <atomic>
#include <functional>
#include <utility>

#include "engine/fork.h"
#include "tests/array_support.h"
#include "tests/child.h"

using namespace weft;
using namespace weft::testing;

namespace {

// The engine does all that it should.
void exercise(const std::shared_ptr<Engine>& engine) {
  Variable x(engine), y(engine);
  int value = 0;
  for (int i = 0; i < 100; ++i) push(*engine, [&](RunContext&) { ++value; }, {}, {x});
  push_async(*engine, [](RunContext&, const Ref<Completion>& completion) { completion->finish(); }, {x}, {y});
  push(*engine, [](RunContext&) { throw 1; }, {y}, {y}, "f");
  engine->wait_for_var(*x, false, in_ms(20000));
  CHECK_EQ(value, 100);
  CHECK_EQ(cause_of(*engine, *y), "f");
  engine->stop(in_ms(20000));
  engine->start();
  push(*engine, nothing, {}, {x});
  engine->wait_for_var(*x, false, in_ms(20000));
  CHECK_EQ(x->version.load(), uint64_t{101});
}

// Raises in the child what a wait for the variable raises, and checks that it says why.
void check_lost(Engine& engine, Var& var) {
  try {
    engine.wait_for_var(var, false, in_ms(10000));
  } catch (const OperationFailed& failed) {
    CHECK(failed.errors.front()->message.find("fork") != std::string::npos);
    return;
  }
  CHECK(!"the wait raised nothing");
}

}  // namespace

TEST(fork_of_an_idle_engine) {
  if (skipped()) return;
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine);
    push(*engine, nothing, {}, {x});
    CHECK(Engine::settle_all(in_ms(20000)));
    in_child([&] {
      CHECK_EQ(x->version.load(), uint64_t{1});
      engine->wait_for_var(*x, false, in_ms(20000));
      exercise(engine);
      exercise(make_engine(2, kind));
    });
    exercise(engine);
  }
}

TEST(fork_after_settling_finds_the_work_done) {
  if (skipped()) return;
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine);
    int value = 0;
    for (int i = 0; i < 500; ++i) push(*engine, [&](RunContext&) { ++value; }, {}, {x});
    CHECK(Engine::settle_all(in_ms(20000)));
    in_child([&] {
      CHECK_EQ(value, 500);
      engine->wait_for_var(*x, false, in_ms(20000));
      exercise(engine);
    });
  }
}

TEST(fork_settles_only_until_the_deadline) {
  Gate gate;
  auto engine = make_engine();
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {});
  CHECK(gate.reached());
  CHECK(!Engine::settle_all(in_ms(30)));
  gate.open();
  CHECK(Engine::settle_all(in_ms(20000)));
}

TEST(fork_keeps_errors_and_versions) {
  if (skipped()) return;
  auto engine = make_engine();
  Variable x(engine);
  push(*engine, [](RunContext&) { throw 1; }, {}, {x}, "f");
  CHECK(Engine::settle_all(in_ms(20000)));
  in_child([&] {
    CHECK_EQ(cause_of(*engine, *x), "f");
    engine->clear_error(*x);
    CHECK_EQ(cause_of(*engine, *x), "");
  });
  CHECK_EQ(cause_of(*engine, *x), "f");
}

TEST(fork_with_a_function_running_loses_it_in_the_child_only) {
  if (skipped()) return;
  Gate gate;
  auto engine = make_engine(1);
  Variable running(engine), ready(engine), waiting(engine), read(engine), untouched(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {read}, {running}, "running");
  CHECK(gate.reached());
  push(*engine, nothing, {}, {ready}, "ready");
  push(*engine, nothing, {running}, {waiting}, "waiting");
  in_child([&] {
    check_lost(*engine, *running);
    check_lost(*engine, *ready);
    check_lost(*engine, *waiting);
    CHECK_EQ(cause_of(*engine, *read), "");
    CHECK_EQ(cause_of(*engine, *untouched), "");
    engine->wait_for_all(in_ms(10000));
    engine->clear_error(*running);
    push(*engine, nothing, {}, {running});
    engine->wait_for_var(*running, false, in_ms(10000));
    exercise(engine);
  });
  gate.open();
  for (Var* var : {&*running, &*ready, &*waiting}) {
    CHECK_EQ(cause_of(*engine, *var), "");
    CHECK_EQ(var->version.load(), uint64_t{1});
  }
  exercise(engine);
}

TEST(fork_names_the_operation_that_was_lost) {
  if (skipped()) return;
  Gate gate;
  auto engine = make_engine(1);
  Variable x(engine), y(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x}, "running");
  CHECK(gate.reached());
  push(*engine, nothing, {}, {y}, "ready");
  in_child([&] {
    CHECK_EQ(cause_of(*engine, *x), "running");
    CHECK_EQ(cause_of(*engine, *y), "ready");
  });
  gate.open();
}

TEST(fork_with_a_bulk_running_or_pending_loses_it) {
  if (skipped()) return;
  Gate gate;
  auto engine = make_engine(1);
  Variable x(engine), y(engine), z(engine);
  for (Var* var : {&*x, &*y}) {
    engine->begin_bulk(2);
    push(*engine, [&](RunContext&) { gate.pass(); }, {}, {var}, "first part");
    push(*engine, nothing, {}, {var}, "second part");
    engine->end_bulk();
  }
  CHECK(gate.reached());
  push(*engine, nothing, {y}, {z}, "after");
  in_child([&] {
    for (Var* var : {&*x, &*y, &*z}) check_lost(*engine, *var);
    exercise(engine);
  });
  gate.open();
  for (Var* var : {&*x, &*y, &*z}) CHECK_EQ(cause_of(*engine, *var), "");
}

TEST(fork_with_an_asynchronous_operation_outstanding) {
  if (skipped()) return;
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine), y(engine);
    Log<Ref<Completion>> kept;
    push_async(*engine, [&](RunContext&, const Ref<Completion>& completion) { kept.add(completion); }, {},
               {x});
    push(*engine, nothing, {x}, {y});
    CHECK(Engine::settle_all(in_ms(20000)));  // it cannot go on by itself
    CHECK_EQ(kept.size(), size_t{1});
    in_child([&] {
      check_lost(*engine, *x);
      check_lost(*engine, *y);
      CHECK(!kept.items().front()->finish());
      exercise(engine);
    });
    CHECK(kept.items().front()->finish());
    CHECK_EQ(cause_of(*engine, *y), "");
  }
}

// The operation has ended, its function has not: the worker must not take what it once ran for something
// lost.
TEST(fork_while_the_function_of_an_ended_asynchronous_operation_runs) {
  if (skipped()) return;
  Gate gate;
  auto engine = make_engine();
  Variable x(engine);
  push_async(*engine,
             [&](RunContext&, const Ref<Completion>& completion) {
               completion->finish();
               gate.pass();
             },
             {}, {x});
  CHECK(gate.reached());
  for (int i = 0; i < 100; ++i) push(*engine, nothing, {}, {x});  // would reuse its block
  CHECK_EQ(cause_of(*engine, *x), "");
  in_child([&] {
    CHECK_EQ(cause_of(*engine, *x), "");
    exercise(engine);
  });
  gate.open();
}

// Forks where the operation has been said to be done and is not complete.
class ForkingObserver final : public Observer {
 public:
  explicit ForkingObserver(std::function<void()> action, bool starts = false)
      : action_(std::move(action)), starts_(starts) {}
  void on_end(const Event&) override { action_(); }
  void on_start(const Event&) override {
    if (starts_) action_();
  }

 private:
  const std::function<void()> action_;
  const bool starts_;
};

TEST(fork_while_another_thread_completes_an_asynchronous_operation) {
  if (skipped()) return;
  for (const bool in_finisher : {false, true}) {
    Gate gate;
    auto engine = make_engine(1);
    Variable x(engine);
    bool observed = false;
    const auto check_child = [&] {
      check_lost(*engine, *x);
      engine->clear_error(*x);
      exercise(engine);
    };
    engine->add_observer(std::make_shared<ForkingObserver>([&] {
      if (std::exchange(observed, true)) return;
      if (in_finisher)
        in_child(check_child);
      else
        gate.pass();
    }));
    Log<Ref<Completion>> kept;
    push_async(*engine, [&](RunContext&, const Ref<Completion>& completion) { kept.add(completion); }, {},
               {x});
    CHECK(Engine::settle_all(in_ms(20000)));
    std::jthread finisher([&] { CHECK(kept.items().front()->finish()); });
    if (!in_finisher) {
      CHECK(gate.reached());
      in_child(check_child);
      gate.open();
    }
    finisher.join();
    CHECK_EQ(cause_of(*engine, *x), "");
  }
}

// The child goes on behind the observer that forked.
TEST(fork_by_an_observer_of_a_completion) {
  if (skipped()) return;
  auto engine = make_engine(1);
  Variable x(engine);
  pid_t child = -1;
  bool observed = false;
  engine->add_observer(std::make_shared<ForkingObserver>([&] {
    if (!std::exchange(observed, true)) child = fork();
  }));
  Log<Ref<Completion>> kept;
  push_async(*engine, [&](RunContext&, const Ref<Completion>& completion) { kept.add(completion); }, {}, {x});
  CHECK(Engine::settle_all(in_ms(20000)));
  kept.items().front()->finish();
  if (child == 0) {
    int status = 1;
    try {
      check_lost(*engine, *x);
      engine->clear_error(*x);
      exercise(engine);
      status = 0;
    } catch (const std::exception&) {
    }
    _exit(status);
  }
  int status = 1;
  CHECK(soon([&] { return waitpid(child, &status, WNOHANG) == child; }, 30000));
  CHECK_EQ(status, 0);
  CHECK_EQ(cause_of(*engine, *x), "");
}

// A thread of its own forks at the n-th event, while all that the program runs stands still there: for all n.
TEST(fork_at_every_step_of_a_program) {
  if (skipped()) return;
  for (const EngineKind kind : kKinds) {
    int events = 1, steps = 0;
    for (int n = 0; n < events; ++n) {
      auto engine = make_engine(2, kind);
      std::vector<Variable> vars = make_variables(engine, 4);
      std::atomic<int> event{0};
      engine->add_observer(std::make_shared<ForkingObserver>(
          [&] {
            if (event++ != n) return;
            ++steps;
            std::jthread([&] {
              in_child([&] {
                for (Variable& var : vars) {
                  try {
                    engine->wait_for_var(*var, false, in_ms(10000));
                  } catch (const OperationFailed&) {
                    engine->clear_error(*var);
                  }
                  push(*engine, nothing, {}, {var});
                  engine->wait_for_var(*var, false, in_ms(10000));
                }
                exercise(engine);
              });
            }).join();
          },
          true));
      Random random(seed() + 1);
      for (int i = 0; i < 12; ++i) {
        Var* const read = &*vars[static_cast<size_t>(random.below(4))];
        Var* const written = &*vars[static_cast<size_t>(random.below(4))];
        if (random.chance(30))
          push_async(*engine, [](RunContext&, const Ref<Completion>& completion) { completion->finish(); },
                     {read}, {written});
        else if (random.chance(20))
          push(*engine, [](RunContext&) { throw 1; }, {read}, {written}, "fails");
        else
          push(*engine, nothing, {read}, {written});
      }
      causes_of_all(*engine);
      events = event;
    }
    CHECK(steps >= 20);
  }
}

// Chunks that are watched come and go on another thread, under a lock of all chunks.
TEST(fork_while_another_thread_ends_watched_chunks) {
  if (skipped()) return;
  Arrays arrays;
  std::atomic<bool> enough{false};
  std::jthread other([&] {
    while (!enough) testing::empty({4}).chunk->watch();
  });
  for (int i = 0; i < 100; ++i)
    in_child([] {
      alarm(5);
      Chunk::is_alive(1);
    });
  enough = true;
}

// Threads take two locks in either order, and make locks while they hold one; a fork waits for all of them,
// and the child finds them free.
TEST(fork_finds_locks_free) {
  if (skipped()) return;
  ForkMutex a, b;
  std::atomic<bool> enough{false};
  std::jthread one([&] {
    while (!enough) {
      const std::scoped_lock both(a, b);
      const ForkMutex third;
    }
  });
  std::jthread two([&] {
    while (!enough) {
      const std::lock_guard first(b);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  for (int i = 0; i < 50; ++i)
    in_child([&] {
      for (ForkMutex* mutex : {&a, &b}) {
        CHECK(mutex->try_lock());
        mutex->unlock();
      }
    });
  enough = true;
}

TEST(fork_while_another_thread_runs_a_naive_function) {
  if (skipped()) return;
  Gate gate;
  auto engine = make_engine(1, EngineKind::naive);
  Variable x(engine);
  std::jthread other([&] { push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x}, "running"); });
  CHECK(gate.reached());
  in_child([&] {
    check_lost(*engine, *x);
    exercise(engine);
  });
  gate.open();
  other.join();
  CHECK_EQ(cause_of(*engine, *x), "");
}

TEST(fork_while_other_threads_push_and_wait) {
  if (skipped()) return;
  if (kAddressSanitizer) {
    std::puts(
        "skipped: AddressSanitizer's allocator stays locked in the child if another thread was inside it");
    return;
  }
  auto engine = make_engine(2);
  std::atomic<bool> enough{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      Variable x(engine);
      while (!enough) {
        for (int k = 0; k < 20; ++k) push(*engine, nothing, {}, {x});
        engine->wait_for_var(*x);
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    Engine::settle_all(in_ms(20));
    in_child([&] { exercise(engine); });
  }
  enough = true;
  for (std::jthread& thread : threads) thread.join();
}

TEST(fork_of_several_engines_and_of_a_child) {
  if (skipped()) return;
  std::vector<std::shared_ptr<Engine>> engines;
  for (int i = 0; i < 6; ++i) engines.push_back(make_engine(2, kKinds[i % 3]));
  for (const auto& engine : engines) exercise(engine);
  CHECK(Engine::settle_all(in_ms(20000)));
  in_child([&] {
    for (const auto& engine : engines) exercise(engine);
    CHECK(Engine::settle_all(in_ms(20000)));
    in_child([&] {
      for (const auto& engine : engines) exercise(engine);
    });
    for (const auto& engine : engines) CHECK_EQ(engine->shutdown(in_ms(10000)), std::vector<std::string>());
  });
}

TEST(fork_then_the_child_ends_its_engines) {
  if (skipped()) return;
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    exercise(engine);
    CHECK(Engine::settle_all(in_ms(20000)));
    in_child([&] {
      engine.reset();
      CHECK_EQ(Engine::all().size(), size_t{0});
    });
  }
}
