// weft/engine.hpp: the dependency engine for C++17, on top of weft/engine.h: handles that free themselves,
// any callables, exceptions.
//
//     weft::Engine engine;
//     weft::Variable archive(engine);
//     engine.push([&](weft::Context) { append(file); }, {}, {&archive}, {.name = "append"});
//     archive.wait();
#ifndef WEFT_ENGINE_HPP
#define WEFT_ENGINE_HPP

#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/engine.h"

namespace weft {

// What a call reports that did not succeed; operation: the one that failed first, if any did.
struct EngineError : std::runtime_error {
  EngineError(weft_status status_, const std::string& text, std::string operation_)
      : std::runtime_error(text), status(status_), operation(std::move(operation_)) {}
  weft_status status;
  std::string operation;
};

namespace detail {
inline void check(weft_status status) {
  if (status == WEFT_NO_MEMORY) throw std::bad_alloc();
  if (status != WEFT_OK) throw EngineError(status, weft_last_error(), weft_last_operation());
}
template <auto free>
struct Free {
  template <class T>
  void operator()(T* handle) const noexcept {
    free(handle);
  }
};
}  // namespace detail

class Engine;

class Variable {
 public:
  explicit Variable(Engine& engine);
  // Until all that was pushed on it has run; writes_only: what produces its value. Raises EngineError if it
  // is poisoned, and after timeout_s seconds (below 0: never).
  void wait(bool writes_only = false, double timeout_s = -1) {
    detail::check(weft_wait_for_variable(get(), writes_only, timeout_s));
  }
  void clear_error() { detail::check(weft_clear_error(get())); }
  uint64_t version() const noexcept { return weft_variable_version(handle_.get()); }
  weft_variable* get() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<weft_variable, detail::Free<weft_variable_free>> handle_;
};

// What a function gets while it runs.
class Context {
 public:
  explicit Context(weft_context* context) noexcept : context_(context) {}
  int device() const noexcept { return weft_context_device(context_); }
  weft_queue queue() const noexcept { return weft_context_queue(context_); }
  int worker() const noexcept { return weft_context_worker(context_); }
  const char* inherited_error() const noexcept { return weft_inherited_error(context_); }

 private:
  weft_context* context_;
};

struct PushOptions {
  const char* name = nullptr;
  int device = 0;
  weft_queue queue = WEFT_COMPUTE;
  int priority = 0;
  bool run_on_error = false;
  uint64_t size_bytes = 0;
};

class Engine {
 public:
  explicit Engine(weft_engine_options options = {}) {
    options.size = sizeof options;
    weft_engine* made;
    detail::check(weft_engine_new(&options, &made));
    handle_.reset(made);
  }
  weft_engine* get() const noexcept { return handle_.get(); }

  // f(Context), which may throw: what it writes is poisoned then. It is moved, and destroyed after it has
  // run.
  template <class F>
  void push(F&& f, std::initializer_list<const Variable*> reads,
            std::initializer_list<const Variable*> writes, const PushOptions& options = {}) {
    using Function = std::decay_t<F>;
    const std::vector<weft_variable*> in = handles(reads), out = handles(writes);
    weft_operation operation{};
    operation.size = sizeof operation;
    operation.run = [](weft_context* context, void* data) -> int {
      try {
        (*static_cast<Function*>(data))(Context(context));
        return 0;
      } catch (const std::exception& error) {
        return weft_fail(context, error.what());
      } catch (...) {
        return weft_fail(context, "an exception that is no std::exception");
      }
    };
    operation.data = new Function(std::forward<F>(f));
    operation.release = [](void* data) { delete static_cast<Function*>(data); };
    operation.name = options.name;
    operation.reads = in.data(), operation.read_count = in.size();
    operation.writes = out.data(), operation.write_count = out.size();
    operation.device = options.device;
    operation.queue = options.queue;
    operation.priority = options.priority;
    operation.run_on_error = options.run_on_error;
    operation.size_bytes = options.size_bytes;
    detail::check(weft_push(get(), &operation));
  }
  void wait(double timeout_s = -1) { detail::check(weft_wait_for_all(get(), timeout_s)); }

 private:
  static std::vector<weft_variable*> handles(std::initializer_list<const Variable*> variables) {
    std::vector<weft_variable*> all;
    for (const Variable* each : variables) all.push_back(each->get());
    return all;
  }
  std::unique_ptr<weft_engine, detail::Free<weft_engine_free>> handle_;
};

inline Variable::Variable(Engine& engine) {
  weft_variable* made;
  detail::check(weft_variable_new(engine.get(), &made));
  handle_.reset(made);
}

}  // namespace weft
#endif
