// engine.cpp: the classes Engine, Variable and Operator of weft._core. Conversion only; the Python face with
// defaults, environment switches and the process's own engine is weft/engine/__init__.py.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/hooks.h"
#include "bindings/observer.h"
#include "bindings/push.h"
#include "device/backend.h"
#include "engine/device_kind.h"
#include "engine/machine.h"

namespace weft {

Device as_device(nb::handle object) {
  if (object.is_none()) return {};
  nb::object device = call_hook(Hook::as_device, object);
  const std::optional<DeviceKind> kind = find_device_kind(nb::cast<std::string>(device.attr("kind")));
  const int index = nb::cast<int>(device.attr("index"));
  if (kind) return {*kind, index};
  const Device gpu{DeviceKind::gpu, index};  // the only kind that is known before it was added
  require_backend(gpu);
  return gpu;
}

namespace {

// A kind of device that Python has added. stream(index, queue): a number, or None for none.
class PythonBackend final : public DeviceBackend {
 public:
  PythonBackend(std::string name, nb::object stream)
      : DeviceBackend(std::move(name)), stream_(stream.release().ptr()) {}

  void* stream(int index, QueueKind queue) override {
    if (stream_ == Py_None) return nullptr;
    const WithGil gil;
    const nb::object stream = nb::handle(stream_)(index, queue_name(queue));
    return stream.is_none() ? nullptr : reinterpret_cast<void*>(nb::cast<uintptr_t>(stream));
  }

 private:
  PyObject* const stream_;  // as long as the process, like all kinds
};

}  // namespace

PyEngine::~PyEngine() {
  const PythonEntry entry;
  clear();
  core.reset();
}

std::vector<PyObject*> PyEngine::references() const {
  std::vector<PyObject*> objects;
  for (const auto& watcher : watchers) objects.push_back(watcher->object.ptr());
  return objects;
}
void PyEngine::clear() {
  for (auto& watcher : std::exchange(watchers, {})) {
    core->remove_observer(watcher.get());
    watcher->object.reset();
  }
}

PyVariable::~PyVariable() {
  const PythonEntry entry;
  if (var) Engine::drop_variable(std::move(var));
  engine.reset();
}

PyOperator::~PyOperator() {
  const PythonEntry entry;
  clear();
  engine.reset();
}
std::vector<PyObject*> PyOperator::references() const { return {op && op->idle() ? fn : nullptr}; }
void PyOperator::clear() {
  fn = nullptr;
  op.reset();
}

namespace {

template <bool is_async>
void push(PyEngine& self, nb::handle fn, nb::handle device, nb::handle const_vars, nb::handle mutate_vars,
          nb::handle overwrite_vars, int priority, nb::handle name, nb::handle queue, Py_ssize_t size_bytes,
          nb::handle on_done, bool run_on_error) {
  if (size_bytes < 0) throw nb::value_error("size_bytes must be at least 0");
  PushOptions options;
  options.device = as_device(device);
  options.priority = priority;
  options.size_bytes = static_cast<uint64_t>(size_bytes);
  if (PyOperator* op = as<PyOperator>(fn)) {
    if (is_async)
      throw nb::type_error("push_async: the operator already says whether it is asynchronous; use push");
    if (nb::len(const_vars) || nb::len(mutate_vars) || nb::len(overwrite_vars) || nb::len(name) ||
        !on_done.is_none() || run_on_error)
      throw nb::type_error(
          "push: an Operator has its variables and name already; give device and priority only");
    options.queue = op->op->queue;
    Op* run = self.core->instantiate(*op->op);
    set_pushing_line(*run);
    return self.core->submit(run, options);
  }
  options.queue = as_queue(queue);
  const Variables variables(const_vars, mutate_vars, overwrite_vars);
  OwnedOp op = build_op(fn, variables, {name, on_done}, is_async);
  op->run_on_error = run_on_error;
  self.core->submit(op.release(), options);
}

const char* kPushDoc =
    R"(Run ``fn(run_context)`` once the variables it uses are free; returns at once.

fn: any callable, a NativeFunction, or an Operator (then only device and priority may be given).
device: None (cpu:0), "cpu:1" or a Device. const_vars, mutate_vars, overwrite_vars: the Variables it reads,
changes, and writes without reading. A variable listed twice, or read and written, counts as written.
priority: higher runs first among the ready operations of a queue. name: for errors and observers.
queue: "compute", "wide" (opens a parallel region: has the device's compute work to itself), "copy", "io",
"priority". size_bytes: memory the operation holds while it is pending, for back-pressure.
on_done: called with None or the EngineError when this operation has finished, failed or been skipped. If it
    returns False, the error still counts as one that nothing has raised.
run_on_error: it also runs where a variable that it reads or changes is poisoned; run_context.error says so.
What it changes stays poisoned where it was; what else it writes is good if it succeeds.

What fn raises poisons what it would have written and is raised by the waits. On a thread of the user's, push blocks
while more than max_pending operations or max_pending_bytes bytes are pending.
Raises EngineError if the engine is stopped or a variable is deleted or another engine's, DeviceError for a device
that is not there, TypeError and ValueError for other arguments.

>>> from weft.engine import Engine
>>> with Engine() as engine:
...     log, order = [], engine.new_variable()
...     for i in range(3):
...         engine.push(lambda run_context, i=i: log.append(i), mutate_vars=[order])
...     engine.wait_for_var(order)
>>> log
[0, 1, 2]
)";

}  // namespace

void bind_engine(nb::module_& m) {
  // A kind of device beside cpu: weft.kernels.devices.
  def(
      m, "add_device_kind",
      [](const std::string& name, nb::object stream) {
        add_device_kind(std::make_unique<PythonBackend>(name, std::move(stream)));
      },
      "name"_a, "stream"_a = nb::none());
  offer_gpus();
  def(m, "device_kind_counters", [](const std::string& name) {
    const std::optional<DeviceKind> kind = find_device_kind(name);
    const DeviceBackend* backend = kind ? backend_of(*kind) : nullptr;
    if (!backend) throw ValueError("device_kind_counters: no kind " + name + " was added");
    return counts_of({{"kernels", backend->kernels},
                      {"copies_in", backend->copies_in},
                      {"copies_out", backend->copies_out},
                      {"bytes_in", backend->bytes_in},
                      {"bytes_out", backend->bytes_out},
                      {"staged", backend->staged},
                      {"launches", backend->launches},
                      {"waits", backend->waits},
                      {"orders", backend->orders}});
  });
  def(
      m, "gpu_chips",
      [] {
        std::vector<std::string> chips;
        auto* const backend = dynamic_cast<GpuBackend*>(require_backend({DeviceKind::gpu, 0}));
        for (int index = 0; backend && index < backend->count(); ++index)
          chips.push_back(backend->chip(index));
        return chips;
      },
      "For each GPU what code is compiled for: \"sm_90\" or so, \"stand-in\". Raises DeviceError.");
  Class<PyVariable>(
      m, "Variable", nb::is_weak_referenceable(),
      "A token for any resource: what operations read and mutate. Made by Engine.new_variable().\n\n"
      "version: how many operations that wrote it have run. Dropping the last reference deletes it.")
      .def_prop_ro("version",
                   [](const PyVariable& v) { return v.var->version.load(std::memory_order_acquire); })
      .def("__repr__", [](const PyVariable& v) {
        const bool deleted = v.var->deleted.load();
        return "Variable(version=" + std::to_string(v.var->version.load()) + (deleted ? ", deleted)" : ")");
      });

  Class<PyOperator>(
      m, "Operator", nb::type_slots(Collected<PyOperator>::slots), nb::is_weak_referenceable(),
      "A function with its variables, made once by Engine.new_operator() and pushed many times.")
      .def_prop_ro("name", [](const PyOperator& o) { return o.op->plan->name(); })
      .def("__repr__", [](const PyOperator& o) { return "Operator('" + o.op->plan->name() + "')"; });

  bind_observers(m);
  Class<PyEngine>(m, "Engine", nb::type_slots(Collected<PyEngine>::slots), nb::is_weak_referenceable())
      .def(
          "__init__",
          [](PyEngine* self, const std::string& kind, int workers, int io_workers, uint64_t max_pending,
             uint64_t max_pending_bytes, uint64_t seed, bool check) {
            const EngineKind kinds = kind == "naive"     ? EngineKind::naive
                                     : kind == "explore" ? EngineKind::explore
                                                         : EngineKind::threaded;
            new (self)
                PyEngine(Options{kinds, workers, io_workers, max_pending, max_pending_bytes, seed, check});
          },
          "kind"_a, "workers"_a, "io_workers"_a, "max_pending"_a, "max_pending_bytes"_a, "seed"_a, "check"_a)
      .def_prop_ro(
          "workers", [](const PyEngine& e) { return e.core->options().workers; },
          "Narrow compute threads of each device.")
      .def_prop_ro(
          "running", [](const PyEngine& e) { return e.core->running(); }, "Whether it takes operations.")
      .def(
          "new_variable", [](PyEngine& e) { return PyVariable(e.core, e.core->new_variable()); },
          "A new Variable of this engine, at version 0.")
      .def(
          "delete_variable",
          [](PyEngine& e, PyVariable& variable, nb::handle on_deleted) {
            if (on_deleted.is_none()) return e.core->delete_variable(variable.var);
            OwnedOp op(new_op(1));
            nb::object call = call_hook(Hook::on_deleted, on_deleted);
            set_function(*op, call, {nb::none(), nb::none()}, false);
            e.core->delete_variable(variable.var, op.release(), {});
          },
          "variable"_a, "on_deleted"_a = nb::none(),
          nb::sig("def delete_variable(self, variable: Variable, on_deleted: collections.abc.Callable[[], "
                  "object] | None = None) -> None"),
          "Delete a variable after everything that has been pushed on it, then call ``on_deleted()`` on a "
          "worker.\n\n"
          "Raises EngineError if it has been deleted already or belongs to another engine.")
      .def("push", push<false>, "fn"_a, "device"_a = nb::none(), "const_vars"_a = nb::make_tuple(),
           "mutate_vars"_a = nb::make_tuple(), "overwrite_vars"_a = nb::make_tuple(), "priority"_a = 0,
           "name"_a = nb::str(""), nb::kw_only(), "queue"_a = nb::str("compute"), "size_bytes"_a = 0,
           "on_done"_a = nb::none(), "run_on_error"_a = false, kPushDoc,
           nb::sig("def push(self, fn: collections.abc.Callable[[RunContext], "
                   "object] | NativeFunction | Operator, "
                   "device: weft.base.device.Device | str | None = None, "
                   "const_vars: collections.abc.Iterable[Variable | Tensor] = (), "
                   "mutate_vars: collections.abc.Iterable[Variable | Tensor] = (), "
                   "overwrite_vars: collections.abc.Iterable[Variable | Tensor] = (), priority: int = 0, "
                   "name: str = '', *, queue: str = 'compute', size_bytes: int = 0, "
                   "on_done: collections.abc.Callable[[weft.base.errors.EngineError | None], "
                   "object] | None = None, run_on_error: bool = False) -> None"))
      .def("push_async", push<true>, "fn"_a, "device"_a = nb::none(), "const_vars"_a = nb::make_tuple(),
           "mutate_vars"_a = nb::make_tuple(), "overwrite_vars"_a = nb::make_tuple(), "priority"_a = 0,
           "name"_a = nb::str(""), nb::kw_only(), "queue"_a = nb::str("io"), "size_bytes"_a = 0,
           "on_done"_a = nb::none(), "run_on_error"_a = false,
           nb::sig("def push_async(self, fn: collections.abc.Callable[[RunContext, OnComplete], object], "
                   "device: weft.base.device.Device | str | None = None, "
                   "const_vars: collections.abc.Iterable[Variable | Tensor] = (), "
                   "mutate_vars: collections.abc.Iterable[Variable | Tensor] = (), "
                   "overwrite_vars: collections.abc.Iterable[Variable | Tensor] = (), priority: int = 0, "
                   "name: str = '', *, queue: str = 'io', size_bytes: int = 0, "
                   "on_done: collections.abc.Callable[[weft.base.errors.EngineError | None], "
                   "object] | None = None, run_on_error: bool = False) -> None"),
           "Like push, for ``fn(run_context, on_complete)``: the operation lasts until ``on_complete()`` is "
           "called.\n\n"
           "on_complete may be called once, from any thread, with an exception or a str if the operation "
           "failed. fn runs\n"
           "on the queue \"io\" unless told otherwise and may block there. If fn raises first, the operation "
           "has failed;\n"
           "likewise if on_complete is dropped without having been called.")
      .def(
          "new_operator",
          [](PyEngine& self, nb::handle fn, nb::handle const_vars, nb::handle mutate_vars, nb::handle name,
             bool is_async, nb::handle overwrite_vars, nb::handle queue, bool run_on_error) {
            const QueueKind kind =
                queue.is_none() ? (is_async ? QueueKind::io : QueueKind::compute) : as_queue(queue);
            const Variables variables(const_vars, mutate_vars, overwrite_vars);
            auto op = build_op(fn, variables, {name, nb::none()}, is_async);
            op->run_on_error = run_on_error;
            PyObject* function = PyCallable_Check(fn.ptr()) ? fn.ptr() : nullptr;
            return new PyOperator{self.core, variables.objects(), self.core->new_operator(op.release(), kind),
                                  function};
          },
          "fn"_a, "const_vars"_a = nb::make_tuple(), "mutate_vars"_a = nb::make_tuple(),
          "name"_a = nb::str(""), "is_async"_a = false, nb::kw_only(), "overwrite_vars"_a = nb::make_tuple(),
          "queue"_a = nb::none(), "run_on_error"_a = false,
          nb::sig("def new_operator(self, fn: collections.abc.Callable[..., object] | NativeFunction, "
                  "const_vars: collections.abc.Iterable[Variable | Tensor] = (), "
                  "mutate_vars: collections.abc.Iterable[Variable | Tensor] = (), name: str = '', "
                  "is_async: bool = False, *, "
                  "overwrite_vars: collections.abc.Iterable[Variable | Tensor] = (), "
                  "queue: str | None = None, run_on_error: bool = False) -> Operator"),
          "An Operator to push many times: fn, its variables and its name, taken apart only once.\n\n"
          "is_async: fn is called as by push_async. queue: as for push; None: \"io\" if asynchronous, else "
          "\"compute\".\n"
          "run_on_error: as for push.")
      .def(
          "delete_operator", [](PyEngine&, PyOperator& op) { Engine::delete_operator(*op.op); }, "operator"_a,
          "No more pushes of it; it is freed when those before have finished.")
      .def(
          "wait_for_var",
          [](PyEngine& e, nb::handle variable, bool writes_only, nb::handle timeout_s) {
            e.core->wait_for_var(*as_var(variable, "wait_for_var"), writes_only, as_deadline(timeout_s));
          },
          "variable"_a.none(), "writes_only"_a = false, "timeout_s"_a = nb::none(),
          nb::sig("def wait_for_var(self, variable: Variable | Tensor, writes_only: bool = False, "
                  "timeout_s: float | None = None) -> None"),
          "Wait for everything pushed on a variable before; with writes_only for what produces its value.\n\n"
          "Raises EngineError if the variable is poisoned (each time, with the same first cause), "
          "TimeoutError after\n"
          "timeout_s seconds. Inside an engine function a variable that the function declared is ready "
          "already; any\n"
          "other wait raises EngineError there, because it would block a worker. Ctrl-C ends the wait.")
      .def(
          "wait_for_all",
          [](PyEngine& e, nb::handle timeout_s) { e.core->wait_for_all(as_deadline(timeout_s)); },
          "timeout_s"_a = nb::none(),
          nb::sig("def wait_for_all(self, timeout_s: float | None = None) -> None"),
          "Wait for everything pushed before this call.\n\n"
          "Raises EngineError for a failure that no wait_for_all has raised yet, EngineErrorGroup for "
          "several;\n"
          "TimeoutError after timeout_s seconds.")
      .def(
          "clear_error",
          [](PyEngine& e, nb::handle variable) { e.core->clear_error(*as_var(variable, "clear_error")); },
          "variable"_a.none(), nb::sig("def clear_error(self, variable: Variable | Tensor) -> None"),
          "Forget a variable's error, after what has been pushed on it before; its value is what it is.")
      .def(
          "throw_if_failed",
          [](PyEngine& e, nb::handle variable) {
            e.core->throw_if_failed(*as_var(variable, "throw_if_failed"));
          },
          "variable"_a.none(), nb::sig("def throw_if_failed(self, variable: Variable | Tensor) -> None"),
          "Raise the EngineError that poisons a variable now; waits for nothing that is pending.\n\n"
          "May be called inside of engine functions, too.")
      .def(
          "start", [](PyEngine& e) { e.core->start(); }, "Take operations again after stop().")
      .def(
          "stop", [](PyEngine& e, nb::handle timeout_s) { e.core->stop(as_deadline(timeout_s)); },
          "timeout_s"_a = nb::none(), nb::sig("def stop(self, timeout_s: float | None = None) -> None"),
          "Finish what is pending and end the threads; pushes raise EngineError until start().\n\n"
          "Variables, their versions and their errors stay. Raises TimeoutError after timeout_s seconds; the "
          "engine\n"
          "then goes on.")
      .def(
          "check_access",
          [](PyEngine& e, nb::handle variable, bool write) {
            e.core->check_access(*as_var(variable, "check_access"), write);
          },
          "variable"_a.none(), "write"_a = false,
          nb::sig("def check_access(self, variable: Variable | Tensor, write: bool = False) -> None"),
          "With check=True or WEFT_CHECK=1: raise EngineError if this access was not declared.\n\n"
          "Inside an engine function: the function must have declared it. Outside: no pending operation may "
          "conflict.\n"
          "For those who wrap a resource with a variable. Does nothing otherwise.")
      .def("add_observer", add_observer, "observer"_a,
           "Call ``observer.on_push(record)``, ``on_start`` and ``on_end``, those it has, for each "
           "operation.\n\n"
           "They run on the thread where it happens. record: id, operation, device, queue, worker, error. "
           "What they raise\n"
           "goes to sys.unraisablehook. Skipped operations have no on_start.")
      .def("remove_observer", remove_observer, "observer"_a, "Stop calling an observer.")
      .def(
          "stats",
          [](PyEngine& e) {
            const Stats s = e.core->stats();
            return counts_of({{"pushed", s.pushed},
                              {"finished", s.finished},
                              {"failed", s.failed},
                              {"skipped", s.skipped},
                              {"inlined", s.inlined},
                              {"pending", s.pending},
                              {"running", s.running},
                              {"async_outstanding", s.async_outstanding},
                              {"threads", static_cast<uint64_t>(s.threads)},
                              {"stalls", s.stalls},
                              {"wakes", s.wakes}});
          },
          nb::sig("def stats(self) -> dict[str, int]"),
          "Counters since the engine was made, as a dict.\n\n"
          "pushed, finished (failed and skipped ones included), failed, skipped, inlined (cheap native "
          "functions that\n"
          "ran on the pushing thread); now: pending, running, async_outstanding (started, not completed), "
          "threads;\n"
          "stalls (pushes held back), wakes (threads woken).")
      .def("_set_bulk_size", [](PyEngine& e, int size) { return e.core->set_bulk_size(size); })
      .def(
          "_is_ready",
          [](PyEngine& e, nb::handle variable, bool to_write) {
            return e.core->is_ready(*as_var(variable, "is_ready"), to_write);
          },
          "variable"_a, "to_write"_a = false)
      .def("_begin_bulk", [](PyEngine& e, int size) { e.core->begin_bulk(size); })
      .def("_end_bulk", [](PyEngine& e) { e.core->end_bulk(); });

  def(m, "usable_cores", &usable_cores);
  def(m, "settle_engines",
      [](double timeout_s) { return Engine::settle_all(as_deadline(nb::float_(timeout_s))); });
  // Ends all engines; returns the threads that still run a function, and the failures nobody was told of.
  def(
      m, "shut_down_engines",
      [](double timeout_s) {
        Deadline deadline = as_deadline(nb::float_(timeout_s));
        std::vector<std::string> stuck, failures;
        bool interruptible = true;
        const auto shut_down = [&](Engine& engine) {
          try {
            return engine.shutdown(deadline, interruptible);
          } catch (const Interrupted&) {  // Ctrl-C at the end: what may go on for ever is not waited for
            PyErr_Clear();
            interruptible = false;
            deadline = std::min(deadline, Clock::now() + Engine::kLoopGrace);
            for (const auto& other : Engine::all()) other->end_loops();
            return engine.shutdown(deadline);
          }
        };
        for (const auto& engine : Engine::all()) {
          for (std::string& thread : shut_down(*engine)) stuck.push_back(std::move(thread));
          for (const Ref<Error>& error : engine->take_unseen_errors()) failures.push_back(describe(*error));
        }
        if (!Engine::wait_for_dying(deadline)) stuck.push_back("an engine without handles");
        PythonError::drop_all_exceptions();
        return nb::make_tuple(stuck, failures);
      },
      nb::sig("def shut_down_engines(timeout_s: float) -> tuple[list[str], list[str]]"));
}

}  // namespace weft
