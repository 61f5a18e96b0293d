"""The verifier of graphs: checks the invariants that every pass, and every builder of a graph, must preserve.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import Graph
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> x, y = (input_value(TensorType((2,), float32), name) for name in "xy")
>>> verify(Graph([x, y], [x + y]))
>>> verify(Graph([x], [x + y]))
Traceback (most recent call last):
    ...
weft.base.errors.GraphError: graph: Add() reads y, f32[2]@cpu:0, which is neither an input nor made by a node
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.errors import GraphError
from weft.graph.graph import Graph
from weft.ops.node import Node, Value
from weft.ops.types import TensorType

__all__ = ["same_interface", "verify"]


def verify(graph: Graph, name: str = "graph") -> None:
    """Raise GraphError, whose message begins with name, unless the graph is sound.

    Inputs are given from outside, each once. Every node is listed once, after what it reads, which is an input, a
    constant or made by a node of the graph. It has all operands of its operator, None for those that are left out. Its
    types are those that its operator infers, its runtime values are of Runtime attributes. What is written is an input
    of the output's type, once each.
    """
    _check_inputs(graph, name)
    readable = set(graph.inputs)
    listed: set[Node] = set()
    for node in graph.nodes:
        if node in listed:
            raise GraphError(f"{name}: {node!r} is there twice")
        listed.add(node)
        if node.op is not None:
            _check_reads(node, readable, name)
            _check_node(node, name)
        if node.op is not None or node.value is not None:
            readable.update(node.outputs)
    for k, value in enumerate(graph.outputs):
        if value is not None and value not in readable:
            raise GraphError(f"{name}: output {k}, {value.type}, is neither an input nor made by a node")
    _check_writes(graph, name)


def _check_inputs(graph: Graph, name: str) -> None:
    for k, value in enumerate(graph.inputs):
        if value.node.op is not None or value.node.value is not None:
            raise GraphError(f"{name}: input {k} is not given from outside, it is {value!r}")
        if any(value is other for other in graph.inputs[:k]):
            raise GraphError(f"{name}: input {k}, {value!r}, is there twice")


def _check_reads(node: Node, readable: set[Value], name: str) -> None:
    for value in node.reads:
        if value.index >= len(value.node.outputs) or value.node.outputs[value.index] is not value:
            raise GraphError(
                f"{name}: {node!r} reads a value that is not an output of its node {value.node!r}"
            )
        if value in readable or value.is_constant:
            continue
        if value.node.op is None:
            fact = "which is neither an input nor made by a node"
        else:
            fact = "which is made after it, or by no node of the graph"
        raise GraphError(f"{name}: {node.op!r} reads {value!r}, {value.type}, {fact}")


def _check_node(node: Node, name: str) -> None:
    op = node.op
    assert op is not None
    unknown = sorted({*node.runtime} - {*op.runtime_names()})
    if unknown:
        raise GraphError(f"{name}: {op!r} has no Runtime attribute {', '.join(unknown)}")
    count = len(op.inputs)
    if len(node.inputs) != count and not any(operand.variadic for operand in op.inputs):
        raise GraphError(
            f"{name}: {op!r} has {len(node.inputs)} of {count} operands; None stands for one left out"
        )
    result = op.infer(*(None if v is None else v.type for v in node.inputs))
    inferred = (result,) if isinstance(result, TensorType) else tuple(result)
    if node.device is not None:  # which infer need not know
        inferred = tuple(t.on(node.device) for t in inferred)
    actual = tuple(v.type for v in node.outputs)
    if inferred != actual:
        raise GraphError(
            f"{name}: {node!r} has the types {_listed(actual)}, inferred are {_listed(inferred)}"
        )


def _check_writes(graph: Graph, name: str) -> None:
    targets: set[int] = set()
    for output, into in graph.writes.items():
        if not 0 <= output < len(graph.outputs) or not 0 <= into < len(graph.inputs):
            raise GraphError(
                f"{name}: output {output} is written to input {into}, but there are {len(graph.outputs)} outputs and "
                f"{len(graph.inputs)} inputs"
            )
        value, target = graph.outputs[output], graph.inputs[into]
        if value is None or value.type != target.type:
            content = "nothing" if value is None else str(value.type)
            raise GraphError(
                f"{name}: output {output} is written to input {into}: {content} to {target.type}"
            )
        if target.type.weak:
            raise GraphError(f"{name}: input {into} is a number, which cannot be written")
        if into in targets:
            raise GraphError(f"{name}: input {into} is written twice")
        targets.add(into)


def same_interface(before: Graph, after: Graph, name: str = "graph") -> None:
    """Raise GraphError unless both have the same inputs, writes, types of outputs, and draw the same random numbers."""
    if len(before.inputs) != len(after.inputs) or any(
        a is not b for a, b in zip(before.inputs, after.inputs, strict=True)
    ):
        raise GraphError(f"{name}: the inputs are others than before")
    if before.writes != after.writes:
        raise GraphError(f"{name}: writes {after.writes}, before {before.writes}")
    types = [[None if v is None else v.type for v in graph.outputs] for graph in (before, after)]
    if types[0] != types[1]:
        raise GraphError(f"{name}: gives {_listed(types[1])}, before {_listed(types[0])}")
    draws = [[n.order for n in graph.nodes if n.op is not None and n.op.random] for graph in (before, after)]
    if draws[0] != draws[1]:
        raise GraphError(f"{name}: draws random numbers at the places {draws[1]}, before {draws[0]}")


def _listed(types: Sequence[TensorType | None]) -> str:
    return ", ".join(map(str, types))
