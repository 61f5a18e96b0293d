#include "program/nan_watch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "tensor/dtype.h"
#include "tensor/staging.h"

namespace weft {
namespace {

struct NonFinite {
  int64_t nan = 0, infinite = 0;
  std::string first;  // where the first one is
};

// Bits of a float: all of the exponent set is infinite, or NaN if the rest is not zero.
template <class Word>
int kind_of(const char* at, Word exponent, Word rest) noexcept {
  Word bits;
  std::memcpy(&bits, at, sizeof bits);
  if ((bits & exponent) != exponent) return 0;
  return (bits & rest) != 0 ? 1 : 2;
}

int kind_at(const char* at, DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
      return kind_of<uint16_t>(at, 0x7c00, 0x03ff);
    case DType::bfloat16:
      return kind_of<uint16_t>(at, 0x7f80, 0x007f);
    case DType::float32:
      return kind_of<uint32_t>(at, 0x7f800000, 0x007fffff);
    case DType::float64:
      return kind_of<uint64_t>(at, uint64_t{0x7ff} << 52, (uint64_t{1} << 52) - 1);
    default:
      return 0;
  }
}

NonFinite count(const View& x, bool infinite) {
  NonFinite counts;
  if (!is_floating(x.dtype) || !x.data) return counts;
  int64_t size = 1;
  for (int d = 0; d < x.ndim; ++d) size *= x.shape[d];
  const auto bytes = static_cast<int64_t>(size_of(x.dtype));
  std::vector<int64_t> index(static_cast<size_t>(x.ndim));
  const char* at = x.data;
  for (int64_t i = 0; i < size; ++i) {
    if (const int kind = kind_at(at, x.dtype)) {
      ++(kind == 1 ? counts.nan : counts.infinite);
      if (counts.first.empty() && (kind == 1 || infinite)) {
        counts.first = "(";
        for (size_t d = 0; d < index.size(); ++d) counts.first += (d ? ", " : "") + std::to_string(index[d]);
        counts.first += ")";
      }
    }
    for (int d = x.ndim - 1; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      at += x.strides[d] * bytes;
      if (++index[k] < x.shape[d]) break;
      at -= x.strides[d] * bytes * x.shape[d];
      index[k] = 0;
    }
  }
  return counts;
}

std::string described(const View& x) {
  std::string text = std::string(short_name(x.dtype)) + "[";
  for (int d = 0; d < x.ndim; ++d) text += (d ? "," : "") + std::to_string(x.shape[d]);
  return text + "]";
}

}  // namespace

int NanWatch::set(int what) noexcept { return on_.exchange(what); }

void NanWatch::check_results(const Program::Step& step, Device device, const std::vector<View>& arrays) {
  if (step.kernel->crosses_devices()) return;  // a copy, which makes no NaN
  std::vector<View> operands = arrays;
  std::vector<std::unique_ptr<Stage>> stages;
  if (hidden_memory_of(device))
    for (View& operand : operands) {
      stages.push_back(std::make_unique<Stage>(operand, device, true));
      operand = stages.back()->view();
    }
  const bool infinite = on_.load(std::memory_order_relaxed) > 1;
  for (const int k : step.written) {
    const View& y = operands[static_cast<size_t>(k)];
    const NonFinite counts = count(y, infinite);
    if (!counts.nan && !(infinite && counts.infinite)) continue;
    std::string text = step.name + ": the result " + described(y) + " holds " + std::to_string(counts.nan) +
                       " NaN and " + std::to_string(counts.infinite) + " infinite elements, the first at " +
                       counts.first + "; it reads";
    bool any = false;
    for (size_t j = 0; j < operands.size(); ++j) {
      if (std::ranges::find(step.written, static_cast<int>(j)) != step.written.end()) continue;
      const NonFinite input = count(operands[j], true);
      text += (any ? ", " : " ") + described(operands[j]) + " with " + std::to_string(input.nan) +
              " NaN and " + std::to_string(input.infinite) + " infinite";
      any = true;
    }
    throw FloatingPointError(text + (any ? "" : " nothing"));
  }
}

}  // namespace weft
