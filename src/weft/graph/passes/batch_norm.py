"""Turns batch normalization with known statistics, after a product or convolution, into a scale and shift per channel.

Where weights and statistics seldom change (Graph.stable_inputs), they are folded into the weights and the bias: that is
done once, and costs a run nothing. Else they are computed from the statistics inside the graph, c numbers each; an
epilogue of the kernel before does the rest.
Not exact: (x - mean) / std * weight + bias is rounded otherwise than x * (weight / std) + (bias - mean * weight / std).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dtype import float32
from weft.graph.rewrite import Rewriting, local
from weft.kernels import first_choice
from weft.ops import functions as F
from weft.ops.families.elementary import Cast
from weft.ops.families.normalization import BatchNorm
from weft.ops.kernels import Native
from weft.ops.node import Node, Value, make_node

__all__ = ["batch_norm"]


@local(BatchNorm)
def batch_norm(node: Node, graph: Rewriting) -> Value | None:
    """x * scale + shift for a normalization of what only this node reads of a native kernel; all in one type."""
    if not isinstance(node.op, BatchNorm) or node.op.training:
        return None
    x, mean, variance, *_ = node.inputs
    if x is None or mean is None or variance is None or graph.reader(x) is not node:
        return None
    choice = first_choice(x.node)
    if not isinstance(choice, Native) or "post_ops" not in choice.options:
        return None
    folded = _folded(node, x.node, graph)
    if folded is not None:
        return folded
    if any(v is not None and v.dtype is not x.dtype for v in node.inputs) or x.dtype.itemsize < 4:
        return None  # statistics of half types are of another type
    scale, shift = _affine(node, graph, graph.new)
    columns = tuple(range(1, x.ndim - 1))  # behind the channels
    scaled = F.multiply(graph.new(x), F.expand_dims(scale, axis=columns))
    result: Value = F.add(scaled, F.expand_dims(shift, axis=columns))
    return result


def _affine(node: Node, graph: Rewriting, read: Callable[[Value], Value]) -> tuple[Value, Value]:
    """The factor of x and the summand after it, c numbers each; read: gives the new value for an old one."""
    _, mean, variance, weight, bias = node.inputs
    assert mean is not None
    assert variance is not None
    op: Any = node.op
    eps: Any = graph.new(node.runtime["eps"]) if "eps" in node.runtime else op.eps
    scale = F.rsqrt(F.add(read(variance), eps))
    scale = scale if weight is None else F.multiply(read(weight), scale)
    shift = F.multiply(F.negative(read(mean)), scale)
    return scale, shift if bias is None else F.add(read(bias), shift)


def _folded(node: Node, before: Node, graph: Rewriting) -> Value | None:
    """The operator before with other weights, computed in float32; None unless all of these are prepared once."""
    op: Any = before.op
    x = before.outputs[0]
    if op.channel_axis is None or op.channel_axis % x.ndim != 1 or before.runtime:
        return None
    names = [spec.name for spec in op.inputs]
    weight, bias = (before.inputs[names.index(name)] for name in ("weight", "bias"))
    operands = (weight, bias, *node.inputs[1:], *node.runtime.values())
    if weight is None or not all(v is None or graph.is_stable(v) for v in operands):
        return None

    def wide(value: Value) -> Value:
        result: Value = F.cast(graph.new(_unrounded(value)), dtype=float32)
        return result

    scale, shift = _affine(node, graph, wide)
    if bias is not None:
        shift = F.add(F.multiply(wide(bias), scale), shift)
    scaled = F.multiply(wide(weight), F.expand_dims(scale, axis=tuple(range(1, weight.ndim))))
    folded = {"weight": F.cast(scaled, dtype=weight.dtype), "bias": F.cast(shift, dtype=weight.dtype)}
    inputs = [
        folded.get(name, None if v is None else graph.new(v))
        for name, v in zip(names, before.inputs, strict=True)
    ]
    return make_node(op, inputs, like=before).outputs[0]


def _unrounded(value: Value) -> Value:
    """The value that was rounded to a half type, if it is float32; else the value."""
    node = value.node
    source = node.inputs[0] if isinstance(node.op, Cast) else None
    return source if source is not None and source.dtype is float32 else value
