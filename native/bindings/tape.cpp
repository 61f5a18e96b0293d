// tape.cpp: what Python asks of the tape (calls/tape.h), and what the tape asks of Python (calls/host.h).
#include "bindings/tape.h"

#include "bindings/hooks.h"
#include "bindings/launch_recorder.h"
#include "bindings/operator.h"

namespace weft {

namespace host {

Ref<Plan> plan_backward(const Plan& plan, const std::vector<bool>& needs_gradient,
                        const std::vector<bool>& has_cotangent) {
  const auto listed = [](const std::vector<bool>& flags) {
    nb::list list;
    for (const bool flag : flags) list.append(nb::bool_(flag));
    return list;
  };
  ++OperatorFunction::planner_calls;
  const BelowLayers below;
  const nb::object backward =
      call_hook(Hook::plan_backward, nb::handle(plan.info), listed(needs_gradient), listed(has_cotangent));
  return backward.is_none() ? Ref<Plan>() : nb::cast<PyPlan&>(backward).plan;
}

std::pair<Ref<Plan>, std::vector<std::pair<size_t, size_t>>> plan_recording(const Plan& plan) {
  nb::object form_and_writes;
  {
    const BelowLayers below;
    form_and_writes = call_hook(Hook::plan_recording, nb::handle(plan.info));
  }
  std::pair<Ref<Plan>, std::vector<std::pair<size_t, size_t>>> recording;
  if (const nb::object form = form_and_writes[0]; !form.is_none())
    recording.first = nb::cast<PyPlan&>(form).plan;
  for (nb::handle pair : nb::list(form_and_writes[1]))
    recording.second.emplace_back(nb::cast<size_t>(pair[0]), nb::cast<size_t>(pair[1]));
  return recording;
}

Tracked sum(Tracked&& first, Tracked&& second) {
  const nb::object a = wrap(std::move(first)), b = wrap(std::move(second));
  const nb::object total = checked(call_slot(Slot::add, a.ptr(), b.ptr()));
  return tracked_of(total.ptr());
}

std::vector<std::optional<Tracked>> call_backward(const TapeNode& node, std::vector<Tracked>&& cotangents) {
  nb::list arguments;
  for (Tracked& cotangent : cotangents) arguments.append(wrap(std::move(cotangent)));
  const nb::object returned = nb::handle(node.function)(*nb::tuple(arguments));
  const std::string at = "\n  called at " + node.site.text();
  if (!returned.is_none() && !is_tensor(returned) && !PyTuple_Check(returned.ptr()) &&
      !PyList_Check(returned.ptr()))
    throw type_error(
        "backward: expected a Tensor, None, or a tuple of them for the tensors of forward, got " +
        type_of(returned) + at);
  const nb::object items = returned.is_none() || is_tensor(returned) ? nb::object(nb::make_tuple(returned))
                                                                     : nb::object(nb::tuple(returned));
  const size_t inputs = node.edges.size();
  if (nb::len(items) != inputs)
    throw value_error("backward gave " + std::to_string(nb::len(items)) + " gradients for " +
                      std::to_string(inputs) + " inputs" + at);
  std::vector<std::optional<Tracked>> gradients(inputs);
  for (size_t k = 0; k < inputs; ++k) {
    nb::object item = items[k];
    if (item.is_none()) continue;
    if (!is_tensor(item))
      throw type_error("backward: gradient " + std::to_string(k) + " must be a Tensor or None, got " +
                       type_of(item) + at);
    const DType dtype = node.saved[k].dtype;
    if (!node.edges[k].node || !is_differentiable(dtype)) continue;  // of which none is wanted
    if (const DType item_dtype = self_of(item.ptr()).dtype;
        is_differentiable(item_dtype) && item_dtype != dtype)
      item = call_hook(Hook::operator_function, "cast")(item, "dtype"_a = dtype_object(dtype));
    gradients[k] = tracked_of(item.ptr());
  }
  return gradients;
}

uint32_t module_of_call() { return nb::cast<uint32_t>(call_hook(Hook::module_here)); }

}  // namespace host

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

}  // namespace

void bind_tape(nb::module_& m) {
  Class<PyLeaf>(m, "Leaf", "A tensor that gradients are wanted of, from watch() on.");
  def(m, "set_recording", [](bool on) { context().recording_off += on ? -1 : 1; });
  // How many have stopped the recording, none or so many from now on; gives how many had before.
  def(m, "swap_recording_off", [](int off) { return std::exchange(context().recording_off, off); });
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
  // What is being written down now, 0: nothing.
  def(m, "epoch", [] { return context().stop_epoch; });
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
  def(m, "watch", [](nb::handle x) { return PyLeaf{watch(tracked_of(x, "attach"))}; });
  // A plan on these arrays and numbers: all its outputs; the first of them are written to the arrays of
  // `into`. late: what it does has been seen before, as if it had been done then.
  def(
      m, "run_plan",
      [](const PyPlan& plan, nb::list arrays, nb::list numbers, nb::list into, bool late) {
        std::vector<const Tracked*> inputs;
        std::vector<Scalar> values;
        const nb::tuple held(arrays), held_into(into);  // other threads may change the lists
        for (nb::handle x : held) {
          inputs.push_back(&tracked_of(x, "run_plan"));
          met(x.ptr());
        }
        for (nb::handle value : numbers) values.push_back(as_scalar(value));
        std::vector<const Tensor*> destinations;
        for (nb::handle x : held_into) destinations.push_back(&tensor_of(x, "run_plan"));
        std::vector<Tracked> results(plan.plan->program->outputs.size());
        call_checked(plan.plan, inputs, values, destinations, results, late);
        nb::list arrays_of_results;
        for (Tracked& y : results) arrays_of_results.append(wrap(std::move(y)));
        return arrays_of_results;
      },
      "plan"_a, "arrays"_a, "numbers"_a = nb::list(), "into"_a = nb::list(), "late"_a = false);
  // x is again what it was before the leaf; if it was written meanwhile and had a past, that goes on.
  def(m, "unwatch", [](nb::handle x, const PyLeaf& leaf) { unwatch(tracked_of(x, "unwatch"), *leaf.node); });
  // Whether only operators may do what happens to x, because it is recorded or a layer wants to see it.
  def(m, "by_operators", [](nb::handle x) {
    tensor_of(x, "by_operators");
    return by_operators(x.ptr());
  });
  // What an answer computed from x holds for: (the number of its past, 0 while nothing is recorded; how often
  // it was written).
  def(m, "state_of", [](nb::handle x) {
    const Tracked& tracked = tracked_of(x, "state_of");
    return nb::make_tuple(tracked.node && recording() ? tracked.node->number : 0,
                          tracked.tensor.chunk->writes.load(std::memory_order_relaxed));
  });
  // Whether it has left the history of what is written down; or was, in an epoch around this one.
  def(
      m, "is_stopped",
      [](nb::handle x, uint32_t epoch) {
        const Tracked& tracked = tracked_of(x, "is_stopped");
        return is_stopped(tracked) || (epoch && tracked.stopped == epoch);
      },
      "x"_a, "epoch"_a = 0);
  def(m, "is_tracked", [](nb::handle x) { return static_cast<bool>(tracked_of(x, "is_tracked").node); });
  // Whether both have the same history, or none.
  def(m, "have_same_past", [](nb::handle x, nb::handle y) {
    const Tracked &a = tracked_of(x, "have_same_past"), &b = tracked_of(y, "have_same_past");
    return a.node.get() == b.node.get() && (!a.node || a.index == b.index);
  });
  // Before x is written by what no operator does: gradients that have saved its content find it overwritten.
  // Raises ValueError where x cannot be written. Gives whether x is all of its memory.
  def(
      m, "overwrite",
      [](nb::handle x, const char* name) {
        const Tensor& tensor = tensor_of(x, name);
        check_writable(tensor, name);
        tensor.chunk->writes.fetch_add(1, std::memory_order_relaxed);
        note_overwriting(tensor);
        return tensor.covers_chunk();
      },
      "x"_a, "name"_a);
  // The same memory in a new object, with the same past, or none. is_result: it will get another one.
  def(
      m, "alias",
      [](nb::handle x, bool keep_past, bool is_result) {
        const Tracked& tracked = tracked_of(x, "alias");
        met(x.ptr());
        Tracked y(tracked);
        if (!keep_past) {
          y.node = {};
          y.stopped = is_result ? 0 : context().stop_epoch;
        }
        return wrap(std::move(y));
      },
      "x"_a, "keep_past"_a, "is_result"_a = false);
  // The gradients of `leaves`, None where there is none, from those of `roots`; a cotangent None: 1 for every
  // element. on_final(number of a leaf, its gradient), unless None, is called while others are still
  // computed, as soon as a gradient is final.
  def(
      m, "backward",
      [](nb::list roots, nb::list cotangents, nb::list leaves, bool create_graph, nb::object on_final) {
        const Layers callers = context().layers;
        const BelowLayers below;
        const NotRecording off(!create_graph);
        std::vector<const Tracked*> from, with;
        std::vector<nb::object> held_objects;
        if (nb::len(roots) != nb::len(cotangents))
          throw ValueError("backward: " + std::to_string(nb::len(roots)) + " values, but " +
                           std::to_string(nb::len(cotangents)) + " gradients of them");
        for (size_t i = 0; i < nb::len(roots); ++i) {
          nb::object root = roots[i], cotangent = cotangents[i];
          const Tensor& y = tensor_of(root, "backward");
          if (!cotangent.is_none())
            check_cotangent(tensor_of(cotangent, "backward"), y, y.device(), "backward", "y");
          if (!tracked_of(root.ptr()).node) continue;
          if (cotangent.is_none())
            cotangent = wrap(filled(y, y.device(), 1));
          else
            met(cotangent.ptr());
          from.push_back(&tracked_of(root.ptr()));
          with.push_back(&tracked_of(cotangent.ptr()));
          held_objects.push_back(root);
          held_objects.push_back(cotangent);
        }
        std::vector<TapeNode*> leaf_nodes;
        std::vector<Ref<TapeNode>> held;
        for (nb::handle leaf : leaves) {
          held.push_back(nb::cast<PyLeaf&>(leaf).node);
          leaf_nodes.push_back(held.back().get());
        }
        OnFinal tell;
        if (!on_final.is_none())
          tell = [&](size_t leaf, const Tracked& gradient) {
            const WithLayers of_caller(callers);
            on_final(leaf, wrap(Tracked(gradient)));
          };
        auto gradients = walk_back(from, with, leaf_nodes, create_graph, tell);
        nb::list results;
        for (auto& gradient : gradients) results.append(gradient ? wrap(std::move(*gradient)) : nb::none());
        return results;
      },
      "roots"_a, "cotangents"_a, "leaves"_a, "create_graph"_a, "on_final"_a = nb::none());
  // A region begins that is not recorded.
  def(m, "begin_noting", begin_noting);
  // It ends: whether it read a recorded array that is none of these.
  def(m, "end_noting", [](nb::list arguments) {
    std::vector<const Tracked*> arrays;
    for (nb::handle x : arguments)
      if (is_tensor(x)) arrays.push_back(&tracked_of(x.ptr()));
    return end_noting(arrays);
  });
  // Remembers that outputs came from inputs by way of a Python function; `backward` is called with their
  // gradients.
  def(m, "record_function", [](nb::list inputs, nb::list outputs, nb::object backward) {
    std::vector<const Tracked*> from;
    std::vector<Tracked*> to;
    for (nb::handle x : inputs) from.push_back(&tracked_of(x, "record_function"));
    for (nb::handle y : outputs) to.push_back(&tracked_of(y, "record_function"));
    const Ref<TapeNode> node = record_function(from, to, backward.release().ptr());
    for (nb::handle y : outputs) collect_through(y.ptr());
  });
}

}  // namespace weft
