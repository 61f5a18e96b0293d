#include "program/prepacked.h"

#include <algorithm>

namespace weft {

Mark Mark::of(const Tensor& x) noexcept {
  const Chunk* chunk = x.chunk.get();
  if (!chunk) return {0, 0, x.data, 0};
  // acquire: what was lent before and is not lent now has been written (unshare releases)
  if (chunk->shares.load(std::memory_order_acquire) != 0) return {};
  return {chunk->serial, chunk->version.load(std::memory_order_acquire), x.data,
          chunk->exports.load(std::memory_order_relaxed)};
}

Program::Prepacker::Prepacker(const Program& program, const std::vector<size_t>& sizes) : program_(program) {
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
    if (program.values[v].kind != Program::Value::Kind::prepacked) continue;
    const size_t number = v + static_cast<size_t>(inputs);
    values_.push_back({static_cast<int>(number), sizes[number], origins[number]});
  }
}

Program::Prepacker::Use::Use(Prepacker& prepacker, const Tensor* const* inputs) : prepacker_(prepacker) {
  auto now = std::make_shared<PrepackedValues>();
  now->marks.reserve(prepacker.inputs_.size());
  for (const int k : prepacker.inputs_) now->marks.push_back(Mark::of(*inputs[k]));
  std::shared_ptr<const PrepackedValues> old;
  {
    const std::lock_guard lock(prepacker_.guard_);
    old = prepacker_.newest_;
  }
  if (old && old->marks == now->marks) {
    current_ = std::move(old);
    return;
  }
  std::vector<bool> changed(now->marks.size(), true);
  for (size_t i = 0; old && i < changed.size(); ++i) changed[i] = !(old->marks[i] == now->marks[i]);
  std::vector<bool> stale(prepacker_.values_.size());
  for (size_t k = 0; k < stale.size(); ++k) {
    const std::vector<bool>& origins = prepacker_.values_[k].origins;
    stale[k] = !old;
    for (size_t i = 0; i < changed.size(); ++i) stale[k] = stale[k] || (changed[i] && origins[i]);
  }
  prepacker_.select_steps(stale, steps_);
  now->chunks.resize(stale.size());
  for (size_t k = 0; k < stale.size(); ++k)
    now->chunks[k] =
        stale[k] ? Chunk::allocate(prepacker_.program_.device, prepacker_.values_[k].bytes) : old->chunks[k];
  current_ = std::move(now);
}

// The steps that make stale values, and what they need. A step makes all that it writes again.
void Program::Prepacker::select_steps(std::vector<bool>& stale, std::vector<bool>& steps) const {
  const std::vector<HoistedStep>& all = program_.hoisted;
  std::vector<int> index_of(static_cast<size_t>(program_.inputs_) + program_.values.size(), -1);
  for (size_t k = 0; k < values_.size(); ++k)
    index_of[static_cast<size_t>(values_[k].number)] = static_cast<int>(k);
  std::vector<bool> needed(index_of.size());
  for (size_t k = 0; k < stale.size(); ++k)
    if (stale[k]) needed[static_cast<size_t>(values_[k].number)] = true;
  steps.assign(all.size(), false);
  for (bool more = true; more;) {
    more = false;
    for (size_t t = all.size(); t-- > 0;) {
      if (steps[t] ||
          std::ranges::none_of(all[t].writes, [&](int v) { return needed[static_cast<size_t>(v)]; }))
        continue;
      steps[t] = more = true;
      for (const int v : all[t].writes) {
        needed[static_cast<size_t>(v)] = true;
        if (const int k = index_of[static_cast<size_t>(v)]; k >= 0) stale[static_cast<size_t>(k)] = true;
      }
      for (const int v : all[t].reads)
        if (index_of[static_cast<size_t>(v)] < 0 && v >= program_.inputs_)
          needed[static_cast<size_t>(v)] = true;
    }
  }
}

void Program::Prepacker::Use::publish() {
  if (steps_.empty()) return;
  std::shared_ptr<const PrepackedValues> previous =
      current_;  // in the end the old one, which goes without the lock
  const std::lock_guard lock(prepacker_.guard_);
  prepacker_.newest_.swap(previous);
}

}  // namespace weft
