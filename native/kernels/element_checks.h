// element_checks.h: checks of elements on a GPU, whose first failure is read later where that may be
// (late_checks.h).
//
// Code stores which element is refused and what it is (Found) where the operation has its findings, or in
// scratch. `settle` notes a check of it; where none may be noted, the host waits and raises at once. A rule
// has `void raise(const Found& first) const`, which throws.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/device_kind.h"
#include "engine/error.h"
#include "engine/late_checks.h"
#include "program/kernel.h"

namespace weft {

constexpr size_t kPlace = 64;  // bytes of scratch for what each check finds

// What code finds of the elements that it checks.
struct Found {
  int64_t place;  // in row-major order, of the first one that is refused; -1: none is
  int64_t value;  // of that one
};
static_assert(sizeof(Found) <= Findings::kBytes);

template <class Rule>
class ElementCheck final : public LateCheck {
 public:
  // Null: there is no room for one more.
  static Ref<LateCheck> note(Device device, const char* found, const Rule& rule) {
    const void* fetched = backend_of(device.kind)->fetch_later(device.index, found, sizeof(Found));
    return fetched ? Ref<LateCheck>(new ElementCheck(device, fetched, rule)) : Ref<LateCheck>();
  }
  ~ElementCheck() override { backend_of(device_.kind)->forget(device_.index, fetched_); }
  bool add_findings(std::vector<const void*>& places) const override {
    if (backend_of(device_.kind)->context_number(device_.index) != context_) return false;
    if (std::ranges::find(places, fetched_) == places.end()) places.push_back(fetched_);
    return true;
  }

 private:
  ElementCheck(Device device, const void* fetched, const Rule& rule)
      : device_(device),
        fetched_(static_cast<const Found*>(fetched)),
        context_(backend_of(device.kind)->context_number(device.index)),
        rule_(rule) {}
  void read() override {
    if (backend_of(device_.kind)->context_number(device_.index) != context_)
      throw DeviceError("it is not known whether it failed, since " + to_string(device_) + " was reset");
    if (fetched_->place >= 0) rule_.raise(*fetched_);
  }

  const Device device_;
  const Found* const fetched_;
  const uint32_t context_;
  const Rule rule_;
};

// Check k of a call, and where its code stores what it finds.
class Check {
 public:
  Check(const Call& call, size_t k, bool may_be_late)
      : context_(call.context), findings_(may_be_late ? context_.findings : nullptr) {
    found_ = findings_ ? findings_->next() : nullptr;
    is_late_ = may_be_late && (!findings_ || found_);
    if (!found_) found_ = call.scratch + kPlace * k;
  }

  // Enqueues the check of x, and of others of its shape, whatever earlier checks have found; parameters: of
  // its code, before the sizes.
  void look(const Kernel& find, std::vector<View> x, std::vector<uint64_t> parameters) const {
    const View& first = x.front();
    for (int d = 0; d < first.ndim; ++d) parameters.push_back(static_cast<uint64_t>(first.shape[d]));
    std::vector<View> operands = std::move(x);
    operands.push_back({found_, DType::int64, 0, nullptr, nullptr});
    operands.push_back({found_ + sizeof(int64_t), DType::int64, 0, nullptr, nullptr});
    RunContext context = context_;
    context.is_gated = false;
    find.run({operands.data(), parameters.data(), nullptr, context});
  }

  // Raises the rule's error if an element was found, later where that may be.
  template <class Rule>
  void settle(const Rule& rule) const {
    const Device device = context_.device;
    if (is_late_)
      if (Ref<LateCheck> late = ElementCheck<Rule>::note(device, found_, rule)) {
        if (findings_) ++findings_->count;
        return context_.late->push_back(std::move(late));
      }
    Found first;
    backend_of(device.kind)->copy_out(device.index, &first, found_, sizeof first);
    if (first.place >= 0) rule.raise(first);
  }

 private:
  const RunContext& context_;
  Findings* const findings_;
  char* found_;
  bool is_late_;
};

}  // namespace weft
