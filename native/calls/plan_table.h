// plan_table.h: the plans of an operator's calls, by what of a call decides them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "calls/plan.h"

namespace weft {

// The key of a plan: what of a call decides which program runs. Words: the attributes' variant and the call's
// form; one for each operand; for plans of exact sizes, sizes and strides.
using PlanKey = std::vector<uint64_t>;
struct PlanKeyHash {
  using is_transparent = void;
  size_t operator()(std::span<const uint64_t> key) const noexcept;
};
struct PlanKeyEqual {
  using is_transparent = void;
  bool operator()(std::span<const uint64_t> a, std::span<const uint64_t> b) const noexcept {
    return std::ranges::equal(a, b);
  }
};

// Of an array in a key: element type, dimensions and device. The lowest kTypeBits bits.
inline constexpr int kTypeBits = 8 + 5 + 8 + 16;
inline uint64_t type_key(const Tensor& x, Device device) noexcept {
  static_assert(kDTypes <= 1 << 8 && kMaxDims < 1 << 5 && sizeof(DeviceKind) == 1);
  return static_cast<uint64_t>(x.dtype) | static_cast<uint64_t>(x.ndim) << 8 |
         static_cast<uint64_t>(device.kind) << 13 | static_cast<uint64_t>(device.index & 0xffff) << 21;
}
inline DType dtype_of_key(uint64_t key) noexcept { return static_cast<DType>(key & 0xff); }
inline int ndim_of_key(uint64_t key) noexcept { return static_cast<int>(key >> 8 & 0x1f); }

// Plans by key: bounded, by forgetting what has not been used for as long as it took to fill half of the
// table. A null plan means that there is none for all that the key means.
class PlanTable {
 public:
  static constexpr size_t kHalf = 1024;
  const Ref<Plan>* find(std::span<const uint64_t> key);  // null: not there
  void add(std::span<const uint64_t> key, Ref<Plan> plan);
  size_t size() const noexcept { return young_.size() + old_.size(); }
  void clear() noexcept;

 private:
  using Map = std::unordered_map<PlanKey, Ref<Plan>, PlanKeyHash, PlanKeyEqual>;
  Map young_, old_;
  const PlanKey* last_key_ = nullptr;  // of the latest hit, in young_
  const Ref<Plan>* last_ = nullptr;
};

}  // namespace weft
