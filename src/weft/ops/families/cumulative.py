"""Sums and products of a row up to each of its elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from weft.base.dtype import DType, int64
from weft.base.errors import ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.families.indexing import zeros_like
from weft.ops.families.reduction import same_kind, summable, window
from weft.ops.kernels import Loop, Row, highest, lowest, to_accumulation
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to, conj
from weft.ops.sizes import Size
from weft.ops.types import TensorType, normalize_axes


class Cumulative(Op, family="reduction", rule="x -> y: result()", positional=("axis",)):
    """Base: a row combined up to each of its elements."""

    axis: int | None = None
    dtype: DType | None = None
    include_initial: bool = False
    reverse: bool = False
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
        return same_kind(self, self.dtype, x)

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        is_complex_product = self.combine == "prod" and self.result(x).is_complex
        if not self.include_initial and not is_complex_product:
            row = Row(inputs=1)
            value = summable(e.load(0, x.dtype.name), self.dtype)
            row.scan(self.combine, value, self.start, same_kind(self, self.dtype, x).name, self.reverse)
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
    the end. Returns x's shape. Raises ShapeError without an axis, IndexError if it is out of range, DTypeError for
    complex x and another dtype.
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
class CumulativeProd(Cumulative, combine="prod", start=1):
    """The product of a row up to each of its elements, with it.

    x: any dtype [..., n, ...]; axis: which n, needed unless x has one dimension; dtype: the result's, by default x's,
    for small integers and booleans int64 (uint64); include_initial: 1 comes first, and the size is n + 1; reverse: from
    the end. Returns x's shape. Derivatives of every order hold for zeros, too, but for second ones along a dynamic
    axis. Raises ShapeError without an axis, IndexError if it is out of range, DTypeError for complex x and another
    dtype.
    Source: array API 2024.12, cumulative_prod; reverse is ours.

    >>> import weft as wf
    >>> wf.cumulative_prod(wf.tensor([1, 2, 3]))
    tensor([1, 2, 6], dtype=int64, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        if self.include_initial or not self.result(x.type).is_complex:
            return super().decompose(x)
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        n, product = x.shape[axis], cast_to(x, self.result(x.type))
        if isinstance(n, Size) and n.is_of_axis:
            raise NotImplementedError(f"{self.name} of complex numbers: axis {axis} must not be dynamic")
        n, distance = int(n), 1  # each element is the product of so many, up to the row's beginning
        while distance < n:
            product = product * shifted(product, axis, distance if self.reverse else -distance, 1.0)
            distance *= 2
        return product

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        if self.include_initial:
            return NotImplemented
        if not x.dtype.is_differentiable or not dy.dtype.is_differentiable:
            return None
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        x_wide, y, dy = (cast_to(v, y.dtype.accumulation) for v in (x, y, dy))
        x_wide, y = conj(x_wide), conj(y)
        if not self.reverse:
            return cast_to(_gradient_of_products(x_wide, y, dy, axis), x.dtype)
        x_wide, y, dy = (F.flip(v, axis=axis) for v in (x_wide, y, dy))
        dx = _gradient_of_products(x_wide, y, dy, axis)
        return cast_to(F.flip(dx, axis=axis), x.dtype)


class CumulativeExtreme(Cumulative):
    """Base: the greatest or the least element up to each one."""

    def infer(self, x: TensorType) -> TensorType:
        self.require_order(x=x)
        return super().infer(x)

    def check(self) -> None:
        if self.dtype is not None or self.include_initial:
            raise ValueError(f"{self.name}: takes no dtype and no include_initial")

    def result(self, x: TensorType) -> DType:
        return x.dtype

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        row = Row(inputs=1)
        value = to_accumulation(e.load(0, x.dtype.name))
        value = e.cast(value, "uint8") if value.dtype == "bool" else value
        start = lowest(value.dtype) if self.combine == "max" else highest(value.dtype)
        row.scan(self.combine, value, start, x.dtype.name, self.reverse)
        yield row.loop(normalize_axes(self.name, self.axis, x.ndim))

    def decompose(self, x: Any) -> Any:
        return NotImplemented

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        """The gradient goes to the last of equal elements until there."""
        if not x.dtype.is_differentiable:
            return None
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        position = F.cumulative_sum(F.cast(zeros_like(x), dtype=int64) + 1, axis=axis) - 1
        is_new = F.logical_or(F.equal(x, y), F.not_equal(x, x))
        seen = F.where(is_new, position, 2**62 if self.reverse else -1)
        scan = F.cumulative_min if self.reverse else F.cumulative_max
        source = scan(seen, axis=axis, reverse=self.reverse)
        return F.put_along_axis(zeros_like(x), source, dy, axis=axis, mode="add")


@op
class CumulativeMax(CumulativeExtreme, combine="max"):
    """The greatest element of a row up to each of its elements; NaN stays.

    x: any dtype [..., n, ...]; axis: which n, needed unless x has one dimension; reverse: from the end; dtype and
    include_initial are for sums and products only. Returns x's shape and dtype. The gradient goes to the last of equal
    elements. Raises ShapeError without an axis, IndexError if it is out of range.
    Source: NumPy's maximum.accumulate.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cumulative_max(wf.tensor([1, 3, 2, 4]))
    tensor([1, 3, 3, 4], dtype=int64, device=cpu:0)
    """


@op
class CumulativeMin(CumulativeExtreme, combine="min"):
    """The least element of a row up to each of its elements; NaN stays.

    x: any dtype [..., n, ...]; axis: which n, needed unless x has one dimension; reverse: from the end; dtype and
    include_initial are for sums and products only. Returns x's shape and dtype. The gradient goes to the last of equal
    elements. Raises ShapeError without an axis, IndexError if it is out of range.
    Source: NumPy's minimum.accumulate.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cumulative_min(wf.tensor([3, 1, 2, 0]))
    tensor([3, 1, 1, 0], dtype=int64, device=cpu:0)
    """


def _gradient_of_products(x: Any, y: Any, dy: Any, axis: int) -> Any:
    """dx[i] = y[i - 1] s[i] with s[i] = dy[i] + x[i + 1] s[i + 1], where y is the cumulative product of x.

    The recurrence is solved for all i at once by doubling: after a step with a distance, s[i] = sums[i] +
    factors[i] s[i + distance]. That takes log2(n) steps over the row, and divides by no element.
    """
    n = x.shape[axis]
    if isinstance(n, Size) and n.is_of_axis:
        return _gradient_by_quotients(x, y, dy, axis)
    n = int(n)
    if n < 2:
        return dy
    sums, factors = dy, shifted(x, axis, 1, 0.0)
    distance = 1
    while distance < n:
        sums = sums + factors * shifted(sums, axis, distance, 0.0)
        factors = factors * shifted(factors, axis, distance, 0.0)
        distance *= 2
    return shifted(y, axis, -1, 1.0) * sums


def _gradient_by_quotients(x: Any, y: Any, dy: Any, axis: int) -> Any:
    """The same where the number of steps is not known: by division before the first zero, and 0 behind it.

    Its own gradient lacks the influence of zeros.
    """

    def total(v: Any) -> Any:
        return F.cumulative_sum(v, axis=axis, reverse=True)

    is_zero = F.equal(x, 0)
    zeros = F.cumulative_sum(F.cast(is_zero, dtype=int64), axis=axis)
    is_first = F.logical_and(is_zero, F.equal(zeros, 1))
    others = F.cumulative_prod(F.where(is_first, 1, x), axis=axis)
    before = total(dy * y) / F.where(is_zero, 1, x)
    return F.where(is_first, total(dy * others), F.where(F.equal(zeros, 0), before, 0))


def shifted(x: Any, axis: int, distance: int, value: float) -> Any:
    """x[i + distance] at i, and value where there is no such element."""
    part = window(x, axis, max(distance, 0), x.shape[axis] - abs(distance))
    edge = (max(-distance, 0), max(distance, 0))
    return F.pad(part, pad=(0, 0) * (x.ndim - 1 - axis) + edge, value=value)
