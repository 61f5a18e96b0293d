#include "calls/plan_table.h"

#include <cstring>

namespace weft {
namespace {

uint64_t mix(uint64_t h, uint64_t word) noexcept {
  h = (h ^ word) * 0x9e3779b97f4a7c15;
  return h ^ h >> 29;
}

}  // namespace

size_t PlanKeyHash::operator()(std::span<const uint64_t> key) const noexcept {
  uint64_t h = key.size();
  for (const uint64_t word : key) h = mix(h, word);
  return h;
}

const Ref<Plan>* PlanTable::find(std::span<const uint64_t> key) {
  if (last_key_ && last_key_->size() == key.size() &&
      std::memcmp(last_key_->data(), key.data(), key.size_bytes()) == 0)
    return last_;
  auto it = young_.find(key);
  if (it == young_.end()) {
    const auto old = old_.find(key);
    if (old == old_.end()) return nullptr;
    Ref<Plan> plan = old->second;
    old_.erase(old);
    add(key, std::move(plan));
    it = young_.find(key);
  }
  if (it->second) last_key_ = &it->first, last_ = &it->second;
  return &it->second;
}

void PlanTable::add(std::span<const uint64_t> key, Ref<Plan> plan) {
  last_key_ = nullptr;
  if (young_.size() >= kHalf) {
    old_ = std::move(young_);
    young_ = {};
  }
  young_.insert_or_assign(PlanKey(key.begin(), key.end()), std::move(plan));
}

void PlanTable::clear() noexcept {
  last_key_ = nullptr;
  young_.clear();
  old_.clear();
}

}  // namespace weft
