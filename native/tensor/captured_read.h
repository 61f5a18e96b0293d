// captured_read.h: reads of elements while a thread writes a function down as a graph (Layers::capture).
//
// Elements that the function has written exist in its graph only: memory has what was there before.
#pragma once

#include "tensor/tensor.h"

namespace weft {

// What wait_for calls first on such a thread. Set by the bindings, once, before any thread runs; may throw.
extern void (*check_captured_read)(const Tensor& x);

}  // namespace weft
