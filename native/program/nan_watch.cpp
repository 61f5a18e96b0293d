#include "program/nan_watch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "engine/device_kind.h"
#include "engine/fork.h"
#include "storage/runtime.h"
#include "tensor/dtype.h"

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

std::string text_of(const std::vector<int64_t>& index) {
  std::string text = "(";
  for (size_t d = 0; d < index.size(); ++d) text += (d ? ", " : "") + std::to_string(index[d]);
  return text + ")";
}

Ref<Kernel> count_kernel(DType dtype, int ndim) {
  const std::lock_guard guard(lasting_fork_mutex<NanWatch>());
  static auto& kernels = *new std::map<std::pair<DType, int>, Ref<Kernel>>;  // as long as the process
  Ref<Kernel>& kernel = kernels[{dtype, ndim}];
  if (!kernel) {
    const NanWatch::MakeCount make = NanWatch::make_count.load(std::memory_order_acquire);
    if (!make) throw std::logic_error("nothing counts NaN on devices");
    kernel = make(dtype, ndim);
  }
  return kernel;
}

// Counts where the array is; 32 bytes come to the host.
NonFinite count_there(DeviceBackend& backend, const RunContext& context, const View& x, bool infinite) {
  NonFinite counts;
  if (!is_floating(x.dtype) || !x.data || std::find(x.shape, x.shape + x.ndim, 0) != x.shape + x.ndim)
    return counts;
  const Ref<Kernel> kernel = count_kernel(x.dtype, x.ndim);
  std::array<int64_t, 4> words;
  const TempSpace space(context.device, sizeof words, context.stream_number);
  std::vector<View> operands{x};
  for (size_t k = 0; k < words.size(); ++k)
    operands.push_back({space.get() + k * sizeof(int64_t), DType::int64, 0, nullptr, nullptr});
  const std::vector<uint64_t> sizes(x.shape, x.shape + x.ndim);
  RunContext always = context;
  always.is_gated = false;
  kernel->run({operands.data(), sizes.data(), nullptr, always});
  backend.copy_out(context.device.index, words.data(), space.get(), sizeof words);
  counts.nan = words[0];
  counts.infinite = words[1];
  int64_t place = words[infinite ? 3 : 2];
  if (place < 0) return counts;
  std::vector<int64_t> index(static_cast<size_t>(x.ndim));
  for (size_t d = index.size(); d-- > 0; place /= x.shape[d]) index[d] = place % x.shape[d];
  counts.first = text_of(index);
  return counts;
}

NonFinite count(const RunContext& context, const View& x, bool infinite) {
  if (DeviceBackend* const backend = hidden_memory_of(context.device))
    return count_there(*backend, context, x, infinite);
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
      if (counts.first.empty() && (kind == 1 || infinite)) counts.first = text_of(index);
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

void NanWatch::check_results(const Program::Step& step, const RunContext& context,
                             const std::vector<View>& operands) {
  if (step.kernel->source_device()) return;  // a copy, which makes no NaN
  const bool infinite = on_.load(std::memory_order_relaxed) > 1;
  for (const int k : step.written) {
    const View& y = operands[static_cast<size_t>(k)];
    const NonFinite counts = count(context, y, infinite);
    if (!counts.nan && !(infinite && counts.infinite)) continue;
    std::string text = step.name + ": the result " + described(y) + " holds " + std::to_string(counts.nan) +
                       " NaN and " + std::to_string(counts.infinite) + " infinite elements, the first at " +
                       counts.first + "; it reads";
    bool any = false;
    for (size_t j = 0; j < operands.size(); ++j) {
      if (std::ranges::find(step.written, static_cast<int>(j)) != step.written.end()) continue;
      const NonFinite input = count(context, operands[j], true);
      text += (any ? ", " : " ") + described(operands[j]) + " with " + std::to_string(input.nan) +
              " NaN and " + std::to_string(input.infinite) + " infinite";
      any = true;
    }
    throw FloatingPointError(text + (any ? "" : " nothing"));
  }
}

}  // namespace weft
