#include <algorithm>
#include <array>
#include <bit>

#include "engine/error.h"
#include "kernels/element_checks.h"
#include "kernels/indexed_threads.h"
#include "program/thread_loop.h"
#include "storage/random.h"
#include "tensor/convert.h"

namespace weft {
namespace {

std::string text_of(int64_t value, DType dtype) {
  return dtype == DType::uint64 ? std::to_string(static_cast<uint64_t>(value)) : std::to_string(value);
}

bool is_empty(const View& x) { return std::find(x.shape, x.shape + x.ndim, 0) != x.shape + x.ndim; }

// The element `value` of an array of this type is refused.
struct IndexRule {
  std::string function;
  DType dtype;
  int dim;
  uint64_t size;
  void raise(const Found& first) const {
    throw IndexError(function + ": index " + text_of(first.value, dtype) + " is out of range for axis " +
                     std::to_string(dim) + " of size " + std::to_string(size));
  }
};

struct LabelRule {
  std::string function;
  DType dtype;
  int64_t classes, ignored;
  void raise(const Found& first) const {
    throw IndexError(function + ": target " + text_of(first.value, dtype) + " is none of the " +
                     std::to_string(classes) + " classes, nor ignore_index, " + std::to_string(ignored));
  }
};

// A number of a distribution is refused; value: the bits of a float64.
struct NumberRule {
  std::string fact;  // up to the number
  void raise(const Found& first) const {
    throw ValueError(fact + std::to_string(std::bit_cast<double>(first.value)));
  }
};

class IndexedThreads final : public Kernel {
 public:
  explicit IndexedThreads(IndexedForm form) : form_(std::move(form)) {}

  bool reaches_devices() const override { return true; }
  size_t late_checks() const override { return form_.find.size(); }
  bool enqueues() const override { return form_.find.empty(); }
  bool heeds_gate() const override { return true; }
  size_t scratch_bytes(const View*) const override { return kPlace * form_.find.size(); }

  void run(const Call& call) const override {
    const auto operand = [&](int k) -> const View& { return call.operands[k]; };
    std::vector<uint64_t> sizes;
    for (const IndexedForm::Check& check : form_.checks)
      sizes.push_back(static_cast<uint64_t>(operand(check.of).shape[check.dim]));
    // Of no elements none can be taken instead.
    const bool may_be_late = call.context.late && std::ranges::find(sizes, 0u) == sizes.end();
    for (size_t k = 0; k < form_.find.size(); ++k) check(call, k, sizes[k], may_be_late);
    if (form_.copy) {
      const View &x = operand(0), &y = operand(form_.operands.back().operand);
      const std::array both{x, y};
      if (x.data != y.data) form_.copy->run({both.data(), nullptr, nullptr, call.context});
    }
    run_loop(call, sizes);
  }

 private:
  void check(const Call& call, size_t k, uint64_t size, bool may_be_late) const {
    const IndexedForm::Check& check = form_.checks[k];
    const View& indices = call.operands[check.indices];
    if (is_empty(indices)) return;
    const Check one(call, k, may_be_late);
    one.look(*form_.find[k], {indices}, {size});
    one.settle(IndexRule{form_.function, indices.dtype, check.dim, size});
  }

  // The operands as the loops see them: broadcast along those that only choose elements of theirs.
  void run_loop(const Call& call, const std::vector<uint64_t>& sizes) const {
    const size_t loops = form_.loops.size(), count = form_.operands.size();
    std::vector<int64_t> shapes(count * loops, 1), strides(count * loops, 0);
    std::vector<View> views;
    std::vector<uint64_t> words;
    for (size_t k = 0; k < count; ++k) {
      const IndexedForm::Operand& way = form_.operands[k];
      const View& x = call.operands[way.operand];
      for (size_t d = 0; d < loops; ++d) {
        if (way.dims[d] < 0) continue;
        const auto [of, dim] = form_.loops[d];
        shapes[k * loops + d] = call.operands[of].shape[dim];
        strides[k * loops + d] = x.strides[way.dims[d]];
      }
      views.push_back(
          {x.data, x.dtype, static_cast<int>(loops), shapes.data() + k * loops, strides.data() + k * loops});
      for (const int dim : way.gathered)
        words.push_back(static_cast<uint64_t>(x.strides[dim] * static_cast<int64_t>(size_of(x.dtype))));
    }
    static_cast<const ThreadLoop&>(*form_.loop)
        .run({views.data(), sizes.data(), nullptr, call.context}, words);
  }

  const IndexedForm form_;
};

class CheckedLabels final : public Kernel {
 public:
  CheckedLabels(std::string function, Ref<Kernel> find, Ref<Kernel> copy)
      : function_(std::move(function)), find_(std::move(find)), copy_(std::move(copy)) {}

  bool reaches_devices() const override { return true; }
  size_t late_checks() const override { return 1; }
  size_t scratch_bytes(const View*) const override { return kPlace; }

  void run(const Call& call) const override {
    const View& labels = call.operands[0];
    const auto classes = load_as<int64_t>(call.parameters), ignored = load_as<int64_t>(call.parameters + 1);
    const Check one(call, 0, call.context.late && classes > 0);  // of no classes none can be taken instead
    one.look(*find_, {labels}, {call.parameters[0], call.parameters[1]});
    one.settle(LabelRule{function_, labels.dtype, classes, ignored});
    copy_->run({call.operands, call.parameters, nullptr, call.context});
  }

 private:
  const std::string function_;
  const Ref<Kernel> find_, copy_;
};

class CheckedNumbers final : public Kernel {
 public:
  CheckedNumbers(std::vector<NumberCheck> checks, Ref<Kernel> loop)
      : checks_(std::move(checks)), loop_(std::move(loop)) {}

  bool reaches_devices() const override { return true; }
  size_t late_checks() const override { return checks_.size(); }
  size_t scratch_bytes(const View*) const override { return kPlace * checks_.size(); }

  void run(const Call& call) const override {
    for (size_t k = 0; k < checks_.size(); ++k) {
      const View& x = call.operands[checks_[k].operand];
      if (is_empty(x)) continue;
      const Check one(call, k, call.context.late != nullptr);
      one.look(*checks_[k].find, {x}, {});
      one.settle(NumberRule{checks_[k].fact});
    }
    loop_->run({call.operands, call.parameters, nullptr, call.context});
  }

 private:
  const std::vector<NumberCheck> checks_;
  const Ref<Kernel> loop_;
};

// Rows are computed whatever they have; of refused numbers no draws are made.
class MultinomialThreads final : public Kernel {
 public:
  MultinomialThreads(std::vector<NumberCheck> checks, Ref<Kernel> without, Ref<Kernel> rows)
      : checks_(std::move(checks)), without_(std::move(without)), rows_(std::move(rows)) {}

  int operand_count() const override { return 4; }
  bool reaches_devices() const override { return true; }
  size_t late_checks() const override { return checks_.size() + 1; }
  size_t scratch_bytes(const View* operands) const override {
    size_t bytes = sizeof(double);
    for (int d = 0; d < operands[1].ndim; ++d) bytes *= static_cast<size_t>(operands[1].shape[d]);
    return kPlace * late_checks() + bytes;
  }

  void run(const Call& call) const override {
    const View &trials = call.operands[0], &p = call.operands[1];
    if (is_empty(p)) return;
    const bool may_be_late = call.context.late != nullptr;
    for (size_t k = 0; k < checks_.size(); ++k) {
      const Check one(call, k, may_be_late);
      one.look(*checks_[k].find, {call.operands[checks_[k].operand]}, {});
      one.settle(NumberRule{checks_[k].fact});
    }
    int64_t steps[kMaxDims];
    row_major({p.shape, static_cast<size_t>(p.ndim)}, steps);
    const View sums{call.scratch + kPlace * late_checks(), DType::float64, p.ndim, p.shape, steps};
    const std::array operands{trials, p, call.operands[2], sums, call.operands[3]};
    rows_->run({operands.data(), nullptr, nullptr, call.context});
    const Check empty(call, checks_.size(), may_be_late);
    empty.look(*without_, {trials, {sums.data, sums.dtype, trials.ndim, trials.shape, steps}}, {});
    empty.settle(NumberRule{"multinomial: all chances of a row are 0, and its trials are "});
  }

 private:
  const std::vector<NumberCheck> checks_;
  const Ref<Kernel> without_, rows_;
};

// The host draws the order, since each step of Fisher and Yates needs the one before.
class PermutedThreads final : public Kernel {
 public:
  explicit PermutedThreads(Ref<Kernel> gather) : gather_(std::move(gather)) {}

  int operand_count() const override { return 2; }
  bool reaches_devices() const override { return true; }
  size_t scratch_bytes(const View* operands) const override {
    return sizeof(int64_t) * static_cast<size_t>(operands[0].shape[0]);
  }

  void run(const Call& call) const override {
    const View& x = call.operands[0];
    const int64_t count = x.shape[0], step = 1;
    if (count == 0) return;
    const std::vector<int64_t> order =
        permutation(count, {call.parameters[0], call.parameters[1], call.parameters[2]});
    const Device device = call.context.device;
    backend_of(device.kind)
        ->copy_in(device.index, call.scratch, order.data(), order.size() * sizeof(int64_t));
    const std::array operands{x, View{call.scratch, DType::int64, 1, &count, &step}, call.operands[1]};
    gather_->run({operands.data(), nullptr, nullptr, call.context});
  }

 private:
  const Ref<Kernel> gather_;
};

}  // namespace

Ref<Kernel> make_permuted_threads(Ref<Kernel> gather) {
  return Ref<Kernel>(new PermutedThreads(std::move(gather)));
}

Ref<Kernel> make_checked_numbers(std::vector<NumberCheck> checks, Ref<Kernel> loop) {
  return Ref<Kernel>(new CheckedNumbers(std::move(checks), std::move(loop)));
}

Ref<Kernel> make_multinomial_threads(std::vector<NumberCheck> checks, Ref<Kernel> without, Ref<Kernel> rows) {
  return Ref<Kernel>(new MultinomialThreads(std::move(checks), std::move(without), std::move(rows)));
}

Ref<Kernel> make_indexed_threads(IndexedForm form) {
  return Ref<Kernel>(new IndexedThreads(std::move(form)));
}

Ref<Kernel> make_checked_labels(std::string function, Ref<Kernel> find, Ref<Kernel> copy) {
  return Ref<Kernel>(new CheckedLabels(std::move(function), std::move(find), std::move(copy)));
}

}  // namespace weft
