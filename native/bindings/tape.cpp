#include "bindings/tape.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "bindings/operator.h"
#include "bindings/scribe.h"

namespace weft {

thread_local int recording_off = 0;

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
  return *this;
}
Tracked::~Tracked() = default;

namespace {

uint64_t last_number = 0;

// Where memory that some node has saved was overwritten; the latest of each, a bounded number of them.
std::unordered_map<const Chunk*, std::pair<uint32_t, Site>> overwritten_at;

PyObject* backward_planner = nullptr;

// The plan of the gradients of `plan`'s inputs in `wanted`, from those of its visible outputs and of the
// hidden ones in `hidden`; null if all are zero. May throw what a rule throws.
Ref<Plan> backward_of(const Ref<Plan>& plan, uint64_t wanted, uint64_t hidden) {
  for (const Plan::Backward& known : plan->backwards)
    if (known.wanted == wanted && known.hidden == hidden) return known.plan;
  nb::list flags, given;
  for (size_t k = 0; k < plan->program->uses.size(); ++k) flags.append(nb::bool_(wanted >> k & 1));
  for (size_t j = 0; j < plan->program->outputs.size(); ++j)
    given.append(nb::bool_(j < static_cast<size_t>(plan->visible) || (hidden >> j & 1)));
  ++OperatorFunction::planner_calls;
  const BelowLayers below;
  nb::object made = nb::handle(backward_planner)(nb::handle(plan->recipe), flags, given);
  Ref<Plan> backward = made.is_none() ? Ref<Plan>() : nb::cast<PyPlan&>(made).plan;
  plan->backwards.push_back({wanted, hidden, backward});
  return backward;
}

// y: as x, but without memory.
void put_geometry(const Tensor& x, Tensor& y) {
  y.size = x.size;
  y.dtype = x.dtype;
  y.ndim = x.ndim;
  std::copy_n(x.shape, x.ndim, y.shape);
  std::copy_n(x.strides, x.ndim, y.strides);
}

bool is_differentiable(const Tensor& x) noexcept { return is_float(x.dtype); }

// Remembers a call. Its outputs are in `results`.
void record(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
            std::span<const uint32_t> versions, std::span<Tracked> results) {
  uint64_t wanted = 0;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k]->node && is_differentiable(inputs[k]->tensor)) {
      if (k >= 64) throw ValueError(plan->program->name + ": more than 64 inputs cannot be recorded");
      wanted |= uint64_t{1} << k;
    }
  const bool differentiable =
      std::ranges::any_of(results, [](const Tracked& y) { return is_differentiable(y.tensor); });
  if (!wanted || !differentiable) return;
  const Ref<Plan> backward = backward_of(plan, wanted, 0);
  if (!backward) return;

  auto node = make_ref<TapeNode>();
  node->kind = TapeNode::Kind::plan;
  node->number = ++last_number;
  node->plan = plan;
  node->backward = backward;
  node->site = Site::here();
  node->numbers.assign(numbers.begin(), numbers.end());
  const size_t count = inputs.size() + results.size();
  node->saved.reserve(count);
  node->versions.reserve(count);
  const auto& uses = backward->program->uses;
  const auto save = [&](const Tensor& x, size_t place, uint32_t version) {
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
    save(inputs[k]->tensor, k, versions[k]);
    node->edges[k] = {inputs[k]->node, inputs[k]->index};
  }
  const auto visible = static_cast<size_t>(plan->visible);
  for (size_t j = 0; j < results.size(); ++j) {
    Tensor& y = results[j].tensor;
    save(y, inputs.size() + j, y.chunk->writes.load(std::memory_order_relaxed));
  }
  for (size_t j = 0; j < visible; ++j) {
    if (!is_differentiable(results[j].tensor)) continue;
    results[j].node = node;
    results[j].index = static_cast<uint32_t>(j);
  }
}

}  // namespace

TapeNode::~TapeNode() { release_later(function); }

void TapeNode::dispose() const noexcept {
  // Nodes whose last reference goes while another one ends wait here, instead of on the stack.
  static thread_local std::vector<const TapeNode*>* ending = nullptr;
  if (ending) {
    ending->push_back(this);
    return;
  }
  std::vector<const TapeNode*> list{this};
  ending = &list;
  while (!list.empty()) {
    const TapeNode* node = list.back();
    list.pop_back();
    delete node;
  }
  ending = nullptr;
}

void call_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
               std::span<const Tensor* const> destinations, std::span<Tracked> results) {
  constexpr size_t kFew = 8;
  const Tensor* few_inputs[kFew];
  Tensor* few_outputs[kFew];
  std::vector<const Tensor*> many_inputs;
  std::vector<Tensor*> many_outputs;
  const Tensor** tensors = few_inputs;
  Tensor** outputs = few_outputs;
  if (inputs.size() > kFew) {
    many_inputs.resize(inputs.size());
    tensors = many_inputs.data();
  }
  if (results.size() > kFew) {
    many_outputs.resize(results.size());
    outputs = many_outputs.data();
  }
  bool tracked = false;
  for (size_t k = 0; k < inputs.size(); ++k) {
    tensors[k] = &inputs[k]->tensor;
    tracked |= static_cast<bool>(inputs[k]->node);
  }
  for (size_t j = 0; j < results.size(); ++j) outputs[j] = &results[j].tensor;
  const bool records = tracked && recording();
  uint32_t few_versions[kFew];
  std::vector<uint32_t> many_versions;
  uint32_t* versions = few_versions;
  if (records) {
    if (inputs.size() > kFew) {
      many_versions.resize(inputs.size());
      versions = many_versions.data();
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Chunk* chunk = inputs[k]->tensor.chunk.get();
      versions[k] = chunk ? chunk->writes.load(std::memory_order_relaxed) : 0;
    }
  }
  if (scribe) {
    bool left_out = false;
    if (scribe->defers()) {
      plan->program->prepare({tensors, inputs.size()}, destinations, outputs);
      left_out = current().launched(*plan, inputs, numbers, results);
    }
    if (!left_out) {
      const Unobserved quiet;
      plan->program->launch({tensors, inputs.size()}, numbers, destinations, outputs);
    }
    if (!scribe->defers()) current().launched(*plan, inputs, numbers, results);
  } else {
    plan->program->launch({tensors, inputs.size()}, numbers, destinations, outputs);
  }
  if (records) record(plan, inputs, numbers, {versions, inputs.size()}, results);
}

void note_overwriting(const Tensor& x) {
  if (!x.chunk->saved.load(std::memory_order_relaxed)) return;
  if (overwritten_at.size() > 4096) overwritten_at.clear();
  overwritten_at[x.chunk.get()] = {x.chunk->writes.load(std::memory_order_relaxed), Site::here()};
}

namespace {

class Walk {
 public:
  Walk(std::span<TapeNode* const> leaves, bool create_graph) : create_graph_(create_graph) {
    for (size_t i = 0; i < leaves.size(); ++i) wanted_[leaves[i]] = i;
    found_.resize(leaves.size());
  }

  std::vector<std::optional<Tracked>> run(std::span<const Tracked* const> roots,
                                          std::span<const Tracked* const> slopes) {
    for (const Tracked* root : roots) mark(root->node.get());
    for (size_t i = 0; i < roots.size(); ++i) add(roots[i]->node, roots[i]->index, Tracked(*slopes[i]));
    while (!queue_.empty()) {
      const Ref<TapeNode> node = queue_.top().node;
      queue_.pop();
      visit(node);
    }
    return std::move(found_);
  }

 private:
  struct Entry {
    Ref<TapeNode> node;
    bool operator<(const Entry& other) const { return node->number < other.node->number; }
  };
  using Slopes = std::vector<std::optional<Tracked>>;

  // Finds the nodes from which a wanted leaf can be reached.
  void mark(TapeNode* root) {
    std::vector<std::pair<TapeNode*, bool>> stack{{root, false}};
    while (!stack.empty()) {
      const auto [node, ready] = stack.back();
      stack.pop_back();
      if (!node) continue;
      if (!ready) {
        if (!leads_.emplace(node, wanted_.contains(node)).second) continue;
        if (wanted_.contains(node)) continue;
        stack.emplace_back(node, true);
        for (const TapeNode::Edge& edge : node->edges) stack.emplace_back(edge.node.get(), false);
      } else {
        bool leads = false;
        for (const TapeNode::Edge& edge : node->edges) {
          const auto found = leads_.find(edge.node.get());
          leads |= found != leads_.end() && found->second;
        }
        leads_[node] = leads;
      }
    }
  }

  bool leads(const TapeNode* node) const {
    const auto found = leads_.find(node);
    return found != leads_.end() && found->second;
  }

  void add(const Ref<TapeNode>& node, uint32_t index, Tracked&& slope) {
    if (!node || !leads(node.get())) return;
    auto [place, is_new] = slopes_.try_emplace(node.get());
    Slopes& slopes = place->second;
    if (is_new) queue_.push({node});
    if (slopes.size() <= index) slopes.resize(index + 1);
    std::optional<Tracked>& known = slopes[index];
    if (!known) {
      known.emplace(std::move(slope));
      return;
    }
    nb::object a = wrap(std::move(*known)), b = wrap(std::move(slope));
    nb::object sum = nb::steal(call_slot(Slot::add, a.ptr(), b.ptr()));
    if (!sum.is_valid()) throw nb::python_error();
    known.emplace(tracked_of(sum.ptr()));
  }

  void visit(const Ref<TapeNode>& node) {
    const auto place = slopes_.find(node.get());
    Slopes slopes = std::move(place->second);
    slopes_.erase(place);
    if (const auto wanted = wanted_.find(node.get()); wanted != wanted_.end()) {
      found_[wanted->second] = std::move(slopes[0]);
      return;
    }
    switch (node->kind) {
      case TapeNode::Kind::leaf:
        add(node->edges[0].node, node->edges[0].index, std::move(*slopes[0]));
        break;
      case TapeNode::Kind::plan:
        visit_plan(node, slopes);
        break;
      case TapeNode::Kind::function:
        visit_function(node, slopes);
        break;
    }
  }

  static Tracked zeros(const Tensor& like, Device device) {
    Tensor x = Tensor::empty(like.dims(), like.dtype, device);
    Scalar zero{Scalar::Kind::integer, {}};
    zero.integer = 0;
    push_fill(x, zero);
    return Tracked(std::move(x));
  }

  // Makes x lie as a plan for exact sizes was told, by a copy if it does not; gradients are told to lie
  // without gaps.
  static void lay_out(Tensor& x, const std::vector<int64_t>& strides) {
    bool as_told = true;
    for (int d = 0; d < x.ndim; ++d)
      as_told &= x.shape[d] == 1 || x.strides[d] == strides[static_cast<size_t>(d)];
    if (as_told || x.size == 0) return;
    Tensor copy = Tensor::empty(x.dims(), x.dtype, x.device());
    std::copy_n(strides.begin(), x.ndim, copy.strides);
    push_copy(copy, x);
    x = std::move(copy);
  }

  // The plan of a node's gradients: the one it saved for, or, where a gradient read hidden outputs and has
  // been recorded, one that takes theirs, too.
  static Ref<Plan> backward_for(const TapeNode& node, const Slopes& slopes, size_t visible) {
    uint64_t hidden = 0, wanted = 0;
    for (size_t j = visible; j < slopes.size(); ++j)
      if (slopes[j]) hidden |= uint64_t{1} << j;
    if (!hidden) return node.backward;
    for (size_t k = 0; k < node.edges.size(); ++k)
      if (node.edges[k].node && is_float(node.saved[k].dtype)) wanted |= uint64_t{1} << k;
    const Ref<Plan> plan = backward_of(node.plan, wanted, hidden);
    for (size_t k = 0; plan && k < node.saved.size(); ++k)
      if (plan->program->uses[k] >= Program::Use::shown && !node.saved[k].chunk && node.saved[k].size) {
        PyErr_SetString(PyExc_NotImplementedError,
                        (node.plan->program->name + ": called at " + node.site.text() +
                         ": the gradient of its gradient reads " + place_of(node, k) +
                         ", which its gradient does not keep")
                            .c_str());
        throw nb::python_error();
      }
    return plan;
  }

  // "input 0, f32[2]@cpu:0": what is at place k of the saved values.
  static std::string place_of(const TapeNode& node, size_t k) {
    const size_t count = node.edges.size();
    return (k < count ? "input " : "output ") + std::to_string(k < count ? k : k - count) + ", " +
           describe(node.saved[k]);
  }

  void visit_plan(const Ref<TapeNode>& node, Slopes& slopes) {
    if (node->saved.empty())
      throw nb::value_error((node->plan->program->name + (": called at " + node->site.text()) +
                             ": its history was freed by an earlier backward")
                                .c_str());
    const auto visible = static_cast<size_t>(node->plan->visible);
    const size_t count = node->edges.size();
    const Ref<Plan> plan = backward_for(*node, slopes, visible);
    if (!plan) return;
    const Plan& backward = *plan;
    slopes.resize(std::max(visible, slopes.size()));
    for (size_t j = 0; j < visible; ++j)
      if (!slopes[j]) slopes[j].emplace(zeros(node->saved[count + j], node->plan->program->device_of(j)));
    std::vector<Tracked> inputs;
    inputs.reserve(node->saved.size() + slopes.size());
    for (size_t k = 0; k < node->saved.size(); ++k) {
      check_version(*node, k);
      if (k < count)
        inputs.emplace_back(Tensor(node->saved[k]), node->edges[k].node, node->edges[k].index);
      else
        inputs.emplace_back(Tensor(node->saved[k]), node, static_cast<uint32_t>(k - count));
    }
    for (auto& slope : slopes)
      if (slope) inputs.push_back(std::move(*slope));
    for (size_t k = 0; k < backward.strides.size(); ++k)
      if (backward.program->uses[k] >= Program::Use::shown) lay_out(inputs[k].tensor, backward.strides[k]);
    std::vector<const Tracked*> pointers;
    for (const Tracked& x : inputs) pointers.push_back(&x);
    std::vector<Tracked> results(backward.program->outputs.size());
    call_plan(plan, pointers, node->numbers, {}, results);
    size_t next = 0;
    for (size_t k = 0; k < count; ++k)
      if (backward.gradients >> k & 1)
        add(node->edges[k].node, node->edges[k].index, std::move(results[next++]));
    if (!create_graph_) {
      node->saved.clear();
    }
  }

  void visit_function(const Ref<TapeNode>& node, Slopes& slopes) {
    slopes.resize(node->outputs.size());
    nb::list given;
    for (size_t j = 0; j < slopes.size(); ++j)
      given.append(wrap(slopes[j] ? std::move(*slopes[j]) : zeros(node->outputs[j], node->devices[j])));
    nb::object made = nb::handle(node->function)(*nb::tuple(given));
    nb::object items = made.is_none() || is_tensor(made) ? nb::object(nb::make_tuple(made)) : made;
    if (nb::len(items) != node->edges.size())
      throw nb::value_error(("backward gave " + std::to_string(nb::len(items)) + " gradients for " +
                             std::to_string(node->edges.size()) + " inputs")
                                .c_str());
    for (size_t k = 0; k < node->edges.size(); ++k) {
      nb::object item = items[k];
      if (item.is_none()) continue;
      tensor_of(item, "backward");  // raises unless it is one
      add(node->edges[k].node, node->edges[k].index, Tracked(tracked_of(item.ptr())));
    }
  }

  static void check_version(const TapeNode& node, size_t k) {
    const Tensor& x = node.saved[k];
    if (!x.chunk) return;
    const uint32_t now = x.chunk->writes.load(std::memory_order_relaxed);
    if (now == node.versions[k]) return;
    const auto found = overwritten_at.find(x.chunk.get());
    const std::string where =
        found == overwritten_at.end() ? "" : "\n  overwritten at " + found->second.second.text();
    throw nb::value_error((node.plan->program->name + ": its gradient needs " + place_of(node, k) +
                           ", which has been overwritten since" + "\n  used at " + node.site.text() + where +
                           "\n  hint: write to a copy()")
                              .c_str());
  }

  const bool create_graph_;
  std::unordered_map<const TapeNode*, size_t> wanted_;
  std::unordered_map<const TapeNode*, bool> leads_;
  std::unordered_map<const TapeNode*, Slopes> slopes_;
  std::priority_queue<Entry> queue_;
  std::vector<std::optional<Tracked>> found_;
};

// What makes a tensor a leaf for a while.
struct PyLeaf {
  Ref<TapeNode> node;
};

Tensor ones(const Tensor& like) {
  Tensor x = Tensor::empty(like.dims(), like.dtype, like.device());
  Scalar one{Scalar::Kind::integer, {}};
  one.integer = 1;
  push_fill(x, one);
  return x;
}

struct NotRecording {
  explicit NotRecording(bool off) : off_(off) { recording_off += off; }
  ~NotRecording() { recording_off -= off_; }
  const bool off_;
};

}  // namespace

void bind_tape(nb::module_& m) {
  nb::class_<PyLeaf>(m, "Leaf", "A tensor that gradients are wanted of, from watch() on.");
  m.def("set_backward_planner", [](nb::object function) {
    Py_XDECREF(backward_planner);
    backward_planner = function.release().ptr();
  });
  m.def("set_recording", [](bool on) { recording_off += on ? -1 : 1; });
  m.def("is_recording", [] { return recording(); });
  // Makes x a leaf; what it was before is the leaf's past.
  m.def("watch", [](nb::handle x) {
    Tensor& tensor = tensor_of(x, "attach");
    if (!is_differentiable(tensor))
      throw DTypeError("attach: only floating-point tensors have gradients: x is " + describe(tensor));
    Tracked& tracked = tracked_of(x.ptr());
    auto node = make_ref<TapeNode>();
    node->number = ++last_number;
    node->edges.push_back({tracked.node, tracked.index});
    tracked.node = node;
    tracked.index = 0;
    return PyLeaf{node};
  });
  // A plan on these arrays and numbers: all its outputs; the first of them are written to the arrays of
  // `into`.
  m.def(
      "run_plan",
      [](const PyPlan& plan, nb::list arrays, nb::list numbers, nb::list into) {
        const PythonEntry entry;
        std::vector<const Tracked*> inputs;
        std::vector<Scalar> values;
        for (nb::handle x : arrays) {
          tensor_of(x, "run_plan");
          met(x.ptr());
          inputs.push_back(&tracked_of(x.ptr()));
        }
        for (nb::handle value : numbers) values.push_back(as_scalar(value));
        if (inputs.size() != plan.plan->program->uses.size())
          throw ValueError("run_plan: " + std::to_string(inputs.size()) + " arrays given, " +
                           std::to_string(plan.plan->program->uses.size()) + " taken");
        std::vector<const Tensor*> destinations;
        for (nb::handle x : into) destinations.push_back(&tensor_of(x, "run_plan"));
        std::vector<Tracked> results(plan.plan->program->outputs.size());
        if (destinations.size() > results.size())
          throw ValueError("run_plan: " + std::to_string(destinations.size()) + " arrays to write, " +
                           std::to_string(results.size()) + " outputs");
        call_plan(plan.plan, inputs, values, destinations, results);
        nb::list made;
        for (Tracked& y : results) made.append(wrap(std::move(y)));
        return made;
      },
      nb::arg("plan"), nb::arg("arrays"), nb::arg("numbers") = nb::list(), nb::arg("into") = nb::list());
  // x is again what it was before the leaf; if it was written meanwhile and had a past, that goes on.
  m.def("unwatch", [](nb::handle x, const PyLeaf& leaf) {
    Tracked& tracked = tracked_of(x.ptr());
    TapeNode::Edge before = leaf.node->edges[0];
    if (!(tracked.node == leaf.node) && before.node) return;
    tracked.node = before.node;
    tracked.index = before.index;
  });
  // Whether only operators may do what happens to x, because it is recorded or a layer wants to see it.
  m.def("by_operators", [](nb::handle x) {
    tensor_of(x, "by_operators");
    return by_operators(x.ptr());
  });
  // What an answer computed from x holds for: (the number of its past, 0 while nothing is recorded; how often
  // it was written).
  m.def("state_of", [](nb::handle x) {
    const Tensor& tensor = tensor_of(x, "state_of");
    const TapeNode* node = tracked_of(x.ptr()).node.get();
    return nb::make_tuple(node && recording() ? node->number : 0,
                          tensor.chunk->writes.load(std::memory_order_relaxed));
  });
  m.def("is_tracked", [](nb::handle x) {
    tensor_of(x, "is_tracked");
    return static_cast<bool>(tracked_of(x.ptr()).node);
  });
  // The same memory in a new object, with the same past, or none.
  m.def(
      "alias",
      [](nb::handle x, bool keep_past) {
        tensor_of(x, "alias");
        met(x.ptr());
        Tracked y(tracked_of(x.ptr()));
        if (!keep_past) y.node = {};
        return wrap(std::move(y));
      },
      nb::arg("x"), nb::arg("keep_past"));
  // The gradients of `leaves`, None where there is none, from those of `roots`; a slope None: 1 for every
  // element.
  m.def(
      "backward",
      [](nb::list roots, nb::list slopes, nb::list leaves, bool create_graph) {
        const PythonEntry entry;
        const BelowLayers below;
        const NotRecording off(!create_graph);
        std::vector<const Tracked*> from, with;
        std::vector<nb::object> kept;
        for (size_t i = 0; i < nb::len(roots); ++i) {
          nb::object root = roots[i], slope = slopes[i];
          if (!tracked_of(root.ptr()).node) continue;
          if (slope.is_none()) slope = wrap(ones(self_of(root.ptr())));
          from.push_back(&tracked_of(root.ptr()));
          with.push_back(&tracked_of(slope.ptr()));
          kept.push_back(root);
          kept.push_back(slope);
        }
        std::vector<TapeNode*> wanted;
        for (nb::handle leaf : leaves) wanted.push_back(nb::cast<PyLeaf&>(leaf).node.get());
        auto found = Walk(wanted, create_graph).run(from, with);
        nb::list results;
        for (auto& gradient : found) results.append(gradient ? wrap(std::move(*gradient)) : nb::none());
        return results;
      },
      nb::arg("roots"), nb::arg("slopes"), nb::arg("leaves"), nb::arg("create_graph"));
  // Remembers that outputs came from inputs by way of a Python function; `backward` is called with their
  // gradients.
  m.def("record_function", [](nb::list inputs, nb::list outputs, nb::object backward) {
    auto node = make_ref<TapeNode>();
    node->kind = TapeNode::Kind::function;
    node->number = ++last_number;
    node->function = backward.release().ptr();
    node->site = Site::here();
    for (nb::handle x : inputs) node->edges.push_back({tracked_of(x.ptr()).node, tracked_of(x.ptr()).index});
    uint32_t index = 0;
    for (nb::handle y : outputs) {
      Tracked& tracked = tracked_of(y.ptr());
      put_geometry(tracked.tensor, node->outputs.emplace_back());
      node->devices.push_back(tracked.tensor.device());
      if (is_differentiable(tracked.tensor)) {
        tracked.node = node;
        tracked.index = index;
      }
      ++index;
    }
  });
}

}  // namespace weft
