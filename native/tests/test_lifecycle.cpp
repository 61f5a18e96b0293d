// The beginning and the end of engines: stop and start, the last handle, shutdown with work that does not
// end.
#include <atomic>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// Holds a worker back on its way out.
struct SlowToLeave : Domain {
  Gate gate;
  void thread_end() override { gate.pass(); }
  void enter() override {}
  void leave() override {}
};

// Holds a pushing thread back between the check of its call and the engine.
struct SlowToPush : Observer {
  Gate gate;
  void on_push(const Event& event) override {
    if (event.op->name() == "slow") gate.pass();
  }
};

bool stops_pushing(Engine& engine, Var* var, std::atomic<int>& ran) {
  try {
    push(engine, [&ran](RunContext&) { ++ran; }, {}, {var});
    return false;
  } catch (const EngineMisuse&) {
    return true;
  }
}

}  // namespace

TEST(lifecycle_stop_finishes_and_start_goes_on) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine), bad(engine);
    int value = 0;
    for (int round = 1; round <= 3; ++round) {
      for (int i = 0; i < 50; ++i) push(*engine, [&](RunContext&) { ++value; }, {}, {x});
      if (round == 1) push(*engine, [](RunContext&) { throw 1; }, {}, {bad}, "f");
      engine->stop();
      CHECK_EQ(value, 50 * round);
      CHECK(!engine->running());
      CHECK_EQ(engine->stats().threads, uint64_t{0});
      CHECK_THROWS(push(*engine, nothing, {}, {x}), EngineMisuse);
      engine->wait_for_var(*x);
      CHECK_EQ(cause_of(*engine, *bad), "f");
      engine->stop();
      engine->start();
      engine->start();
      CHECK(engine->running());
    }
    CHECK_EQ(x->version.load(), uint64_t{150});
  }
}

TEST(lifecycle_stop_times_out_and_the_engine_goes_on) {
  Gate gate;
  auto engine = make_engine();
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x});
  CHECK_THROWS(engine->stop(in_ms(30)), TimedOut);
  CHECK(engine->running());
  push(*engine, nothing, {}, {x});
  gate.open();
  engine->stop();
  CHECK_EQ(x->version.load(), uint64_t{2});
}

TEST(lifecycle_functions_may_push_while_the_engine_stops) {
  Gate gate;
  auto engine = make_engine(1);
  Variable x(engine);
  std::function<void(RunContext&, int)> step = [&](RunContext&, int left) {
    if (left > 0) push(*engine, [&step, left](RunContext& c) { step(c, left - 1); }, {}, {x});
  };
  push(*engine, [&](RunContext& c) { gate.pass(), step(c, 100); }, {}, {x});
  std::jthread opening([&] { sleep_ms(50), gate.open(); });
  engine->stop();
  opening.join();
  CHECK_EQ(x->version.load(), uint64_t{101});
}

TEST(lifecycle_stop_while_threads_push_loses_nothing) {
  auto engine = make_engine(2);
  std::atomic<int> ran{0}, pushed{0};
  std::atomic<bool> enough{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Variable x(engine);
      while (!enough) {
        if (stops_pushing(*engine, x, ran)) {
          std::this_thread::yield();
        } else if (++pushed % 16 == 0) {
          engine->wait_for_var(*x);
        }
      }
      engine->wait_for_var(*x);
    });
  }
  for (int i = 0; i < scaled(500); ++i) {
    engine->stop();
    engine->start();
  }
  enough = true;
  for (std::jthread& thread : threads) thread.join();
  engine->wait_for_all();
  CHECK_EQ(ran.load(), pushed.load());
}

// A push that was allowed just before the engine stopped arrives while its threads leave.
// The observer holds the push up while the engine stops: it is refused or it runs, but it is not lost.
TEST(lifecycle_push_overtaken_by_stop_is_refused_or_runs) {
  for (const int workers : {1, 2}) {
    SlowToLeave domain;
    const auto observer = std::make_shared<SlowToPush>();
    auto engine = make_engine(workers);
    engine->add_observer(observer);
    Variable x(engine);
    Op* op = make_op(nothing, {x}, {}, {}, "first");
    TaskType type = *op->type;
    type.domain = &domain;
    op->type = &type;
    engine->submit(op, {});
    engine->wait_for_var(*x);
    bool refused = false;
    std::jthread pushing([&] {
      try {
        push(*engine, nothing, {}, {x}, "slow");
      } catch (const EngineMisuse&) {
        refused = true;
      }
    });
    CHECK(observer->gate.reached());
    std::jthread stopping([&] { engine->stop(); });
    CHECK(domain.gate.reached());
    observer->gate.open();
    pushing.join();
    domain.gate.open();
    stopping.join();
    engine->wait_for_var(*x, false, in_ms(10000));
    CHECK_EQ(x->version.load(), uint64_t{refused ? 1u : 2u});
  }
}

TEST(lifecycle_many_engines) {
  std::vector<std::shared_ptr<Engine>> engines;
  std::atomic<int> ran{0};
  for (int i = 0; i < 20; ++i) engines.push_back(make_engine(2, kKinds[i % 3]));
  CHECK_EQ(Engine::all().size(), size_t{20});
  for (int k = 0; k < 20; ++k)
    for (const auto& engine : engines) push(*engine, [&](RunContext&) { ++ran; }, {}, {});
  for (const auto& engine : engines) engine->wait_for_all();
  CHECK_EQ(ran.load(), 400);
  engines.clear();
  CHECK_EQ(Engine::all().size(), size_t{0});
}

TEST(lifecycle_engine_that_never_worked) {
  for (const EngineKind kind : kKinds) {
    make_engine(2, kind);
    auto engine = make_engine(2, kind);
    engine->stop();
    CHECK_EQ(engine->shutdown(in_ms(1000)), std::vector<std::string>());
  }
}

TEST(lifecycle_last_handle_waits_for_pending_work) {
  for (const EngineKind kind : kKinds) {
    std::atomic<int> ran{0};
    auto engine = make_engine(2, kind);
    {
      Variable x(engine);
      for (int i = 0; i < 200; ++i) push(*engine, [&](RunContext&) { ++ran; }, {}, {x});
    }
    engine.reset();
    CHECK_EQ(ran.load(), 200);
  }
}

TEST(lifecycle_last_handle_goes_inside_a_function) {
  for (int round = 0; round < scaled(100); ++round) {
    auto engine = make_engine(2);
    auto gate = std::make_shared<Gate>();
    auto ran = std::make_shared<std::atomic<int>>(0);
    push(*engine,
         [held = engine, gate, ran](RunContext&) mutable {
           gate->pass();
           held.reset();
           ++*ran;
         },
         {}, {});
    for (int i = 0; i < 10; ++i) push(*engine, [ran](RunContext&) { ++*ran; }, {}, {});
    engine.reset();
    gate->open();
    CHECK(soon([&] { return *ran == 11; }));
    CHECK(Engine::wait_for_dying(in_ms(20000)));
    CHECK_EQ(Engine::all().size(), size_t{0});
  }
}

TEST(lifecycle_last_handle_goes_with_a_function_object) {
  auto engine = make_engine(2);
  Gate gate;
  push(*engine, [held = engine, &gate](RunContext&) { gate.pass(); }, {}, {});
  engine.reset();
  gate.open();
  CHECK(soon([] { return Engine::all().empty(); }));
  CHECK(Engine::wait_for_dying(in_ms(20000)));
}

TEST(lifecycle_shutdown_gives_up_what_nobody_completes) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine), y(engine), z(engine);
    Log<Ref<Completion>> kept;
    auto keep = [&](RunContext&, const Ref<Completion>& completion) { kept.add(completion); };
    const auto token = std::make_shared<int>(0);
    push_async(*engine, keep, {}, {x}, {.name = "never"});
    push(*engine, [token](RunContext&) { ++*token; }, {x}, {y}, "after");
    push_async(*engine, keep, {}, {z}, {.name = "never either"});
    CHECK_EQ(engine->shutdown(in_ms(20000)), std::vector<std::string>());
    CHECK_EQ(engine->stats().pending, uint64_t{0});
    CHECK_EQ(engine->stats().async_outstanding, uint64_t{0});
    CHECK_EQ(cause_of(*engine, *y), "never");
    CHECK_EQ(cause_of(*engine, *z), "never either");
    CHECK_EQ(*token, 0);
    CHECK_EQ(token.use_count(), 1L);
    for (const Ref<Completion>& completion : kept.items()) CHECK(!completion->finish());
  }
}

TEST(lifecycle_shutdown_races_with_completions) {
  for (int round = 0; round < scaled(200); ++round) {
    auto engine = make_engine(1);
    Log<Ref<Completion>> kept;
    for (int i = 0; i < 8; ++i)
      push_async(*engine, [&](RunContext&, const Ref<Completion>& completion) { kept.add(completion); }, {},
                 {});
    CHECK(soon([&] { return kept.size() == 8; }));
    std::jthread completing([&] {
      for (const Ref<Completion>& completion : kept.items()) completion->finish();
    });
    engine->shutdown(in_ms(20000));
    completing.join();
    const Stats stats = engine->stats();
    CHECK_EQ(stats.async_outstanding, uint64_t{0});
    CHECK_EQ(stats.finished, uint64_t{8});
  }
}

TEST(lifecycle_shutdown_leaves_a_stuck_function_behind) {
  const auto gate = std::make_shared<Gate>();  // the function may still be in it when the test ends
  auto engine = make_engine(2);
  push(*engine, [gate](RunContext&) { gate->pass(); }, {}, {});
  CHECK(gate->reached());
  const std::vector<std::string> stuck = engine->shutdown(in_ms(50));
  CHECK_EQ(stuck.size(), size_t{1});
  CHECK(stuck.front().find("compute") != std::string::npos);
  CHECK_THROWS(push(*engine, nothing, {}, {}), EngineMisuse);
  gate->open();
}

// The function ends after all, while the last handle goes.
TEST(lifecycle_stuck_function_that_ends_later_does_no_harm) {
  for (int round = 0; round < scaled(100); ++round) {
    auto gate = std::make_shared<Gate>();
    auto engine = make_engine(1);
    push(*engine, [gate](RunContext&) { gate->pass(); }, {}, {});
    CHECK(gate->reached());
    CHECK_EQ(engine->shutdown(in_ms(1)).size(), size_t{1});
    gate->open();
    engine.reset();
  }
  CHECK(soon([] { return Engine::all().empty(); }));
}

TEST(lifecycle_variables_may_be_deleted_on_a_stopped_engine) {
  auto engine = make_engine();
  Ref<Var> x = engine->new_variable();
  Variable y(engine);
  bool deleted = false;
  push(*engine, nothing, {}, {x.get()});
  engine->stop();
  Op* op = new_op(1);
  op->emplace([&](RunContext&) { deleted = true; }, "last");
  engine->delete_variable(x, op, {});
  engine->wait_for_all(in_ms(20000));
  CHECK(deleted);
}
