// call_key.h: which plan a call of an operator asks for: the words of its key, and the search by them.
//
// A plan is for a scope of calls (weft/arrays/planning.py). One for `aligned` calls is for all sizes
// where operands agree in each dimension or have 1 there; one for `extents` for all sizes of a pattern: which
// are 0 or 1, and which are equal; one for `exact` sizes and strides for these alone. The widest scope that
// has a plan is taken: where a rule has to know more, the table says so with a null plan.
#pragma once

#include <stdexcept>

#include "calls/plan_table.h"
#include "calls/tracked.h"

namespace weft {

enum class Scope : uint8_t { aligned, extents, exact };

class CallKey {
 public:
  // variant: the number of its static attributes.
  CallKey(size_t variant, bool records, size_t operands) {
    if (2 + operands > kWords) [[unlikely]]
      make_room(2 + operands);
    key_[0] = variant | static_cast<uint64_t>(records) << 32 | static_cast<uint64_t>(operands) << 33;
    key_[1] = 0;
  }
  CallKey(const CallKey&) = delete;

  // The operands, in order.
  void add_missing() noexcept { key_[length_++] = 0; }
  void add_number(Scalar::Kind kind) noexcept { key_[length_++] = 2 | static_cast<uint64_t>(kind) << 2; }
  void add_array(const Tensor& x) noexcept {
    uint64_t ones = 0;
    dims_ += static_cast<size_t>(x.ndim);
    for (; rank_ < x.ndim; ++rank_) space_[rank_] = 1;
    for (int d = 0; d < x.ndim; ++d) {
      const int64_t size = x.shape[x.ndim - 1 - d];
      if (size == 1)
        ones |= uint64_t{1} << d;
      else if (space_[d] == 1)
        space_[d] = size;
      else
        is_aligned_ &= space_[d] == size;
    }
    static_assert(2 + kTypeBits + kMaxDims <= 64);
    key_[length_++] = 1 | type_key(x, x.device()) << 2 | ones << (2 + kTypeBits);
  }
  // Attributes given at run time, in order: None, or a number.
  void add_none() noexcept { key_[1] *= 8; }
  void add_runtime(Scalar::Kind kind) noexcept { key_[1] = key_[1] * 8 + 1 + static_cast<uint64_t>(kind); }

  bool is_aligned() const noexcept { return is_aligned_; }
  // The key for a scope, once all operands are added; empty: this scope has none for such arrays.
  std::span<const uint64_t> of(Scope scope, std::span<const Tracked* const> arrays);

 private:
  static constexpr size_t kWords = 64;
  void make_room(size_t words);

  uint64_t few_[kWords];
  std::vector<uint64_t> many_;
  uint64_t* key_ = few_;
  size_t length_ = 2;
  size_t dims_ = 0;          // of all arrays together
  int64_t space_[kMaxDims];  // that the arrays fill when they are broadcast, the last dimension first
  int rank_ = 0;
  bool is_aligned_ = true;
};

// Whether a plan for all sizes of a pattern is for these, too. For those of which nothing is left, such as
// images smaller than a window, the planner is asked with the numbers: it reports what is wrong with them.
bool fits(const Plan& plan, std::span<const Tracked* const> arrays);

// Raises DTypeError where x op= y would lose the fraction, or the sign: the result of an operator, of a type
// or a program's first one, is written to a tensor.
void check_fits_in_place(const std::string& name, DType result, const Tensor& into);
void check_fits_in_place(const std::string& name, const Program& program, const Tensor& into);

// The plan of a call. ask(scope): the planner's, null if it has to know more; it may throw, and it may run
// other calls. is_stale(): whether the key means something else since then, so that nothing is kept.
template <class Ask, class IsStale>
Ref<Plan> find_plan(PlanTable& plans, CallKey& key, std::span<const Tracked* const> arrays, const Ask& ask,
                    const IsStale& is_stale) {
  std::vector<PlanKey> refused;  // what asked for more this time
  for (Scope scope = key.is_aligned() ? Scope::aligned : Scope::extents;;
       scope = static_cast<Scope>(static_cast<int>(scope) + 1)) {
    if (scope > Scope::exact) throw std::logic_error("the planner made no plan for exact sizes");
    const std::span<const uint64_t> words = key.of(scope, arrays);
    if (words.empty()) continue;
    if (const Ref<Plan>* cached = plans.find(words)) {
      if (*cached && (scope != Scope::extents || fits(**cached, arrays))) return *cached;
      continue;
    }
    const Ref<Plan> plan = ask(scope);
    const bool is_for_these = plan && (scope != Scope::extents || fits(*plan, arrays));
    if (is_stale()) {
      if (is_for_these) return plan;
    } else if (!plan) {
      refused.emplace_back(words.begin(), words.end());
    } else {
      // Now that the call is known to be right:
      if (is_for_these)
        for (const PlanKey& pattern : refused) plans.add(pattern, {});
      plans.add(words, plan);
      if (is_for_these) return plan;
    }
  }
}

}  // namespace weft
