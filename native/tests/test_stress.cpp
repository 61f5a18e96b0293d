// Chaos: everything at once from many threads. Nothing hangs, nothing is lost, the counters add up.
#include <atomic>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

struct Chaos {
  std::shared_ptr<Engine> engine;
  std::vector<Variable> shared;
  std::atomic<int> accepted{0}, ended{0};  // functions that the engine took; function objects that it let go
  std::atomic<bool> enough{false};

  // Counts its own end, whether it has run or not.
  struct Token {
    Chaos* chaos;
    explicit Token(Chaos* owner) : chaos(owner) { ++chaos->accepted; }
    Token(const Token&) = delete;
    ~Token() { ++chaos->ended; }
  };
  auto function(Random& random) {
    const int ending = random.below(20);
    return [token = std::make_shared<Token>(this), ending](RunContext&) {
      if (ending == 0) throw 1;
    };
  }

  void step(Random& random, Variable& own) {
    Var* a = shared[static_cast<size_t>(random.below(static_cast<int>(shared.size())))];
    Var* b = shared[static_cast<size_t>(random.below(static_cast<int>(shared.size())))];
    const PushOptions options{.device = {DeviceKind::cpu, random.below(2)},
                              .queue = static_cast<QueueKind>(random.below(kQueueKinds)),
                              .priority = random.between(-1, 1),
                              .size_bytes = static_cast<uint64_t>(random.below(1000))};
    switch (random.below(16)) {
      case 0:
        push_async(
            *engine,
            [token = std::make_shared<Token>(this)](RunContext&, const Ref<Completion>& c) { c->finish(); },
            {a}, {own}, options);
        return;
      case 1:
        return engine->clear_error(*a);
      case 2:
        return static_cast<void>(cause_of(*engine, *a, random.chance(50)));
      case 3:
        return static_cast<void>(cause_of(*engine, *own));
      case 4:
        return random.chance(20) ? static_cast<void>(causes_of_all(*engine)) : engine->clear_error(*b);
      case 5: {
        Variable brief(engine);
        push(*engine, function(random), {a}, {brief}, options);
        return;
      }
      case 6: {
        Op* op = make_op(function(random), {own}, {}, {a});
        op->cheap = true;
        return engine->submit(op, options);
      }
      case 7: {
        engine->begin_bulk(8);
        try {
          for (int i = 0; i < 10; ++i) push(*engine, function(random), {a}, {own});
        } catch (const EngineMisuse&) {  // stopped in between
        }
        return engine->end_bulk();
      }
      case 8:
        return engine->submit(make_op(function(random), {}, {a}, {b}), options);
      case 9:
        return static_cast<void>(engine->stats());
      default:
        return push(*engine, function(random), {a, b}, {own, a}, options);
    }
  }

  void run(uint64_t start, int steps) {
    Random random(start);
    Variable own(engine);
    for (int i = 0; i < steps; ++i) {
      try {
        step(random, own);
      } catch (const EngineMisuse&) {  // stopped
      }
    }
  }
};

void run_chaos(EngineKind kind, bool stops) {
  const int steps = scaled(4000);
  Options options;
  options.kind = kind;
  options.workers = 3;
  options.max_pending = 64;
  options.max_pending_bytes = 20000;
  Chaos chaos;
  chaos.engine = Engine::create(options);
  chaos.shared = make_variables(chaos.engine, 6);
  std::vector<std::jthread> threads;
  for (uint64_t i = 0; i < 4; ++i)
    threads.emplace_back([&chaos, i, steps] { chaos.run(seed() * 4 + i, steps); });
  std::jthread stopping([&] {
    while (stops && !chaos.enough) {
      chaos.engine->stop();
      std::this_thread::yield();
      chaos.engine->start();
      sleep_ms(1);
    }
  });
  for (std::jthread& thread : threads) thread.join();
  chaos.enough = true;
  stopping.join();
  causes_of_all(*chaos.engine);
  chaos.shared.clear();
  chaos.engine->stop();
  const Stats stats = chaos.engine->stats();
  CHECK_EQ(stats.pushed, stats.finished);
  CHECK_EQ(stats.pending + stats.running + stats.async_outstanding + stats.threads, uint64_t{0});
  CHECK(stats.failed + stats.skipped <= stats.finished);
  CHECK_EQ(chaos.accepted.load(), chaos.ended.load());
}

}  // namespace

TEST(stress_threaded) { run_chaos(EngineKind::threaded, false); }
TEST(stress_threaded_with_stops) { run_chaos(EngineKind::threaded, true); }
TEST(stress_naive) { run_chaos(EngineKind::naive, true); }
TEST(stress_explore) { run_chaos(EngineKind::explore, true); }
