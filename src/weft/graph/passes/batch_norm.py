"""Batch normalization with known statistics, after a product or a convolution, as a factor and a summand per channel.

Those are computed from the statistics inside the graph, c numbers each; an epilogue of the kernel before does the rest.
Not exact: (x - mean) / std * weight + bias is rounded otherwise than x * (weight / std) + (bias - mean * weight / std).
"""

from __future__ import annotations

from typing import Any

from weft.graph.rewrite import Rewriting, first_choice
from weft.ops import functions as F
from weft.ops.kernels import Native
from weft.ops.node import Node, Value
from weft.ops.normalization import BatchNorm

__all__ = ["batch_norm"]


def batch_norm(node: Node, graph: Rewriting) -> Value | None:
    """x * scale + shift for a normalization of what a native kernel gives to nobody else; all in one type."""
    if not isinstance(node.op, BatchNorm) or node.op.training:
        return None
    x, mean, variance, weight, bias = node.inputs
    if x is None or mean is None or variance is None or graph.reader(x) is not node:
        return None
    choice = first_choice(x.node)
    if not isinstance(choice, Native) or "post_ops" not in choice.options:
        return None
    if any(v is not None and v.dtype is not x.dtype for v in node.inputs) or x.dtype.itemsize < 4:
        return None  # statistics of half types are of another type
    eps: Any = graph.new(node.runtime["eps"]) if "eps" in node.runtime else node.op.eps
    scale = F.rsqrt(F.add(graph.new(variance), eps))
    scale = scale if weight is None else F.multiply(graph.new(weight), scale)
    shift = F.multiply(F.negative(graph.new(mean)), scale)
    shift = shift if bias is None else F.add(graph.new(bias), shift)
    columns = tuple(range(1, x.ndim - 1))  # behind the channels
    scaled = F.multiply(graph.new(x), F.expand_dims(scale, axis=columns))
    made: Value = F.add(scaled, F.expand_dims(shift, axis=columns))
    return made
