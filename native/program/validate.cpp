// validate.cpp: that everything a program's fields refer to is there: done once, when it is finished.
//
// What is trusted is what the planner computes: that temporaries and views lie in the arena and in their
// bases, which steps write which operands, how many parameters a kernel reads of the slots, and that computed
// sizes do not overflow. The reader of exported folders (stored.cpp) checks sizes and written operands
// itself; the rest it trusts as it trusts the machine code of the folder.
#include <algorithm>
#include <string>

#include "program/program.h"

namespace weft {
namespace {

// Raises ValueError unless facts about a program hold.
class Checker {
 public:
  explicit Checker(const std::string& program) : program_(program) {}
  void operator()(bool holds, const char* fact) const {
    if (!holds) throw ValueError("make_plan: " + program_ + ": " + fact);
  }
  void in(int64_t index, int64_t begin, size_t end, const char* what) const {
    if (index < begin || index >= static_cast<int64_t>(end))
      throw ValueError("make_plan: " + program_ + ": " + what + " " + std::to_string(index) + " is not in " +
                       std::to_string(begin) + ".." + std::to_string(end));
  }

 private:
  const std::string& program_;
};

// What values say of their geometry, and of the memory that they are in.
void check_values(const Program& program, const Checker& ensure) {
  using Value = Program::Value;
  const size_t inputs = program.uses.size();
  const auto check_register = [&](int index) {
    ensure.in(index, 0, static_cast<size_t>(program.registers), "register");
  };
  const auto is_zero = [&](int reg) {
    return std::ranges::find(program.constants, std::pair{reg, int64_t{0}}) != program.constants.end();
  };
  for (size_t k = 0; k < program.values.size(); ++k) {
    const Value& v = program.values[k];
    ensure(v.sizes.size() <= kMaxDims && v.strides.size() <= kMaxDims, "a value has too many dimensions");
    for (const int reg : v.sizes) check_register(reg);
    for (const int reg : v.strides) check_register(reg);
    ensure.in(v.like, -1, inputs, "input");
    switch (v.kind) {
      case Value::Kind::view:
        ensure.in(v.base, 0, inputs + k, "base");  // of earlier ones, so there is no circle
        check_register(v.offset);
        ensure(v.strides.size() == v.sizes.size(), "a view has sizes and strides of different number");
        break;
      case Value::Kind::temporary:
        check_register(v.offset);
        ensure(program.arena_bytes >= 0 || std::ranges::any_of(v.sizes, is_zero),
               "a temporary value has no arena");
        ensure(v.strides.size() == v.sizes.size(), "a value has sizes and strides of different number");
        break;
      case Value::Kind::prepacked:
        ensure(v.strides.size() == v.sizes.size(), "a value has sizes and strides of different number");
        break;
      case Value::Kind::output:
        ensure(v.strides.empty() || v.strides.size() == v.sizes.size(),
               "an output has sizes and strides of different number");
        break;
      case Value::Kind::input:
        ensure(false, "inputs are not values of their own");
    }
  }
}

}  // namespace

void Program::validate() const {
  const Checker ensure(name);
  const size_t inputs = uses.size(), all = inputs + values.size();
  ensure(registers >= 0 && registers < (1 << 24), "the number of registers is out of range");
  const auto r = static_cast<size_t>(registers);
  const auto check_register = [&](int index) { ensure.in(index, 0, r, "register"); };
  const auto check_value = [&](int index) { ensure.in(index, 0, all, "value"); };
  for (const Use use : uses) ensure(use <= Use::data, "a use of an input is none of the four");
  for (const auto& [reg, number] : constants) check_register(reg);
  for (const Load& load : loads) {
    check_register(load.reg);
    ensure.in(load.dimension, 0, kMaxDims, "dimension");
    if (load.from != Load::From::size) ensure.in(load.input, 0, inputs, "input");
  }
  for (const Compute& c : computes)
    for (const int reg : {c.reg, c.a, c.b}) check_register(reg);
  if (exact) ensure(loads.empty(), "exact programs load no sizes");
  ensure.in(arena_bytes, -1, r, "register");
  check_values(*this, ensure);
  for (const Output& output : outputs) {
    check_value(output.value);
    ensure.in(output.writes, -1, inputs, "input");
    const int value = output.value - static_cast<int>(inputs);
    if (value < 0) continue;
    const Value& source = values[static_cast<size_t>(value)];
    ensure(source.kind == Value::Kind::output || (source.kind == Value::Kind::view && source.base < inputs_),
           "an output is neither memory of its own nor a view of an input");
  }
  for (size_t k = 0; k < values.size(); ++k)
    if (values[k].kind == Value::Kind::output)
      ensure(std::ranges::any_of(outputs,
                                 [&](const Output& o) { return o.value == static_cast<int>(inputs + k); }),
             "a value of kind output is not an output");
  for (const Slot& slot : slots) {
    if (slot.from == Slot::From::reg) check_register(slot.index);
    if (slot.from == Slot::From::number) ensure.in(slot.index, 0, size_t{1} << 24, "number");
  }
  for (const Random& random : randoms) {
    check_register(random.count);
    ensure.in(random.first_slot, 0, slots.size(), "slot");
    ensure.in(random.first_slot + 2, 0, slots.size(), "slot");
  }
  for (const Step& step : steps) {
    ensure(static_cast<bool>(step.kernel), "a step has no kernel");
    const int count = step.kernel->operand_count();
    ensure(count < 0 || static_cast<size_t>(count) == step.operands.size(),
           "a step does not have the operands of its kernel");
    for (const int operand : step.operands) check_value(operand);
    ensure(!step.is_copy || step.operands.size() == 2, "a step that copies has other operands than two");
    ensure.in(step.first_slot, 0, slots.size() + 1, "slot");
    for (const auto& [from, to] : step.in_place) {
      check_value(from);
      check_value(to);
    }
  }
  ensure(hoisted.size() <= steps.size(), "there are fewer steps than preparing ones");
  ensure(hoisted.empty() || exact, "only exact programs prepare");
  for (const HoistedStep& step : hoisted) {
    for (const int value : step.reads) check_value(value);
    for (const int value : step.writes) check_value(value);
  }
  for (const Span& span : spans) {
    ensure.in(span.first, 0, steps.size(), "step");
    ensure.in(span.last, span.first, steps.size(), "step");
  }
}

void Program::validate_parts() const {
  const Checker ensure(name);
  ensure(registers >= 0, "the number of registers is out of range");
  for (const auto& [reg, number] : constants) ensure.in(reg, 0, static_cast<size_t>(registers), "register");
  size_t wires = uses.size();
  for (const Part& part : parts) {
    ensure(static_cast<bool>(part.program), "a part has no program");
    const Program& program = *part.program;
    ensure(part.inputs.size() == program.uses.size(), "a part does not have the inputs of its program");
    ensure(part.outputs.size() == program.outputs.size(), "a part does not have the outputs of its program");
    ensure(part.numbers.size() >= program.numbers_taken(), "a part does not have the numbers of its program");
    for (const int wire : part.inputs) ensure.in(wire, 0, wires, "wire");  // earlier parts have made them
    for (const int number : part.numbers) ensure.in(number, 0, size_t{1} << 24, "number");
    size_t next = wires;
    for (const int wire : part.outputs) {
      ensure.in(wire, 0, size_t{1} << 24, "wire");
      next = std::max(next, static_cast<size_t>(wire) + 1);
    }
    wires = next;
  }
  ensure(output_wires.size() == outputs.size(), "there are not as many wires that leave as outputs");
  for (const int wire : output_wires) ensure.in(wire, 0, wires, "wire");
  for (const Output& output : outputs) {
    ensure.in(output.value, static_cast<int64_t>(uses.size()), uses.size() + values.size(), "value");
    ensure.in(output.writes, -1, uses.size(), "input");
  }
}

}  // namespace weft
