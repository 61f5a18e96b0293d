// tracked.h: an array as calls have it: with what explains it to gradients.
#pragma once

#include "tensor/tensor.h"

namespace weft {

class TapeNode;  // tape.h

// A tensor and what explains it to gradients.
struct Tracked {
  Tensor tensor;
  Ref<TapeNode> node;  // null: no gradient required
  uint32_t index = 0;  // among the node's outputs
  // The epoch of writing down (tape.h) in which it was taken out of the history: what is written down reads a
  // stop-gradient of its memory's content. 0: none.
  uint32_t stopped = 0;

  Tracked() noexcept;
  explicit Tracked(Tensor&& x) noexcept;
  Tracked(Tensor&& x, Ref<TapeNode> explains, uint32_t which) noexcept;
  Tracked(const Tracked&) noexcept;
  Tracked(Tracked&&) noexcept;
  Tracked& operator=(Tracked) noexcept;
  ~Tracked();
};

}  // namespace weft
