// tape.cpp: recording calls; the way back is walk.cpp.
#include "bindings/tape.h"
#include "bindings/hooks.h"

#include <algorithm>
#include <unordered_map>

#include "bindings/operator.h"
#include "bindings/scribe.h"
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

// The module of a call that is being recorded. While a trace is written down, Python's frames tell.
uint32_t noted_context() {
  if (context().module || !context().scribe) return context().module;
  return nb::cast<uint32_t>(call_hook(Hook::module_here));
}

// Remembers a call. Its outputs are in `results`.
void record(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
            std::span<const uint32_t> versions, std::span<Tracked> results) {
  Bits wanted;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k]->node && is_differentiable(inputs[k]->tensor)) wanted.set(k);
  const bool differentiable =
      std::ranges::any_of(results, [](const Tracked& y) { return is_differentiable(y.tensor); });
  if (!wanted.any() || !differentiable) return;
  const std::vector<bool> given = usual_slopes(*plan);
  const Ref<Plan> backward = backward_of(plan, wanted, given);
  if (!backward) return;

  auto node = TapeNode::make();
  node->kind = TapeNode::Kind::plan;
  node->number = ++last_number;
  node->plan = plan;
  node->backward = backward;
  node->site = Site::here();
  node->context = noted_context();
  node->numbers.assign(numbers.begin(), numbers.end());
  const size_t count = inputs.size() + results.size();
  node->saved.reserve(count);
  node->versions.reserve(count);
  const auto& uses = backward->program->uses;
  const auto save = [&](const Tracked& from, size_t place, uint32_t version) {
    const Tensor& x = from.tensor;
    if (is_stopped(from)) {
      node->epoch = context().stop_epoch;
      node->stopped.set(place);
    }
    const bool read = uses[place] >= Program::Use::shown;
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
    if (!given[j] || !is_differentiable(results[j].tensor)) continue;
    if (!backward->with_history.empty() && !backward->with_history[j]) continue;
    results[j].node = node;
    results[j].index = static_cast<uint32_t>(j);
  }
}

}  // namespace

std::vector<bool> usual_slopes(const Plan& plan) {
  std::vector<bool> given(plan.program->outputs.size());
  std::fill_n(given.begin(), std::min<size_t>(static_cast<size_t>(plan.visible), given.size()), true);
  for (const auto& [output, input] : plan.writes) given[output] = true;
  return given;
}

Ref<Plan> recorded_form(const Ref<Plan>& plan) {
  if (!plan->many) return plan->recorded ? plan->recorded : plan;
  nb::object found;
  {
    const BelowLayers below;
    found = call_hook(Hook::plan_recording, nb::handle(plan->recipe));
  }
  const nb::object made = found[0];
  if (!made.is_none()) plan->recorded = nb::cast<PyPlan&>(made).plan;
  const Ref<Plan> form = made.is_none() ? plan : plan->recorded;
  form->writes.clear();
  for (nb::handle pair : nb::list(found[1]))
    form->writes.emplace_back(nb::cast<size_t>(pair[0]), nb::cast<size_t>(pair[1]));
  form->many = plan->many = false;
  return form;
}

Ref<Plan> backward_of(const Ref<Plan>& plan, const Bits& wanted, const std::vector<bool>& slopes) {
  for (const Plan::Backward& known : plan->backwards)
    if (known.wanted == wanted && known.given == slopes) return known.plan;
  nb::list flags, given;
  for (size_t k = 0; k < plan->program->uses.size(); ++k) flags.append(nb::bool_(wanted.test(k)));
  for (const bool is_given : slopes) given.append(nb::bool_(is_given));
  ++OperatorFunction::planner_calls;
  const BelowLayers below;
  nb::object made = call_hook(Hook::plan_backward, nb::handle(plan->recipe), flags, given);
  Ref<Plan> backward = made.is_none() ? Ref<Plan>() : nb::cast<PyPlan&>(made).plan;
  plan->backwards.push_back({wanted, slopes, backward});
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

int TapeNode::visit_functions(const Ref<TapeNode>& from, visitproc visit, void* arg) {
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
    Py_VISIT(node->function);
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
              std::span<const Tensor* const> destinations, std::span<Tracked> results, bool records);

}  // namespace

void call_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
               std::span<const Tensor* const> destinations, std::span<Tracked> results) {
  bool tracked = false;
  for (const Tracked* x : inputs) tracked |= static_cast<bool>(x->node);
  const bool records = tracked && recording();
  if (context().noting && tracked && !records) note_read(inputs);
  if (!records || (!plan->many && !plan->recorded)) {
    run_plan(plan, inputs, numbers, destinations, results, records);
    return;
  }
  const Ref<Plan> form = recorded_form(plan);
  std::vector<Tracked> all(form->program->outputs.size());
  run_plan(form, inputs, numbers, destinations, all, true);
  std::move(all.begin(), all.begin() + static_cast<ptrdiff_t>(results.size()), results.begin());
}

namespace {

void run_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
              std::span<const Tensor* const> destinations, std::span<Tracked> results, bool records) {
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
  if (context().scribe) {
    bool left_out = false;
    if (context().scribe->defers()) {
      plan->program->prepare({tensors.get(), inputs.size()}, destinations, outputs.get());
      left_out = current().launched(*plan, inputs, numbers, results);
    }
    if (!left_out) {
      const Unobserved quiet;
      plan->program->launch({tensors.get(), inputs.size()}, numbers, destinations, outputs.get());
    }
    if (!context().scribe->defers()) current().launched(*plan, inputs, numbers, results);
    if (context().stop_epoch) note_stopped_views(*plan->program, inputs, results);
  } else {
    plan->program->launch({tensors.get(), inputs.size()}, numbers, destinations, outputs.get());
  }
  if (records) record(plan, inputs, numbers, {versions.get(), inputs.size()}, results);
}

}  // namespace

KeptCounts::KeptCounts(std::span<const Tracked* const> inputs, std::span<const Tensor* const> destinations) {
  for (const Tracked* x : inputs) keep(x->tensor);
  for (const Tensor* x : destinations) keep(*x);
}
KeptCounts::~KeptCounts() {
  for (const auto& [chunk, count] : counts_) chunk->writes.store(count, std::memory_order_relaxed);
}
void KeptCounts::keep(const Tensor& x) {
  if (x.chunk) counts_.emplace_back(x.chunk, x.chunk->writes.load(std::memory_order_relaxed));
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

void check_slope(const Tensor& slope, const Tensor& of, Device device, const std::string& function,
                 const std::string& what, const std::string& where) {
  if (std::ranges::equal(slope.dims(), of.dims()) && slope.dtype == of.dtype && slope.device() == device)
    return;
  const std::string names =
      function + ": " + what + " is " + describe(of) + ", its gradient " + describe(slope) + where;
  if (!std::ranges::equal(slope.dims(), of.dims())) throw ShapeError(names);
  if (slope.dtype != of.dtype) throw DTypeError(names);
  throw DeviceError(names);
}

const Site* overwriting_of(const Chunk* chunk) noexcept {
  const auto found = overwritten_at.find(chunk);
  return found == overwritten_at.end() ? nullptr : &found->second;
}

namespace {

// What makes a tensor a leaf for a while.
struct PyLeaf {
  Ref<TapeNode> node;
};

struct NotRecording {
  explicit NotRecording(bool off) : off_(off) { context().recording_off += off; }
  ~NotRecording() { context().recording_off -= off_; }
  const bool off_;
};

// A program for exact sizes looks at none when it runs.
void check_planned(const Program& program, const std::vector<const Tracked*>& inputs) {
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

void bind_tape(nb::module_& m) {
  Class<PyLeaf>(m, "Leaf", "A tensor that gradients are wanted of, from watch() on.");
  def(m, "set_recording", [](bool on) { context().recording_off += on ? -1 : 1; });
  // A user's no_grad begins, or ends.
  def(m, "set_no_grad", [](bool begins) {
    context().recording_off += begins ? 1 : -1;
    context().no_grads += begins ? 1 : -1;
  });
  // This thread begins to write down a program, in a new epoch, or goes on in what this gave before.
  def(m, "begin_epoch", [] {
    static uint32_t last = 0;
    const auto before = nb::make_tuple(context().stop_epoch, context().no_grads_before);
    context().stop_epoch = ++last;
    context().no_grads_before = context().no_grads;
    return before;
  });
  def(m, "end_epoch", [](nb::tuple before) {
    context().stop_epoch = nb::cast<uint32_t>(before[0]);
    context().no_grads_before = nb::cast<int>(before[1]);
  });
  // Whether what is written down now has no gradient, because of a no_grad inside.
  def(m, "is_stopping", [] { return stopping(); });
  def(m, "is_recording", [] { return recording(); });
  // How often the memory of x was written, for those who keep it for later.
  def(m, "write_count", [](nb::handle x) {
    const Tensor& tensor = tensor_of(x, "write_count");
    return tensor.chunk ? tensor.chunk->writes.load(std::memory_order_relaxed) : 0u;
  });
  // Makes x a leaf; what it was before is the leaf's past.
  def(m, "watch", [](nb::handle x) {
    Tensor& tensor = tensor_of(x, "attach");
    if (!is_differentiable(tensor))
      throw DTypeError("attach: only floating-point tensors have gradients: x is " + describe(tensor));
    Tracked& tracked = tracked_of(x.ptr());
    auto node = TapeNode::make();
    node->number = ++last_number;
    node->edges.push_back({tracked.node, tracked.index});
    node->runs_python = tracked.node && tracked.node->runs_python;
    tracked.node = node;
    tracked.index = 0;
    return PyLeaf{node};
  });
  // A plan on these arrays and numbers: all its outputs; the first of them are written to the arrays of
  // `into`. late: what it does has been seen before, as if it had been done then.
  def(
      m, "run_plan",
      [](const PyPlan& plan, nb::list arrays, nb::list numbers, nb::list into, bool late) {
        std::vector<const Tracked*> inputs;
        std::vector<Scalar> values;
        const nb::tuple held(arrays), held_into(into);  // other threads may change the lists
        for (nb::handle x : held) {
          tensor_of(x, "run_plan");
          met(x.ptr());
          inputs.push_back(&tracked_of(x.ptr()));
        }
        for (nb::handle value : numbers) values.push_back(as_scalar(value));
        if (inputs.size() != plan.plan->program->uses.size())
          throw ValueError("run_plan: " + std::to_string(inputs.size()) + " arrays given, " +
                           std::to_string(plan.plan->program->uses.size()) + " taken");
        if (values.size() < plan.plan->program->numbers_taken())
          throw ValueError("run_plan: " + std::to_string(values.size()) + " numbers given, " +
                           std::to_string(plan.plan->program->numbers_taken()) + " taken");
        check_planned(*plan.plan->program, inputs);
        std::vector<const Tensor*> destinations;
        for (nb::handle x : held_into) destinations.push_back(&tensor_of(x, "run_plan"));
        std::vector<Tracked> results(plan.plan->program->outputs.size());
        if (destinations.size() > results.size())
          throw ValueError("run_plan: " + std::to_string(destinations.size()) + " arrays to write, " +
                           std::to_string(results.size()) + " outputs");
        std::optional<KeptCounts> counts;
        if (late) counts.emplace(inputs, destinations);
        call_plan(plan.plan, inputs, values, destinations, results);
        nb::list made;
        for (Tracked& y : results) made.append(wrap(std::move(y)));
        return made;
      },
      nb::arg("plan"), nb::arg("arrays"), nb::arg("numbers") = nb::list(), nb::arg("into") = nb::list(),
      nb::arg("late") = false);
  // x is again what it was before the leaf; if it was written meanwhile and had a past, that goes on.
  def(m, "unwatch", [](nb::handle x, const PyLeaf& leaf) {
    tensor_of(x, "unwatch");
    Tracked& tracked = tracked_of(x.ptr());
    TapeNode::Edge before = leaf.node->edges[0];
    if (!(tracked.node == leaf.node) && before.node) return;
    tracked.node = before.node;
    tracked.index = before.index;
  });
  // Whether only operators may do what happens to x, because it is recorded or a layer wants to see it.
  def(m, "by_operators", [](nb::handle x) {
    tensor_of(x, "by_operators");
    return by_operators(x.ptr());
  });
  // What an answer computed from x holds for: (the number of its past, 0 while nothing is recorded; how often
  // it was written).
  def(m, "state_of", [](nb::handle x) {
    const Tensor& tensor = tensor_of(x, "state_of");
    const TapeNode* node = tracked_of(x.ptr()).node.get();
    return nb::make_tuple(node && recording() ? node->number : 0,
                          tensor.chunk->writes.load(std::memory_order_relaxed));
  });
  def(m, "is_stopped", [](nb::handle x) {
    tensor_of(x, "is_stopped");
    return is_stopped(tracked_of(x.ptr()));
  });
  def(m, "is_tracked", [](nb::handle x) {
    tensor_of(x, "is_tracked");
    return static_cast<bool>(tracked_of(x.ptr()).node);
  });
  // The same memory in a new object, with the same past, or none. is_result: it will get another one.
  def(
      m, "alias",
      [](nb::handle x, bool keep_past, bool is_result) {
        tensor_of(x, "alias");
        met(x.ptr());
        Tracked y(tracked_of(x.ptr()));
        if (!keep_past) {
          y.node = {};
          y.stopped = is_result ? 0 : context().stop_epoch;
        }
        return wrap(std::move(y));
      },
      nb::arg("x"), nb::arg("keep_past"), nb::arg("is_result") = false);
  // The gradients of `leaves`, None where there is none, from those of `roots`; a slope None: 1 for every
  // element. on_final(number of a leaf, its gradient), unless None, is called while others are still
  // computed, as soon as a gradient is final.
  def(
      m, "backward",
      [](nb::list roots, nb::list slopes, nb::list leaves, bool create_graph, nb::object on_final) {
        const Layers callers = context().layers;
        const BelowLayers below;
        const NotRecording off(!create_graph);
        std::vector<const Tracked*> from, with;
        std::vector<nb::object> kept;
        if (nb::len(roots) != nb::len(slopes))
          throw ValueError("backward: " + std::to_string(nb::len(roots)) + " values, but " +
                           std::to_string(nb::len(slopes)) + " gradients of them");
        for (size_t i = 0; i < nb::len(roots); ++i) {
          nb::object root = roots[i], slope = slopes[i];
          const Tensor& y = tensor_of(root, "backward");
          if (!slope.is_none()) check_slope(tensor_of(slope, "backward"), y, y.device(), "backward", "y");
          if (!tracked_of(root.ptr()).node) continue;
          if (slope.is_none())
            slope = wrap(filled(y, y.device(), 1));
          else
            met(slope.ptr());
          from.push_back(&tracked_of(root.ptr()));
          with.push_back(&tracked_of(slope.ptr()));
          kept.push_back(root);
          kept.push_back(slope);
        }
        std::vector<TapeNode*> wanted;
        std::vector<Ref<TapeNode>> held;
        for (nb::handle leaf : leaves) {
          held.push_back(nb::cast<PyLeaf&>(leaf).node);
          wanted.push_back(held.back().get());
        }
        OnFinal tell;
        if (!on_final.is_none())
          tell = [&](size_t leaf, const Tracked& gradient) {
            const WithLayers of_caller(callers);
            on_final(leaf, wrap(Tracked(gradient)));
          };
        auto found = walk_back(from, with, wanted, create_graph, tell);
        nb::list results;
        for (auto& gradient : found) results.append(gradient ? wrap(std::move(*gradient)) : nb::none());
        return results;
      },
      nb::arg("roots"), nb::arg("slopes"), nb::arg("leaves"), nb::arg("create_graph"),
      nb::arg("on_final") = nb::none());
  // A region begins that is not recorded.
  def(m, "begin_noting", [] {
    static thread_local std::vector<Noted> regions;
    context().noting = &regions;
    regions.push_back({last_number, {}});
  });
  // It ends: whether it read a recorded array that is none of these.
  def(m, "end_noting", [](nb::list given) {
    if (!context().noting) throw std::logic_error("end_noting: no region has begun");
    Noted region = std::move(context().noting->back());
    context().noting->pop_back();
    std::vector<TapeNode*> known;
    for (nb::handle x : given)
      if (is_tensor(x)) known.push_back(tracked_of(x.ptr()).node.get());
    const bool others = std::ranges::any_of(
        region.nodes, [&](TapeNode* node) { return std::ranges::find(known, node) == known.end(); });
    if (context().noting->empty())
      context().noting = nullptr;
    else
      for (TapeNode* node : region.nodes)
        if (node->number <= context().noting->back().before) context().noting->back().nodes.push_back(node);
    return others;
  });
  // Remembers that outputs came from inputs by way of a Python function; `backward` is called with their
  // gradients.
  def(m, "record_function", [](nb::list inputs, nb::list outputs, nb::object backward) {
    for (nb::handle x : inputs) tensor_of(x, "record_function");
    for (nb::handle y : outputs) tensor_of(y, "record_function");
    auto node = TapeNode::make();
    node->kind = TapeNode::Kind::function;
    node->runs_python = true;
    node->number = ++last_number;
    node->function = backward.release().ptr();
    node->site = Site::here();
    node->context = noted_context();
    for (nb::handle x : inputs) {
      const Tracked& tracked = tracked_of(x.ptr());
      node->edges.push_back({tracked.node, tracked.index});
      put_geometry(tracked.tensor, node->saved.emplace_back());
      node->devices.push_back(tracked.tensor.device());
    }
    uint32_t index = 0;
    for (nb::handle y : outputs) {
      Tracked& tracked = tracked_of(y.ptr());
      put_geometry(tracked.tensor, node->outputs.emplace_back());
      node->devices.push_back(tracked.tensor.device());
      if (is_differentiable(tracked.tensor)) {
        tracked.node = node;
        tracked.index = index;
        collect_through(y.ptr());
      }
      ++index;
    }
  });
}

}  // namespace weft
