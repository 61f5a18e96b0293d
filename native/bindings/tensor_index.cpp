// tensor_index.cpp: x[key] and x[key] = value for basic keys: integers, slices, None, Ellipsis and tuples of
// them. Other keys, and those of recorded tensors, are weft/arrays/indexing.py's.
#include "bindings/hooks.h"
#include "bindings/launch_recorder.h"
#include "bindings/layers.h"

namespace weft {
namespace {

struct Items {
  IndexItem items[2 * kMaxDims + 1];
  size_t count = 0;
  void add(const IndexItem& item) {
    if (count == std::size(items)) throw IndexError("too many indices");
    items[count++] = item;
  }
};

// A key that holds more than integers, slices, None and ...: arrays, lists, masks.
struct Advanced {};

void refuse(nb::handle item) {
  const bool advanced = PyBool_Check(item.ptr()) || is_tensor(item) ||
                        (PySequence_Check(item.ptr()) && !PyUnicode_Check(item.ptr())) ||
                        nb::hasattr(item, "__array__");
  if (advanced) throw Advanced();
  throw IndexError(
      "index: a " + type_of(item) +
      " is not an index; integers, slices, None, ..., arrays and lists of integers and masks are");
}

// Far outside of any array means the same as just outside.
int64_t to_int64(nb::handle object) {
  const Py_ssize_t value = PyNumber_AsSsize_t(object.ptr(), nullptr);
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return std::clamp<int64_t>(value, -(int64_t{1} << 62), int64_t{1} << 62);
}

// The parts of a slice object; the limited API has no access to its fields.
void add_slice(Items& items, PyObject* slice) {
  static constinit Interned names[3] = {"start", "stop", "step"};
  IndexItem item{IndexItem::Kind::slice};
  for (int i = 0; i < 3; ++i) {
    nb::object part = checked(PyObject_GetAttr(slice, names[i].get()));
    if (part.is_none()) continue;
    if (!PyIndex_Check(part.ptr()))
      throw nb::type_error("slice indices must be integers or None or have an __index__ method");
    (i == 0 ? item.start : i == 1 ? item.stop : item.step) = to_int64(part);
    (i == 0 ? item.has_start : item.has_stop) |= i < 2;
  }
  items.add(item);
}

// Invalid for what only looks like an integer: arrays have __index__, too, but it fails.
nb::object as_integer(PyObject* key) {
  if (PyBool_Check(key) || !PyIndex_Check(key)) return {};
  if (is_tensor(key) && (self_of(key).ndim != 0 || !is_integer(self_of(key).dtype))) return {};
  nb::object number = nb::steal(PyNumber_Index(key));
  if (!number.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
  }
  return number;
}

void add(Items& items, PyObject* key) {
  if (PyLong_CheckExact(key)) {
    items.add({IndexItem::Kind::integer, to_int64(key)});
  } else if (PySlice_Check(key)) {
    add_slice(items, key);
  } else if (key == Py_None) {
    items.add({IndexItem::Kind::newaxis});
  } else if (key == Py_Ellipsis) {
    items.add({IndexItem::Kind::ellipsis});
  } else if (nb::object number = as_integer(key); number.is_valid()) {
    items.add({IndexItem::Kind::integer, to_int64(number)});
  } else {
    refuse(key);
  }
}

}  // namespace

namespace {

// Assignment converts, but for what would lose imaginary parts; a bool is whether a number is 0.
void check_parts(const Tensor& to, const Tensor& from) {
  if (is_complex(from.dtype) && !is_complex(to.dtype) && to.dtype != DType::bool_)
    throw DTypeError("assignment: " + std::string(name_of(to.dtype)) + " has no imaginary parts: value is " +
                     describe(from));
}

Tensor index_of(const Tensor& x, nb::handle key) {
  Items items;
  if (PyTuple_Check(key.ptr())) {
    const Py_ssize_t count = PyTuple_Size(key.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) add(items, PyTuple_GetItem(key.ptr(), i));
  } else {
    add(items, key.ptr());
  }
  return index(x, {items.items, items.count});
}

}  // namespace

nb::object subscript(PyObject* self, PyObject* key) {
  met(self);
  if (!context().layers.capture && !by_operators(self)) {
    try {
      return wrap(index_of(self_of(self), key));
    } catch (const Advanced&) {
    }
  }
  return call_hook(Hook::subscript, nb::handle(self), nb::handle(key));
}

int assign(PyObject* self, PyObject* key, PyObject* value) noexcept {
  return guarded<int>(-1, [&] {
    if (!value) throw nb::type_error("elements of a tensor cannot be deleted");
    met(self);
    if (is_tensor(value)) met(value);
    if (!context().layers.capture && !by_operators(self) && !(is_tensor(value) && by_operators(value))) {
      try {
        const Tensor to = index_of(self_of(self), key);
        if (is_number(value)) {
          push_fill(to, as_scalar_for(value, to.dtype));
        } else if (is_tensor(value)) {
          check_parts(to, self_of(value));
          push_copy(to, self_of(value));
        } else {
          const bool in_list = PyList_Check(value) || PyTuple_Check(value);
          const bool numbers = (is_integer(to.dtype) && in_list) ||
                               (is_complex(to.dtype) && (in_list || PyComplex_Check(value)));
          nb::object source = as_tensor(value, numbers ? dtype_object(to.dtype) : nb::none(), to.device());
          check_parts(to, self_of(source.ptr()));
          push_copy(to, self_of(source.ptr()));
        }
        note_overwriting(to);
        return 0;
      } catch (const Advanced&) {
      }
    }
    call_hook(Hook::assign, nb::handle(self), nb::handle(key), nb::handle(value));
    return 0;
  });
}

}  // namespace weft
