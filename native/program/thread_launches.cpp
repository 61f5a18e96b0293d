#include "program/thread_launches.h"

#include <cstdlib>
#include <stdexcept>

#include "program/thread_loop.h"
#include "tensor/kernels.h"

namespace weft {
namespace {

constexpr size_t kAligned = 64;

size_t elements_of(const View& x) {
  size_t count = 1;
  for (int d = 0; d < x.ndim; ++d) count *= static_cast<size_t>(x.shape[d]);
  return count;
}

class ThreadLaunches final : public Kernel {
 public:
  explicit ThreadLaunches(LaunchesForm form) : form_(std::move(form)), codes_(form_.launches.size()) {}

  int operand_count() const override { return form_.operands; }
  bool reaches_devices() const override { return true; }
  bool enqueues() const override { return true; }
  bool heeds_gate() const override { return true; }
  size_t scratch_bytes(const View* operands) const override {
    size_t bytes = 0;
    for (const auto& [like, dtype] : form_.scratch)
      bytes += (elements_of(operands[like]) * size_of(dtype) + kAligned - 1) / kAligned * kAligned;
    return bytes;
  }

  void run(const Call& call) const override {
    std::vector<Array> arrays;
    for (int k = 0; k < form_.operands; ++k) {
      const View& x = call.operands[k];
      arrays.push_back({x.data, {}});
      for (int d = 0; d < x.ndim; ++d)
        arrays.back().strides.push_back(x.strides[d] * static_cast<int64_t>(size_of(x.dtype)));
    }
    char* free = call.scratch;
    for (const auto& [like, dtype] : form_.scratch) {
      const View& x = call.operands[like];
      Array array{free, std::vector<int64_t>(static_cast<size_t>(x.ndim))};
      auto step = static_cast<int64_t>(size_of(dtype));
      for (int d = x.ndim; d-- > 0; step *= x.shape[d]) array.strides[static_cast<size_t>(d)] = step;
      arrays.push_back(std::move(array));
      free += (elements_of(x) * size_of(dtype) + kAligned - 1) / kAligned * kAligned;
    }
    std::vector<int64_t> sizes;
    for (const auto& [operand, dim] : form_.loops) sizes.push_back(call.operands[operand].shape[dim]);
    for (size_t k = 0; k < form_.launches.size(); ++k) launch(k, call, arrays, sizes);
  }

 private:
  struct Array {
    char* data;
    std::vector<int64_t> strides;  // bytes
  };

  void launch(size_t number, const Call& call, const std::vector<Array>& arrays,
              const std::vector<int64_t>& sizes) const {
    const LaunchForm& form = form_.launches[number];
    std::vector<uint64_t> words, strides;
    LaunchPattern pattern{call.context.device.index, true, is_gated_now(call.context)};
    for (const auto& [operand, dims] : form.operands) {
      const Array& array = arrays[static_cast<size_t>(operand)];
      words.push_back(reinterpret_cast<uint64_t>(array.data));
      for (size_t d = 0; d < dims.size(); ++d) {
        const int64_t stride = dims[d] < 0 ? 0 : array.strides[static_cast<size_t>(dims[d])];
        pattern.is_narrow &= std::abs(stride) <= kNarrow / std::max<int64_t>(sizes[d], 1);
        strides.push_back(static_cast<uint64_t>(stride));
      }
    }
    int64_t items = 1, positions = 1;
    std::vector<int64_t> turns = sizes;
    for (const auto& [loop, elements] : form.tiles) {
      int64_t& turn = turns[static_cast<size_t>(loop)];
      turn = (turn + elements - 1) / elements;
      items *= turn;
    }
    for (const int64_t size : sizes)
      positions = std::min(positions * std::max<int64_t>(size, 1), kNarrow + 1);
    pattern.is_narrow &= positions <= kNarrow;
    if (items == 0) return;
    for (const int64_t size : sizes) words.push_back(static_cast<uint64_t>(size));
    words.insert(words.end(), strides.begin(), strides.end());
    const DeviceFunction& function = *codes_[number].find(pattern, [&] { return form.compile(pattern); });
    if (words.size() > DeviceFunction::kMostWords) throw std::logic_error("a launch has too many words");
    uint64_t all[DeviceFunction::kMostWords];
    std::ranges::copy(words, all);
    enqueue_launch(call.context, function, items, all, words.size(), call.parameters, pattern.is_gated);
  }

  const LaunchesForm form_;
  const std::vector<CodeTable<LaunchPattern, const DeviceFunction*>> codes_;
};

}  // namespace

Ref<Kernel> make_thread_launches(LaunchesForm form) {
  return Ref<Kernel>(new ThreadLaunches(std::move(form)));
}

}  // namespace weft
