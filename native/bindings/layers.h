// layers.h: what sees calls of operators before they are planned: transformations, those of users first.
//
// A thread's layers are a Python tuple (emit, the layers below), or none. A call goes to the first one's
// emit(op, args); while that runs, the layers below are the thread's, so that its own calls go on downwards.
#pragma once

#include "bindings/python.h"

namespace weft {

// Guarded by the GIL.
struct Layers {
  PyObject* first = nullptr;  // owned
  // What writes down a body of control flow on this thread; calls on its values go through layers, too.
  PyObject* capture = nullptr;  // owned
};
// Read by every call: in the thread's own block, without a function call.
extern constinit thread_local Layers layers_here __attribute__((tls_model("initial-exec")));

inline bool layers_active() noexcept { return layers_here.first != nullptr; }

// Within: other layers.
class WithLayers {
 public:
  explicit WithLayers(Layers layers) noexcept : before_(layers_here) {
    Py_XINCREF(layers.first);
    Py_XINCREF(layers.capture);
    layers_here = layers;
  }
  ~WithLayers() {
    Py_XDECREF(layers_here.first);
    Py_XDECREF(layers_here.capture);
    layers_here = before_;
  }
  WithLayers(const WithLayers&) = delete;

 private:
  const Layers before_;
};

// Within: none, for what runs below them all: planning, gradients.
struct BelowLayers : WithLayers {
  BelowLayers() noexcept : WithLayers({}) {}
};

// What the first layer makes of a call; only while there is one. Raises TypeError if it gives None.
nb::object emit_to_layers(nb::handle op, nb::handle args);

void bind_layers(nb::module_& m);

}  // namespace weft
