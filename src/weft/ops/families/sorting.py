"""Sorting, and selecting the first elements of an order."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.indexing import zeros_like
from weft.ops.families.matrix import cast_all
from weft.ops.op import Op, op
from weft.ops.types import TensorType, normalize_axes


class Sorting(Op, family="sorting", primitive=True, positional=("axis",)):
    """Base: an order along an axis; NaN is last in both directions."""

    axis: int = -1
    descending: bool = False
    stable: bool = True

    def axis_of(self, x: TensorType) -> int:
        self.require_order(x=x)
        return normalize_axes(self.name, self.axis, x.ndim)[0]


@op
class Sort(Sorting, rule="x[*s] -> y[*s]: x, indices[*s]: int64", hidden=1):
    """x sorted along an axis, the least first; NaN last.

    x: any dtype [..., n, ...]; descending: the greatest first, NaN still last; stable: equal elements keep their order
    (they always do). Returns x's shape and dtype. The gradient goes where the elements came from.
    Raises IndexError if the axis is out of range.
    Source: array API 2024.12, sort.

    >>> import weft as wf
    >>> wf.sort(wf.tensor([3, 1, 2]), descending=True)
    tensor([3, 2, 1], dtype=int64, device=cpu:0)
    """

    def infer(self, x: TensorType) -> Any:
        self.axis_of(x)
        return super().infer(x)

    def vjp(self, x: Any, indices: Any, dy: Any) -> Any:
        return F.put_along_axis(zeros_like(x), indices, dy, axis=self.axis)


@op
class Argsort(Sorting, rule="x[*s] -> y[*s]: int64"):
    """The indices that sort x along an axis, the least first; NaN last.

    x: any dtype [..., n, ...]; descending: the greatest first, NaN still last; stable: equal elements keep their order
    (they always do). Returns int64 of x's shape. Raises IndexError if the axis is out of range.
    Source: array API 2024.12, argsort.

    >>> import weft as wf
    >>> wf.argsort(wf.tensor([3, 1, 2]))
    tensor([1, 2, 0], dtype=int64, device=cpu:0)
    """

    def infer(self, x: TensorType) -> Any:
        self.axis_of(x)
        return super().infer(x)


@op
class Topk(
    Op,
    family="sorting",
    primitive=True,
    rule="x -> y: x, indices: int64",
    positional=("k", "axis"),
):
    """The k greatest elements along an axis, the greatest first, and their indices.

    x: any dtype [..., n, ...]; k: 0 ... n; largest: False for the least ones, the least first; sorted: they always are.
    Returns values of x's dtype and int64 indices, both [..., k, ...]. Of equal elements the lower index comes first;
    NaN counts as the greatest. Raises ShapeError unless k is in 0..n, IndexError if the axis is out of range.
    Source: PyTorch's topk.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.topk(wf.tensor([3, 1, 2]), 2)[0]
    tensor([3, 2], dtype=int64, device=cpu:0)
    """

    k: int
    axis: int = -1
    largest: bool = True
    sorted: bool = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        self.require_order(x=x)
        axis = normalize_axes(self.name, self.axis, x.ndim)[0]
        if not 0 <= self.k <= x.shape[axis]:
            raise self.fail(ShapeError, f"k must be in 0..{x.shape[axis]}, got {self.k}", x=x)
        y = x.like((*x.shape[:axis], self.k, *x.shape[axis + 1 :]))
        return y, y.like(dtype=int64)

    def vjp(self, x: Any, indices: Any, dy: Any) -> Any:
        return None if dy is None else F.put_along_axis(zeros_like(x), indices, dy, axis=self.axis)


@op
class Searchsorted(Op, family="sorting", rule="x1, x2[*s], sorter?: int -> y[*s]: int64"):
    """Where values would be inserted into a sorted array so that it stays sorted.

    x1: numbers [..., n], ascending along the last axis; x2: numbers [...], with one-dimensional x1 of any shape, else
    [..., m] with x1's leading sizes. sorter: integers of x1's shape, the indices that sort x1, which need not be sorted
    then: argsort(x1). side: "left", before equal ones, or "right", behind them. Both are promoted.
    Returns int64 of x2's shape. Raises ValueError for another side, ShapeError if leading sizes differ.
    Source: array API 2024.12, searchsorted.

    >>> import weft as wf
    >>> wf.searchsorted(wf.tensor([1., 2., 2., 3.]), wf.tensor([2., 5.]))
    tensor([1, 4], dtype=int64, device=cpu:0)
    """

    side: str = "left"

    def check(self) -> None:
        if self.side not in ("left", "right"):
            raise ValueError(f"{self.name}: side must be 'left' or 'right', got {self.side!r}")

    def infer(self, x1: TensorType, x2: TensorType, sorter: TensorType | None = None) -> Any:
        self.require_order(x1=x1, x2=x2)
        if sorter is not None and sorter.shape != x1.shape:
            raise self.fail(ShapeError, "sorter needs x1's shape", x1=x1, sorter=sorter)
        if x1.ndim == 0 or (x1.ndim > 1 and x1.shape[:-1] != x2.shape[:-1]):
            raise self.fail(ShapeError, "x1 needs one dimension, or x2's leading ones", x1=x1, x2=x2)
        return super().infer(x1, x2, sorter)

    def decompose(self, x1: Any, x2: Any, sorter: Any = None) -> Any:
        if sorter is not None:
            return F.searchsorted(F.take_along_axis(x1, sorter, axis=-1), x2, side=self.side)
        if x1.dtype is x2.dtype and x2.ndim > 0 and x1.shape[:-1] == x2.shape[:-1]:
            return NotImplemented
        a, b = cast_all((x1, x2))
        b = F.expand_dims(b, axis=0) if x2.ndim == 0 else b
        a = F.broadcast_to(a, shape=(*b.shape[:-1], a.shape[-1]))
        return F.reshape(F.searchsorted(a, b, side=self.side), shape=x2.shape)


__all__ = ["Argsort", "Searchsorted", "Sort", "Topk"]
