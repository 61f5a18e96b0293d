// tensor.h: the Python type weft.Tensor. A type of our own rather than a nanobind class: a small operation
// makes and drops one of these, and the difference is a third of its time.
#pragma once

#include "bindings/functions.h"
#include "calls/tracked.h"
#include "tensor/operations.h"

namespace weft {

struct PyTensor {
  PyObject_HEAD;
  PyObject* weakrefs;
  PyObject* gradient;  // its `grad`, a Tensor; owned; null: none
  Tracked tracked;
};

extern PyTypeObject* tensor_type;

inline bool is_tensor(nb::handle object) noexcept { return PyObject_TypeCheck(object.ptr(), tensor_type); }
// Raises TypeError for anything but a Tensor.
Tensor& tensor_of(nb::handle object, const char* function);
inline Tracked& tracked_of(PyObject* self) noexcept { return reinterpret_cast<PyTensor*>(self)->tracked; }
inline Tracked& tracked_of(nb::handle object, const char* function) {
  tensor_of(object, function);
  return tracked_of(object.ptr());
}
inline PyObject* gradient_of(PyObject* self) noexcept { return reinterpret_cast<PyTensor*>(self)->gradient; }
inline Tensor& self_of(PyObject* self) noexcept { return tracked_of(self).tensor; }
// The garbage collector looks through tensors whose history leads to Python functions, and through no others,
// which would cost each small operation time. To be called when a tensor may have become one of those.
void collect_through(PyObject* tensor) noexcept;
// A Tensor in the making. Its memory counts the Tensors that show it once it is taken; if making it fails, it
// has none.
class NewTensor {
 public:
  NewTensor();
  ~NewTensor();
  NewTensor(const NewTensor&) = delete;
  Tracked& tracked() noexcept { return tracked_of(object_.ptr()); }
  nb::object take() noexcept;

 private:
  nb::object object_;
};
nb::object wrap(Tensor&& tensor);
nb::object wrap(Tracked&& tracked);

// The body of a slot or method: a C++ exception becomes Python's.
template <class R, class F>
R guarded(R failed, F&& body) noexcept {
  try {
    const PythonEntry entry;
    return body();
  } catch (...) {
    raise_current_exception();
    return failed;
  }
}
template <class F>
PyObject* guarded_object(F&& body) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return nb::object(body()).release().ptr(); });
}

DType as_dtype(nb::handle object);
nb::object dtype_object(DType dtype);
// None: the current device.
Device as_tensor_device(nb::handle object);

// A Python number, exactly. Raises TypeError for other things, OverflowError for integers that `dtype` cannot
// hold.
bool is_number(nb::handle object) noexcept;
Scalar as_scalar(nb::handle number);
Scalar as_scalar_for(nb::handle number, DType dtype);
nb::object to_number(Scalar value);
nb::object to_tuple(Dims dims, int64_t factor = 1);

// A shape given as an int or a sequence of ints.
Shape as_shape(nb::handle object, const char* function);

// tensor_index.cpp
nb::object subscript(PyObject* self, PyObject* key);
int assign(PyObject* self, PyObject* key, PyObject* value) noexcept;
// A Tensor made of anything that tensor() of Python accepts.
nb::object as_tensor(nb::handle value, nb::handle dtype, Device device);

// tensor_exchange.cpp
nb::object to_numpy(nb::handle self);
int get_buffer(PyObject* self, Py_buffer* buffer, int flags) noexcept;
void release_buffer(PyObject* self, Py_buffer* buffer) noexcept;

}  // namespace weft
