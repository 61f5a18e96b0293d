"""Removes the marks of regions that gradients recompute, once the pass that merges equal nodes has run.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.inner import Again
>>> from weft.graph.passes import optimize
>>> from weft.ops.node import make_node
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> def twice(x):
...     return F.exp(x), F.exp(make_node(Again(), [x]).outputs[0])
>>> print(optimize(graph_of(twice, [TensorType((2,), float32)])))
graph(x0: f32[2]@cpu:0)
  v0 = Exp()(x0): f32[2]@cpu:0
  v1 = Exp()(x0): f32[2]@cpu:0
  return v0, v1
"""

from __future__ import annotations

from weft.graph.inner import Again
from weft.graph.rewrite import Rewriting, local
from weft.ops.node import Node, Value

__all__ = ["regions"]


@local(Again)
def regions(node: Node, graph: Rewriting) -> Value | None:
    """The value of an Again."""
    source = node.inputs[0] if isinstance(node.op, Again) else None
    return None if source is None else graph.new(source)
