// What tests of calls share: a planner of three operators on arrays of float64, and a language whose objects
// are counted.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "calls/lazy_log.h"
#include "calls/tape.h"
#include "program/builder.h"
#include "tests/program_support.h"

// An object of the stand-in for a language: a function of gradients, or code, by how it is used.
struct _object {
  std::function<std::vector<std::optional<weft::Tracked>>(std::vector<weft::Tracked>&&)> function;
  std::string text;
  int references = 1;
};

namespace weft::testing {

// How many such objects there are, what the planner was asked, and the line that calls come from.
struct Language {
  static inline int objects = 0;
  static inline std::vector<std::string> planned;
  static inline std::string line = "line 1";
  // Whether this thread has the language's lock; what lazy evaluation asks, and how often it was told of
  // breaks.
  static inline thread_local bool is_locked = true;
  static inline std::function<LoggedProgram(const LoggedSegment&)> program_of;
  static inline int breaks = 0;
  static _object* make() {
    ++objects;
    return new _object;
  }
};

// sum: a + b; product: a * b; sum into: a + b, written to a third array.
Ref<Plan> plan_of(const std::string& name);

inline Tracked numbers(const Sizes& shape, double value) {
  Tensor x = empty(shape, DType::float64);
  push_fill(x, {Scalar::Kind::real, {.real = value}});
  return Tracked(std::move(x));
}
inline double first_of(const Tracked& x) {
  wait_for(x.tensor);
  return load_as<double>(x.tensor.data);
}
Tracked call(const Ref<Plan>& plan, const Tracked& a, const Tracked& b);

}  // namespace weft::testing
