// call_arguments.h: the arguments of one call of a traced function, flat, and the key of what a program
// depends on of them (traced.cpp has what that is).
//
// All of it is guarded by the GIL. Reading may run Python: properties of slices, destructors.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "bindings/launch_recorder.h"
#include "bindings/operator.h"

namespace weft {

// The arguments of a call, flat. What lies in lists and dicts another thread may take out of them while the
// call waits for the engine, so all of it is held.
struct FlatArguments {
  std::vector<uint64_t> key;
  std::vector<nb::object> leaves;
  std::vector<PyObject*> tensors;  // of the leaves
  bool foreign =
      false;  // some are arrays or scalars of other libraries, which become Tensors and numbers first
  std::vector<nb::object> identities;  // objects that are no leaves and whose addresses are part of the key
};

// FlatArguments of one call, empty at first, in the memory of an earlier call's.
class CallArguments {
 public:
  CallArguments() : arguments_(std::exchange(spare_, nullptr)) {
    if (!arguments_) arguments_ = new FlatArguments;
  }
  ~CallArguments() {
    FlatArguments& a = *arguments_;
    a.key.clear();
    a.tensors.clear();
    a.foreign = false;
    a.leaves.clear();  // this may run Python, which may come back here
    a.identities.clear();
    if (FlatArguments* const other = std::exchange(spare_, arguments_)) delete other;
  }
  CallArguments(const CallArguments&) = delete;
  FlatArguments& operator*() const noexcept { return *arguments_; }

 private:
  static inline constinit FlatArguments* spare_ = nullptr;  // guarded by the GIL; as long as the process
  FlatArguments* arguments_;
};

// Reads arguments: their key, their leaves, and what is kept alive for the sake of addresses in the key.
class ArgumentReader {
 public:
  explicit ArgumentReader(FlatArguments& to) : to_(to) {}

  void read(PyObject* object) {
    std::vector<uint64_t>& key = to_.key;
    if (Py_TYPE(object) == tensor_type) {
      add_tensor(object);
    } else if (PyTuple_CheckExact(object) || (PyTuple_Check(object) && type_has(object, "_fields"))) {
      const Deeper deeper(*this);
      const Py_ssize_t count = PyTuple_Size(object);
      if (!PyTuple_CheckExact(object)) add_kept_identity(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      key.push_back(word(Tag::tuple, static_cast<uint64_t>(count)));
      for (Py_ssize_t i = 0; i < count; ++i) read(PyTuple_GetItem(object, i));
    } else if (PyList_CheckExact(object)) {
      const Deeper deeper(*this);
      const Py_ssize_t count = PyList_Size(object);
      key.push_back(word(Tag::list, static_cast<uint64_t>(count)));
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* const borrowed = PyList_GetItem(object, i);
        if (!borrowed) throw nb::python_error();  // it has become shorter
        const nb::object item = nb::borrow(borrowed);
        read(item.ptr());
      }
    } else if (PyDict_CheckExact(object)) {
      const Deeper deeper(*this);
      Py_ssize_t left = PyDict_Size(object);
      key.push_back(word(Tag::dict, static_cast<uint64_t>(left)));
      PyObject *borrowed_name, *borrowed_value;
      for (Py_ssize_t i = 0; PyDict_Next(object, &i, &borrowed_name, &borrowed_value); --left) {
        const nb::object name = nb::borrow(borrowed_name), value = nb::borrow(borrowed_value);
        if (!add_plain(name.ptr())) {
          if (PyFloat_CheckExact(name.ptr()))
            key.insert(key.end(),
                       {word(Tag::real, 1), std::bit_cast<uint64_t>(PyFloat_AsDouble(name.ptr()))});
          else
            add_kept_identity(name.ptr());
        }
        read(value.ptr());
      }
      if (left != 0) raise_error(PyExc_RuntimeError, "trace: a dict changed its size while it was read");
    } else {
      add_leaf(object);
    }
  }

 private:
  enum class Tag : uint64_t {
    tensor = 1,
    real,
    integer,
    boolean,
    none,
    text,
    object,
    slice,
    tuple,
    list,
    dict,
    end
  };

  static uint64_t word(Tag tag, uint64_t rest = 0) noexcept { return static_cast<uint64_t>(tag) | rest << 4; }

  // Raises RecursionError where structures are cyclic, deeper than weft.base.structure.DEPTH, or too deep for
  // the thread's stack.
  static constexpr int most_deep = 10000;
  static constexpr int levels_between_checks = 16;
  struct Deeper {
    explicit Deeper(ArgumentReader& reader) : depth_(reader.depth_) {
      if (++depth_ > most_deep || (depth_ % levels_between_checks == 0 && !reader.has_stack())) {
        --depth_;
        PyErr_Format(PyExc_RecursionError,
                     "containers in the arguments of a traced function are nested more than %d deep, or "
                     "one contains itself",
                     depth_);
        throw nb::python_error();
      }
    }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    int& depth_;
  };

  // Whether the thread's stack has room for the levels up to the next check.
  bool has_stack() {
    constexpr ptrdiff_t kBytes = 128 << 10;
    if (!stack_end_) {
      pthread_attr_t attributes;
      if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
      size_t size = 0;
      pthread_attr_getstack(&attributes, &stack_end_, &size);
      pthread_attr_destroy(&attributes);
    }
    return static_cast<char*>(__builtin_frame_address(0)) - static_cast<char*>(stack_end_) > kBytes;
  }

  // What is part of the key by its type and value; false: something else.
  bool add_plain(PyObject* object) {
    if (object == Py_None) {
      to_.key.push_back(word(Tag::none));
    } else if (PyBool_Check(object)) {
      to_.key.push_back(word(Tag::boolean, object == Py_True));
    } else if (PyLong_CheckExact(object)) {
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
      if (overflow) {
        const nb::object digits = checked(PyNumber_ToBase(object, 16));
        add_text(Text::digits, digits.ptr());
        return true;
      }
      to_.key.push_back(word(Tag::integer));
      to_.key.push_back(static_cast<uint64_t>(value));
    } else if (PyUnicode_CheckExact(object)) {
      add_text(Text::characters, object);
    } else if (PyBytes_CheckExact(object)) {
      add_words(Text::bytes, PyBytes_AsString(object), PyBytes_Size(object));
    } else {
      return false;
    }
    return true;
  }

  enum class Text : uint64_t { characters, bytes, digits };

  void add_text(Text kind, PyObject* object) {
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(object, &size)) return add_words(kind, text, size);
    PyErr_Clear();  // halves of surrogates
    const nb::object bytes = checked(PyUnicode_AsEncodedString(object, "utf-8", "surrogatepass"));
    add_words(kind, PyBytes_AsString(bytes.ptr()), PyBytes_Size(bytes.ptr()));
  }
  void add_words(Text kind, const char* text, Py_ssize_t length) {
    const auto size = static_cast<size_t>(length);
    std::vector<uint64_t>& key = to_.key;
    key.push_back(word(Tag::text, static_cast<uint64_t>(kind) | size << 2));
    const size_t first = key.size();
    key.resize(first + (size + 7) / 8);
    std::copy_n(text, size, reinterpret_cast<char*>(key.data() + first));
  }

  void add_leaf(PyObject* object) {
    to_.leaves.push_back(nb::borrow(object));
    if (PyFloat_CheckExact(object)) {
      to_.key.push_back(word(Tag::real));
    } else if (add_plain(object)) {
      return;
    } else if (PySlice_Check(object)) {
      add_slice(object);
    } else {
      to_.foreign |= is_foreign(object);
      add_identity(Tag::object, object);
    }
  }

  static bool is_foreign(PyObject* object) noexcept {
    return !is_known(object) && (type_has(object, "__array_interface__") || type_has(object, "__dlpack__"));
  }

  // By its three parts where they are integers or missing.
  void add_slice(PyObject* object) {
    std::vector<uint64_t> parts{word(Tag::slice)};
    for (const char* name : {"start", "stop", "step"}) {
      const nb::object part = nb::handle(object).attr(name);
      int overflow = 0;
      if (!part.is_none() && !PyLong_CheckExact(part.ptr())) return add_identity(Tag::object, object);
      const long long value = part.is_none() ? 0 : PyLong_AsLongLongAndOverflow(part.ptr(), &overflow);
      if (overflow) return add_identity(Tag::object, object);
      parts.push_back(part.is_none());
      parts.push_back(static_cast<uint64_t>(value));
    }
    to_.key.insert(to_.key.end(), parts.begin(), parts.end());
  }

  void add_tensor(PyObject* object) {
    const Tensor& x = self_of(object);
    uint64_t first = to_.tensors.size(), distance = 0;
    for (size_t k = 0; k < to_.tensors.size(); ++k) {
      const Tensor& y = self_of(to_.tensors[k]);
      if (y.chunk.get() != x.chunk.get()) continue;
      first = k;
      distance = static_cast<uint64_t>(x.data - y.data);
      break;
    }
    const bool shares = first != to_.tensors.size();
    const auto ndim = static_cast<size_t>(x.ndim);
    std::vector<uint64_t>& key = to_.key;
    const size_t begin = key.size();
    key.resize(begin + 1 + shares + 2 * ndim);
    uint64_t* next = key.data() + begin;
    *next++ = word(Tag::tensor, type_key(x, x.device()) | first << kTypeBits);
    if (shares) *next++ = distance;
    for (size_t d = 0; d < ndim; ++d) {
      next[d] = static_cast<uint64_t>(x.shape[d]);
      next[ndim + d] = static_cast<uint64_t>(x.strides[d]);
    }
    to_.tensors.push_back(object);
    to_.leaves.push_back(nb::borrow(object));
  }

  void add_identity(Tag tag, PyObject* object) {
    to_.key.push_back(word(tag));
    to_.key.push_back(reinterpret_cast<uintptr_t>(object));
  }

  void add_kept_identity(PyObject* object) {
    add_identity(Tag::object, object);
    to_.identities.push_back(nb::borrow(object));
  }

  FlatArguments& to_;
  int depth_ = 0;
  void* stack_end_ = nullptr;  // of the thread, once it was asked for
};

}  // namespace weft
