#include "program/kept.h"

#include <algorithm>

namespace weft {

Mark Mark::of(const Tensor& x) noexcept {
  const Chunk* chunk = x.chunk.get();
  if (!chunk) return {0, 0, x.data, 0};
  // acquire: what was lent before and is not lent now has been written (unshare releases)
  if (chunk->shares.load(std::memory_order_acquire) != 0) return {};
  return {chunk->serial, chunk->version.load(std::memory_order_acquire), x.data,
          chunk->lent.load(std::memory_order_relaxed)};
}

Program::Keeper::Keeper(const Program& program, const std::vector<size_t>& sizes) : program_(program) {
  const int inputs = program.inputs_;
  for (const HoistedStep& step : program.hoisted)
    for (const int value : step.reads)
      if (value < inputs && std::ranges::find(inputs_, value) == inputs_.end()) inputs_.push_back(value);
  std::vector<std::vector<bool>> origins(sizes.size(), std::vector<bool>(inputs_.size()));
  for (size_t i = 0; i < inputs_.size(); ++i) origins[static_cast<size_t>(inputs_[i])][i] = true;
  for (const HoistedStep& step : program.hoisted)
    for (const int to : step.writes)
      for (const int from : step.reads)
        for (size_t i = 0; i < inputs_.size(); ++i)
          if (origins[static_cast<size_t>(from)][i]) origins[static_cast<size_t>(to)][i] = true;
  for (size_t v = 0; v < program.values.size(); ++v) {
    if (program.values[v].kind != Program::Value::Kind::kept) continue;
    const size_t number = v + static_cast<size_t>(inputs);
    values_.push_back({static_cast<int>(number), sizes[number], origins[number]});
  }
}

Program::Keeper::Use::Use(Keeper& keeper, const Tensor* const* inputs) : keeper_(keeper) {
  auto now = std::make_shared<Kept>();
  now->marks.reserve(keeper.inputs_.size());
  for (const int k : keeper.inputs_) now->marks.push_back(Mark::of(*inputs[k]));
  std::shared_ptr<const Kept> old;
  {
    const std::lock_guard lock(keeper_.guard_);
    old = keeper_.newest_;
  }
  if (old && old->marks == now->marks) {
    kept_ = std::move(old);
    return;
  }
  std::vector<bool> changed(now->marks.size(), true);
  for (size_t i = 0; old && i < changed.size(); ++i) changed[i] = !(old->marks[i] == now->marks[i]);
  std::vector<bool> stale(keeper_.values_.size());
  for (size_t k = 0; k < stale.size(); ++k) {
    const std::vector<bool>& origins = keeper_.values_[k].origins;
    stale[k] = !old;
    for (size_t i = 0; i < changed.size(); ++i) stale[k] = stale[k] || (changed[i] && origins[i]);
  }
  keeper_.choose(stale, steps_);
  now->chunks.resize(stale.size());
  for (size_t k = 0; k < stale.size(); ++k)
    now->chunks[k] =
        stale[k] ? Chunk::allocate(keeper_.program_.device, keeper_.values_[k].bytes) : old->chunks[k];
  kept_ = std::move(now);
}

// The steps that make stale values, and what they need. A step makes all that it writes again.
void Program::Keeper::choose(std::vector<bool>& stale, std::vector<bool>& steps) const {
  const std::vector<HoistedStep>& all = program_.hoisted;
  std::vector<int> place(static_cast<size_t>(program_.inputs_) + program_.values.size(), -1);
  for (size_t k = 0; k < values_.size(); ++k)
    place[static_cast<size_t>(values_[k].number)] = static_cast<int>(k);
  std::vector<bool> wanted(place.size());
  for (size_t k = 0; k < stale.size(); ++k)
    if (stale[k]) wanted[static_cast<size_t>(values_[k].number)] = true;
  steps.assign(all.size(), false);
  for (bool more = true; more;) {
    more = false;
    for (size_t t = all.size(); t-- > 0;) {
      if (steps[t] ||
          std::ranges::none_of(all[t].writes, [&](int v) { return wanted[static_cast<size_t>(v)]; }))
        continue;
      steps[t] = more = true;
      for (const int v : all[t].writes) {
        wanted[static_cast<size_t>(v)] = true;
        if (const int k = place[static_cast<size_t>(v)]; k >= 0) stale[static_cast<size_t>(k)] = true;
      }
      for (const int v : all[t].reads)
        if (place[static_cast<size_t>(v)] < 0 && v >= program_.inputs_) wanted[static_cast<size_t>(v)] = true;
    }
  }
}

void Program::Keeper::Use::publish() {
  if (steps_.empty()) return;
  std::shared_ptr<const Kept> other = kept_;  // in the end the old one, which goes without the lock
  const std::lock_guard lock(keeper_.guard_);
  keeper_.newest_.swap(other);
}

}  // namespace weft
