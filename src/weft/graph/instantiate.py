"""Copies a graph into another one, on other inputs and at their sizes.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> graph = graph_of(lambda x: F.exp(x), [TensorType((2,), float32)])
>>> instantiate(graph, [input_value(TensorType((5,), float32))])[0].type
f32[5]@cpu:0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.subgraph import Subgraph
from weft.ops.node import Node, Value, constant, input_value, make_node
from weft.ops.op import Op
from weft.ops.sizes import Size

__all__ = ["instantiate"]


def instantiate(
    graph: Graph,
    inputs: Sequence[Value],
    where: str = "",
    axes: Sequence[int] | None = None,
    draw: Callable[[Node], Sequence[Value]] | None = None,
) -> list[Value | None]:
    """The outputs of `graph` computed from these inputs, by new nodes.

    where: the user's line for errors, by default those of the nodes; axes: the dynamic sizes by index, None: they stay
    Sizes; draw: gives the outputs for a random node. Types are inferred again, so a graph for a pattern of sizes
    becomes one for those of the inputs.
    """
    new_values: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    sizes = _Sizes(inputs, axes)
    for node in graph.nodes:
        if node.op is None:
            new_values.setdefault(node.outputs[0], sizes.of_constant(node.outputs[0]))
            continue
        new_node = make_node(
            sizes.of_operator(node.op),
            [None if v is None else new_values[v] for v in node.inputs],
            {name: new_values[v] for name, v in node.runtime.items()},
        )
        new_node.where = where or node.where
        outputs = draw(new_node) if draw is not None and node.op.random else new_node.outputs
        new_values.update(zip(node.outputs, outputs, strict=True))
    return [None if v is None else new_values[v] for v in graph.outputs]


class _Sizes:
    """The numbers that Sizes stand for, for these inputs."""

    def __init__(self, inputs: Sequence[Value], axes: Sequence[int] | None) -> None:
        self.axes = axes
        self.shapes = [v.shape for v in inputs if not v.type.weak]

    def of_operator(self, op: Op) -> Op:
        """The operator with numbers for Sizes among its attributes."""
        values = op.values()
        changed = {name: new for name, value in values.items() if (new := self(value)) is not value}
        return op.with_runtime({**values, **changed}) if changed else op

    def of_constant(self, value: Value) -> Value:
        """A constant, which may be a size."""
        size = value.node.value
        return constant(self.number(size)) if isinstance(size, Size) else value

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Size):
            return self.number(value)
        if isinstance(value, Op):
            return self.of_operator(value)
        if isinstance(value, Subgraph):
            return self.of_subgraph(value) if value.has_sizes else value
        if isinstance(value, tuple):
            items = tuple(map(self, value))
            return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        return value

    def of_subgraph(self, subgraph: Subgraph) -> Subgraph:
        """The graph of a loop or a branch, whose sizes are those of the graph around it."""
        graph = subgraph.graph
        inputs = [
            v if v.type.weak else input_value(v.type.like(tuple(map(self.number, v.shape))))
            for v in graph.inputs
        ]
        return Subgraph(Graph(inputs, instantiate(graph, inputs, axes=self.axes)))

    def number(self, size: int | Size) -> int | Size:
        """As the native replay computes registers (native/program/program.cpp)."""
        if isinstance(size, int):
            return size
        return size.evaluated(self._number_of_leaf)

    def _number_of_leaf(self, leaf: Size) -> int | Size:
        if leaf.op == "dim":
            d = leaf.args[0]  # from the last dimension; of an input that is not repeated along it
            return next((s[-1 - d] for s in self.shapes if d < len(s) and s[-1 - d] != 1), 1)
        if leaf.op == "extent":
            return self.shapes[leaf.args[0]][leaf.args[1]]
        if leaf.op == "axis":
            return leaf if self.axes is None else self.axes[leaf.args[0]]
        raise GraphError(f"instantiate: an operator depends on {leaf}, the memory layout of an array")
