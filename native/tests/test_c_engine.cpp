// The engine through weft/engine.h: each promise of the header, and random programs against a serial run.
#include <weft/engine.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support.h"

using namespace weft::testing;

namespace {

struct Counts {
  std::atomic<int> runs{0}, releases{0}, dones{0};
  std::mutex mutex;  // operations on several workers may share counts
  std::string done_error;
};

int count_run(weft_context*, void* data) {
  ++static_cast<Counts*>(data)->runs;
  return 0;
}
int fail(weft_context* context, void*) { return weft_fail(context, "no such file"); }
void count_release(void* data) { ++static_cast<Counts*>(data)->releases; }
void count_done(void* data, const char* error) {
  auto& counts = *static_cast<Counts*>(data);
  {
    const std::lock_guard lock(counts.mutex);
    counts.done_error = error ? error : "";
  }
  ++counts.dones;
}

weft_operation described(weft_function run, void* data, const char* name = nullptr) {
  weft_operation operation{};
  operation.size = sizeof operation;
  operation.run = run;
  operation.data = data;
  operation.name = name;
  return operation;
}

weft_engine* c_engine(int kind) {
  weft_engine_options options{};
  options.size = sizeof options;
  options.kind = kind;
  options.workers = 2;
  options.seed = seed();
  weft_engine* engine = nullptr;
  CHECK_EQ(weft_engine_new(&options, &engine), WEFT_OK);
  return engine;
}

weft_variable* c_variable(weft_engine* engine) {
  weft_variable* variable = nullptr;
  CHECK_EQ(weft_variable_new(engine, &variable), WEFT_OK);
  return variable;
}

constexpr int kQueues = WEFT_PRIORITY + 1;
constexpr int kEngines[] = {WEFT_THREADED, WEFT_NAIVE, WEFT_EXPLORE};

}  // namespace

TEST(c_data_is_released_once_after_done) {
  for (const int kind : kEngines) {
    Counts counts;
    weft_engine* engine = c_engine(kind);
    weft_variable* x = c_variable(engine);
    weft_operation operation = described(count_run, &counts, "count");
    operation.release = count_release, operation.done = count_done;
    operation.writes = &x, operation.write_count = 1;
    for (int k = 0; k < 10; ++k) CHECK_EQ(weft_push(engine, &operation), WEFT_OK);
    CHECK_EQ(weft_wait_for_variable(x, 0, -1), WEFT_OK);
    CHECK_EQ(weft_variable_version(x), uint64_t{10});
    weft_variable_free(x);
    weft_engine_free(engine);
    CHECK_EQ(counts.runs.load(), 10);
    CHECK_EQ(counts.releases.load(), 10);
    CHECK_EQ(counts.dones.load(), 10);
    CHECK_EQ(counts.done_error, std::string());
  }
}

TEST(c_failures_poison_and_name_the_operation) {
  for (const int kind : kEngines) {
    Counts counts;
    weft_engine* engine = c_engine(kind);
    weft_variable *x = c_variable(engine), *y = c_variable(engine);
    weft_operation first = described(fail, nullptr, "read d.txt");
    first.writes = &x, first.write_count = 1;
    weft_operation second = described(count_run, &counts, "pack");
    second.reads = &x, second.read_count = 1, second.writes = &y, second.write_count = 1;
    second.done = count_done, second.release = count_release;
    CHECK_EQ(weft_push(engine, &first), WEFT_OK);
    CHECK_EQ(weft_push(engine, &second), WEFT_OK);
    CHECK_EQ(weft_wait_for_variable(y, 1, -1), WEFT_FAILED);
    CHECK_EQ(std::string(weft_last_error()), "read d.txt: no such file");
    CHECK_EQ(std::string(weft_last_operation()), "read d.txt");
    CHECK_EQ(weft_check_variable(x), WEFT_FAILED);
    CHECK(!weft_variable_is_ready(x, 0));
    CHECK_EQ(weft_clear_error(x), WEFT_OK);
    CHECK_EQ(weft_clear_error(y), WEFT_OK);
    CHECK_EQ(weft_push(engine, &second), WEFT_OK);
    CHECK_EQ(weft_wait_for_variable(y, 1, -1), WEFT_OK);
    CHECK_EQ(weft_wait_for_all(engine, -1), WEFT_OK);  // it has been dealt with
    weft_engine_free(engine);
    CHECK_EQ(counts.runs.load(), 1);
    CHECK_EQ(counts.dones.load(), 2);
    CHECK_EQ(counts.releases.load(), 2);
    CHECK_EQ(weft_variable_version(y), uint64_t{1});
    weft_variable_free(x), weft_variable_free(y);  // after the engine's handle
  }
}

TEST(c_run_on_error_sees_what_failed) {
  weft_engine* engine = c_engine(WEFT_THREADED);
  weft_variable *x = c_variable(engine), *report = c_variable(engine);
  weft_operation first = described(fail, nullptr, "read");
  first.writes = &x, first.write_count = 1;
  std::string seen;
  weft_operation second = described(
      [](weft_context* context, void* data) {
        const char* error = weft_inherited_error(context);
        *static_cast<std::string*>(data) = error ? error : "nothing";
        return 0;
      },
      &seen);
  second.reads = &x, second.read_count = 1, second.overwrites = &report, second.overwrite_count = 1;
  second.run_on_error = 1;
  CHECK_EQ(weft_push(engine, &first), WEFT_OK);
  CHECK_EQ(weft_push(engine, &second), WEFT_OK);
  CHECK_EQ(weft_wait_for_variable(report, 0, -1), WEFT_OK);
  CHECK_EQ(seen, std::string("no such file"));
  CHECK_EQ(weft_wait_for_all(engine, -1), WEFT_FAILED);
  CHECK_EQ(weft_wait_for_all(engine, -1), WEFT_OK);  // each once
  weft_variable_free(x), weft_variable_free(report);
  weft_engine_free(engine);
}

TEST(c_wrong_calls_say_so_and_release) {
  Counts counts;
  weft_engine *engine = c_engine(WEFT_THREADED), *other = c_engine(WEFT_THREADED);
  weft_variable* x = c_variable(other);
  weft_operation good = described(count_run, &counts);
  good.release = count_release;
  struct {
    const char* text;
    void (*spoil)(weft_operation&);
  } const cases[] = {
      {"run is NULL", [](weft_operation& o) { o.run = nullptr; }},
      {"there is no queue of number 5", [](weft_operation& o) { o.queue = 5; }},
      {"device is -1, not in 0..63", [](weft_operation& o) { o.device = -1; }},
      {"writes is NULL", [](weft_operation& o) { o.write_count = 1; }},
      {"set it to sizeof", [](weft_operation& o) { o.size += 8; }},
  };
  int expected = 0;
  for (const auto& [text, spoil] : cases) {
    weft_operation operation = good;
    spoil(operation);
    CHECK_EQ(weft_push(engine, &operation), WEFT_MISUSE);
    CHECK(std::string(weft_last_error()).find(text) != std::string::npos);
    CHECK_EQ(counts.releases.load(), ++expected);
  }
  weft_operation elsewhere = good;
  elsewhere.reads = &x, elsewhere.read_count = 1;
  CHECK_EQ(weft_push(engine, &elsewhere), WEFT_MISUSE);
  CHECK_EQ(std::string(weft_last_error()), "a variable belongs to another engine");
  CHECK_EQ(counts.releases.load(), ++expected);
  CHECK_EQ(weft_push(nullptr, &good), WEFT_MISUSE);
  CHECK_EQ(weft_push(engine, nullptr), WEFT_MISUSE);
  CHECK_EQ(weft_engine_new(nullptr, nullptr), WEFT_MISUSE);
  CHECK_EQ(weft_wait_for_variable(nullptr, 0, 0), WEFT_MISUSE);
  CHECK_EQ(counts.runs.load(), 0);
  weft_operation earlier = good;  // of a header that ended before `name`
  earlier.size = offsetof(weft_operation, name);
  CHECK_EQ(weft_push(engine, &earlier), WEFT_OK);
  CHECK_EQ(weft_wait_for_all(engine, -1), WEFT_OK);
  CHECK_EQ(counts.runs.load(), 1);
  weft_variable_free(x);
  weft_engine_free(engine), weft_engine_free(other), weft_engine_free(nullptr);
}

TEST(c_asynchronous_operations_end_once) {
  for (const int kind : kEngines) {
    weft_engine* engine = c_engine(kind);
    weft_variable* x = c_variable(engine);
    std::atomic<weft_completion*> kept{nullptr};
    weft_operation operation = described(
        [](weft_context* context, void* data) {
          static_cast<std::atomic<weft_completion*>*>(data)->store(weft_completion_of(context));
          return 0;
        },
        &kept, "fetch");
    operation.asynchronous = 1, operation.queue = WEFT_IO, operation.writes = &x, operation.write_count = 1;
    CHECK_EQ(weft_push(engine, &operation), WEFT_OK);
    CHECK_EQ(weft_wait_for_variable(x, 1, 0.02), WEFT_TIMED_OUT);
    std::jthread([&] { CHECK_EQ(weft_complete(kept.exchange(nullptr), "refused"), WEFT_OK); }).join();
    CHECK_EQ(weft_wait_for_variable(x, 1, -1), WEFT_FAILED);
    CHECK_EQ(std::string(weft_last_error()), "fetch: refused");
    weft_clear_error(x);
    CHECK_EQ(weft_push(engine, &operation), WEFT_OK);
    while (!kept.load()) static_cast<void>(weft_wait_for_variable(x, 1, 0.001));
    CHECK_EQ(weft_complete(kept.exchange(nullptr), nullptr), WEFT_OK);
    CHECK_EQ(weft_wait_for_variable(x, 1, -1), WEFT_OK);
    weft_variable_free(x);
    weft_engine_free(engine);
  }
}

TEST(c_operators_and_bulks) {
  Counts counts;
  weft_engine* engine = c_engine(WEFT_THREADED);
  weft_variable* x = c_variable(engine);
  weft_operation operation = described(count_run, &counts);
  operation.release = count_release;
  operation.writes = &x, operation.write_count = 1;
  weft_operator* step = nullptr;
  CHECK_EQ(weft_operator_new(engine, &operation, &step), WEFT_OK);
  for (int k = 0; k < 100; ++k) CHECK_EQ(weft_operator_push(step, 0, 0), WEFT_OK);
  weft_operator_free(step);
  CHECK_EQ(weft_wait_for_variable(x, 0, -1), WEFT_OK);
  CHECK_EQ(counts.runs.load(), 100);
  CHECK_EQ(weft_begin_bulk(engine, 8), WEFT_OK);
  for (int k = 0; k < 20; ++k) CHECK_EQ(weft_push(engine, &operation), WEFT_OK);
  CHECK_EQ(weft_end_bulk(engine), WEFT_OK);
  std::atomic<bool> deleted{false};
  CHECK_EQ(weft_variable_delete(
               x, [](void* data) { static_cast<std::atomic<bool>*>(data)->store(true); }, &deleted),
           WEFT_OK);
  CHECK_EQ(weft_wait_for_all(engine, -1), WEFT_OK);
  CHECK(deleted.load());
  weft_engine_free(engine);
  CHECK_EQ(counts.runs.load(), 120);
  CHECK_EQ(counts.releases.load(), 21);
}

TEST(c_functions_may_push_and_must_not_wait) {
  weft_engine* engine = c_engine(WEFT_THREADED);
  struct Chain {
    weft_engine* engine;
    std::atomic<int> left{50};
    std::atomic<weft_status> wait{WEFT_OK};
  } chain{engine};
  weft_operation operation = described(
      [](weft_context*, void* data) {
        auto& all = *static_cast<Chain*>(data);
        all.wait = weft_wait_for_all(all.engine, 0.1);
        if (--all.left == 0) return 0;
        weft_operation next{};
        next.size = sizeof next, next.data = data;
        next.run = [](weft_context*, void* same) { return --static_cast<Chain*>(same)->left, 0; };
        return static_cast<int>(weft_push(all.engine, &next));
      },
      &chain);
  for (int k = 0; k < 25; ++k) CHECK_EQ(weft_push(engine, &operation), WEFT_OK);
  CHECK_EQ(weft_wait_for_all(engine, -1), WEFT_OK);
  CHECK_EQ(weft_wait_for_all(engine, -1), WEFT_OK);  // what was pushed meanwhile
  CHECK_EQ(chain.left.load(), 0);
  CHECK_EQ(chain.wait.load(), WEFT_MISUSE);
  weft_engine_free(engine);
}

// Several threads push, each to variables of its own; what the operations compute is plain memory.
TEST(c_random_programs_are_serial_ones) {
  for (const int kind : {WEFT_THREADED, WEFT_EXPLORE}) {
    constexpr int kVariables = 6;
    weft_engine* engine = c_engine(kind);
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 3; ++thread)
      threads.emplace_back([&, thread] {
        Random random(seed() + static_cast<uint64_t>(thread));
        std::vector<uint64_t> values(kVariables, 1), want(kVariables, 1);
        std::vector<weft_variable*> variables;
        for (int k = 0; k < kVariables; ++k) variables.push_back(c_variable(engine));
        struct Step {
          std::vector<uint64_t>* values;
          int from, to;
          static void apply(std::vector<uint64_t>& values, int from, int to) {
            const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
            values[b] = values[b] * 6364136223846793005u + values[a] + 1442695040888963407u;
          }
        };
        for (int n = 0; n < 300; ++n) {
          const int from = random.below(kVariables), to = random.below(kVariables);
          Step::apply(want, from, to);
          weft_operation operation = described(
              [](weft_context*, void* data) {
                const auto& step = *static_cast<Step*>(data);
                return Step::apply(*step.values, step.from, step.to), 0;
              },
              new Step{&values, from, to});
          operation.release = [](void* data) { delete static_cast<Step*>(data); };
          operation.reads = &variables[static_cast<size_t>(from)], operation.read_count = 1;
          operation.writes = &variables[static_cast<size_t>(to)], operation.write_count = 1;
          operation.queue = random.below(kQueues);
          operation.priority = random.below(3);
          CHECK_EQ(weft_push(engine, &operation), WEFT_OK);
        }
        for (weft_variable* variable : variables) {
          CHECK_EQ(weft_wait_for_variable(variable, 0, -1), WEFT_OK);
          weft_variable_free(variable);
        }
        CHECK(values == want);
      });
    threads.clear();
    weft_engine_free(engine);
  }
}
