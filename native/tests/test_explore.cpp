// Exploration: a seed decides the order, the same seed decides the same, and every order is legal.
#include <set>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

struct Step {
  int operation;
  int worker;
  bool operator==(const Step&) const = default;
  bool operator<(const Step& other) const {
    return std::pair(operation, worker) < std::pair(other.operation, other.worker);
  }
};

// Three chains of operations over three variables, and readers of all.
std::vector<Step> run(uint64_t start, int workers) {
  Log<Step> log;
  auto engine = Engine::create({.kind = EngineKind::explore, .workers = workers, .seed = start});
  Variable a(engine), b(engine), c(engine);
  auto record = [&](int operation) {
    return [&log, operation](RunContext& context) { log.add({operation, context.worker}); };
  };
  for (int round = 0; round < 4; ++round) {
    push(*engine, record(10 * round), {}, {a});
    push(*engine, record(10 * round + 1), {}, {b});
    push(*engine, record(10 * round + 2), {}, {c});
    for (int i = 3; i < 6; ++i) push(*engine, record(10 * round + i), {a, b}, {});
  }
  engine->wait_for_var(*c);
  engine->wait_for_all();
  return log.items();
}

}  // namespace

TEST(explore_same_seed_same_order_and_workers) {
  for (uint64_t start = 0; start < 20; ++start)
    for (const int workers : {1, 2, 5}) CHECK(run(start, workers) == run(start, workers));
}

TEST(explore_other_seeds_other_orders) {
  std::set<std::vector<Step>> orders;
  for (uint64_t start = 0; start < 50; ++start) orders.insert(run(start, 3));
  CHECK(orders.size() >= 45);
}

TEST(explore_uses_all_workers) {
  std::set<int> workers;
  for (uint64_t start = 0; start < 10; ++start)
    for (const Step& step : run(start, 4)) workers.insert(step.worker);
  CHECK_EQ(workers.size(), size_t{4});
}

TEST(explore_keeps_to_legal_orders) {
  for (uint64_t start = 0; start < 50; ++start) {
    std::vector<int> place(40, -1);
    const std::vector<Step> steps = run(start, 2);
    CHECK_EQ(steps.size(), size_t{24});
    for (size_t i = 0; i < steps.size(); ++i)
      place[static_cast<size_t>(steps[i].operation)] = static_cast<int>(i);
    for (size_t round = 0; round < 4; ++round) {
      for (size_t reader = 3; reader < 6; ++reader) {
        CHECK(place[10 * round + reader] > place[10 * round]);
        CHECK(place[10 * round + reader] > place[10 * round + 1]);
        if (round == 3) continue;
        CHECK(place[10 * round + reader] < place[10 * (round + 1)]);
        CHECK(place[10 * round + reader] < place[10 * (round + 1) + 1]);
      }
      if (round < 3) CHECK(place[10 * round + 2] < place[10 * (round + 1) + 2]);
    }
  }
}

TEST(explore_finds_an_order_that_a_queue_would_not_take) {
  std::set<std::string> seen;
  for (uint64_t start = 0; start < 1000; ++start) {
    std::string order;
    auto engine = Engine::create({.kind = EngineKind::explore, .workers = 1, .seed = start});
    for (const char letter : {'a', 'b', 'c'})
      push(*engine, [&order, letter](RunContext&) { order += letter; }, {}, {});
    engine->wait_for_all();
    seen.insert(order);
  }
  CHECK_EQ(seen.size(), size_t{6});
}

TEST(explore_runs_one_function_at_a_time) {
  int inside = 0, most = 0;  // plain: the engine orders them
  auto engine = Engine::create({.kind = EngineKind::explore, .workers = 4});
  for (int i = 0; i < 200; ++i) {
    push(*engine,
         [&](RunContext&) {
           most = std::max(most, ++inside);
           --inside;
         },
         {}, {});
  }
  engine->wait_for_all();
  CHECK_EQ(most, 1);
}

TEST(explore_is_not_disturbed_by_variables_that_are_dropped) {
  auto order = [](bool drop) {
    std::string result;
    auto engine = Engine::create({.kind = EngineKind::explore, .workers = 1, .seed = 3});
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      if (drop) Variable unused(engine);
      push(*engine, [&result, letter](RunContext&) { result += letter; }, {}, {});
    }
    engine->wait_for_all();
    return result;
  };
  CHECK_EQ(order(false), order(true));
}
