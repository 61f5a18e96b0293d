// isa.h: the instruction set level that the process uses.
//
// A level is a set of instructions that native kernels are compiled for, beside the baseline. The level used
// is the highest that the processor has and that $WEFT_ISA allows; it never changes during a process. The
// variable is read from the environment at the first use and validated by weft.base.flags when weft is
// imported.
#pragma once

#include <cstdint>

namespace weft {

enum class Isa : uint8_t {
  baseline,  // what every x86-64 has (WEFT_ISA=sse4), and every other architecture
  avx2,      // AVX2, FMA, BMI 1 and 2, F16C: x86-64-v3
  avx512,    // and AVX-512 F, BW, CD, DQ, VL: x86-64-v4
};

// The highest level that the processor has.
Isa processor_isa() noexcept;

// Whether $WEFT_ISA names the level used: then there are only its instructions, else all that the processor
// has.
bool isa_is_capped() noexcept;

// The name of a level, as in $WEFT_ISA.
const char* name_of(Isa level) noexcept;

// The level used. Kernels compiled for a level may run only if it is at most this one.
Isa isa() noexcept;

}  // namespace weft
