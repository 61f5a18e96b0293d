// Back-pressure: whom it holds back, when it lets go, and that it never stops what could let it go.
#include <atomic>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

TEST(backpressure_counts_operations) {
  Gate gate;
  std::atomic<int> pushed{0}, ran{0};
  auto engine = Engine::create({.workers = 2, .max_pending = 10});
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x});
  std::jthread pushing([&] {
    for (int i = 0; i < 100; ++i, ++pushed) push(*engine, [&](RunContext&) { ++ran; }, {}, {x});
  });
  CHECK(soon([&] { return engine->stats().stalls == 1; }));
  CHECK_EQ(engine->stats().pending, uint64_t{10});
  CHECK_EQ(pushed.load(), 9);
  gate.open();
  pushing.join();
  engine->wait_for_all();
  CHECK_EQ(ran.load(), 100);
}

TEST(backpressure_counts_bytes) {
  Gate gate;
  std::atomic<int> pushed{0};
  auto engine = Engine::create({.workers = 2, .max_pending_bytes = 1000});
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x}, {.size_bytes = 400});
  std::jthread pushing([&] {
    for (int i = 0; i < 20; ++i, ++pushed) push(*engine, nothing, {}, {x}, {.size_bytes = 300});
  });
  CHECK(soon([&] { return engine->stats().stalls == 1; }));
  CHECK_EQ(engine->stats().pending, uint64_t{3});
  push(*engine, nothing, {}, {x});  // has no bytes, and is not held back for those of others
  gate.open();
  pushing.join();
  engine->wait_for_all();
  CHECK_EQ(x->version.load(), uint64_t{22});
}

TEST(backpressure_lets_one_operation_of_any_size_through) {
  auto engine = Engine::create({.workers = 1, .max_pending_bytes = 10});
  Variable x(engine);
  for (int i = 0; i < 50; ++i) push(*engine, nothing, {}, {x}, {.size_bytes = 1000});
  engine->wait_for_var(*x);
  CHECK_EQ(x->version.load(), uint64_t{50});
}

TEST(backpressure_spares_functions_of_the_engine) {
  auto engine = Engine::create({.workers = 1, .max_pending = 4, .max_pending_bytes = 100});
  Variable x(engine);
  push(*engine,
       [&](RunContext& context) {
         for (int i = 0; i < 1000; ++i) push(*context.engine, nothing, {}, {x}, {.size_bytes = 50});
       },
       {}, {});
  CHECK(soon([&] { return x->version == 1000; }));
  CHECK_EQ(engine->stats().stalls, uint64_t{0});
}

TEST(backpressure_spares_callbacks_of_the_engine) {
  auto engine = Engine::create({.workers = 1, .max_pending = 4});
  Variable x(engine);
  struct PushesWhenDropped {
    Engine* engine;
    Var* var;
    ~PushesWhenDropped() {
      for (int i = 0; i < 100; ++i) push(*engine, nothing, {}, {var});
    }
  };
  push(*engine,
       [held = std::make_shared<PushesWhenDropped>(PushesWhenDropped{engine.get(), x})](RunContext&) {}, {},
       {});
  CHECK(soon([&] { return x->version >= 100; }));
  engine->wait_for_all();
}

// The function waits for something that the held-back thread does later.
TEST(backpressure_gives_way_to_a_thread_that_others_wait_for) {
  Gate gate;
  auto engine = Engine::create({.workers = 1, .max_pending = 16});
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x});
  for (int i = 0; i < 40; ++i) push(*engine, nothing, {}, {x});
  gate.open();
  engine->wait_for_all();
  CHECK_EQ(x->version.load(), uint64_t{41});
  CHECK(engine->stats().stalls > 0);
}

TEST(backpressure_in_bytes_gives_way_to_a_thread_that_others_wait_for) {
  Gate gate;
  auto engine = Engine::create({.workers = 1, .max_pending_bytes = 100});
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x}, {.size_bytes = 80});
  for (int i = 0; i < 3; ++i) push(*engine, nothing, {}, {x}, {.size_bytes = 80});
  gate.open();
  engine->wait_for_all();
  CHECK_EQ(x->version.load(), uint64_t{4});
}

TEST(backpressure_does_not_wait_for_what_cannot_go_on_by_itself) {
  auto engine = Engine::create({.workers = 1, .max_pending = 8});
  Variable x(engine);
  Log<Ref<Completion>> kept;
  push_async(*engine, [&](RunContext&, const Ref<Completion>& completion) { kept.add(completion); }, {}, {x});
  const auto begin = Clock::now();
  for (int i = 0; i < 200; ++i) push(*engine, nothing, {}, {x});
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
  kept.items().front()->finish();
  engine->wait_for_var(*x);
  CHECK_EQ(x->version.load(), uint64_t{201});
}

TEST(backpressure_ends_when_the_rest_becomes_asynchronous) {
  Gate gate;
  Log<Ref<Completion>> kept;
  auto engine = Engine::create({.workers = 1, .max_pending = 8});
  const auto variables = make_variables(engine, 8);
  for (const Variable& var : variables) {
    push_async(*engine,
               [&](RunContext&, const Ref<Completion>& completion) {
                 gate.pass();
                 kept.add(completion);
               },
               {}, {var});
  }
  std::jthread opening([&] {
    soon([&] { return engine->stats().stalls > 0; });
    gate.open();
  });
  push(*engine, nothing, {}, {});  // held back until all eight functions have returned
  opening.join();
  CHECK(soon([&] { return kept.size() == 8; }));
  for (const Ref<Completion>& completion : kept.items()) completion->finish();
  engine->wait_for_all();
}

TEST(backpressure_of_many_threads) {
  std::atomic<int> ran{0};
  auto engine = Engine::create({.workers = 2, .max_pending = 5});
  std::vector<std::jthread> threads;
  const int each = scaled(5000);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < each; ++k) push(*engine, [&](RunContext&) { ++ran; }, {}, {});
    });
  }
  for (std::jthread& thread : threads) thread.join();
  engine->wait_for_all();
  CHECK_EQ(ran.load(), 4 * each);
}

TEST(backpressure_ends_when_interrupted) {
  Gate gate;
  static std::atomic<bool> interrupt{false};
  host_hooks.interrupted = [] { return interrupt.load(); };
  auto engine = Engine::create({.workers = 1, .max_pending = 1});
  const auto token = std::make_shared<int>(0);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {});
  interrupt = true;
  CHECK_THROWS(push(*engine, [token](RunContext&) {}, {}, {}), Interrupted);
  CHECK_EQ(token.use_count(), 1L);
  interrupt = false;
  gate.open();
  engine->wait_for_all();
}
