// Bulk: pushed as one, but with the outcome that separate operations have.
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

void give_up(RunContext&) { throw std::runtime_error("no luck"); }

}  // namespace

TEST(bulk_is_one_operation) {
  auto engine = make_engine();
  Variable x(engine);
  int value = 0;
  engine->begin_bulk(16);
  for (int i = 0; i < 40; ++i) push(*engine, [&](RunContext&) { ++value; }, {}, {x});
  CHECK_EQ(engine->stats().pushed, uint64_t{2});
  engine->end_bulk();
  CHECK_EQ(engine->stats().pushed, uint64_t{3});
  engine->wait_for_var(*x);
  CHECK_EQ(value, 40);
  CHECK_EQ(x->version.load(), uint64_t{40});
}

TEST(bulk_is_flushed_by_what_must_come_after_it) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine);
    int value = 0;
    auto count = [&](RunContext&) { ++value; };
    engine->begin_bulk(100);
    push(*engine, count, {}, {x});
    engine->wait_for_var(*x);
    CHECK_EQ(value, 1);
    push(*engine, count, {}, {x});
    engine->wait_for_all();
    CHECK_EQ(value, 2);
    push(*engine, count, {}, {x});
    push_async(*engine,
               [&](RunContext&, const Ref<Completion>& completion) {
                 value *= 10;
                 completion->finish();
               },
               {}, {x});
    push(*engine, count, {}, {x}, {.priority = 1});
    push(*engine, count, {}, {x}, {.queue = QueueKind::copy});
    push(*engine, count, {}, {x}, {.device = {DeviceKind::cpu, 1}});
    engine->stop();
    CHECK_EQ(value, 33);
    engine->start();
    push(*engine, give_up, {}, {x});
    engine->clear_error(*x);
    push(*engine, count, {}, {x});
    engine->end_bulk();
    CHECK_EQ(cause_of(*engine, *x), "");
    CHECK_EQ(value, 34);
  }
}

TEST(bulk_is_flushed_before_a_variable_is_deleted) {
  auto engine = make_engine();
  const Ref<Var> x = engine->new_variable();
  int value = 0, seen = 0;
  engine->begin_bulk(100);
  push(*engine, [&](RunContext&) { ++value; }, {}, {x.get()});
  Op* op = new_op(1);
  op->emplace([&](RunContext&) { seen = value; }, "last");
  engine->delete_variable(x, op, {});
  engine->end_bulk();
  engine->wait_for_all();
  CHECK_EQ(seen, 1);
}

// The push came first, so the deletion takes effect after it.
TEST(bulk_keeps_a_variable_that_another_thread_deletes) {
  auto engine = make_engine();
  Ref<Var> x = engine->new_variable();
  int value = 0;
  engine->begin_bulk(100);
  for (int i = 0; i < 2; ++i) push(*engine, [&](RunContext&) { ++value; }, {}, {x.get()});
  std::jthread([&] {
    engine->delete_variable(x);
    x = {};
  }).join();
  engine->end_bulk();
  engine->wait_for_all();
  CHECK_EQ(value, 2);
}

TEST(bulk_parts_fail_one_by_one) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable a(engine), b(engine), c(engine), d(engine);
    bool ran = false, skipped_ran = false;
    engine->begin_bulk(16);
    push(*engine, nothing, {}, {a}, "first");
    push(*engine, give_up, {}, {b}, "second");
    push(*engine, [&](RunContext&) { skipped_ran = true; }, {b}, {c}, "third");
    push(*engine, [&](RunContext&) { ran = true; }, {a}, {d}, "fourth");
    engine->submit(make_op(nothing, {}, {b}, {}, "cure"), {});
    engine->end_bulk();
    CHECK_EQ(cause_of(*engine, *a), "");
    CHECK_EQ(cause_of(*engine, *b), "");
    CHECK_EQ(cause_of(*engine, *c), "second");
    CHECK_EQ(cause_of(*engine, *d), "");
    CHECK(ran && !skipped_ran);
    CHECK_EQ(b->version.load(), uint64_t{2});
    CHECK_EQ(c->version.load(), uint64_t{0});
    CHECK_EQ(causes_of_all(*engine), std::vector<std::string>{"second"});
  }
}

TEST(bulk_counts_a_variable_that_is_listed_twice_once) {
  auto engine = make_engine();
  Variable x(engine), y(engine);
  engine->begin_bulk(2);
  for (int i = 0; i < 2; ++i) push(*engine, nothing, {x, y, y}, {x, x});
  engine->end_bulk();
  engine->wait_for_all();
  CHECK_EQ(x->version.load(), uint64_t{2});
  CHECK_EQ(y->version.load(), uint64_t{0});
}

// x is overwritten and read, which makes it written; so the error of the variable that is only read counts
// first.
TEST(bulk_inherits_the_error_that_a_separate_operation_would) {
  std::string causes[2];
  for (const bool bulk : {false, true}) {
    auto engine = make_engine();
    Variable x(engine), read(engine), out(engine);
    push(*engine, give_up, {}, {x}, "x");
    push(*engine, give_up, {}, {read}, "read");
    engine->begin_bulk(bulk ? 2 : 1);
    engine->submit(make_op(nothing, {out}, {x}, {x, read}, "both"), {});
    push(*engine, nothing, {}, {});
    engine->end_bulk();
    causes[bulk] = cause_of(*engine, *x) + " " + cause_of(*engine, *out);
  }
  CHECK_EQ(causes[0], "x read");
  CHECK_EQ(causes[1], causes[0]);
}

TEST(bulk_inside_a_bulk_keeps_the_order) {
  auto engine = make_engine();
  Variable x(engine);
  Log<int> order;
  auto add = [&](int number) {
    push(*engine, [&order, number](RunContext&) { order.add(number); }, {}, {x});
  };
  engine->begin_bulk(100);
  add(0);
  engine->begin_bulk(100);
  add(1);
  engine->end_bulk();
  add(2);
  engine->end_bulk();
  engine->wait_for_all();
  CHECK_EQ(order.items(), (std::vector<int>{0, 1, 2}));
}

TEST(bulk_of_another_engine_inside_keeps_the_order) {
  auto engine = make_engine(), other = make_engine();
  Variable x(engine), y(other);
  Log<int> order;
  auto add = [&](int number) {
    push(*engine, [&order, number](RunContext&) { order.add(number); }, {}, {x});
  };
  engine->begin_bulk(100);
  add(0);
  other->begin_bulk(100);
  push(*other, nothing, {}, {y});
  add(1);
  engine->wait_for_var(*x);
  CHECK_EQ(order.size(), size_t{2});
  other->end_bulk();
  add(2);
  engine->end_bulk();
  engine->wait_for_all();
  other->wait_for_all();
  CHECK_EQ(order.items(), (std::vector<int>{0, 1, 2}));
  CHECK_EQ(y->version.load(), uint64_t{1});
}

TEST(bulk_used_wrongly_is_refused) {
  auto engine = make_engine(), other = make_engine();
  CHECK_THROWS(engine->begin_bulk(0), EngineMisuse);
  CHECK_THROWS(engine->end_bulk(), EngineMisuse);
  engine->begin_bulk(4);
  CHECK_THROWS(other->end_bulk(), EngineMisuse);
  engine->end_bulk();
}

TEST(bulk_belongs_to_the_thread_that_began_it) {
  auto engine = make_engine();
  Variable x(engine);
  bool ran = false;
  engine->begin_bulk(100);
  std::jthread([&] {
    push(*engine, [&](RunContext&) { ran = true; }, {}, {x});
    engine->wait_for_var(*x);
  }).join();
  CHECK(ran);
  engine->end_bulk();
}

TEST(bulk_drops_each_function_once) {
  auto engine = make_engine();
  const auto token = std::make_shared<int>(0);
  engine->begin_bulk(64);
  for (int i = 0; i < 64; ++i) push(*engine, [token](RunContext&) {}, {}, {});
  engine->end_bulk();
  engine->wait_for_all();
  engine->stop();
  CHECK_EQ(token.use_count(), 1L);
}

TEST(bulk_may_be_very_wide) {
  auto engine = make_engine();
  const auto variables = make_variables(engine, 300);
  std::vector<Var*> all(variables.begin(), variables.end());
  engine->begin_bulk(1000);
  for (int i = 0; i < 500; ++i)
    engine->push(nothing, {}, all);  // 150,000 accesses: more than one operation holds
  engine->end_bulk();
  engine->wait_for_all();
  for (const Variable& var : variables) CHECK_EQ(var->version.load(), uint64_t{500});
}
