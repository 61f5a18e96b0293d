// random_fill.cpp: whole arrays of random numbers, from reserved positions of a random stream.
#include <array>
#include <cstring>

#include "engine/device_kind.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "program/archive.h"
#include "storage/random.h"
#include "tensor/operations.h"
#include "tensor/staging.h"

namespace weft {
namespace {

// fill(y, reservation, a, b); Number: the type of a and b.
template <auto fill, class Number>
class RandomFill final : public Kernel {
 public:
  void run(const Call& call) const override {
    const uint64_t* parameters = call.parameters;
    fill(call.operands[0], {parameters[0], parameters[1], parameters[2]}, load_as<Number>(parameters + 3),
         load_as<Number>(parameters + 4));
  }
};

class Permutation final : public Kernel {
 public:
  void run(const Call& call) const override {
    const uint64_t* parameters = call.parameters;
    if (call.operands[1].shape[0])
      permute_rows(call.operands[1], call.operands[0], {parameters[0], parameters[1], parameters[2]});
  }
};

// What Drawn takes: the reservation itself.
class Position final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View& words = call.operands[0];
    const std::array to{words.data, words.data + words.strides[0] * int64_t{sizeof(uint64_t)},
                        call.operands[1].data};
    const Device device = call.context.device;
    for (size_t k = 0; k < to.size(); ++k)
      if (DeviceBackend* const backend = hidden_memory_of(device))
        backend->copy_in(device.index, to[k], call.parameters + k, sizeof(uint64_t));
      else
        std::memcpy(to[k], call.parameters + k, sizeof(uint64_t));
  }
  bool reaches_devices() const override { return true; }
  bool enqueues() const override { return true; }
};

// On a device whose memory the host cannot touch, the host waits for the source.
class Drawn final : public Kernel {
 public:
  Drawn(Ref<Kernel> kernel, int inputs, int outputs, int parameters, int64_t offset)
      : kernel_(std::move(kernel)),
        inputs_(inputs),
        outputs_(outputs),
        parameters_(parameters),
        offset_(offset) {}

  void run(const Call& call) const override {
    const View *words = call.operands + inputs_, *position = words + 1;
    std::vector<uint64_t> values(call.parameters, call.parameters + parameters_);
    const auto word = [&](const View& x, int64_t k) {
      const char* const at = x.data + k * (x.ndim ? x.strides[0] : 0) * int64_t{sizeof(uint64_t)};
      return static_cast<uint64_t>(load_element(at, DType::int64, call.context.device).integer);
    };
    values[0] = word(*words, 0);
    values[1] = word(*words, 1);
    values[2] = word(*position, 0) + static_cast<uint64_t>(offset_);
    kernel_->run({without_source(call.operands).data(), values.data(), call.scratch, call.context});
  }
  size_t scratch_bytes(const View* operands) const override {
    return kernel_->scratch_bytes(without_source(operands).data());
  }
  int operand_count() const override { return inputs_ + 2 + outputs_; }
  bool wide() const override { return kernel_->wide(); }
  bool reaches_devices() const override { return kernel_->reaches_devices(); }

 private:
  std::vector<View> without_source(const View* operands) const {
    std::vector<View> rest(operands, operands + inputs_);
    const View* outputs = operands + inputs_ + 2;
    rest.insert(rest.end(), outputs, outputs + outputs_);
    return rest;
  }

  const Ref<Kernel> kernel_;
  const int inputs_, outputs_, parameters_;
  const int64_t offset_;
};

}  // namespace

Ref<Kernel> make_permutation() { return Ref<Kernel>(new Permutation); }

Ref<Kernel> make_position() { return Ref<Kernel>(new Position); }

Ref<Kernel> make_drawn(Ref<Kernel> kernel, int inputs, int outputs, int parameters, int64_t offset) {
  if (inputs < 0 || outputs < 0 || parameters < 3 || parameters > 64)
    throw std::invalid_argument(
        "drawn: takes a random kernel, whose first three parameters are a reservation");
  Writer recipe;
  recipe(std::string(kDrawn), kernel->recipe, inputs, outputs, parameters, offset);
  const bool has_recipe = !kernel->recipe.empty();
  Ref<Kernel> drawn(new Drawn(std::move(kernel), inputs, outputs, parameters, offset));
  if (has_recipe) drawn->recipe = std::move(recipe.bytes);
  return drawn;
}

Ref<Kernel> make_random_fill(Draw kind) {
  switch (kind) {
    case Draw::uniform:
      return Ref<Kernel>(new RandomFill<fill_uniform, double>);
    case Draw::normal:
      return Ref<Kernel>(new RandomFill<fill_normal, double>);
    case Draw::integers:
      return Ref<Kernel>(new RandomFill<fill_integers, int64_t>);
    case Draw::bits:
      break;
  }
  throw ValueError("random numbers: no kernel for bits");
}

}  // namespace weft
