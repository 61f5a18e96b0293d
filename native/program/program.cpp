// program.cpp: a program is finished once, and launched: outputs get memory, numbers their slots, and one
// operation is pushed. execute.cpp is what that operation does.
#include "program/program.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "program/loop.h"
#include "program/prepacked.h"
#include "program/run.h"
#include "storage/runtime.h"
#include "tensor/scalar.h"

namespace weft {
namespace {

constexpr size_t kBriefSteps = 4;    // programs of more are not brief
constexpr size_t kManyOutputs = 16;  // from here on Neighbours are worth sorting

// Counts the inputs that overlap an array, in logarithmic time: a program that writes hundreds of
// parameters would otherwise compare each with all.
class Neighbours {
 public:
  explicit Neighbours(std::span<const Tensor* const> inputs) {
    for (const Tensor* x : inputs) {
      if (!x) continue;
      const auto [begin, end] = addresses_of(x->view());
      if (begin == end) continue;
      begins_.push_back(begin);
      ends_.push_back(end);
    }
    std::sort(begins_.begin(), begins_.end());
    std::sort(ends_.begin(), ends_.end());
  }
  // Those that begin before its end, but for those that end before its beginning.
  int64_t count(const Tensor& x) const {
    const auto [begin, end] = addresses_of(x.view());
    return (std::lower_bound(begins_.begin(), begins_.end(), end) - begins_.begin()) -
           (std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  }

 private:
  std::vector<uintptr_t> begins_, ends_;
};

// Fresh memory of the shape of `like`, whose dimensions follow each other as its strides say; without gaps.
// Where elements are repeated there is no order to take: row-major.
Tensor empty_in_order(const Tensor& like, DType dtype, Device device) {
  Tensor x = Tensor::empty_like(like, dtype, device);
  if (like.contiguous()) return x;
  for (int d = 0; d < x.ndim; ++d) {
    if (like.strides[d] == 0 && like.shape[d] != 1) return x;
  }
  int order[kMaxDims];
  for (int d = 0; d < x.ndim; ++d) order[d] = d;
  std::stable_sort(order, order + x.ndim,
                   [&](int a, int b) { return std::abs(like.strides[a]) > std::abs(like.strides[b]); });
  int64_t step = 1;
  for (int i = x.ndim; i-- > 0;) {
    x.strides[order[i]] = step;
    step *= std::max<int64_t>(x.shape[order[i]], 1);
  }
  return x;
}

// An integer must fit the type that it is computed in.
Scalar checked(Scalar number, DType dtype) {
  if (!fits(number, dtype))
    throw std::overflow_error((number.kind == Scalar::Kind::integer
                                   ? std::to_string(number.integer)
                                   : std::to_string(number.unsigned_integer)) +
                              " is out of bounds for " + name_of(dtype));
  return number;
}

bool is_shared(const Tensor& x) noexcept {
  return x.chunk && x.chunk->shares.load(std::memory_order_seq_cst) != 0;
}

bool same_elements(const Tensor& a, const Tensor& b) noexcept {
  return a.data == b.data && a.dtype == b.dtype && std::ranges::equal(a.dims(), b.dims()) &&
         std::ranges::equal(a.steps(), b.steps());
}

}  // namespace

Program::Host Program::host{[]() noexcept { return Site{}; },
                            [](const Site&) noexcept { return std::string(); }, [](const Site&) noexcept {}};

// A Run with arrays of its own: what is queued outlives the call, whose arrays a Run only points to.
struct Program::QueuedRun {
  Ref<const Program> program;
  std::vector<Tensor> tensors;          // inputs, then outputs
  std::vector<const Tensor*> pointers;  // to them
  std::vector<uint64_t> slots;
  std::vector<int64_t> registers;
  std::vector<Tensor> written;
  std::vector<Copy> copies;  // to these
  Site site;

  ~QueuedRun() { host.drop(site); }
  // The one that the state of an operation points to.
  static QueuedRun* in(const void* state) noexcept { return *static_cast<QueuedRun* const*>(state); }
};

const TaskType Program::kRunType{
    [](void* state, RunContext& context) {
      const auto& run = *static_cast<const Run*>(state);
      run.program->execute(run, context);
    },
    [](void*) noexcept {},
    nullptr,
    [](const void* state) noexcept { return static_cast<const Run*>(state)->program->name; },
    [](const void*) noexcept {  // on the thread that launches, still there
      const Site site = host.here();
      std::string text = host.text(site);
      host.drop(site);
      return text;
    },
    nullptr,
    persist};

const TaskType Program::kQueuedType{
    [](void* state, RunContext& context) {
      const QueuedRun& queued = *QueuedRun::in(state);
      queued.program->execute(
          {queued.program.get(), queued.pointers.data(), queued.pointers.data() + queued.program->inputs_,
           queued.slots.data(),
           queued.program->exact ? queued.program->constant_registers_.data() : queued.registers.data(),
           queued.copies},
          context);
    },
    [](void* state) noexcept { delete QueuedRun::in(state); },
    nullptr,
    [](const void* state) noexcept { return QueuedRun::in(state)->program->name; },
    [](const void* state) noexcept { return host.text(QueuedRun::in(state)->site); },
    nullptr};

void Program::persist(Op& op) {
  const auto& run = *static_cast<const Run*>(op.state);
  const Program& program = *run.program;
  auto queued = std::make_unique<QueuedRun>();
  queued->program = Ref<const Program>(&program);
  queued->site = host.here();
  const auto count = static_cast<size_t>(program.inputs_);
  queued->tensors.reserve(count + program.outputs.size());
  for (size_t k = 0; k < count; ++k) queued->tensors.push_back(run.inputs[k] ? *run.inputs[k] : Tensor());
  for (size_t j = 0; j < program.outputs.size(); ++j) queued->tensors.push_back(*run.outputs[j]);
  for (const Tensor& tensor : queued->tensors) queued->pointers.push_back(&tensor);
  queued->written.reserve(run.copies.size());
  for (const auto& [output, to] : run.copies)
    queued->copies.push_back({output, &queued->written.emplace_back(*to)});
  queued->slots.assign(run.slots, run.slots + program.slots.size());
  if (program.needs_registers_ && !program.exact)
    queued->registers.assign(run.registers, run.registers + program.registers);
  op.retain_variables();
  // In the operation's own storage: the engine drops only what is there.
  op.state = op.storage;
  *reinterpret_cast<QueuedRun**>(op.storage) = queued.release();
  op.type = &kQueuedType;
}

Program::Program() = default;
Program::~Program() = default;

void Program::finish() {
  inputs_ = static_cast<int>(uses.size());
  if (!parts.empty()) {
    validate_parts();
    return finish_parts();
  }
  validate();
  classify();
  relate_outputs();
  plan_checks();
  compute_constants();
  if (exact && !single_kernel_) compute_layout();
}

void Program::classify() {
  for (const Slot& slot : slots)
    if (slot.from == Slot::From::number)
      numbers_taken_ = std::max(numbers_taken_, static_cast<size_t>(slot.index) + 1);
  needs_registers_ =
      std::ranges::any_of(slots, [](const Slot& s) { return s.from == Slot::From::reg; }) ||
      !randoms.empty() || arena_bytes >= 0 ||
      std::ranges::any_of(outputs, [](const Output& o) { return o.writes >= 0; }) ||
      std::ranges::any_of(values, [](const Value& v) { return v.kind != Value::Kind::output || v.like < 0; });
  single_kernel_ = steps.size() == 1 && arena_bytes < 0 &&
                   std::ranges::all_of(
                       values, [](const Value& v) { return v.kind == Value::Kind::output; }) &&
                   values.size() == outputs.size() &&
                   steps[0].operands.size() == uses.size() + outputs.size();
  for (size_t k = 0; single_kernel_ && k < steps[0].operands.size(); ++k)
    single_kernel_ = steps[0].operands[k] == static_cast<int>(k);
  for (size_t j = 0; single_kernel_ && j < outputs.size(); ++j)
    single_kernel_ = outputs[j].value == static_cast<int>(uses.size() + j);
  const auto is_loop = [](const Step& step) { return step.kernel->loop_form() != nullptr; };
  if (!wide && !is_copy && steps.size() <= kBriefSteps)
    brief_bytes_ = std::ranges::all_of(steps, is_loop) ? kBriefBytes : kBriefBytesOfKernels;
}

void Program::plan_checks() {
  if (!hidden_memory_of(device) || is_copy) return;
  for (const Step& step : steps) late_checks_ += step.kernel->late_checks();
  const Touches touches = find_touches();
  mark_updates(touches);
  if (late_checks_ && !(hoisted.empty() && gate_commits(touches))) late_checks_ = 0;  // they are waited for
  if (late_checks_ && !single_kernel_) relate_checks();
  is_enqueued_ = std::ranges::all_of(steps, [&](const Step& step) {
    return step.kernel->enqueues() || (late_checks_ && step.kernel->late_checks());
  });
}

// The steps that touch each root, in their order.
Program::Touches Program::find_touches() const {
  Touches touches(roots_.size());
  for (size_t t = 0; t < steps.size(); ++t) {
    const Step& step = steps[t];
    for (size_t k = 0; k < step.operands.size(); ++k) {
      const bool writes = std::ranges::find(step.written, static_cast<int>(k)) != step.written.end();
      touches[static_cast<size_t>(roots_[static_cast<size_t>(step.operands[k])])].push_back({t, writes});
    }
  }
  return touches;
}

// Finds the steps that write what a run that fails keeps: of an output all from the one on that makes it.
void Program::mark_updates(const Touches& touches) {
  updates_.assign(steps.size(), false);
  gated_.assign(steps.size(), false);
  bool has_updates = false, all_heed = hoisted.empty();
  for (const Output& output : outputs) {
    if (!output.commits || output.writes < 0 || output.value < inputs_) continue;
    has_updates = true;
    bool is_made = false;
    for (const auto& [t, writes] : touches[static_cast<size_t>(roots_[static_cast<size_t>(output.value)])]) {
      if (!writes || static_cast<int>(t) < output.step) continue;
      updates_[t] = true;
      all_heed = all_heed && steps[t].kernel->heeds_gate();
      is_made = is_made || static_cast<int>(t) == output.step;
    }
    all_heed = all_heed && is_made;
  }
  heeds_gate_ = has_updates && all_heed;
}

// Finds the steps that must not run in vain if a step before them notes a check: those that write what a run
// that fails keeps. All steps that write one of these have to come before or behind each check, so that they
// run all or none. False: that is not so, or the code of one does not look at checks.
bool Program::gate_commits(const Touches& touches) {
  may_fail_late_.assign(outputs.size(), true);
  std::vector<size_t> checks_before{0};  // of each step, how many steps note checks
  for (const Step& step : steps)
    checks_before.push_back(checks_before.back() + (step.kernel->late_checks() ? 1 : 0));
  for (size_t j = 0; j < outputs.size(); ++j) {
    const Output& output = outputs[j];
    if (!output.commits || output.writes < 0 || output.step < 0) continue;
    const auto first = static_cast<size_t>(output.step);
    const bool is_behind_check = checks_before[first] > 0;
    bool is_made = false;
    may_fail_late_[j] = false;
    for (const auto& [t, writes] : touches[static_cast<size_t>(roots_[static_cast<size_t>(output.value)])]) {
      if (steps[t].kernel->late_checks()) may_fail_late_[j] = true;
      if (t < first || !writes) continue;
      const bool is_split = checks_before[t] > checks_before[first];
      if (is_split || (is_behind_check && !steps[t].kernel->heeds_gate())) return false;
      is_made = is_made || t == first;
      gates_ = gates_ || is_behind_check;
      gated_[t] = gated_[t] || is_behind_check;
    }
    if (!is_made) return false;
  }
  return true;
}

void Program::relate_outputs() {
  // The steps that touch each value, directly or through views.
  const auto root = [&](int value) {
    while (value >= inputs_ && values[static_cast<size_t>(value - inputs_)].kind == Value::Kind::view)
      value = values[static_cast<size_t>(value - inputs_)].base;
    return value;
  };
  for (size_t v = 0; v < static_cast<size_t>(inputs_) + values.size(); ++v)
    roots_.push_back(root(static_cast<int>(v)));
  std::vector<std::vector<size_t>> touches(static_cast<size_t>(inputs_) + values.size());
  for (size_t t = 0; t < steps.size(); ++t)
    for (const int operand : steps[t].operands) {
      auto& uses_here = touches[static_cast<size_t>(root(operand))];
      if (uses_here.empty() || uses_here.back() != t) uses_here.push_back(t);
    }
  commits_.resize(steps.size());
  for (Output& output : outputs) {
    // The first step that touches an output makes it, alone or together with later ones.
    const auto& steps_of = touches[static_cast<size_t>(output.value)];
    if (output.value < inputs_ || steps_of.empty()) continue;
    const size_t first = steps_of.front();
    output.step = static_cast<int>(first);
    if (output.commits && output.writes >= 0) commits_[first] = true;
    const LoopForm* loop = steps[first].kernel->loop_form();
    output.in_place = loop && loop->row_axes == 0 && loop->elementwise();
    int in_place_of = -1;
    for (const auto& [from, to] : steps[first].in_place)
      if (to == output.value && from < inputs_ &&
          std::ranges::count_if(
              steps[first].operands, [&](int operand) { return root(operand) == from; }) == 1)
        in_place_of = from;
    for (int k = 0; k < inputs_; ++k) {
      const auto& readers = touches[static_cast<size_t>(k)];
      const bool harmless = output.in_place || k == in_place_of;
      if (!readers.empty() && readers.back() >= first + (harmless ? 1 : 0)) output.read_late.push_back(k);
    }
    output.in_place |= in_place_of >= 0;
    output.keeps_content = steps[first].is_copy && output.writes >= 0 && output.read_late.empty() &&
                           steps[first].operands[0] == output.writes &&
                           steps[first].operands[1] == output.value &&
                           touches[static_cast<size_t>(output.writes)].size() == 1;
    for (size_t t = first + 1; output.keeps_content && t < steps.size(); ++t)
      std::ranges::copy_if(steps[t].operands, std::back_inserter(output.touched),
                           [&](int operand) { return root(operand) == output.value; });
  }
}

void Program::compute_constants() {
  if (exact) {
    constant_registers_.resize(static_cast<size_t>(registers) + 1);
    compute_registers({}, constant_registers_.data());
  }
  constant_slots_.resize(slots.size() + 1);
  for (size_t s = 0; s < slots.size(); ++s) {
    const Slot& slot = slots[s];
    const bool is_constant = slot.from == Slot::From::constant || (exact && slot.from == Slot::From::reg);
    if (!is_constant)
      call_slots_.push_back(s);
    else
      store(reinterpret_cast<char*>(&constant_slots_[s]), slot.dtype,
            slot.from == Slot::From::constant
                ? ::weft::Scalar{.kind = ::weft::Scalar::Kind::real, .real = slot.value}
                : ::weft::Scalar{.kind = ::weft::Scalar::Kind::integer,
                                 .integer = constant_registers_[static_cast<size_t>(slot.index)]});
  }
}

void Program::compute_registers(std::span<const Tensor* const> inputs, int64_t* registers_) const {
  for (const auto& [reg, value] : constants) registers_[reg] = value;
  for (const Load& load : loads) {
    int64_t value = 1;
    if (load.from == Load::From::stride) {
      value = inputs[static_cast<size_t>(load.input)]->strides[load.dimension];
    } else if (load.from == Load::From::extent) {
      value = inputs[static_cast<size_t>(load.input)]->shape[load.dimension];
    } else {
      for (const Tensor* x : inputs) {
        if (!x || load.dimension >= x->ndim) continue;
        value = x->shape[x->ndim - 1 - load.dimension];
        if (value != 1) break;
      }
    }
    registers_[load.reg] = value;
  }
  bool wraps = false;  // of sizes of views, which no memory bounds
  for (const Compute& c : computes) {
    const int64_t a = registers_[c.a], b = registers_[c.b];
    switch (c.what) {
      case Compute::What::add:
        wraps |= __builtin_add_overflow(a, b, &registers_[c.reg]);
        break;
      case Compute::What::sub:
        wraps |= __builtin_sub_overflow(a, b, &registers_[c.reg]);
        break;
      case Compute::What::mul:
        wraps |= __builtin_mul_overflow(a, b, &registers_[c.reg]);
        break;
      case Compute::What::div:
        registers_[c.reg] = b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    }
  }
  if (wraps) throw ShapeError("shape: " + name + " makes sizes or strides that do not fit 64 bits");
}

bool Program::has_results(std::span<const Tensor* const> inputs) const {
  Scratch<int64_t, 64> computed(static_cast<size_t>(registers));
  compute_registers(inputs, computed.get());
  return std::ranges::all_of(outputs, [&](const Output& output) {
    const int value = output.value - inputs_;
    return value < 0 || std::ranges::all_of(
                            values[static_cast<size_t>(value)].sizes,
                            [&](int size) { return computed[static_cast<size_t>(size)] > 0; });
  });
}

bool Program::shape_fits(const Value& value, const Tensor& x, const int64_t* registers_) const {
  if (static_cast<size_t>(x.ndim) != value.sizes.size()) return false;
  for (size_t d = 0; d < value.sizes.size(); ++d)
    if (registers_[value.sizes[d]] != x.shape[d]) return false;
  return true;
}

Tensor Program::make_output(const Value& value, std::span<const Tensor* const> inputs,
                            const int64_t* registers_) const {
  if (value.like >= 0)
    return empty_in_order(*inputs[static_cast<size_t>(value.like)], value.dtype, value.device);
  int64_t shape[kMaxDims], strides[kMaxDims];
  const size_t ndim = value.sizes.size();
  for (size_t d = 0; d < ndim; ++d) shape[d] = registers_[value.sizes[d]];
  const Dims dims{shape, ndim};
  if (value.kind == Value::Kind::view) {
    for (size_t d = 0; d < ndim; ++d) strides[d] = registers_[value.strides[d]];
    const Tensor& base = *inputs[static_cast<size_t>(value.base)];
    const int64_t offset = registers_[value.offset] * static_cast<int64_t>(base.itemsize());
    auto* first = base.data == nullptr ? nullptr : base.data + offset;  // without elements there is no memory
    return base.as_strided(first, dims, {strides, ndim});
  }
  Tensor x = Tensor::empty(dims, value.dtype, value.device);
  for (size_t d = 0; d < value.strides.size(); ++d) x.strides[d] = registers_[value.strides[d]];
  return x;
}

// Whether the step that makes the output may write it to the destination: nothing is lost that is still to be
// read. apart: but for the input that is written, none overlaps the destination.
bool Program::may_write(const Output& output, const Tensor& destination,
                        std::span<const Tensor* const> inputs, const int64_t* registers_, bool apart) const {
  if (output.step < 0) return false;
  if (!output.flexible) {
    const Value& value = values[static_cast<size_t>(output.value - inputs_)];
    if (value.strides.empty()) return false;
    for (int d = 0; d < destination.ndim; ++d)
      if (destination.shape[d] > 1 &&
          destination.strides[d] != registers_[value.strides[static_cast<size_t>(d)]])
        return false;
  }
  for (const int k : output.read_late) {
    const Tensor* x = inputs[static_cast<size_t>(k)];
    if (apart ? k == output.writes : x && may_overlap(destination.view(), x->view())) return false;
  }
  if (!output.in_place) return true;
  for (const int operand : steps[static_cast<size_t>(output.step)].operands) {
    if (operand >= inputs_) {  // a view of an input is not looked at closely
      const Value& value = values[static_cast<size_t>(operand - inputs_)];
      if (value.kind != Value::Kind::view || value.base >= inputs_) continue;
      if (may_overlap(destination.view(), inputs[static_cast<size_t>(value.base)]->view())) return false;
      continue;
    }
    const Tensor& x = *inputs[static_cast<size_t>(operand)];
    if (!same_elements(destination, x) && may_overlap(destination.view(), x.view())) return false;
  }
  return true;
}

// What steps touch of an output that is written in the memory of an input, whose content it keeps otherwise.
int64_t Program::bytes_in_place(const Output& output, const int64_t* registers_) const {
  int64_t bytes = 0;
  for (const int touched : output.touched) {
    const Value& value = values[static_cast<size_t>(touched - inputs_)];
    int64_t size = static_cast<int64_t>(size_of(value.dtype));
    for (const int reg : value.sizes) size *= registers_[reg];
    bytes += size;
  }
  return bytes;
}

// Where an output is to be written: the input that it is the new content of, or what the caller gave.
const Tensor* Program::destination_of(size_t j, std::span<const Tensor* const> inputs,
                                      std::span<const Tensor* const> destinations) const {
  if (outputs[j].writes >= 0) return inputs[static_cast<size_t>(outputs[j].writes)];
  return j < destinations.size() ? destinations[j] : nullptr;
}

// What a launch finds out on its way.
struct Program::LaunchState {
  std::span<const Tensor* const> inputs, destinations;
  Tensor* const* results;
  const int64_t* registers;
  int64_t bytes = 0;   // that are read and written
  uint64_t fresh = 0;  // bit j: output j has memory of its own, which nothing else refers to
  std::vector<Copy> copies{},
      copied_later{};  // of outputs to their destinations: by this operation, by others
};

void Program::launch(std::span<const Tensor* const> inputs, std::span<const Scalar> numbers,
                     std::span<const Tensor* const> destinations, Tensor* const* results) const {
  if (!parts.empty()) return launch_parts(inputs, numbers, destinations, results);
  if (is_copy) [[unlikely]] {
    std::vector<Tensor> ordered;
    if (order_for_copy(inputs, ordered)) {
      std::vector<const Tensor*> pointers;
      for (size_t k = 0; k < inputs.size(); ++k) pointers.push_back(inputs[k] ? &ordered[k] : nullptr);
      return launch(pointers, numbers, destinations, results);
    }
  }
  launches.fetch_add(1, std::memory_order_relaxed);
  Scratch<int64_t, 48> computed(exact ? 0 : static_cast<size_t>(registers) + 1);
  if (!exact && (needs_registers_ || !destinations.empty())) compute_registers(inputs, computed.get());
  LaunchState call{inputs, destinations, results, exact ? constant_registers_.data() : computed.get()};
  for (size_t k = 0; k < inputs.size(); ++k)
    if (uses[k] == Use::data) call.bytes += inputs[k]->size * static_cast<int64_t>(inputs[k]->itemsize());
  allocate_outputs(call);
  if (!steps.empty()) {
    if (call_slots_.empty() && randoms.empty()) {
      submit(call, constant_slots_.data());
    } else {
      Scratch<uint64_t, 16> filled(slots.size() + 1);
      fill_slots(numbers, call.registers, filled.get());
      submit(call, filled.get());
    }
  }
  for (const auto& [output, to] : call.copied_later) {
    push_copy(*to, *results[output]);
    *results[output] = *to;
  }
}

// What a copy from another device reads, row by row; false: it is so already, or nothing can bring it there.
bool Program::order_for_copy(std::span<const Tensor* const> inputs, std::vector<Tensor>& ordered) const {
  bool is_changed = false;
  for (size_t k = 0; k < inputs.size(); ++k) {
    ordered.push_back(inputs[k] ? *inputs[k] : Tensor());
    if (uses[k] != Use::data) continue;
    ordered.back() = ordered_for_copy(*inputs[k], device);
    is_changed = is_changed || ordered.back().chunk != inputs[k]->chunk;
  }
  return is_changed;
}

// Each output gets the input that it passes on, its destination if its step may write there, or new memory.
void Program::allocate_outputs(LaunchState& call) const {
  const auto& inputs = call.inputs;
  Tensor* const* const results = call.results;
  const int64_t* const registers_ = call.registers;
  const Neighbours neighbours(outputs.size() >= kManyOutputs ? inputs : std::span<const Tensor* const>());
  for (size_t j = 0; j < outputs.size(); ++j) {
    const Output& output = outputs[j];
    if (output.value < inputs_) {
      *results[j] = *inputs[static_cast<size_t>(output.value)];
      continue;
    }
    const Value& value = values[static_cast<size_t>(output.value - inputs_)];
    const Tensor* destination = destination_of(j, inputs, call.destinations);
    if (destination) {
      check_writable(*destination, name.c_str());
      const bool fits = destination->dtype == value.dtype && shape_fits(value, *destination, registers_);
      const bool apart =
          outputs.size() >= kManyOutputs && neighbours.count(*destination) == (output.writes >= 0);
      if (fits && may_write(output, *destination, inputs, registers_, apart)) {
        *results[j] = *destination;
        const int64_t bytes = destination->size * static_cast<int64_t>(destination->itemsize());
        call.bytes += output.keeps_content ? bytes_in_place(output, registers_) - bytes : bytes;
        continue;
      }
    }
    *results[j] = make_output(value, inputs, registers_);
    if (destination) {
      const bool by_this_operation = value.kind == Value::Kind::output && !steps.empty() &&
                                     destination->size != 0 && destination->device() == device &&
                                     std::ranges::equal(destination->dims(), results[j]->dims());
      (by_this_operation ? call.copies : call.copied_later).push_back({j, destination});
      call.bytes += destination->size * static_cast<int64_t>(destination->itemsize());
    }
    if (value.kind == Value::Kind::output && j < 64) call.fresh |= uint64_t{1} << j;
    if (value.kind != Value::Kind::view)
      call.bytes += results[j]->size * static_cast<int64_t>(results[j]->itemsize());
  }
}

// The numbers of kernels: known ones, those of this call, and what it takes of the random stream.
void Program::fill_slots(std::span<const Scalar> numbers, const int64_t* registers_, uint64_t* filled) const {
  std::ranges::copy(constant_slots_, filled);
  for (const size_t s : call_slots_) {
    const Slot& slot = slots[s];
    if (slot.from == Slot::From::random) continue;
    Scalar value{Scalar::Kind::integer, {}};
    if (slot.from == Slot::From::number)
      value = checked(numbers[static_cast<size_t>(slot.index)], slot.dtype);
    else
      value.integer = registers_[static_cast<size_t>(slot.index)];
    store(reinterpret_cast<char*>(&filled[s]), slot.dtype, value);
  }
  for (const Random& random : randoms) {
    const Reservation reservation = Runtime::get().generator(device).reserve(
        blocks_for(random.kind, random.dtype, registers_[static_cast<size_t>(random.count)]));
    uint64_t* const first = filled + random.first_slot;
    first[0] = reservation.key;
    first[1] = reservation.stream;
    first[2] = reservation.offset;
  }
}

// Pushes the operation that runs the steps.
void Program::submit(const LaunchState& call, const uint64_t* filled) const {
  const auto& inputs = call.inputs;
  Tensor* const* const results = call.results;
  Run run{this, inputs.data(), results, filled, call.registers, call.copies};
  Op* op = new_op(inputs.size() + outputs.size() + call.copies.size());
  const auto on_failure = [](const Output& output) {
    return output.commits && output.writes >= 0 ? OnFailure::keep : OnFailure::poison;
  };
  for (size_t j = 0; j < outputs.size(); ++j) {
    const Output& output = outputs[j];
    if (!is_allocated(output)) continue;
    Chunk* chunk = results[j]->chunk.get();
    if (j < 64 && call.fresh >> j & 1) {
      op->add(chunk, Mode::overwrite);
      continue;
    }
    chunk->count_write();
    op->add(chunk, results[j]->covers_chunk() ? Mode::overwrite : Mode::write, on_failure(output));
  }
  for (const auto& [output, to] : call.copies) {
    to->chunk->count_write();
    op->add(to->chunk.get(), to->covers_chunk() ? Mode::overwrite : Mode::write, on_failure(outputs[output]));
  }
  for (size_t k = 0; k < inputs.size(); ++k)
    if (uses[k] == Use::data && inputs[k]->chunk) op->add(inputs[k]->chunk.get(), Mode::read);
  PushOptions options;
  options.device = device;
  options.name = name.c_str();
  options.size_bytes = static_cast<uint64_t>(call.bytes);
  if (is_copy)
    options.queue = QueueKind::copy;
  else if (!is_enqueued_ && (wide || call.bytes >= kWideBytes))
    options.queue = QueueKind::wide;
  op->cheap = is_enqueued_ || (!wide && call.bytes <= kCheapBytes);
  op->only_enqueues = is_enqueued_;
  if (is_enqueued_ && heeds_gate_) [[unlikely]]
    op->heeds_gate = std::any_of(op->accesses(), op->accesses() + op->access_count,
                                 [](const Access& a) { return a.on_failure == OnFailure::keep; });
  op->brief = call.bytes <= brief_bytes_;
  op->type = &kRunType;
  op->state = &run;
  Runtime::get().engine().submit(op, options);
  for (const auto& [output, to] : call.copies) *results[output] = *to;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (uses[k] == Use::data && is_shared(*inputs[k])) settle_shared({inputs[k]->chunk.get()});
  for (size_t j = 0; j < outputs.size(); ++j)
    if (is_shared(*results[j])) settle_shared({results[j]->chunk.get()});
}

void Program::prepare(std::span<const Tensor* const> inputs, std::span<const Tensor* const> destinations,
                      Tensor* const* results) const {
  Scratch<int64_t, 48> registers_(static_cast<size_t>(registers) + 1);
  if (needs_registers_ || !destinations.empty()) compute_registers(inputs, registers_.get());
  for (size_t j = 0; j < outputs.size(); ++j) {
    const Output& output = outputs[j];
    if (output.value < inputs_) {
      *results[j] = *inputs[static_cast<size_t>(output.value)];
      continue;
    }
    if (const Tensor* destination = destination_of(j, inputs, destinations)) {
      check_writable(*destination, name.c_str());
      destination->chunk->count_write();
      *results[j] = *destination;
    } else {
      *results[j] =
          make_output(values[static_cast<size_t>(output.value - inputs_)], inputs, registers_.get());
    }
  }
}

}  // namespace weft
