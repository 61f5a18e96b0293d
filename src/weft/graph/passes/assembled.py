"""Replaces a sum of arrays that are zero where the others are not by one array, assembled from its parts.

Gradients of what was taken apart are such sums. Written out, each summand is an array of zeros and a copy into it.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> x, y = TensorType((2, 3), float32), TensorType((2, 1), float32)
>>> apart = graph_of(lambda x, y: F.pad(x, (0, 1)) + F.pad(y, (3, 0)), [x, y])
>>> print(rewrite(apart, assembled))
graph(x0: f32[2,3]@cpu:0, x1: f32[2,1]@cpu:0)
  v0 = Assemble(shape=(2, 4), sizes=((2, 3), (2, 1)), strides=((4, 1), (4, 1)), offsets=(0, 3))(x0, x1): f32[2,4]@cpu:0
  return v0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from weft.base.record import Record
from weft.graph.passes.geometry import Geometry, permutation, same_strides, see_of
from weft.graph.rewrite import Rewriting
from weft.kernels import first_choice
from weft.ops.families.arithmetic import Add
from weft.ops.families.strided import Assemble
from weft.ops.kernels import Parts
from weft.ops.node import Node, Value, make_node
from weft.ops.shapes import row_major

__all__ = ["assembled"]


class _Box(Record):
    """A window by the dimensions of its array: (start, step, count) in each; which one each of its own moves along."""

    ranges: tuple[tuple[int, int, int], ...]
    along: tuple[int, ...]


def assembled(node: Node, graph: Rewriting) -> Value | None:
    """One Assemble for a sum of arrays that are zero outside of their parts, or for its reshape or permutation."""
    if isinstance(node.op, Add):
        return _sum(node, graph)
    return _reassembled(node, graph)


def _sum(node: Node, graph: Rewriting) -> Value | None:
    windows: list[Geometry] = []
    parts: list[Value] = []
    whole = node.outputs[0]
    for value in node.inputs:
        if value is None or value.type != whole.type or graph.reader(value) is not node:
            return None
        pieces = _parts(value)
        if pieces is None:
            return None
        for window, part in pieces:
            windows.append(window)
            parts.append(graph.new(part))
    boxes = [_box(window, whole.shape) for window in windows]
    if not all(a and b and _disjoint(a, b) for a, b in combinations(boxes, 2)):
        return None
    return _assemble(node, whole.shape, windows, parts)


def _parts(value: Value) -> list[tuple[Geometry, Value]] | None:
    """The windows and parts of an array that is zero elsewhere; None if it is something else."""
    choice = first_choice(value.node)
    if not isinstance(choice, Parts) or not all(isinstance(n, int) for n in value.shape):
        return None
    if choice.fill is not None and (not isinstance(choice.fill, int | float) or choice.fill != 0):
        return None
    parts = []
    for k, see in choice.parts:
        window, part = see(value.shape, row_major(value.shape)), value.node.inputs[k]
        if window is None or part is None or part.type != value.type.like(window[0]):
            return None
        parts.append(((tuple(window[0]), tuple(window[1]), window[2]), part))
    return parts


def _reassembled(node: Node, graph: Rewriting) -> Value | None:
    see = see_of(node)
    source = node.inputs[0] if see is not None else None
    if (
        see is None
        or source is None
        or not isinstance(source.node.op, Assemble)
        or graph.reader(source) is not node
    ):
        return None
    shape, strides, offset = see(source.shape, row_major(source.shape))
    if math.prod(shape) != math.prod(source.shape) or offset:
        return None
    parts = [graph.new(x) for x in source.node.inputs if x is not None]
    windows: list[Geometry] = [(x.shape, x.strides, x.offset) for x in source.node.op.windows()]
    if not same_strides(shape, strides, row_major(shape)):
        axes = permutation((shape, strides, offset), source.shape)
        boxes = [_box(window, source.shape) for window in windows]
        if axes is None or None in boxes:
            return None
        steps = [0] * len(axes)
        for d, stride in zip(axes, row_major(shape), strict=True):
            steps[d] = stride
        windows = [
            _window(box, n, steps) for box, (n, _, _) in zip(boxes, windows, strict=True) if box is not None
        ]
    return _assemble(node, shape, windows, parts)


def _assemble(node: Node, shape: Sequence[int], windows: Sequence[Geometry], parts: Sequence[Value]) -> Value:
    sizes, strides, offsets = map(tuple, zip(*windows, strict=True))
    op = Assemble(shape=tuple(shape), sizes=sizes, strides=strides, offsets=offsets)
    return make_node(op, parts, like=node).outputs[0]


def _box(window: Geometry, shape: Sequence[int]) -> _Box | None:
    """A window as a box; None for one that is empty, or does not go forward along dimensions of the array."""
    sizes, strides, offset = window
    if 0 in sizes:
        return None
    steps = row_major(tuple(shape))
    ranges = [(offset // step % n, 1, 1) for n, step in zip(shape, steps, strict=True)]
    along = []
    for n, stride in zip(sizes, strides, strict=True):
        if n == 1:
            along.append(-1)
            continue
        fits = (
            d
            for d, step in enumerate(steps)
            if stride > 0
            and stride % step == 0
            and ranges[d][2] == 1
            and ranges[d][0] + stride // step * (n - 1) < shape[d]
        )
        d = next(fits, -1)
        if d < 0:
            return None
        ranges[d] = (ranges[d][0], stride // steps[d], n)
        along.append(d)
    return _Box(tuple(ranges), tuple(along))


def _window(box: _Box, sizes: tuple[int, ...], steps: Sequence[int]) -> Geometry:
    """A box in an array whose dimensions have other steps."""
    strides = tuple(1 if d < 0 else box.ranges[d][1] * steps[d] for d in box.along)
    return sizes, strides, sum(start * step for (start, _, _), step in zip(box.ranges, steps, strict=True))


def _disjoint(a: _Box, b: _Box) -> bool:
    return any(_apart(x, y) for x, y in zip(a.ranges, b.ranges, strict=True))


def _apart(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    x, y = (range(start, start + step * count, step) for start, step, count in (a, b))
    return x[-1] < y[0] or y[-1] < x[0] or set(x).isdisjoint(y)
