// Programs that are refused, and what is seen of those that run: their steps, and results that are not
// numbers.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "program/nan_watch.h"
#include "program/step_log.h"
#include "tests/child.h"
#include "tests/program_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

struct TimesZero {
  static constexpr int operands = 2;
  static void run(char* const* at, const void*) { store_as(at[1], load_as<float>(at[0]) * 0.0F); }
};

}  // namespace

TEST(programs_are_validated) {
  using Break = std::function<void(Program&)>;
  const Break breaks[] = {
      [](Program& p) { p.registers = -1; },
      [](Program& p) { p.constants[0].first = 99; },
      [](Program& p) { p.loads.push_back({Program::Load::From::extent, 0, 0, 0}); },
      [](Program& p) { p.computes.push_back({Program::Compute::What::add, 0, 0, 99}); },
      [](Program& p) { p.arena_bytes = 1000; },
      [](Program& p) { p.arena_bytes = -1; },
      [](Program& p) { p.values[0].sizes[0] = -2; },
      [](Program& p) { p.values[0].offset = 77; },
      [](Program& p) { p.values[0].strides.clear(); },
      [](Program& p) { p.values[0].kind = Program::Value::Kind::input; },
      [](Program& p) { p.values[0].kind = Program::Value::Kind::output; },
      [](Program& p) { p.values[1].like = 3; },
      [](Program& p) { p.values.push_back({Program::Value::Kind::view, DType::int64, 5, 0, -1, {0}, {0}}); },
      [](Program& p) { p.values[1].sizes.resize(99); },
      [](Program& p) { p.outputs[0].value = 12; },
      [](Program& p) { p.outputs[0].value = 3; },  // a temporary
      [](Program& p) { p.outputs[0].writes = 3; },
      [](Program& p) { p.slots.push_back({Program::Slot::From::reg, DType::int64, 44}); },
      [](Program& p) { p.slots.push_back({Program::Slot::From::number, DType::int64, -1}); },
      [](Program& p) { p.randoms.push_back({Draw::bits, DType::uint32, 0, 0}); },
      [](Program& p) { p.steps[0].operands.pop_back(); },
      [](Program& p) { p.steps[0].operands[0] = 42; },
      [](Program& p) { p.steps[0].kernel = {}; },
      [](Program& p) { p.steps[1].first_slot = 3; },
      [](Program& p) { p.steps[1].in_place.emplace_back(0, 9); },
      [](Program& p) { p.hoisted.resize(3); },
      [](Program& p) { p.hoisted.push_back({{0}, {99}}); },
      [](Program& p) { p.spans.push_back({1, 0, 0, 8}); },
  };
  for (const Break& damage : breaks) {
    Draft draft;
    const int a = draft.input({2}), b = draft.input({2}), c = draft.input({2});
    const int y = draft.temporary({2}), z = draft.output({2});
    draft.step(elements<MultiplyAdd>(), {a, b, c, y});
    draft.step(elements<Add>(), {y, a, z});
    draft.program->arena_bytes = draft.reg(64);
    draft.program->exact = true;
    damage(*draft.program);
    CHECK_THROWS(draft.program->finish(), ValueError);
  }
}

TEST(programs_steps_are_written_down) {
  Arrays arrays;
  const int64_t n = 100;
  const Ref<const Program> program = two_steps(n);
  const std::vector<Tensor> given{counted({n}), counted({n}), counted({n})};
  CHECK(StepLog::open());
  CHECK(!StepLog::open());
  in_threads(2, [&](int) {
    for (int run = 0; run < 5; ++run) wait_for(launch(*program, given)[0]);
  });
  const StepLog::Closed log = StepLog::close();
  CHECK_EQ(log.spans.size(), size_t{2 * 5 * 2});
  int64_t bytes = 0;
  for (const StepLog::Span& span : log.spans) {
    CHECK(span.end_ns >= span.start_ns);
    CHECK(span.program.get() == program.get());
    bytes += span.bytes;
  }
  CHECK_EQ(bytes, 10 * (4 + 3) * 8 * n);
}

TEST(programs_with_nan_fail_when_they_are_watched) {
  const int64_t n = 20000;
  for (const bool exact : {true, false}) {
    Draft draft("nan");
    const int x = draft.input({n}, DType::float32), y = draft.temporary({n}, DType::float32);
    const int z = draft.output({n}, DType::float32);
    draft.step(elements<TimesZero>(), {x, y}, "first");
    draft.step(elements<TimesZero>(), {y, z}, "second");
    for (Program::Step& step : draft.program->steps) step.written = {1};
    const Ref<const Program> program = draft.finish(exact);
    Arrays arrays;
    const Tensor given = empty({n}, DType::float32);
    push_fill(given, integer(1));
    wait_for(given, true);
    NanWatch::set(1);
    CHECK_EQ(failure_of(launch(*program, {given})[0]), std::string());
    reinterpret_cast<float*>(given.data)[n - 3] = std::numeric_limits<float>::infinity();
    CHECK_EQ(failure_of(launch(*program, {given})[0]), std::string("first in nan"));
    NanWatch::set(0);
    CHECK_EQ(failure_of(launch(*program, {given})[0]), std::string());
  }
}
