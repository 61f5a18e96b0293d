// execute.cpp: the kernels of a launched program, one after the other.
#include <algorithm>
#include <optional>
#include <stdexcept>

#include "engine/device_kind.h"
#include "engine/error.h"
#include "engine/late_checks.h"
#include "program/arena_check.h"
#include "program/control.h"
#include "program/late_steps.h"
#include "program/loop.h"
#include "program/nan_watch.h"
#include "program/prepacked.h"
#include "program/run.h"
#include "program/step_log.h"
#include "program/thread_loop.h"
#include "storage/runtime.h"
#include "tensor/staging.h"

namespace weft {
namespace {

// From the first element to behind the last; no stride is negative.
size_t extent_bytes(const View& x) {
  int64_t last = 0;
  for (int d = 0; d < x.ndim; ++d) {
    if (x.shape[d] == 0) return 0;
    last += (x.shape[d] - 1) * x.strides[d];
  }
  return static_cast<size_t>(last + 1) * size_of(x.dtype);
}

bool same_geometry(const View& a, const View& b) noexcept {
  return a.dtype == b.dtype && a.ndim == b.ndim && std::equal(a.shape, a.shape + a.ndim, b.shape) &&
         std::equal(a.strides, a.strides + a.ndim, b.strides);
}

}  // namespace

// Geometry, addresses and scratch memory of an exact program.
void Program::compute_layout() {
  auto layout = std::make_unique<Layout>(steps.size());
  Layout& p = *layout;
  std::vector<int64_t> numbers(static_cast<size_t>(registers) + 1);
  compute_registers({}, numbers.data());
  p.arena_size = arena_bytes < 0 ? 0 : static_cast<size_t>(numbers[static_cast<size_t>(arena_bytes)]);
  size_t room = 0;
  for (const Input& input : planned_inputs) room += 2 * input.shape.size();
  for (const Value& value : values) room += 2 * value.sizes.size();
  p.geometry.resize(room);
  int64_t* next = p.geometry.data();
  const auto add = [&](DType dtype, size_t ndim) {
    p.views.push_back({nullptr, dtype, static_cast<int>(ndim), next, next + ndim});
    next += 2 * ndim;
  };
  for (const Input& input : planned_inputs) {
    std::ranges::copy(input.shape, next);
    std::ranges::copy(input.strides, next + input.shape.size());
    add(input.dtype, input.shape.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = values[i];
    const size_t ndim = value.sizes.size();
    int64_t step = 1;
    for (size_t d = ndim; d-- > 0;) {
      next[d] = numbers[static_cast<size_t>(value.sizes[d])];
      next[ndim + d] = value.strides.empty() ? step : numbers[static_cast<size_t>(value.strides[d])];
      step *= std::max<int64_t>(next[d], 1);
    }
    add(value.dtype, ndim);
    const int number = inputs_ + static_cast<int>(i);
    if (value.kind == Value::Kind::temporary)
      p.addresses.push_back({number, -1, numbers[static_cast<size_t>(value.offset)]});
    else if (value.kind == Value::Kind::view)
      p.addresses.push_back(
          {number, value.base,
           numbers[static_cast<size_t>(value.offset)] * static_cast<int64_t>(size_of(value.dtype))});
  }
  for (size_t t = 0; t < steps.size(); ++t) {
    const Step& step = steps[t];
    p.most_operands = std::max(p.most_operands, step.operands.size());
    std::vector<View> operands;
    for (const int value : step.operands) operands.push_back(p.views[static_cast<size_t>(value)]);
    p.scratch_size = std::max(p.scratch_size, step.kernel->scratch_bytes(operands.data()));
    p.binds[t] = step.kernel->loop_form() != nullptr;
    p.copies[t] = step.is_copy && same_geometry(operands[0], operands[1]);
  }
  if (!hoisted.empty()) {
    std::vector<size_t> sizes;
    for (const View& view : p.views) sizes.push_back(extent_bytes(view));
    prepacker_ = std::make_unique<Prepacker>(*this, sizes);
  }
  layout_ = std::move(layout);
}

// Binds a step to its geometry. Several threads may do so at once; the first one's result is used.
const Bound* Program::bind(size_t t) const {
  const Layout& p = *layout_;
  std::vector<View> operands;
  for (const int value : steps[t].operands) operands.push_back(p.views[static_cast<size_t>(value)]);
  std::unique_ptr<Bound> bound = steps[t].kernel->bind(operands.data());
  const Bound* expected = nullptr;
  if (p.bound[t].compare_exchange_strong(expected, bound.get(), std::memory_order_acq_rel))
    return bound.release();
  return expected;
}

bool Program::bind_ahead(size_t step) const {
  if (step >= steps.size()) return false;
  if (layout_ && layout_->binds[step] && !layout_->bound[step].load(std::memory_order_acquire)) bind(step);
  return true;
}

// Whether inputs and outputs have the geometry that steps are bound to.
bool Program::matches_layout(const Run& run) const {
  const auto same = [](const Tensor& x, const View& planned) {
    if (x.ndim != planned.ndim) return false;
    for (int d = 0; d < x.ndim; ++d)
      if (x.shape[d] != planned.shape[d] || (x.shape[d] > 1 && x.strides[d] != planned.strides[d]))
        return false;
    return true;
  };
  for (int k = 0; k < inputs_; ++k)
    if (!run.inputs[k] || !same(*run.inputs[k], layout_->views[static_cast<size_t>(k)])) return false;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].value >= inputs_ &&
        !same(*run.outputs[j], layout_->views[static_cast<size_t>(outputs[j].value)]))
      return false;
  return true;
}

// What errors call a step.
std::string Program::name_of(const Step& step) const {
  return step.name == name ? name : step.name + " in " + name;
}

// The exception that is being handled, as an error of the step.
Ref<Error> Program::failure_of(const Step& step) const {
  const Ref<Error> error = error_from_current_exception();
  if (error->operation.empty()) {
    error->operation = name_of(step);
    error->where = step.where;
  }
  return error;
}

// Of the accesses of outputs, then of those of copies, as submit added them.
template <class Outcome>
void Program::set_outcomes(const Run& run, const RunContext& context, const Outcome& outcome) const {
  Access* access = const_cast<Op*>(context.op)->accesses();
  for (const Output& output : outputs)
    if (is_allocated(output)) access++->on_failure = outcome(output);
  for (const auto& [output, _] : run.copies) access++->on_failure = outcome(outputs[output]);
}

void Program::execute(const Run& run, const RunContext& context) const {
  kernels.fetch_add(steps.size() - hoisted.size(), std::memory_order_relaxed);
  if (DeviceBackend* backend = device.kind == DeviceKind::cpu ? nullptr : backend_of(device.kind))
      [[unlikely]]
    backend->kernels.fetch_add(steps.size() - hoisted.size(), std::memory_order_relaxed);
  if (is_copy) count_copy(run);
  if (!single_kernel_) return execute_steps(run, context);
  std::optional<Gate> gate;
  if (context.late && !context.late->empty() && context.op->heeds_gate) [[unlikely]]
    gate.emplace(*this, context, 0);
  try {
    run_alone(run, gate ? gate->context : context);
  } catch (...) {
    set_outcomes(run, context, [](const Output&) { return OnFailure::poison; });
    throw;
  }
  for (const auto& [output, to] : run.copies)
    if (gate && outputs[output].commits) [[unlikely]]
      gate->copy(gate->inherited, *run.outputs[output], *to);
    else
      copy_result(run, output, *to);
}

void Program::copy_result(const Run& run, size_t output, const Tensor& to) const {
  const Tensor& from = *run.outputs[output];
  copy_elements(to.view(), to.device(), from.view(), from.device());
}

// Several steps: the outputs of those that fail are poisoned, and the others are good.
void Program::execute_steps(const Run& run, const RunContext& context) const {
  std::optional<LateSteps> late;
  const size_t inherited = context.late ? context.late->size() : 0;
  if (context.late && (late_checks_ || (inherited && context.op->heeds_gate))) [[unlikely]]
    late.emplace(*this, context);
  StepFailures failures(*this, late ? &*late : nullptr);
  const RunContext& of_steps = late ? late->gate.context : context;
  try {
    run_steps(run, of_steps, failures);
  } catch (...) {  // it is not known what was written
    set_outcomes(run, context, [](const Output&) { return OnFailure::poison; });
    throw;
  }
  if (late && !failures && late->checks) [[unlikely]] {
    late->checks->set_accesses(run.copies);
    context.late->push_back(Ref<LateCheck>(late->checks.get()));
  }
  for (const auto& [output, to] : run.copies) {
    if (!failures.is_good(outputs[output])) continue;
    if (late && late->gate.context.findings && outputs[output].commits) [[unlikely]]
      late->copy_gated(outputs[output], *run.outputs[output], *to);
    else
      copy_result(run, output, *to);
  }
  if (!failures) return;
  for (size_t k = 0; k < inherited; ++k)  // what it would have inherited comes first
    if (Ref<Error> error = (*context.late)[k]->settle()) [[unlikely]] {
      set_outcomes(run, context, [](const Output& output) {
        return output.commits && output.writes >= 0 ? OnFailure::keep : OnFailure::poison;
      });
      throw TaskFailure{error};
    }
  set_outcomes(run, context, [&](const Output& output) { return failures.outcome(output); });
  failures.raise();
}

void Program::run_steps(const Run& run, const RunContext& context, StepFailures& failures) const {
  if (single_kernel_)
    run_alone(run, context);
  else if (layout_ && matches_layout(run))
    run_bound(run, context, failures);
  else
    run_unbound(run, context, failures);
}

// Counts the inputs that are copied between kinds of devices, for their counters.
void Program::count_copy(const Run& run) const {
  for (size_t k = 0; k < uses.size(); ++k)
    if (uses[k] == Use::data && run.inputs[k])
      weft::count_copy(device, run.inputs[k]->device(),
                       static_cast<uint64_t>(run.inputs[k]->size) * run.inputs[k]->itemsize());
}

// One kernel on the arrays as they come.
void Program::run_alone(const Run& run, const RunContext& context) const {
  Scratch<View, 8> operands(steps[0].operands.size());
  size_t next = 0;
  for (int k = 0; k < inputs_; ++k) operands[next++] = run.inputs[k]->view();
  for (size_t j = 0; j < outputs.size(); ++j) operands[next++] = run.outputs[j]->view();
  const Kernel& kernel = *steps[0].kernel;
  const TempSpace scratch(device, kernel.scratch_bytes(operands.get()), context.stream_number);
  StepLog::run(
      *this, 0, [&](size_t k) { return operands.get()[k]; },
      [&] { kernel.run({operands.get(), run.slots + steps[0].first_slot, scratch.get(), context}); });
  NanWatch::check(steps[0], context, [&](size_t k) { return operands.get()[k]; });
}

namespace {

void demand_own_arena(ArenaCheck& check, size_t step) {
  if (const int64_t byte = check.after(static_cast<int>(step)); byte >= 0)
    throw std::logic_error("wrote byte " + std::to_string(byte) + " of the arena, which is not its own");
}

}  // namespace

// Steps of known geometry: only addresses are put in.
void Program::run_bound(const Run& run, const RunContext& context, StepFailures& failures) const {
  const Layout& p = *layout_;
  Scratch<char*, 64> data(p.views.size());
  const auto at = [&](int value) -> char*& { return data[static_cast<size_t>(value)]; };
  for (int k = 0; k < inputs_; ++k) at(k) = run.inputs[k]->data;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (run.outputs && outputs[j].value >= inputs_) at(outputs[j].value) = run.outputs[j]->data;
  std::optional<Prepacker::Use> prepacked;
  if (prepacker_) {
    prepacked.emplace(*prepacker_, run.inputs);
    for (size_t k = 0; k < prepacker_->values().size(); ++k)
      at(prepacker_->values()[k].number) = prepacked->data(k);
  }
  const TempSpace space(device, p.arena_size + p.scratch_size, context.stream_number);
  char* const arena = space.get();
  for (const Layout::Address& address : p.addresses)
    at(address.value) = (address.base < 0 ? arena : at(address.base)) + address.offset;
  std::optional<ArenaCheck> arena_check;
  if (check && p.arena_size && !hidden_memory_of(device)) arena_check.emplace(spans, arena, p.arena_size);
  char* pointers[LoopPattern::kOperands];
  std::vector<View> views(p.most_operands);
  const auto operand = [&](size_t t, size_t k) {
    View x = p.views[static_cast<size_t>(steps[t].operands[k])];
    x.data = at(steps[t].operands[k]);
    return x;
  };
  const auto run_kernel = [&](size_t t) {
    const Step& step = steps[t];
    const size_t operands = step.operands.size();
    try {
      const Bound* bound = p.bound[t].load(std::memory_order_acquire);
      if (!bound && p.binds[t]) bound = bind(t);
      if (bound) {
        for (size_t k = 0; k < operands; ++k) pointers[k] = at(step.operands[k]);
        bound->run(pointers, run.slots + step.first_slot, context);
      } else {
        for (size_t k = 0; k < operands; ++k) views[k] = operand(t, k);
        step.kernel->run({views.data(), run.slots + step.first_slot, arena + p.arena_size, context});
      }
      NanWatch::check(step, context, [&](size_t k) { return operand(t, k); });
      if (arena_check) demand_own_arena(*arena_check, t);
    } catch (...) {
      throw TaskFailure{failure_of(step)};
    }
  };
  const auto run_step = [&](size_t t) {
    StepLog::run(*this, t, [&](size_t k) { return operand(t, k); }, [&] { run_kernel(t); });
  };
  for (size_t t = 0; t < hoisted.size(); ++t) {
    if (prepacked->needs_step(t)) {
      hoisted_kernels.fetch_add(1, std::memory_order_relaxed);
      kernels.fetch_add(1, std::memory_order_relaxed);
      run_step(t);
    } else if (arena_check) {
      arena_check->after(static_cast<int>(t));
    }
    if (run.after_hoisted) (*run.after_hoisted)(t);
  }
  if (prepacked) prepacked->publish();
  if (run.after_hoisted) return;
  // A copy of an array onto itself: the output is written in the memory of the input that it is copied from.
  const auto is_there = [&](size_t t) {
    return p.copies[t] && at(steps[t].operands[0]) == at(steps[t].operands[1]);
  };
  for (size_t t = hoisted.size(); t < steps.size(); ++t) {
    if (failures.skips(t)) continue;
    if (is_there(t)) {
      kernels.fetch_sub(1, std::memory_order_relaxed);
      if (arena_check) arena_check->after(static_cast<int>(t));
      continue;
    }
    try {
      run_step(t);
      failures.ran(t);
    } catch (const TaskFailure& failure) {
      if (arena_check) throw;  // which looks at every step
      failures.failed(t, failure.error);
    }
  }
}

void Program::run_apart(std::span<const Tensor* const> inputs,
                        const std::function<void(RunContext&)>& run) const {
  Engine& engine = Runtime::get().engine();
  const Ref<Chunk> done = Chunk::allocate({}, 1);  // only a variable to wait for
  std::vector<bool> is_written(inputs.size());
  for (const Output& output : outputs)
    if (output.writes >= 0) is_written[static_cast<size_t>(output.writes)] = true;
  std::vector<Var*> reads, writes{done.get()};
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k]->chunk) (is_written[k] ? writes : reads).push_back(inputs[k]->chunk.get());
  PushOptions options;
  options.device = device;
  options.name = name.c_str();
  options.queue = QueueKind::wide;
  engine.push([&](RunContext& context) { run(context); }, reads, writes, options);
  engine.wait_for_var(*done);
}

void Program::visit(std::span<const Tensor* const> inputs) const {
  std::vector<Tensor> results(outputs.size());
  std::vector<Tensor*> pointers;
  for (Tensor& x : results) pointers.push_back(&x);
  prepare(inputs, {}, pointers.data());
  const std::vector<::weft::Scalar> numbers(numbers_taken_, {.kind = ::weft::Scalar::Kind::real, .real = 0});
  std::vector<uint64_t> filled(slots.size() + 1);
  fill_slots(numbers, constant_registers_.data(), filled.data());
  const Run run{this, inputs.data(), pointers.data(), filled.data(), constant_registers_.data(), {}};
  run_apart(inputs, [&](RunContext& context) {
    StepFailures failures(*this);
    const Visit visiting;
    run_steps(run, context, failures);
    if (failures) failures.raise();
  });
}

void Program::prepack(std::span<const Tensor* const> inputs,
                      const std::function<void(size_t k)>& last_read) const {
  if (!prepacker_) return;
  // Of each input the hoisted step that reads it last; the number of hoisted steps: others read it, too.
  std::vector<size_t> last_steps(static_cast<size_t>(inputs_), hoisted.size());
  const auto input_of = [&](int value) {
    const int root = roots_[static_cast<size_t>(value)];
    return root < inputs_ ? &last_steps[static_cast<size_t>(root)] : nullptr;
  };
  for (size_t t = 0; t < steps.size(); ++t)
    for (const int operand : steps[t].operands)
      if (size_t* const last = input_of(operand)) *last = std::min(t, hoisted.size());
  for (const Output& output : outputs)
    if (size_t* const last = input_of(output.value)) *last = hoisted.size();
  std::vector<std::vector<size_t>> done_after(hoisted.size() + 1);
  for (size_t k = 0; k < last_steps.size(); ++k) done_after[last_steps[k]].push_back(k);
  const std::function<void(size_t)> after = [&](size_t t) {
    for (const size_t k : done_after[t]) last_read(k);
  };
  const Run run{this, inputs.data(), nullptr, constant_slots_.data(), constant_registers_.data(), {}, &after};
  run_apart(inputs, [&](RunContext& context) {
    StepFailures failures(*this);
    run_bound(run, context, failures);
  });
}

namespace {

// The sizes and strides of values inside of a program, and views of them, without data.
void write_geometry(const Program& program, const int64_t* registers, int64_t* next, View* views) {
  for (const Program::Value& value : program.values) {
    View& view = *views++;
    if (value.kind < Program::Value::Kind::temporary) continue;
    const size_t ndim = value.sizes.size();
    for (size_t d = 0; d < ndim; ++d) {
      next[d] = registers[value.sizes[d]];
      next[ndim + d] = registers[value.strides[d]];
    }
    view = {nullptr, value.dtype, static_cast<int>(ndim), next, next + ndim};
    next += 2 * ndim;
  }
}

}  // namespace

// Geometry is computed in registers. What others keep is made here for one run.
void Program::run_unbound(const Run& run, const RunContext& context, StepFailures& failures) const {
  const size_t count = static_cast<size_t>(inputs_) + values.size();
  Scratch<View, 24> views(count);
  for (int k = 0; k < inputs_; ++k)
    if (run.inputs[k]) views[static_cast<size_t>(k)] = run.inputs[k]->view();
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].value >= inputs_) views[static_cast<size_t>(outputs[j].value)] = run.outputs[j]->view();

  size_t inside = 0;
  for (const Value& value : values)
    if (value.kind >= Value::Kind::temporary) inside += 2 * value.sizes.size();
  Scratch<int64_t, 64> geometry(inside + 1);
  const auto arena_size = arena_bytes < 0 ? size_t{0} : static_cast<size_t>(run.registers[arena_bytes]);
  // Geometry first, with null data, so that kernels can say how much scratch they need.
  write_geometry(*this, run.registers, geometry.get(), views.get() + inputs_);
  Scratch<View, 16> operands(LoopPattern::kOperands > 16 ? 0 : 16);
  std::vector<View> many;
  const auto gather = [&](const Step& step) -> const View* {
    View* to = operands.get();
    if (step.operands.size() > 16) {
      many.resize(step.operands.size());
      to = many.data();
    }
    for (size_t k = 0; k < step.operands.size(); ++k) to[k] = views[static_cast<size_t>(step.operands[k])];
    return to;
  };
  size_t scratch_size = 0;
  for (const Step& step : steps)
    scratch_size = std::max(scratch_size, step.kernel->scratch_bytes(gather(step)));
  size_t size = in_lines(arena_size + scratch_size);
  std::vector<size_t> prepacked_offsets(prepacker_ ? values.size() : 0);
  for (size_t i = 0; i < prepacked_offsets.size(); ++i) {
    prepacked_offsets[i] = size;
    if (values[i].kind == Value::Kind::prepacked)
      size += in_lines(extent_bytes(views[static_cast<size_t>(inputs_) + i]));
  }
  const TempSpace space(device, size, context.stream_number);
  char* const arena = space.get();
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = values[i];
    View& view = views[static_cast<size_t>(inputs_) + i];
    if (value.kind == Value::Kind::prepacked)
      view.data = arena + prepacked_offsets[i];
    else if (value.kind == Value::Kind::temporary)
      view.data = arena + run.registers[value.offset];
    else if (value.kind == Value::Kind::view)
      view.data = views[static_cast<size_t>(value.base)].data +
                  run.registers[value.offset] * static_cast<int64_t>(size_of(value.dtype));
  }
  for (size_t t = 0; t < steps.size(); ++t) {
    if (failures.skips(t)) continue;
    const Step& step = steps[t];
    if (step.is_copy) {  // as in run_bound
      const View& from = views[static_cast<size_t>(step.operands[0])];
      const View& to = views[static_cast<size_t>(step.operands[1])];
      if (from.data == to.data && same_geometry(from, to)) {
        kernels.fetch_sub(1, std::memory_order_relaxed);
        continue;
      }
    }
    try {
      StepLog::run(
          *this, t, [&](size_t k) { return views[static_cast<size_t>(step.operands[k])]; },
          [&] {
            step.kernel->run({gather(step), run.slots + step.first_slot, arena + arena_size, context});
          });
      NanWatch::check(step, context, [&](size_t k) { return views[static_cast<size_t>(step.operands[k])]; });
      failures.ran(t);
    } catch (...) {
      failures.failed(t, failure_of(step));
    }
  }
}

}  // namespace weft
