// What the tests of the engine share: handles that clean up, short forms of push, gates, and bounded waiting.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/check.h"

namespace weft::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// How often to repeat something; the sanitizers make every step many times as slow.
constexpr int scaled(int count) {
  return kThreadSanitizer ? count / 10 : kAddressSanitizer ? count / 2 : count;
}

inline constexpr EngineKind kKinds[] = {EngineKind::threaded, EngineKind::naive, EngineKind::explore};

inline std::shared_ptr<Engine> make_engine(int workers = 2, EngineKind kind = EngineKind::threaded) {
  Options options;
  options.kind = kind;
  options.workers = workers;
  options.seed = seed();
  return Engine::create(options);
}

// A variable that is deleted with its handle.
class Variable {
 public:
  explicit Variable(std::shared_ptr<Engine> engine)
      : engine_(std::move(engine)), var_(engine_->new_variable()) {}
  Variable(Variable&&) noexcept = default;
  Variable& operator=(Variable&&) = delete;
  ~Variable() {
    if (var_) Engine::drop_variable(std::move(var_));
  }
  operator Var*() const {
    return var_.get();
  }  // NOLINT: variables are written as they are in lists of accesses
  Var& operator*() const { return *var_; }
  Var* operator->() const { return var_.get(); }
  const Ref<Var>& ref() const { return var_; }

 private:
  std::shared_ptr<Engine> engine_;
  Ref<Var> var_;
};

inline std::vector<Variable> make_variables(const std::shared_ptr<Engine>& engine, int count) {
  std::vector<Variable> variables;
  for (int i = 0; i < count; ++i) variables.emplace_back(engine);
  return variables;
}

using Vars = std::initializer_list<Var*>;
inline std::span<Var* const> as_span(Vars vars) { return {vars.begin(), vars.size()}; }

template <class F>
void push(Engine& engine, F&& fn, Vars reads, Vars writes, const PushOptions& options = {}) {
  engine.push(std::forward<F>(fn), as_span(reads), as_span(writes), options);
}

template <class F>
void push(Engine& engine, F&& fn, Vars reads, Vars writes, const char* name) {
  engine.push(std::forward<F>(fn), as_span(reads), as_span(writes), PushOptions{.name = name});
}

template <class F>
void push_async(Engine& engine, F&& fn, Vars reads, Vars writes,
                PushOptions options = {.queue = QueueKind::io}) {
  engine.push_async(std::forward<F>(fn), as_span(reads), as_span(writes), options);
}

// An operation for what `push` has no words for: overwriting, cheap kernels, operators, destroyers.
template <class F>
Op* make_op(F&& fn, Vars writes, Vars overwrites, Vars reads, const char* name = "") {
  Op* op = new_op(writes.size() + overwrites.size() + reads.size());
  for (Var* var : writes) op->add(var, Mode::write);
  for (Var* var : overwrites) op->add(var, Mode::overwrite);
  for (Var* var : reads) op->add(var, Mode::read);
  op->emplace(std::forward<F>(fn), name);
  return op;
}

inline void nothing(RunContext&) {}

// The name of the operation whose failure a wait for the variable raises; "" if it raises nothing.
inline std::string cause_of(Engine& engine, Var& var, bool writes_only = false) {
  try {
    engine.wait_for_var(var, writes_only);
  } catch (const OperationFailed& failed) {
    CHECK_EQ(failed.errors.size(), size_t{1});
    return failed.errors.front()->operation;
  }
  return {};
}

// The names of the operations whose failures wait_for_all raises, in its order.
inline std::vector<std::string> causes_of_all(Engine& engine) {
  std::vector<std::string> names;
  try {
    engine.wait_for_all();
  } catch (const OperationFailed& failed) {
    for (const Ref<Error>& error : failed.errors) names.push_back(error->operation);
  }
  return names;
}

inline Deadline in_ms(int ms) { return Clock::now() + std::chrono::milliseconds(ms); }
inline void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Waits for something that happens by itself, soon; the limit is for tests that fail.
template <class F>
bool soon(F&& happened, int limit_ms = 20000) {
  const Deadline limit = in_ms(limit_ms);
  while (!happened()) {
    if (Clock::now() >= limit) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// Where functions of a test stop until they are let through. Declare it before the engine whose functions use
// it; a function that waits too long fails, so that a test which has failed already still ends.
class Gate {
 public:
  void open() {
    const std::lock_guard guard(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock guard(mutex_);
    ++arrived_;
    changed_.notify_all();
    if (!changed_.wait_until(guard, in_ms(20000), [&] { return open_; }))
      throw std::runtime_error("the gate stays closed");
  }
  // True once that many have come; false if they do not come for a long time.
  bool reached(int count = 1, int limit_ms = 20000) {
    std::unique_lock guard(mutex_);
    return changed_.wait_until(guard, in_ms(limit_ms), [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

// What happened, in order.
template <class T>
class Log {
 public:
  void add(T item) {
    const std::lock_guard guard(mutex_);
    items_.push_back(std::move(item));
  }
  std::vector<T> items() const {
    const std::lock_guard guard(mutex_);
    return items_;
  }
  size_t size() const { return items().size(); }

 private:
  mutable std::mutex mutex_;
  std::vector<T> items_;
};

// A generator of test data (SplitMix64), the same everywhere.
class Random {
 public:
  explicit Random(uint64_t start) : state_(start) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int limit) { return static_cast<int>(next() % static_cast<uint64_t>(limit)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace weft::testing
