#include "program/stored.h"

#include <algorithm>
#include <map>

#include "program/control.h"

namespace weft {

constexpr int enumerators_like(DeviceKind) noexcept { return 2; }
constexpr int enumerators_like(Program::Load::From) noexcept { return 3; }
constexpr int enumerators_like(Program::Compute::What) noexcept { return 4; }
constexpr int enumerators_like(Program::Value::Kind) noexcept { return 5; }
constexpr int enumerators_like(Program::Use) noexcept { return 4; }
constexpr int enumerators_like(Program::Slot::From) noexcept { return 4; }
constexpr int enumerators_like(Loop::Stage::Kind) noexcept { return 3; }

template <class A>
void fields(A& archive, LoopForm& x) {
  archive(x.operands, x.inputs, x.row_axes, x.position_axes, x.ordered);
}
template <class A>
void fields(A& archive, Device& x) {
  archive(x.kind, x.index);
}
template <class A>
void fields(A& archive, Program::Load& x) {
  archive(x.from, x.reg, x.input, x.dimension);
}
template <class A>
void fields(A& archive, Program::Compute& x) {
  archive(x.what, x.reg, x.a, x.b);
}
template <class A>
void fields(A& archive, Program::Value& x) {
  archive(x.kind, x.dtype, x.base, x.offset, x.like, x.sizes, x.strides, x.device);
}
template <class A>
void fields(A& archive, Program::Slot& x) {
  archive(x.from, x.dtype, x.index, x.value);
}
template <class A>
void fields(A& archive, Program::HoistedStep& x) {
  archive(x.reads, x.writes);
}
template <class A>
void fields(A& archive, Program::Span& x) {
  archive(x.first, x.last, x.offset, x.bytes);
}
template <class A>
void fields(A& archive, Program::Output& x) {  // the others follow from the program
  archive(x.value, x.writes, x.flexible, x.commits);
}
template <class A>
void fields(A& archive, Program::Random& x) {
  archive(x.kind, x.dtype, x.count, x.first_slot);
}
template <class A>
void fields(A& archive, Program::Input& x) {
  archive(x.dtype, x.shape, x.strides);
}
template <class A>
void fields(A& archive, Program::Step& x) {  // without its kernel
  archive(x.operands, x.first_slot, x.name, x.where, x.in_place, x.written, x.is_copy);
}

template <class A>
void fields(A& archive, ForeachForm& x) {
  archive(x.sequences, x.states, x.rest, x.items, x.saved, x.reverse, x.counted);
}
template <class A>
void fields(A& archive, WhileForm& x) {
  archive(x.states, x.rest, x.limit, x.counted, x.saved);
}
template <class A>
void fields(A& archive, CondForm& x) {
  archive(x.inputs);
}

template <class A>
void fields(A& archive, ExportedHeader::Array& x) {
  archive(x.name, x.dtype, x.shape);
}
template <class A>
void fields(A& archive, ExportedHeader::Weight& x) {
  archive(x.array, x.strides, x.offset, x.is_written);
}
template <class A>
void fields(A& archive, ExportedHeader::Argument& x) {
  archive(x.array, x.is_written);
}
template <class A>
void fields(A& archive, ExportedHeader::Result& x) {
  archive(x.array, x.is_input, x.number);
}
template <class A>
void fields(A& archive, ExportedHeader::Variant& x) {
  archive(x.arguments, x.inputs, x.numbers, x.results);
}
template <class A>
void fields(A& archive, ExportedHeader& x) {
  archive(x.name, x.version, x.level, x.code_digest, x.weights_bytes, x.weights, x.variants);
}

void write_header(Writer& writer, const ExportedHeader& header) { writer(header); }
ExportedHeader read_header(Reader& reader) { return reader.next<ExportedHeader>(); }

namespace {
constexpr std::string_view kMagic = "weft program 1\n";
}  // namespace

std::string sealed(const std::string& content) {
  Writer digest;
  digest(digest_of(content));
  return std::string(kMagic) + digest.bytes + content;
}

std::string_view unsealed(std::string_view file) {
  if (!file.starts_with(kMagic)) throw FormatError("it is no exported program");
  file.remove_prefix(kMagic.size());
  Reader reader(file);
  const auto digest = reader.next<uint64_t>();
  const std::string_view content = file.substr(sizeof digest);
  if (digest_of(content) != digest) throw FormatError("it is damaged: its digest does not fit its content");
  return content;
}

const char* exported_version() noexcept { return WEFT_VERSION; }

namespace {

template <class A>
void members(A& archive, Program& p) {  // without steps
  archive(p.name, p.registers, p.constants, p.loads, p.computes, p.uses, p.values, p.outputs, p.slots,
          p.hoisted, p.randoms, p.arena_bytes, p.device, p.wide, p.is_copy, p.exact, p.spans,
          p.planned_inputs);
}

enum class Kind : uint8_t { earlier, recipe, loop, control };
constexpr int enumerators_like(Kind) noexcept { return 4; }

// Kernels that several steps share are written once.
class ProgramWriter {
 public:
  ProgramWriter(Writer& writer, const SymbolOf& symbol_of) : writer_(writer), symbol_of_(symbol_of) {}

  void write(const Program& program) {
    if (!program.parts.empty() || !program.exact)
      throw CannotStore(program.name + ": only programs of exact sizes on one device can be written");
    members(writer_, const_cast<Program&>(program));  // which is only read
    writer_(static_cast<uint64_t>(program.steps.size()));
    for (const Program::Step& step : program.steps) {
      writer_(step);
      write(*step.kernel, step.name, step.where);
    }
  }

 private:
  // Raises CannotStore with the name of the step.
  void write(const Kernel& kernel, const std::string& name, const std::string& where) {
    if (const auto it = numbers_.find(&kernel); it != numbers_.end()) {
      writer_(Kind::earlier, it->second);
      return;
    }
    if (const auto* const loop = dynamic_cast<const Loop*>(&kernel)) {
      write_loop(*loop, name, where);
    } else if (const ControlForm* const control = kernel.control_form()) {
      writer_(Kind::control, static_cast<uint64_t>(control->form.index()));
      std::visit([&](const auto& form) { writer_(form); }, control->form);
      writer_(static_cast<uint64_t>(control->programs.size()));
      for (const Ref<const Program>& program : control->programs) write(*program);
    } else if (!kernel.recipe.empty()) {
      writer_(Kind::recipe, kernel.recipe);
    } else {
      throw CannotStore(name + ": its kernel has no form without Python" +
                        (where.empty() ? "" : "\n  at " + where));
    }
    const auto number = static_cast<uint32_t>(numbers_.size());
    numbers_.emplace(&kernel, number);
  }

  void write_loop(const Loop& loop, const std::string& name, const std::string& where) {
    std::vector<std::pair<uint64_t, std::string>> codes;
    for (const LoopPattern& pattern : loop.patterns())
      codes.emplace_back(pattern.key(), symbol_of_(loop, pattern));
    writer_(Kind::loop, *loop.loop_form(), codes);
    const Loop::Split& parts = loop.parts();
    writer_(static_cast<bool>(parts.part));
    if (parts.part) {
      write(*parts.part, name, where);
      write(*parts.join, name, where);
      writer_(parts.dtypes);
    }
    static const Loop::Stages none;
    const Loop::Stages& stages = loop.stages_made() ? *loop.stages_made() : none;
    writer_(static_cast<uint64_t>(stages.size()));
    for (const Loop::Stage& stage : stages) {
      writer_(stage.kind, stage.pieces, stage.numbers, static_cast<bool>(stage.join));
      write(*stage.loop, name, where);
      if (stage.join) write(*stage.join, name, where);
    }
  }

  Writer& writer_;
  const SymbolOf& symbol_of_;
  std::map<const Kernel*, uint32_t> numbers_;
};

class ProgramReader {
 public:
  ProgramReader(Reader& reader, const AddressOf& address_of, const MakeKernel& make,
                const LayoutBytes& layout_bytes)
      : reader_(reader), address_of_(address_of), make_(make), layout_bytes_(layout_bytes) {}

  Ref<const Program> read_program(int depth = 0) {
    const Ref<Program> program = make_ref<Program>();
    members(reader_, *program);
    const auto steps = reader_.next<uint64_t>();
    for (uint64_t k = 0; k < steps; ++k) {
      auto step = reader_.next<Program::Step>();
      step.kernel = read(depth);
      fit_layouts(*program, step);
      program->steps.push_back(std::move(step));
    }
    check(*program);
    program->finish();
    return Ref<const Program>(program.get());
  }

 private:
  // What `finish` trusts of a planner. How parameters and operands suit the code of kernels stays trusted, as
  // the code itself.
  static void check(const Program& program) {
    const auto ensure = [&](bool holds, const char* fact) {
      if (!holds) throw FormatError(program.name + ": " + fact);
    };
    const auto is_here = [](Device device) { return device == Device{}; };
    ensure(program.exact && program.loads.empty() && program.computes.empty(), "sizes are not constants");
    ensure(is_here(program.device), "it is for another device");
    ensure(program.registers >= 0 && static_cast<size_t>(program.registers) <= program.constants.size(),
           "registers have no values");
    ensure(program.planned_inputs.size() == program.uses.size(), "an input has no size");
    std::vector<int64_t> numbers(static_cast<size_t>(program.registers));
    const auto number = [&](int reg) -> int64_t& {
      ensure(reg >= 0 && reg < program.registers, "a register is not there");
      return numbers[static_cast<size_t>(reg)];
    };
    for (const auto& [reg, value] : program.constants) number(reg) = value;
    constexpr int64_t kMost = int64_t{1} << 47;     // addresses of a process
    const auto times = [&](int64_t a, int64_t b) {  // each 0 at the least, and below kMost
      ensure(a == 0 || b <= kMost / a, "a size is out of range");
      return a * b;
    };
    const auto check_size = [&](DType dtype, const std::vector<int64_t>& shape) {
      auto bytes = static_cast<int64_t>(size_of(dtype));  // if none was empty
      ensure(shape.size() <= kMaxDims, "a value has too many dimensions");
      for (const int64_t size : shape) {
        ensure(size >= 0, "a size is out of range");
        bytes = times(bytes, std::max<int64_t>(size, 1));
      }
    };
    const auto check_steps = [&](DType dtype, const std::vector<int64_t>& shape,
                                 const std::vector<int64_t>& strides) {
      ensure(strides.size() == shape.size(), "there are not as many strides as sizes");
      int64_t bytes = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        ensure(strides[d] >= -kMost && strides[d] <= kMost, "a stride is out of range");
        const auto step = times(static_cast<int64_t>(size_of(dtype)), std::abs(strides[d]));
        bytes += times(step, std::max<int64_t>(shape[d] - 1, 0));
      }
      ensure(bytes <= kMost, "a size is out of range");
    };
    for (const Program::Input& input : program.planned_inputs) {
      check_size(input.dtype, input.shape);
      check_steps(input.dtype, input.shape, input.strides);
    }
    for (const Program::Value& value : program.values) {
      ensure(is_here(value.device), "a value is on another device");
      std::vector<int64_t> shape, strides;
      for (const int size : value.sizes) shape.push_back(number(size));
      for (const int stride : value.strides) strides.push_back(number(stride));
      check_size(value.dtype, shape);
      if (!strides.empty()) check_steps(value.dtype, shape, strides);
    }
    for (const Program::Step& step : program.steps)
      for (const int operand : step.written)
        ensure(operand >= 0 && static_cast<size_t>(operand) < step.operands.size(),
               "a step writes an operand that it does not have");
  }

  // The layouts of weights may have other sizes than where the program was planned: which one oneDNN chooses
  // depends on the number of threads. Kept values have memory of their own, so their sizes can change.
  void fit_layouts(Program& program, const Program::Step& step) const {
    for (size_t k = 0; k < step.operands.size(); ++k) {
      const auto bytes = static_cast<int64_t>(layout_bytes_(*step.kernel, static_cast<int>(k)));
      const int64_t number = step.operands[k] - static_cast<int64_t>(program.uses.size());
      if (!bytes || number < 0 || number >= static_cast<int64_t>(program.values.size())) continue;
      Program::Value& value = program.values[static_cast<size_t>(number)];
      const auto fits = [&](const auto& constant) {
        return constant.first == value.sizes[0] && constant.second == bytes;
      };
      if (value.sizes.size() == 1 && std::ranges::any_of(program.constants, fits)) continue;
      if (value.kind != Program::Value::Kind::prepacked || value.sizes.size() != 1)
        throw FormatError(step.name + ": oneDNN chooses another layout here, of " + std::to_string(bytes) +
                          " bytes; export with as many threads as the program will have");
      value.sizes[0] = program.registers++;
      program.constants.emplace_back(value.sizes[0], bytes);
    }
  }

  Ref<Kernel> read(int depth) {
    if (depth > kDeepest) throw FormatError("loops in each other, deeper than " + std::to_string(kDeepest));
    const auto kind = reader_.next<Kind>();
    if (kind == Kind::earlier) {
      const auto number = reader_.next<uint32_t>();
      if (number >= kernels_.size()) throw FormatError("a kernel refers to a later one");
      return kernels_[number];
    }
    Ref<Kernel> kernel = kind == Kind::loop      ? read_loop(depth)
                         : kind == Kind::control ? read_control(depth)
                                                 : read_recipe(kind);
    kernels_.push_back(kernel);
    return kernel;
  }

  Ref<Kernel> read_control(int depth) {
    ControlForm control;
    switch (reader_.next<uint64_t>()) {
      case 0:
        control.form = reader_.next<ForeachForm>();
        break;
      case 1:
        control.form = reader_.next<WhileForm>();
        break;
      case 2:
        control.form = reader_.next<CondForm>();
        break;
      default:
        throw FormatError("control flow of no known kind");
    }
    const auto count = reader_.next<uint64_t>();
    if (count > 2) throw FormatError("control flow of " + std::to_string(count) + " programs");
    for (uint64_t k = 0; k < count; ++k) control.programs.push_back(read_program(depth + 1));
    return make_control(std::move(control));
  }

  Ref<Kernel> read_recipe(Kind kind) {
    if (kind != Kind::recipe) throw FormatError("a kernel of no known kind");
    const auto recipe = reader_.next<std::string>();
    Reader arguments(recipe);
    const auto name = arguments.next<std::string>();
    return make_(name, arguments);
  }

  Ref<Kernel> read_loop(int depth) {
    const auto form = reader_.next<LoopForm>();
    if (form.operands < 1 || form.operands > LoopPattern::kOperands || form.inputs < 0 ||
        form.inputs >= form.operands)
      throw FormatError("a loop of " + std::to_string(form.operands) + " operands");
    std::map<uint64_t, Loop::Code> codes;
    for (const auto& [key, symbol] : reader_.next<std::vector<std::pair<uint64_t, std::string>>>())
      codes[key] = address_of_(symbol);
    Loop::Split parts;
    if (reader_.next<bool>()) {
      parts.part = read(depth + 1);
      parts.join = read(depth + 1);
      reader_(parts.dtypes);
    }
    const auto count = reader_.next<uint64_t>();
    if (count > 64) throw FormatError("a loop of " + std::to_string(count) + " stages");
    Loop::Stages stages(static_cast<size_t>(count));
    for (Loop::Stage& stage : stages) {
      bool joins = false;
      reader_(stage.kind, stage.pieces, stage.numbers, joins);
      stage.loop = read(depth + 1);
      if (joins) stage.join = read(depth + 1);
    }
    const auto find = [codes = std::move(codes)](const LoopPattern& pattern) {
      auto it = codes.find(pattern.key());
      if (it == codes.end() && pattern.streaming) {  // the same results by way of the cache
        LoopPattern plain = pattern;
        plain.streaming = false;
        it = codes.find(plain.key());
      }
      if (it == codes.end())
        throw std::runtime_error("the exported folder has no code for a loop of these operands");
      return it->second;
    };
    return Ref<Kernel>(new Loop(form, find, std::move(parts), [stages] { return stages; }));
  }

  static constexpr int kDeepest = 16;
  Reader& reader_;
  const AddressOf& address_of_;
  const MakeKernel& make_;
  const LayoutBytes& layout_bytes_;
  std::vector<Ref<Kernel>> kernels_;
};

}  // namespace

void write_program(Writer& writer, const Program& program, const SymbolOf& symbol_of) {
  ProgramWriter(writer, symbol_of).write(program);
}

Ref<const Program> read_program(Reader& reader, const AddressOf& address_of, const MakeKernel& make_kernel,
                                const LayoutBytes& layout_bytes) {
  return ProgramReader(reader, address_of, make_kernel, layout_bytes).read_program();
}

}  // namespace weft
