// tape.cpp: recording calls; the way back is backward.cpp.
#include "calls/tape.h"

#include <algorithm>
#include <unordered_map>

#include "engine/device_kind.h"
#include "program/kernel.h"
#include "program/scratch.h"

namespace weft {

Tracked::Tracked() noexcept = default;
Tracked::Tracked(Tensor&& x) noexcept : tensor(std::move(x)) {}
Tracked::Tracked(Tensor&& x, Ref<TapeNode> explains, uint32_t which) noexcept
    : tensor(std::move(x)), node(std::move(explains)), index(which) {}
Tracked::Tracked(const Tracked&) noexcept = default;
Tracked::Tracked(Tracked&&) noexcept = default;
Tracked& Tracked::operator=(Tracked other) noexcept {
  tensor = std::move(other.tensor);
  node = std::move(other.node);
  index = other.index;
  stopped = other.stopped;
  return *this;
}
Tracked::~Tracked() = default;

namespace {

uint64_t last_number = 0;

// Where memory that some node has saved was overwritten; the latest of each, a bounded number of them.
std::unordered_map<const Chunk*, Site> overwritten_at;

// y: as x, but without memory.
void put_geometry(const Tensor& x, Tensor& y) {
  y.size = x.size;
  y.dtype = x.dtype;
  y.ndim = x.ndim;
  std::copy_n(x.shape, x.ndim, y.shape);
  std::copy_n(x.strides, x.ndim, y.strides);
}

bool is_differentiable(const Tensor& x) noexcept { return is_differentiable(x.dtype); }

// The module of a call that is being recorded. While a trace is recorded, it is found in the frames of the
// language.
uint32_t noted_module() {
  const Context& here = context();
  return here.module || !here.recorder ? here.module : host::module_of_call();
}

// The recorder that launches are reported to.
LaunchRecorder& current() noexcept { return static_cast<LaunchRecorder&>(*context().recorder); }

// Whether usual_cotangents would give these.
bool are_usual(const std::vector<bool>& has_cotangent, const Plan& plan) {
  for (size_t j = 0; j < has_cotangent.size(); ++j)
    if (has_cotangent[j] != has_usual_cotangent(plan, j)) return false;
  return true;
}

// Which of the plan's `backwards` has the gradients of `needs_gradient` where the usual ones come in; made if
// it is not there. A call that was recorded before finds it without allocating.
size_t usual_backward_of(const Ref<Plan>& plan, const Bits& needs_gradient) {
  const auto find = [&] {
    return std::ranges::find_if(plan->backwards, [&](const Plan::Backward& backward) {
      return backward.needs_gradient == needs_gradient && are_usual(backward.has_cotangent, *plan);
    });
  };
  auto it = find();
  if (it == plan->backwards.end()) {
    backward_of(plan, needs_gradient, usual_cotangents(*plan));
    it = find();
  }
  return static_cast<size_t>(it - plan->backwards.begin());
}

// Remembers a call. Its outputs are in `results`.
void record(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
            std::span<const uint32_t> versions, std::span<Tracked> results) {
  Bits needs_gradient;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k]->node && is_differentiable(inputs[k]->tensor)) needs_gradient.set(k);
  const bool differentiable =
      std::ranges::any_of(results, [](const Tracked& y) { return is_differentiable(y.tensor); });
  if (!needs_gradient.any() || !differentiable) return;
  const size_t number = usual_backward_of(plan, needs_gradient);
  const Ref<Plan> backward = plan->backwards[number].plan;
  if (!backward) return;

  auto node = TapeNode::make();
  node->kind = TapeNode::Kind::plan;
  node->number = ++last_number;
  node->plan = plan;
  node->backward = backward;
  node->site = Site::here();
  node->context = noted_module();
  node->numbers.assign(numbers.begin(), numbers.end());
  const size_t count = inputs.size() + results.size();
  node->saved.reserve(count);
  node->versions.reserve(count);
  const auto& uses = backward->program->uses;
  const auto save = [&](const Tracked& from, size_t position, uint32_t version) {
    const Tensor& x = from.tensor;
    if (is_stopped(from)) {
      node->epoch = context().stop_epoch;
      node->stopped.set(position);
    }
    const bool read = uses[position] >= Program::Use::aliased;
    if (read) x.chunk->saved.store(true, std::memory_order_relaxed);
    if (read)
      node->saved.push_back(x);
    else
      put_geometry(x, node->saved.emplace_back());
    node->versions.push_back(version);
  };
  node->edges.resize(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    save(*inputs[k], k, versions[k]);
    node->edges[k] = {inputs[k]->node, inputs[k]->index};
    node->runs_python |= inputs[k]->node && inputs[k]->node->runs_python;
  }
  for (size_t j = 0; j < results.size(); ++j) {
    const uint32_t version = results[j].tensor.chunk->writes.load(std::memory_order_relaxed);
    save(results[j], inputs.size() + j, version);
  }
  for (size_t j = 0; j < results.size(); ++j) {
    if (!plan->backwards[number].has_cotangent[j] || !is_differentiable(results[j].tensor)) continue;
    if (!backward->with_history.empty() && !backward->with_history[j]) continue;
    results[j].node = node;
    results[j].index = static_cast<uint32_t>(j);
  }
}

}  // namespace

bool has_usual_cotangent(const Plan& plan, size_t output) noexcept {
  return output < static_cast<size_t>(plan.visible) ||
         std::ranges::any_of(plan.writes, [&](const auto& written) { return written.first == output; });
}

std::vector<bool> usual_cotangents(const Plan& plan) {
  std::vector<bool> has_cotangent(plan.program->outputs.size());
  for (size_t j = 0; j < has_cotangent.size(); ++j) has_cotangent[j] = has_usual_cotangent(plan, j);
  return has_cotangent;
}

bool is_alias(const Program& program, size_t output) {
  const auto count = static_cast<int>(program.uses.size());
  const int value = program.outputs[output].value;
  return value < count ||
         program.values[static_cast<size_t>(value - count)].kind == Program::Value::Kind::view;
}

Ref<Plan> recorded_form(const Ref<Plan>& plan) {
  if (!plan->many) return plan->recorded ? plan->recorded : plan;
  auto [recorded, writes] = host::plan_recording(*plan);
  if (recorded) plan->recorded = recorded;
  const Ref<Plan> form = recorded ? recorded : plan;
  form->writes = std::move(writes);
  form->many = plan->many = false;
  return form;
}

Ref<Plan> backward_of(const Ref<Plan>& plan, const Bits& needs_gradient,
                      const std::vector<bool>& has_cotangent) {
  for (const Plan::Backward& cached : plan->backwards)
    if (cached.needs_gradient == needs_gradient && cached.has_cotangent == has_cotangent) return cached.plan;
  std::vector<bool> flags(plan->program->uses.size());
  for (size_t k = 0; k < flags.size(); ++k) flags[k] = needs_gradient.test(k);
  const Ref<Plan> backward = host::plan_backward(*plan, flags, has_cotangent);
  plan->backwards.push_back({needs_gradient, has_cotangent, backward});
  return backward;
}

namespace {

// Nodes whose vectors keep their room for the next ones; never destroyed, as the interpreter ends before.
constexpr size_t kSpareNodes = 256;
std::vector<TapeNode*>& spare_nodes() {
  static auto* const nodes = new std::vector<TapeNode*>;
  return *nodes;
}

}  // namespace

Ref<TapeNode> TapeNode::make() {
  std::vector<TapeNode*>& spare = spare_nodes();
  if (spare.empty()) return make_ref<TapeNode>();
  Ref<TapeNode> node(spare.back());
  spare.pop_back();
  return node;
}

int TapeNode::visit_functions(const Ref<TapeNode>& from, int (*visit)(_object* function, void* arg),
                              void* arg) {
  std::vector<const TapeNode*> open;
  std::unordered_map<const TapeNode*, uint32_t> met;  // from nodes that only `from` keeps
  const auto enter = [&](const Ref<TapeNode>& node) {
    if (!node || !node->runs_python) return;
    const uint32_t all = node->references();
    if (all == 1 || ++met[node.get()] == all) open.push_back(node.get());
  };
  for (enter(from); !open.empty();) {
    const TapeNode* const node = open.back();
    open.pop_back();
    if (node->function)
      if (const int stop = visit(node->function, arg)) return stop;
    for (const Edge& edge : node->edges) enter(edge.node);
  }
  return 0;
}

void TapeNode::clear() noexcept {
  release_later(std::exchange(function, nullptr));
  kind = Kind::leaf;
  runs_python = false;
  number = 0;
  plan = backward = {};
  edges.clear();
  saved.clear();
  versions.clear();
  epoch = 0;
  stopped = {};
  numbers.clear();
  outputs.clear();
  devices.clear();
  site = {};
  context = 0;
}

void TapeNode::dispose() const noexcept {
  // Nodes whose last reference goes while another one ends wait here, instead of on the stack.
  static auto* const waiting = new std::vector<TapeNode*>;
  static bool ending = false;
  waiting->push_back(const_cast<TapeNode*>(this));
  if (std::exchange(ending, true)) return;
  while (!waiting->empty()) {
    TapeNode* const node = waiting->back();
    waiting->pop_back();
    node->clear();
    if (spare_nodes().size() < kSpareNodes)
      spare_nodes().push_back(node);
    else
      delete node;
  }
  ending = false;
}

namespace {

// What is written down under no_grad, or of what left the history, has none: views of it are noted as such.
// Other results are what the program's stop-gradients say.
void note_stopped_views(const Program& program, std::span<const Tracked* const> inputs,
                        std::span<Tracked> results) {
  for (size_t j = 0; j < results.size(); ++j) {
    if (!is_alias(program, j)) continue;
    const bool stopped = stopping() || std::ranges::any_of(inputs, [&](const Tracked* x) {
                           return is_stopped(*x) && x->tensor.chunk.get() == results[j].tensor.chunk.get();
                         });
    if (stopped) results[j].stopped = context().stop_epoch;
  }
}

void note_read(std::span<const Tracked* const> inputs) {
  for (const Tracked* x : inputs)
    if (x->node && x->node->number <= context().noting->back().before && is_differentiable(x->tensor))
      context().noting->back().nodes.push_back(x->node.get());
}

void run_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
              std::span<const Tensor* const> destinations, std::span<Tracked> results, bool records,
              Context& here);

}  // namespace

void call_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
               std::span<const Tensor* const> destinations, std::span<Tracked> results, Context& here) {
  bool tracked = false;
  for (const Tracked* x : inputs) tracked |= static_cast<bool>(x->node);
  const bool records = tracked && here.is_recording();
  if (here.noting && tracked && !records) note_read(inputs);
  if (!records || (!plan->many && !plan->recorded)) {
    run_plan(plan, inputs, numbers, destinations, results, records, here);
    return;
  }
  const Ref<Plan> form = recorded_form(plan);
  std::vector<Tracked> all(form->program->outputs.size());
  run_plan(form, inputs, numbers, destinations, all, true, here);
  std::move(all.begin(), all.begin() + static_cast<ptrdiff_t>(results.size()), results.begin());
}

namespace {

void run_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
              std::span<const Tensor* const> destinations, std::span<Tracked> results, bool records,
              Context& here) {
  Scratch<const Tensor*, 8> tensors(inputs.size());
  Scratch<Tensor*, 8> outputs(results.size());
  for (size_t k = 0; k < inputs.size(); ++k) tensors[k] = &inputs[k]->tensor;
  for (size_t j = 0; j < results.size(); ++j) outputs[j] = &results[j].tensor;
  // What is written in place by the call itself must be found overwritten later: versions of before.
  Scratch<uint32_t, 8> versions(records ? inputs.size() : 0);
  for (size_t k = 0; records && k < inputs.size(); ++k) {
    const Chunk* chunk = inputs[k]->tensor.chunk.get();
    versions[k] = chunk ? chunk->writes.load(std::memory_order_relaxed) : 0;
  }
  if (here.recorder) {
    bool left_out = false;
    if (here.recorder->defers()) {
      plan->program->prepare({tensors.get(), inputs.size()}, destinations, outputs.get());
      left_out = current().on_launch(*plan, inputs, numbers, results);
    }
    if (!left_out) {
      const Unobserved quiet;
      plan->program->launch({tensors.get(), inputs.size()}, numbers, destinations, outputs.get());
    }
    if (!here.recorder->defers()) current().on_launch(*plan, inputs, numbers, results);
    if (here.stop_epoch) note_stopped_views(*plan->program, inputs, results);
  } else {
    plan->program->launch({tensors.get(), inputs.size()}, numbers, destinations, outputs.get());
  }
  if (records) record(plan, inputs, numbers, {versions.get(), inputs.size()}, results);
}

}  // namespace

KeptCounts::KeptCounts(std::span<const Tracked* const> inputs, std::span<const Tensor* const> destinations)
    : outer_(std::exchange(context().counted_writes, &counted_)) {
  for (const Tracked* x : inputs) chunks_.push_back(x->tensor.chunk);
  for (const Tensor* x : destinations) chunks_.push_back(x->chunk);
}
KeptCounts::~KeptCounts() {
  context().counted_writes = outer_;
  std::ranges::sort(
      counted_);  // chunks that the launch made may have gone: only those that are kept are touched
  for (const Ref<Chunk>& chunk : chunks_) {
    const auto [first, last] = std::ranges::equal_range(counted_, chunk.get());
    if (!chunk || first == last) continue;
    chunk->writes.fetch_sub(static_cast<uint32_t>(last - first), std::memory_order_relaxed);
    counted_.erase(first, last);
  }
}

void note_overwriting(const Tensor& x) {
  if (!x.chunk->saved.load(std::memory_order_relaxed)) return;
  if (overwritten_at.size() > 4096) overwritten_at.clear();
  overwritten_at[x.chunk.get()] = Site::here();
}

Tensor filled(const Tensor& like, Device device, int64_t value) {
  Tensor x = Tensor::empty(like.dims(), like.dtype, device);
  Scalar number{Scalar::Kind::integer, {}};
  number.integer = value;
  push_fill(x, number);
  return x;
}

void check_cotangent(const Tensor& cotangent, const Tensor& of, Device device, const std::string& function,
                     const std::string& what, const std::string& where) {
  if (std::ranges::equal(cotangent.dims(), of.dims()) && cotangent.dtype == of.dtype &&
      cotangent.device() == device)
    return;
  const std::string names =
      function + ": " + what + " is " + describe(of) + ", its gradient " + describe(cotangent) + where;
  if (!std::ranges::equal(cotangent.dims(), of.dims())) throw ShapeError(names);
  if (cotangent.dtype != of.dtype) throw DTypeError(names);
  throw DeviceError(names);
}

const Site* overwriting_of(const Chunk* chunk) noexcept {
  const auto it = overwritten_at.find(chunk);
  return it == overwritten_at.end() ? nullptr : &it->second;
}

Ref<TapeNode> watch(Tracked& x) {
  if (!is_differentiable(x.tensor))
    throw DTypeError("attach: only floating-point tensors have gradients: x is " + describe(x.tensor));
  auto node = TapeNode::make();
  node->number = ++last_number;
  node->edges.push_back({x.node, x.index});
  node->runs_python = x.node && x.node->runs_python;
  x.node = node;
  x.index = 0;
  return node;
}

void unwatch(Tracked& x, const TapeNode& leaf) {
  const TapeNode::Edge before = leaf.edges[0];
  if (x.node.get() != &leaf && before.node) return;
  x.node = before.node;
  x.index = before.index;
}

Ref<TapeNode> record_function(std::span<const Tracked* const> inputs, std::span<Tracked* const> outputs,
                              _object* function) {
  auto node = TapeNode::make();
  node->kind = TapeNode::Kind::function;
  node->runs_python = true;
  node->number = ++last_number;
  node->function = function;
  node->site = Site::here();
  node->context = noted_module();
  for (const Tracked* x : inputs) {
    node->edges.push_back({x->node, x->index});
    put_geometry(x->tensor, node->saved.emplace_back());
    node->devices.push_back(x->tensor.device());
  }
  for (size_t j = 0; j < outputs.size(); ++j) {
    Tracked& y = *outputs[j];
    put_geometry(y.tensor, node->outputs.emplace_back());
    node->devices.push_back(y.tensor.device());
    if (!is_differentiable(y.tensor)) continue;
    y.node = node;
    y.index = static_cast<uint32_t>(j);
  }
  return node;
}

void begin_noting() {
  static thread_local std::vector<UnrecordedRegion> regions;
  context().noting = &regions;
  regions.push_back({last_number, {}});
}

bool end_noting(std::span<const Tracked* const> arguments) {
  std::vector<UnrecordedRegion>*& noting = context().noting;
  if (!noting) throw std::logic_error("end_noting: no region has begun");
  const UnrecordedRegion region = std::move(noting->back());
  noting->pop_back();
  const bool others = std::ranges::any_of(region.nodes, [&](const TapeNode* node) {
    return std::ranges::none_of(arguments, [&](const Tracked* x) { return x->node.get() == node; });
  });
  if (noting->empty())
    noting = nullptr;
  else
    for (TapeNode* node : region.nodes)
      if (node->number <= noting->back().before) noting->back().nodes.push_back(node);
  return others;
}

namespace {

// Steps address memory as that of the program's device, a copy from another device as that of its source.
void check_input_device(const Program& program, size_t k, const Tensor& x, size_t number) {
  if (program.uses[k] != Program::Use::data) return;
  Device expected = program.device;
  if (program.is_copy) {
    const Device* const source = program.steps.empty() ? nullptr : program.steps[0].kernel->source_device();
    if (!source && !hidden_memory_of(x.device())) return;  // a loop of the host, which reads all its memory
    if (source) expected = *source;
  }
  if (x.device() != expected)
    throw DeviceError("run_plan: " + program.name + ": input " + std::to_string(number) + " is planned for " +
                      to_string(expected) + ": it is " + describe(x));
}

void check_devices(const Program& program, std::span<const Tracked* const> inputs,
                   std::span<const Tensor* const> destinations) {
  for (const Program::Part& part : program.parts)
    for (size_t k = 0; k < part.inputs.size(); ++k)
      if (const auto wire = static_cast<size_t>(part.inputs[k]); wire < inputs.size())
        check_input_device(*part.program, k, inputs[wire]->tensor, wire);
  if (program.parts.empty())
    for (size_t k = 0; k < inputs.size(); ++k) check_input_device(program, k, inputs[k]->tensor, k);
  for (size_t j = 0; j < destinations.size(); ++j)
    if (destinations[j] && destinations[j]->device() != program.device_of(j))
      throw DeviceError("run_plan: " + program.name + ": output " + std::to_string(j) + " is planned for " +
                        to_string(program.device_of(j)) + ": its array is " + describe(*destinations[j]));
}

// A program for exact sizes looks at none when it runs.
void check_planned(const Program& program, std::span<const Tracked* const> inputs) {
  if (!program.exact) return;
  for (size_t k = 0; k < std::min(inputs.size(), program.planned_inputs.size()); ++k) {
    const Program::Input& planned = program.planned_inputs[k];
    const Tensor& x = inputs[k]->tensor;
    if (program.uses[k] == Program::Use::nothing ||
        (x.dtype == planned.dtype && std::ranges::equal(x.dims(), planned.shape)))
      continue;
    std::string shape;
    for (const int64_t size : planned.shape) {
      if (!shape.empty()) shape += ',';
      shape += std::to_string(size);
    }
    throw ShapeError("run_plan: " + program.name + ": input " + std::to_string(k) + " is planned as " +
                     short_name(planned.dtype) + "[" + shape + "]: it is " + describe(x));
  }
}

}  // namespace

void call_checked(const Ref<Plan>& plan, std::span<const Tracked* const> inputs,
                  std::span<const Scalar> numbers, std::span<const Tensor* const> destinations,
                  std::span<Tracked> results, bool late) {
  const Program& program = *plan->program;
  const auto count = [](size_t actual, const char* what, size_t expected, const char* of) {
    return "run_plan: " + std::to_string(actual) + what + std::to_string(expected) + of;
  };
  if (inputs.size() != program.uses.size())
    throw ValueError(count(inputs.size(), " arrays given, ", program.uses.size(), " taken"));
  if (numbers.size() < program.numbers_taken())
    throw ValueError(count(numbers.size(), " numbers given, ", program.numbers_taken(), " taken"));
  check_planned(program, inputs);
  if (destinations.size() > program.outputs.size())
    throw ValueError(count(destinations.size(), " arrays to write, ", program.outputs.size(), " outputs"));
  check_devices(program, inputs, destinations);
  std::optional<KeptCounts> counts;
  if (late) counts.emplace(inputs, destinations);
  call_plan(plan, inputs, numbers, destinations, results);
}

}  // namespace weft
