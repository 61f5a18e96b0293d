#include "bindings/functions.h"
#include "bindings/hooks.h"

namespace weft {
namespace {

// The function object inside an Op.
struct PyTask {
  PyObject* fn;
  PyObject* name;  // str; null: the function's own
  PyObject* on_done;
  Site site;
};
static_assert(sizeof(PyTask) <= Op::kInlineState);

PyObject* name_source(const PyTask& task) { return task.name ? task.name : task.fn; }

void run(void* state, RunContext& context, bool is_async) {
  auto& task = *static_cast<PyTask*>(state);
  try {
    nb::object about = nb::cast(PyRunContext{context.device, context.queue, context.worker, context.stream,
                                             nb::borrow(name_source(task)), Ref<Error>(context.error)});
    if (is_async)
      nb::handle(task.fn)(about, nb::cast(PyOnComplete{Ref<Completion>(context.completion)}));
    else
      nb::handle(task.fn)(about);
  } catch (nb::python_error& thrown) {
    throw TaskFailure{error_from_python(thrown)};
  }
}

void drop(void* state) noexcept {
  auto* task = static_cast<PyTask*>(state);
  if (python_is_ending()) return;
  const WithGil gil;
  Py_DECREF(task->fn);
  Py_XDECREF(task->name);
  Py_XDECREF(task->on_done);
  Py_XDECREF(task->site.release());
}

void call_on_done(PyObject* on_done, Error* error) noexcept {
  if (python_is_ending()) return;
  const WithGil gil;
  if (!error) {
    call_unraisable(on_done, [&] { nb::handle{on_done}(nb::none()); });
    return;
  }
  // Only ever set: what reads the operation's results may raise the error meanwhile, and then it has been
  // seen.
  bool is_reported = true;
  call_unraisable(on_done, [&] {
    is_reported = !nb::handle{on_done}(to_engine_error({Ref<Error>(error)})).is(nb::bool_(false));
  });
  if (is_reported) error->seen.store(true, std::memory_order_relaxed);
}

template <class State>
void finished(void* state, Error* error) noexcept {
  call_on_done(static_cast<State*>(state)->on_done, error);
}

std::string name_of(const void* state) noexcept {
  if (python_is_ending()) return {};
  const WithGil gil;
  return function_name(name_source(*static_cast<const PyTask*>(state)));
}

template <class State>
std::string where(const void* state) noexcept {
  if (python_is_ending()) return {};
  const WithGil gil;
  return static_cast<const State*>(state)->site.text();
}

// Two by two: without and with on_done, ordinary and asynchronous.
const TaskType& python_type(bool has_on_done, bool is_async) {
  static constexpr auto sync = [](void* s, RunContext& c) { run(s, c, false); };
  static constexpr auto async = [](void* s, RunContext& c) { run(s, c, true); };
  static constexpr auto type = [](auto run_task, auto end) {
    return TaskType{run_task, drop, end, name_of, where<PyTask>, python_domain()};
  };
  static const TaskType types[2][2] = {{type(sync, nullptr), type(async, nullptr)},
                                       {type(sync, finished<PyTask>), type(async, finished<PyTask>)}};
  return types[has_on_done][is_async];
}

struct NativeState {
  NativeTask* task;  // counted
  PyObject* name;
  PyObject* on_done;
  Site site;
};
static_assert(sizeof(NativeState) <= Op::kInlineState);

void native_drop(void* state) noexcept {
  auto* native = static_cast<NativeState*>(state);
  native->task->release();
  for (PyObject* object : {native->name, native->on_done})
    if (object) release_later(object);
  native->site = {};
}

std::string native_name(const void* state) noexcept {
  const auto* native = static_cast<const NativeState*>(state);
  if (!native->name || python_is_ending()) return native->task->name;
  const WithGil gil;
  return function_name(native->name);
}

const TaskType& native_type(bool has_on_done) {
  static constexpr auto run_native = [](void* state, RunContext&) {
    const NativeTask& task = *static_cast<NativeState*>(state)->task;
    task.fn(task.data);
  };
  static constexpr auto at = where<NativeState>;
  static const TaskType types[2] = {
      {run_native, native_drop, nullptr, native_name, at, nullptr},
      {run_native, native_drop, finished<NativeState>, native_name, at, nullptr}};
  return types[has_on_done];
}

// One push of an Operator: the Operator's function, and the line of the push.
struct OperatorPush {
  const TaskType* type;
  void* state;
  Site site;
};
static_assert(sizeof(OperatorPush) <= Op::kInlineState);

template <bool kPython>
const TaskType& operator_type() {
  static const TaskType type{[](void* state, RunContext& context) {
                               const auto& push = *static_cast<OperatorPush*>(state);
                               push.type->run(push.state, context);
                             },
                             [](void* state) noexcept {
                               auto& push = *static_cast<OperatorPush*>(state);
                               if (kPython && !python_is_ending()) {
                                 const WithGil gil;
                                 Py_XDECREF(push.site.release());
                               }
                               push.site = {};
                             },
                             nullptr,
                             [](const void* state) noexcept {
                               const auto& push = *static_cast<const OperatorPush*>(state);
                               return push.type->name(push.state);
                             },
                             where<OperatorPush>,
                             kPython ? python_domain() : nullptr};
  return type;
}

PyObject* counted(nb::handle object) { return object.is_none() ? nullptr : object.inc_ref().ptr(); }

}  // namespace

std::string function_name(nb::handle source) noexcept {
  if (PyUnicode_Check(source.ptr())) return to_utf8(source);
  for (const char* attribute : {"__qualname__", "__name__"}) {
    nb::object name = nb::steal(PyObject_GetAttrString(source.ptr(), attribute));
    if (name.is_valid() && PyUnicode_Check(name.ptr())) return to_utf8(name);
    PyErr_Clear();
  }
  return type_of(source);
}

void set_function(Op& op, nb::handle fn, const Description& description, bool is_async) {
  const bool has_on_done = !description.on_done.is_none();
  if (has_on_done && !PyCallable_Check(description.on_done.ptr()))
    throw nb::type_error("on_done must be callable or None");
  if (!description.name.is_none() && !PyUnicode_Check(description.name.ptr()))
    throw nb::type_error("name must be a str");
  const bool named = !description.name.is_none() && nb::len(description.name) != 0;
  PyObject* name = named ? description.name.inc_ref().ptr() : nullptr;
  if (PyNativeFunction* native = as<PyNativeFunction>(fn)) {
    if (is_async) {
      Py_XDECREF(name);
      throw nb::type_error("a NativeFunction cannot be asynchronous");
    }
    native->task->retain();
    op.state =
        new (op.storage) NativeState{native->task.get(), name, counted(description.on_done), Site::here()};
    op.type = &native_type(has_on_done);
    op.cheap = native->task->cheap && !has_on_done;
    return;
  }
  if (!PyCallable_Check(fn.ptr())) {
    Py_XDECREF(name);
    throw type_error(
        "push: fn must be a callable taking the run context, a NativeFunction, or an Operator; got " +
        type_of(fn));
  }
  op.state = new (op.storage) PyTask{fn.inc_ref().ptr(), name, counted(description.on_done), Site::here()};
  op.type = &python_type(has_on_done, is_async);
  op.kind = is_async ? OpKind::async : OpKind::task;
}

void set_pushing_line(Op& op) {
  const TaskType* type = op.type;
  void* state = op.state;
  op.state = new (op.storage) OperatorPush{type, state, Site::here()};
  op.type = type->domain ? &operator_type<true>() : &operator_type<false>();
}

nb::object device_object(Device device) {
  constexpr int kKnown = 64;
  static PyObject* devices[kDeviceKinds][kKnown];  // GIL; devices live for ever
  if (device.index >= kKnown) return call_hook(Hook::device_type, kind_name(device.kind), device.index);
  PyObject*& object = devices[static_cast<int>(device.kind)][device.index];
  if (!object) object = call_hook(Hook::device_type, kind_name(device.kind), device.index).release().ptr();
  return nb::borrow(object);
}

PyOnComplete::~PyOnComplete() {
  const PythonEntry entry;
  completion = {};
}

void bind_functions(nb::module_& m) {
  Class<PyRunContext>(
      m, "RunContext",
      "What an engine function is called with: what only run time knows.\n\n"
      "device: the Device it runs on; stream: the device's for this queue, a number, None on cpu; worker: "
      "index of the thread within its\n"
      "queue, -1 on the pushing thread; queue: the queue's name; operation: the operation's name;\n"
      "error: the EngineError of what it uses, if it was pushed with run_on_error; else None.")
      .def_prop_ro(
          "device", [](const PyRunContext& c) { return device_object(c.device); },
          nb::sig("def device(self) -> weft.base.device.Device"))
      .def_prop_ro("stream",
                   [](const PyRunContext& c) {
                     return c.stream ? nb::object(nb::int_(reinterpret_cast<uintptr_t>(c.stream)))
                                     : nb::object(nb::none());
                   })
      .def_prop_ro("worker", [](const PyRunContext& c) { return c.worker; })
      .def_prop_ro("queue", [](const PyRunContext& c) { return queue_name(c.queue); })
      .def_prop_ro("operation", [](const PyRunContext& c) { return function_name(c.name); })
      .def_prop_ro(
          "error", [](const PyRunContext& c) { return c.error ? to_engine_error({c.error}) : nb::none(); },
          nb::sig("def error(self) -> weft.base.errors.EngineError | None"))
      .def("__repr__", [](const PyRunContext& c) {
        return "RunContext(operation='" + function_name(c.name) + "', device=" + to_string(c.device) +
               ", queue='" + queue_name(c.queue) + "', worker=" + std::to_string(c.worker) + ")";
      });

  Class<PyOnComplete>(m, "OnComplete",
                      "Ends an asynchronous operation: call it once, from any thread.\n\n"
                      "on_complete(error=None): with an exception or a str the operation has failed.\n"
                      "Raises EngineError if the operation has ended already, TypeError for another error.")
      .def(
          "__call__",
          [](PyOnComplete& self, nb::handle error) {
            const bool first =
                self.completion->finish(error.is_none() ? Ref<Error>() : error_from_object(error));
            if (!first) throw EngineMisuse("on_complete: the operation has ended already");
          },
          "error"_a = nb::none(),
          nb::sig(
              "def __call__(self, error: BaseException | type[BaseException] | str | None = None) -> None"));

  Class<PyNativeFunction>(
      m, "NativeFunction",
      "A C function ``void f(void* data)`` for the engine, given by its address (ctypes, cffi, numba).\n\n"
      "It runs without the GIL. cheap: it lasts less than a microsecond or so and may run on the pushing "
      "thread if\n"
      "nothing it needs is busy; whether it did cannot be observed. keep: an object kept alive as long as "
      "the function.\n"
      "Raises ValueError if address is 0.\n\n"
      ">>> import ctypes\n"
      ">>> from weft.engine import Engine, NativeFunction\n"
      ">>> libc = ctypes.CDLL(None)\n"
      ">>> address = ctypes.cast(libc.free, ctypes.c_void_p).value\n"
      ">>> with Engine() as engine:\n"
      "...     engine.push(NativeFunction(address, 0, name='free(NULL)'))\n"
      "...     engine.wait_for_all()\n")
      .def(
          "__init__",
          [](PyNativeFunction* self, uintptr_t address, uintptr_t data, bool cheap, std::string name,
             nb::object keep) {
            if (address == 0) throw nb::value_error("NativeFunction: the address is 0");
            auto task = make_ref<NativeTask>();
            task->fn = reinterpret_cast<void (*)(void*)>(address);
            task->data = reinterpret_cast<void*>(data);
            task->cheap = cheap;
            task->name = name.empty() ? "native function" : std::move(name);
            task->keep = counted(keep);
            new (self) PyNativeFunction{std::move(task)};
          },
          "address"_a, "data"_a = 0, nb::kw_only(), "cheap"_a = false, "name"_a = "", "keep"_a = nb::none())
      .def_prop_ro("cheap", [](const PyNativeFunction& f) { return f.task->cheap; })
      .def_prop_ro("name", [](const PyNativeFunction& f) { return f.task->name; });
}

}  // namespace weft
