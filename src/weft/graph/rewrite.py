"""Applies the rewrite rules of passes: nodes are immutable, so the result is a new graph that shares unchanged nodes.

A rule looks at one node of the old graph and gives the values that replace its outputs, made of new values, or None.
Rules are used again until none finds anything. A `local` rule declares the operators that it replaces: it sees no other
nodes, and a graph that has none of them is not gone through. Nodes before the first one that changes are not touched.
A rule that answers `from_operands` sees a node again only if the node is new, and one that is `complete` has a single
round, so that no round goes over a graph only to find nothing.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.families.elementary import Cast
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> def no_casts(node, graph):
...     match node.op:
...         case Cast():
...             return graph.new(node.inputs[0])
>>> g = graph_of(lambda x: F.exp(F.cast(x, dtype="float32")), [TensorType((2,), float32)])
>>> print(rewrite(g, no_casts))
graph(x0: f32[2]@cpu:0)
  v0 = Exp()(x0): f32[2]@cpu:0
  return v0
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from weft.base.cached import cached_property
from weft.graph.graph import Graph
from weft.kernels import first_choice
from weft.ops.kernels import Loop, Native, Parts, Several
from weft.ops.node import Node, Value
from weft.ops.op import Op

__all__ = ["Rewriting", "complete", "counters", "from_operands", "local", "rewrite"]

ROUNDS = 1000  # more is a rule that undoes another one's work

counters = {"rewritten": 0, "dropped": 0}  # results of rules, those that were taken and those that were not

Replacement = Value | Sequence[Value | None] | None
Rule = Callable[[Node, "Rewriting"], Replacement]  # None for an output: that one stays
RuleT = TypeVar("RuleT", bound=Rule)
Show = Callable[[str], None]


def local(*roots: type[Op]) -> Callable[[RuleT], RuleT]:
    """Declare that a rule replaces nodes of these operators only, and those derived from them."""

    def declare(rule: RuleT) -> RuleT:
        rule.roots = roots  # type: ignore[attr-defined]
        return rule

    return declare


def from_operands(rule: RuleT) -> RuleT:
    """Declare that the result of a rule for a node follows from the node and what it is computed from.

    Nodes are immutable and refer to what they are computed from. So a node that a round left as it is would get the
    same answer in the next round, and the rule sees the others only.
    """
    rule.is_from_operands = True  # type: ignore[attr-defined]
    return rule


def complete(rule: RuleT) -> RuleT:
    """Declare that one round finds all that a rule can find: its rewrites never make another one possible."""
    rule.is_complete = True  # type: ignore[attr-defined]
    return rule


def rewrite(graph: Graph, rule: Rule, show: Show | None = None, drop: Show | None = None) -> Graph:
    """The graph with the rule applied wherever it gives something, over and over; the same object if nowhere.

    show: is called with each rewrite; drop: with each that is not taken. What a rule gives is taken if
    * its types are those of the outputs that it replaces: rules need not compute what promotion and broadcasting do;
    * the same random numbers are drawn;
    * what a caller gets as memory of its own does not become a view of an input.
    """
    roots: tuple[type[Op], ...] = getattr(rule, "roots", ())
    from_operands, is_complete = getattr(rule, "is_from_operands", False), getattr(rule, "is_complete", False)
    settled: set[Node] = set()
    earlier_graphs: list[Graph] = []  # so that no other node takes the id of a settled one
    for _ in range(ROUNDS):
        if roots and not [True for node in graph.nodes if isinstance(node.op, roots) and node not in settled]:
            return graph
        rewriting = Rewriting(graph)
        new_graph = rewriting.run(rule, show, drop, settled)
        if not rewriting.count:
            return graph
        if from_operands:
            settled.update(graph.nodes)
            earlier_graphs.append(graph)
        graph = new_graph
        if is_complete:
            return graph
    raise AssertionError(f"{rule!r}: rewrites without an end")


class Rewriting:
    """One round: what a rule may read of the old graph, and what has become of it yet.

    notes: what a rule remembers from node to node. count: how often the rule gave something.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.notes: dict[Any, Any] = {}
        self.count = 0
        self._new: dict[Value, Value] = {}  # by old value
        self._reached: set[Node] = set()
        self._outputs = {v for v in graph.outputs if v is not None}
        self._escaping: set[Value] | None = None
        self._draws_of: dict[Node, frozenset[int]] = {}  # as _draws
        self._settled = set(graph.nodes)
        self._alive: list[Node] = []  # new nodes, so that no other node takes the id of one

    @cached_property
    def _readers(self) -> dict[Value, list[Node]]:
        readers: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            for value in node.reads:
                readers.setdefault(value, []).append(node)
        return readers

    @cached_property
    def _is_random(self) -> bool:
        return True in [node.op is not None and node.op.random for node in self.graph.nodes]

    @cached_property
    def _stable_nodes(self) -> set[Node]:
        stable_nodes = {self.graph.inputs[k].node for k in self.graph.stable_inputs}
        for node in self.graph.nodes:
            is_deterministic = node.op is not None and not node.op.random
            if is_deterministic and all(v.is_constant or v.node in stable_nodes for v in node.reads):
                stable_nodes.add(node)
        return stable_nodes

    # For rules.

    def new(self, value: Value) -> Value:
        """The new value of an old one."""
        return self._new.get(value, value)

    def reader(self, value: Value) -> Node | None:
        """The only node that reads an old value, and only once; None if there are more, or it is an output."""
        readers = self._readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self._outputs else None

    def is_read(self, value: Value) -> bool:
        """Whether an old value has a reader."""
        return value in self._readers or value in self._outputs

    def is_made(self, value: Value) -> bool:
        """Whether the new value of an old one exists already when this node is reached."""
        return value.node.op is None or value.node in self._reached

    def is_stable(self, value: Value) -> bool:
        """Whether an old value follows from Graph.stable_inputs, so that it can be prepared."""
        return value.is_constant or value.node in self._stable_nodes

    # The machinery.

    def run(
        self, rule: Rule, show: Show | None, drop: Show | None = None, unchanged: Collection[Node] = ()
    ) -> Graph:
        """The graph with the rule applied to each node but the unchanged ones."""
        roots: tuple[type[Op], ...] = getattr(rule, "roots", ())
        for node in self.graph.nodes:
            if node.op is None:
                continue
            applies = (not roots or isinstance(node.op, roots)) and node not in unchanged
            result = rule(node, self) if applies else None
            replacements = None if result is None else self._checked(node, result)
            if replacements is not None:
                self.count += 1
                counters["rewritten"] += 1
                outputs: Sequence[Value] = replacements
                if show is not None:
                    show(f"{node!r} -> {', '.join(map(repr, replacements))}")
            else:
                if result is not None:
                    counters["dropped"] += 1
                    if drop is not None:
                        drop(f"{node!r} -> {result!r}")
                is_same = self._new.keys().isdisjoint(node.reads)
                outputs = node.outputs if is_same else self._rebuilt(node).outputs
            self._reached.add(node)
            if outputs is not node.outputs:
                for old, new in zip(node.outputs, outputs, strict=True):
                    if new is not old:
                        self._new[old] = new
        if not self._new:
            return self.graph
        outputs = [None if v is None else self.new(v) for v in self.graph.outputs]  # type: ignore[misc]
        return Graph(self.graph.inputs, outputs, self.graph.writes, self.graph.stable_inputs)

    def _rebuilt(self, node: Node) -> Node:
        """The node on new values; itself if they are the old ones."""
        if self._new.keys().isdisjoint(node.reads):
            return node
        new = self._new
        copy = node.reading({v: new.get(v, v) for v in node.reads}.__getitem__)
        self._settled.add(copy)
        self._alive.append(copy)
        return copy

    def _checked(self, node: Node, result: Value | Sequence[Value | None]) -> list[Value] | None:
        """The result of a rule, one value for each output; None if it cannot be taken."""
        values = [result] if isinstance(result, Value) else list(result)
        if len(values) != len(node.outputs):
            raise AssertionError(f"{node!r} has {len(node.outputs)} outputs, replaced by {len(values)}")
        if None in values:
            rebuilt = self._rebuilt(node)
            values = [rebuilt.outputs[k] if new is None else new for k, new in enumerate(values)]
        outputs = [v for v in values if v is not None]
        if [new.type for new in outputs] != [old.type for old in node.outputs]:
            return None
        if not all(map(self._may_leave, node.outputs, outputs)):
            return None
        self._settle(node, outputs)
        if self._is_random and self._draws(node) - frozenset().union(*(self._draws(v.node) for v in outputs)):
            return None
        return outputs

    def _settle(self, node: Node, values: Sequence[Value]) -> None:
        """Nodes that a rule just made take over the order of the one that they replace."""
        stack = [v.node for v in values]
        while stack:
            new_node = stack.pop()
            if new_node in self._settled:
                continue
            self._settled.add(new_node)
            self._alive.append(new_node)
            # The line of the one that it replaces, unless a rule has named one of what it merges.
            new_node.order, new_node.where = node.order, new_node.where or node.where
            stack += [v.node for v in new_node.reads]

    def _draws(self, node: Node) -> frozenset[int]:
        """The orders of the random operators that a node's outputs come from."""
        stack = [node]
        while stack:
            top = stack[-1]
            if top in self._draws_of:
                stack.pop()
                continue
            waiting = [v.node for v in top.reads if v.node not in self._draws_of]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            self._alive.append(top)
            draws = {top.order} if top.op is not None and top.op.random else frozenset[int]()
            self._draws_of[top] = frozenset(draws).union(*(self._draws_of[v.node] for v in top.reads))
        return self._draws_of[node]

    def _may_leave(self, old: Value, new: Value) -> bool:
        """Whether callers that get memory of their own still do."""
        if self._escaping is None:
            self._escaping = _escaping(self.graph)
        if old not in self._escaping or not _makes_memory(old.node):
            return True
        return _makes_memory(new.node)


def _makes_memory(node: Node) -> bool:
    """Whether no output of a node is a view."""
    return isinstance(first_choice(node), Loop | Native | Parts | Several)


def _escaping(graph: Graph) -> set[Value]:
    """The values that outputs of the graph may be views of, and those outputs."""
    stack = [v for v in graph.outputs if v is not None]
    escaping = set(stack)
    while stack:
        node = stack.pop().node
        if node.op is not None and not _makes_memory(node):
            sources = [v for v in node.reads if v not in escaping]
            escaping.update(sources)
            stack += sources
    return escaping
