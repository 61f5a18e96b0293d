#include "bindings/replay.h"

#include "bindings/convert.h"

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
  nb::object source = find.kind == Find::Kind::leaf     ? at(leaves)
                      : find.kind == Find::Kind::output ? at(outputs)
                      : find.kind == Find::Kind::object ? find.object
                                                        : find.object(leaves);
  if (!find.window) return source;
  return wrap(
      tensor_of(source, "window").window(find.window->offset, find.window->shape, find.window->strides));
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
  using S = ReplaySpec;
  Class<S>(
      m, "ReplaySpec",
      "A program of a traced function, and how calls use it.\n\n"
      "arrays, numbers: where what it takes is found; results, of which those that are `stopped` have no\n"
      "history. environment: (container, name, value) of what was found outside of the arguments; "
      "is_doubted: it may "
      "read more; watched,\ncontainers:\nthings whose states matter; gradients: whether tensors had one; "
      "guard: what else has "
      "to hold of the leaves.\n"
      "build: makes the result of the list of results; effect: sets gradients; elsewhere: memory that "
      "arguments\nmay not share, by serial, ascending; shared: tensors found outside of them that lie in one "
      "memory with others.",
      nb::type_slots(Collected<S>::slots))
      .def(
          "__init__", [](S* self, const Ref<Plan>& plan) { (new (self) S)->plan = plan; }, "plan"_a)
      // Copies: a reference into a vector would outlive it when the field is set again.
      .def_rw("arrays", &S::arrays, nb::for_getter(nb::rv_policy::copy))
      .def_rw("numbers", &S::numbers, nb::for_getter(nb::rv_policy::copy))
      .def_rw("results", &S::results, nb::for_getter(nb::rv_policy::copy))
      .def_rw("stopped", &S::stopped)
      .def_rw("environment", &S::environment)
      .def_rw("is_doubted", &S::is_doubted)
      .def_rw("watched", &S::watched)
      .def_rw("containers", &S::containers)
      .def_rw("gradients", &S::gradients, nb::for_getter(nb::rv_policy::copy))
      .def_rw("guard", &S::guard)
      .def_rw("build", &S::build)
      .def_rw("effect", &S::effect)
      .def_rw("elsewhere", &S::elsewhere)
      .def_rw("shared", &S::shared);
}

// What raises is not there; an interrupt goes on.
void forgive() {
  if (!PyErr_Occurred()) return;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();
  PyErr_Clear();
}

// Whether two values cannot be distinguished: numbers, texts and tuples of such by value, all else by
// identity.
bool is_same(PyObject* now, PyObject* before) {
  if (now == before) return true;
  if (Py_TYPE(now) != Py_TYPE(before)) return false;
  if (PyFloat_CheckExact(now))  // the sign of a zero counts, and NaN is NaN
    return std::bit_cast<uint64_t>(PyFloat_AsDouble(now)) ==
           std::bit_cast<uint64_t>(PyFloat_AsDouble(before));
  if (PyTuple_Check(now)) {
    const Py_ssize_t size = PyTuple_Size(now);
    if (PyTuple_Size(before) != size) return false;
    for (Py_ssize_t k = 0; k < size; ++k)
      if (!is_same(PyTuple_GetItem(now, k), PyTuple_GetItem(before, k))) return false;
    return true;
  }
  const bool plain = PyLong_Check(now) || PyUnicode_CheckExact(now) || PyBytes_CheckExact(now);
  const int same = plain ? PyObject_RichCompareBool(now, before, Py_EQ) : 0;
  if (same < 0) forgive();
  return same == 1;
}

// Whether a container has what it had: the items of a list, keys and values of a dict in their order, of
// anything else the objects that it refers to.
bool has_contents(PyObject* container, PyObject* before) {
  const Py_ssize_t size = PyTuple_Size(before);
  // Comparing may run Python, which may take the item out.
  const auto is_same_at = [&](Py_ssize_t k, PyObject* item) {
    const nb::object now = nb::borrow(item);
    return is_same(now.ptr(), PyTuple_GetItem(before, k));
  };
  if (PyDict_Check(container)) {
    if (2 * PyDict_Size(container) != size) return false;
    PyObject *key, *item;
    Py_ssize_t k = 0;
    for (Py_ssize_t i = 0; PyDict_Next(container, &i, &key, &item); k += 2) {
      const nb::object value = nb::borrow(item);
      if (k + 2 > size || !is_same_at(k, key) || !is_same_at(k + 1, value.ptr())) return false;
    }
    return k == size;
  }
  nb::object referents;
  if (!PyList_Check(container)) {
    const nb::object get_referents = nb::module_::import_("gc").attr("get_referents");
    nb::list values;
    for (const nb::handle each : get_referents(nb::handle(container)))
      if (!PyType_Check(each.ptr())) values.append(each);
    referents = values;
    container = referents.ptr();
  }
  if (PyList_Size(container) != size) return false;
  for (Py_ssize_t k = 0; k < size; ++k)
    if (PyList_Size(container) <= k || !is_same_at(k, PyList_GetItem(container, k))) return false;
  return true;
}

}  // namespace

nb::tuple to_tuple(const Window& window) {
  return nb::make_tuple(window.offset, to_tuple(Dims(window.shape)), to_tuple(Dims(window.strides)));
}

bool is_as_it_was(const Outside& outside) {
  const auto& [container, name, value] = outside;
  if (name.is(nb::ellipsis())) return has_contents(container.ptr(), value.ptr());
  nb::object now;
  if (PyList_Check(container.ptr())) {
    const Py_ssize_t size = PyList_Size(container.ptr()), signed_index = PyLong_AsSsize_t(name.ptr()),
                     index = signed_index < 0 ? signed_index + size : signed_index;
    if (0 <= index && index < size) now = nb::borrow(PyList_GetItem(container.ptr(), index));
  } else if (name.is_none() || !PyDict_Check(container.ptr())) {
    now = nb::steal(name.is_none() ? PyObject_GetAttrString(container.ptr(), "cell_contents")
                                   : PyObject_GetAttr(container.ptr(), name.ptr()));
    if (!now.is_valid()) forgive();
  } else {
    now = nb::borrow(PyDict_GetItemWithError(container.ptr(), name.ptr()));
    if (!now.is_valid()) forgive();
  }
  if (!now.is_valid()) return value.is(nb::handle(Py_NotImplemented));  // there was nothing, either
  return is_same(now.ptr(), value.ptr());
}

std::vector<PyObject*> ReplaySpec::references() const {
  std::vector<PyObject*> all{watched.ptr(), guard.ptr(), build.ptr(), effect.ptr()};
  for (const std::vector<Find>* finds : {&arrays, &numbers, &results})
    for (const Find& find : *finds) all.push_back(find.object.ptr());
  for (const auto& [find, had] : gradients) all.push_back(find.object.ptr());
  for (const auto& [container, name, value] : environment)
    all.insert(all.end(), {container.ptr(), name.ptr(), value.ptr()});
  for (const nb::object& container : containers) all.push_back(container.ptr());
  for (const nb::object& x : shared) all.push_back(x.ptr());
  return all;
}

void bind_replay(nb::module_& m) {
  bind_find(m);
  bind_spec(m);
  def(
      m, "is_as_it_was",
      [](nb::object container, nb::object name, nb::object value) {
        return is_as_it_was({std::move(container), std::move(name), std::move(value)});
      },
      "container"_a, "name"_a.none(), "value"_a.none());
}

}  // namespace weft
