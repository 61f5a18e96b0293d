// launch_recorder.h: the recorder (tensor/array_recorder.h) that tells a Python object, and what only the
// bindings can report.
//
// The object's methods get arrays as geometries: tuples (serial of the chunk, address, shape, strides in
// elements, dtype, device). While one of them runs, nothing is reported.
#pragma once

#include "bindings/tape.h"
#include "tensor/array_recorder.h"

namespace weft {

inline LaunchRecorder& current() noexcept { return static_cast<LaunchRecorder&>(*context().recorder); }
inline void met(PyObject* tensor) {
  if (context().recorder) current().on_use(tensor);
}

// An array as the object's methods get it. held: the memory, where it has to be kept, else None.
// is_stopped: its content has no gradient, whatever the memory's has.
nb::object geometry_of(const Tensor& x, nb::object held, bool is_stopped = false);
// The same of one whose memory, of this serial, may be gone.
nb::object geometry_of(const Tensor& x, uint64_t serial, Device device, nb::object held,
                       bool is_stopped = false);
// The same of one of which only the sizes are looked at.
nb::object sizes_of(const Tensor& x, Device device);
nb::object number_of(const Scalar& value);
// An object that keeps the memory of an array, without being a tensor of Python's that shows it.
nb::object hold(const Tensor& x);
// How often something was changed that programs may depend on besides arrays: a module's attributes. GIL.
extern uint64_t changes;

// The type of numbers whose origin a trace knows; null before the first trace.
extern PyTypeObject* traced_float_type;
inline bool is_known(PyObject* object) noexcept { return Py_TYPE(object) == traced_float_type; }

}  // namespace weft
