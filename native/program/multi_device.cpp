// multi_device.cpp: programs of several devices: a program for each piece, ordered by the engine.
#include <algorithm>

#include "program/program.h"
#include "storage/runtime.h"

namespace weft {
namespace {

// The elements as they are now, in memory of their own with the strides of x.
Tensor snapshot(const Tensor& x) {
  const auto [begin, end] = addresses_of(x.view());
  const auto bytes = static_cast<int64_t>(end - begin);
  const Tensor copy = Tensor::empty({&bytes, 1}, DType::uint8, x.device());
  Tensor row = x;
  row.data -= reinterpret_cast<uintptr_t>(x.data) - begin;
  row.dtype = DType::uint8;
  row.ndim = 1;
  row.size = row.shape[0] = bytes;
  row.strides[0] = 1;
  push_copy(copy, row);
  Tensor y = x;
  y.chunk = copy.chunk;
  y.data = copy.data + (x.data - row.data);
  return y;
}

}  // namespace

void Program::finish_parts() {
  wires_ = static_cast<size_t>(inputs_);
  for (const Part& part : parts)
    for (const int number : part.numbers)
      numbers_taken_ = std::max(numbers_taken_, static_cast<size_t>(number) + 1);
  constant_registers_.resize(static_cast<size_t>(registers) + 1);
  compute_registers({}, constant_registers_.data());
  std::vector<int> written_inputs;
  for (const Part& part : parts) {
    for (const int wire : part.outputs) wires_ = std::max(wires_, static_cast<size_t>(wire) + 1);
    for (size_t k = 0; k < part.inputs.size(); ++k) {
      if (part.inputs[k] >= inputs_ || part.program->uses[k] != Use::data) continue;
      for (const int before : written_inputs) hazards_.emplace_back(before, part.inputs[k]);
    }
    for (const Output& output : part.program->outputs)
      if (output.writes >= 0) written_inputs.push_back(part.inputs[static_cast<size_t>(output.writes)]);
  }
  std::ranges::sort(hazards_);
  hazards_.erase(std::ranges::unique(hazards_).begin(), hazards_.end());
}

void Program::launch_parts(std::span<const Tensor* const> inputs, std::span<const Scalar> numbers,
                           std::span<const Tensor* const> destinations, Tensor* const* results) const {
  for (const Output& output : outputs)
    if (output.writes >= 0) check_writable(*inputs[static_cast<size_t>(output.writes)], name.c_str());
  std::vector<Tensor> buffers(wires_);
  std::vector<const Tensor*> wires(wires_);
  std::ranges::copy(inputs, wires.begin());
  for (size_t k = inputs.size(); k < wires_; ++k) wires[k] = &buffers[k];
  // A part reads what inputs were before the program; one that was written before it runs is kept for it.
  for (const auto& [written, read] : hazards_) {
    const auto from = static_cast<size_t>(read);
    if (wires[from] != inputs[from]) continue;
    if (!may_overlap(inputs[static_cast<size_t>(written)]->view(), inputs[from]->view())) continue;
    buffers[from] = snapshot(*inputs[from]);
    wires[from] = &buffers[from];
  }
  std::vector<const Tensor*> part_inputs;
  std::vector<Scalar> values;
  std::vector<Tensor*> part_outputs;
  for (const Part& part : parts) {
    part_inputs.clear();
    values.clear();
    part_outputs.clear();
    for (const int wire : part.inputs) part_inputs.push_back(wires[static_cast<size_t>(wire)]);
    for (const Output& output : part.program->outputs)  // where it writes is the array itself
      if (const auto k = static_cast<size_t>(output.writes); output.writes >= 0)
        part_inputs[k] = inputs[static_cast<size_t>(part.inputs[k])];
    for (const int number : part.numbers) values.push_back(numbers[static_cast<size_t>(number)]);
    for (const int wire : part.outputs) part_outputs.push_back(&buffers[static_cast<size_t>(wire)]);
    part.program->launch(part_inputs, values, {}, part_outputs.data());
  }
  for (size_t j = 0; j < outputs.size(); ++j) {
    *results[j] = buffers[static_cast<size_t>(output_wires[j])];
    if (j >= destinations.size() || !destinations[j]) continue;
    push_copy(*destinations[j], *results[j]);
    *results[j] = *destinations[j];
  }
}

}  // namespace weft
