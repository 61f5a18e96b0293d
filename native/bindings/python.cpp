#include "bindings/python.h"
#include "bindings/hooks.h"

#include <stdexcept>

#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "calls/tape.h"
#include "engine/fork.h"
#include "engine/team.h"
#include "tensor/exchange.h"

namespace weft {
namespace {

std::atomic<bool> ending{false};
std::thread::id main_thread;

// Python ends a thread that asks for the GIL while the interpreter ends by unwinding its stack, which aborts
// the process at the first noexcept function. So such a thread sleeps until the process is gone, and the end
// waits for those that ask already.
std::atomic<int> asking{0};
// Pieces of regions hold no Python object and no Error, and throw to the region's own thread: so what drops
// such a thing and must not throw (~PythonError, drop, name_of) is never reached within one, and if it were,
// ending the process there is right: the piece's caller may hold the GIL and wait for this thread.
template <class F>
auto take_gil(F&& take) {
  if (inside_region()) throw std::logic_error("the GIL is wanted inside a piece of a parallel region");
  asking.fetch_add(1, std::memory_order_seq_cst);
  if (python_is_ending()) {
    asking.fetch_sub(1, std::memory_order_seq_cst);
    for (;;) pause();
  }
  auto result = take();
  asking.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

// PyGILState_Ensure, but a fork never finds another thread while it makes its thread state: that takes a lock
// of the interpreter's without the GIL, and CPython 3.11 waits for this lock in the child before it makes it
// again.
ForkMutex& making_state = lasting_fork_mutex<struct MakingState>();
PyInterpreterState* interpreter = nullptr;
PyGILState_STATE ensure_gil() {
  if (PyGILState_GetThisThreadState()) return PyGILState_Ensure();
  PyThreadState* state = nullptr;
  {
    const std::lock_guard lock(making_state);
    state = PyThreadState_New(interpreter);
  }
  if (!state) Py_FatalError("no memory for the state of a thread");
  PyEval_RestoreThread(state);
  return PyGILState_UNLOCKED;
}

class PythonDomain : public Domain {
 public:
  // Keeps one thread state for the worker's life: making a new one for every function would cost
  // microseconds.
  void thread_begin() override {
    if (python_is_ending()) return;
    pin_ = take_gil(ensure_gil);
    pinned_ = PyEval_SaveThread();
  }
  void thread_end() override {
    if (python_is_ending() || !pinned_) return;
    take_gil([] {
      PyEval_RestoreThread(std::exchange(pinned_, nullptr));
      return true;
    });
    PyGILState_Release(pin_);
  }
  void enter() override {
    held_.push_back({take_gil(ensure_gil), context().holds_gil});
    context().holds_gil = true;
  }
  void leave() override {
    if (python_is_ending()) return;
    const Held held = held_.back();
    held_.pop_back();
    context().holds_gil = held.outer;
    PyGILState_Release(held.state);
  }

 private:
  struct Held {
    PyGILState_STATE state;
    bool outer;
  };
  static thread_local PyThreadState* pinned_;
  static thread_local PyGILState_STATE pin_;
  static thread_local std::vector<Held> held_;
};
thread_local PyThreadState* PythonDomain::pinned_ = nullptr;
thread_local PyGILState_STATE PythonDomain::pin_{};
thread_local std::vector<PythonDomain::Held> PythonDomain::held_;

ForkMutex& left_mutex = lasting_fork_mutex<struct Left>();
std::vector<PyObject*>& left() {
  static auto* list = new std::vector<PyObject*>;
  return *list;
}
std::atomic<bool> any_left{false};

}  // namespace

bool python_is_ending() noexcept {
  return ending.load(std::memory_order_seq_cst) && std::this_thread::get_id() != main_thread;
}

// The caller waits for the thread, which may not need what the caller holds. Module locks are such things:
// the planners and compilers that run there import modules of the package, none of which computes while it is
// imported. A user's rule that imports a module which computes at its import, and is being imported by the
// caller, waits for ever, as in any thread that a module starts and waits for.
void call_away_from_signals(const std::function<void()>& call) {
  const WithGil gil;
  // Python's main thread is the process's first, in a forked child, too. At the end no thread gets the GIL.
  const bool main = syscall(SYS_gettid) == getpid() && !ending.load(std::memory_order_seq_cst);
  std::exception_ptr thrown;
  std::thread thread;
  if (main) {
    try {
      thread = std::thread([&] {
        const WithGil gil_of_thread;
        try {
          call();
        } catch (...) {
          thrown = std::current_exception();
        }
      });
    } catch (const std::system_error&) {
    }
  }
  if (!thread.joinable()) return call();
  {
    const Blocking blocking;
    thread.join();
  }
  if (thrown) std::rethrow_exception(thrown);
}

bool holds_gil_here() noexcept { return context().holds_gil; }

PythonEntry::PythonEntry() noexcept : here_(context()), outer_(here_.holds_gil) {
  here_.holds_gil = true;
  here_.latest_site.frame = nullptr;
  if (any_left.load(std::memory_order_relaxed)) release_now_what_was_left();
}
PythonEntry::~PythonEntry() {
  here_.holds_gil = outer_;
  here_.latest_site.frame = nullptr;
}

WithGil::WithGil() : state_(take_gil(ensure_gil)), outer_(context().holds_gil) { context().holds_gil = true; }
WithGil::~WithGil() {
  context().holds_gil = outer_;
  PyGILState_Release(state_);
}

Domain* python_domain() noexcept {
  static auto* domain = new PythonDomain;
  return domain;
}

void install_host_hooks() {
  host_hooks.release = []() -> void* {
    if (!context().holds_gil || python_is_ending()) return nullptr;
    context().holds_gil = false;
    return PyEval_SaveThread();
  };
  host_hooks.restore = [](void* state) {
    take_gil([state] {
      PyEval_RestoreThread(static_cast<PyThreadState*>(state));
      return true;
    });
    context().holds_gil = true;
  };
  // Leaves the exception set in this thread's state; whoever catches Interrupted finds it there.
  host_hooks.interrupted = [] {
    if (python_is_ending()) return false;
    const WithGil gil;
    return PyErr_CheckSignals() != 0;
  };
}

void release_later(PyObject* object) noexcept {
  if (!object) return;
  if (context().holds_gil && Py_REFCNT(object) > 1) {  // not the last one: nothing of Python's runs
    Py_DECREF(object);
    return;
  }
  const std::lock_guard guard(left_mutex);
  left().push_back(object);
  any_left.store(true, std::memory_order_relaxed);
}

void release_now(PyObject* object) noexcept { Py_XDECREF(object); }

void release_now_what_was_left() {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard guard(left_mutex);
    objects.swap(left());
    any_left.store(false, std::memory_order_relaxed);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

nb::object items_of_list(PyObject* list) {
  for (;;) {
    const Py_ssize_t count = PyList_Size(list);
    nb::object items = checked(PyTuple_New(count));
    if (PyList_Size(list) != count) continue;
    for (Py_ssize_t i = 0; i < count; ++i)
      PyTuple_SetItem(items.ptr(), i, nb::borrow(PyList_GetItem(list, i)).release().ptr());
    return items;
  }
}

namespace {
PythonError* all_errors = nullptr;
}

PythonError::PythonError(std::string text, PyObject* thrown) : Error(std::move(text)), exception(thrown) {
  next_ = all_errors;
  if (next_) next_->previous_ = this;
  all_errors = this;
}

PythonError::~PythonError() {
  if (python_is_ending()) return;
  const WithGil gil;
  (previous_ ? previous_->next_ : all_errors) = next_;
  if (next_) next_->previous_ = previous_;
  Py_XDECREF(exception);
}

void PythonError::drop_all_exceptions() {
  std::vector<PyObject*> exceptions;
  for (PythonError* error = all_errors; error; error = error->next_)
    if (PyObject* exception = std::exchange(error->exception, nullptr)) exceptions.push_back(exception);
  for (PyObject* exception : exceptions) Py_DECREF(exception);
}

std::string to_utf8(nb::handle str) noexcept {
  nb::object bytes = nb::steal(PyUnicode_AsEncodedString(str.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) {
    PyErr_Clear();
    return "?";
  }
  return std::string(PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr())));
}

std::string type_of(nb::handle object) noexcept { return to_utf8(nb::type_name(object.type())); }

void raise_error(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

nb::dict counts_of(std::initializer_list<std::pair<const char*, uint64_t>> counts) {
  nb::dict dict;
  for (const auto& [name, count] : counts) dict[name] = count;
  return dict;
}

nb::object from_utf8(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

namespace {

Ref<Error> from_exception(nb::handle exception) {
  std::string text = type_of(exception);
  if (const auto dot = text.rfind('.'); dot != std::string::npos) text.erase(0, dot + 1);
  nb::object message = nb::steal(PyObject_Str(exception.ptr()));
  if (!message.is_valid()) {
    PyErr_Clear();
    text += ": <its str() failed>";
  } else if (nb::len(message) != 0) {
    text += ": " + to_utf8(message);
  }
  return Ref<Error>(new PythonError(std::move(text), exception.inc_ref().ptr()));
}

}  // namespace

Ref<Error> error_from_python(nb::python_error& thrown) {
  nb::object exception = nb::borrow(thrown.value());
  if (thrown.traceback().is_valid()) PyException_SetTraceback(exception.ptr(), thrown.traceback().ptr());
  return from_exception(exception);
}

Ref<Error> error_from_object(nb::handle object) {
  if (PyUnicode_Check(object.ptr())) return make_ref<Error>(to_utf8(object));
  if (PyExceptionClass_Check(object.ptr())) return from_exception(object());
  if (PyExceptionInstance_Check(object.ptr())) return from_exception(object);
  throw nb::type_error("on_complete: the error must be an exception or a str");
}

std::string describe(const Error& error) {
  std::string text =
      (error.operation.empty() ? std::string("operation") : error.operation) + ": " + error.message;
  if (!error.where.empty()) text += "\n  pushed at " + error.where;
  return text;
}

namespace {

void raise(const std::exception_ptr& thrown);

// What a native kernel threw, as the exception that a call raises for it; none if Python has no word for it.
nb::object native_cause(const std::exception_ptr& thrown) {
  if (!thrown) return nb::none();
  try {
    raise(thrown);
    nb::python_error raised;
    return nb::borrow(raised.value());
  } catch (...) {
    return nb::none();
  }
}

}  // namespace

nb::object to_engine_error(const std::vector<Ref<Error>>& causes) {
  nb::list list;
  for (const Ref<Error>& cause : causes) {
    const auto* python = dynamic_cast<const PythonError*>(cause.get());
    nb::object from = python && python->exception ? nb::borrow(python->exception)
                      : python                    ? nb::none()
                                                  : native_cause(cause->cause);
    nb::object type = nb::borrow(hook(Hook::engine_error));
    if (!python && !from.is_none()) type = call_hook(Hook::failure_class, from.type());
    nb::object error = type(from_utf8(describe(*cause)), "operation"_a = from_utf8(cause->operation),
                            "where"_a = from_utf8(cause->where));
    if (!from.is_none()) PyException_SetCause(error.ptr(), from.release().ptr());
    list.append(error);
  }
  if (causes.size() == 1) return list[0];
  return call_hook(Hook::engine_error_group, std::to_string(causes.size()) + " operations failed", list);
}

namespace {

// Whether code is of the package itself: the file that it is from lies in the package's folder.
bool lies_in_package(PyObject* file) {
  static constinit const std::string* folder = nullptr;  // as long as the process
  if (!folder) folder = new std::string(to_utf8(hook(Hook::folder)));
  return to_utf8(file).starts_with(*folder);
}

// The same, remembered for each text, which all code of a file shares; so no code is kept alive.
bool is_ours(PyObject* code) {
  static constinit Interned name("co_filename");
  const nb::object file = nb::steal(PyObject_GetAttr(code, name.get()));
  if (!file.is_valid()) {
    PyErr_Clear();
    return false;
  }
  struct Known {
    nb::object* file = nullptr;
    bool ours = false;
  };
  static constinit Known entries[64]{};
  Known& entry = entries[reinterpret_cast<uintptr_t>(file.ptr()) / 64 % 64];
  if (!entry.file) entry.file = new nb::object;  // never destroyed: the interpreter ends before
  if (!entry.file->is(file)) {
    entry.ours = lies_in_package(file.ptr());
    *entry.file = file;
  }
  return entry.ours;
}

// The innermost frame that is not the package's own; if all are, the innermost. Null without Python frames.
nb::object frame_of_user() {
  static constinit Interned back("f_back");
  nb::object innermost = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  nb::object frame = innermost;
  while (frame.is_valid() && !frame.is_none()) {
    const nb::object code = nb::steal(
        reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame.ptr()))));
    if (!is_ours(code.ptr())) return frame;
    frame = nb::steal(PyObject_GetAttr(frame.ptr(), back.get()));
  }
  PyErr_Clear();
  return innermost;
}

}  // namespace

Site Site::here() {
  PyFrameObject* const innermost = PyEval_GetFrame();
  LatestSite& latest = context().latest_site;
  if (innermost && latest.frame == innermost) {
    Py_INCREF(latest.code);
    return {latest.code, latest.instruction};
  }
  const nb::object frame = frame_of_user();
  if (!frame.is_valid()) return {};
  static constinit Interned lasti("f_lasti");
  auto* const code =
      reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame.ptr())));
  int instruction = 0;
  if (PyObject* value = PyObject_GetAttr(frame.ptr(), lasti.get())) {
    instruction = static_cast<int>(PyLong_AsLong(value));
    Py_DECREF(value);
  }
  PyErr_Clear();
  if (context().holds_gil) latest = {innermost, code, instruction};
  return {code, instruction};
}

Site Site::here_if_locked() noexcept {
  if (!context().holds_gil || python_is_ending()) return {};
  try {
    return here();
  } catch (...) {
    return {};
  }
}

std::string Site::text() const noexcept { return text_of_site(code_, instruction_); }

std::string text_of_site(PyObject* code, int instruction) noexcept {
  if (!code) return {};
  try {
    const nb::handle object(code);
    std::string line = "?";
    for (nb::handle range : object.attr("co_lines")()) {
      if (instruction < nb::cast<int>(range[0]) || instruction >= nb::cast<int>(range[1])) continue;
      if (!nb::object(range[2]).is_none()) line = std::to_string(nb::cast<int>(range[2]));
      break;
    }
    return to_utf8(object.attr("co_filename")) + ":" + line;
  } catch (...) {
    return {};
  }
}

namespace {

void raise_ours(Hook type, const std::string& text) {
  nb::object error;
  try {
    error = call_hook(type, from_utf8(text));
  } catch (nb::python_error& missing) {  // before weft.base is registered: its own words come first
    missing.restore();
    return PyErr_SetString(PyExc_RuntimeError, text.c_str());
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
}

// What is not ours goes on.
void raise(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OperationFailed& failed) {
    nb::object error = to_engine_error(failed.errors);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  } catch (const EngineMisuse& misuse) {
    raise_ours(Hook::engine_error, misuse.what());
  } catch (const NotDerivable& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
  } catch (const ShapeError& error) {
    raise_ours(Hook::shape_error, error.what());
  } catch (const DTypeError& error) {
    raise_ours(Hook::dtype_error, error.what());
  } catch (const DeviceError& error) {
    raise_ours(Hook::device_error, error.what());
  } catch (const BufferError& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  } catch (const IndexError& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const OutOfMemory& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const TimedOut& late) {
    PyErr_SetString(PyExc_TimeoutError, late.what());
  } catch (const Interrupted&) {
    if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
  }
}

}  // namespace

void raise_current_exception() noexcept {
  try {
    raise(std::current_exception());
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    switch (error.type()) {
      case nb::exception_type::type_error:
        return PyErr_SetString(PyExc_TypeError, error.what());
      case nb::exception_type::value_error:
        return PyErr_SetString(PyExc_ValueError, error.what());
      case nb::exception_type::index_error:
        return PyErr_SetString(PyExc_IndexError, error.what());
      case nb::exception_type::buffer_error:
        return PyErr_SetString(PyExc_BufferError, error.what());
      default:
        return PyErr_SetString(PyExc_RuntimeError, error.what());
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::overflow_error& error) {
    PyErr_SetString(PyExc_OverflowError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an error of unknown type");
  }
}

void bind_python(nb::module_& m) {
  install_host_hooks();
  interpreter = PyInterpreterState_Get();
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) { raise(thrown); });
  def(m, "end_python", [] {
    main_thread = std::this_thread::get_id();
    ending.store(true, std::memory_order_seq_cst);
    PyThreadState* state = PyEval_SaveThread();
    for (int i = 0; i < 1000 && asking.load(std::memory_order_seq_cst) > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    PyEval_RestoreThread(state);
  });
}

}  // namespace weft
