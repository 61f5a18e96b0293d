// tape.h: what bindings ask of the tape (calls/tape.h) about tensors of Python's.
#pragma once

#include "bindings/layers.h"
#include "bindings/program.h"
#include "calls/tape.h"

namespace weft {

// Whether what happens to this tensor must be recorded.
inline bool is_recorded(PyObject* tensor) noexcept { return tracked_of(tensor).node && recording(); }
// Whether only operators may do it: somebody wants to know.
inline bool by_operators(PyObject* tensor) noexcept {
  return layers_active() || context().layers.capture || is_recorded(tensor) || stopping() ||
         is_stopped(tracked_of(tensor)) || (context().noting && tracked_of(tensor).node);
}

}  // namespace weft
