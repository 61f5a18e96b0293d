// program.cpp: kernels, loops and programs for Python.
#include "bindings/convert.h"
#include "bindings/hooks.h"
#include "bindings/tensor.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "program/builder.h"
#include "program/control.h"
#include "program/loop.h"
#include "program/nan_watch.h"
#include "program/stored.h"
#include "program/thread_launches.h"
#include "program/thread_loop.h"
#include "storage/runtime.h"
#include "tensor/staging.h"

namespace weft {

namespace {

// Code of a Loop, made by Python: compile(rank, row_rank, lanes, tile, inner) gives (address, owner).
class PythonCompiler {
 public:
  explicit PythonCompiler(nb::object compile) : compile_(compile.release().ptr()) {}
  ~PythonCompiler() {
    release_later(compile_);
    for (PyObject* owner : owners_) release_later(owner);
  }
  PythonCompiler(const PythonCompiler&) = delete;
  PyObject* source() const { return compile_; }

  Loop::Code operator()(const LoopPattern& pattern) {
    Loop::Code code = nullptr;
    call_away_from_signals([&] {
      nb::object code_and_owner = nb::handle(compile_)(pattern.rank, pattern.row_rank, pattern.lanes,
                                                       pattern.tile, pattern.letters(), pattern.streaming);
      code = reinterpret_cast<Loop::Code>(nb::cast<uintptr_t>(code_and_owner[0]));
      owners_.push_back(nb::object(code_and_owner[1]).release().ptr());
    });
    return code;
  }

 private:
  PyObject* const compile_;
  std::vector<PyObject*> owners_;
};

// Code of a ThreadLoop, made by Python: compile(chip, rank, row_rank, lanes, inner, row_bits, is_narrow,
// width, pairs, is_gated) gives (image, name, threads, shared bytes, words, items).
class PythonThreadCompiler {
 public:
  explicit PythonThreadCompiler(nb::object compile) : compile_(compile.release().ptr()) {}
  ~PythonThreadCompiler() { release_later(compile_); }
  PythonThreadCompiler(const PythonThreadCompiler&) = delete;

  const DeviceFunction* operator()(const ThreadPattern& pattern) {
    const LoopPattern& loop = pattern.loop;
    return made(pattern.device, loop.rank, loop.row_rank, loop.lanes, loop.letters(), pattern.row_bits,
                pattern.is_narrow, pattern.width,
                std::make_tuple(pattern.m_loops, pattern.n_loops, pattern.seconds), pattern.is_gated);
  }
  const DeviceFunction* operator()(const LaunchPattern& pattern) {
    return made(pattern.device, pattern.memory, pattern.is_narrow, pattern.is_gated);
  }

 private:
  template <class... Facts>
  const DeviceFunction* made(int device, const Facts&... facts_of_pattern) {
    DeviceBackend& backend = *backend_of(DeviceKind::gpu);
    std::string image, name;
    DeviceFunction facts;
    call_away_from_signals([&] {
      const nb::object code = nb::handle(compile_)(backend.chip(device), facts_of_pattern...);
      const auto bytes = nb::cast<nb::bytes>(code[0]);
      image.assign(bytes.c_str(), bytes.size());
      name = nb::cast<std::string>(code[1]);
      facts.threads = nb::cast<unsigned>(code[2]);
      facts.shared_bytes = nb::cast<size_t>(code[3]);
      facts.words = nb::cast<size_t>(code[4]);
      facts.items = nb::cast<int64_t>(code[5]);
    });
    std::unique_ptr<DeviceFunction> function = backend.load(device, image, name.c_str(), facts);
    const std::lock_guard guard(mutex_);
    functions_.push_back(std::move(function));
    return functions_.back().get();
  }

  PyObject* const compile_;
  ForkMutex mutex_;
  std::vector<std::unique_ptr<const DeviceFunction>> functions_;
};

LoopForm loop_form(int operands, int inputs, uint32_t row_axes, uint32_t position_axes, bool is_ordered) {
  if (operands < 1 || operands > LoopPattern::kOperands)
    throw ValueError("loop: 1 to " + std::to_string(LoopPattern::kOperands) + " operands, got " +
                     std::to_string(operands));
  if (inputs < 0 || inputs >= operands)
    throw ValueError("loop: " + std::to_string(inputs) + " inputs of " + std::to_string(operands) +
                     " operands");
  return {operands, inputs, row_axes, position_axes, is_ordered};
}

// (part, join, types) of rows that are folded in pieces, or None.
Loop::Split split_of(const nb::object& split) {
  Loop::Split parts;
  if (split.is_none()) return parts;
  parts.part = nb::cast<PyKernel&>(split[0]).kernel;
  parts.join = nb::cast<PyKernel&>(split[1]).kernel;
  for (nb::handle dtype : split[2]) parts.dtypes.push_back(as_dtype(dtype));
  return parts;
}

// The stages of a Loop that can be taken apart, made by Python: see weft/executor/loop_stages.py.
class PythonStages {
 public:
  explicit PythonStages(nb::object make) : make_(make.release().ptr()) {}
  ~PythonStages() { release_later(make_); }
  PythonStages(const PythonStages&) = delete;

  Loop::Stages operator()() const {
    Loop::Stages stages;
    call_away_from_signals([&] { stages = ask(); });
    return stages;
  }

 private:
  Loop::Stages ask() const {
    Loop::Stages stages;
    const nb::object loop_stages = nb::handle(make_)();
    if (loop_stages.is_none()) return stages;
    for (nb::handle one : loop_stages) {
      using Kind = Loop::Stage::Kind;
      const auto kind = nb::cast<std::string>(one[0]);
      Loop::Stage stage;
      if (kind != "fold" && kind != "each" && kind != "once" && kind != "scan")
        throw ValueError("loop: a stage cannot be '" + kind + "'; accepted are fold, each, once, scan");
      stage.kind = kind == "fold"   ? Kind::fold
                   : kind == "each" ? Kind::each
                   : kind == "scan" ? Kind::scan
                                    : Kind::once;
      stage.loop = nb::cast<PyKernel&>(one[1]).kernel;
      if (stage.kind == Kind::fold) {
        stage.join = nb::cast<PyKernel&>(one[2]).kernel;
        for (nb::handle dtype : one[3]) stage.pieces.push_back(as_dtype(dtype));
        for (nb::handle dtype : one[4]) stage.numbers.push_back(as_dtype(dtype));
      }
      if (stage.kind != Kind::scan)
        stage.outputs = nb::cast<std::vector<int>>(one[stage.kind == Kind::fold ? 5 : 2]);
      if (stage.kind == Kind::scan) {
        stage.part = nb::cast<PyKernel&>(one[2]).kernel;
        stage.join = nb::cast<PyKernel&>(one[3]).kernel;
        for (nb::handle dtype : one[4]) stage.pieces.push_back(as_dtype(dtype));
        stage.is_reverse = nb::cast<bool>(one[5]);
      }
      stages.push_back(std::move(stage));
    }
    return stages;
  }

  PyObject* const make_;
};

Loop::MakeStages stages_of(nb::object make) {
  if (make.is_none()) return {};
  auto maker = std::make_shared<PythonStages>(std::move(make));
  return [maker] { return (*maker)(); };
}

// What the planner makes of a description.
Ref<Plan> plan_of(ProgramBuilder& builder, int visible, bool as_tuple, nb::object info, int64_t serial,
                  const std::vector<bool>& gradients, std::vector<std::vector<int64_t>> strides) {
  auto plan = make_ref<Plan>();
  plan->program = builder.finish(serial);
  if (visible < 0 || static_cast<size_t>(visible) > plan->program->outputs.size())
    throw ValueError("make_plan: " + std::to_string(visible) + " outputs visible of " +
                     std::to_string(plan->program->outputs.size()));
  plan->visible = visible;
  plan->as_tuple = as_tuple;
  for (size_t k = 0; k < gradients.size(); ++k)
    if (gradients[k]) plan->gradients.set(k);
  plan->strides = std::move(strides);
  plan->info = info.release().ptr();
  return plan;
}

ExportedHeader::Array array_of(nb::handle x) {  // (name, dtype, shape)
  return {nb::cast<std::string>(x[0]), as_dtype(x[1]), nb::cast<std::vector<int64_t>>(x[2])};
}

// The file of exported programs (program/stored.h). weights: (array, strides, offset, is_written) of each;
// variants: (plan, arguments, inputs, numbers, results), with (array, is_written) of each argument and
// (array, is_input, number) of each result; an array is (name, dtype, shape). symbol_of: the name of the code
// that a loop's compile function makes.
nb::bytes exported_plans(const std::string& name, const std::string& level, nb::bytes code,
                         uint64_t weights_bytes, nb::sequence weights, nb::sequence variants,
                         nb::object symbol_of) {
  ExportedHeader header{name, exported_version(), level, 0, weights_bytes, {}, {}};
  header.code_digest = digest_of({code.c_str(), code.size()});
  for (nb::handle x : weights)
    header.weights.push_back({array_of(x[0]), nb::cast<std::vector<int64_t>>(x[1]), nb::cast<int64_t>(x[2]),
                              nb::cast<bool>(x[3])});
  for (nb::handle x : variants) {
    ExportedHeader::Variant& variant = header.variants.emplace_back();
    for (nb::handle y : x[1]) variant.arguments.push_back({array_of(y[0]), nb::cast<bool>(y[1])});
    variant.inputs = nb::cast<std::vector<int>>(x[2]);
    variant.numbers = nb::cast<std::vector<int>>(x[3]);
    for (nb::handle y : x[4])
      variant.results.push_back({array_of(y[0]), nb::cast<bool>(y[1]), nb::cast<int>(y[2])});
  }
  Writer writer;
  write_header(writer, header);
  const SymbolOf symbol = [&](const Loop& loop, const LoopPattern& pattern) {
    return nb::cast<std::string>(symbol_of(nb::handle(static_cast<PyObject*>(loop.source())), pattern.rank,
                                           pattern.row_rank, pattern.lanes, pattern.tile, pattern.letters(),
                                           pattern.streaming));
  };
  try {
    for (nb::handle x : variants) write_program(writer, *nb::cast<PyPlan&>(x[0]).plan->program, symbol);
  } catch (const CannotStore& error) {
    raise_error(PyExc_NotImplementedError, error.what());
  }
  const std::string file = sealed(writer.bytes);
  return nb::bytes(file.data(), file.size());
}

void bind_builder(nb::module_& m) {
  using B = ProgramBuilder;
  using Registers = std::vector<int>;
  Class<B>(m, "ProgramBuilder",
           "A program that is being described: values and registers by number, what has kinds by method or "
           "word.\n\n"
           "Each add_... of a value gives its number: the inputs come first. Words that are none of those "
           "accepted "
           "raise\nValueError, and what refers to something that is not there does so when the plan is made.")
      .def(
          "__init__",
          [](B* self, std::string name, Device device, int inputs, bool is_exact, bool is_wide, bool is_copy,
             bool is_checked) {
            new (self) B(std::move(name), device, inputs, {is_exact, is_wide, is_copy, is_checked});
          },
          "name"_a, "device"_a.none(), "inputs"_a, nb::kw_only(), "is_exact"_a = false, "is_wide"_a = false,
          "is_copy"_a = false, "is_checked"_a = false)
      .def("use", &B::use, "input"_a, "how"_a)
      .def("add_input", &B::add_input, "dtype"_a, "shape"_a, "strides"_a)
      .def("add_constant", &B::add_constant, "register"_a, "value"_a)
      .def("add_load", &B::add_load, "from_"_a, "register"_a, "input"_a, "dimension"_a)
      .def("add_compute", &B::add_compute, "what"_a, "register"_a, "a"_a, "b"_a)
      .def("add_output", &B::add_output, "dtype"_a, "like"_a, "sizes"_a, "strides"_a)
      .def("add_temporary", &B::add_temporary, "dtype"_a, "offset"_a, "sizes"_a, "strides"_a)
      .def("add_kept", &B::add_kept, "dtype"_a, "sizes"_a, "strides"_a)
      .def("add_view", &B::add_view, "dtype"_a, "base"_a, "offset"_a, "sizes"_a, "strides"_a)
      .def("add_result", &B::add_result, "value"_a, "into"_a = -1, "is_flexible"_a = false,
           "commits"_a = false)
      .def("add_number", &B::add_number, "dtype"_a, "number"_a)
      .def("add_register", &B::add_register, "dtype"_a, "register"_a)
      .def("add_number_known", &B::add_number_known, "dtype"_a, "value"_a)
      .def("add_random_word", &B::add_random_word, "dtype"_a)
      .def("add_draw", &B::add_draw, "kind"_a, "dtype"_a, "count"_a, "first_slot"_a)
      .def("add_step", &B::add_step, "kernel"_a, "operands"_a, "first_slot"_a, "name"_a, "where"_a,
           "in_place"_a, "written"_a, "is_copy"_a = false)
      .def("add_hoisted", &B::add_hoisted, "reads"_a, "writes"_a)
      .def("set_arena", &B::set_arena, "register"_a)
      .def("add_span", &B::add_span, "first"_a, "last"_a, "offset"_a, "bytes"_a)
      .def(
          "add_part",
          [](B& b, const Ref<Plan>& plan, Registers inputs, Registers numbers, Registers outputs) {
            b.add_part(plan->program, std::move(inputs), std::move(numbers), std::move(outputs));
          },
          "plan"_a, "inputs"_a, "numbers"_a, "outputs"_a)
      .def("add_wire", &B::add_wire, "wire"_a, "into"_a, "dtype"_a, "device"_a.none(), "shape"_a, "strides"_a)
      .def("plan", plan_of, "visible"_a, "as_tuple"_a, "info"_a, nb::kw_only(), "serial"_a = 0,
           "gradients"_a = std::vector<bool>(), "strides"_a = std::vector<std::vector<int64_t>>(),
           "The plan; nothing can be added afterwards. visible: how many results callers get.");
}

}  // namespace

void bind_program(nb::module_& m) {
  Program::host = {
      []() noexcept {
        if (python_is_ending()) return Program::Site{};
        const WithGil gil;
        Site site = Site::here();
        const int instruction = site.instruction();
        return Program::Site{site.release(), instruction};
      },
      [](const Program::Site& site) noexcept {
        if (python_is_ending()) return std::string();
        const WithGil gil;
        return text_of_site(static_cast<PyObject*>(site.code), site.detail);
      },
      [](const Program::Site& site) noexcept { release_later(static_cast<PyObject*>(site.code)); }};
  Class<PyKernel>(m, "Kernel", "A computation on memory that native code runs.")
      .def_prop_ro(
          "reorders", [](const PyKernel& kernel) { return kernel.kernel->reorders(); },
          "How many copies into other layouts a run makes.")
      .def_prop_ro(
          "is_reference", [](const PyKernel& kernel) { return kernel.kernel->is_reference(); },
          "Whether it runs oneDNN's slow reference code.");
  Class<PyPlan>(m, "Plan", "A program, and what it was made from.")
      .def_prop_ro("info",
                   [](const PyPlan& plan) { return nb::borrow(plan.plan->info ? plan.plan->info : Py_None); })
      // Makes the code of a step ahead of the first run; False: there is no such step.
      .def(
          "bind_ahead",
          [](const PyPlan& plan, size_t step) {
            const Ref<const Program> program = plan.plan->program;
            return program->bind_ahead(step);
          },
          "step"_a)
      // Its form for recording has to be asked for (tape.h).
      .def("is_of_many", [](const PyPlan& plan) { plan.plan->many = true; })
      .def("have_history", [](const PyPlan& plan,
                              std::vector<bool> outputs) { plan.plan->with_history = std::move(outputs); })
      .def_prop_ro("uses",
                   [](const PyPlan& plan) {  // of each array that it takes, a Program::Use
                     nb::list uses;
                     for (const Program::Use use : plan.plan->program->uses)
                       uses.append(static_cast<int>(use));
                     return uses;
                   })
      .def_prop_ro("name", [](const PyPlan& plan) { return plan.plan->program->name; });
  bind_builder(m);
  def(
      m, "make_loop",
      [](int operands, int inputs, uint32_t row_axes, uint32_t position_axes, bool ordered,
         nb::object compile, nb::object split, nb::object apart) {
        const LoopForm form = loop_form(operands, inputs, row_axes, position_axes, ordered);
        auto compiler = std::make_shared<PythonCompiler>(std::move(compile));
        return Ref<Kernel>(new Loop(
            form, [compiler](const LoopPattern& p) { return (*compiler)(p); }, split_of(split),
            stages_of(std::move(apart)), compiler->source()));
      },
      "operands"_a, "inputs"_a, "row_axes"_a, "position_axes"_a, "ordered"_a, "compile"_a,
      "split"_a = nb::none(), "apart"_a = nb::none());
  def(
      m, "make_thread_loop",
      [](int operands, int inputs, uint32_t row_axes, uint32_t position_axes, bool ordered, bool joins,
         bool keeps, uint32_t factors, nb::object compile, nb::object split, nb::object apart) {
        const LoopForm form = loop_form(operands, inputs, row_axes, position_axes, ordered);
        auto compiler = std::make_shared<PythonThreadCompiler>(std::move(compile));
        return Ref<Kernel>(new ThreadLoop(
            form, joins, keeps, factors, [compiler](const ThreadPattern& p) { return (*compiler)(p); },
            split_of(split), stages_of(std::move(apart))));
      },
      "operands"_a, "inputs"_a, "row_axes"_a, "position_axes"_a, "ordered"_a, "joins"_a, "keeps"_a,
      "factors"_a, "compile"_a, "split"_a = nb::none(), "apart"_a = nb::none());
  // loops: (operand, dimension) that gives the size of each; scratch, work: (loops, type); launches:
  // ((operand, its dimension in each loop or -1), (loop, elements of a turn), compile) each.
  def(
      m, "make_thread_launches",
      [](int operands, std::vector<std::pair<int, int>> loops,
         const std::vector<std::pair<std::vector<int>, std::string>>& scratch, const nb::list& launches,
         const std::vector<std::pair<std::vector<int>, std::string>>& work, std::vector<int64_t> limits) {
        LaunchesForm form{operands, std::move(loops), {}, {}, {}, std::move(limits)};
        for (const auto& [of, dtype] : scratch) form.scratch.push_back({of, as_dtype(nb::cast(dtype))});
        for (const auto& [of, dtype] : work) form.work.push_back({of, as_dtype(nb::cast(dtype))});
        for (const nb::handle launch : launches) {
          LaunchForm one;
          for (auto& [operand, dims] : nb::cast<std::vector<std::pair<int, std::vector<int>>>>(launch[0]))
            one.operands.push_back({operand, dims});
          one.tiles = nb::cast<std::vector<std::pair<int, int64_t>>>(launch[1]);
          auto compiler = std::make_shared<PythonThreadCompiler>(nb::object(launch[2]));
          one.compile = [compiler](const LaunchPattern& p) { return (*compiler)(p); };
          form.launches.push_back(std::move(one));
        }
        return make_thread_launches(std::move(form));
      },
      "operands"_a, "loops"_a, "scratch"_a, "launches"_a,
      "work"_a = std::vector<std::pair<std::vector<int>, std::string>>{}, "limits"_a = std::vector<int64_t>{},
      "Launches of code for threads: program/thread_launches.h.");
  // Kernels that run the programs of plans (program/control.h). saved: for each state, whether its stack is
  // an output.
  def(
      m, "kernel_foreach",
      [](const Ref<Plan>& body, int sequences, int rest, int items, std::vector<bool> saved, bool reverse,
         bool counted) {
        const int states = static_cast<int>(saved.size());
        return make_control(
            {{body->program},
             ForeachForm{sequences, states, rest, items, std::move(saved), reverse, counted}});
      },
      "body"_a, "sequences"_a, "rest"_a, "items"_a, "saved"_a, "reverse"_a, "counted"_a);
  def(
      m, "kernel_while",
      [](const Ref<Plan>& condition, const Ref<Plan>& body, int rest, int64_t limit, bool counted,
         std::vector<bool> saved) {
        const int states = static_cast<int>(saved.size());
        return make_control(
            {{condition->program, body->program}, WhileForm{states, rest, limit, counted, std::move(saved)}});
      },
      "condition"_a, "body"_a, "rest"_a, "limit"_a, "counted"_a, "saved"_a);
  def(
      m, "kernel_cond",
      [](const Ref<Plan>& then, const Ref<Plan>& otherwise, int inputs) {
        return make_control({{then->program, otherwise->program}, CondForm{inputs}});
      },
      "then"_a, "otherwise"_a, "inputs"_a);
  def(m, "exported_plans", &exported_plans, "name"_a, "level"_a, "code"_a, "weights_bytes"_a, "weights"_a,
      "variants"_a, "symbol_of"_a,
      "The file of exported programs. NotImplementedError, with the operator and the user's line, for a "
      "kernel "
      "that needs Python.");
  def(
      m, "visit_plan",
      [](const Ref<Plan>& plan, nb::list arrays) {
        std::vector<const Tensor*> inputs;
        for (nb::handle x : arrays) inputs.push_back(&tensor_of(x, "visit_plan"));
        plan->program->visit(inputs);
      },
      "plan"_a, "arrays"_a,
      "For exports: makes all code that a plan may run, also in loops and branches, by a run of its own.");
  def(m, "program_counters", [] {
    return counts_of({{"launches", Program::launches},
                      {"kernels", Program::kernels},
                      {"hoisted", Program::hoisted_kernels},
                      {"loop_misses", loop_misses}});
  });
  // Steps whose results hold NaN (1), or infinite elements, too (2), fail from now on; 0: none. Gives what it
  // was.
  def(m, "watch_nan", [](int what) { return NanWatch::set(what); });
  NanWatch::make_count = [](DType dtype, int ndim) {
    Ref<Kernel> kernel;
    call_away_from_signals([&] {
      kernel = nb::cast<PyKernel&>(call_hook(Hook::count_non_finite, name_of(dtype), ndim)).kernel;
    });
    return kernel;
  };
  make_array_loop = [](const char* what, DType to, DType from, int rank) {
    Ref<Kernel> kernel;
    call_away_from_signals([&] {
      const nb::object made = call_hook(Hook::array_loop, what, name_of(to), name_of(from), rank);
      kernel = nb::cast<PyKernel&>(made).kernel;
    });
    return kernel;
  };
  run_array_loop = enqueue_array_loop;
  // Runs a kernel here and now; for tests of kernels by themselves.
  def(
      m, "run_kernel",
      [](const Ref<Kernel>& kernel, nb::sequence arrays, nb::bytes parameters) {
        const nb::tuple operands(arrays);
        const int count = kernel->operand_count();
        if (count >= 0 && static_cast<size_t>(count) != nb::len(operands))
          throw ValueError("run_kernel: the kernel takes " + std::to_string(count) + " operands, got " +
                           std::to_string(nb::len(operands)));
        std::vector<View> views;
        for (nb::handle operand : operands) {
          const Tensor& x = tensor_of(operand, "run_kernel");
          wait_for(x, true);
          views.push_back(x.view());
        }
        std::vector<uint64_t> slots((parameters.size() + 7) / 8);
        std::copy_n(parameters.c_str(), parameters.size(), reinterpret_cast<char*>(slots.data()));
        const Device device = nb::len(operands) ? tensor_of(operands[0], "run_kernel").device() : Device{};
        if (hidden_memory_of(device))
          throw DeviceError("run_kernel: the host cannot touch the memory of " + to_string(device));
        const TempSpace scratch(device, kernel->scratch_bytes(views.data()));
        RunContext context = outside_engine;
        context.device = device;
        kernel->run({views.data(), slots.data(), scratch.get(), context});
      },
      "kernel"_a, "operands"_a, "parameters"_a = nb::bytes("", 0));
}

}  // namespace weft
