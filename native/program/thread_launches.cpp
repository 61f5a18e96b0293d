#include "program/thread_launches.h"

#include <cstdlib>
#include <span>
#include <stdexcept>

#include "program/thread_loop.h"
#include "tensor/kernels.h"

namespace weft {
namespace {

constexpr int64_t kAligned = 64, kSharedAligned = 16;

int64_t bytes_of(const LaunchesForm::Array& array, std::span<const int64_t> sizes) {
  auto bytes = static_cast<int64_t>(size_of(array.dtype));
  for (const int loop : array.loops) bytes *= sizes[static_cast<size_t>(loop)];
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

// As weft.expr.llvm_matrices.shared_bytes: from row to row an odd number of elements.
int64_t shared_bytes_of(const LaunchesForm::Array& array, std::span<const int64_t> sizes) {
  const auto size_at = [&](size_t k) { return sizes[static_cast<size_t>(array.loops[k])]; };
  const int64_t row = array.loops.size() > 1 ? size_at(1) | 1 : 1;
  const int64_t bytes = size_at(0) * row * static_cast<int64_t>(size_of(array.dtype));
  return (bytes + kSharedAligned - 1) / kSharedAligned * kSharedAligned;
}

class ThreadLaunches final : public Kernel {
 public:
  explicit ThreadLaunches(LaunchesForm form) : form_(std::move(form)), codes_(form_.launches.size()) {}

  int operand_count() const override { return form_.operands; }
  bool reaches_devices() const override { return true; }
  bool enqueues() const override { return true; }
  bool heeds_gate() const override { return true; }
  size_t scratch_bytes(const View* operands) const override {
    const std::vector<int64_t> sizes = sizes_of(operands);
    if (memory_of(sizes)) return 0;
    int64_t bytes = 0;
    for (const LaunchesForm::Array& array : form_.scratch) bytes += bytes_of(array, sizes);
    return static_cast<size_t>(bytes);
  }

  void run(const Call& call) const override {
    const std::vector<int64_t> sizes = sizes_of(call.operands);
    const int memory = memory_of(sizes);
    std::vector<Array> arrays;
    for (int k = 0; k < form_.operands; ++k) {
      const View& x = call.operands[k];
      arrays.push_back({x.data, {}});
      for (int d = 0; d < x.ndim; ++d)
        arrays.back().strides.push_back(
            x.shape[d] == 1 ? 0 : x.strides[d] * static_cast<int64_t>(size_of(x.dtype)));
    }
    char* free = call.scratch;
    for (const LaunchesForm::Array& scratch : form_.scratch) {
      Array array{memory ? nullptr : free, std::vector<int64_t>(scratch.loops.size())};
      auto step = static_cast<int64_t>(size_of(scratch.dtype));
      for (size_t d = scratch.loops.size(); d-- > 0;) {
        array.strides[d] = step;
        step *= sizes[static_cast<size_t>(scratch.loops[d])];
      }
      arrays.push_back(std::move(array));
      if (!memory) free += bytes_of(scratch, sizes);
    }
    for (size_t k = 0; k < form_.launches.size(); ++k) launch(k, call, arrays, sizes, memory);
  }

 private:
  struct Array {
    char* data;
    std::vector<int64_t> strides;  // bytes
  };

  std::vector<int64_t> sizes_of(const View* operands) const {
    std::vector<int64_t> sizes;
    for (const auto& [operand, dim] : form_.loops) sizes.push_back(operands[operand].shape[dim]);
    return sizes;
  }

  // LaunchPattern::memory.
  int memory_of(std::span<const int64_t> sizes) const {
    int64_t bytes = 0;
    for (const LaunchesForm::Array& array : form_.work) bytes += shared_bytes_of(array, sizes);
    for (size_t k = 0; k < form_.limits.size(); ++k)
      if (bytes <= form_.limits[k]) return static_cast<int>(k) + 1;
    return 0;
  }

  void launch(size_t number, const Call& call, const std::vector<Array>& arrays,
              const std::vector<int64_t>& sizes, int memory) const {
    const LaunchForm& form = form_.launches[number];
    std::vector<uint64_t> words, strides;
    LaunchPattern pattern{call.context.device.index, memory, true, is_gated_now(call.context)};
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
