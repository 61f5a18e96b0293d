// program.cpp: kernels, loops and programs for Python.
#include "bindings/program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "program/control.h"
#include "program/loop.h"
#include "program/nan_watch.h"
#include "program/step_log.h"
#include "storage/runtime.h"

namespace weft {

PyObject* planner = nullptr;

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

  Loop::Code operator()(const LoopPattern& pattern) {
    Loop::Code code = nullptr;
    call_away_from_signals([&] {
      std::string inner;
      for (int k = 0; k < pattern.operands; ++k) inner += "uzac"[pattern.inner[k]];
      nb::object made = nb::handle(compile_)(pattern.rank, pattern.row_rank, pattern.lanes, pattern.tile,
                                             inner, pattern.past);
      code = reinterpret_cast<Loop::Code>(nb::cast<uintptr_t>(made[0]));
      owners_.push_back(nb::object(made[1]).release().ptr());
    });
    return code;
  }

 private:
  PyObject* const compile_;
  std::vector<PyObject*> owners_;
};

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
    const nb::object made = nb::handle(make_)();
    if (made.is_none()) return stages;
    for (nb::handle one : made) {
      using Kind = Loop::Stage::Kind;
      const auto kind = nb::cast<std::string>(one[0]);
      Loop::Stage stage;
      stage.kind = kind == "fold" ? Kind::fold : kind == "each" ? Kind::each : Kind::once;
      stage.loop = nb::cast<PyKernel&>(one[1]).kernel;
      if (stage.kind == Kind::fold) {
        stage.join = nb::cast<PyKernel&>(one[2]).kernel;
        for (nb::handle dtype : one[3]) stage.pieces.push_back(as_dtype(dtype));
        for (nb::handle dtype : one[4]) stage.numbers.push_back(as_dtype(dtype));
      }
      stages.push_back(std::move(stage));
    }
    return stages;
  }

  PyObject* const make_;
};

// Fields of the planner's description, by name.
struct Description {
  nb::dict fields;
  nb::object operator[](const char* name) const { return fields[name]; }
  template <class T>
  T get(const char* name) const {
    return nb::cast<T>(fields[name]);
  }
};

DType dtype_at(nb::handle object) { return as_dtype(object); }

Ref<const Program> make_program(const Description& spec) {
  auto program = make_ref<Program>();
  Program& p = *program;
  p.name = spec.get<std::string>("name");
  p.serial = spec.get<int64_t>("serial");
  p.registers = spec.get<int>("registers");
  p.device = as_device(spec["device"]);
  p.arena_bytes = spec.get<int>("arena_bytes");
  p.wide = spec.get<bool>("wide");
  for (nb::handle item : spec["constants"])
    p.constants.emplace_back(nb::cast<int>(item[0]), nb::cast<int64_t>(item[1]));
  for (nb::handle item : spec["loads"]) {
    const auto from = nb::cast<std::string>(item[0]);
    using From = Program::Load::From;
    p.loads.push_back({from == "size"     ? From::size
                       : from == "extent" ? From::extent
                                          : From::stride,
                       nb::cast<int>(item[1]), nb::cast<int>(item[2]), nb::cast<int>(item[3])});
  }
  for (nb::handle item : spec["computes"]) {
    const auto what = nb::cast<std::string>(item[0]);
    using What = Program::Compute::What;
    p.computes.push_back({what == "add"   ? What::add
                          : what == "sub" ? What::sub
                          : what == "mul" ? What::mul
                                          : What::div,
                          nb::cast<int>(item[1]), nb::cast<int>(item[2]), nb::cast<int>(item[3])});
  }
  for (nb::handle use : spec["uses"]) p.uses.push_back(static_cast<Program::Use>(nb::cast<int>(use)));
  for (nb::handle item : spec["values"]) {
    const auto kind = nb::cast<std::string>(item[0]);
    using Kind = Program::Value::Kind;
    p.values.push_back({kind == "output"      ? Kind::output
                        : kind == "temporary" ? Kind::temporary
                        : kind == "kept"      ? Kind::kept
                                              : Kind::view,
                        dtype_at(item[1]), nb::cast<int>(item[2]), nb::cast<int>(item[3]),
                        nb::cast<int>(item[4]), nb::cast<std::vector<int>>(item[5]),
                        nb::cast<std::vector<int>>(item[6]), p.device});
  }
  for (nb::handle item : spec["outputs"])
    p.outputs.push_back({nb::cast<int>(item[0]),
                         nb::cast<int>(item[1]),
                         nb::cast<bool>(item[2]),
                         nb::cast<bool>(item[3]),
                         -1,
                         false,
                         {}});
  for (nb::handle item : spec["slots"]) {
    const auto from = nb::cast<std::string>(item[0]);
    using From = Program::Slot::From;
    Program::Slot slot{from == "number"     ? From::number
                       : from == "reg"      ? From::reg
                       : from == "constant" ? From::constant
                                            : From::random,
                       dtype_at(item[1]), 0};
    if (slot.from == From::constant)
      slot.value = nb::cast<double>(item[2]);
    else
      slot.index = nb::cast<int>(item[2]);
    p.slots.push_back(slot);
  }
  for (nb::handle item : spec["steps"])
    p.steps.push_back({nb::cast<PyKernel&>(item[0]).kernel, nb::cast<std::vector<int>>(item[1]),
                       nb::cast<int>(item[2]), nb::cast<std::string>(item[3]), nb::cast<std::string>(item[4]),
                       nb::cast<std::vector<std::pair<int, int>>>(item[5]),
                       nb::cast<std::vector<int>>(item[6])});
  for (nb::handle item : spec["preparing"])
    p.preparing.push_back({nb::cast<std::vector<int>>(item[0]), nb::cast<std::vector<int>>(item[1])});
  for (nb::handle item : spec["spans"])
    p.spans.push_back({nb::cast<int>(item[0]), nb::cast<int>(item[1]), nb::cast<int64_t>(item[2]),
                       nb::cast<int64_t>(item[3])});
  p.exact = spec.get<bool>("exact");
  p.check = spec.get<bool>("check");
  for (nb::handle item : spec["inputs"])
    p.planned_inputs.push_back({dtype_at(item[0]), nb::cast<std::vector<int64_t>>(item[1]),
                                nb::cast<std::vector<int64_t>>(item[2])});
  for (const Program::Step& step : p.steps) p.wide |= step.kernel->wide();
  for (nb::handle item : spec["randoms"]) {
    p.randoms.push_back({draw_of(nb::cast<std::string>(item[0])), dtype_at(item[1]), nb::cast<int>(item[2]),
                         nb::cast<int>(item[3])});
  }
  p.is_copy = spec.get<bool>("is_copy");
  p.finish();
  return Ref<const Program>(program.get());
}

// A program of several devices. values: (dtype, device, shape, strides) of each output.
Ref<const Program> make_parts(const Description& spec) {
  auto program = make_ref<Program>();
  Program& p = *program;
  p.name = spec.get<std::string>("name");
  p.exact = true;
  std::vector<std::pair<int, int64_t>>& constants = p.constants;
  const auto registers = [&](nb::handle numbers) {
    std::vector<int> made;
    for (nb::handle number : numbers) {
      made.push_back(p.registers);
      constants.emplace_back(p.registers++, nb::cast<int64_t>(number));
    }
    return made;
  };
  for (nb::handle use : spec["uses"]) p.uses.push_back(static_cast<Program::Use>(nb::cast<int>(use)));
  for (nb::handle item : spec["outputs"]) {
    p.leaving.push_back(nb::cast<int>(item[0]));
    p.outputs.push_back({static_cast<int>(p.uses.size() + p.values.size()),
                         nb::cast<int>(item[1]),
                         false,
                         false,
                         -1,
                         false,
                         {}});
    p.values.push_back({Program::Value::Kind::output, dtype_at(item[2]), -1, -1, -1, registers(item[4]),
                        registers(item[5]), as_device(item[3])});
  }
  for (nb::handle item : spec["parts"])
    p.parts.push_back({nb::cast<PyPlan&>(item[0]).plan->program, nb::cast<std::vector<int>>(item[1]),
                       nb::cast<std::vector<int>>(item[2]), nb::cast<std::vector<int>>(item[3])});
  p.finish();
  return Ref<const Program>(program.get());
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
        return text_of_site(static_cast<PyObject*>(site.place), site.detail);
      },
      [](const Program::Site& site) noexcept { release_later(static_cast<PyObject*>(site.place)); }};
  Class<PyKernel>(m, "Kernel", "A computation on memory that native code runs.")
      .def_prop_ro(
          "reorders", [](const PyKernel& kernel) { return kernel.kernel->reorders(); },
          "How many copies into other layouts a run makes.");
  Class<PyPlan>(m, "Plan", "A program, and what it was made from.")
      .def_prop_ro(
          "recipe",
          [](const PyPlan& plan) { return nb::borrow(plan.plan->recipe ? plan.plan->recipe : Py_None); })
      // Makes the code of a step ahead of the first run; False: there is no such step.
      .def(
          "bind_ahead",
          [](const PyPlan& plan, size_t step) {
            const Ref<const Program> program = plan.plan->program;
            return program->bind_ahead(step);
          },
          nb::arg("step"))
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
  def(
      m, "make_loop",
      [](int operands, int inputs, uint32_t row_axes, uint32_t asked, bool ordered, nb::object compile,
         nb::object split, nb::object apart) {
        if (operands < 1 || operands > LoopPattern::kOperands)
          throw ValueError("loop: 1 to " + std::to_string(LoopPattern::kOperands) + " operands, got " +
                           std::to_string(operands));
        if (inputs < 0 || inputs >= operands)
          throw ValueError("loop: " + std::to_string(inputs) + " inputs of " + std::to_string(operands) +
                           " operands");
        Loop::Form form{operands, inputs, row_axes, asked, ordered};
        auto compiler = std::make_shared<PythonCompiler>(std::move(compile));
        Loop::Split parts;
        if (!split.is_none()) {
          parts.part = nb::cast<PyKernel&>(split[0]).kernel;
          parts.join = nb::cast<PyKernel&>(split[1]).kernel;
          for (nb::handle dtype : split[2]) parts.dtypes.push_back(as_dtype(dtype));
        }
        Loop::Apart stages;
        if (!apart.is_none()) {
          auto maker = std::make_shared<PythonStages>(std::move(apart));
          stages = [maker] { return (*maker)(); };
        }
        return PyKernel{Ref<Kernel>(new Loop(
            form, [compiler](const LoopPattern& p) { return (*compiler)(p); }, std::move(parts), stages))};
      },
      nb::arg("operands"), nb::arg("inputs"), nb::arg("row_axes"), nb::arg("asked"), nb::arg("ordered"),
      nb::arg("compile"), nb::arg("split") = nb::none(), nb::arg("apart") = nb::none());
  def(
      m, "make_plan",
      [](nb::dict spec, int visible, bool as_tuple, nb::object recipe, const std::vector<bool>& gradients) {
        auto plan = make_ref<Plan>();
        plan->program = spec.contains("parts") ? make_parts({spec}) : make_program({spec});
        if (visible < 0 || static_cast<size_t>(visible) > plan->program->outputs.size())
          throw ValueError("make_plan: " + std::to_string(visible) + " outputs visible of " +
                           std::to_string(plan->program->outputs.size()));
        plan->visible = visible;
        plan->as_tuple = as_tuple;
        for (size_t k = 0; k < gradients.size(); ++k)
          if (gradients[k]) plan->gradients.set(k);
        plan->strides = nb::cast<std::vector<std::vector<int64_t>>>(spec["strides"]);
        plan->recipe = recipe.release().ptr();
        return PyPlan{plan};
      },
      nb::arg("spec"), nb::arg("visible"), nb::arg("as_tuple"), nb::arg("recipe"),
      nb::arg("gradients") = std::vector<bool>());
  // Kernels that run the programs of plans (program/control.h). saved: for each state, whether its stack is
  // an output.
  def(
      m, "kernel_foreach",
      [](const PyPlan& body, int sequences, int rest, int items, std::vector<bool> saved, bool reverse,
         bool counted) {
        const int states = static_cast<int>(saved.size());
        return PyKernel{make_foreach(body.plan->program,
                                     {sequences, states, rest, items, std::move(saved), reverse, counted})};
      },
      nb::arg("body"), nb::arg("sequences"), nb::arg("rest"), nb::arg("items"), nb::arg("saved"),
      nb::arg("reverse"), nb::arg("counted"));
  def(
      m, "kernel_while",
      [](const PyPlan& condition, const PyPlan& body, int rest, int64_t limit, bool counted,
         std::vector<bool> saved) {
        const int states = static_cast<int>(saved.size());
        return PyKernel{make_while(condition.plan->program, body.plan->program,
                                   {states, rest, limit, counted, std::move(saved)})};
      },
      nb::arg("condition"), nb::arg("body"), nb::arg("rest"), nb::arg("limit"), nb::arg("counted"),
      nb::arg("saved"));
  def(
      m, "kernel_cond",
      [](const PyPlan& then, const PyPlan& otherwise, int inputs) {
        return PyKernel{make_cond(then.plan->program, otherwise.plan->program, inputs)};
      },
      nb::arg("then"), nb::arg("otherwise"), nb::arg("inputs"));
  def(m, "set_planner", [](nb::object function) {
    Py_XDECREF(planner);
    planner = function.release().ptr();
  });
  def(m, "program_counters", [] {
    nb::dict counters;
    counters["launches"] = Program::launches.load();
    counters["kernels"] = Program::kernels.load();
    counters["prepared"] = Program::prepared.load();
    counters["loop_misses"] = Loop::misses.load();
    return counters;
  });
  // Steps whose results hold NaN (1), or infinite elements, too (2), fail from now on; 0: none. Gives what it
  // was.
  def(m, "watch_nan", [](int what) { return NanWatch::set(what); });
  // From now on it is written down when steps run. False: it is already.
  def(m, "open_step_log", [] { return StepLog::open(); });
  // What was written down: (program, number, operators, line, device, thread, bytes, start_ns, end_ns) of
  // each step.
  def(m, "close_step_log", [] {
    nb::list found;
    for (const StepLog::Span& span : StepLog::close().spans) {
      const Program::Step& step = span.program->steps[span.step];
      found.append(nb::make_tuple(span.program->name, span.step, step.name, step.where,
                                  device_object(span.program->device), span.thread, span.bytes, span.start_ns,
                                  span.end_ns));
    }
    return found;
  });
  // Runs a kernel here and now; for tests of kernels by themselves.
  def(
      m, "run_kernel",
      [](const PyKernel& kernel, nb::sequence given, nb::bytes parameters) {
        const nb::tuple operands(given);
        const int count = kernel.kernel->operand_count();
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
        const TempSpace scratch(device, kernel.kernel->scratch_bytes(views.data()));
        RunContext context = outside_engine;
        context.device = device;
        kernel.kernel->run({views.data(), slots.data(), scratch.get(), context});
      },
      nb::arg("kernel"), nb::arg("operands"), nb::arg("parameters") = nb::bytes("", 0));
}

}  // namespace weft
