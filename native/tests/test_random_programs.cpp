// Random programs equal a serial run exactly: values, versions, errors and reports (random_program.h says
// how).
#include "tests/random_program.h"

using namespace weft;
using namespace weft::testing;

namespace {

constexpr int kSteps = scaled(10000);

void run_alone(EngineKind kind, int workers, uint64_t start) {
  Options options;
  options.kind = kind;
  options.workers = workers;
  options.seed = start;
  options.max_pending = start % 2 ? 50 : 2048;
  auto engine = Engine::create(options);
  Program program(engine, {.seed = start});
  while (program.steps() < kSteps) program.step();
  program.finish();
}

void run_kind(EngineKind kind) {
  for (uint64_t i = 0; i < 3; ++i)
    for (int workers = 1; workers <= 8; ++workers)
      run_alone(kind, workers, seed() + i * 8 + static_cast<uint64_t>(workers));
}

}  // namespace

TEST(random_programs_threaded) { run_kind(EngineKind::threaded); }

TEST(random_programs_naive) {
  for (uint64_t i = 0; i < 3; ++i) run_alone(EngineKind::naive, 1, seed() + i);
}

TEST(random_programs_explore) { run_kind(EngineKind::explore); }

// Several threads push one program: a mutex around choosing and pushing makes their common order known.
TEST(random_programs_of_threads_that_take_turns) {
  for (const EngineKind kind : kKinds) {
    for (const int workers : {1, 2, 4}) {
      auto engine = make_engine(workers, kind);
      Program program(engine, {.seed = seed() + static_cast<uint64_t>(workers)});
      std::mutex turn;
      Log<std::string> failures;
      auto run = [&] {
        try {
          for (;;) {
            const std::lock_guard guard(turn);
            if (program.steps() >= kSteps || failures.size() > 0) return;
            program.step();
          }
        } catch (const std::exception& failure) {
          failures.add(failure.what());
        }
      };
      std::vector<std::jthread> threads;
      for (int i = 0; i < 3; ++i) threads.emplace_back(run);
      for (std::jthread& thread : threads) thread.join();
      CHECK_EQ(failures.items(), std::vector<std::string>());
      program.finish();
    }
  }
}

// Several threads push at the same time, each a program on variables of its own.
TEST(random_programs_side_by_side) {
  for (const EngineKind kind : kKinds) {
    for (const int workers : {1, 2, 4}) {
      auto engine = make_engine(workers, kind);
      Log<std::string> failures;
      std::deque<Program> programs;
      for (uint64_t i = 0; i < 3; ++i)
        programs.emplace_back(engine, ProgramOptions{.seed = seed() + i, .variables = 30, .alone = false});
      std::vector<std::jthread> threads;
      for (Program& program : programs) {
        threads.emplace_back([&] {
          try {
            while (program.steps() < kSteps / 3) program.step();
          } catch (const std::exception& failure) {
            failures.add(failure.what());
          }
        });
      }
      for (std::jthread& thread : threads) thread.join();
      CHECK_EQ(failures.items(), std::vector<std::string>());
      std::vector<std::string> reported = causes_of_all(*engine), expected;
      engine->stop();
      for (std::string& name : causes_of_all(*engine)) reported.push_back(std::move(name));
      engine->start();
      std::sort(reported.begin(), reported.end());
      for (const Program& program : programs)
        for (std::string& name : program.unreported()) expected.push_back(std::move(name));
      std::sort(expected.begin(), expected.end());
      CHECK_EQ(reported, expected);
      for (Program& program : programs) program.finish();
    }
  }
}
