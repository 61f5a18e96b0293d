// python.h: Python on the engine's threads: who holds the GIL, and what may happen to Python objects where.
//
// Rule: the GIL is never waited for under the engine lock; the engine lock may be taken under the GIL (it is
// held for less than a microsecond, and never by a thread that waits for the GIL).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <functional>
#include <utility>

#include "calls/host.h"
#include "engine/engine.h"

namespace weft {

namespace nb = nanobind;
using namespace nb::literals;

// The interpreter is going away: threads but the main one must not touch Python any more.
bool python_is_ending() noexcept;

// Marks a call from Python: this thread holds the GIL until told otherwise. What waits for the engine, or
// destroys what belongs to it, gives the GIL up only within one; so every bound function runs within one, by
// way of `def` and Class below, and slots of types by way of `guarded` (tensor.h).
class PythonEntry {
 public:
  PythonEntry() noexcept;
  ~PythonEntry();
  PythonEntry(const PythonEntry&) = delete;

 private:
  Context& here_;
  bool outer_;
};

// A function, a member function or an object to be called, as a function object that runs it within a
// PythonEntry.
template <class R, class... A>
auto entered(R (*function)(A...)) {
  return [function](A... arguments) -> R {
    const PythonEntry entry;
    return function(std::forward<A>(arguments)...);
  };
}
template <class R, class C, class... A>
auto entered(R (C::*function)(A...)) {
  return [function](C& self, A... arguments) -> R {
    const PythonEntry entry;
    return (self.*function)(std::forward<A>(arguments)...);
  };
}
template <class R, class C, class... A>
auto entered(R (C::*function)(A...) const) {
  return [function](const C& self, A... arguments) -> R {
    const PythonEntry entry;
    return (self.*function)(std::forward<A>(arguments)...);
  };
}
template <class F, class R, class... A>
auto entered_as(F function, R (F::*)(A...) const) {
  return [function = std::move(function)](A... arguments) -> R {
    const PythonEntry entry;
    return function(std::forward<A>(arguments)...);
  };
}
template <class F>
  requires requires { &F::operator(); }
auto entered(F function) {
  return entered_as(std::move(function), &F::operator());
}

// m.def and nb::class_ with functions that run within a PythonEntry. Bindings use nothing else.
template <class F, class... Extra>
void def(nb::module_& m, const char* name, F function, const Extra&... extra) {
  m.def(name, entered(std::move(function)), extra...);
}
template <class T, class... Bases>
class Class : public nb::class_<T, Bases...> {
 public:
  using Base = nb::class_<T, Bases...>;
  using Base::Base;
  template <class F, class... Extra>
  Class& def(const char* name, F function, const Extra&... extra) {
    Base::def(name, entered(std::move(function)), extra...);
    return *this;
  }
  template <class... A, class... Extra>
  Class& def(nb::init<A...> constructor, const Extra&... extra) {
    Base::def(std::move(constructor), extra...);
    return *this;
  }
  template <class F, class... Extra>
  Class& def_static(const char* name, F function, const Extra&... extra) {
    Base::def_static(name, entered(std::move(function)), extra...);
    return *this;
  }
  template <class F, class... Extra>
  Class& def_prop_ro(const char* name, F getter, const Extra&... extra) {
    Base::def_prop_ro(name, entered(std::move(getter)), extra...);
    return *this;
  }
  template <class Member, class... Extra>
  Class& def_ro(const char* name, Member T::* member, const Extra&... extra) {
    Base::def_ro(name, member, extra...);
    return *this;
  }
  template <class Member, class... Extra>
  Class& def_rw(const char* name, Member T::* member, const Extra&... extra) {
    Base::def_rw(name, member, extra...);
    return *this;
  }
};

// Whether an object's type has an attribute. What an object can do is asked of its type, as Python itself
// does: `__getattr__` of the object does not run, which may change the container that it was taken from.
inline bool type_has(PyObject* object, const char* name) noexcept {
  return PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), name);
}

// Whether this thread holds the GIL, as far as marks tell.
bool holds_gil_here() noexcept;

// Takes the GIL, on any thread, whether it holds it or not.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
  bool outer_;
};

// What functions written in Python run under.
Domain* python_domain() noexcept;
void install_host_hooks();

void release_now_what_was_left();

// A Python exception as the error of an operation. The garbage collector does not see through it: an
// exception whose frames lead back to the variable it poisons lives until the error is cleared, or the
// process ends.
class PythonError : public Error {
 public:
  PythonError(std::string text, PyObject* exception);  // takes a reference over
  ~PythonError() override;
  PyObject* exception;  // GIL; null after drop_all_exceptions

  static void drop_all_exceptions();  // at the end of the process; the texts stay

 private:
  PythonError* previous_ = nullptr;  // the list of all; GIL
  PythonError* next_ = nullptr;
};
Ref<Error> error_from_python(nb::python_error& thrown);
// `object` is an exception, an exception class or a str; anything else raises TypeError.
Ref<Error> error_from_object(nb::handle object);
// The C++ object behind `object` if it is one of ours, else null; also for None, which nanobind casts to any
// pointer.
template <class T>
T* as(nb::handle object) {
  T* value = nullptr;
  return nb::try_cast(object, value) ? value : nullptr;
}
// The str of a text, made at the first use and kept for ever. Instances are static and `constinit`, and the
// GIL guards them. A static whose initializer ran Python would deadlock: the initializer gives the GIL up, a
// second thread takes it and waits for the guard of the static, and the first waits for the GIL. Here, and in
// hooks.h, two threads may make the value at the same time; one result is dropped.
// tests/meta/test_first_calls.py forbids the other form.
class Interned {
 public:
  constexpr Interned(const char* text) noexcept : text_(text) {}
  PyObject* get() {
    if (!object_) [[unlikely]]
      object_ = PyUnicode_InternFromString(text_);
    if (!object_) throw nb::python_error();
    return object_;
  }

 private:
  const char* text_;
  PyObject* object_ = nullptr;
};
// Text as bytes and back. File names need not be valid UTF-8; none of this fails because of them.
std::string to_utf8(nb::handle str) noexcept;
nb::object from_utf8(const std::string& text);
// The name of an object's type, for messages.
std::string type_of(nb::handle object) noexcept;
// Python's TypeError and ValueError of a text of any length, to be thrown; any other error, thrown.
inline nb::builtin_exception type_error(const std::string& text) { return nb::type_error(text.c_str()); }
inline nb::builtin_exception value_error(const std::string& text) { return nb::value_error(text.c_str()); }
[[noreturn]] void raise_error(PyObject* type, const std::string& text);
// What a function of Python's C API returns, a new reference; what it has raised goes on.
inline nb::object checked(PyObject* reference) {
  if (!reference) throw nb::python_error();
  return nb::steal(reference);
}
// A tuple of `count` objects, each as `item` of its index gives it.
template <class F>
nb::object tuple_of(Py_ssize_t count, F&& item) {
  nb::object tuple = checked(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SetItem(tuple.ptr(), i, nb::object(item(i)).release().ptr());
  return tuple;
}
// The items of a list, as a tuple. One by one: where PyList_AsTuple makes the tuple, garbage may be collected
// (up to Python 3.11), and it goes on with the memory that the list had before, whatever finalizers have done
// to it.
nb::object items_of_list(PyObject* list);
// The same of any iterable.
inline nb::object items_of(PyObject* iterable) {
  return PyList_CheckExact(iterable) ? items_of_list(iterable) : checked(PySequence_Tuple(iterable));
}
// The slots of a class whose objects take part in garbage collection: with all that T::references() gives,
// some of which may be null, and T::clear(), which lets go of it.
template <class T>
struct Collected {
  static int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self))
      for (PyObject* object : nb::inst_ptr<T>(self)->references()) Py_VISIT(object);
    return 0;
  }
  static int clear(PyObject* self) noexcept {
    const PythonEntry entry;
    if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->clear();
    return 0;
  }
  static inline PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                       {0, nullptr}};
};
// Counters by name.
nb::dict counts_of(std::initializer_list<std::pair<const char*, uint64_t>> counts);
std::string describe(const Error& error);
// The EngineError for one cause, or the group for several.
nb::object to_engine_error(const std::vector<Ref<Error>>& causes);

// The text of a Site that was taken apart; GIL held.
std::string text_of_site(PyObject* code, int instruction) noexcept;

// Runs `call` under the GIL, and not on the main thread: there handlers of signals run, and an exception of
// theirs, such as KeyboardInterrupt, belongs to the program and not to the operation whose code is being
// made.
void call_away_from_signals(const std::function<void()>& call);

// Sets Python's error from the C++ exception that is being handled, whatever it is.
void raise_current_exception() noexcept;

// Runs what no caller waits for: what it raises goes to sys.unraisablehook, with the object it is about.
template <class F>
void call_unraisable(PyObject* about, F&& call) noexcept {
  try {
    call();
  } catch (...) {
    raise_current_exception();
    PyErr_WriteUnraisable(about);
  }
}

// The parts of the module, in the order in which they are bound. bind_refusals is the last one.
// clang-format off: it goes back and forth between two forms of this
#define WEFT_PARTS(P)                                                                          \
  P(python) P(hooks) P(functions) P(engine) P(storage) P(tensor) P(creation) P(exchange)       \
  P(program) P(recorder) P(operator) P(layers) P(tape) P(launch_recorder) P(log) P(replay)     \
  P(traced) P(onednn) P(ahead) P(kernels) P(python_kernel) P(data) P(testing) P(refusals)
// clang-format on
#define WEFT_PART(part) void bind_##part(nb::module_& m);
WEFT_PARTS(WEFT_PART)
#undef WEFT_PART

}  // namespace weft
