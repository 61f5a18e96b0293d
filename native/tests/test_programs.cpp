// Programs, written down by hand, with plain functions in place of compiled code: what they compute against
// serial references, what they write, prepare, and leave behind when a step fails, on one thread and several.
#include "tests/program_support.h"

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "engine/team.h"
#include "kernels/kernels.h"
#include "program/control.h"
#include "program/loop_check.h"
#include "tests/child.h"

using namespace weft;
using namespace weft::testing;

namespace {

uint64_t word(int64_t x) { return static_cast<uint64_t>(x); }
int64_t times_plus(int64_t a, int64_t b, int64_t c) {
  return static_cast<int64_t>(word(a) * word(b) + word(c));
}

Values map(const Values& a, const Values& b, const std::function<int64_t(int64_t, int64_t)>& f) {
  Values found;
  for (size_t i = 0; i < a.size(); ++i) found.push_back(f(a[i], b[i]));
  return found;
}

// A random program of int64 arrays [n, m] and rows of them, and what it comes to, step by step.
class Drawn {
 public:
  Drawn(uint64_t start, int64_t n, int64_t m) : random_(start), n_(n), m_(m) {
    const int inputs = random_.between(1, 3);
    for (int k = 0; k < inputs; ++k) {
      const bool is_row = k > 0 && random_.chance(40);
      const bool turned = !is_row && random_.chance(30);  // columns lie one after the other
      inputs_.push_back({is_row, turned});
      draft.input(is_row ? Sizes{n, 1} : Sizes{n, m}, DType::int64,
                  turned   ? Sizes{1, n}
                  : is_row ? Sizes{1, 1}
                           : Sizes{m, 1});
      values_.push_back({k, is_row});
    }
    const int steps = random_.between(1, 9);
    for (int t = 0; t < steps; ++t) add_step(t + 1 == steps);
  }

  std::vector<Tensor> arguments() const {
    std::vector<Tensor> given;
    int64_t start = 1;
    for (const auto& [is_row, turned] : inputs_) {
      const Tensor x = counted(is_row ? Sizes{n_, 1} : turned ? Sizes{m_, n_} : Sizes{n_, m_}, start, 3);
      given.push_back(turned ? transpose_last(x) : x);
      start += 17;
    }
    return given;
  }
  // Of each output, from the elements of the inputs.
  std::vector<Values> reference(std::vector<Values> known) const {
    std::map<int, Values> all;
    for (size_t k = 0; k < known.size(); ++k) all[static_cast<int>(k)] = std::move(known[k]);
    for (const auto& f : meaning_) f(all);
    std::vector<Values> found;
    for (const Program::Output& output : draft.program->outputs) found.push_back(all[output.value]);
    return found;
  }

  Draft draft;

 private:
  struct Known {
    int value;
    bool is_row;
  };

  int make(bool is_row, bool leaves) {
    const Sizes shape = is_row ? Sizes{n_, 1} : Sizes{n_, m_};
    return leaves || random_.chance(25) ? draft.output(shape) : draft.temporary(shape);
  }
  Known any() {
    const int count = static_cast<int>(values_.size());
    return values_[static_cast<size_t>(random_.chance(60) ? std::max(0, count - 1 - random_.below(3))
                                                          : random_.below(count))];
  }
  int64_t at(const Values& x, int64_t i, bool is_row) const {
    return x[static_cast<size_t>(is_row ? i / m_ : i)];
  }

  void add_step(bool last) {
    const Known a = any(), b = any(), c = any();
    const int kind = random_.below(5);
    if (kind == 0 && !a.is_row) {
      const int y = make(true, last);
      draft.step(row_sum(1), {a.value, y}, "row_sum");
      meaning_.push_back([=, this](std::map<int, Values>& all) {
        for (int64_t i = 0; i < n_; ++i) {
          uint64_t total = 0;
          for (int64_t j = 0; j < m_; ++j) total += word(all[a.value][static_cast<size_t>(i * m_ + j)]);
          all[y].push_back(static_cast<int64_t>(total));
        }
      });
      values_.push_back({y, true});
      return;
    }
    if (kind == 1 && !a.is_row) {  // along columns
      const int y = make(false, last);
      draft.step(less_sum(2), {a.value, y}, "less_sum");
      meaning_.push_back([=, this](std::map<int, Values>& all) {
        const Values& x = all[a.value];
        std::vector<uint64_t> totals(static_cast<size_t>(m_));
        for (size_t i = 0; i < x.size(); ++i) totals[i % totals.size()] += word(x[i]);
        Values made;
        for (size_t i = 0; i < x.size(); ++i)
          made.push_back(static_cast<int64_t>(word(x[i]) - totals[i % totals.size()]));
        all[y] = std::move(made);
      });
      values_.push_back({y, false});
      return;
    }
    if (kind == 2) {
      const bool is_row = a.is_row && b.is_row;
      const int y = make(is_row, last), z = make(is_row, last);
      draft.step(elements<Both>(2), {a.value, b.value, y, z}, "both");
      meaning_.push_back([=, this](std::map<int, Values>& all) {
        Values first, second;
        for (int64_t i = 0; i < (is_row ? n_ : n_ * m_); ++i) {
          const uint64_t p = word(at(all[a.value], i, a.is_row && !is_row));
          const uint64_t q = word(at(all[b.value], i, b.is_row && !is_row));
          first.push_back(static_cast<int64_t>(p + 2 * q));
          second.push_back(static_cast<int64_t>(p - q));
        }
        all[y] = std::move(first);
        all[z] = std::move(second);
      });
      values_.push_back({y, is_row});
      values_.push_back({z, is_row});
      return;
    }
    const bool is_row = a.is_row && b.is_row && c.is_row;
    const int y = make(is_row, last);
    draft.step(elements<MultiplyAdd>(), {a.value, b.value, c.value, y}, "multiply_add");
    meaning_.push_back([=, this](std::map<int, Values>& all) {
      Values made;
      for (int64_t i = 0; i < (is_row ? n_ : n_ * m_); ++i)
        made.push_back(times_plus(at(all[a.value], i, a.is_row && !is_row),
                                  at(all[b.value], i, b.is_row && !is_row),
                                  at(all[c.value], i, c.is_row && !is_row)));
      all[y] = std::move(made);
    });
    values_.push_back({y, is_row});
  }

  Random random_;
  const int64_t n_, m_;
  std::vector<std::pair<bool, bool>> inputs_;
  std::vector<Known> values_;
  std::vector<std::function<void(std::map<int, Values>&)>> meaning_;
};

// Small ones, ones that are divided among threads, long rows, and few rows side by side.
constexpr std::pair<int64_t, int64_t> kSizes[] = {{3, 5}, {1, 7}, {6, 1}, {70, 900}, {1, 70000}, {20000, 5}};

void check_drawn(uint64_t start, EngineKind kind) {
  const auto [n, m] = kSizes[start % std::size(kSizes)];
  const Drawn drawn(start, n, m);
  for (const bool exact : {true, false}) {
    Drawn copy(start, n, m);
    const Ref<const Program> program = copy.draft.finish(exact);
    Arrays arrays(kind);
    const std::vector<Tensor> given = copy.arguments();
    std::vector<Values> known;
    for (const Tensor& x : given) known.push_back(values_of(x));
    const std::vector<Values> wanted = drawn.reference(known);
    for (int run = 0; run < 2; ++run) {
      const std::vector<Tensor> found = launch(*program, given);
      for (size_t j = 0; j < found.size(); ++j) CHECK_EQ(values_of(found[j]), wanted[j]);
    }
  }
}

}  // namespace

TEST(programs_drawn_at_random) {
  set_team_size(3);
  for (uint64_t k = 0; k < static_cast<uint64_t>(scaled(120)); ++k)
    check_drawn(seed() * 1000 + k, EngineKind::threaded);
}

TEST(programs_drawn_at_random_on_a_naive_engine) {
  set_team_size(3);
  for (uint64_t k = 0; k < static_cast<uint64_t>(scaled(40)); ++k)
    check_drawn(seed() * 1000 + 500 + k, EngineKind::naive);
}

TEST(programs_are_launched_by_several_threads) {
  set_team_size(3);
  for (uint64_t k = 0; k < static_cast<uint64_t>(scaled(30)); ++k) {
    const uint64_t start = seed() * 1000 + k;
    const auto [n, m] = kSizes[start % std::size(kSizes)];
    Drawn drawn(start, n, m);
    // Nothing of it has run: the threads find code, and what steps are bound to, together.
    const Ref<const Program> program = drawn.draft.finish();
    Arrays arrays;
    const std::vector<Tensor> given = drawn.arguments();
    std::vector<Values> known;
    for (const Tensor& x : given) known.push_back(values_of(x));
    const std::vector<Values> wanted = drawn.reference(known);
    in_threads(3, [&](int) {
      for (int run = 0; run < 2; ++run) {
        const std::vector<Tensor> found = launch(*program, given);
        for (size_t j = 0; j < found.size(); ++j) CHECK_EQ(values_of(found[j]), wanted[j]);
      }
    });
  }
}

TEST(programs_code_is_compiled_once_for_each_pattern) {
  Arrays arrays;
  std::atomic<int> compiled{0};
  const Ref<Kernel> loop = elements<Add>(1, [&](const LoopPattern& pattern) {
    compiled.fetch_add(1);
    return compile_elements<Add>(pattern);
  });
  Draft draft;
  const int a = draft.input({4, 5}), b = draft.input({4, 5}), c = draft.input({1, 5}, DType::int64, {0, 1});
  const int y = draft.temporary({4, 5}), z = draft.output({4, 5});
  draft.step(loop, {a, b, y});
  draft.step(loop, {y, c, z});
  const Ref<const Program> program = draft.finish();
  const std::vector<Tensor> given{counted({4, 5}), counted({4, 5}, 5), counted({1, 5})};
  const uint64_t misses = loop_misses;
  for (int run = 0; run < 3; ++run) {
    const Values found = values_of(launch(*program, given)[0]);
    for (int64_t i = 0; i < 20; ++i) CHECK_EQ(found[static_cast<size_t>(i)], 2 * i + 5 + i % 5);
  }
  CHECK_EQ(compiled.load(), 2);
  CHECK_EQ(loop_misses - misses, uint64_t{2});
}

TEST(programs_with_sizes_of_their_inputs) {
  // x[n] -> x + x, of any n.
  Draft draft;
  Program& p = *draft.program;
  p.uses = {Program::Use::data};
  p.registers = 1;
  p.loads = {{Program::Load::From::extent, 0, 0, 0}};
  p.values = {{Program::Value::Kind::output, DType::int64, -1, -1, -1, {0}, {}}};
  p.outputs.resize(1);
  p.outputs[0].value = 1;
  p.outputs[0].flexible = true;
  draft.step(elements<Add>(), {0, 0, 1});
  p.finish();
  Arrays arrays;
  for (const int64_t n : {0, 1, 7, 100000}) {
    const Tensor y = launch(p, {counted({n})})[0];
    CHECK_EQ(values_of(y), counts(n, 0, 2));
  }
}

TEST(programs_write_their_inputs) {
  // c += a * b, whatever lies where.
  for (const bool exact : {true, false}) {
    Draft draft("accumulate");
    const int64_t n = 40000;
    const int a = draft.input({n}), b = draft.input({n}), c = draft.input({n});
    const int y = draft.write(c, {n});
    draft.step(elements<MultiplyAdd>(), {a, b, c, y});
    const Ref<const Program> program = draft.finish(exact);
    Arrays arrays;
    const Tensor x = counted({n}), w = counted({n}, 1), sum = empty({n});
    push_fill(sum, integer(0));
    for (int run = 1; run <= 3; ++run) {
      const Tensor made = launch(*program, {x, w, sum})[0];
      CHECK(made.data == sum.data);
      CHECK_EQ(values_of(sum),
               map(counts(n), counts(n, 1), [&](int64_t p, int64_t q) { return run * p * q; }));
    }
    // Operands that are the array that is written, and one that lies across it.
    launch(*program, {sum, w, sum});
    CHECK_EQ(values_of(sum),
             map(counts(n), counts(n, 1), [](int64_t p, int64_t q) { return 3 * p * q * (q + 1); }));
    const Tensor long_one = counted({n + 1});
    const Tensor from = long_one.as_strided(long_one.data + 8, Sizes{n}, Sizes{1});
    const Tensor to = long_one.as_strided(long_one.data, Sizes{n}, Sizes{1});
    launch(*program, {from, w, to});
    CHECK_EQ(values_of(to),
             map(counts(n), counts(n, 1), [](int64_t p, int64_t q) { return (p + 1) * q + p; }));
  }
}

TEST(programs_write_where_they_are_told) {
  const int64_t n = 50, m = 4;
  for (const bool exact : {true, false}) {
    Draft draft;
    const int a = draft.input({n, m}), b = draft.input({n, m});
    const int y = draft.temporary({n, m}), z = draft.output({n, m});
    draft.step(elements<Add>(), {a, b, y});
    draft.step(elements<Add>(), {y, a, z});
    const Ref<const Program> program = draft.finish(exact);
    Arrays arrays;
    const Tensor x = counted({n, m}), w = counted({n, m}, 7);
    const Values wanted =
        map(counts(n * m), counts(n * m, 7), [](int64_t p, int64_t q) { return 2 * p + q; });
    const Tensor plain = empty({n, m}), turned = transpose_last(empty({m, n}));
    const Tensor wide = empty({n, 2 * m});
    const Tensor gaps = wide.as_strided(wide.data, Sizes{n, m}, Sizes{2 * m, 2});
    const Tensor other = empty({n, m}, DType::float64);
    for (const Tensor* to : {&plain, &turned, &gaps}) {
      const Tensor made = launch(*program, {x, w}, {}, {to})[0];
      CHECK(made.data == to->data);
      CHECK_EQ(values_of(*to), wanted);
    }
    launch(*program, {x, w}, {}, {&other});
    wait_for(other);
    for (size_t i = 0; i < wanted.size(); ++i)
      CHECK_EQ(reinterpret_cast<const double*>(other.data)[i], static_cast<double>(wanted[i]));
    launch(*program, {x, w}, {}, {&x});  // an operand of both steps
    CHECK_EQ(values_of(x), wanted);
  }
}

TEST(programs_take_numbers) {
  Draft draft;
  const int a = draft.input({3}), y = draft.output({3}), z = draft.output({3});
  using From = Program::Slot::From;
  draft.program->slots = {{From::number, DType::int64, 1}, {From::constant, DType::int64, 0, 10}};
  draft.step(elements<Scale>(), {a, y}, "scale", 0);
  draft.step(elements<Scale>(), {a, z}, "scale", 1);
  const Ref<const Program> program = draft.finish();
  CHECK_EQ(program->numbers_taken(), size_t{2});
  Arrays arrays;
  const Tensor x = counted({3}, 1);
  for (const int64_t by : {2, -5}) {
    const std::vector<Tensor> found = launch(*program, {x}, {integer(0), integer(by)});
    CHECK_EQ(values_of(found[0]), (Values{by, 2 * by, 3 * by}));
    CHECK_EQ(values_of(found[1]), (Values{10, 20, 30}));
  }
  Scalar large{Scalar::Kind::unsigned_integer, {.unsigned_integer = ~uint64_t{0}}};
  CHECK_THROWS(launch(*program, {x}, {integer(0), large}), std::overflow_error);
}

TEST(programs_draw_random_numbers_when_they_are_launched) {
  const int64_t n = 5000;
  Draft draft;
  const int a = draft.input({n}, DType::float32), y = draft.output({n}, DType::float32);
  using From = Program::Slot::From;
  draft.program->slots = {{From::random, DType::uint64, 0},
                          {From::random, DType::uint64, 0},
                          {From::random, DType::uint64, 0},
                          {From::constant, DType::float64, 0, 0.25}};
  draft.program->randoms = {{Draw::bits, DType::uint32, draft.reg(n), 0}};
  draft.step(make_dropout(false), {a, y});
  const Ref<const Program> program = draft.finish();
  Arrays arrays;
  const Tensor x = empty({n}, DType::float32);
  push_fill(x, integer(1));
  const auto run = [&] {
    const Tensor made = launch(*program, {x})[0];
    wait_for(made);
    const auto* items = reinterpret_cast<const float*>(made.data);
    return std::vector<float>(items, items + n);
  };
  Runtime::get().seed_all(7);
  const auto first = run(), second = run();
  Runtime::get().seed_all(7);
  CHECK(run() == first);
  CHECK(run() == second);
  CHECK(first != second);
  CHECK(std::ranges::all_of(first, [](float v) { return v == 0 || v == 1 / 0.75F; }));
}

// A gradient y = a + b, an update w += y, then a check that fails or not, and something that needs neither.
struct Training {
  Training(bool fails_first, bool exact) {
    Draft draft("training");
    a = draft.input({4}), b = draft.input({4}), w = draft.input({4});
    const int y = draft.temporary({4});
    loss = draft.output({4});
    const int update = draft.write(w, {4}, true);
    other = draft.output({4});
    const int scratch = draft.temporary({4});
    draft.step(elements<Add>(), {a, b, y}, "add");
    if (fails_first) draft.step(Ref<Kernel>(new Failing(2)), {y, loss}, "check");
    draft.step(elements<Add>(), {y, w, update}, "update");
    if (!fails_first) draft.step(Ref<Kernel>(new Failing(2)), {y, loss}, "check");
    draft.step(elements<Add>(), {a, a, scratch}, "double");
    draft.step(elements<Add>(), {scratch, a, other}, "other");
    program = draft.finish(exact);
  }
  int a, b, w, loss, other;
  Ref<const Program> program;
};

TEST(programs_commit_nothing_after_a_failure) {
  for (const bool exact : {true, false}) {
    for (const EngineKind kind : {EngineKind::threaded, EngineKind::naive}) {
      const Training training(true, exact);
      Arrays arrays(kind);
      const Tensor x = counted({4}), w = counted({4}, 100);
      const std::vector<Tensor> found = launch(*training.program, {x, x, w});
      CHECK_EQ(failure_of(found[0]), std::string("check in training"));
      CHECK_EQ(values_of(w), counts(4, 100));          // as it was, and not poisoned
      CHECK_EQ(values_of(found[2]), counts(4, 0, 3));  // needs nothing of what failed
      CHECK_THROWS(wait_for(found[0]), OperationFailed);
    }
  }
}

TEST(programs_keep_updates_that_were_done_before_a_failure) {
  for (const bool exact : {true, false}) {
    const Training training(false, exact);
    Arrays arrays;
    const Tensor x = counted({4}), w = counted({4}, 100);
    const std::vector<Tensor> found = launch(*training.program, {x, x, w});
    CHECK_EQ(failure_of(found[0]), std::string("check in training"));
    CHECK_EQ(values_of(w), counts(4, 100, 3));
    CHECK_EQ(values_of(found[2]), counts(4, 0, 3));
  }
}

TEST(programs_prepare_when_an_input_was_written) {
  set_team_size(3);
  const int64_t n = 3000;
  Draft draft;
  const int x = draft.input({n}), w = draft.input({n});
  const int doubled = draft.kept({n}), half_way = draft.temporary({n}), four = draft.kept({n}),
            y = draft.output({n});
  draft.step(elements<Add>(), {w, w, half_way});
  draft.step(elements<Add>(), {half_way, w, doubled});  // 3 w
  draft.step(elements<Add>(), {doubled, w, four});      // 4 w
  draft.step(elements<MultiplyAdd>(), {x, doubled, four, y});
  draft.program->hoisted = {{{w}, {half_way}}, {{half_way, w}, {doubled}}, {{doubled, w}, {four}}};
  const Ref<const Program> program = draft.finish();
  Arrays arrays;
  const Tensor given = counted({n}), weight = counted({n}, 1);
  const auto wanted = [&](int64_t start) {
    return map(counts(n), counts(n, start), [](int64_t p, int64_t q) { return p * 3 * q + 4 * q; });
  };
  const auto hoisted = [] { return Program::hoisted_kernels.load(); };
  const uint64_t before = hoisted();
  for (int run = 0; run < 3; ++run) CHECK_EQ(values_of(launch(*program, {given, weight})[0]), wanted(1));
  CHECK_EQ(hoisted() - before, uint64_t{3});
  push_range(weight, integer(5), integer(1));
  for (int run = 0; run < 3; ++run) CHECK_EQ(values_of(launch(*program, {given, weight})[0]), wanted(5));
  CHECK_EQ(hoisted() - before, uint64_t{6});
  // On several threads at once, with two weights in turn.
  const Tensor more = counted({n}, 9);
  in_threads(3, [&](int) {
    for (int run = 0; run < scaled(40); ++run) {
      CHECK_EQ(values_of(launch(*program, {given, weight})[0]), wanted(5));
      CHECK_EQ(values_of(launch(*program, {given, more})[0]), wanted(9));
    }
  });
}

TEST(programs_check_that_steps_keep_to_their_memory) {
  struct Wanders final : Kernel {
    void run(const Call& call) const override { store_as(call.operands[1].data + 64, int64_t{1}); }
  };
  for (const bool wanders : {false, true}) {
    Draft draft;
    const int a = draft.input({8});
    const int y = draft.temporary({8});
    draft.temporary({8});  // free while the steps before the last one run
    const int z = draft.temporary({8}), sum = draft.output({8});
    draft.step(elements<Add>(), {a, a, z}, "double");
    draft.step(wanders ? Ref<Kernel>(new Wanders) : elements<Scale>(), {a, y}, "step");
    draft.step(elements<Add>(), {y, z, sum}, "add");
    draft.program->slots = {{Program::Slot::From::constant, DType::int64, 0, 1}};
    draft.program->check = true;
    draft.program->spans = {{1, 2, 0, 64}, {2, 2, 64, 64}, {0, 2, 128, 64}};
    const Ref<const Program> program = draft.finish();
    Arrays arrays;
    const Tensor found = launch(*program, {counted({8})})[0];
    if (wanders)
      CHECK_THROWS(wait_for(found), OperationFailed);
    else
      CHECK_EQ(values_of(found), counts(8, 0, 3));
    if (wanders) CHECK_THROWS(arrays->wait_for_all(), OperationFailed);
  }
}

// --- programs inside of programs

namespace {

// h, x, w -> h * w + x, and that plus x. In the order (x, h, w).
Ref<const Program> recurrence(int64_t m) {
  Draft body("body");
  const int x = body.input({m}), h = body.input({m}), w = body.input({m});
  const int next = body.output({m}), item = body.output({m}), twice = body.temporary({m});
  body.step(elements<MultiplyAdd>(), {h, w, x, next});
  body.step(elements<Add>(), {x, next, twice});
  body.step(elements<Add>(), {twice, x, item});
  return body.finish();
}

}  // namespace

TEST(programs_check_that_pieces_of_loops_are_in_their_operands) {
  const int64_t shape[] = {3, 4}, strides[] = {-8, 2};  // elements: from -16 to 6
  std::vector<int64_t> memory(64);
  char* const operand = reinterpret_cast<char*>(memory.data() + 20);
  const LoopReach reach = LoopReach::of(View{operand, DType::int64, 2, shape, strides});
  CHECK_EQ(reach.begin, int64_t{-16 * 8});
  CHECK_EQ(reach.end, int64_t{7 * 8});
  const int64_t bytes[] = {-64, 16};
  const auto check = [&](int64_t moved, std::vector<int64_t> sizes) {
    check_piece(1, reach, operand, operand + 8 * moved, 2, sizes.data(), bytes, 8);
  };
  check(0, {3, 4});
  check(-8, {2, 4});
  check(-16, {1, 4});
  check(6, {1, 1});
  check(6, {0, 0});
  if (skipped()) return;
  const auto ends_the_process = [&](int64_t moved, std::vector<int64_t> sizes) {
    const pid_t child = fork();
    if (child == 0) {
      static_cast<void>(std::freopen("/dev/null", "w", stderr));
      check(moved, sizes);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  };
  CHECK(!ends_the_process(0, {3, 4}));
  CHECK(ends_the_process(1, {3, 4}));
  CHECK(ends_the_process(-8, {3, 4}));
  CHECK(ends_the_process(0, {3, 5}));
  CHECK(ends_the_process(7, {0, 0}));
}

TEST(programs_run_for_each_slice) {
  set_team_size(3);
  for (const int64_t m : {3, 40000})
    for (const int64_t length : {0, 1, 5})
      for (const bool reverse : {false, true})
        for (const bool saved : {false, true})
          for (const int64_t count : {int64_t{-1}, int64_t{3}}) {
            const bool counted_form = count >= 0;
            Draft draft("outer");
            std::vector<int> operands;
            if (counted_form) operands.push_back(draft.input({}));
            for (const Sizes& shape : {Sizes{length, m}, Sizes{m}, Sizes{m}})
              operands.push_back(draft.input(shape));
            operands.push_back(draft.output({m}));
            operands.push_back(draft.output({length, m}));
            if (saved) operands.push_back(draft.output({length, m}));
            draft.step(
                make_control({{recurrence(m)}, ForeachForm{1, 1, 1, 1, {saved}, reverse, counted_form}}),
                operands);
            const Ref<const Program> program = draft.finish();
            Arrays arrays;
            std::vector<Tensor> given;
            const Tensor number = empty({});
            push_fill(number, integer(count));
            if (counted_form) given.push_back(number);
            given.insert(given.end(), {counted({length, m}), counted({m}, 2), counted({m}, 1, 2)});
            const std::vector<Tensor> found = launch(*program, given);
            Values h = counts(m, 2);
            const Values x = counts(length * m), w = counts(m, 1, 2);
            Values items(x.size()), before(x.size());
            const int64_t steps = counted_form ? std::min(count, length) : length;
            for (int64_t t = 0; t < steps; ++t) {
              const int64_t p = reverse ? steps - 1 - t : t;
              for (int64_t j = 0; j < m; ++j) {
                const auto at = static_cast<size_t>(p * m + j), k = static_cast<size_t>(j);
                before[at] = h[k];
                h[k] = times_plus(h[k], w[k], x[at]);
                items[at] = static_cast<int64_t>(2 * word(x[at]) + word(h[k]));
              }
            }
            CHECK_EQ(values_of(found[0]), h);
            CHECK_EQ(values_of(found[1]), items);
            if (saved) CHECK_EQ(values_of(found[2]), before);
          }
}

TEST(programs_run_while_a_condition_holds) {
  for (const int64_t m : {4, 50000}) {
    Draft condition("condition"), body("body");
    {
      const int i = condition.input({}), h = condition.input({m}), limit = condition.input({});
      static_cast<void>(h);
      const int holds = condition.output({}, DType::bool_);
      condition.step(elements<Less>(), {i, limit, holds});
    }
    {
      const int i = body.input({}), h = body.input({m}), limit = body.input({});
      static_cast<void>(limit);
      const int next = body.output({}), twice = body.output({m});
      const int one = body.view(i, {}, {});
      body.program->slots = {{Program::Slot::From::constant, DType::int64, 0, 2}};
      body.step(elements<Scale>(), {one, next});
      body.step(elements<Add>(), {h, h, twice});
    }
    const Ref<const Program> test = condition.finish(), work = body.finish();
    for (const int64_t most : {int64_t{-1}, int64_t{2}, int64_t{6}}) {
      const bool saved = most >= 0;
      Draft draft("outer");
      std::vector<int> operands{draft.input({}), draft.input({m}), draft.input({})};
      operands.insert(operands.end(), {draft.output({}), draft.output({m}), draft.output({})});
      if (saved) operands.push_back(draft.output({most, m}));
      draft.step(make_control({{test, work}, WhileForm{2, 1, most, true, {false, saved}}}), operands);
      const Ref<const Program> program = draft.finish();
      Arrays arrays;
      const Tensor i = empty({}), limit = empty({}), h = counted({m}, 1);
      for (const int64_t end : {1, 9}) {
        push_fill(i, integer(1));
        push_fill(limit, integer(end));
        const std::vector<Tensor> found = launch(*program, {i, h, limit});
        int64_t turns = 0, at = 1;
        for (; at < end && turns != most; at *= 2) ++turns;
        CHECK_EQ(values_of(found[0]), Values{at});
        CHECK_EQ(values_of(found[1]), counts(m, at, at));
        CHECK_EQ(values_of(found[2]), Values{turns});
        if (!saved) continue;
        Values stack;
        for (int64_t t = 0; t < most; ++t)
          for (const int64_t v : counts(m, t < turns ? int64_t{1} << t : 0, t < turns ? int64_t{1} << t : 0))
            stack.push_back(v);
        CHECK_EQ(values_of(found[3]), stack);
      }
    }
  }
}

TEST(programs_run_one_branch) {
  const int64_t m = 60000;
  Draft then("then"), otherwise("otherwise");
  for (Draft* branch : {&then, &otherwise}) {
    const int a = branch->input({m}), b = branch->input({m});
    const int y = branch->output({m});
    branch->step(branch == &then ? elements<Add>() : elements<Subtract>(), {a, b, y});
  }
  Draft draft("outer");
  std::vector<int> operands{draft.input({}, DType::bool_), draft.input({m}), draft.input({m})};
  operands.push_back(draft.output({m}));
  draft.step(make_control({{then.finish(), otherwise.finish()}, CondForm{2}}), operands);
  const Ref<const Program> program = draft.finish();
  Arrays arrays;
  const Tensor a = counted({m}), b = counted({m}, 3, 2), flag = empty({}, DType::bool_);
  for (const bool holds : {true, false}) {
    push_fill(flag, {Scalar::Kind::boolean, {.boolean = holds}});
    CHECK_EQ(values_of(launch(*program, {flag, a, b})[0]),
             map(counts(m), counts(m, 3, 2), [&](int64_t p, int64_t q) { return holds ? p + q : p - q; }));
  }
  // Programs that write their inputs, or want numbers, run inside of no other.
  Draft writes;
  const int x = writes.input({m});
  writes.step(elements<Add>(), {x, x, writes.write(x, {m})});
  CHECK_THROWS(make_control({{writes.finish(), two_steps(m)}, CondForm{2}}), std::logic_error);
}

TEST(programs_of_several_devices) {
  const Device there{DeviceKind::cpu, 1};
  const int64_t n = 30000;
  const auto part = [&](const char* name, Ref<Kernel> kernel, int inputs, Device device, int writes = -1) {
    Draft draft(name);
    draft.program->device = device;
    std::vector<int> operands;
    for (int k = 0; k < inputs; ++k) operands.push_back(draft.input({n}));
    operands.push_back(writes >= 0 ? draft.write(writes, {n}) : draft.output({n}));
    draft.program->values.back().device = device;
    draft.step(std::move(kernel), operands, name);
    return draft.finish();
  };
  Draft draft("joined");
  Program& p = *draft.program;
  draft.input({n}), draft.input({n}), draft.input({n});
  // y = (a + b) on one device, z = y + y on another, c += a after both have read c.
  p.parts.push_back({part("sum", elements<Add>(), 2, {}), {0, 1}, {}, {3}});
  p.parts.push_back({part("update", elements<Add>(), 2, {}, 0), {2, 0}, {}, {4}});
  p.parts.push_back({part("late", elements<Add>(), 2, there), {3, 2}, {}, {5}});
  for (const auto& [wire, device] : {std::pair<int, Device>{3, {}}, {5, there}}) {
    p.output_wires.push_back(wire);
    draft.output({n});
    p.values.back().device = device;
  }
  p.exact = true;
  p.finish();
  Arrays arrays;
  for (int run = 0; run < 3; ++run) {
    const Tensor a = counted({n}), b = counted({n}, 2), c = counted({n}, 50);
    const std::vector<Tensor> found = launch(p, {a, b, c});
    CHECK(found[1].device() == there);
    CHECK_EQ(values_of(found[0]), counts(n, 2, 2));
    CHECK_EQ(values_of(found[1]), counts(n, 52, 3));  // of what c was before the program
    CHECK_EQ(values_of(c), counts(n, 50, 2));
  }
}
