"""Merges equal nodes, so that each is computed once.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> print(rewrite(graph_of(lambda x: F.exp(x) + F.exp(x), [TensorType((2,), float32)]), common_subexpressions))
graph(x0: f32[2]@cpu:0)
  v0 = Exp()(x0): f32[2]@cpu:0
  v1 = Add()(v0, v0): f32[2]@cpu:0
  return v1
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from weft.base.exact import exact
from weft.graph.rewrite import Rewriting, complete
from weft.ops.node import Node, Value

__all__ = ["common_subexpressions"]


@complete
def common_subexpressions(node: Node, graph: Rewriting) -> Sequence[Value] | None:
    """The outputs of an earlier node with the same operator, inputs and runtime values; never of a random one.

    Nodes are compared by what their operands have become, so one round joins whole expressions.
    """
    assert node.op is not None
    if node.op.random:
        return None
    inputs = tuple([None if v is None else _identity(graph.new(v)) for v in node.inputs])
    runtime = tuple((name, _identity(graph.new(v))) for name, v in sorted(node.runtime.items()))
    first = graph.notes.setdefault((node.op, inputs, runtime), node)
    return None if first is node else [graph.new(v) for v in first.outputs]


def _identity(value: Value) -> Hashable:
    """Equal for values that are the same: constants by what they are, others by where they come from."""
    if value.is_constant:
        return exact(value.node.value), value.type
    return id(value)
