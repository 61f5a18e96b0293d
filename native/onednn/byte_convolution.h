// byte_convolution.h: convolutions of bytes that our own code computes sooner than oneDNN's.
#pragma once

#include <memory>

#include "onednn/recipe.h"

namespace weft::onednn {

// What takes longer runs in regions.
constexpr double kRegionOfBytes_ns = 2e5;

// The steps of a convolution whose results are rounded to bytes; null: oneDNN computes it. time: about what
// it takes on one thread, in nanoseconds.
std::unique_ptr<Steps> byte_convolution(const Convolution& r, double time);

}  // namespace weft::onednn
