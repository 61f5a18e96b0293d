// engine.cpp: the engine behind weft/engine.h. Conversion only: handles, texts of errors, C functions as
// tasks.
#include "weft/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>

#include "c/errors.h"
#include "engine/engine.h"

using namespace weft;

// The engine lives as long as any handle of it or of what it made.
struct weft_engine {
  std::shared_ptr<Engine> core;
};
struct weft_variable {
  std::shared_ptr<Engine> engine;
  Ref<Var> var;
};
struct weft_operator {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Operator> core;
};
struct weft_completion {
  Ref<Completion> core;
};
struct weft_context {
  RunContext* run;
  std::string failure;  // what weft_fail said
};

namespace weft::c {

LastError& last_error() noexcept {
  thread_local LastError last;
  return last;
}

weft_status report(weft_status status, std::string text, std::string operation) {
  last_error() = {std::move(text), std::move(operation)};
  return status;
}

std::string described(const Error& error) {
  return error.operation.empty() ? error.message : error.operation + ": " + error.message;
}

}  // namespace weft::c

using namespace weft::c;

namespace {

Deadline deadline_in(double seconds) {
  if (std::isnan(seconds)) throw EngineMisuse("timeout_s is not a number");
  if (seconds < 0 || seconds > 1e9) return kNever;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A structure of the caller's version of the header, which may be shorter than this library's.
template <class T>
T completed(const T* given, const char* what) {
  T all{};
  if (!given) throw EngineMisuse(std::string(what) + " is NULL");
  if (given->size < sizeof(size_t) || given->size > sizeof(T))
    throw EngineMisuse(std::string(what) + ": size is " + std::to_string(given->size) + ", at most " +
                       std::to_string(sizeof(T)) + " for version " + std::to_string(WEFT_ENGINE_VERSION) +
                       "; set it to sizeof");
  std::memcpy(static_cast<void*>(&all), given, given->size);
  return all;
}

// A C function as a task. It fits into the operation.
struct CTask {
  weft_function function;
  void* data;
  void (*release)(void*);
  void (*done)(void*, const char*);
  char* label;  // owned; may be null

  static const CTask& of(const void* state) noexcept { return *static_cast<const CTask*>(state); }

  static void run(void* state, RunContext& run_context) {
    const CTask& task = of(state);
    weft_context context{&run_context, {}};
    const int result = task.function(&context, task.data);
    if (result == 0) return;
    if (context.failure.empty()) context.failure = "the function returned " + std::to_string(result);
    throw TaskFailure{make_ref<Error>(context.failure)};
  }
  static void drop(void* state) noexcept {
    const CTask& task = of(state);
    if (task.release) task.release(task.data);
    delete[] task.label;
  }
  static void finished(void* state, Error* error) noexcept {
    const CTask& task = of(state);
    if (task.done) task.done(task.data, error ? described(*error).c_str() : nullptr);
  }
  static std::string name(const void* state) noexcept {
    const char* label = of(state).label;
    return label ? label : "";
  }
  static std::string where(const void*) noexcept { return {}; }
  static constexpr TaskType type{run, drop, finished, name, where, nullptr};
};
static_assert(sizeof(CTask) <= Op::kInlineState);

char* copied(const char* text) {
  if (!text) return nullptr;
  const size_t length = std::strlen(text) + 1;
  char* copy = new char[length];
  std::memcpy(copy, text, length);
  return copy;
}

void add_all(Op* op, weft_variable* const* variables, size_t count, Mode mode) {
  for (size_t i = 0; i < count; ++i) op->add(variables[i]->var.get(), mode);
}

void require_all(weft_variable* const* variables, size_t count, const char* what) {
  if (count && !variables) throw EngineMisuse(std::string(what) + " is NULL");
  for (size_t i = 0; i < count; ++i) existing(variables[i], what);
}

// Releases data unless an operation has taken it over.
class Released {
 public:
  explicit Released(const weft_operation* given) noexcept : given_(given) {}
  ~Released() {
    const bool has_release =
        given_ && given_->size >= offsetof(weft_operation, release) + sizeof(given_->release);
    if (has_release && given_->release) given_->release(given_->data);
  }
  void taken() noexcept { given_ = nullptr; }
  Released(const Released&) = delete;

 private:
  const weft_operation* given_;
};

// The operation that is described; who gets it owns data.
Op* as_op(const weft_operation& given, Released& released) {
  if (!given.run) throw EngineMisuse("run is NULL");
  if (given.queue < 0 || given.queue >= kQueueKinds)
    throw EngineMisuse("there is no queue of number " + std::to_string(given.queue));
  if (given.device < 0 || given.device >= kDevicesOfKind)
    throw EngineMisuse("device is " + std::to_string(given.device) + ", not in 0.." +
                       std::to_string(kDevicesOfKind - 1));
  require_all(given.reads, given.read_count, "reads");
  require_all(given.writes, given.write_count, "writes");
  require_all(given.overwrites, given.overwrite_count, "overwrites");
  const size_t count = given.read_count + given.write_count + given.overwrite_count;
  if (count > kMostAccesses) throw EngineMisuse("too many variables");
  Op* op = new_op(count);
  char* label;
  try {
    label = copied(given.name);
  } catch (...) {
    free_op(op);
    throw;
  }
  new (op->storage) CTask{given.run, given.data, given.release, given.done, label};
  op->state = op->storage;
  op->type = &CTask::type;
  released.taken();
  if (given.asynchronous) op->kind = OpKind::async;
  op->run_on_error = given.run_on_error != 0;
  add_all(op, given.writes, given.write_count, Mode::write);
  add_all(op, given.overwrites, given.overwrite_count, Mode::overwrite);
  add_all(op, given.reads, given.read_count, Mode::read);
  return op;
}

}  // namespace

int weft_engine_version() { return WEFT_ENGINE_VERSION; }
const char* weft_last_error() { return last_error().text.c_str(); }
const char* weft_last_operation() { return last_error().operation.c_str(); }

weft_status weft_engine_new(const weft_engine_options* given, weft_engine** engine) {
  return guarded([&] {
    existing(engine, "engine") = nullptr;
    Options options;
    if (given) {
      const weft_engine_options all = completed(given, "options");
      if (all.kind < WEFT_THREADED || all.kind > WEFT_EXPLORE)
        throw EngineMisuse("there is no kind of engine of number " + std::to_string(all.kind));
      options.kind = static_cast<EngineKind>(all.kind);
      options.workers = all.workers;
      options.seed = all.seed;
      options.check = all.check != 0;
      if (all.io_workers) options.io_workers = all.io_workers;
      if (all.max_pending) options.max_pending = all.max_pending;
      if (all.max_pending_bytes) options.max_pending_bytes = all.max_pending_bytes;
    }
    *engine = new weft_engine{Engine::create(options)};
  });
}

void weft_engine_free(weft_engine* engine) {
  if (!engine) return;
  try {
    engine->core->stop();
  } catch (...) {  // failures that nobody asked for; or inside of a function, where the engine ends by itself
  }
  delete engine;
}

weft_status weft_variable_new(weft_engine* engine, weft_variable** variable) {
  return guarded([&] {
    existing(variable, "variable") = nullptr;
    const std::shared_ptr<Engine>& core = existing(engine, "engine").core;
    *variable = new weft_variable{core, core->new_variable()};
  });
}

void weft_variable_free(weft_variable* variable) {
  if (!variable) return;
  Engine::drop_variable(std::move(variable->var));
  delete variable;
}

weft_status weft_variable_delete(weft_variable* variable, void (*deleted)(void*), void* data) {
  return guarded([&] {
    weft_variable& handle = existing(variable, "variable");
    if (!deleted) throw EngineMisuse("deleted is NULL");
    Op* op = new_op(1);
    op->emplace([deleted, data](RunContext&) { deleted(data); }, "deleted");
    handle.engine->delete_variable(handle.var, op, {});
    delete variable;
  });
}

uint64_t weft_variable_version(const weft_variable* variable) {
  return variable ? variable->var->version.load(std::memory_order_acquire) : 0;
}

int weft_variable_is_ready(weft_variable* variable, int to_write) {
  return variable && variable->engine->is_ready(*variable->var, to_write != 0);
}

weft_status weft_push(weft_engine* engine, const weft_operation* operation) {
  Released released(operation);
  return guarded([&] {
    const std::shared_ptr<Engine>& core = existing(engine, "engine").core;
    const weft_operation all = completed(operation, "operation");
    Op* op = as_op(all, released);
    PushOptions options;
    options.device.index = all.device;
    options.queue = static_cast<QueueKind>(all.queue);
    options.priority = all.priority;
    options.size_bytes = all.size_bytes;
    core->submit(op, options);
  });
}

weft_status weft_operator_new(weft_engine* engine, const weft_operation* operation, weft_operator** made) {
  Released released(operation);
  return guarded([&] {
    existing(made, "made") = nullptr;
    const std::shared_ptr<Engine>& core = existing(engine, "engine").core;
    const weft_operation all = completed(operation, "operation");
    auto handle = std::make_unique<weft_operator>();
    Op* plan = as_op(all, released);
    handle->engine = core;
    handle->core = core->new_operator(plan, static_cast<QueueKind>(all.queue));
    *made = handle.release();
  });
}

weft_status weft_operator_push(weft_operator* pushed, int device, int priority) {
  return guarded([&] {
    weft_operator& handle = existing(pushed, "pushed");
    if (device < 0 || device >= kDevicesOfKind)
      throw EngineMisuse("device is " + std::to_string(device) + ", not in 0.." +
                         std::to_string(kDevicesOfKind - 1));
    PushOptions options;
    options.device.index = device;
    options.priority = priority;
    handle.engine->submit(*handle.core, options);
  });
}

void weft_operator_free(weft_operator* freed) { delete freed; }

int weft_context_device(const weft_context* context) { return context->run->device.index; }
weft_queue weft_context_queue(const weft_context* context) {
  return static_cast<weft_queue>(context->run->queue);
}
int weft_context_worker(const weft_context* context) { return context->run->worker; }

int weft_fail(weft_context* context, const char* text) {
  try {
    context->failure = text ? text : "";
  } catch (const std::bad_alloc&) {  // it fails all the same, with the number that it returns
  }
  return 1;
}

const char* weft_inherited_error(const weft_context* context) {
  return context->run->error ? context->run->error->message.c_str() : nullptr;
}

weft_completion* weft_completion_of(weft_context* context) {
  if (!context->run->completion) return nullptr;
  return new (std::nothrow) weft_completion{Ref<Completion>(context->run->completion)};
}

weft_status weft_complete(weft_completion* completion, const char* error) {
  return guarded([&] {
    const std::unique_ptr<weft_completion> handle(&existing(completion, "completion"));
    if (!handle->core->finish(error ? make_ref<Error>(error) : Ref<Error>()))
      throw EngineMisuse("the operation has ended already");
  });
}

weft_status weft_wait_for_variable(weft_variable* variable, int writes_only, double timeout_s) {
  return guarded([&] {
    weft_variable& handle = existing(variable, "variable");
    handle.engine->wait_for_var(*handle.var, writes_only != 0, deadline_in(timeout_s));
  });
}

weft_status weft_wait_for_all(weft_engine* engine, double timeout_s) {
  return guarded([&] { existing(engine, "engine").core->wait_for_all(deadline_in(timeout_s)); });
}

weft_status weft_check_variable(weft_variable* variable) {
  return guarded([&] {
    weft_variable& handle = existing(variable, "variable");
    handle.engine->throw_if_failed(*handle.var);
  });
}

weft_status weft_clear_error(weft_variable* variable) {
  return guarded([&] {
    weft_variable& handle = existing(variable, "variable");
    handle.engine->clear_error(*handle.var);
  });
}

weft_status weft_check_access(weft_variable* variable, int write) {
  return guarded([&] {
    weft_variable& handle = existing(variable, "variable");
    handle.engine->check_access(*handle.var, write != 0);
  });
}

weft_status weft_begin_bulk(weft_engine* engine, int count) {
  return guarded([&] { existing(engine, "engine").core->begin_bulk(count); });
}

weft_status weft_end_bulk(weft_engine* engine) {
  return guarded([&] { existing(engine, "engine").core->end_bulk(); });
}
