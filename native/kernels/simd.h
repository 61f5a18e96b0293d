// simd.h: compiling a part of a file for wider instructions than the rest, chosen at run time.
//
// Between WEFT_AVX512_BEGIN and WEFT_AVX512_END every function, templates and lambdas included, may use
// AVX-512 (the part that all processors with AVX-512BW share). Only functions of this part may be defined
// there, in an unnamed namespace: an inline function of a header that is compiled for AVX-512 could be the
// copy that the linker keeps for everybody. So headers come before. Callers ask isa() first (storage/isa.h).
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define WEFT_X86 1
#if defined(__clang__)
#define WEFT_AVX512_BEGIN                                                                             \
  _Pragma(                                                                                            \
      "clang attribute "                                                                              \
      "push(__attribute__((target(\"avx2,fma,bmi,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl\"))), " \
      "apply_to = function)")
#define WEFT_AVX512_END _Pragma("clang attribute pop")
#else
// GCC 12 takes the undefined vectors inside of its own intrinsics for mistakes (PR105593).
#define WEFT_AVX512_BEGIN                                                                                  \
  _Pragma("GCC push_options") _Pragma(                                                                     \
      "GCC target(\"avx2,fma,bmi,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512\")") \
      _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuninitialized\"")                 \
          _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define WEFT_AVX512_END _Pragma("GCC diagnostic pop") _Pragma("GCC pop_options")
#endif
#endif
