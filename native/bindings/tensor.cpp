// tensor.cpp: the type weft.Tensor: its life, attributes and views. Methods that need no native help are
// written in Python and set on the type (weft/arrays/tensor.py).
#include "bindings/hooks.h"
#include "bindings/launch_recorder.h"
#include "bindings/operator.h"
#include "tensor/convert.h"
#include "tensor/scalar.h"
#include "tensor/staging.h"

#include <structmember.h>

#include <cmath>

namespace weft {

PyTypeObject* tensor_type = nullptr;

nb::object wrap(Tensor&& tensor) { return wrap(Tracked(std::move(tensor))); }

NewTensor::NewTensor() {
  auto* self = PyObject_GC_New(PyTensor, tensor_type);  // tracked only by collect_through
  if (!self) throw nb::python_error();
  self->weakrefs = nullptr;
  self->gradient = nullptr;
  new (&self->tracked) Tracked();
  object_ = nb::steal(reinterpret_cast<PyObject*>(self));
}

NewTensor::~NewTensor() {
  if (object_.is_valid()) tracked().tensor.chunk = {};
}

nb::object NewTensor::take() noexcept {
  if (Chunk* chunk = tracked().tensor.chunk.get()) ++chunk->faces;
  collect_through(object_.ptr());
  return std::move(object_);
}

void collect_through(PyObject* tensor) noexcept {
  const TapeNode* const node = tracked_of(tensor).node.get();
  if (node && node->runs_python && !PyObject_GC_IsTracked(tensor)) PyObject_GC_Track(tensor);
}

nb::object wrap(Tracked&& tracked) {
  NewTensor tensor;
  tensor.tracked() = std::move(tracked);
  return tensor.take();
}

Tensor& tensor_of(nb::handle object, const char* function) {
  if (!is_tensor(object))
    throw type_error(std::string(function) + ": expected a Tensor, got " + type_of(object));
  return self_of(object.ptr());
}

namespace {

PyObject* const* dtype_table() {
  static PyObject* table[kDTypes];
  if (!table[0]) {
    const nb::handle dtypes = hook(Hook::dtypes);
    for (int i = kDTypes; i-- > 0;) {
      nb::object dtype = dtypes[i];
      const auto code = static_cast<DType>(i);
      if (nb::cast<std::string>(dtype.attr("name")) != name_of(code) ||
          nb::cast<size_t>(dtype.attr("bits")) != info_of(code).bits)
        throw std::logic_error("the hook dtypes and native/tensor/dtype_table.h differ");
      table[i] = dtype.release().ptr();
    }
  }
  return table;
}

}  // namespace

nb::object dtype_object(DType dtype) { return nb::borrow(dtype_table()[static_cast<int>(dtype)]); }

DType as_dtype(nb::handle object) {
  PyObject* const* table = dtype_table();
  for (int i = 0; i < kDTypes; ++i)
    if (object.ptr() == table[i]) return static_cast<DType>(i);
  return static_cast<DType>(nb::cast<int>(call_hook(Hook::as_dtype, object).attr("code")));
}

Device as_tensor_device(nb::handle object) {
  if (object.is_none()) {
    if (PyList_GetItem(hook(Hook::ever_scoped), 0) == Py_False) return {};
    return as_device(call_hook(Hook::current_device));
  }
  return as_device(object);
}

Shape as_shape(nb::handle object, const char* function) {
  Shape shape;
  auto add = [&](PyObject* item) {
    const Py_ssize_t size = PyNumber_AsSsize_t(item, PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
      PyErr_Clear();
      throw type_error(std::string(function) + ": a shape is an int or a sequence of ints, got " +
                       to_utf8(nb::repr(object)));
    }
    if (shape.ndim == kMaxDims)
      throw ShapeError(std::string(function) + ": at most " + std::to_string(kMaxDims) + " dimensions, got " +
                       to_utf8(nb::repr(object)));
    shape.sizes[shape.ndim++] = size;
  };
  if (PyTuple_Check(object.ptr())) {
    const Py_ssize_t count = PyTuple_Size(object.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) add(PyTuple_GetItem(object.ptr(), i));
  } else if (PyList_Check(object.ptr()) || (!PyLong_Check(object.ptr()) && PySequence_Check(object.ptr()) &&
                                            !PyUnicode_Check(object.ptr()) && !is_tensor(object))) {
    nb::object items = items_of(object.ptr());
    return as_shape(items, function);
  } else {
    add(object.ptr());
  }
  return shape;
}

bool is_number(nb::handle object) noexcept {
  return PyBool_Check(object.ptr()) || PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
         Py_TYPE(object.ptr()) == traced_float_type;
}

Scalar as_scalar(nb::handle number) {
  Scalar scalar{};
  if (PyBool_Check(number.ptr())) {
    scalar.kind = Scalar::Kind::boolean;
    scalar.boolean = number.ptr() == Py_True;
  } else if (PyFloat_Check(number.ptr())) {
    scalar.kind = Scalar::Kind::real;
    scalar.real = PyFloat_AsDouble(number.ptr());
  } else if (Py_TYPE(number.ptr()) == traced_float_type) {
    scalar = as_scalar(number.attr("value"));
    scalar.origin = nb::cast<uint32_t>(number.attr("origin"));
  } else {
    nb::object integer = checked(PyNumber_Index(number.ptr()));
    int overflow = 0;
    scalar.kind = Scalar::Kind::integer;
    scalar.integer = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    if (overflow > 0) {
      scalar.kind = Scalar::Kind::unsigned_integer;
      scalar.unsigned_integer = PyLong_AsUnsignedLongLong(integer.ptr());
      if (PyErr_Occurred()) {
        PyErr_Clear();
        overflow = -1;
      }
    }
    if (overflow < 0) {
      raise_error(PyExc_OverflowError, "integer " + to_utf8(nb::str(integer)) + " does not fit 64 bits");
    }
  }
  return scalar;
}

Scalar as_scalar_for(nb::handle number, DType dtype) {
  if (!is_number(number) && type_has(number.ptr(), "__float__") &&
      !PyIndex_Check(number.ptr())) {  // numpy.float32 and the like
    nb::object real = checked(PyNumber_Float(number.ptr()));
    return as_scalar(real);
  }
  if (is_floating(dtype) && PyLong_Check(number.ptr()) && !PyBool_Check(number.ptr())) {
    int overflow = 0;
    static_cast<void>(PyLong_AsLongLongAndOverflow(number.ptr(), &overflow));
    if (overflow) {  // a float takes integers of any size
      Scalar scalar{Scalar::Kind::real, {}};
      scalar.real = PyLong_AsDouble(number.ptr());
      if (PyErr_Occurred()) throw nb::python_error();
      return scalar;
    }
  }
  if (is_integer(dtype) &&
      (PyFloat_Check(number.ptr()) || is_known(number.ptr()))) {  // truncated, as by int()
    nb::object truncated = checked(PyNumber_Long(number.ptr()));
    return as_scalar_for(truncated, dtype);
  }
  const Scalar scalar = as_scalar(number);
  if (!fits(scalar, dtype))
    raise_error(PyExc_OverflowError, to_utf8(nb::repr(number)) + " is out of bounds for " + name_of(dtype));
  return scalar;
}

nb::object to_number(Scalar value) {
  switch (value.kind) {
    case Scalar::Kind::boolean:
      return nb::steal(PyBool_FromLong(value.boolean));
    case Scalar::Kind::integer:
      return nb::steal(PyLong_FromLongLong(value.integer));
    case Scalar::Kind::unsigned_integer:
      return nb::steal(PyLong_FromUnsignedLongLong(value.unsigned_integer));
    case Scalar::Kind::real:
      break;
  }
  return nb::steal(PyFloat_FromDouble(value.real));
}

nb::object to_tuple(Dims dims, int64_t factor) {
  return tuple_of(static_cast<Py_ssize_t>(dims.size()), [&](Py_ssize_t i) {
    return nb::steal(PyLong_FromLongLong(dims[static_cast<size_t>(i)] * factor));
  });
}

namespace {

// Life.

PyObject* exchange_gradient(PyObject* self, PyObject* gradient) noexcept {
  return std::exchange(reinterpret_cast<PyTensor*>(self)->gradient, gradient);
}
// Gradients of gradients are a chain of any length: of those that nothing else has, each is taken out of the
// one that it belongs to before that goes.
void drop_gradient(PyObject* next) noexcept {
  while (next) {
    const bool is_last = Py_REFCNT(next) == 1 && is_tensor(next);
    PyObject* const after = is_last ? exchange_gradient(next, nullptr) : nullptr;
    Py_DECREF(next);
    next = after;
  }
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(gradient_of(self));
  return TapeNode::visit_functions(tracked_of(self).node, visit, arg);
}

int clear(PyObject* self) {
  drop_gradient(exchange_gradient(self, nullptr));
  tracked_of(self).node = {};
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (Chunk* chunk = self_of(self).chunk.get()) --chunk->faces;
  if (reinterpret_cast<PyTensor*>(self)->weakrefs) PyObject_ClearWeakRefs(self);
  drop_gradient(exchange_gradient(self, nullptr));
  PyTypeObject* type = Py_TYPE(self);
  tracked_of(self).~Tracked();
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

// Attributes.

template <nb::object (*get)(const Tensor& x)>
PyObject* attribute(PyObject* self, void*) {
  return guarded_object([&] { return get(self_of(self)); });
}
nb::object shape_of(const Tensor& x) { return to_tuple(x.dims()); }
nb::object strides_of(const Tensor& x) { return to_tuple(x.steps(), static_cast<int64_t>(x.itemsize())); }
nb::object dtype_of(const Tensor& x) { return dtype_object(x.dtype); }
nb::object device_of(const Tensor& x) { return device_object(x.device()); }
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(self_of(self).ndim); }
PyObject* get_size(PyObject* self, void*) { return PyLong_FromLongLong(self_of(self).size); }
PyObject* get_itemsize(PyObject* self, void*) { return PyLong_FromSize_t(self_of(self).itemsize()); }
PyObject* get_nbytes(PyObject* self, void*) {
  const Tensor& x = self_of(self);
  return PyLong_FromLongLong(x.size * static_cast<int64_t>(x.itemsize()));
}
PyObject* get_version(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(self_of(self).chunk->version.load(std::memory_order_acquire));
}
// A function of weft.functional, for what has to be recorded.
nb::object call_operator(const char* name, nb::handle x, nb::object attribute) {
  nb::object function = call_hook(Hook::operator_function, name);
  return attribute.is_valid() ? function(x, attribute) : function(x);
}

PyObject* get_T(PyObject* self, void*) {
  return guarded_object([&]() -> nb::object {
    const Tensor& x = self_of(self);
    met(self);
    if (!by_operators(self)) return wrap(reversed(x));
    nb::list axes;
    for (int d = x.ndim; d-- > 0;) axes.append(d);
    return call_operator("permute_dims", self, nb::tuple(axes));
  });
}
PyObject* get_mT(PyObject* self, void*) {
  return guarded_object([&]() -> nb::object {
    met(self);
    if (!by_operators(self)) return wrap(transpose_last(self_of(self)));
    return call_operator("matrix_transpose", self, {});
  });
}

PyGetSetDef attributes[] = {
    {"shape", attribute<shape_of>, nullptr, "The sizes, a tuple of ints.", nullptr},
    {"strides", attribute<strides_of>, nullptr,
     "Bytes from one element to the next in each dimension, as NumPy counts them.", nullptr},
    {"dtype", attribute<dtype_of>, nullptr, "The element type, a DType.", nullptr},
    {"device", attribute<device_of>, nullptr, "The Device it lies on.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
    {"size", get_size, nullptr, "The number of elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"version", get_version, nullptr,
     "How many operations that wrote its memory have run; the same for all views of one memory.", nullptr},
    {"T", get_T, nullptr, "A view with the dimensions in reverse order.", nullptr},
    {"mT", get_mT, nullptr, "A view with the last two dimensions exchanged.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(PyTensor, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

// Methods.

nb::object item_of(const Tensor& x) {
  if (x.size != 1) throw ValueError("item: only one element can become a number: x is " + describe(x));
  wait_for(x);
  if (is_complex(x.dtype)) {
    Complex<double> value;
    const Tensor host = hidden_memory_of(x.device()) ? copy_of(x, DType::complex128, Device{}) : x;
    wait_for(host);
    row_functions(DType::complex128, host.dtype).strided(reinterpret_cast<char*>(&value), 1, host.data, 1, 1);
    return nb::steal(PyComplex_FromDoubles(value.re, value.im));
  }
  return to_number(load_element(x.data, x.dtype, x.device()));
}

PyObject* item(PyObject* self, PyObject*) {
  return guarded_object([&] { return item_of(self_of(self)); });
}

PyObject* numpy(PyObject* self, PyObject*) {
  return guarded_object([&] { return to_numpy(self); });
}

PyObject* wait(PyObject* self, PyObject*) {
  return guarded_object([&] {
    if (context().recorder) context().recorder->on_await(self_of(self));
    wait_unobserved(self_of(self));
    return nb::none();
  });
}

// reshape(2, 3) or reshape((2, 3))
PyObject* reshape(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded_object([&]() -> nb::object {
    const Tensor& x = self_of(self);
    const bool is_sequence = count == 1 && !PyLong_Check(arguments[0]);
    const Shape sizes =
        as_shape(is_sequence ? nb::borrow(arguments[0])
                             : tuple_of(count, [&](Py_ssize_t i) { return nb::borrow(arguments[i]); }),
                 "reshape");
    Shape shape = sizes;
    resolve_shape(x, sizes, shape.sizes);
    met(self);
    Tensor y;
    if (by_operators(self) || !reshape_view(x, shape, y))
      return call_operator("reshape", self, to_tuple(shape));
    return wrap(std::move(y));
  });
}

PyMethodDef methods[] = {
    {"item", item, METH_NOARGS,
     "item()\n--\n\nThe only element, as a Python bool, int, float or complex; waits for it.\n\n"
     "Raises ValueError if there is not exactly one; EngineError if producing it failed."},
    {"numpy", numpy, METH_NOARGS,
     "numpy()\n--\n\nA numpy.ndarray of the same memory, without a copy; waits until no operation uses "
     "it. Of an array on a GPU: a copy.\n\n"
     "As long as the array or a view of it lives, operations on this memory finish before the call that "
     "pushes them\n"
     "returns. bfloat16 becomes the type of that name of the package ml_dtypes."},
    {"wait", wait, METH_NOARGS,
     "wait()\n--\n\nWait until the elements can be read. Raises EngineError if producing them failed."},
    {"reshape", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(reshape)), METH_FASTCALL,
     "reshape(*shape)\n--\n\nThe same elements in another shape, in row-major order; one size may be -1.\n\n"
     "A view where the strides allow it, else a copy. Raises ShapeError if the number of elements differs."},
    {nullptr, nullptr, 0, nullptr}};

// Slots.

PyObject* subscript(PyObject* self, PyObject* key) {
  return guarded_object([&] { return weft::subscript(self, key); });
}

Py_ssize_t length(PyObject* self) {
  const Tensor& x = self_of(self);
  if (x.ndim > 0) return x.shape[0];
  PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
  return -1;
}

PyObject* sequence_item(PyObject* self, Py_ssize_t i) {
  return guarded_object([&] {
    nb::object key = nb::steal(PyLong_FromSsize_t(i));
    return weft::subscript(self, key.ptr());
  });
}

PyObject* iterate(PyObject* self) {
  if (self_of(self).ndim > 0) return PySeqIter_New(self);
  PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
  return nullptr;
}

int truth(PyObject* self) {
  return guarded<int>(-1, [&] {
    const Tensor& x = self_of(self);
    if (x.size != 1)
      throw ValueError("the truth value of a tensor with " + std::to_string(x.size) +
                       " elements is ambiguous: x is " + describe(x));
    return PyObject_IsTrue(item_of(x).ptr());
  });
}

PyObject* to_int(PyObject* self) {
  return guarded_object([&] { return nb::steal(PyNumber_Long(item_of(self_of(self)).ptr())); });
}

PyObject* to_float(PyObject* self) {
  return guarded_object([&] { return nb::steal(PyNumber_Float(item_of(self_of(self)).ptr())); });
}

PyObject* to_index(PyObject* self) {
  return guarded_object([&] {
    const Tensor& x = self_of(self);
    if (x.ndim != 0 || !is_integer(x.dtype))
      throw type_error("only 0-d integer tensors can be used as an index: x is " + describe(x));
    return item_of(x);
  });
}

template <Slot slot>
PyObject* binary(PyObject* a, PyObject* b) {
  return call_slot(slot, a, b);
}
template <Slot slot>
PyObject* in_place(PyObject* a, PyObject* b) {
  return call_slot_in_place(slot, a, b);
}
template <Slot slot>
PyObject* unary(PyObject* a) {
  return call_slot(slot, a, nullptr);
}
PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus == Py_None) return call_slot(Slot::pow, a, b);
  PyErr_SetString(PyExc_TypeError, "pow: tensors have no power modulo a third argument; use pow(x, y) % z");
  return nullptr;
}
PyObject* power_in_place(PyObject* a, PyObject* b, PyObject*) { return call_slot_in_place(Slot::pow, a, b); }
PyObject* compare(PyObject* a, PyObject* b, int operation) {
  static constexpr Slot slots_of[] = {Slot::less,      Slot::less_equal, Slot::equal,
                                      Slot::not_equal, Slot::greater,    Slot::greater_equal};
  return call_slot(slots_of[operation], a, b);  // in the order of Py_LT ... Py_GE
}

// By identity, although == compares elements: tensors are keys and members of sets as objects.
Py_hash_t hash(PyObject* self) {
  const auto address = reinterpret_cast<uintptr_t>(self);
  return static_cast<Py_hash_t>(address >> 4 | address << 60 >> 1);
}

template <class F>
void* as_slot(F* function) {
  return reinterpret_cast<void*>(function);
}

PyType_Slot slots[] = {
    {Py_nb_add, as_slot(binary<Slot::add>)},
    {Py_nb_subtract, as_slot(binary<Slot::subtract>)},
    {Py_nb_multiply, as_slot(binary<Slot::multiply>)},
    {Py_nb_true_divide, as_slot(binary<Slot::divide>)},
    {Py_nb_floor_divide, as_slot(binary<Slot::floor_divide>)},
    {Py_nb_remainder, as_slot(binary<Slot::remainder>)},
    {Py_nb_power, as_slot(power)},
    {Py_nb_and, as_slot(binary<Slot::bitwise_and>)},
    {Py_nb_or, as_slot(binary<Slot::bitwise_or>)},
    {Py_nb_xor, as_slot(binary<Slot::bitwise_xor>)},
    {Py_nb_lshift, as_slot(binary<Slot::bitwise_left_shift>)},
    {Py_nb_rshift, as_slot(binary<Slot::bitwise_right_shift>)},
    {Py_nb_matrix_multiply, as_slot(binary<Slot::matmul>)},
    {Py_nb_inplace_add, as_slot(in_place<Slot::add>)},
    {Py_nb_inplace_subtract, as_slot(in_place<Slot::subtract>)},
    {Py_nb_inplace_multiply, as_slot(in_place<Slot::multiply>)},
    {Py_nb_inplace_true_divide, as_slot(in_place<Slot::divide>)},
    {Py_nb_inplace_floor_divide, as_slot(in_place<Slot::floor_divide>)},
    {Py_nb_inplace_remainder, as_slot(in_place<Slot::remainder>)},
    {Py_nb_inplace_power, as_slot(power_in_place)},
    {Py_nb_inplace_and, as_slot(in_place<Slot::bitwise_and>)},
    {Py_nb_inplace_or, as_slot(in_place<Slot::bitwise_or>)},
    {Py_nb_inplace_xor, as_slot(in_place<Slot::bitwise_xor>)},
    {Py_nb_inplace_lshift, as_slot(in_place<Slot::bitwise_left_shift>)},
    {Py_nb_inplace_rshift, as_slot(in_place<Slot::bitwise_right_shift>)},
    {Py_nb_inplace_matrix_multiply, as_slot(in_place<Slot::matmul>)},
    {Py_nb_negative, as_slot(unary<Slot::negative>)},
    {Py_nb_positive, as_slot(unary<Slot::positive>)},
    {Py_nb_absolute, as_slot(unary<Slot::abs>)},
    {Py_nb_invert, as_slot(unary<Slot::bitwise_invert>)},
    {Py_tp_richcompare, as_slot(compare)},
    {Py_tp_hash, as_slot(hash)},
    {Py_tp_doc,
     const_cast<char*>("An n-dimensional array on a device. Made by weft.tensor, zeros, asarray, ...\n\n"
                       "Operations on it are pushed to the engine and return at once; reading its "
                       "elements waits for them.\n"
                       "Views share memory, as in NumPy. At most 16 dimensions.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_getset, attributes},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {Py_tp_iter, reinterpret_cast<void*>(iterate)},
    {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
    {Py_mp_ass_subscript, reinterpret_cast<void*>(assign)},
    {Py_mp_length, reinterpret_cast<void*>(length)},
    {Py_sq_item, reinterpret_cast<void*>(sequence_item)},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {Py_nb_bool, reinterpret_cast<void*>(truth)},
    {Py_nb_int, reinterpret_cast<void*>(to_int)},
    {Py_nb_float, reinterpret_cast<void*>(to_float)},
    {Py_nb_index, reinterpret_cast<void*>(to_index)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {0, nullptr}};
PyType_Spec spec = {"weft.Tensor", sizeof(PyTensor), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC, slots};

// What `grad` is, without looking at who wants to know; and of several. It is a tensor, or an array of
// another type, such as the sparse ones, for which Python answers.
void bind_gradients(nb::module_& m) {
  const auto of = [](nb::handle x) {
    tensor_of(x, "gradient");
    PyObject* const gradient = gradient_of(x.ptr());
    return nb::borrow(gradient ? gradient : Py_None);
  };
  def(m, "gradient", of, "x"_a);
  def(
      m, "gradients",
      [of](nb::list tensors) {
        nb::list gradients;
        for (nb::handle x : tensors) gradients.append(of(x));
        return gradients;
      },
      "tensors"_a);
  def(
      m, "forget_gradients",
      [](nb::list tensors) {
        const nb::tuple held(tensors);  // what goes may run Python, which may change the list
        for (nb::handle x : held) {
          tensor_of(x, "grad");
          drop_gradient(exchange_gradient(x.ptr(), nullptr));
        }
      },
      "tensors"_a);
  def(
      m, "set_gradient",
      [](nb::handle x, nb::handle dx) {
        tensor_of(x, "grad");
        if (!dx.is_none() && !nb::hasattr(dx, "__weft_function__")) tensor_of(dx, "grad");
        PyObject* const before =
            exchange_gradient(x.ptr(), dx.is_none() ? nullptr : nb::borrow(dx).release().ptr());
        // A gradient can lead back to its tensor.
        if (!dx.is_none() && !PyObject_GC_IsTracked(x.ptr())) PyObject_GC_Track(x.ptr());
        drop_gradient(before);
      },
      "x"_a, "dx"_a.none());
}

// What Python's side builds methods and functions from.
void bind_views(nb::module_& m) {
  def(
      m, "view_as",
      [](nb::handle x, nb::handle dtype) {
        Tensor y = tensor_of(x, "view_as");
        met(x.ptr());
        const DType type = as_dtype(dtype);
        if (size_of(type) != y.itemsize())
          throw DTypeError(std::string("view_as: ") + name_of(type) + " has another size: x is " +
                           describe(y));
        y.dtype = type;
        return wrap(std::move(y));
      },
      "x"_a, "dtype"_a);
  // The number as an integer that the type holds, if it is one of integers; raises OverflowError, or
  // ValueError for NaN.
  def(m, "fitted_number", [](nb::handle number, nb::handle dtype) {
    const DType type = as_dtype(dtype);
    return is_integer(type) ? to_number(as_scalar_for(number, type)) : nb::borrow(number);
  });
  def(m, "describe", [](nb::handle x) { return describe(tensor_of(x, "describe")); });
  def(m, "is_contiguous", [](nb::handle x) { return tensor_of(x, "contiguous").contiguous(); });
  def(m, "shares_memory", [](nb::handle a, nb::handle b) {
    const Tensor &x = tensor_of(a, "shares_memory"), &y = tensor_of(b, "shares_memory");
    return may_overlap(x.view(), y.view());
  });
  def(
      m, "copy_of",
      [](nb::handle x, nb::handle dtype, nb::handle device) {
        const Tensor& from = tensor_of(x, "copy");
        met(x.ptr());
        return wrap(copy_of(from, dtype.is_none() ? from.dtype : as_dtype(dtype),
                            device.is_none() ? from.device() : as_device(device)));
      },
      "x"_a, "dtype"_a = nb::none(), "device"_a = nb::none());
}

}  // namespace

void bind_tensor(nb::module_& m) {
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!tensor_type) throw nb::python_error();
  m.attr("Tensor") = nb::borrow(reinterpret_cast<PyObject*>(tensor_type));
  bind_views(m);
  bind_gradients(m);
}

}  // namespace weft
