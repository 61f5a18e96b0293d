// each_level.h: compiles one file of functions for each instruction set level of the architecture.
//
//   #define WEFT_EACH_LEVEL "kernels/attention_tile.inc"
//   #include "kernels/each_level.h"
//
// gives the file's functions in the unnamed namespace's baseline, avx2 and avx512, each for vectors of that
// level (vectors.inc); WEFT_AT_LEVEL(f) is the one for kernel_isa(). What the file needs is included before:
// inside of it #include is not allowed (storage/simd.h says why). Without a guard, to be included once by a
// kernel's source file.
#include <cstdint>
#include <cstring>

#include "kernels/level.h"
#include "storage/simd.h"

#ifdef WEFT_AT_LEVEL
#error "each_level.h: included twice"
#endif

namespace weft {
namespace {
namespace baseline {
#define WEFT_LEVEL_BYTES 16
#include "kernels/vectors.inc"
#include WEFT_EACH_LEVEL
#undef WEFT_LEVEL_BYTES
}  // namespace baseline
}  // namespace
}  // namespace weft

#ifdef WEFT_X86
WEFT_AVX2_BEGIN
namespace weft {
namespace {
namespace avx2 {
#define WEFT_LEVEL_BYTES 32
#include "kernels/vectors.inc"
#include WEFT_EACH_LEVEL
#undef WEFT_LEVEL_BYTES
}  // namespace avx2
}  // namespace
}  // namespace weft
WEFT_AVX2_END

WEFT_AVX512_BEGIN
namespace weft {
namespace {
namespace avx512 {
#define WEFT_LEVEL_BYTES 64
#include "kernels/vectors.inc"
#include WEFT_EACH_LEVEL
#undef WEFT_LEVEL_BYTES
}  // namespace avx512
}  // namespace
}  // namespace weft
WEFT_AVX512_END

#define WEFT_AT_LEVEL(name)                                    \
  (::weft::kernel_isa() == ::weft::Isa::avx512 ? &avx512::name \
   : ::weft::kernel_isa() == ::weft::Isa::avx2 ? &avx2::name   \
                                               : &baseline::name)
#else
#define WEFT_AT_LEVEL(name) (&baseline::name)
#endif
