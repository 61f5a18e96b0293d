"""Views of views as one, and views of nothing else than the whole as what they show.

What a view shows is known from where it sees the elements of a row-major array, so no operator is named here.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> x = TensorType((2, 3, 4), float32)
>>> print(rewrite(graph_of(lambda x: F.swapaxes(F.permute_dims(x, (2, 0, 1)), 0, 1), [x]), views))
graph(x0: f32[2,3,4]@cpu:0)
  v0 = PermuteDims(axes=(0, 2, 1))(x0): f32[2,4,3]@cpu:0
  return v0
"""

from __future__ import annotations

import math

from weft.graph.passes.geometry import Geometry, permutation, row_major, same_strides, see_of
from weft.graph.rewrite import Rewriting, from_operands
from weft.ops.node import Node, Value, make_node
from weft.ops.shape import PermuteDims, Reshape
from weft.ops.strided import AsStrided

__all__ = ["views"]


@from_operands
def views(node: Node, graph: Rewriting) -> Value | None:
    """The source of a view, or a reshape or a permutation of it, where the view or two in a row come to that."""
    outer = see_of(node)
    source = node.inputs[0] if outer is not None else None
    if outer is None or source is None or not all(isinstance(n, int) for n in source.shape):
        return None
    inner = see_of(source.node)
    base = source.node.inputs[0] if inner is not None else None
    if inner is not None and base is not None:
        seen = inner(base.shape, row_major(base.shape))
        both = None if seen is None else outer(seen[0], seen[1])
        if seen is not None and both is not None:
            found = _simplest((both[0], both[1], seen[2] + both[2]), graph.new(base), node)
            if found is not None:
                return found
    alone = outer(source.shape, row_major(source.shape))
    if alone is None or not (isinstance(node.op, AsStrided) or alone[0] == source.shape):
        return None
    found = _simplest(alone, graph.new(source), node)
    return found if found is graph.new(source) or isinstance(node.op, AsStrided) else None


def _simplest(seen: Geometry, source: Value, node: Node) -> Value | None:
    """What shows the same of a source: itself, a reshape, a permutation; None if that is not enough."""
    shape, strides, offset = seen
    if math.prod(shape) != math.prod(source.shape) or offset:
        return None
    if same_strides(shape, strides, row_major(shape)) or 0 in shape:
        if shape == source.shape:
            return source
        made = make_node(Reshape(shape=shape), [source], like=node)
    else:
        axes = permutation(seen, source.shape)
        if axes is None:
            return None
        made = make_node(PermuteDims(axes=axes), [source], like=node)
    return made.outputs[0]
