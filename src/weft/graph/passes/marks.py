"""Removes marks, which only gradients read, before anything is planned.

Graphs keep their marks (stop-gradients, custom gradients, where a recording began) to be differentiated; they have no
effect on values. So no other pass has to handle them, but for marks of regions that gradients recompute (Again): those
are removed once the pass that merges equal nodes has run.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.inner import stopped
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> print(rewrite(graph_of(lambda x: F.exp(stopped(x)), [TensorType((2,), float32)]), marks))
graph(x0: f32[2]@cpu:0)
  v0 = Exp()(x0): f32[2]@cpu:0
  return v0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.graph.inner import Again, Mark
from weft.graph.rewrite import Rewriting, local
from weft.ops.node import Node, Value

__all__ = ["marks", "regions"]


@local(Mark)
def marks(node: Node, graph: Rewriting) -> Sequence[Value] | None:
    """The values of a mark but Again."""
    op = node.op
    if not isinstance(op, Mark) or isinstance(op, Again):
        return None
    outputs: Any = op.decompose(*(None if v is None else graph.new(v) for v in node.inputs))
    return outputs if isinstance(outputs, tuple | list) else (outputs,)


@local(Again)
def regions(node: Node, graph: Rewriting) -> Value | None:
    """The value of an Again.

    >>> from weft.base.dtype import float32
    >>> from weft.graph.graph import graph_of
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
    source = node.inputs[0]
    return None if source is None else graph.new(source)
