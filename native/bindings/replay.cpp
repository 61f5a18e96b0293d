#include "bindings/replay.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>

namespace weft {
namespace {

using Numbers = std::vector<int64_t>;
using WindowArgument = std::optional<std::tuple<int64_t, Numbers, Numbers>>;

std::optional<Window> as_window(const WindowArgument& argument) {
  if (!argument) return std::nullopt;
  const auto& [offset, shape, strides] = *argument;
  if (shape.size() != strides.size() || shape.size() > kMaxDims)
    throw ValueError("Find: a window of " + std::to_string(shape.size()) + " sizes and " +
                     std::to_string(strides.size()) + " strides");
  Window window{offset, {}, {}};
  for (const int64_t size : shape) window.shape.sizes[window.shape.ndim++] = size;
  for (const int64_t stride : strides) window.strides.sizes[window.strides.ndim++] = stride;
  return window;
}

// Objects of the class take part in garbage collection, with what `references` of them gives.
template <class T>
struct Collected {
  static int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    for (PyObject* object : references_of(*nb::inst_ptr<T>(self))) Py_VISIT(object);
    return 0;
  }
  static int clear(PyObject* self) noexcept {
    if (nb::inst_ready(self)) const T held = std::exchange(*nb::inst_ptr<T>(self), {});
    return 0;
  }
  static inline PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
                                       {Py_tp_clear, reinterpret_cast<void*>(&clear)},
                                       {0, nullptr}};
  static std::vector<PyObject*> references_of(const Find& find) { return {find.object.ptr()}; }
  static std::vector<PyObject*> references_of(const ReplaySpec& spec) { return spec.references(); }
};

const char* word_of(Find::Kind kind) noexcept {
  static constexpr const char* words[] = {"leaf", "object", "output", "python"};
  return words[static_cast<int>(kind)];
}

// What is found.
nb::object look_up(const Find& find, nb::list leaves, nb::list outputs) {
  const auto at = [&](const nb::list& list) {
    if (find.number >= nb::len(list))
      throw ValueError(std::string("Find: no ") + word_of(find.kind) + " " + std::to_string(find.number));
    return nb::object(list[find.number]);
  };
  nb::object found = find.kind == Find::Kind::leaf     ? at(leaves)
                     : find.kind == Find::Kind::output ? at(outputs)
                     : find.kind == Find::Kind::object ? find.object
                                                       : find.object(leaves);
  if (!find.window) return found;
  return wrap(
      tensor_of(found, "window").window(find.window->offset, find.window->shape, find.window->strides));
}

void bind_find(nb::module_& m) {
  const nb::object none = nb::none();
  Class<Find> type(
      m, "Find",
      "Where a call finds something: among its leaves, the outputs of the program, in an object, or by a "
      "function of\nthe leaves. window: (offset, shape, strides) of an array, None: all of it.",
      nb::type_slots(Collected<Find>::slots));
  using Kind = Find::Kind;
  for (const Kind kind : {Kind::leaf, Kind::output})
    type.def_static(
        word_of(kind),
        [kind](size_t number, const WindowArgument& window) {
          return Find{kind, number, {}, as_window(window)};
        },
        "number"_a, "window"_a = none);
  type.def_static(
          "object",
          [](nb::object value, const WindowArgument& window) {
            return Find{Kind::object, 0, std::move(value), as_window(window)};
          },
          "value"_a.none(), "window"_a = none)
      .def_static(
          "python",
          [](nb::callable function, const WindowArgument& window) {
            return Find{Kind::python, 0, std::move(function), as_window(window)};
          },
          "function"_a, "window"_a = none)
      .def("look_up", look_up, "leaves"_a, "outputs"_a = nb::list(),
           nb::sig("def look_up(self, leaves: list, outputs: list = []) -> typing.Any"))
      .def(
          "with_window",
          [](const Find& find, const WindowArgument& window) {
            return Find{find.kind, find.number, find.object, as_window(window)};
          },
          "window"_a.none(), "The same, of which another part is meant.")
      .def_prop_ro(
          "kind", [](const Find& find) { return word_of(find.kind); },
          nb::sig("def kind(self) -> typing.Literal['leaf', 'object', 'output', 'python']"))
      .def_prop_ro(
          "what",
          [](const Find& find) {
            return find.object.is_valid() ? find.object : nb::object(nb::int_(find.number));
          },
          nb::sig("def what(self) -> typing.Any"))
      .def_prop_ro(
          "window",
          [](const Find& find) { return find.window ? nb::object(to_tuple(*find.window)) : nb::none(); },
          nb::sig("def window(self) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None"));
}

void bind_spec(nb::module_& m) {
  using Finds = std::vector<Find>;
  using Places = std::vector<std::tuple<nb::object, nb::object, nb::object>>;
  Class<ReplaySpec>(
      m, "ReplaySpec",
      "A program of a traced function, and how calls use it.\n\n"
      "arrays, numbers: where what it takes is found; results, of which those that are `stopped` have no\n"
      "history. environment: (place, name, value) of what was found outside of the arguments; watched, "
      "containers:\nthings whose states matter; gradients: whether tensors had one; guard: what else has "
      "to hold of the leaves.\n"
      "build: makes the result of the list of results; effect: sets gradients; elsewhere: memory that "
      "arguments\nmay not share, by serial; shared: tensors found outside of them that lie in one memory "
      "with others.",
      nb::type_slots(Collected<ReplaySpec>::slots))
      .def(
          "__init__",
          [](ReplaySpec* self, const PyPlan& plan, Finds arrays, Finds numbers, Finds results,
             const std::vector<size_t>& stopped, Places environment, nb::object watched,
             std::vector<nb::object> containers, std::vector<std::pair<Find, bool>> gradients,
             nb::object guard, nb::object build, nb::object effect, std::vector<uint64_t> elsewhere,
             std::vector<nb::object> shared) {
            ReplaySpec spec;
            spec.plan = plan.plan;
            spec.arrays = std::move(arrays);
            spec.numbers = std::move(numbers);
            spec.results = std::move(results);
            spec.stopped.resize(spec.results.size());
            for (const size_t k : stopped) {
              if (k >= spec.results.size())
                throw ValueError("ReplaySpec: result " + std::to_string(k) + " of " +
                                 std::to_string(spec.results.size()) + " is stopped");
              spec.stopped[k] = true;
            }
            for (auto& [place, name, value] : environment)
              spec.environment.push_back({std::move(place), std::move(name), std::move(value)});
            spec.watched = std::move(watched);
            for (const nb::object& container : containers)
              if (!PyList_Check(container.ptr()) && !PyDict_Check(container.ptr()))
                throw nb::type_error("ReplaySpec: containers are lists and dicts");
            spec.containers = std::move(containers);
            spec.gradients = std::move(gradients);
            spec.guard = std::move(guard);
            spec.build = std::move(build);
            spec.effect = std::move(effect);
            std::ranges::sort(elsewhere);
            spec.elsewhere = std::move(elsewhere);
            for (const nb::object& x : shared) tensor_of(x, "shared");
            spec.shared = std::move(shared);
            new (self) ReplaySpec(std::move(spec));
          },
          "plan"_a, nb::kw_only(), "arrays"_a, "numbers"_a, "results"_a, "stopped"_a = std::vector<size_t>(),
          "environment"_a = Places(), "watched"_a = nb::none(), "containers"_a = std::vector<nb::object>(),
          "gradients"_a = std::vector<std::pair<Find, bool>>(), "guard"_a = nb::none(),
          "build"_a = nb::none(), "effect"_a = nb::none(), "elsewhere"_a = std::vector<uint64_t>(),
          "shared"_a = std::vector<nb::object>(),
          nb::sig(
              "def __init__(self, plan: Plan, *, arrays: collections.abc.Sequence[Find], numbers: "
              "collections.abc.Sequence[Find], results: collections.abc.Sequence[Find], stopped: "
              "collections.abc.Sequence[int] = (), environment: collections.abc.Sequence[tuple[object, "
              "object, "
              "object]] = (), watched: collections.abc.Callable[[], bool] | None = None, containers: "
              "collections.abc.Sequence[list | dict] = (), gradients: "
              "collections.abc.Sequence[tuple[Find, bool]] "
              "= (), guard: collections.abc.Callable[[list], bool] | None = None, build: "
              "collections.abc.Callable[[list], object] | None = None, effect: "
              "collections.abc.Callable[[list, list], None] | None = None, elsewhere: "
              "collections.abc.Sequence[int] = (), shared: collections.abc.Sequence[Tensor] = ()) -> None"))
      .def_prop_ro("arrays", [](const ReplaySpec& spec) { return spec.arrays; })
      .def_prop_ro("numbers", [](const ReplaySpec& spec) { return spec.numbers; })
      .def_prop_ro("results", [](const ReplaySpec& spec) { return spec.results; })
      .def_prop_ro(
          "stopped",
          [](const ReplaySpec& spec) {
            std::vector<size_t> stopped;
            for (size_t k = 0; k < spec.stopped.size(); ++k)
              if (spec.stopped[k]) stopped.push_back(k);
            return stopped;
          },
          nb::sig("def stopped(self) -> list[int]"))
      .def_prop_ro("gradients", [](const ReplaySpec& spec) { return spec.gradients; })
      .def_prop_ro("guard", [](const ReplaySpec& spec) { return spec.guard; })
      .def_prop_ro("effect", [](const ReplaySpec& spec) { return spec.effect; });
}

}  // namespace

nb::tuple to_tuple(const Window& window) {
  return nb::make_tuple(window.offset, to_tuple(Dims(window.shape)), to_tuple(Dims(window.strides)));
}

bool is_as_it_was(const Outside& outside) {
  nb::object now;
  if (PyList_Check(outside.place.ptr())) {
    const Py_ssize_t size = PyList_Size(outside.place.ptr()), given = PyLong_AsSsize_t(outside.name.ptr()),
                     index = given < 0 ? given + size : given;
    if (0 <= index && index < size) now = nb::borrow(PyList_GetItem(outside.place.ptr(), index));
  } else if (outside.name.is_none() || !PyDict_Check(outside.place.ptr())) {
    now = nb::steal(outside.name.is_none() ? PyObject_GetAttrString(outside.place.ptr(), "cell_contents")
                                           : PyObject_GetAttr(outside.place.ptr(), outside.name.ptr()));
    if (!now.is_valid()) PyErr_Clear();
  } else {
    now = nb::borrow(PyDict_GetItemWithError(outside.place.ptr(), outside.name.ptr()));
    if (!now.is_valid()) PyErr_Clear();
  }
  if (now.ptr() == outside.value.ptr()) return true;
  if (!now.is_valid()) return outside.value.is(nb::handle(Py_NotImplemented));  // there was nothing, either
  if (Py_TYPE(now.ptr()) != Py_TYPE(outside.value.ptr())) return false;
  if (PyFloat_CheckExact(now.ptr()))  // the sign of a zero counts, and NaN is NaN
    return std::bit_cast<uint64_t>(PyFloat_AsDouble(now.ptr())) ==
           std::bit_cast<uint64_t>(PyFloat_AsDouble(outside.value.ptr()));
  const bool plain =
      PyLong_Check(now.ptr()) || PyUnicode_CheckExact(now.ptr()) || PyBytes_CheckExact(now.ptr());
  return plain && PyObject_RichCompareBool(now.ptr(), outside.value.ptr(), Py_EQ) == 1;
}

std::vector<PyObject*> ReplaySpec::references() const {
  std::vector<PyObject*> all{watched.ptr(), guard.ptr(), build.ptr(), effect.ptr()};
  for (const std::vector<Find>* finds : {&arrays, &numbers, &results})
    for (const Find& find : *finds) all.push_back(find.object.ptr());
  for (const auto& [find, had] : gradients) all.push_back(find.object.ptr());
  for (const Outside& outside : environment)
    all.insert(all.end(), {outside.place.ptr(), outside.name.ptr(), outside.value.ptr()});
  for (const nb::object& container : containers) all.push_back(container.ptr());
  for (const nb::object& x : shared) all.push_back(x.ptr());
  return all;
}

void bind_replay(nb::module_& m) {
  bind_find(m);
  bind_spec(m);
  def(
      m, "is_as_it_was",
      [](nb::object place, nb::object name, nb::object value) {
        return is_as_it_was({std::move(place), std::move(name), std::move(value)});
      },
      "place"_a, "name"_a.none(), "value"_a.none());
}

}  // namespace weft
