// layers.h: what sees calls of operators before they are planned: transformations, those of users first.
//
// A thread's layers are a Python tuple (emit, the layers below), or none. A call goes to the first one's
// emit(op, args); while that runs, the layers below are the thread's, so that its own calls go on downwards.
#pragma once

#include "bindings/python.h"
#include "engine/context.h"

namespace weft {

inline bool layers_active() noexcept { return context().layers.first != nullptr; }

// Within: other layers.
class WithLayers {
 public:
  explicit WithLayers(Layers layers) noexcept : before_(context().layers) {
    Py_XINCREF(layers.first);
    Py_XINCREF(layers.capture);
    context().layers = layers;
  }
  ~WithLayers() {
    const Layers within = std::exchange(context().layers, before_);  // first: what is dropped may run Python
    Py_XDECREF(within.first);
    Py_XDECREF(within.capture);
  }
  WithLayers(const WithLayers&) = delete;

 private:
  const Layers before_;
};

// Within: none, for what runs below them all: planning, gradients.
struct BelowLayers : WithLayers {
  BelowLayers() noexcept : WithLayers({}) {}
};

// Has this thread drop the objects of its context when it ends, unless they are taken out before.
void drop_at_end_of_thread();

// What the first layer makes of a call; only while there is one. Raises TypeError if it gives None.
nb::object emit_to_layers(nb::handle op, nb::handle args);

}  // namespace weft
