// regions_bench.cpp: parallel regions as wide operations, alone and beside a thread that pushes small
// operations. weft_native_bench regions TEAM MICROSECONDS: TEAM is "team" (team.h), "omp-static" or
// "omp-dynamic" (libgomp, whose spin policy the environment sets). benchmarks/threads.py runs it for all.
#include "bench/bench.h"
#include "engine/team.h"

namespace weft::bench {
namespace {

// Work rather than time: a thread that is interrupted has not done it.
volatile uint64_t sink;
void steps(int64_t n) {
  uint64_t x = sink;
  for (; n > 0; --n) x = x * 6364136223846793005u + 1;
  sink = x;
}

double steps_per_us() {
  constexpr int64_t kSteps = 1000000;
  const Row row = measure("", 20, 1, [] { steps(kSteps); });
  return static_cast<double>(kSteps) / (row.best * 1e6);
}

}  // namespace

int regions(const std::string& team, double us) {
  const int threads = team_size();
  const auto piece = static_cast<int64_t>(std::min(10.0, us / 4) * steps_per_us());
  const auto pieces = static_cast<int64_t>(us * threads / std::min(10.0, us / 4));
  auto body = [piece](int64_t begin, int64_t end) {
    for (; begin < end; ++begin) steps(piece);
  };
  std::function<void(RunContext&)> region;
  if (team == "team") {
    region = [&](RunContext&) { parallel_for(pieces, 1, body); };
#ifdef WEFT_OPENMP
  } else if (team == "omp-static") {
    region = [&](RunContext&) {
#pragma omp parallel for schedule(static) num_threads(threads)
      for (int64_t i = 0; i < pieces; ++i) body(i, i + 1);
    };
  } else if (team == "omp-dynamic") {
    region = [&](RunContext&) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
      for (int64_t i = 0; i < pieces; ++i) body(i, i + 1);
    };
#endif
  } else {
    std::fprintf(stderr, "regions: unknown team '%s'\n", team.c_str());
    return 2;
  }

  const auto engine = Engine::create({.workers = threads});
  const Ref<Var> var = engine->new_variable();
  Var* writes[] = {var.get()};
  const int repeats = us < 200 ? 2000 : 200;
  auto run = [&] {
    for (int i = 0; i < repeats; ++i) {
      engine->push(region, {}, writes, {.queue = QueueKind::wide});
      engine->wait_for_var(*var);
    }
  };
  run();
  print(measure(team + ", alone", 5, repeats, run), 1e6, "us per region");
  std::atomic<bool> stop{false};
  std::thread pusher([&] {
    while (!stop.load(std::memory_order_relaxed)) engine->push([](RunContext&) {}, {}, {});
  });
  print(measure(team + ", beside a pushing thread", 5, repeats, run), 1e6, "us per region");
  stop = true;
  pusher.join();
  engine->delete_variable(var);
  engine->wait_for_all();
  return 0;
}

}  // namespace weft::bench
