"""Merges views of views into one, and removes views that show the whole array unchanged.

A view is described by the elements of a row-major array that it shows, so no operator is named here.

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

from weft.graph.passes.geometry import Geometry, permutation, same_strides, see_of
from weft.graph.rewrite import Rewriting, from_operands
from weft.ops.families.shape import BroadcastLike, BroadcastTo, PermuteDims, Reshape
from weft.ops.families.strided import AsStrided
from weft.ops.node import Node, Value, make_node
from weft.ops.shapes import row_major

__all__ = ["views"]


@from_operands
def views(node: Node, graph: Rewriting) -> Value | None:
    """The source of a view, or a reshape or a permutation of it, where the view or two in a row come to that."""
    shape, source = node.outputs[0].shape, node.inputs[0] if node.inputs else None
    if isinstance(node.op, BroadcastLike) and source is not None and all(isinstance(n, int) for n in shape):
        # The array whose shape it takes need not be there.
        return make_node(BroadcastTo(shape=shape), [graph.new(source)], like=node).outputs[0]
    outer = see_of(node)
    if outer is None or source is None or not all(isinstance(n, int) for n in source.shape):
        return None
    inner = see_of(source.node)
    base = source.node.inputs[0] if inner is not None else None
    if inner is not None and base is not None:
        inner_view = inner(base.shape, row_major(base.shape))
        both = None if inner_view is None else outer(inner_view[0], inner_view[1])
        if inner_view is not None and both is not None:
            simplest = _simplest((both[0], both[1], inner_view[2] + both[2]), graph.new(base), node)
            if simplest is not None:
                return simplest
    alone = outer(source.shape, row_major(source.shape))
    if alone is None or not (isinstance(node.op, AsStrided) or alone[0] == source.shape):
        return None
    simplest = _simplest(alone, graph.new(source), node)
    return simplest if simplest is graph.new(source) or isinstance(node.op, AsStrided) else None


def _simplest(view_of_source: Geometry, source: Value, node: Node) -> Value | None:
    """The source, or its reshape or permutation, with these elements; None if there is none."""
    shape, strides, offset = view_of_source
    if math.prod(shape) != math.prod(source.shape) or offset:
        return None
    if same_strides(shape, strides, row_major(shape)) or 0 in shape:
        if shape == source.shape:
            return source
        view = make_node(Reshape(shape=shape), [source], like=node)
    else:
        axes = permutation(view_of_source, source.shape)
        if axes is None:
            return None
        view = make_node(PermuteDims(axes=axes), [source], like=node)
    return view.outputs[0]
