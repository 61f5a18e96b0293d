// isa.cpp: finds the instruction set level of the processor, and what the environment allows of it.
#include "storage/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace weft {
namespace {

Isa allowed() noexcept {
  const char* text = std::getenv("WEFT_ISA");
  const std::string_view name = text ? text : "";
  if (name == "sse4") return Isa::baseline;
  if (name == "avx2") return Isa::avx2;
  return Isa::avx512;
}

}  // namespace

Isa processor_isa() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                  __builtin_cpu_supports("f16c");
  if (!v3) return Isa::baseline;
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? Isa::avx512 : Isa::avx2;
#else
  return Isa::baseline;
#endif
}

Isa isa() noexcept {
  static const Isa level = std::min(processor_isa(), allowed());
  return level;
}

}  // namespace weft
