"""Replaces the product of one row with a transposed matrix by dot products with the matrix's rows.

Such a product is bound by memory, and the rows are in memory as they are: a loop over them reads as fast as memory
gives, on all threads and without a packed copy, and what is done to the result joins it.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> types = [TensorType((1, 40), float32), TensorType((9, 40), float32)]
>>> print(rewrite(graph_of(lambda x, w: F.matmul(x, F.matrix_transpose(w)), types), row_products))
graph(x0: f32[1,40]@cpu:0, x1: f32[9,40]@cpu:0)
  v0 = ExpandDims(axis=-2)(x0): f32[1,1,40]@cpu:0
  v1 = Vecdot(axis=-1)(v0, x1): f32[1,9]@cpu:0
  return v1
"""

from __future__ import annotations

from weft.graph.rewrite import Rewriting, from_operands, local
from weft.ops.families.matrix import Matmul, Vecdot, is_matrix_float, is_one
from weft.ops.families.shape import ExpandDims, Permuting
from weft.ops.node import Node, Value, make_node
from weft.ops.op import Op

__all__ = ["row_products"]


@from_operands
@local(Matmul)
def row_products(node: Node, graph: Rewriting) -> Value | None:
    """The dot products of a's one row with what the matrix b is the transpose of."""
    a, b = node.inputs
    if a is None or b is None or not isinstance(node.op, Matmul) or not is_matrix_float(a.type, b.type):
        return None
    transpose = b.node.op
    if not isinstance(transpose, Permuting) or b.ndim != 2 or not all(map(is_one, a.shape[:-1])):
        return None
    rows = b.node.inputs[0]
    if rows is None or transpose.order(2) != (1, 0):
        return None

    def make(op: Op, *inputs: Value) -> Value:
        return make_node(op, inputs, like=node).outputs[0]

    row = graph.new(a)
    return make(Vecdot(), row if a.ndim == 1 else make(ExpandDims(axis=-2), row), graph.new(rows))
