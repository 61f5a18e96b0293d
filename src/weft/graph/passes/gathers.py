"""Reads elements at indices in the loop that alone reads them.

The indices are checked first, by a kernel of their own, since a loop cannot stop where one is out of range.

>>> from weft.base.dtype import float32, int64
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> types = [TensorType((9, 4), float32), TensorType((2,), int64)]
>>> print(rewrite(graph_of(lambda x, i: F.exp(F.take(x, i, axis=0)), types), gathers))
graph(x0: f32[9,4]@cpu:0, x1: i64[2]@cpu:0)
  v0 = CheckIndices(operator='take', axes=(0,))(x0, x1): i64[]@cpu:0
  v1 = Gather(axes=(0,), position=0, along=False)(x0, v0, x1): f32[2,4]@cpu:0
  v2 = Exp()(v1): f32[2,4]@cpu:0
  return v2
"""

from __future__ import annotations

from typing import Any

from weft.graph.rewrite import Rewriting, local
from weft.kernels import first_choice
from weft.ops.families.indexing import CheckIndices, Embedding, Gather, IndexGet, Take, TakeAlongAxis
from weft.ops.families.shape import BroadcastTo
from weft.ops.kernels import Loop
from weft.ops.node import Node, Value, make_node

__all__ = ["READS", "gathers"]

READS = (Take, Embedding, IndexGet, TakeAlongAxis)


@local(*READS)
def gathers(node: Node, graph: Rewriting) -> Value | None:
    """Checked indices and a loop, where one loop reads the result, element by element, and nothing else does."""
    op: Any = node.op
    y = node.outputs[0]
    reader = graph.reader(y)
    if reader is None or graph.is_stable(y):  # what is stable is read once
        return None
    choice = first_choice(reader)
    if not isinstance(choice, Loop) or choice.axes or reader.outputs[0].shape != y.shape:
        return None
    x, *indices = [graph.new(v) for v in node.inputs if v is not None]
    if isinstance(op, Embedding):
        x, indices = indices[0], [x]
    along = isinstance(op, TakeAlongAxis)
    if along and op.shapes(x.type, indices[0].type)[1:] != (indices[0].shape, x.shape):
        return None
    if any(i.shape != indices[0].shape for i in indices):
        return None
    axes, position = _geometry(op, x)

    def make(op: Any, *inputs: Value) -> Value:
        return make_node(op, inputs, like=node).outputs[0]

    checked = make(CheckIndices(operator=op.name, axes=axes), x, *map(_once, indices))
    return make(Gather(axes=axes, position=position, along=along), x, checked, *indices)


def _once(indices: Value) -> Value:
    """What repeated indices are a view of: each is checked once."""
    source: Any = indices
    while isinstance(source.node.op, BroadcastTo):
        (source,) = source.node.inputs
    repeated: Value = source
    return repeated


def _geometry(op: Any, x: Value) -> tuple[tuple[int, ...], int]:
    """The axes of x that are indexed, and where the dimensions of the indices are among the others."""
    if isinstance(op, IndexGet):
        return tuple(axis % x.ndim for axis in op.axes), op.position
    if isinstance(op, Take):
        axis = op.axis_of(x.type)
        return (axis,), axis
    if isinstance(op, TakeAlongAxis):
        return (op.axis % x.ndim,), 0
    return (0,), 0
