// isa.cpp: finds the instruction set level of the processor, and what the environment allows of it.
#include "storage/isa.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace weft {
namespace {

constexpr Isa kLevels[] = {Isa::baseline, Isa::avx2, Isa::avx512};

// What $WEFT_ISA names; nothing where it is unset or "native".
std::optional<Isa> allowed() noexcept {
  const char* text = std::getenv("WEFT_ISA");
  for (const Isa level : kLevels) {
    if (text && std::string_view(text) == name_of(level)) return level;
  }
  return std::nullopt;
}

struct Choice {
  Isa level;
  bool capped;
};

const Choice& choice() noexcept {
  static const Choice result = [] {
    const Isa processor = processor_isa();
    const Isa most = allowed().value_or(processor);
#if defined(__x86_64__)
    const bool capped = allowed().has_value() && most <= processor;
#else
    const bool capped = false;  // the levels are those of x86-64
#endif
    return Choice{std::min(processor, most), capped};
  }();
  return result;
}
[[maybe_unused]] const Choice& kAtLoad = choice();

}  // namespace

Isa processor_isa() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  // All that code for the level may use, as it is compiled: a virtual machine may hide any of it, and lzcnt
  // then runs as another instruction, without a fault.
#if defined(__clang__)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                  __builtin_cpu_supports("f16c") && __builtin_cpu_supports("popcnt") &&
                  __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe");
#else
  const bool v3 = __builtin_cpu_supports("x86-64-v3") && __builtin_cpu_supports("f16c");
#endif
  if (!v3) return Isa::baseline;
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? Isa::avx512 : Isa::avx2;
#else
  return Isa::baseline;
#endif
}

const char* name_of(Isa level) noexcept {
  switch (level) {
    case Isa::baseline:
      return "sse4";
    case Isa::avx2:
      return "avx2";
    default:
      return "avx512";
  }
}

Isa isa() noexcept { return choice().level; }
bool isa_is_capped() noexcept { return choice().capped; }

}  // namespace weft
