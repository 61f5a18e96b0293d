// byte_convolution.h: convolutions of bytes that our own code computes sooner than oneDNN's.
#pragma once

#include "onednn/recipe.h"

namespace weft::onednn {

// The kernel of a convolution whose results are rounded to bytes; null: oneDNN computes it.
KernelRef byte_convolution(const Convolution& r);

}  // namespace weft::onednn
