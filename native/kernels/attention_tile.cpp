// attention_tile.cpp: tiles of attention at each instruction set level.
#include "kernels/attention_tile.h"

#include <limits>

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/attention_tile.inc"
#include "kernels/each_level.h"

namespace weft {

const TileFunctions& tile_functions() { return *WEFT_AT_LEVEL(kTile); }

}  // namespace weft
