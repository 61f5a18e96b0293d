"""Computes what broadcasting makes large again for each loop that needs it, instead of storing it for all of them.

Differences of all pairs of points are an example: distances read them, and the gradients of the two sets of points,
which are sums over different axes. A loop has the rows of one set of axes, so one of these would have to store them.

An *expansion* is a value of at least LEAST_BYTES that takes a few operations on each element, of values that are much
smaller and of other expansions. Its readers are told apart by the axes that they, or what follows from them, reduce it
along; those of each set of axes read a copy of their own, which the planner puts into their loop.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> def sums(x, y):
...     d = x - y
...     return F.sum(d, axis=0), F.sum(d, axis=1)
>>> types = [TensorType((900, 1), float32), TensorType((900,), float32)]
>>> print(rewrite(graph_of(sums, types), expansions))
graph(x0: f32[900,1]@cpu:0, x1: f32[900]@cpu:0)
  v0 = Subtract()(x0, x1): f32[900,900]@cpu:0
  v1 = Sum(dtype=None, axis=0, keepdims=False)(v0): f32[900]@cpu:0
  v2 = Subtract()(x0, x1): f32[900,900]@cpu:0
  v3 = Sum(dtype=None, axis=1, keepdims=False)(v2): f32[900]@cpu:0
  return v1, v3
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from weft.graph.graph import Graph
from weft.graph.passes.recompute import CHEAP, operations_of, size_bytes_of
from weft.graph.rewrite import Rewriting, complete
from weft.kernels import first_choice
from weft.ops.families.shape import BroadcastTo
from weft.ops.kernels import Loop
from weft.ops.node import Node, Value

__all__ = ["expansions"]

LEAST_BYTES = 1 << 20  # what is smaller stays in the cache
TIMES_LARGER = 4  # than each value that it is computed from
STORED = (-1,)  # in place of axes: a reader stores it, or what follows from it

Axes = frozenset[tuple[int, ...]]  # sets of axes that something is reduced along
Readers = Mapping[Value, Collection[Axes]]  # of each value, those of its readers


@complete
def expansions(node: Node, graph: Rewriting) -> Sequence[Value] | None:
    """A reader on copies of the expansions that it reads, where there are readers along other axes, too."""
    if "copies" not in graph.notes:
        graph.notes["copies"] = _Copies(graph)
    copies: _Copies = graph.notes["copies"]
    return copies.reader(node)


class _Copies:
    """The copies of one round. expanded: the nodes whose results are expansions."""

    def __init__(self, graph: Rewriting) -> None:
        self.graph = graph
        self.expanded = _expanded(graph)
        self.readers = _axes_of_readers(graph.graph) if self.expanded else {}
        self.made: dict[tuple[Node, Axes], Node] = {}

    def reader(self, node: Node) -> Sequence[Value] | None:
        if not any(map(self.is_apart, node.reads)) or any(map(self.is_apart, node.outputs)):
            return None
        return self.on_copies(node, _reduction_axes(node, self.readers)).outputs

    def is_apart(self, value: Value) -> bool:
        """Whether it is an expansion with readers of several sets of axes: each has a copy of it."""
        return value.node in self.expanded and len(self.readers.get(value, ())) > 1

    def on_copies(self, node: Node, axes: Axes) -> Node:
        """The node, which reads copies for these axes."""

        def read(v: Value | None) -> Value | None:
            if v is None or v.node not in self.expanded:
                return None if v is None else self.graph.new(v)
            key = v.node, axes
            if key not in self.made:
                self.made[key] = self.on_copies(v.node, axes)
            return self.made[key].outputs[v.index]

        runtime = {name: self.graph.new(v) for name, v in node.runtime.items()}
        return Node(
            node.op, [read(v) for v in node.inputs], [v.type for v in node.outputs], runtime, like=node
        )


def _expanded(graph: Rewriting) -> set[Node]:
    """The nodes whose results are expansions that only loops read."""
    kept = {v for v in graph.graph.outputs if v is not None}
    operations: dict[Node, int] = {}
    for node in graph.graph.nodes:
        if (
            node.op is None
            or size_bytes_of(node.outputs[0]) < LEAST_BYTES
            or not kept.isdisjoint(node.outputs)
        ):
            continue
        choice = first_choice(node)
        if not _is_pointwise(choice) or node.op.random or graph.is_stable(node.outputs[0]):
            continue
        size = size_bytes_of(node.outputs[0])
        sources = [_seen(v) for v in node.inputs if v is not None]
        large = [v.node for v in sources if size_bytes_of(v) * TIMES_LARGER > size]
        if all(source in operations for source in large):
            count = operations_of(choice) + sum(operations[source] for source in dict.fromkeys(large))
            if count <= CHEAP:
                operations[node] = count
    if not operations:
        return set()
    read = {
        v.node for node in graph.graph.nodes if not isinstance(first_choice(node), Loop) for v in node.reads
    }
    return operations.keys() - read


def _seen(value: Value) -> Value:
    """What a view repeats, or the value."""
    while isinstance(value.node.op, BroadcastTo):
        (value,) = value.node.reads
    return value


def _is_pointwise(choice: object) -> bool:
    return isinstance(choice, Loop) and not choice.axes and not choice.ordered and choice.place is None


def _axes_of_readers(graph: Graph) -> Readers:
    readers: dict[Value, set[Axes]] = {}
    for node in reversed(graph.nodes):
        axes = _reduction_axes(node, readers)
        for v in node.reads:
            readers.setdefault(v, set()).add(axes)
    return readers


def _reduction_axes(node: Node, readers: Readers) -> Axes:
    """The axes that a node, or what pointwise operators make of its results, reduces along."""
    choice = first_choice(node) if node.op is not None else None
    if not isinstance(choice, Loop):
        return frozenset({STORED})
    if choice.axes:
        return frozenset({choice.axes})
    return frozenset(
        axes for v in node.outputs for of_reader in readers.get(v, [{STORED}]) for axes in of_reader
    )
