// engine_bench.cpp: what the engine costs per operation, without Python. weft_native_bench [engine [SHAPE]].
#include "bench/bench.h"

namespace weft::bench {
namespace {

void spin_us(double us) {
  const auto from = Clock::now();
  while (seconds(from) * 1e6 < us) {
  }
}

struct Graph {
  std::vector<int> reads[2];
  std::vector<int> write;  // -1: none
};

Graph make_graph(const std::string& shape, int ops, int vars) {
  Graph g;
  uint64_t state = 12345;
  auto draw = [&](int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state >> 33) % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < ops; ++i) {
    const bool random = shape == "random";
    g.reads[0].push_back(random ? draw(vars) : -1);
    g.reads[1].push_back(random ? draw(vars) : -1);
    g.write.push_back(shape == "independent" ? -1 : random ? draw(vars) : 0);
  }
  return g;
}

void bench_graph(const std::string& shape, bool reusable, bool cheap, int workers) {
  constexpr int kOps = 100000, kVars = 64;
  const auto engine = Engine::create({.workers = workers});
  std::vector<Ref<Var>> vars;
  for (int i = 0; i < kVars; ++i) vars.push_back(engine->new_variable());
  const Graph g = make_graph(shape, kOps, kVars);
  auto build = [&](int i) {
    Op* op = new_op(3);
    if (g.write[i] >= 0) op->add(vars[g.write[i]].get(), Mode::write);
    for (auto& reads : g.reads)
      if (reads[i] >= 0) op->add(vars[reads[i]].get(), Mode::read);
    op->emplace([](RunContext&) {}, "noop");
    op->cheap = cheap;
    return op;
  };
  constexpr int kOperators = 1000;  // each is pushed a hundred times
  std::vector<std::shared_ptr<Operator>> operators;
  if (reusable)
    for (int i = 0; i < kOperators; ++i)
      operators.push_back(engine->new_operator(build(i), QueueKind::compute));
  const std::string name = shape + (reusable ? ", reusable" : "") + (cheap ? ", cheap (inline)" : "") + ", " +
                           std::to_string(workers) + " workers";
  print(measure(name, 15, kOps,
                [&] {
                  for (int i = 0; i < kOps; ++i) {
                    if (reusable)
                      engine->submit(*operators[static_cast<size_t>(i % kOperators)], {});
                    else
                      engine->submit(build(i), {});
                  }
                  engine->wait_for_all();
                }),
        1e9, "ns per operation, push and run");
  for (auto& var : vars) engine->delete_variable(var);
  engine->wait_for_all();
}

void bench_idle_wait() {
  const auto engine = Engine::create({.workers = 2});
  const Ref<Var> var = engine->new_variable();
  print(measure("wait on an idle variable", 15, 100000,
                [&] {
                  for (int i = 0; i < 100000; ++i) engine->wait_for_var(*var);
                }),
        1e9, "ns");
  engine->delete_variable(var);
}

void bench_devices(int devices) {
  constexpr int kOps = 2000;
  const auto engine = Engine::create({.workers = 1});
  const std::string name = "20 us functions, " + std::to_string(devices) + " devices of 1 worker";
  print(measure(name, 5, kOps,
                [&] {
                  for (int i = 0; i < kOps; ++i)
                    engine->push([](RunContext&) { spin_us(20); }, {}, {},
                                 {.device = {DeviceKind::cpu, i % devices}});
                  engine->wait_for_all();
                }),
        1e6, "us per operation");
}

void bench_variables() {
  const auto engine = Engine::create({.workers = 2});
  print(measure("create and delete a variable", 15, 100000,
                [&] {
                  for (int i = 0; i < 100000; ++i) engine->delete_variable(engine->new_variable());
                  engine->wait_for_all();
                }),
        1e9, "ns");
}

}  // namespace

int engine(const std::string& only) {
  for (const char* shape : {"independent", "chain", "random"}) {
    if (!only.empty() && only != shape) continue;
    for (const bool reusable : {false, true}) bench_graph(shape, reusable, false, 2);
    bench_graph(shape, false, false, 1);
    bench_graph(shape, false, true, 2);
  }
  if (!only.empty()) return 0;
  bench_idle_wait();
  bench_variables();
  for (const int devices : {1, 2, 4}) bench_devices(devices);
  return 0;
}

}  // namespace weft::bench
