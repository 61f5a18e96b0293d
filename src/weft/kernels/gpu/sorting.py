"""Kernels of weft.ops.families.sorting on GPUs: networks of exchanges, each a loop (Batcher 1968).

A row of n elements is padded to a power of two, 2^m, and goes through m (m + 1) / 2 exchanges of neighbours. Pairs of
an element and its place are compared, no two of which are equal: so equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.dtype import bool_, int64, uint8
from weft.kernels import kernel
from weft.ops import functions as F
from weft.ops.families.sorting import Argsort, Searchsorted, Sort, Topk
from weft.ops.kernels import Decomposed
from weft.ops.node import constant
from weft.ops.sizes import NeedsSizes, Size
from weft.ops.types import TensorType, normalize_axes

Pair = tuple[Any, Any]  # elements, and their places in x


class Order:
    """Which of two pairs comes first: by elements, NaN last or first, then by places; from `count` on is padding."""

    def __init__(self, count: int, descending: bool, nan_first: bool) -> None:
        self.count, self.nan_first = count, nan_first
        self.less = F.greater if descending else F.less

    def is_before(self, first: Pair, second: Pair) -> Any:
        (a, i), (b, j) = first, second
        less, equal = self.less(a, b), F.equal(a, b)
        if a.dtype.is_floating:
            a_nan, b_nan = F.isnan(a), F.isnan(b)
            early, late = (a_nan, b_nan) if self.nan_first else (b_nan, a_nan)
            less = F.logical_or(less, F.logical_and(early, F.logical_not(late)))
            equal = F.logical_or(equal, F.logical_and(a_nan, b_nan))
        before = F.logical_or(less, F.logical_and(equal, F.less(i, j)))
        first_is_padding, second_is_padding = (F.greater_equal(k, self.count) for k in (i, j))
        inside = F.logical_and(F.logical_not(first_is_padding), before)
        return F.logical_or(second_is_padding, inside)


def exchanged(pair: Pair, span: int, order: Order, mirrored: bool) -> Pair:
    """Of every `span` neighbours each in the first half, in order with its like, or mirror, in the second."""
    shape = pair[0].shape
    halves = (*shape[:-1], shape[-1] // span, 2, span // 2)
    first, second = zip(*(F.unstack(F.reshape(x, shape=halves), axis=-2) for x in pair), strict=True)
    if mirrored:
        second = tuple(F.flip(x, axis=-1) for x in second)
    swap = order.is_before(second, first)
    results = []
    for a, b in zip(first, second, strict=True):
        low, high = F.where(swap, b, a), F.where(swap, a, b)
        joined = F.stack(low, F.flip(high, axis=-1) if mirrored else high, axis=-2)
        results.append(F.reshape(joined, shape=shape))
    return results[0], results[1]


def sorted_pair(x: Any, axis: int, descending: bool, nan_first: bool = False) -> Pair:
    """x sorted along an axis, which is the last one then, and where its elements were."""
    if any(isinstance(n, Size) for n in x.shape):
        raise NeedsSizes("sort")
    dtype, count = x.dtype, x.shape[axis]
    axes = [*(d for d in range(x.ndim) if d != axis), axis]
    x = F.permute_dims(x, axes=tuple(axes))
    if dtype is bool_:
        x = F.cast(x, dtype=uint8)
    size = 1 << max(count - 1, 0).bit_length()
    if size > count:
        padding = F.broadcast_to(constant(0, x.dtype), shape=(*x.shape[:-1], size - count))
        x = F.concat(x, padding, axis=-1)
    pair = (x, F.places_like(x, axis=-1))
    order = Order(count, descending, nan_first)
    for power in range(1, size.bit_length()):
        pair = exchanged(pair, 1 << power, order, mirrored=True)
        for span in range(power - 1, 0, -1):
            pair = exchanged(pair, 1 << span, order, mirrored=False)
    return F.cast(pair[0], dtype=dtype), pair[1]


def back(x: Any, axis: int, count: int) -> Any:
    """The first `count` elements of x, its last axis where it belongs."""
    items = (*((0, n, 1) for n in x.shape[:-1]), (0, count, 1))
    x = F.basic_index(x, items=items)
    others = list(range(x.ndim - 1))
    return F.permute_dims(x, axes=(*others[:axis], x.ndim - 1, *others[axis:]))


@kernel(Sort, device="gpu")
def sort(op: Sort, x: TensorType) -> Iterator[Decomposed]:
    axis = op.axis_of(x)

    def decompose(x: Any) -> Any:
        pair = sorted_pair(x, axis, op.descending)
        return tuple(back(part, axis, x.shape[axis]) for part in pair)

    yield Decomposed(decompose)


@kernel(Argsort, device="gpu")
def argsort(op: Argsort, x: TensorType) -> Iterator[Decomposed]:
    axis = op.axis_of(x)
    yield Decomposed(lambda x: back(sorted_pair(x, axis, op.descending)[1], axis, x.shape[axis]))


@kernel(Topk, device="gpu")
def topk(op: Topk, x: TensorType) -> Iterator[Decomposed]:
    axis = normalize_axes(op.name, op.axis, x.ndim)[0]

    def decompose(x: Any) -> Any:
        pair = sorted_pair(x, axis, op.largest, nan_first=op.largest)
        return tuple(back(part, axis, op.k) for part in pair)

    yield Decomposed(decompose)


@kernel(Searchsorted, device="gpu")
def searchsorted(
    op: Searchsorted, x1: TensorType, x2: TensorType, sorter: TensorType | None = None
) -> Iterator[Decomposed]:
    """The number of elements before each value: all are compared."""
    if sorter is not None or x1.dtype is not x2.dtype or x2.ndim == 0 or x1.shape[:-1] != x2.shape[:-1]:
        return

    def decompose(x1: Any, x2: Any, _: Any = None) -> Any:
        a, b = F.expand_dims(x1, axis=-2), F.expand_dims(x2, axis=-1)
        if a.dtype is bool_:
            a, b = F.cast(a, dtype=uint8), F.cast(b, dtype=uint8)
        is_right = op.side == "right"
        before = F.less_equal(a, b) if is_right else F.less(a, b)
        if a.dtype.is_floating:
            late = F.isnan(b) if is_right else F.logical_and(F.isnan(b), F.logical_not(F.isnan(a)))
            before = F.logical_or(before, late)
        return F.sum(F.cast(before, dtype=int64), axis=-1)

    yield Decomposed(decompose)
