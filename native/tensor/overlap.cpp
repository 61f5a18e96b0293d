// overlap.cpp: do arrays share memory? Extents decide nearly always. Where they meet, whether two elements do
// is a bounded linear Diophantine problem, which is hard in general and easy for the strides that views have;
// the search is given a budget, and "perhaps" counts as yes. (NumPy's shares_memory solves the same problem.)
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tensor/kernels.h"

namespace weft {
namespace {

constexpr int kBudget = 500;  // steps of the search: some microseconds

// Addresses of a view's elements: low + sum of step_i * x_i with 0 <= x_i <= most_i.
struct Term {
  int64_t step, most;  // bytes; indices
};

struct Extent {
  uintptr_t low, high;  // of the first bytes of the lowest and the highest element
  int64_t size;
  bool empty = false;
};

Extent extent_of(const View& view) noexcept {
  Extent extent{reinterpret_cast<uintptr_t>(view.data), reinterpret_cast<uintptr_t>(view.data),
                static_cast<int64_t>(size_of(view.dtype))};
  for (int d = 0; d < view.ndim; ++d) {
    if (view.shape[d] == 0) extent.empty = true;
    const int64_t reach = (view.shape[d] - 1) * view.strides[d] * extent.size;
    (reach < 0 ? extent.low : extent.high) += static_cast<uintptr_t>(reach);
  }
  return extent;
}

class Search {
 public:
  void add(const View& view) noexcept {
    for (int d = 0; d < view.ndim; ++d) {
      const Term term{std::abs(view.strides[d]) * static_cast<int64_t>(size_of(view.dtype)),
                      view.shape[d] - 1};
      if (term.step == 0 || term.most == 0) continue;
      Term* const same =
          std::find_if(terms_, terms_ + count_, [&](const Term& other) { return other.step == term.step; });
      if (same != terms_ + count_) {
        same->most += term.most;
      } else {
        terms_[count_++] = term;
      }
    }
  }

  // Is a sum of the terms in [low, high]? True also when it cannot be decided in time.
  bool reaches(int64_t low, int64_t high) noexcept {
    std::sort(terms_, terms_ + count_, [](const Term& a, const Term& b) { return a.step > b.step; });
    for (int i = count_; i-- > 0;) {
      largest_[i] = largest_[i + 1] + terms_[i].step * terms_[i].most;
      divisor_[i] = std::gcd(divisor_[i + 1], terms_[i].step);
    }
    return reaches(0, low, high);
  }

 private:
  bool reaches(int i, int64_t low, int64_t high) noexcept {
    if (low <= 0 && high >= 0) return true;
    low = std::max<int64_t>(low, 0);
    high = std::min(high, largest_[i]);
    if (low > high) return false;
    // Sums are multiples of the greatest common divisor; i < count_ here, as largest_[count_] is 0.
    if (high / divisor_[i] * divisor_[i] < low) return false;
    if (--budget_ < 0) return true;
    const auto [step, most] = terms_[i];
    const int64_t lacking = low - largest_[i + 1];  // by the terms that follow
    const int64_t first = lacking <= 0 ? 0 : (lacking + step - 1) / step;
    for (int64_t x = std::min(most, high / step); x >= first; --x)
      if (reaches(i + 1, low - x * step, high - x * step)) return true;
    return false;
  }

  int count_ = 0, budget_ = kBudget;
  Term terms_[2 * kMaxDims];
  int64_t largest_[2 * kMaxDims + 1] = {}, divisor_[2 * kMaxDims + 1] = {};
};

}  // namespace

bool may_overlap(const View& a, const View& b) noexcept {
  const Extent x = extent_of(a), y = extent_of(b);
  if (x.empty || y.empty) return false;
  if (x.high + static_cast<uintptr_t>(x.size) <= y.low || y.high + static_cast<uintptr_t>(y.size) <= x.low)
    return false;
  // With a's address low_a + s and b's high_b - t, where s and t are sums: they meet if
  // -size_a < low_a + s - (high_b - t) < size_b.
  Search search;
  search.add(a);
  search.add(b);
  const auto distance = static_cast<int64_t>(y.high - x.low);
  return search.reaches(distance - x.size + 1, distance + y.size - 1);
}

std::pair<uintptr_t, uintptr_t> addresses_of(const View& view) noexcept {
  const Extent x = extent_of(view);
  if (x.empty) return {0, 0};
  return {x.low, x.high + static_cast<uintptr_t>(x.size)};
}

bool may_overlap_itself(const View& view) noexcept {
  Term terms[kMaxDims];
  int count = 0;
  for (int d = 0; d < view.ndim; ++d) {
    if (view.shape[d] == 0) return false;
    if (view.shape[d] > 1) terms[count++] = {std::abs(view.strides[d]), view.shape[d] - 1};
  }
  std::sort(terms, terms + count, [](const Term& a, const Term& b) { return a.step < b.step; });
  int64_t reach = 0;  // of the dimensions before
  for (int i = 0; i < count; ++i) {
    if (terms[i].step <= reach) return true;
    reach += terms[i].step * terms[i].most;
  }
  return false;
}

}  // namespace weft
