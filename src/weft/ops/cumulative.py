"""Sums and products of a row up to each of its elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from weft.base.dtype import DType
from weft.base.errors import ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, Row
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.reduction import same_kind, summable
from weft.ops.types import TensorType, normalize_axes


class Cumulative(Op):
    """Base: a row combined up to each of its elements."""

    family: ClassVar[str] = "reduction"
    dtype_rule: ClassVar[str] = "-> result()"
    axis: int | None = None
    dtype: DType | None = None
    include_initial: bool = False
    reverse: bool = False
    positional = ("axis",)
    combine: ClassVar[str] = "sum"
    start: ClassVar[int] = 0

    def infer(self, x: TensorType) -> TensorType:
        if self.axis is None and x.ndim != 1:
            raise self.fail(ShapeError, "axis must be given unless there is one dimension", x=x)
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        shape = [n + int(self.include_initial) if d == axis else n for d, n in enumerate(x.shape)]
        return x.like(shape, self.result(x))

    def result(self, x: TensorType) -> DType:
        """The output's dtype."""
        return same_kind(self.dtype, x)

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        if not self.include_initial:
            row = Row(inputs=1)
            value = summable(e.load(0, x.dtype.name), self.dtype)
            row.scan(self.combine, value, self.start, same_kind(self.dtype, x).name, self.reverse)
            yield row.loop(normalize_axes(self.name, self.axis, x.ndim))

    def decompose(self, x: Any) -> Any:
        if not self.include_initial:
            return NotImplemented
        axis = 0 if self.axis is None else self.axis % x.ndim
        attributes = self.values() | {"include_initial": False}
        rows = x.__weft_apply__(type(self), (x,), attributes)
        edge = (0, 1) if self.reverse else (1, 0)
        return F.pad(rows, (0, 0) * (x.ndim - 1 - axis) + edge, value=float(self.start))

    def again(self, dy: Any, reverse: bool) -> Any:
        """The sums of gradients, in the other direction."""
        return F.cumulative_sum(dy, axis=0 if self.axis is None else self.axis, reverse=reverse)


@op
class CumulativeSum(Cumulative):
    """The sum of a row up to each of its elements, with it.

    x: any dtype [..., n, ...]; axis: which n, needed unless x has one dimension; dtype: the result's, by default x's,
    for small integers and booleans int64 (uint64); include_initial: 0 comes first, and the size is n + 1; reverse: from
    the end. Returns x's shape. Raises ShapeError without an axis, IndexError if it is out of range.
    Source: array API 2024.12, cumulative_sum; reverse is ours.

    >>> import weft as wf
    >>> wf.cumulative_sum(wf.tensor([1, 2, 3]))
    tensor([1, 3, 6], dtype=int64, device=cpu:0)
    """

    def vjp(self, x: Any, dy: Any) -> Any:
        if self.include_initial:
            return NotImplemented
        return cast_to(self.again(dy, not self.reverse), x.dtype) if x.dtype.is_differentiable else None


@op
class CumulativeProd(Cumulative):
    """The product of a row up to each of its elements, with it.

    x: any dtype [..., n, ...]; axis: which n, needed unless x has one dimension; dtype: the result's, by default x's,
    for small integers and booleans int64 (uint64); include_initial: 1 comes first, and the size is n + 1; reverse: from
    the end. Returns x's shape. The gradient is NaN in rows with zeros. Raises ShapeError without an axis, IndexError if
    it is out of range.
    Source: array API 2024.12, cumulative_prod; reverse is ours.

    >>> import weft as wf
    >>> wf.cumulative_prod(wf.tensor([1, 2, 3]))
    tensor([1, 2, 6], dtype=int64, device=cpu:0)
    """

    combine: ClassVar[str] = "prod"
    start: ClassVar[int] = 1

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        if self.include_initial:
            return NotImplemented
        if not x.dtype.is_floating:
            return None
        return cast_to(self.again(dy * y, not self.reverse), x.dtype) / x
