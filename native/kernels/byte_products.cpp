// byte_products.cpp: convolutions of bytes, with the widest vectors that the level has.
#include "kernels/byte_products.h"

#include <algorithm>

#include "kernels/level.h"
#include "storage/isa.h"
#include "storage/simd.h"

#ifdef WEFT_X86
#define WEFT_EACH_LEVEL "kernels/byte_products.inc"
#include "kernels/each_level.h"

WEFT_TARGET_BEGIN(WEFT_AVX512_FEATURES ",avx512vnni")
namespace weft {
namespace {
namespace adds_bytes {
#define WEFT_LEVEL_BYTES 64
#define WEFT_ADDS_BYTES
#include "kernels/byte_products.inc"
#undef WEFT_ADDS_BYTES
#undef WEFT_LEVEL_BYTES
}  // namespace adds_bytes
}  // namespace
}  // namespace weft
WEFT_TARGET_END

namespace weft {
namespace {

// A level that $WEFT_ISA names has none of the instructions beyond it.
bool adds_bytes_at_level() noexcept {
  static const bool processor = __builtin_cpu_supports("avx512vnni");
  return processor && kernel_isa() == Isa::avx512 && !isa_is_capped();
}

}  // namespace

int64_t depthwise(const Depthwise& shape, const uint8_t* x, const int8_t* weight, const Rounding& rounding,
                  uint8_t* y, int64_t begin, int64_t end) {
  const auto run = adds_bytes_at_level() ? &adds_bytes::depthwise_items : WEFT_AT_LEVEL(depthwise_items);
  return run(shape, x, weight, rounding, y, begin, end);
}

PointwiseCode pointwise_code(bool narrow) noexcept {
  if (adds_bytes_at_level()) return &adds_bytes::pointwise_items;
  return narrow && kernel_isa() >= Isa::avx2 ? &avx2::pointwise_items : nullptr;
}

}  // namespace weft
#endif
