// walk.cpp: the way back: from gradients of results to those of leaves, node by node, the latest first, so
// that a node is visited once all gradients of its outputs have been added up.
#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "calls/tape.h"

namespace weft {

namespace {

// What is pushed meanwhile belongs to the module of a call.
class InContext {
 public:
  explicit InContext(uint32_t module) : before_(std::exchange(context().module, module)) {}
  ~InContext() { context().module = before_; }
  InContext(const InContext&) = delete;

 private:
  const uint32_t before_;
};

class Walk {
 public:
  Walk(std::span<TapeNode* const> leaves, bool create_graph, const OnFinal& on_final)
      : create_graph_(create_graph), on_final_(on_final) {
    for (size_t i = 0; i < leaves.size(); ++i) wanted_[leaves[i]] = i;
    found_.resize(leaves.size());
  }

  std::vector<std::optional<Tracked>> run(std::span<const Tracked* const> roots,
                                          std::span<const Tracked* const> cotangents) {
    for (const Tracked* root : roots) mark(root->node.get());
    for (size_t i = 0; i < roots.size(); ++i) add(roots[i]->node, roots[i]->index, Tracked(*cotangents[i]));
    while (!queue_.empty()) {
      const Ref<TapeNode> node = queue_.top().node;
      queue_.pop();
      visit(node);
      if (on_final_) announce(*node);
    }
    return std::move(found_);
  }

 private:
  struct Entry {
    Ref<TapeNode> node;
    bool operator<(const Entry& other) const { return node->number < other.node->number; }
  };
  using Cotangents = std::vector<std::optional<Tracked>>;

  // Finds the nodes from which a wanted leaf can be reached.
  void mark(TapeNode* root) {
    std::vector<std::pair<TapeNode*, bool>> stack{{root, false}};
    while (!stack.empty()) {
      const auto [node, ready] = stack.back();
      stack.pop_back();
      if (!node) continue;
      if (!ready) {
        if (!leads_.emplace(node, wanted_.contains(node)).second) continue;
        stack.emplace_back(node, true);
        for (const TapeNode::Edge& edge : node->edges) stack.emplace_back(edge.node.get(), false);
      } else {
        bool leads = false;
        for (const TapeNode::Edge& edge : node->edges) {
          const auto found = leads_.find(edge.node.get());
          leads |= found != leads_.end() && found->second;
          if (on_final_ && wanted_.contains(edge.node.get())) ++awaited_[edge.node.get()];
        }
        leads_[node] = leads || wanted_.contains(node);
      }
    }
  }

  bool leads(const TapeNode* node) const {
    const auto found = leads_.find(node);
    return found != leads_.end() && found->second;
  }

  void add(const Ref<TapeNode>& node, uint32_t index, Tracked&& cotangent) {
    if (!node || !leads(node.get())) return;
    auto [place, is_new] = cotangents_.try_emplace(node.get());
    Cotangents& cotangents = place->second;
    if (is_new) queue_.push({node});
    if (cotangents.size() <= index) cotangents.resize(index + 1);
    std::optional<Tracked>& known = cotangents[index];
    if (!known) {
      known.emplace(std::move(cotangent));
      return;
    }
    Tracked before = std::move(*known);
    known.emplace(host::sum(std::move(before), std::move(cotangent)));
  }

  // Reports the wanted leaves that got their last summand from this node, or are it. A gradient is final when
  // every node with an edge to its leaf has been visited: mark() counted those edges, and only visits add.
  // Nodes that get no gradient are never visited; leaves that they lead to are reported when the queue comes
  // to them, as leaves are older than what was computed from them.
  void announce(const TapeNode& node) {
    if (const auto wanted = wanted_.find(&node); wanted != wanted_.end()) {
      if (announced_.insert(&node).second) on_final_(wanted->second, *found_[wanted->second]);
      return;
    }
    for (const TapeNode::Edge& edge : node.edges) {
      const auto place = awaited_.find(edge.node.get());
      if (place == awaited_.end() || --place->second) continue;
      const auto found = cotangents_.find(edge.node.get());
      if (found == cotangents_.end() || !announced_.insert(edge.node.get()).second) continue;
      on_final_(wanted_.at(edge.node.get()), *found->second[0]);
    }
  }

  void visit(const Ref<TapeNode>& node) {
    const auto place = cotangents_.find(node.get());
    Cotangents cotangents = std::move(place->second);
    cotangents_.erase(place);
    if (const auto wanted = wanted_.find(node.get()); wanted != wanted_.end()) {
      // What a leaf was before has a gradient by way of it, if another leaf is there.
      if (!node->edges.empty()) add(node->edges[0].node, node->edges[0].index, Tracked(*cotangents[0]));
      found_[wanted->second] = std::move(cotangents[0]);
      return;
    }
    const InContext of_call(node->context);
    switch (node->kind) {
      case TapeNode::Kind::leaf:
        add(node->edges[0].node, node->edges[0].index, std::move(*cotangents[0]));
        break;
      case TapeNode::Kind::plan:
        visit_plan(node, cotangents);
        break;
      case TapeNode::Kind::function:
        visit_function(node, cotangents);
        break;
    }
  }

  // Gives x the strides that a plan for exact sizes expects, by a copy if they differ; those of gradients
  // have no gaps.
  static void lay_out(Tensor& x, const std::vector<int64_t>& strides) {
    bool as_planned = true;
    for (int d = 0; d < x.ndim; ++d)
      as_planned &= x.shape[d] == 1 || x.strides[d] == strides[static_cast<size_t>(d)];
    if (as_planned || x.size == 0) return;
    Tensor copy = Tensor::empty(x.dims(), x.dtype, x.device());
    std::copy_n(strides.begin(), x.ndim, copy.strides);
    push_copy(copy, x);
    x = std::move(copy);
  }

  // The plan of a node's gradients: the one it saved for; where a gradient read other hidden outputs and has
  // been recorded, one that takes theirs, too; where only some gradients come in or are wanted, as in higher
  // orders, one of these alone, which multiplies no zeros. given: the cotangents that it takes.
  Ref<Plan> backward_for(const TapeNode& node, const Cotangents& cotangents, std::vector<bool>& given) const {
    constexpr size_t kForms = 8;  // more of one plan are not made: zeros come in for what is missing
    const std::vector<bool> usual = usual_cotangents(*node.plan);
    Bits wanted, all;
    for (size_t k = 0; k < node.edges.size(); ++k) {
      if (!node.edges[k].node || !is_differentiable(node.saved[k].dtype)) continue;
      all.set(k);
      if (leads(node.edges[k].node.get())) wanted.set(k);
    }
    given.assign(usual.size(), false);
    bool more = false;
    for (size_t j = 0; j < cotangents.size(); ++j)
      if (cotangents[j]) {
        given[j] = true;
        more |= !usual[j];
      }
    if (!more) {
      if (given == usual && wanted == all) return node.backward;
      if (node.plan->backwards.size() < kForms) {
        const Ref<Plan> plan = backward_of(node.plan, wanted, given);
        if (!plan || !unsaved(node, *plan)) return plan;
      }
      given = usual;
      return node.backward;
    }
    for (size_t j = 0; j < usual.size(); ++j) given[j] = given[j] || usual[j];
    const Ref<Plan> plan = backward_of(node.plan, all, given);
    if (plan)
      if (const std::optional<size_t> k = unsaved(node, *plan))
        throw NotDerivable(node.plan->program->name + ": called at " + node.site.text() +
                           ": the gradient of its gradient reads " + place_of(node, *k) +
                           ", which its gradient does not keep");
    return plan;
  }

  // A place whose value a plan reads that the node has not saved.
  static std::optional<size_t> unsaved(const TapeNode& node, const Plan& plan) {
    for (size_t k = 0; k < node.saved.size(); ++k)
      if (plan.program->uses[k] >= Program::Use::shown && !node.saved[k].chunk && node.saved[k].size)
        return k;
    return std::nullopt;
  }

  // "input 0, f32[2]@cpu:0": what is at place k of the saved values.
  static std::string place_of(const TapeNode& node, size_t k) {
    const size_t count = node.edges.size();
    return (k < count ? "input " : "output ") + std::to_string(k < count ? k : k - count) + ", " +
           describe(node.saved[k]);
  }

  void visit_plan(const Ref<TapeNode>& node, Cotangents& cotangents) {
    if (node->saved.empty())
      throw ValueError(node->plan->program->name + ": called at " + node->site.text() +
                       ": its history was freed by an earlier backward");
    const size_t count = node->edges.size();
    std::vector<bool> given;
    const Ref<Plan> plan = backward_for(*node, cotangents, given);
    if (!plan) return;
    const Plan& backward = *plan;
    cotangents.resize(given.size());
    for (size_t j = 0; j < given.size(); ++j)
      if (given[j] && !cotangents[j])
        cotangents[j].emplace(filled(node->saved[count + j], node->plan->program->device_of(j), 0));
    std::vector<Tracked> inputs;
    inputs.reserve(node->saved.size() + cotangents.size());
    for (size_t k = 0; k < node->saved.size(); ++k) {
      check_version(*node, k);
      if (k < count)
        inputs.emplace_back(Tensor(node->saved[k]), node->edges[k].node, node->edges[k].index);
      else
        inputs.emplace_back(Tensor(node->saved[k]), node, static_cast<uint32_t>(k - count));
      if (context().stop_epoch && node->epoch == context().stop_epoch && node->stopped.test(k))
        inputs.back().stopped = context().stop_epoch;
    }
    for (auto& cotangent : cotangents)
      if (cotangent) inputs.push_back(std::move(*cotangent));
    for (size_t k = 0; k < backward.strides.size(); ++k)
      if (backward.program->uses[k] >= Program::Use::shown) lay_out(inputs[k].tensor, backward.strides[k]);
    std::vector<const Tracked*> pointers;
    for (const Tracked& x : inputs) pointers.push_back(&x);
    std::vector<Tracked> results(backward.program->outputs.size());
    call_plan(plan, pointers, node->numbers, {}, results);
    size_t next = 0;
    for (size_t k = 0; k < count && next < results.size(); ++k)
      if (backward.gradients.test(k))
        add(node->edges[k].node, node->edges[k].index, std::move(results[next++]));
    if (!create_graph_) {
      node->saved.clear();
    }
  }

  // A cotangent as a function of the language may have it, which may write to it: a copy where others read
  // the same memory, arrays of the caller or nodes that the walk has not come to.
  Tracked for_function(Cotangents& cotangents, size_t j) const {
    Tracked& cotangent = *cotangents[j];
    const Chunk* chunk = cotangent.tensor.chunk.get();
    const auto shows = [&](const std::optional<Tracked>& x) {
      return x && &*x != &cotangent && x->tensor.chunk.get() == chunk;
    };
    bool shared =
        chunk->faces != 0 || std::ranges::any_of(cotangents, shows) || std::ranges::any_of(found_, shows);
    for (const auto& [node, waiting] : cotangents_) shared = shared || std::ranges::any_of(waiting, shows);
    if (!shared) return std::move(cotangent);
    return {copy_of(cotangent.tensor, cotangent.tensor.dtype, cotangent.tensor.device()), cotangent.node,
            cotangent.index};
  }

  void visit_function(const Ref<TapeNode>& node, Cotangents& cotangents) {
    cotangents.resize(node->outputs.size());
    const size_t inputs = node->edges.size();
    std::vector<Tracked> given;
    for (size_t j = 0; j < cotangents.size(); ++j)
      given.push_back(cotangents[j] ? for_function(cotangents, j)
                                    : Tracked(filled(node->outputs[j], node->devices[inputs + j], 0)));
    std::vector<std::optional<Tracked>> made = host::call_backward(*node, std::move(given));
    for (size_t k = 0; k < inputs; ++k) {
      if (!made[k]) continue;
      check_cotangent(made[k]->tensor, node->saved[k], node->devices[k], "backward",
                      "input " + std::to_string(k), "\n  called at " + node->site.text());
      add(node->edges[k].node, node->edges[k].index, std::move(*made[k]));
    }
  }

  static void check_version(const TapeNode& node, size_t k) {
    const Tensor& x = node.saved[k];
    if (!x.chunk) return;
    const uint32_t now = x.chunk->writes.load(std::memory_order_relaxed);
    if (now == node.versions[k]) return;
    const Site* site = overwriting_of(x.chunk.get());
    const std::string where = site ? "\n  overwritten at " + site->text() : "";
    throw ValueError(node.plan->program->name + ": its gradient needs " + place_of(node, k) +
                     ", which has been overwritten since" + "\n  used at " + node.site.text() + where +
                     "\n  hint: write to a copy()");
  }

  const bool create_graph_;
  const OnFinal& on_final_;  // may be empty
  std::unordered_map<const TapeNode*, size_t> wanted_;
  std::unordered_map<const TapeNode*, size_t> awaited_;  // edges to wanted leaves that may still add to them
  std::unordered_set<const TapeNode*> announced_;
  std::unordered_map<const TapeNode*, bool> leads_;
  std::unordered_map<const TapeNode*, Cotangents> cotangents_;
  std::priority_queue<Entry> queue_;
  std::vector<std::optional<Tracked>> found_;
};

}  // namespace

std::vector<std::optional<Tracked>> walk_back(std::span<const Tracked* const> roots,
                                              std::span<const Tracked* const> cotangents,
                                              std::span<TapeNode* const> leaves, bool create_graph,
                                              const OnFinal& on_final) {
  return Walk(leaves, create_graph, on_final).run(roots, cotangents);
}

}  // namespace weft
