"""Splits a graph in two: a first program, and a second one that reads values kept by the first.

Training with an executor is such a pair: forward, and backward when the user calls it. Nothing is computed twice but
views and what numbers alone make (`arange`), which cost nothing.

>>> from weft.base.dtype import float32
>>> from weft.graph.gradient import gradients
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> x, dy = (input_value(TensorType((2,), float32), name) for name in ("x", "dy"))
>>> y = F.exp(F.sin(x))
>>> kept, (dx,) = split([y], gradients([y], [x], [dy]))
>>> [value.node.op.name for value in kept.values()]
['exp']
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.graph.graph import Graph
from weft.kernels import choices
from weft.ops.kernels import View
from weft.ops.node import Node, Value, input_value

__all__ = ["split"]


def split(
    first: Sequence[Value], second: Sequence[Value | None], overwritten: Sequence[Value] = ()
) -> tuple[dict[Value, Value], list[Value | None]]:
    """The part of a program that computes `second` once `first` was computed.

    overwritten: inputs whose memory has another content by then; if the second part reads them, they are kept, too.
    Returns the values to keep, as the inputs that stand for them -> the values of the first part; and second, computed
    from those inputs and from the inputs of both.
    """
    computed = {node for node in Graph((), first).nodes if node.op is not None}
    parts = _Second(computed, set(overwritten))
    return parts.saved, [None if value is None else parts.value(value) for value in second]


class _Second:
    """The nodes of the second part, made again on what was kept."""

    def __init__(self, computed: set[Node], overwritten: set[Value]) -> None:
        self.computed, self.overwritten = computed, overwritten
        self.saved: dict[Value, Value] = {}  # stand-in -> value
        self.values: dict[Value, Value] = {}

    def value(self, output: Value) -> Value:
        """An output in the second part. Not recursive: graphs are deep."""
        stack = [output]
        while stack:
            value = stack[-1]
            if value in self.values:
                stack.pop()
                continue
            node = value.node
            if node.op is None and value not in self.overwritten:
                self.values[value] = value
            elif node.op is None or (node in self.computed and not _costs_nothing(node)):
                stand_in = input_value(value.type, f"kept{len(self.saved)}")
                self.saved[stand_in] = value
                self.values[value] = stand_in
            else:
                missing = [v for v in node.reads if v not in self.values]
                if missing:
                    stack.extend(missing)
                    continue
                self.recompute(node)
        return self.values[output]

    def recompute(self, node: Node) -> None:
        copy = node.reading(lambda v: self.values[v])
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            self.values[old] = new


def _costs_nothing(node: Node) -> bool:
    """Whether a node is a view of its input, or made of numbers, which has no device that could store it."""
    if node.device is None:
        return True
    choice = next(choices(node.bound(), node.operand_types(), node.device), None)
    return isinstance(choice, View)
