#include <algorithm>
#include <array>

#include "engine/device_kind.h"
#include "engine/error.h"
#include "kernels/indexed_threads.h"
#include "program/thread_loop.h"
#include "tensor/convert.h"
#include "tensor/staging.h"

namespace weft {
namespace {

constexpr size_t kPlace = 64;  // bytes of scratch for the place of each check

// The element of this place in row-major order.
const char* element_at(const View& x, int64_t place) noexcept {
  const char* at = x.data;
  for (int d = x.ndim; d-- > 0; place /= x.shape[d])
    at += place % x.shape[d] * x.strides[d] * static_cast<int64_t>(size_of(x.dtype));
  return at;
}

std::string text_of(Scalar value) {
  return value.kind == Scalar::Kind::unsigned_integer ? std::to_string(value.unsigned_integer)
                                                      : std::to_string(value.integer);
}

// Finds the first element that a check refuses, and what one says of it.
class Places {
 public:
  Places(const Call& call) : call_(call) {}

  void look(const Kernel& find, const View& x, const uint64_t* parameters) {
    const View place{call_.scratch + kPlace * count_++, DType::int64, 0, nullptr, nullptr};
    const std::array operands{x, place};
    find.run({operands.data(), parameters, nullptr, call_.context});
  }
  // The element that check k has found; null: none.
  const char* found(size_t k, const View& x) {
    const Device device = call_.context.device;
    const int64_t place = load_element(call_.scratch + kPlace * k, DType::int64, device).integer;
    return place < 0 ? nullptr : element_at(x, place);
  }

 private:
  const Call& call_;
  size_t count_ = 0;
};

class IndexedThreads final : public Kernel {
 public:
  explicit IndexedThreads(IndexedForm form) : form_(std::move(form)) {}

  bool reaches_devices() const override { return true; }
  size_t scratch_bytes(const View*) const override { return kPlace * form_.checks.size(); }

  void run(const Call& call) const override {
    const auto operand = [&](int k) -> const View& { return call.operands[k]; };
    std::vector<uint64_t> sizes;
    for (const IndexedForm::Check& check : form_.checks)
      sizes.push_back(static_cast<uint64_t>(operand(check.of).shape[check.dim]));
    Places places(call);
    for (size_t k = 0; k < sizes.size(); ++k)
      places.look(*form_.find[k], operand(form_.checks[k].indices), &sizes[k]);
    for (size_t k = 0; k < sizes.size(); ++k) {
      const IndexedForm::Check& check = form_.checks[k];
      const View& indices = operand(check.indices);
      if (const char* at = places.found(k, indices))
        throw IndexError(form_.function + ": index " +
                         text_of(load_element(at, indices.dtype, call.context.device)) +
                         " is out of range for axis " + std::to_string(check.dim) + " of size " +
                         std::to_string(sizes[k]));
    }
    if (form_.copy) {
      const View &x = operand(0), &y = operand(form_.operands.back().operand);
      const std::array both{x, y};
      if (x.data != y.data) form_.copy->run({both.data(), nullptr, nullptr, call.context});
    }
    run_loop(call, sizes);
  }

 private:
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
  size_t scratch_bytes(const View*) const override { return kPlace; }

  void run(const Call& call) const override {
    const View& labels = call.operands[0];
    Places places(call);
    places.look(*find_, labels, call.parameters);
    if (const char* at = places.found(0, labels))
      throw IndexError(function_ + ": target " +
                       text_of(load_element(at, labels.dtype, call.context.device)) + " is none of the " +
                       std::to_string(load_as<int64_t>(call.parameters)) + " classes, nor ignore_index, " +
                       std::to_string(load_as<int64_t>(call.parameters + 1)));
    copy_->run({call.operands, nullptr, nullptr, call.context});
  }

 private:
  const std::string function_;
  const Ref<Kernel> find_, copy_;
};

}  // namespace

Ref<Kernel> make_indexed_threads(IndexedForm form) {
  return Ref<Kernel>(new IndexedThreads(std::move(form)));
}

Ref<Kernel> make_checked_labels(std::string function, Ref<Kernel> find, Ref<Kernel> copy) {
  return Ref<Kernel>(new CheckedLabels(std::move(function), std::move(find), std::move(copy)));
}

}  // namespace weft
