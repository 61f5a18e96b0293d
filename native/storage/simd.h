// simd.h: compiling a part of a file for wider instructions than the rest, chosen at run time. The one header
// that uses x86 intrinsics.
//
// Between WEFT_AVX2_BEGIN and WEFT_AVX2_END (likewise AVX512) every function, templates and lambdas included,
// may use the instructions of that level (storage/isa.h). Only functions of this part may be defined there,
// in an unnamed namespace: an inline function of a header that is compiled for more than the baseline could
// be the copy that the linker keeps for every caller. So headers come before. Callers check the level
// first.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define WEFT_X86 1
#define WEFT_AVX2_FEATURES "avx2,fma,bmi,bmi2,f16c,popcnt,lzcnt"
#define WEFT_AVX512_FEATURES WEFT_AVX2_FEATURES ",avx512f,avx512cd,avx512bw,avx512dq,avx512vl"
#define WEFT_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define WEFT_TARGET_BEGIN(features) \
  WEFT_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define WEFT_TARGET_END _Pragma("clang attribute pop")
#define WEFT_AVX2_BEGIN WEFT_TARGET_BEGIN(WEFT_AVX2_FEATURES)
#define WEFT_AVX512_BEGIN WEFT_TARGET_BEGIN(WEFT_AVX512_FEATURES)
#else
// GCC 12 takes the undefined vectors inside of its own intrinsics for mistakes (PR105593).
#define WEFT_TARGET_BEGIN(features)                                                            \
  _Pragma("GCC push_options") WEFT_PRAGMA(GCC target(features)) _Pragma("GCC diagnostic push") \
      _Pragma("GCC diagnostic ignored \"-Wuninitialized\"")                                    \
          _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define WEFT_TARGET_END _Pragma("GCC diagnostic pop") _Pragma("GCC pop_options")
#define WEFT_AVX2_BEGIN WEFT_TARGET_BEGIN(WEFT_AVX2_FEATURES)
#define WEFT_AVX512_BEGIN WEFT_TARGET_BEGIN(WEFT_AVX512_FEATURES ",prefer-vector-width=512")
#endif
#define WEFT_AVX2_END WEFT_TARGET_END
#define WEFT_AVX512_END WEFT_TARGET_END
#endif
