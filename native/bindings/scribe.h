// scribe.h: the scribe (tensor/scribe.h) that tells a Python object, and what only the bindings can report.
//
// The object's methods get arrays as geometries: tuples (serial of the chunk, address, shape, strides in
// elements, dtype, device). While one of them runs, nothing is reported.
#pragma once

#include "bindings/tape.h"
#include "tensor/scribe.h"

namespace weft {

// A tensor of Python is about to be used by this thread: whoever writes down may need the object.
void report_met(PyObject* tensor);
inline void met(PyObject* tensor) {
  if (scribe) report_met(tensor);
}
// A launch, with its results: after it, or, where launches are deferred, in its place; then whether it is to
// be left out.
bool report_launch(const Plan& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
                   std::span<const Tracked> results);

// How often something was changed that programs may depend on besides arrays: a module's attributes. GIL.
extern uint64_t changes;

// The type of numbers whose origin a trace knows; null before the first trace.
extern PyTypeObject* known_number_type;

}  // namespace weft
