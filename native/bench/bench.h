// bench.h: timing for the native benchmarks. Each row is one line of JSON: name, min and median of the
// repeats, unit.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace weft::bench {

int engine(const std::string& only);
int regions(const std::string& team, double us);
int storage();

inline double seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

struct Row {
  std::string name;
  double best, median;
};

template <class F>
Row measure(const std::string& name, int repeats, double per, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto from = Clock::now();
    f();
    times.push_back(seconds(from) / per);
  }
  std::sort(times.begin(), times.end());
  return {name, times.front(), times[times.size() / 2]};
}

inline void print(const Row& row, double scale, const char* unit) {
  std::printf("{\"name\": \"%s\", \"min\": %.4g, \"median\": %.4g, \"unit\": \"%s\"}\n", row.name.c_str(),
              row.best * scale, row.median * scale, unit);
  std::fflush(stdout);
}

}  // namespace weft::bench
