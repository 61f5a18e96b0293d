// python.h: Python on the engine's threads: who holds the GIL, and what may happen to Python objects where.
//
// Rule: the GIL is never waited for under the engine lock; the engine lock may be taken under the GIL (it is
// held for less than a microsecond, and never by a thread that waits for the GIL).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "engine/engine.h"

namespace weft {

namespace nb = nanobind;

// The interpreter is going away: threads but the main one must not touch Python any more.
bool python_is_ending() noexcept;

// Marks a call from Python: this thread holds the GIL until told otherwise. Every bound function that may
// block, or destroy what belongs to the engine, opens with one.
class PythonEntry {
 public:
  PythonEntry() noexcept;
  ~PythonEntry();
  PythonEntry(const PythonEntry&) = delete;

 private:
  bool outer_;
};

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

// Drops a reference without the GIL: it is kept until the next call from Python.
void release_later(PyObject* object) noexcept;
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
  T* found = nullptr;
  return nb::try_cast(object, found) ? found : nullptr;
}
// module.name, imported now and kept for ever: for what is asked for again and again.
inline PyObject* lasting(const char* module, const char* name) {
  return nb::object(nb::module_::import_(module).attr(name)).release().ptr();
}
// Text as bytes and back. File names need not be valid UTF-8; none of this fails because of them.
std::string to_utf8(nb::handle str) noexcept;
nb::object from_utf8(const std::string& text);
std::string describe(const Error& error);
// The EngineError for one cause, or the group for several.
nb::object to_engine_error(const std::vector<Ref<Error>>& causes);

// Where Python code pushes: cheap to take, decoded only when somebody looks.
struct Site {
  PyObject* code = nullptr;
  int instruction = 0;

  static Site here();                 // of the innermost Python frame outside of weft; GIL held
  std::string text() const noexcept;  // "file.py:41"; GIL held
};

// Sets Python's error from the C++ exception that is being handled, whatever it is.
void raise_current_exception() noexcept;

void bind_python(nb::module_& m);
void bind_functions(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_testing(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_creation(nb::module_& m);
void bind_exchange(nb::module_& m);
void bind_program(nb::module_& m);
void bind_recorder(nb::module_& m);
void bind_operator(nb::module_& m);
void bind_tape(nb::module_& m);
void bind_onednn(nb::module_& m);
void bind_ahead(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_python_kernel(nb::module_& m);
void bind_storage(nb::module_& m);
void bind_scribe(nb::module_& m);
void bind_log(nb::module_& m);
void bind_traced(nb::module_& m);

}  // namespace weft
