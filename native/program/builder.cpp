#include "program/builder.h"

#include <algorithm>

#include "engine/device_kind.h"

namespace weft {
namespace {

template <class T>
struct Word {
  std::string_view word;
  T meaning;
};

template <class T, size_t N>
T meaning_of(std::string_view word, const char* what, const Word<T> (&words)[N]) {
  for (const Word<T>& each : words)
    if (each.word == word) return each.meaning;
  std::string text = std::string(what) + " cannot be '";
  text += word;
  text += "'; accepted are";
  for (size_t k = 0; k < N; ++k) {
    text += k ? ", " : " ";
    text += words[k].word;
  }
  throw ValueError(text);
}

using From = Program::Load::From;
constexpr Word<From> kLoads[] = {{"size", From::size}, {"extent", From::extent}, {"stride", From::stride}};
using What = Program::Compute::What;
constexpr Word<What> kComputes[] = {
    {"add", What::add}, {"sub", What::sub}, {"mul", What::mul}, {"div", What::div}};
constexpr Word<Draw> kDraws[] = {
    {"uniform", Draw::uniform}, {"normal", Draw::normal}, {"integers", Draw::integers}, {"bits", Draw::bits}};

}  // namespace

Draw draw_of(std::string_view word) { return meaning_of(word, "a draw", kDraws); }
const char* word_of(Draw kind) noexcept {
  return std::ranges::find(kDraws, kind, &Word<Draw>::meaning)->word.data();
}

ProgramBuilder::ProgramBuilder(std::string name, Device device, int inputs, Options options)
    : program_(make_ref<Program>()) {
  constexpr int kMost = 1 << 24;
  if (inputs < 0 || inputs > kMost)
    throw ValueError("ProgramBuilder: " + name + ": " + std::to_string(inputs) + " inputs");
  program_->name = std::move(name);
  program_->device = device;
  program_->uses.resize(static_cast<size_t>(inputs));
  program_->exact = options.is_exact;
  program_->wide = options.is_wide;
  program_->is_copy = options.is_copy;
  program_->check = options.is_checked;
}

Program& ProgramBuilder::program() {
  if (!program_) throw ValueError("ProgramBuilder: its program has been made");
  return *program_;
}

void ProgramBuilder::use(int input, int how) {
  std::vector<Program::Use>& uses = program().uses;
  if (input < 0 || static_cast<size_t>(input) >= uses.size() || how < 0 ||
      how > static_cast<int>(Program::Use::data))
    throw ValueError("ProgramBuilder: " + program().name + ": use " + std::to_string(how) + " of input " +
                     std::to_string(input) + ", of " + std::to_string(uses.size()));
  Program::Use& current = uses[static_cast<size_t>(input)];
  current = std::max(current, static_cast<Program::Use>(how));
}

void ProgramBuilder::add_input(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides) {
  program().planned_inputs.push_back({dtype, std::move(shape), std::move(strides)});
}

void ProgramBuilder::name_register(int reg) {
  constexpr int kMost = 1 << 24;
  if (reg < 0 || reg >= kMost)
    throw ValueError("ProgramBuilder: " + program_->name + ": register " + std::to_string(reg));
  program_->registers = std::max(program_->registers, reg + 1);
}

void ProgramBuilder::add_constant(int reg, int64_t value) {
  program().constants.emplace_back(reg, value);
  name_register(reg);
}

void ProgramBuilder::add_load(std::string_view from, int reg, int input, int dimension) {
  program().loads.push_back({meaning_of(from, "a load", kLoads), reg, input, dimension});
  name_register(reg);
}

void ProgramBuilder::add_compute(std::string_view what, int reg, int a, int b) {
  program().computes.push_back({meaning_of(what, "a computation", kComputes), reg, a, b});
  name_register(reg);
}

int ProgramBuilder::add_value(Program::Value value) {
  Program& p = program();
  value.device = p.device;
  p.values.push_back(std::move(value));
  return static_cast<int>(p.uses.size() + p.values.size()) - 1;
}

using Kind = Program::Value::Kind;

int ProgramBuilder::add_output(DType dtype, int like, std::vector<int> sizes, std::vector<int> strides) {
  return add_value({Kind::output, dtype, -1, -1, like, std::move(sizes), std::move(strides)});
}
int ProgramBuilder::add_temporary(DType dtype, int offset, std::vector<int> sizes, std::vector<int> strides) {
  return add_value({Kind::temporary, dtype, -1, offset, -1, std::move(sizes), std::move(strides)});
}
int ProgramBuilder::add_kept(DType dtype, std::vector<int> sizes, std::vector<int> strides) {
  return add_value({Kind::prepacked, dtype, -1, -1, -1, std::move(sizes), std::move(strides)});
}
int ProgramBuilder::add_view(DType dtype, int base, int offset, std::vector<int> sizes,
                             std::vector<int> strides) {
  return add_value({Kind::view, dtype, base, offset, -1, std::move(sizes), std::move(strides)});
}

void ProgramBuilder::add_result(int value, int into, bool is_flexible, bool commits) {
  program().outputs.push_back({value, into, is_flexible, commits});
}

void ProgramBuilder::add_number(DType dtype, int number) {
  program().slots.push_back({Program::Slot::From::number, dtype, number});
}
void ProgramBuilder::add_register(DType dtype, int reg) {
  program().slots.push_back({Program::Slot::From::reg, dtype, reg});
}
void ProgramBuilder::add_number_known(DType dtype, double value) {
  program().slots.push_back({Program::Slot::From::constant, dtype, 0, value});
}
void ProgramBuilder::add_random_word(DType dtype) {
  program().slots.push_back({Program::Slot::From::random, dtype, 0});
}
void ProgramBuilder::add_draw(std::string_view kind, DType dtype, int count, int first_slot) {
  program().randoms.push_back({draw_of(kind), dtype, count, first_slot});
}

void ProgramBuilder::add_step(Ref<Kernel> kernel, std::vector<int> operands, int first_slot, std::string name,
                              std::string where, std::vector<std::pair<int, int>> in_place,
                              std::vector<int> written, bool is_copy) {
  if (hidden_memory_of(program().device) && !kernel->reaches_devices())
    throw DeviceError(name + ": there is no kernel for " + to_string(program().device) +
                      " yet; x.to_device(\"cpu\") first");
  program().wide |= kernel->wide();
  program_->steps.push_back({std::move(kernel), std::move(operands), first_slot, std::move(name),
                             std::move(where), std::move(in_place), std::move(written), is_copy});
}

void ProgramBuilder::add_hoisted(std::vector<int> reads, std::vector<int> writes) {
  program().hoisted.push_back({std::move(reads), std::move(writes)});
}
void ProgramBuilder::set_arena(int reg) { program().arena_bytes = reg; }
void ProgramBuilder::add_span(int first, int last, int64_t offset, int64_t bytes) {
  program().spans.push_back({first, last, offset, bytes});
}

void ProgramBuilder::add_part(Ref<const Program> part, std::vector<int> inputs, std::vector<int> numbers,
                              std::vector<int> outputs) {
  program().parts.push_back({std::move(part), std::move(inputs), std::move(numbers), std::move(outputs)});
}

int ProgramBuilder::new_constant(int64_t value) {
  const int reg = program().registers;
  add_constant(reg, value);
  return reg;
}

void ProgramBuilder::add_wire(int wire, int into, DType dtype, Device device,
                              const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  std::vector<int> sizes, steps;
  for (const int64_t size : shape) sizes.push_back(new_constant(size));
  for (const int64_t stride : strides) steps.push_back(new_constant(stride));
  add_result(add_output(dtype, -1, std::move(sizes), std::move(steps)), into, false, false);
  program_->values.back().device = device;
  program_->output_wires.push_back(wire);
}

Ref<const Program> ProgramBuilder::finish(int64_t serial) {
  program().serial = serial;
  const Ref<Program> result = std::exchange(program_, {});
  // Each is filled once, so that none is read before.
  std::vector<bool> filled(static_cast<size_t>(result->registers));
  const auto fill = [&](int reg) {
    if (filled[static_cast<size_t>(reg)])
      throw ValueError("make_plan: " + result->name + ": register " + std::to_string(reg) +
                       " is filled twice");
    filled[static_cast<size_t>(reg)] = true;
  };
  for (const auto& [reg, value] : result->constants) fill(reg);
  for (const Program::Load& load : result->loads) fill(load.reg);
  for (const Program::Compute& compute : result->computes) fill(compute.reg);
  if (const auto empty = std::ranges::find(filled, false); empty != filled.end())
    throw ValueError("make_plan: " + result->name + ": register " + std::to_string(empty - filled.begin()) +
                     " is not filled");
  result->finish();
  return Ref<const Program>(result.get());
}

}  // namespace weft
