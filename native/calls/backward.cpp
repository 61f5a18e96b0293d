// backward.cpp: the way back: from gradients of results to those of leaves, node by node, the latest first,
// so that a node is visited once all gradients of its outputs have been added up.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "calls/tape.h"

namespace weft {

namespace {

// What is pushed meanwhile belongs to the module of a call.
class ModuleScope {
 public:
  explicit ModuleScope(uint32_t module) : before_(std::exchange(context().module, module)) {}
  ~ModuleScope() { context().module = before_; }
  ModuleScope(const ModuleScope&) = delete;

 private:
  const uint32_t before_;
};

class BackwardWalk {
 public:
  BackwardWalk(std::span<TapeNode* const> leaves, bool create_graph, const OnFinal& on_final)
      : create_graph_(create_graph), on_final_(on_final) {
    for (size_t i = 0; i < leaves.size(); ++i) leaf_index_[leaves[i]] = i;
    gradients_.resize(leaves.size());
  }

  std::vector<std::optional<Tracked>> run(std::span<const Tracked* const> roots,
                                          std::span<const Tracked* const> cotangents) {
    for (const Tracked* root : roots) mark(root->node.get());
    for (size_t i = 0; i < roots.size(); ++i) add(roots[i]->node, roots[i]->index, Tracked(*cotangents[i]));
    while (!queue_.empty()) {
      std::ranges::pop_heap(queue_, is_earlier);
      const Ref<TapeNode> node = std::move(queue_.back());
      queue_.pop_back();
      visit(node);
      if (on_final_) report_final(*node);
    }
    return std::move(gradients_);
  }

 private:
  using Cotangents = std::vector<std::optional<Tracked>>;
  // What the walk knows of a node.
  struct Reached {
    bool reaches_leaf;      // one that is wanted
    Cotangents cotangents;  // so far; empty: none, and the node is not in the queue
  };
  static bool is_earlier(const Ref<TapeNode>& a, const Ref<TapeNode>& b) { return a->number < b->number; }

  // Finds the nodes from which a wanted leaf can be reached.
  void mark(TapeNode* root) {
    std::vector<std::pair<TapeNode*, bool>> stack{{root, false}};
    while (!stack.empty()) {
      const auto [node, ready] = stack.back();
      stack.pop_back();
      if (!node) continue;
      if (!ready) {
        if (!reached_.try_emplace(node, leaf_index_.contains(node)).second) continue;
        stack.emplace_back(node, true);
        for (const TapeNode::Edge& edge : node->edges) stack.emplace_back(edge.node.get(), false);
      } else {
        bool& reaches = reached_.find(node)->second.reaches_leaf;
        for (const TapeNode::Edge& edge : node->edges) {
          reaches |= reaches_leaf(edge.node.get());
          if (on_final_ && leaf_index_.contains(edge.node.get())) ++open_edges_[edge.node.get()];
        }
      }
    }
  }

  bool reaches_leaf(const TapeNode* node) const {
    const auto it = reached_.find(node);
    return it != reached_.end() && it->second.reaches_leaf;
  }

  void add(const Ref<TapeNode>& node, uint32_t index, Tracked&& cotangent) {
    const auto it = reached_.find(node.get());
    if (it == reached_.end() || !it->second.reaches_leaf) return;
    Cotangents& cotangents = it->second.cotangents;
    if (cotangents.empty()) {
      queue_.push_back(node);
      std::ranges::push_heap(queue_, is_earlier);
    }
    if (cotangents.size() <= index) cotangents.resize(index + 1);
    std::optional<Tracked>& sum = cotangents[index];
    if (!sum) {
      sum.emplace(std::move(cotangent));
      return;
    }
    Tracked before = std::move(*sum);
    sum.emplace(host::sum(std::move(before), std::move(cotangent)));
  }

  // Reports the wanted leaves that got their last summand from this node, or are it. A gradient is final when
  // every node with an edge to its leaf has been visited: mark() counted those edges, and only visits add.
  // Nodes that get no gradient are never visited; leaves that they lead to are reported when the queue comes
  // to them, as leaves are older than what was computed from them.
  void report_final(const TapeNode& node) {
    if (const auto leaf = leaf_index_.find(&node); leaf != leaf_index_.end()) {
      if (reported_.insert(&node).second) on_final_(leaf->second, *gradients_[leaf->second]);
      return;
    }
    for (const TapeNode::Edge& edge : node.edges) {
      const auto edges = open_edges_.find(edge.node.get());
      if (edges == open_edges_.end() || --edges->second) continue;
      const Cotangents& cotangents = reached_.find(edge.node.get())->second.cotangents;
      if (cotangents.empty() || !reported_.insert(edge.node.get()).second) continue;
      on_final_(leaf_index_.at(edge.node.get()), *cotangents[0]);
    }
  }

  void visit(const Ref<TapeNode>& node) {
    Cotangents cotangents = std::exchange(reached_.find(node.get())->second.cotangents, {});
    if (const auto leaf = leaf_index_.find(node.get()); leaf != leaf_index_.end()) {
      // What a leaf was before has a gradient by way of it, if another leaf is there.
      if (!node->edges.empty()) add(node->edges[0].node, node->edges[0].index, Tracked(*cotangents[0]));
      gradients_[leaf->second] = std::move(cotangents[0]);
      return;
    }
    const ModuleScope scope(node->context);
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
  static void restride(Tensor& x, const std::vector<int64_t>& strides) {
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
  // orders, one of these alone, which multiplies no zeros. has_cotangent: those that it takes.
  Ref<Plan> backward_for(const TapeNode& node, const Cotangents& cotangents,
                         std::vector<bool>& has_cotangent) const {
    constexpr size_t kForms = 8;  // more of one plan are not made: zeros come in for what is missing
    const size_t outputs = node.plan->program->outputs.size();
    const auto is_usual = [&](size_t j) { return has_usual_cotangent(*node.plan, j); };
    Bits needs_gradient, all;
    for (size_t k = 0; k < node.edges.size(); ++k) {
      if (!node.edges[k].node || !is_differentiable(node.saved[k].dtype)) continue;
      all.set(k);
      if (reaches_leaf(node.edges[k].node.get())) needs_gradient.set(k);
    }
    has_cotangent.assign(outputs, false);
    bool is_unusual = false, are_all_there = true;
    for (size_t j = 0; j < outputs; ++j) {
      has_cotangent[j] = j < cotangents.size() && cotangents[j];
      is_unusual |= has_cotangent[j] && !is_usual(j);
      are_all_there &= has_cotangent[j] || !is_usual(j);
    }
    if (!is_unusual) {
      if (are_all_there && needs_gradient == all) return node.backward;
      if (node.plan->backwards.size() < kForms) {
        const Ref<Plan> plan = backward_of(node.plan, needs_gradient, has_cotangent);
        if (!plan || !first_unsaved(node, *plan)) return plan;
      }
      for (size_t j = 0; j < outputs; ++j) has_cotangent[j] = is_usual(j);
      return node.backward;
    }
    for (size_t j = 0; j < outputs; ++j) has_cotangent[j] = has_cotangent[j] || is_usual(j);
    const Ref<Plan> plan = backward_of(node.plan, all, has_cotangent);
    if (plan)
      if (const std::optional<size_t> k = first_unsaved(node, *plan))
        throw NotDerivable(node.plan->program->name + ": called at " + node.site.text() +
                           ": the gradient of its gradient reads " + describe_saved(node, *k) +
                           ", which its gradient does not keep");
    return plan;
  }

  // An input or output whose value a plan reads and the node has not saved.
  static std::optional<size_t> first_unsaved(const TapeNode& node, const Plan& plan) {
    for (size_t k = 0; k < node.saved.size(); ++k)
      if (plan.program->uses[k] >= Program::Use::aliased && !node.saved[k].chunk && node.saved[k].size)
        return k;
    return std::nullopt;
  }

  // "input 0, f32[2]@cpu:0": the saved value k.
  static std::string describe_saved(const TapeNode& node, size_t k) {
    const size_t count = node.edges.size();
    return (k < count ? "input " : "output ") + std::to_string(k < count ? k : k - count) + ", " +
           describe(node.saved[k]);
  }

  void visit_plan(const Ref<TapeNode>& node, Cotangents& cotangents) {
    if (node->saved.empty())
      throw ValueError(node->plan->program->name + ": called at " + node->site.text() +
                       ": its history was freed by an earlier backward");
    const size_t count = node->edges.size();
    std::vector<bool>& has_cotangent = space_.has_cotangent;
    const Ref<Plan> plan = backward_for(*node, cotangents, has_cotangent);
    if (!plan) return;
    const Plan& backward = *plan;
    cotangents.resize(has_cotangent.size());
    for (size_t j = 0; j < has_cotangent.size(); ++j)
      if (has_cotangent[j] && !cotangents[j])
        cotangents[j].emplace(filled(node->saved[count + j], node->plan->program->device_of(j), 0));
    std::vector<Tracked>& inputs = space_.inputs;
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
      if (backward.program->uses[k] >= Program::Use::aliased) restride(inputs[k].tensor, backward.strides[k]);
    for (const Tracked& x : inputs) space_.pointers.push_back(&x);
    std::vector<Tracked>& results = space_.results;
    results.resize(backward.program->outputs.size());
    call_plan(plan, space_.pointers, node->numbers, {}, results);
    size_t next = 0;
    for (size_t k = 0; k < count && next < results.size(); ++k)
      if (backward.gradients.test(k))
        add(node->edges[k].node, node->edges[k].index, std::move(results[next++]));
    space_.clear();
    if (!create_graph_) node->saved.clear();
  }

  // A cotangent that a function of the language may write to: a copy where others read
  // the same memory, arrays of the caller or nodes that the walk has not come to.
  Tracked writable_cotangent(Cotangents& cotangents, size_t j) const {
    Tracked& cotangent = *cotangents[j];
    const Chunk* chunk = cotangent.tensor.chunk.get();
    const auto shares_memory = [&](const std::optional<Tracked>& x) {
      return x && &*x != &cotangent && x->tensor.chunk.get() == chunk;
    };
    bool is_shared = chunk->faces != 0 || std::ranges::any_of(cotangents, shares_memory) ||
                     std::ranges::any_of(gradients_, shares_memory);
    for (const Ref<TapeNode>& node : queue_)
      is_shared =
          is_shared || std::ranges::any_of(reached_.find(node.get())->second.cotangents, shares_memory);
    if (!is_shared) return std::move(cotangent);
    return {copy_of(cotangent.tensor, cotangent.tensor.dtype, cotangent.tensor.device()), cotangent.node,
            cotangent.index};
  }

  void visit_function(const Ref<TapeNode>& node, Cotangents& cotangents) {
    cotangents.resize(node->outputs.size());
    const size_t inputs = node->edges.size();
    std::vector<Tracked> arguments;
    for (size_t j = 0; j < cotangents.size(); ++j)
      arguments.push_back(cotangents[j] ? writable_cotangent(cotangents, j)
                                        : Tracked(filled(node->outputs[j], node->devices[inputs + j], 0)));
    std::vector<std::optional<Tracked>> gradients = host::call_backward(*node, std::move(arguments));
    for (size_t k = 0; k < inputs; ++k) {
      if (!gradients[k]) continue;
      check_cotangent(gradients[k]->tensor, node->saved[k], node->devices[k], "backward",
                      "input " + std::to_string(k), "\n  called at " + node->site.text());
      add(node->edges[k].node, node->edges[k].index, std::move(*gradients[k]));
    }
  }

  static void check_version(const TapeNode& node, size_t k) {
    const Tensor& x = node.saved[k];
    if (!x.chunk) return;
    const uint32_t now = x.chunk->writes.load(std::memory_order_relaxed);
    if (now == node.versions[k]) return;
    const Site* site = overwriting_of(x.chunk.get());
    const std::string where = site ? "\n  overwritten at " + site->text() : "";
    throw ValueError(node.plan->program->name + ": its gradient needs " + describe_saved(node, k) +
                     ", which has been overwritten since" + "\n  used at " + node.site.text() + where +
                     "\n  hint: write to a copy()");
  }

  const bool create_graph_;
  const OnFinal& on_final_;  // may be empty
  std::unordered_map<const TapeNode*, size_t> leaf_index_;
  std::unordered_map<const TapeNode*, size_t>
      open_edges_;  // edges to wanted leaves that may still add to them
  std::unordered_set<const TapeNode*> reported_;
  std::unordered_map<const TapeNode*, Reached> reached_;
  std::vector<Ref<TapeNode>> queue_;  // a heap, the latest first: nodes that have cotangents
  // Of one node's visit, whose room the next one has.
  struct {
    std::vector<bool> has_cotangent;
    std::vector<Tracked> inputs, results;
    std::vector<const Tracked*> pointers;
    void clear() noexcept {
      inputs.clear();
      results.clear();
      pointers.clear();
    }
  } space_;
  std::vector<std::optional<Tracked>> gradients_;
};

}  // namespace

std::vector<std::optional<Tracked>> walk_back(std::span<const Tracked* const> roots,
                                              std::span<const Tracked* const> cotangents,
                                              std::span<TapeNode* const> leaves, bool create_graph,
                                              const OnFinal& on_final) {
  return BackwardWalk(leaves, create_graph, on_final).run(roots, cotangents);
}

}  // namespace weft
