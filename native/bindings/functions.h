// functions.h: Python callables and native functions as tasks of the engine, and the objects they are called
// with.
#pragma once

#include "bindings/python.h"
#include "storage/chunk.h"

namespace weft {

struct PyEngine {
  std::shared_ptr<Engine> core;
  struct Watcher;  // an observer written in Python
  std::vector<std::shared_ptr<Watcher>> watchers;

  explicit PyEngine(Options options) : core(Engine::create(options)) {}
  ~PyEngine();
  std::vector<PyObject*> references() const;
  void clear();
};

struct PyVariable {
  std::shared_ptr<Engine> engine;
  Ref<Var> var;

  PyVariable(std::shared_ptr<Engine> e, Ref<Var> v) : engine(std::move(e)), var(std::move(v)) {}
  PyVariable(PyVariable&&) noexcept = default;
  ~PyVariable();
};

// Memory of a device's pool, without a shape; ``weft.storage.alloc`` makes it.
struct PyMemory {
  Ref<Chunk> chunk;  // null: freed
  Device device;
  size_t bytes = 0;
  int exports = 0;  // buffers of Python over it; GIL
  ~PyMemory();
};

struct PyOperator {
  std::shared_ptr<Engine> engine;
  nb::object variables;  // so that they are not deleted while it can be pushed
  std::shared_ptr<Operator> op;
  PyObject* fn = nullptr;  // borrowed from `op`; for the garbage collector

  ~PyOperator();
  // While operations of it are pending the engine holds the function too, and it is not garbage.
  std::vector<PyObject*> references() const;
  void clear();
};

// A C function `void f(void* data)`, found by address. Runs without the GIL.
struct NativeTask : Counted<NativeTask> {
  void (*fn)(void*) = nullptr;
  void* data = nullptr;
  std::string name;
  bool cheap = false;
  PyObject* keep = nullptr;
  ~NativeTask() { release_later(keep); }
};

struct PyNativeFunction {
  Ref<NativeTask> task;
};

struct PyRunContext {
  Device device;
  QueueKind queue;
  int worker;
  void* stream;
  nb::object name;  // or the function it is to be taken from
  Ref<Error> error = {};
};

struct PyOnComplete {
  Ref<Completion> completion;
  ~PyOnComplete();
};

// What a push of Python says beyond the function. `name` is a str, or None to take the function's.
struct Description {
  nb::handle name;
  nb::handle on_done;
};

// Fills `op` with the callable: a Python one or a NativeFunction. Raises TypeError for anything else.
void set_function(Op& op, nb::handle fn, const Description& description, bool is_async);

// Makes an operation of an Operator remember the line that pushes it.
void set_pushing_line(Op& op);

nb::object device_object(Device device);
// None is cpu(0). Raises DeviceError.
Device as_device(nb::handle object);
std::string function_name(nb::handle name_or_function) noexcept;

}  // namespace weft
