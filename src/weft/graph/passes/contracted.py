"""Replaces a sum over a batch of matrix products by one product, of all their rows with all their columns.

So the mean of per-example gradients, each the product of a column and a row, is never written out example by example.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> types = [TensorType((256, 3, 1), float32), TensorType((256, 1, 4), float32)]
>>> print(rewrite(graph_of(lambda a, b: F.sum(F.matmul(a, b), axis=0), types), contracted))
graph(x0: f32[256,3,1]@cpu:0, x1: f32[256,1,4]@cpu:0)
  v0 = PermuteDims(axes=(1, 0, 2))(x0): f32[3,256,1]@cpu:0
  v1 = Reshape(shape=(3, 256), copy=None)(v0): f32[3,256]@cpu:0
  v2 = Reshape(shape=(256, 4), copy=None)(x1): f32[256,4]@cpu:0
  v3 = Matmul()(v1, v2): f32[3,4]@cpu:0
  return v3
"""

from __future__ import annotations

from typing import Any

from weft.graph.rewrite import Rewriting
from weft.ops.families.arithmetic import Divide
from weft.ops.families.matrix import Matmul
from weft.ops.families.reduction import Mean, Sum
from weft.ops.families.shape import PermuteDims, Reshape
from weft.ops.node import Node, Value, constant, make_node
from weft.ops.op import Op
from weft.ops.types import normalize_axes

__all__ = ["contracted"]


def contracted(node: Node, graph: Rewriting) -> Value | None:
    """One product for the sum or the mean over the first axis of a product with no other reader."""
    op: Any = node.op
    product = node.inputs[0] if isinstance(op, Sum | Mean) else None
    if product is None or not isinstance(product.node.op, Matmul) or graph.reader(product) is not node:
        return None
    a, b = product.node.inputs
    if a is None or b is None or not (a.ndim == b.ndim == product.ndim == 3):
        return None
    if not a.dtype.is_floating or a.dtype is not b.dtype or a.shape[0] != b.shape[0]:
        return None
    if op.keepdims or normalize_axes(op.name, op.axis, 3) != (0,):
        return None
    (count, m, inner), n = a.shape, b.shape[2]
    if inner > n:  # to bring the rows together would cost more than is saved
        return None

    def make(op: Op, *inputs: Value) -> Value:
        return make_node(op, inputs, like=node).outputs[0]

    rows = make(Reshape(shape=(m, count * inner)), make(PermuteDims(axes=(1, 0, 2)), graph.new(a)))
    total = make(Matmul(), rows, make(Reshape(shape=(count * inner, n)), graph.new(b)))
    if isinstance(op, Mean):
        total = make(Divide(), total, constant(count))
    return total
