// Waiting: for a variable, for its value only, for everything; limits, and what is refused inside of
// functions.
#include <atomic>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

std::atomic<int> waits_begun{0};

// Counts waits that have placed their marker and are about to sleep.
void count_waits() {
  host_hooks.release = []() -> void* {
    waits_begun.fetch_add(1);
    return nullptr;
  };
  host_hooks.restore = [](void*) {};
}

}  // namespace

TEST(wait_for_var_waits_for_writes) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine);
    int value = 0;
    for (int i = 0; i < 100; ++i) push(*engine, [&](RunContext&) { ++value; }, {}, {x});
    engine->wait_for_var(*x);
    CHECK_EQ(value, 100);
    CHECK_EQ(x->version.load(), uint64_t{100});
  }
}

TEST(wait_for_var_waits_for_reads_too) {
  Gate gate;
  auto engine = make_engine();
  Variable x(engine);
  std::atomic<bool> read{false};
  push(*engine, nothing, {}, {x});
  push(*engine, [&](RunContext&) { gate.pass(), read = true; }, {x}, {});
  CHECK_THROWS(engine->wait_for_var(*x, false, in_ms(50)), TimedOut);
  gate.open();
  engine->wait_for_var(*x);
  CHECK(read.load());
}

TEST(wait_writes_only_does_not_wait_for_reads) {
  Gate gate;
  auto engine = make_engine();
  Variable x(engine);
  int value = 0;
  push(*engine, [&](RunContext&) { value = 7; }, {}, {x});
  push(*engine, [&](RunContext&) { gate.pass(); }, {x}, {});
  engine->wait_for_var(*x, true, in_ms(20000));
  CHECK_EQ(value, 7);
  gate.open();
}

TEST(wait_writes_only_waits_for_every_write) {
  Gate gate;
  auto engine = make_engine();
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {x}, {});
  push(*engine, nothing, {}, {x});
  CHECK_THROWS(engine->wait_for_var(*x, true, in_ms(50)), TimedOut);
  gate.open();
  engine->wait_for_var(*x, true);
  CHECK_EQ(x->version.load(), uint64_t{1});
}

TEST(wait_for_all_waits_only_for_what_was_pushed_before) {
  Gate first, second;
  count_waits();
  auto engine = make_engine(4);
  push(*engine, [&](RunContext&) { first.pass(); }, {}, {});
  std::atomic<bool> returned{false};
  std::jthread waiting([&] {
    engine->wait_for_all();
    returned = true;
  });
  CHECK(soon([] { return waits_begun.load() > 0; }));
  push(*engine, [&](RunContext&) { second.pass(); }, {}, {});
  CHECK(!returned.load());
  first.open();
  const bool in_time = soon([&] { return returned.load(); });
  second.open();
  waiting.join();
  CHECK(in_time);
}

TEST(wait_for_all_with_nothing_pending_returns) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    engine->wait_for_all(in_ms(0));
    push(*engine, nothing, {}, {});
    engine->wait_for_all();
    engine->wait_for_all(in_ms(0));
  }
}

TEST(wait_for_all_times_out_and_can_be_repeated) {
  Gate gate;
  auto engine = make_engine();
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {});
  for (int i = 0; i < 3; ++i) CHECK_THROWS(engine->wait_for_all(in_ms(20)), TimedOut);
  gate.open();
  engine->wait_for_all();
  CHECK_EQ(engine->stats().pending, uint64_t{0});
}

TEST(wait_that_timed_out_leaves_the_order_alone) {
  Gate gate;
  Log<int> order;
  auto engine = make_engine(4);
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(), order.add(0); }, {}, {x});
  CHECK_THROWS(engine->wait_for_var(*x, false, in_ms(20)), TimedOut);
  CHECK_THROWS(engine->wait_for_var(*x, true, in_ms(20)), TimedOut);
  push(*engine, [&](RunContext&) { order.add(1); }, {x}, {});
  push(*engine, [&](RunContext&) { order.add(2); }, {}, {x});
  gate.open();
  engine->wait_for_var(*x);
  CHECK_EQ(order.items(), (std::vector<int>{0, 1, 2}));
}

TEST(wait_inside_a_function_never_blocks) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable read(engine), written(engine), other(engine);
    Log<std::string> log;
    auto refused = [&](const char* what, auto&& call) {
      try {
        call();
        log.add(std::string(what) + " returned");
      } catch (const EngineMisuse&) {
        log.add(std::string(what) + " refused");
      }
    };
    push(
        *engine,
        [&](RunContext&) {
          CHECK(Engine::inside_function());
          refused("read", [&] { engine->wait_for_var(*read); });
          refused("written", [&] { engine->wait_for_var(*written, true); });
          refused("other", [&] { engine->wait_for_var(*other); });
          refused("all", [&] { engine->wait_for_all(); });
          refused("stop", [&] { engine->stop(); });
        },
        {read}, {written}, "waiting");
    engine->wait_for_all();
    CHECK(!Engine::inside_function());
    CHECK_EQ(log.items(), (std::vector<std::string>{"read returned", "written returned", "other refused",
                                                    "all refused", "stop refused"}));
  }
}

TEST(wait_inside_a_part_of_a_bulk_knows_the_part) {
  auto engine = make_engine(1);
  Variable mine(engine), other(engine);
  Log<std::string> log;
  auto try_both = [&](Var* declared, Var* undeclared) {
    engine->wait_for_var(*declared);
    try {
      engine->wait_for_var(*undeclared);
    } catch (const EngineMisuse&) {
      log.add("refused");
    }
  };
  engine->begin_bulk(2);
  push(*engine, [&](RunContext&) { try_both(mine, other); }, {}, {mine});
  push(*engine, [&](RunContext&) { try_both(other, mine); }, {}, {other});
  engine->end_bulk();
  engine->wait_for_all();
  CHECK_EQ(log.items(), (std::vector<std::string>{"refused", "refused"}));
}

TEST(wait_of_many_threads_for_one_variable) {
  Gate gate;
  count_waits();
  auto engine = make_engine();
  Variable x(engine);
  int value = 0;
  push(*engine, [&](RunContext&) { gate.pass(), value = 1; }, {}, {x});
  std::atomic<int> sum{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      i % 4 == 3 ? engine->wait_for_all() : engine->wait_for_var(*x, i % 2 == 0);
      sum += value;
    });
  }
  CHECK(soon([] { return waits_begun.load() == 16; }));
  gate.open();
  for (std::jthread& thread : threads) thread.join();
  CHECK_EQ(sum.load(), 16);
}

TEST(wait_can_be_interrupted) {
  Gate gate;
  static std::atomic<bool> interrupt{false};
  host_hooks.interrupted = [] { return interrupt.load(); };
  auto engine = make_engine();
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x});
  interrupt = true;
  CHECK_THROWS(engine->wait_for_var(*x), Interrupted);
  CHECK_THROWS(engine->wait_for_all(), Interrupted);
  CHECK_THROWS(engine->stop(), Interrupted);
  CHECK(engine->running());
  interrupt = false;
  gate.open();
  engine->wait_for_var(*x);
}

TEST(wait_for_a_variable_of_another_engine_is_misuse) {
  auto engine = make_engine(), other = make_engine();
  Variable x(other);
  CHECK_THROWS(engine->wait_for_var(*x), EngineMisuse);
  CHECK_THROWS(engine->clear_error(*x), EngineMisuse);
}

TEST(wait_sees_pushes_of_other_threads_that_came_before) {
  auto engine = make_engine();
  Variable x(engine);
  uint64_t value = 0;
  for (uint64_t round = 1; round <= static_cast<uint64_t>(scaled(500)); ++round) {
    std::jthread([&] { push(*engine, [&](RunContext&) { ++value; }, {}, {x}); }).join();
    engine->wait_for_var(*x, round % 2 == 0);
    CHECK_EQ(value, round);
  }
}
