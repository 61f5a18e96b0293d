// observer.cpp: what observers are told, and how.
#include "bindings/observer.h"

namespace weft {

namespace {

struct PyRecord {
  uint64_t id;
  std::string operation;
  Device device;
  QueueKind queue;
  int worker;
  nb::object error;
};

}  // namespace

void PyEngine::Watcher::call(int which, const Event& event) {
  if (!observes[which] || python_is_ending()) return;
  const WithGil gil;
  nb::object target = object;  // may be removed meanwhile
  if (!target.is_valid()) return;
  call_unraisable(target.ptr(), [&] {
    nb::object error = nb::none();
    if (event.error) error = to_engine_error({Ref<Error>(const_cast<Error*>(event.error))});
    target.attr(kMethods[which])(
        PyRecord{event.op->trace_id, event.op->name(), event.device, event.queue, event.worker, error});
  });
}

void add_observer(PyEngine& engine, nb::object observer) {
  auto watcher = std::make_shared<PyEngine::Watcher>(std::move(observer));
  engine.watchers.push_back(watcher);
  engine.core->add_observer(watcher);
}

void remove_observer(PyEngine& engine, nb::handle observer) {
  for (size_t i = 0; i < engine.watchers.size(); ++i) {
    if (!engine.watchers[i]->object.is(observer)) continue;
    auto watcher = std::move(engine.watchers[i]);
    engine.watchers.erase(engine.watchers.begin() + static_cast<ptrdiff_t>(i));
    engine.core->remove_observer(watcher.get());
    watcher->object.reset();
    return;
  }
  throw nb::value_error("remove_observer: this object does not observe the engine");
}

void bind_observers(nb::module_& m) {
  Class<PyRecord>(m, "OperationRecord", "What an observer is told of an operation.")
      .def_ro("id", &PyRecord::id)
      .def_ro("operation", &PyRecord::operation)
      .def_prop_ro(
          "device", [](const PyRecord& r) { return device_object(r.device); },
          nb::sig("def device(self) -> weft.base.device.Device"))
      .def_prop_ro("queue", [](const PyRecord& r) { return queue_name(r.queue); })
      .def_ro("worker", &PyRecord::worker)
      .def_prop_ro(
          "error", [](const PyRecord& r) { return r.error; },
          nb::sig("def error(self) -> weft.base.errors.EngineError | None"));
}

}  // namespace weft
