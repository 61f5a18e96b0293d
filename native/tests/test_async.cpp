// Asynchronous operations: when they end, who may end them, and what if nobody does.
#include <atomic>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

TEST(async_ends_when_another_thread_says_so) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine);
    Log<Ref<Completion>> kept;
    bool dependent_ran = false;
    push_async(*engine, [&](RunContext&, Ref<Completion> completion) { kept.add(std::move(completion)); }, {},
               {x});
    push(*engine, [&](RunContext&) { dependent_ran = true; }, {x}, {});
    CHECK_THROWS(engine->wait_for_var(*x, true, in_ms(20)), TimedOut);
    CHECK_EQ(kept.size(), size_t{1});
    CHECK(!dependent_ran);
    CHECK_EQ(x->version.load(), uint64_t{0});
    CHECK_EQ(engine->stats().async_outstanding, uint64_t{1});
    std::jthread([&] { CHECK(kept.items().front()->finish()); }).join();
    engine->wait_for_var(*x);
    CHECK(dependent_ran);
    CHECK_EQ(x->version.load(), uint64_t{1});
    CHECK_EQ(engine->stats().async_outstanding, uint64_t{0});
  }
}

TEST(async_ends_inside_its_function_too) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine);
    for (int i = 0; i < 100; ++i)
      push_async(*engine, [](RunContext&, const Ref<Completion>& completion) { completion->finish(); }, {},
                 {x});
    engine->wait_for_var(*x);
    CHECK_EQ(x->version.load(), uint64_t{100});
  }
}

TEST(async_ends_once) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine);
    std::atomic<int> accepted{0};
    push_async(*engine,
               [&](RunContext&, const Ref<Completion>& completion) {
                 for (int i = 0; i < 3; ++i)
                   accepted += completion->finish(i ? make_ref<Error>("too late") : Ref<Error>());
               },
               {}, {x});
    CHECK_EQ(cause_of(*engine, *x), "");
    engine->stop();  // the operation is over before its function is
    CHECK_EQ(accepted.load(), 1);
    CHECK_EQ(x->version.load(), uint64_t{1});
  }
}

TEST(async_ends_once_when_threads_race) {
  auto engine = make_engine(2);
  Variable x(engine);
  std::atomic<int> accepted{0};
  const int rounds = scaled(300);
  for (int round = 0; round < rounds; ++round) {
    push_async(*engine,
               [&](RunContext&, const Ref<Completion>& completion) {
                 std::jthread rival([&accepted, completion] { accepted += completion->finish(); });
                 accepted += completion->finish();
                 rival.join();
               },
               {}, {x});
  }
  engine->wait_for_var(*x);
  engine->stop();
  CHECK_EQ(accepted.load(), rounds);
  CHECK_EQ(x->version.load(), static_cast<uint64_t>(rounds));
}

TEST(async_error_poisons) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine), y(engine);
    push_async(*engine,
               [](RunContext&, const Ref<Completion>& completion) {
                 completion->finish(make_ref<Error>("disk full"));
               },
               {}, {x}, {.queue = QueueKind::io, .name = "read file"});
    push(*engine, nothing, {x}, {y});
    CHECK_EQ(cause_of(*engine, *y), "read file");
    CHECK_EQ(x->version.load(), uint64_t{1});
    CHECK_EQ(causes_of_all(*engine), std::vector<std::string>{"read file"});
  }
}

TEST(async_dropped_without_an_answer_fails) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine);
    push_async(*engine, [](RunContext&, const Ref<Completion>&) {}, {}, {x}, {.name = "forgetful"});
    CHECK_EQ(cause_of(*engine, *x), "forgetful");
  }
}

TEST(async_throwing_before_its_answer_fails) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine);
    Log<Ref<Completion>> kept;
    push_async(*engine,
               [&](RunContext&, const Ref<Completion>& completion) {
                 kept.add(completion);
                 throw 1;
               },
               {}, {x}, {.name = "f"});
    CHECK_EQ(cause_of(*engine, *x), "f");
    CHECK(!kept.items().front()->finish());
    CHECK_EQ(cause_of(*engine, *x), "f");
  }
}

// The operation has ended well then; the exception is not lost, though.
TEST(async_throwing_after_its_answer_is_reported) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine);
    push_async(*engine,
               [](RunContext&, const Ref<Completion>& completion) {
                 completion->finish();
                 throw 1;
               },
               {}, {x}, {.name = "f"});
    CHECK_EQ(cause_of(*engine, *x), "");
    engine->stop();
    CHECK_EQ(causes_of_all(*engine), std::vector<std::string>{"f"});
  }
}

TEST(async_skipped_is_not_called) {
  auto engine = make_engine();
  Variable x(engine), y(engine);
  const auto token = std::make_shared<int>(0);
  push(*engine, [](RunContext&) { throw 1; }, {}, {x}, "f");
  push_async(*engine, [token](RunContext&, const Ref<Completion>&) { ++*token; }, {x}, {y});
  CHECK_EQ(cause_of(*engine, *y), "f");
  engine->stop();
  CHECK_EQ(*token, 0);
  CHECK_EQ(token.use_count(), 1L);
}

TEST(async_holds_no_thread) {
  auto engine = Engine::create({.workers = 1, .io_workers = 1});
  Log<Ref<Completion>> kept;
  const auto variables = make_variables(engine, 200);
  for (const Variable& var : variables)
    push_async(*engine, [&](RunContext&, Ref<Completion> completion) { kept.add(std::move(completion)); }, {},
               {var});
  CHECK(soon([&] { return kept.size() == 200; }));
  for (const Ref<Completion>& completion : kept.items()) completion->finish();
  engine->wait_for_all();
}

TEST(async_function_object_lives_until_both_have_ended) {
  auto engine = make_engine();
  Variable x(engine);
  auto token = std::make_shared<int>(0);
  Log<Ref<Completion>> kept;
  Gate gate;
  push_async(*engine,
             [token, &kept, &gate](RunContext&, const Ref<Completion>& completion) {
               kept.add(completion);
               gate.pass();
               ++*token;
             },
             {}, {x});
  CHECK(gate.reached());
  kept.items().front()->finish();
  engine->wait_for_var(*x);  // over, though the function still runs
  CHECK_EQ(token.use_count(), 2L);
  gate.open();
  CHECK(soon([&] { return token.use_count() == 1; }));
  engine->stop();
  CHECK_EQ(*token, 1);
}

TEST(async_completion_may_outlive_the_engine) {
  Log<Ref<Completion>> kept;
  {
    auto engine = make_engine();
    push_async(*engine,
               [&](RunContext&, const Ref<Completion>& completion) {
                 kept.add(completion);
                 completion->finish();
               },
               {}, {});
    engine->wait_for_all();
  }
  CHECK(!kept.items().front()->finish());
}

TEST(async_function_may_push_and_finish_from_a_later_operation) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine), y(engine);
    push_async(*engine,
               [&](RunContext& context, const Ref<Completion>& completion) {
                 push(*context.engine, [completion](RunContext&) { completion->finish(); }, {}, {y});
               },
               {}, {x});
    engine->wait_for_var(*x);
    CHECK_EQ(x->version.load(), uint64_t{1});
  }
}
