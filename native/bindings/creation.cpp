// creation.cpp: new tensors: empty, filled, counted, and from nested Python sequences.
#include "bindings/hooks.h"
#include "bindings/launch_recorder.h"
#include "engine/device_kind.h"

#include <vector>

namespace weft {
namespace {

// Arguments of a function (shape, dtype=None, device=None), positional or by name, without nanobind's
// dispatch: empty() is measured in nanoseconds.
struct CreationArguments {
  nb::handle values[4];

  // `names`: the names after the first `required`, which cannot be left out.
  CreationArguments(const char* function, std::initializer_list<const char*> names, size_t required,
                    PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
    const auto positional = static_cast<size_t>(count);
    if (positional > names.size())
      fail(function, "takes at most " + std::to_string(names.size()) + " arguments");
    for (size_t i = 0; i < positional; ++i) values[i] = arguments[i];
    const Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t k = 0; k < named; ++k) {
      nb::handle name = PyTuple_GetItem(keywords, k);
      size_t i = 0;
      for (const char* name_of_parameter : names) {
        if (PyUnicode_CompareWithASCIIString(name.ptr(), name_of_parameter) == 0) break;
        ++i;
      }
      if (i == names.size()) {
        const std::string unknown = to_utf8(name);
        fail(function, "has no argument '" + unknown + "'" +
                           (unknown == "requires_grad" ? "; attach the tensor to a weft.GradManager" : ""));
      }
      if (values[i].is_valid()) fail(function, "got the argument '" + to_utf8(name) + "' twice");
      values[i] = arguments[count + k];
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (values[i].is_valid()) continue;
      if (i < required) fail(function, "needs the argument '" + std::string(names.begin()[i]) + "'");
      values[i] = nb::handle(Py_None);
    }
  }

 private:
  [[noreturn]] static void fail(const char* function, const std::string& text) {
    throw type_error(std::string(function) + "() " + text);
  }
};

Tensor empty_of(const char* function, nb::handle shape, nb::handle dtype, nb::handle device) {
  if (PyLong_CheckExact(shape.ptr()) && PyLong_CheckExact(dtype.ptr())) {
    std::string text = function;
    text.append("() takes the shape as one argument: ").append(function).append("((");
    text.append(to_utf8(nb::str(shape))).append(", ").append(to_utf8(nb::str(dtype))).append("))");
    throw type_error(text);
  }
  return Tensor::empty(as_shape(shape, function), dtype.is_none() ? DType::float32 : as_dtype(dtype),
                       as_tensor_device(device));
}

// Where a function is written down for dynamic axes, a shape may have sizes that are symbols. Then the array
// is a value of the graph; an invalid object for any other shape.
nb::object of_sizes(nb::handle shape, nb::handle value, nb::handle dtype, nb::handle device) {
  if (!context().layers.capture) return {};
  const auto is_size = [](nb::handle n) { return !PyLong_Check(n.ptr()) && type_has(n.ptr(), "is_dynamic"); };
  bool any = is_size(shape);
  if (PyTuple_Check(shape.ptr()) || PyList_Check(shape.ptr()))
    for (nb::handle n : shape) any = any || is_size(n);
  if (!any) return {};
  return call_hook(Hook::of_sizes, shape, value, dtype, device);
}

PyObject* empty(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return guarded_object([&] {
    const CreationArguments parsed("empty", {"shape", "dtype", "device"}, 1, arguments, count, keywords);
    if (nb::object x = of_sizes(parsed.values[0], nb::int_(0), parsed.values[1], parsed.values[2]);
        x.is_valid())
      return x;
    return wrap(empty_of("empty", parsed.values[0], parsed.values[1], parsed.values[2]));
  });
}

// zeros and ones.
template <int64_t value>
PyObject* all(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  static constexpr const char* name = value ? "ones" : "zeros";
  return guarded_object([&] {
    const CreationArguments parsed(name, {"shape", "dtype", "device"}, 1, arguments, count, keywords);
    const auto& [shape, dtype, device, _] = parsed.values;
    if (nb::object x = of_sizes(shape, nb::int_(value), dtype, device); x.is_valid()) return x;
    Tensor x = empty_of(name, shape, dtype, device);
    push_fill(x, {Scalar::Kind::integer, {.integer = value}});
    return wrap(std::move(x));
  });
}

PyObject* full(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return guarded_object([&] {
    const CreationArguments parsed("full", {"shape", "fill_value", "dtype", "device"}, 2, arguments, count,
                                   keywords);
    const auto [shape, value, dtype, device] = parsed.values;
    if (!is_number(value)) {
      const nb::object exactly = PyComplex_Check(value.ptr()) ? nb::borrow(dtype) : nb::none();
      nb::object source = as_tensor(value, exactly, as_tensor_device(device));
      const Tensor& from = self_of(source.ptr());
      Tensor x = Tensor::empty(as_shape(shape, "full"), dtype.is_none() ? from.dtype : as_dtype(dtype),
                               as_tensor_device(device));
      if (is_complex(from.dtype) && !is_complex(x.dtype) && x.dtype != DType::bool_)
        throw DTypeError("full: " + std::string(name_of(x.dtype)) +
                         " has no imaginary parts: fill_value is " + describe(from));
      push_copy(x, from);
      return wrap(std::move(x));
    }
    const auto own_type = [&] {
      const Scalar::Kind kind = as_scalar(value).kind;
      return kind == Scalar::Kind::boolean ? DType::bool_
             : kind == Scalar::Kind::real  ? DType::float32
                                           : DType::int64;
    };
    const DType type = dtype.is_none() ? own_type() : as_dtype(dtype);
    if (nb::object x = of_sizes(shape, value, dtype_object(type), device); x.is_valid()) return x;
    Tensor x = Tensor::empty(as_shape(shape, "full"), type, as_tensor_device(device));
    push_fill(x, as_scalar_for(value, type));
    return wrap(std::move(x));
  });
}

// Nested lists and tuples of numbers.

struct Nested {
  Shape shape;
  bool any_real = false, any_integer = false, any_boolean = false, any_known = false, plain = true;
  std::vector<PyObject*> leaves;  // borrowed: the sequences are held by `sequences_held`
  std::vector<nb::object> sequences_held;

  // False as soon as something is found that is not a number, a list or a tuple.
  bool read(nb::handle object, int depth) {
    const bool list = PyList_Check(object.ptr()), tuple = PyTuple_Check(object.ptr());
    if (!list && !tuple) {
      if (!is_number(object)) return plain = false;
      if (depth != shape.ndim) ragged(depth);
      if (PyBool_Check(object.ptr()))
        any_boolean = true;
      else if (is_known(object.ptr()))
        any_known = any_real = true;
      else if (PyFloat_Check(object.ptr()))
        any_real = true;
      else
        any_integer = true;
      leaves.push_back(object.ptr());
      return true;
    }
    const nb::object items = list ? items_of_list(object.ptr()) : nb::borrow(object);
    sequences_held.push_back(items);
    const Py_ssize_t count = PyTuple_Size(items.ptr());
    if (depth == depth_known) {
      if (depth == kMaxDims)
        throw ShapeError("tensor: the lists are nested more than " + std::to_string(kMaxDims) + " deep");
      if (!leaves.empty() || closed) ragged(depth);
      shape.sizes[depth] = count;
      shape.ndim = ++depth_known;
      if (count == 0) closed = true;  // nothing deeper can be known
    } else if (shape.sizes[depth] != count) {
      throw ShapeError("tensor: lists of different lengths in dimension " + std::to_string(depth) + ": " +
                       std::to_string(shape.sizes[depth]) + " and " + std::to_string(count));
    }
    for (Py_ssize_t i = 0; i < count; ++i)
      if (!read(PyTuple_GetItem(items.ptr(), i), depth + 1)) return false;
    return true;
  }

 private:
  int depth_known = 0;
  bool closed = false;
  [[noreturn]] static void ragged(int depth) {
    throw ShapeError("tensor: numbers and lists are mixed in dimension " + std::to_string(depth));
  }
};

// Null if `data` holds anything but numbers, lists and tuples.
nb::object from_nested(nb::handle data, nb::handle dtype, nb::handle device) {
  Nested nested;
  if (!nested.read(data, 0)) return nb::none();
  const DType type = !dtype.is_none()     ? as_dtype(dtype)
                     : nested.any_real    ? DType::float32
                     : nested.any_integer ? DType::int64
                     : nested.any_boolean ? DType::bool_
                                          : DType::float32;
  const Device where = as_tensor_device(device);
  const bool is_hidden = hidden_memory_of(where);
  Tensor x = Tensor::empty(nested.shape, type, is_hidden ? Device{} : where);
  char* element = x.data;
  for (PyObject* leaf : nested.leaves) {
    store(element, type, as_scalar_for(leaf, type));
    element += size_of(type);
  }
  if (is_hidden) {  // the elements are constants to what is written down, as they are on a processor
    const Unobserved quiet;
    x = copy_of(x, type, where);
  }
  if (!nested.any_known || !context().recorder) return wrap(std::move(x));
  // What is written down has the elements that a trace knows from its arguments; the others are constants.
  nb::object array = wrap(std::move(x));
  met(array.ptr());
  const Tensor& whole = self_of(array.ptr());
  for (size_t k = 0; k < nested.leaves.size(); ++k) {
    if (!is_known(nested.leaves[k])) continue;
    const Scalar value = as_scalar_for(nested.leaves[k], type);
    if (value.origin) push_fill(whole.as_strided(whole.data + k * size_of(type), Shape{}, Shape{}), value);
  }
  return array;
}

nb::object stepped(Py_ssize_t count, nb::handle start, nb::handle step, nb::handle dtype, nb::handle device) {
  const int64_t shape[1] = {count};
  Tensor x = Tensor::empty(shape, as_dtype(dtype), as_tensor_device(device));
  push_range(x, as_scalar(start), as_scalar(step));
  return wrap(std::move(x));
}

template <class F>
constexpr PyCFunction as_method(F* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef functions[] = {
    {"empty", as_method(empty), METH_FASTCALL | METH_KEYWORDS,
     "empty(shape, dtype=None, device=None)\n--\n\n"
     "A new tensor of undefined elements. shape: an int or a sequence of ints; dtype: float32 unless "
     "given.\n\n"
     "Raises ShapeError for negative or absurd sizes, MemoryError if there is not enough memory.\n\n"
     ">>> import weft as wf\n>>> wf.empty((2, 3), dtype=\"int8\").shape\n(2, 3)\n"},
    {"zeros", as_method(all<0>), METH_FASTCALL | METH_KEYWORDS,
     "zeros(shape, dtype=None, device=None)\n--\n\nA new tensor of zeros; see empty.\n\n"
     ">>> import weft as wf\n>>> wf.zeros(2)\ntensor([0., 0.], dtype=float32, device=cpu:0)\n"},
    {"ones", as_method(all<1>), METH_FASTCALL | METH_KEYWORDS,
     "ones(shape, dtype=None, device=None)\n--\n\nA new tensor of ones; see empty.\n\n"
     ">>> import weft as wf\n>>> wf.ones(2, dtype=\"int8\")\ntensor([1, 1], dtype=int8, device=cpu:0)\n"},
    {"full", as_method(full), METH_FASTCALL | METH_KEYWORDS,
     "full(shape, fill_value, dtype=None, device=None)\n--\n\n"
     "A new tensor filled with a number or a 0-d tensor. dtype: that of the value unless given: float32, "
     "int64, bool.\n\n"
     "Raises OverflowError if an integer type cannot hold the value.\n\n"
     ">>> import weft as wf\n>>> wf.full((2,), 7)\ntensor([7, 7], dtype=int64, device=cpu:0)\n"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

nb::object as_tensor(nb::handle value, nb::handle dtype, Device device) {
  return call_hook(Hook::asarray, value, "dtype"_a = dtype, "device"_a = device_object(device));
}

void bind_creation(nb::module_& m) {
  if (PyModule_AddFunctions(m.ptr(), functions) < 0) throw nb::python_error();
  def(m, "from_nested", from_nested, "data"_a.none(), "dtype"_a.none(), "device"_a.none());
  def(m, "stepped", stepped, "count"_a, "start"_a, "step"_a, "dtype"_a, "device"_a.none());
  def(
      m, "diagonal", [](nb::handle x, int64_t k) { return wrap(diagonal(tensor_of(x, "diagonal"), k)); },
      "x"_a, "k"_a = 0);
}

}  // namespace weft
