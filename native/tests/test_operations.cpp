// Arrays on the engine: kernels run in order against a serial oracle, overlap, errors, and memory that
// returns when its last user, a handle or a pending operation, has gone.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/array_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

IndexItem slice(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step = 1) {
  return {IndexItem::Kind::slice, start.value_or(0), stop.value_or(0), step,
          start.has_value(),      stop.has_value()};
}
Tensor at(const Tensor& x, std::vector<IndexItem> items) { return index(x, items); }

PoolStats memory() { return Runtime::get().pool({}).stats(); }
// Chunks go with the operations' blocks, which a worker gives back a moment after the operation has finished.
bool memory_returns() {
  return soon([] { return memory().live_blocks == 0 && memory().in_use_bytes == 0; });
}

void push_on(Engine& engine, auto&& fn, std::vector<Chunk*> reads, std::vector<Chunk*> writes,
             const char* name, QueueKind queue = QueueKind::compute) {
  Op* op = new_op(reads.size() + writes.size());
  for (Chunk* chunk : writes) op->add(chunk, Mode::write);
  for (Chunk* chunk : reads) op->add(chunk, Mode::read);
  op->retain_variables();
  op->emplace(std::forward<decltype(fn)>(fn), name);
  engine.submit(op, {.queue = queue, .name = name});
}

void failing(RunContext&) { throw std::runtime_error("planned"); }

// A view that means no element twice.
Tensor random_view(const Tensor& x, Random& random) {
  Tensor y = x;
  if (random.chance(30)) y = reversed(y);
  std::vector<IndexItem> items;
  for (int d = 0; d < y.ndim; ++d) {
    if (random.chance(40)) {
      items.push_back(slice({}, {}, random.chance(30) ? -1 : 1));
    } else if (random.chance(20)) {
      items.push_back({IndexItem::Kind::integer, random.below(static_cast<int>(y.shape[d])), 0, 1, true});
    } else {
      const int n = static_cast<int>(y.shape[d]), step = random.between(1, 3);
      const int a = random.below(n), b = random.between(a + 1, n);
      items.push_back(random.chance(60)
                          ? slice(a, b, step)
                          : slice(b - 1, a > 0 ? std::optional<int64_t>(a - 1) : std::nullopt, -step));
    }
  }
  return at(y, items);
}

// One that fits `to` by broadcasting; nothing fits some shapes, then an element does.
Tensor fitting_view(const Tensor& x, const Tensor& to, Random& random) {
  for (int tries = 0; tries < 20; ++tries) {
    Tensor y = random_view(x, random);
    if (y.ndim > to.ndim) continue;
    bool fits = true;
    for (int d = 1; d <= y.ndim; ++d)
      fits &= y.shape[y.ndim - d] == to.shape[to.ndim - d] || y.shape[y.ndim - d] == 1;
    if (fits) return y;
  }
  std::vector<IndexItem> items;
  for (int d = 0; d < x.ndim; ++d)
    items.push_back({IndexItem::Kind::integer, random.below(static_cast<int>(x.shape[d])), 0, 1, true});
  return at(x, items);
}

// The same program on arrays and on plain vectors.
void run_program(Engine& engine, const std::vector<Sizes>& shapes, int steps, bool in_bulk, Random& random) {
  std::vector<Tensor> arrays;
  std::vector<Values> oracle;
  for (const Sizes& shape : shapes) {
    arrays.push_back(counted(shape, 1000 * static_cast<int64_t>(arrays.size())));
    oracle.push_back(counts(arrays.back().size, 1000 * static_cast<int64_t>(oracle.size())));
  }
  if (in_bulk) engine.begin_bulk(7);
  for (int step = 0; step < steps; ++step) {
    const auto k = static_cast<size_t>(random.below(static_cast<int>(arrays.size())));
    const Tensor to = random_view(arrays[k], random);
    const Values places = places_of(to);
    const int what = random.below(10);
    if (what < 2) {
      push_fill(to, integer(step));
      for (const int64_t place : places) oracle[k][static_cast<size_t>(place)] = step;
    } else if (what < 3) {
      push_range(to, integer(step), integer(3));
      for (size_t i = 0; i < places.size(); ++i)
        oracle[k][static_cast<size_t>(places[i])] = step + 3 * static_cast<int64_t>(i);
    } else {
      const auto j = static_cast<size_t>(random.below(static_cast<int>(arrays.size())));
      const Tensor from = fitting_view(arrays[j], to, random);
      push_copy(to, from);
      Values taken;
      for (const int64_t place : places_of(broadcast_to(from, to.dims())))
        taken.push_back(oracle[j][static_cast<size_t>(place)]);
      for (size_t i = 0; i < places.size(); ++i) oracle[k][static_cast<size_t>(places[i])] = taken[i];
    }
  }
  if (in_bulk) engine.end_bulk();
  for (size_t k = 0; k < arrays.size(); ++k) CHECK(values_of(arrays[k]) == oracle[k]);
}

}  // namespace

TEST(operations_of_random_programs_are_those_of_a_serial_oracle) {
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind, 4);
    Random random(seed() * 100 + static_cast<uint64_t>(kind));
    for (int round = 0; round < scaled(40); ++round)
      run_program(*arrays, {{4, 5, 3}, {7}, {6, 6}, {2, 3, 4, 2}}, 100, round % 3 == 2, random);
    CHECK(memory_returns());
  }
}

// Above and below the sizes at which operations run on the pushing thread, on workers, and by many threads.
TEST(operations_of_random_programs_of_all_sizes_are_those_of_a_serial_oracle) {
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind, 4);
    Random random(seed() * 100 + static_cast<uint64_t>(kind) + 50);
    for (int round = 0; round < std::max(1, scaled(6)); ++round)
      run_program(*arrays, {{70, 90}, {100, 63}, {12}, {400, 400}, {17, 30, 40}}, 60, round % 2 == 1, random);
    CHECK(memory_returns());
  }
}

TEST(operations_copy_between_overlapping_views_as_if_through_a_copy) {
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind);
    for (const int64_t n : {2, 9, 5000, 200000}) {
      Tensor x = counted({n});
      push_copy(at(x, {slice(1, {})}), at(x, {slice({}, -1)}));
      Values expected = counts(n, -1);
      expected[0] = 0;
      CHECK(values_of(x) == expected);

      x = counted({n});
      push_copy(x, at(x, {slice({}, {}, -1)}));
      CHECK(values_of(x) == counts(n, n - 1, -1));

      x = counted({n});
      push_copy(x, x);
      CHECK(values_of(x) == counts(n));
      CHECK_EQ(x.chunk->version.load(), uint64_t{1});

      x = counted({n});
      push_copy(x, at(x, {slice(1, 2)}));  // one element everywhere
      CHECK(values_of(x) == Values(static_cast<size_t>(n), 1));
    }
    const Tensor square = counted({30, 30});
    push_copy(square, reversed(square));
    Values expected;
    for (int64_t i = 0; i < 900; ++i) expected.push_back(i % 30 * 30 + i / 30);
    CHECK(values_of(square) == expected);
  }
}

TEST(operations_keep_their_order_behind_a_function_that_takes_long) {
  Gate gate;
  const Arrays arrays;
  const Tensor x = empty({100}), y = empty({100});
  push_on(
      *arrays, [&](RunContext&) { gate.pass(), std::fill_n(reinterpret_cast<int64_t*>(x.data), 100, 1); }, {},
      {x.chunk.get()}, "slow");
  CHECK(gate.reached());
  push_copy(y, x);
  push_fill(at(x, {slice(50, {})}), integer(2));
  const Tensor z = copy_of(x, DType::int64, {});
  push_range(x, integer(0), integer(1));
  CHECK_EQ(y.chunk->version.load() + z.chunk->version.load() + x.chunk->version.load(), uint64_t{0});
  gate.open();
  CHECK_EQ(values_of(y), Values(100, 1));
  Values halves(100, 1);
  std::fill(halves.begin() + 50, halves.end(), 2);
  CHECK_EQ(values_of(z), halves);
  CHECK_EQ(values_of(x), counts(100));
}

TEST(operations_on_nothing_and_between_shapes) {
  const Arrays arrays;
  const Tensor nothing = empty({3, 0}), x = counted({2, 3});
  push_fill(nothing, integer(1));
  push_range(nothing, integer(1), integer(1));
  push_copy(nothing, empty({0}));
  CHECK_EQ(nothing.chunk->version.load(), uint64_t{0});
  push_copy(x, counted({1, 1, 3}, 7));  // leading ones add nothing
  CHECK_EQ(values_of(x), (Values{7, 8, 9, 7, 8, 9}));
  for (const Sizes& wrong : {Sizes{2}, Sizes{3, 3}, Sizes{2, 2, 3}, Sizes{0}})
    CHECK_THROWS(push_copy(x, empty(wrong)), ShapeError);
  CHECK_THROWS(push_copy(nothing, empty({2, 1})), ShapeError);
}

TEST(operations_refuse_to_write_what_is_repeated_or_read_only) {
  const Arrays arrays;
  const Tensor x = broadcast_to(counted({3}), Sizes{2, 3}), source = counted({2, 3});
  CHECK(!writable(x));
  CHECK(writable(source));
  CHECK_THROWS(push_fill(x, integer(1)), ValueError);
  CHECK_THROWS(push_range(x, integer(1), integer(1)), ValueError);
  CHECK_THROWS(push_copy(x, source), ValueError);
  CHECK_EQ(values_of(x), (Values{0, 1, 2, 0, 1, 2}));
  int64_t memory[3] = {4, 5, 6};
  Tensor foreign = counted({3});
  foreign.chunk = Chunk::adopt({}, {memory, sizeof memory, [](void*) noexcept {}, nullptr, true, false});
  foreign.data = foreign.chunk->data;
  CHECK(!writable(foreign));
  CHECK_THROWS(push_fill(foreign, integer(1)), ValueError);
  CHECK_EQ(values_of(foreign), (Values{4, 5, 6}));
}

TEST(operations_poison_what_they_would_have_written) {
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind);
    const Tensor x = counted({10}), y = counted({10});
    push_on(*arrays, failing, {}, {x.chunk.get()}, "cause");
    CHECK_EQ(failure_of(x), "cause");
    CHECK_EQ(failure_of(reversed(x)), "cause");
    const Tensor copy = copy_of(x, DType::int64, {});
    CHECK_EQ(failure_of(copy), "cause");
    push_copy(at(y, {slice(2, 4)}), at(x, {slice(0, 2)}));
    CHECK_EQ(failure_of(y), "cause");
    push_fill(at(x, {slice(0, 9)}), integer(0));  // of what is left, nobody knows
    CHECK_EQ(failure_of(x), "cause");
    push_copy(x, at(x, {slice({}, {}, -1)}));
    CHECK_EQ(failure_of(x), "cause");
  }
}

TEST(operations_that_write_all_of_the_memory_cure_it) {
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind);
    const Tensor x = empty({4, 5}), good = counted({4, 5});
    const auto poison = [&] {
      push_on(*arrays, failing, {}, {x.chunk.get()}, "cause");
      CHECK_EQ(failure_of(x), "cause");
    };
    poison(), push_fill(x, integer(3));
    CHECK_EQ(values_of(x), Values(20, 3));
    poison(), push_range(reversed(x), integer(0), integer(1));
    CHECK_EQ(failure_of(x), "");
    poison(), push_copy(at(x, {slice({}, {}, -1)}), good);
    CHECK_EQ(failure_of(x), "");
    Tensor flat;
    CHECK(reshape_view(x, Sizes{20}, flat));
    poison(), push_fill(flat, integer(1));
    CHECK_EQ(failure_of(x), "");
    poison(), arrays->clear_error(*x.chunk);
    CHECK_EQ(failure_of(x), "");
  }
}

TEST(operations_of_random_numbers_take_their_positions_when_pushed) {
  Values expected[2];
  for (const bool held : {false, true}) {
    Gate gate;
    const Arrays arrays;
    Runtime::get().seed_all(7);
    const Tensor x = empty({50}), y = empty({50});
    if (held) push_on(*arrays, [&](RunContext&) { gate.pass(); }, {}, {x.chunk.get()}, "held");
    push_integers(x, 0, 1000);
    push_integers(y, 0, 1000);  // runs first when x is held
    expected[0] = held ? expected[0] : values_of(x);
    expected[1] = held ? expected[1] : values_of(y);
    CHECK(values_of(y) == expected[1]);
    gate.open();
    CHECK(values_of(x) == expected[0]);
    CHECK(values_of(x) != values_of(y));
  }
}

TEST(operations_permute_whole_slices_by_seed_alone) {
  std::vector<Values> seen;
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind);
    Runtime::get().seed_all(11);
    const Tensor x = counted({3, 200}), y = empty({200, 3});
    push_permutation(y, reversed(x));  // a row is (i, 200 + i, 400 + i)
    const Values values = values_of(y);
    std::vector<bool> found(200);
    for (size_t row = 0; row < 200; ++row) {
      const int64_t first = values[3 * row];
      CHECK(first >= 0 && first < 200 && !found[static_cast<size_t>(first)]);
      found[static_cast<size_t>(first)] = true;
      CHECK_EQ(values[3 * row + 1], first + 200);
      CHECK_EQ(values[3 * row + 2], first + 400);
    }
    seen.push_back(values);
  }
  CHECK(seen[0] == seen[1] && seen[1] == seen[2]);
}

TEST(operations_on_shared_memory_have_finished_when_the_push_returns) {
  const Arrays arrays;
  const Tensor x = empty({1 << 16}), y = empty({1 << 16});
  for (int i = 0; i < scaled(200); ++i) {
    x.chunk->shares = 1;
    const uint64_t before = x.chunk->version.load();
    push_fill(x, integer(i));
    CHECK_EQ(x.chunk->version.load(), before + 1);
    CHECK_EQ(reinterpret_cast<const int64_t*>(x.data)[x.size - 1], int64_t{i});
    const uint64_t copied = y.chunk->version.load();
    push_copy(y, x);  // a reader of shared memory is waited for, too
    CHECK_EQ(y.chunk->version.load(), copied + 1);
  }
  push_on(*arrays, failing, {}, {x.chunk.get()}, "cause");
  push_fill(at(x, {slice(0, 5)}), integer(1));  // raised where it is read, not here
  CHECK_EQ(failure_of(x), "cause");
  x.chunk->shares = 0;
}

TEST(operations_wait_inside_functions_only_for_what_is_declared) {
  const Arrays arrays;
  const Tensor x = counted({10}), y = counted({10});
  std::atomic<int> refused{0}, passed{0};
  push_on(
      *arrays,
      [&](RunContext&) {
        wait_for(x), ++passed;
        CHECK(!writable(x));
        try {
          wait_for(y);
        } catch (const EngineMisuse&) {
          ++refused;
        }
      },
      {x.chunk.get()}, {}, "f");
  arrays->wait_for_all();
  CHECK_EQ(passed.load(), 1);
  CHECK_EQ(refused.load(), 1);
}

TEST(operations_keep_memory_until_they_have_finished) {
  for (const auto queue : {QueueKind::compute, QueueKind::io}) {
    Gate gate;
    const Arrays arrays;
    {
      const Tensor x = empty({1000}), y = empty({1000});
      push_on(*arrays, [&](RunContext&) { gate.pass(); }, {x.chunk.get()}, {}, "held", queue);
      push_fill(x, integer(5));
      push_copy(y, x);
    }
    CHECK(gate.reached());
    CHECK_EQ(memory().live_blocks, uint64_t{2});
    CHECK(memory().in_use_bytes >= 16000);
    gate.open();
    CHECK(memory_returns());
  }
}

// Chunks are dropped by the pushing thread, by workers and by threads that only hold handles.
TEST(operations_give_all_memory_back_in_every_way_there_is) {
  for (const EngineKind kind : kKinds) {
    for (const int bulk : {0, 1, 16}) {
      const Arrays arrays(kind, 4);
      if (bulk) arrays->begin_bulk(bulk);
      Tensor kept = counted({20});
      for (int i = 0; i < scaled(500); ++i) {
        const Tensor x = counted({i % 70, 100});
        const Tensor y = copy_of(reversed(x), DType::int64, {});
        push_copy(y, reversed(x));
        if (i % 7 == 0) push_on(*arrays, nothing, {x.chunk.get(), y.chunk.get()}, {}, "reads");
        if (i % 11 == 0) push_on(*arrays, failing, {}, {x.chunk.get()}, "fails");
        if (i % 13 == 0) kept = copy_of(y, DType::int64, {});
      }
      kept = Tensor();
      if (bulk) arrays->end_bulk();
      arrays->wait_until_idle();
      CHECK(memory_returns());
    }
  }
}

TEST(operations_of_many_threads_give_all_memory_back) {
  const Arrays arrays(EngineKind::threaded, 3);
  {
    const Tensor shared = counted({50, 100});
    std::vector<std::jthread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < scaled(400); ++i) {
          const Tensor x = copy_of(shared, DType::int64, {});
          const Tensor row = at(x, {{IndexItem::Kind::integer, i % 50, 0, 1, true}});
          push_fill(row, integer(t));
          if (i % 8 == 0) wrong += values_of(row) != Values(100, t);
          push_copy(at(x, {slice(1, {})}), at(x, {slice({}, -1)}));
        }
      });
    threads.clear();
    CHECK_EQ(wrong.load(), 0);
    CHECK(values_of(shared) == counts(5000));
  }
  CHECK(memory_returns());
}

TEST(operations_that_are_refused_hold_no_memory) {
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind), other(kind);
    Runtime::get().set_engine(arrays.engine);
    {
      const Tensor x = counted({100}), y = counted({100});
      arrays->wait_for_all();
      arrays->stop();
      CHECK_THROWS(push_fill(x, integer(1)), EngineMisuse);
      CHECK_THROWS(push_copy(x, y), EngineMisuse);
      CHECK_THROWS(push_on(*other, nothing, {x.chunk.get()}, {y.chunk.get()}, "foreign"), EngineMisuse);
      CHECK_EQ(x.chunk->version.load(), uint64_t{1});
      wait_for(x);
    }
    CHECK_EQ(memory().live_blocks, uint64_t{0});
    arrays->start();
    CHECK_EQ(values_of(counted({5})), counts(5));
  }
}

TEST(operations_of_a_reusable_operator_hold_its_memory_as_long_as_the_operator) {
  for (const EngineKind kind : kKinds) {
    const Arrays arrays(kind);
    std::shared_ptr<Operator> op;
    int runs = 0;
    {
      const Tensor x = counted({1000});
      Op* plan = new_op(1);
      plan->add(x.chunk.get(), Mode::write);
      plan->emplace([&runs, memory = reinterpret_cast<int64_t*>(x.data)](RunContext&) { memory[0] = ++runs; },
                    "op");
      op = arrays->new_operator(plan, QueueKind::compute);
    }
    for (int i = 0; i < 50; ++i) arrays->submit(*op, {});
    arrays->wait_for_all();
    CHECK_EQ(runs, 50);
    CHECK_EQ(memory().live_blocks, uint64_t{1});
    arrays->submit(*op, {});
    op.reset();
    arrays->wait_until_idle();
    CHECK(memory_returns());
    CHECK_EQ(runs, 51);
  }
}

TEST(operations_give_foreign_memory_back_once_and_after_their_last_use) {
  struct Owner {
    std::array<int64_t, 100> memory{};
    std::atomic<int> dropped{0};
  };
  for (const EngineKind kind : kKinds) {
    Owner owner;
    Gate gate;
    if (kind != EngineKind::threaded) gate.open();
    const Arrays arrays(kind);
    {
      Tensor x = counted({100});
      x.chunk = Chunk::adopt(
          {}, {owner.memory.data(), sizeof owner.memory,
               [](void* it) noexcept { ++static_cast<Owner*>(it)->dropped; }, &owner, false, false});
      x.data = x.chunk->data;
      push_on(*arrays, [&](RunContext&) { gate.pass(); }, {}, {x.chunk.get()}, "held");
      push_fill(at(x, {slice({}, {}, 2)}), integer(9));
    }
    if (kind == EngineKind::threaded) CHECK_EQ(owner.dropped.load(), 0);
    gate.open();
    arrays->wait_until_idle();
    CHECK(soon([&] { return owner.dropped == 1; }));
    CHECK_EQ(owner.memory[98], int64_t{9});
    CHECK_EQ(owner.memory[99], int64_t{0});
    CHECK(memory_returns());
    CHECK_EQ(owner.dropped.load(), 1);
  }
}

TEST(operations_that_are_pending_are_waited_for_before_memory_runs_out) {
  constexpr int64_t kBytes = 8 << 20;
  Gate gate;
  const Arrays arrays;
  Pool& pool = Runtime::get().pool({});
  pool.set_limit(kBytes + (4 << 20));
  {
    const Tensor x = empty({kBytes / 8});
    push_on(*arrays, [&](RunContext&) { gate.pass(); }, {}, {x.chunk.get()}, "holds all", QueueKind::io);
  }
  CHECK(gate.reached());
  std::jthread opening([&] {  // once the allocation waits; or at once, which tests less
    sleep_ms(20);
    gate.open();
  });
  const Tensor y = empty({kBytes / 8});
  CHECK_EQ(pool.stats().live_blocks, uint64_t{1});
  CHECK_THROWS(empty({kBytes / 8}), OutOfMemory);  // y is held by us: waiting does not help
  CHECK_EQ(pool.stats().live_blocks, uint64_t{1});
  push_fill(y, integer(3));
  CHECK_EQ(values_of(at(y, {slice(-2, {})})), (Values{3, 3}));
}

// A worker may not wait for operations, of which it runs one.
TEST(operations_that_run_out_of_memory_on_a_worker_fail_at_once) {
  const Arrays arrays;
  Runtime::get().pool({}).set_limit(4 << 20);
  const Tensor x = counted({10});
  push_on(*arrays, [](RunContext&) { empty({1 << 20}); }, {}, {x.chunk.get()}, "greedy");
  CHECK_EQ(failure_of(x), "greedy");
  CHECK_EQ(memory().live_blocks, uint64_t{1});
  push_fill(x, integer(1));
  CHECK_EQ(failure_of(x), "");
}
