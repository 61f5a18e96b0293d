// Errors: what a failure poisons, what is skipped, what cures, and who is told how often.
#include <algorithm>
#include <memory>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

void fail_with_text(RunContext&) { throw std::runtime_error("no luck"); }

Ref<Error> error_of(Engine& engine, Var& var) {
  try {
    engine.wait_for_var(var);
  } catch (const OperationFailed& failed) {
    return failed.errors.front();
  }
  return {};
}

void overwrite(Engine& engine, Var* var, Vars reads = {}, const char* name = "overwrite") {
  engine.submit(make_op(nothing, {}, {var}, reads, name), {});
}

}  // namespace

TEST(errors_of_every_type_are_kept) {
  struct Odd {};
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable a(engine), b(engine), c(engine), d(engine);
    push(*engine, fail_with_text, {}, {a}, "text");
    push(*engine, [](RunContext&) { throw 42; }, {}, {b}, "number");
    push(*engine, [](RunContext&) { throw Odd(); }, {}, {c}, "odd");
    push(*engine, [](RunContext&) { throw TaskFailure{make_ref<Error>("made before")}; }, {}, {d}, "made");
    CHECK_EQ(error_of(*engine, *a)->message, "std::runtime_error: no luck");
    CHECK(error_of(*engine, *b)->message.find("int") != std::string::npos);
    CHECK(error_of(*engine, *c)->message.find("Odd") != std::string::npos);
    CHECK_EQ(error_of(*engine, *d)->message, "made before");
    CHECK_EQ(error_of(*engine, *d)->operation, "made");
    CHECK_THROWS(std::rethrow_exception(error_of(*engine, *a)->cause), std::runtime_error);
    CHECK_THROWS(std::rethrow_exception(error_of(*engine, *b)->cause), int);
    CHECK_EQ(causes_of_all(*engine).size(), size_t{4});
  }
}

TEST(errors_poison_what_depends_on_them_with_the_first_cause) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable a(engine), b(engine), c(engine), d(engine);
    bool ran = false;
    auto run = [&](RunContext&) { ran = true; };
    push(*engine, fail_with_text, {}, {a}, "first");
    push(*engine, run, {a}, {b}, "second");
    push(*engine, run, {b}, {c}, "third");
    push(*engine, run, {}, {c}, "fourth");
    push(*engine, nothing, {}, {d}, "apart");
    for (Var* var : {&*a, &*b, &*c}) CHECK_EQ(cause_of(*engine, *var), "first");
    CHECK(error_of(*engine, *a) == error_of(*engine, *c));
    CHECK_EQ(cause_of(*engine, *d), "");
    CHECK(!ran);
    CHECK_EQ(a->version.load(), uint64_t{1});
    CHECK_EQ(b->version.load() + c->version.load(), uint64_t{0});
    const Stats stats = engine->stats();
    CHECK_EQ(stats.failed, uint64_t{1});
    CHECK_EQ(stats.skipped, uint64_t{3});
  }
}

TEST(errors_are_raised_by_every_wait) {
  auto engine = make_engine();
  Variable x(engine);
  push(*engine, fail_with_text, {}, {x}, "f");
  for (int i = 0; i < 5; ++i) CHECK_EQ(cause_of(*engine, *x, i % 2 == 0), "f");
}

TEST(errors_reach_waits_that_sleep) {
  Gate gate;
  auto engine = make_engine();
  Variable x(engine);
  push(
      *engine,
      [&](RunContext&) {
        gate.pass();
        throw 1;
      },
      {}, {x}, "f");
  std::jthread opening([&] { sleep_ms(20), gate.open(); });
  CHECK_EQ(cause_of(*engine, *x), "f");
  opening.join();
}

// An overwriting operation that is skipped or fails leaves the first cause where it is.
TEST(errors_end_with_an_overwrite_that_succeeds) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine), y(engine), poisoned(engine);
    push(*engine, fail_with_text, {}, {x}, "f");
    push(*engine, fail_with_text, {}, {poisoned}, "g");
    overwrite(*engine, x, {poisoned}, "skipped");
    CHECK_EQ(cause_of(*engine, *x), "f");
    engine->submit(make_op(fail_with_text, {}, {x}, {}, "failed"), {});
    CHECK_EQ(cause_of(*engine, *x), "f");
    overwrite(*engine, x);
    CHECK_EQ(cause_of(*engine, *x), "");
    push(*engine, nothing, {x}, {y});
    CHECK_EQ(cause_of(*engine, *y), "");
    CHECK_EQ(x->version.load(), uint64_t{3});
  }
}

TEST(errors_of_an_overwrite_that_also_reads_are_inherited) {
  auto engine = make_engine();
  Variable x(engine);
  push(*engine, fail_with_text, {}, {x}, "f");
  engine->submit(make_op(nothing, {}, {x}, {x}, "both"), {});
  CHECK_EQ(cause_of(*engine, *x), "f");
  CHECK_EQ(engine->stats().skipped, uint64_t{1});
}

TEST(errors_that_a_variable_has_already_stay) {
  auto engine = make_engine();
  Variable x(engine), y(engine);
  push(*engine, fail_with_text, {}, {x}, "f");
  push(*engine, fail_with_text, {}, {y}, "g");
  push(*engine, nothing, {x}, {y}, "both");  // skipped because of f, leaves y its g
  CHECK_EQ(cause_of(*engine, *y), "g");
}

TEST(errors_come_from_reads_first_and_then_in_order) {
  Gate gate;
  auto engine = make_engine(4);
  Variable r1(engine), r2(engine), w(engine), out(engine);
  // The later ones in the order of declaration fail first in time.
  push(*engine, [&](RunContext&) { gate.pass(), throw 1; }, {}, {r1}, "r1");
  push(*engine, fail_with_text, {}, {r2}, "r2");
  push(*engine, fail_with_text, {}, {w}, "w");
  push(*engine, nothing, {r1, r2}, {w, out}, "late");
  CHECK_EQ(cause_of(*engine, *r2, true), "r2");
  gate.open();
  CHECK_EQ(cause_of(*engine, *out), "r1");
}

TEST(errors_cleared_are_gone_and_the_clearing_is_ordered) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine), before(engine), after(engine);
    push(*engine, fail_with_text, {}, {x}, "f");
    push(*engine, nothing, {x}, {before});
    engine->clear_error(*x);
    push(*engine, nothing, {x}, {after});
    CHECK_EQ(cause_of(*engine, *x), "");
    CHECK_EQ(cause_of(*engine, *before), "f");
    CHECK_EQ(cause_of(*engine, *after), "");
    CHECK_EQ(causes_of_all(*engine), std::vector<std::string>());  // clearing it counts as having seen it
    engine->clear_error(*x);                                       // nothing to clear
  }
}

TEST(errors_are_reported_once_by_wait_for_all) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(1, kind);
    Variable x(engine), y(engine);
    push(*engine, fail_with_text, {}, {x}, "f");
    push(*engine, fail_with_text, {}, {y}, "g");
    push(*engine, nothing, {x}, {y});
    push(*engine, fail_with_text, {}, {}, "h");  // poisons nothing, and is reported all the same
    std::vector<std::string> causes = causes_of_all(*engine);
    std::sort(causes.begin(), causes.end());
    CHECK_EQ(causes, (std::vector<std::string>{"f", "g", "h"}));
    CHECK_EQ(causes_of_all(*engine), std::vector<std::string>());
    CHECK_EQ(cause_of(*engine, *x), "f");
  }
}

TEST(errors_of_a_cheap_kernel_are_not_thrown_at_the_push) {
  auto engine = make_engine();
  Variable x(engine);
  Op* op = make_op(fail_with_text, {x}, {}, {}, "cheap");
  op->cheap = true;
  engine->submit(op, {});
  CHECK_EQ(engine->stats().inlined, uint64_t{1});
  CHECK_EQ(cause_of(*engine, *x), "cheap");
}

TEST(errors_of_a_reusable_operator_come_with_each_run) {
  auto engine = make_engine();
  Variable x(engine);
  int runs = 0;
  auto sometimes = [&](RunContext&) {
    if (++runs % 2) throw 1;
  };
  const std::shared_ptr<Operator> op =
      engine->new_operator(make_op(sometimes, {}, {x}, {}, "op"), QueueKind::compute);
  for (int i = 1; i <= 6; ++i) {
    engine->submit(*op, {});
    CHECK_EQ(cause_of(*engine, *x), i % 2 ? "op" : "");
  }
  CHECK_EQ(causes_of_all(*engine).size(), size_t{3});
}

TEST(errors_that_skip_runs_of_a_reusable_operator_do_not_stay_with_it) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine), y(engine);
    int runs = 0;
    const std::shared_ptr<Operator> op =
        engine->new_operator(make_op([&](RunContext&) { ++runs; }, {y}, {}, {x}, "op"), QueueKind::compute);
    for (int round = 0; round < 3; ++round) {
      push(*engine, fail_with_text, {}, {x}, "cause");
      for (int i = 0; i < 5; ++i) engine->submit(*op, {});
      CHECK_EQ(cause_of(*engine, *y), "cause");
      CHECK_EQ(runs, 100 * round);
      engine->clear_error(*x);
      engine->clear_error(*y);
      for (int i = 0; i < 100; ++i) engine->submit(*op, {});
      CHECK_EQ(cause_of(*engine, *y), "");
      CHECK_EQ(runs, 100 * (round + 1));
    }
  }
}

TEST(errors_do_not_keep_a_variable_from_being_deleted) {
  auto engine = make_engine();
  const Ref<Var> x = engine->new_variable();
  bool deleted = false;
  push(*engine, fail_with_text, {}, {x.get()}, "f");
  Op* op = new_op(1);
  op->emplace([&](RunContext&) { deleted = true; }, "last");
  engine->delete_variable(x, op, {});
  CHECK_EQ(causes_of_all(*engine), std::vector<std::string>{"f"});
  CHECK(deleted);
}

// A call that is refused has dropped its function, and nothing else has happened.
TEST(errors_of_the_call_itself_are_raised_at_the_call) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind), other = make_engine();
    Variable x(engine), foreign(other);
    const Ref<Var> gone = engine->new_variable();
    engine->delete_variable(gone);
    const auto token = std::make_shared<int>(0);
    auto fn = [token](RunContext&) { ++*token; };
    auto async = [token](RunContext&, Ref<Completion>) { ++*token; };
    CHECK_THROWS(push(*engine, fn, {}, {x, foreign}), EngineMisuse);
    CHECK_THROWS(push(*engine, fn, {gone.get()}, {x}), EngineMisuse);
    CHECK_THROWS(push(*engine, fn, {}, {x}, {.device = {DeviceKind::gpu, 0}}), DeviceError);
    CHECK_THROWS(push(*engine, fn, {}, {x}, {.device = {DeviceKind::cpu, 64}}), EngineMisuse);
    CHECK_THROWS(push(*engine, fn, {}, {x}, {.device = {DeviceKind::cpu, -1}}), EngineMisuse);
    CHECK_THROWS(push_async(*engine, async, {gone.get()}, {x}), EngineMisuse);
    CHECK_THROWS(engine->delete_variable(gone), EngineMisuse);
    CHECK_THROWS(engine->delete_variable(foreign.ref()), EngineMisuse);
    CHECK_THROWS(engine->clear_error(*gone), EngineMisuse);
    engine->stop();
    CHECK_THROWS(push(*engine, fn, {}, {x}), EngineMisuse);
    engine->start();
    engine->wait_for_all();
    CHECK_EQ(*token, 0);
    CHECK_EQ(token.use_count(), 3L);
    CHECK_EQ(x->version.load(), uint64_t{0});
  }
}

TEST(errors_of_options_are_raised_at_once) {
  for (const Options& wrong : {Options{.workers = -1}, Options{.workers = 2000}, Options{.io_workers = 0},
                               Options{.max_pending = 0}, Options{.max_pending_bytes = 0}})
    CHECK_THROWS(Engine::create(wrong), EngineMisuse);
}

TEST(errors_are_found_by_the_checking_mode) {
  auto engine = Engine::create({.workers = 2, .check = true});
  Variable read(engine), written(engine), overwritten(engine), other(engine);
  Log<std::string> refused;
  auto look = [&](const char* what, Var& var, bool write) {
    try {
      engine->check_access(var, write);
    } catch (const EngineMisuse&) {
      refused.add(what);
    }
  };
  auto fn = [&](RunContext&) {
    look("read read", *read, false);
    look("write read", *read, true);
    look("read written", *written, false);
    look("write written", *written, true);
    look("read overwritten", *overwritten, false);
    look("write overwritten", *overwritten, true);
    look("read other", *other, false);
  };
  engine->submit(make_op(fn, {written}, {overwritten}, {read}, "f"), {});
  engine->wait_for_all();
  CHECK_EQ(refused.items(), (std::vector<std::string>{"write read", "read overwritten", "read other"}));
  engine->check_access(*read, true);
}

TEST(errors_are_found_by_the_checking_mode_outside_of_functions) {
  Gate gate, second;
  auto engine = Engine::create({.workers = 2, .check = true});
  Variable read(engine), written(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {read}, {written});
  engine->check_access(*read, false);
  CHECK_THROWS(engine->check_access(*read, true), EngineMisuse);
  CHECK_THROWS(engine->check_access(*written, false), EngineMisuse);
  gate.open();
  engine->wait_for_all();
  engine->check_access(*written, true);
  engine->begin_bulk(16);
  push(*engine, [&](RunContext&) { second.pass(); }, {}, {written});
  CHECK_THROWS(engine->check_access(*written, false), EngineMisuse);  // collected, but pushed all the same
  second.open();
  engine->end_bulk();
}
