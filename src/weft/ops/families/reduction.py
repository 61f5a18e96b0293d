"""Reductions: sums, means, extremes along axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from weft.base.dtype import DType, bool_, int64, uint64
from weft.base.errors import DTypeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, Row, Several, to_accumulation
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import cast_to, conj
from weft.ops.types import TensorType, normalize_axes

Scalar = e.Scalar


class Reduction(Op, family="reduction", primitive=True, rule="x -> y: result()", positional=("axis",)):
    """Base: one number for each row. A class gives fold(row, x), the scalar that is stored."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    needs_order: ClassVar[bool] = (
        False  # it compares elements, so that complex numbers have no such reduction
    )

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        """The row's result, in any type; it is converted to the output's. count: elements of a row."""
        raise NotImplementedError

    def result(self, x: TensorType) -> DType:
        """The output's dtype."""
        return x.dtype

    def infer(self, x: TensorType) -> TensorType:
        if self.needs_order:
            self.require_order(x=x)
        axes = normalize_axes(self.name, self.axis, x.ndim)
        shape = [1 if d in axes else n for d, n in enumerate(x.shape) if self.keepdims or d not in axes]
        return x.like(shape, self.result(x))

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        axes = normalize_axes(self.name, self.axis, x.ndim)
        row = Row(inputs=1)
        result = self.fold(row, e.load(0, x.dtype.name), math.prod(x.shape[d] for d in axes))
        row.once(0, e.cast(result, self.result(x).name))
        yield row.loop(axes)

    def total(self, x: Any) -> Any:
        """The sum over the same axes of values that are to be divided, rounded or put into a function before they are
        rounded: in the type that sums are kept in."""
        return F.sum(cast_to(x, x.dtype.accumulation), axis=self.axis, keepdims=self.keepdims)

    def spread(self, dy: Any, x: Any) -> Any:
        """dy or y repeated over the reduced axes."""
        axes = normalize_axes(self.name, self.axis, x.ndim)
        if not self.keepdims and axes:
            dy = F.expand_dims(dy, axis=axes)
        return F.broadcast_like(dy, x)


def same_kind(op: Op, dtype: DType | None, x: TensorType) -> DType:
    """What sums and products give: dtype, else that of x, wide for integers and booleans.

    Raises DTypeError if x is complex and dtype is not.
    """
    if dtype is not None:
        if x.dtype.is_complex and not dtype.is_complex:
            raise op.fail(DTypeError, f"{dtype} has no imaginary parts", x=x)
        return dtype
    if x.dtype.is_inexact:
        return x.dtype
    return uint64 if x.dtype.kind == "uint" else int64


def summable(x: Scalar, dtype: DType | None) -> Scalar:
    """x, as the result's type if there is one, in the type that it is added or multiplied in."""
    wide = to_accumulation(x if dtype is None else e.cast(x, dtype.name))
    if wide.dtype in e.BITS_OF_INTEGERS:
        wide = e.cast(wide, "uint64" if wide.dtype in e.UNSIGNED else "int64")
    return wide


@op
class Sum(Reduction, aot_dtypes=("float32",)):
    """The sum along axes.

    x: any dtype [...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype, or dtype;
    small integers and booleans give int64 (uint64). Integers wrap. An empty sum is 0. Floats are summed in float32
    blocks joined in float64. Raises IndexError if an axis is out of range, DTypeError for complex x and another dtype.
    Source: array API 2024.12, sum.

    >>> import weft as wf
    >>> wf.sum(wf.tensor([[1., 2.], [3., 4.]]), axis=0)
    tensor([4., 6.], dtype=float32, device=cpu:0)
    """

    dtype: DType | None = None

    def result(self, x: TensorType) -> DType:
        return same_kind(self, self.dtype, x)

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.sum(summable(x, self.dtype))

    def vjp(self, x: Any, dy: Any) -> Any:
        return cast_to(self.spread(dy, x), x.dtype) if x.dtype.is_differentiable else None


@op
class Prod(Reduction):
    """The product along axes.

    x: any dtype [...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype, or dtype;
    small integers and booleans give int64 (uint64). Integers wrap. An empty product is 1. Raises IndexError if an axis
    is out of range, DTypeError for complex x and another dtype. Derivatives of every order hold for zeros, too:
    nothing is divided by an element.
    Source: array API 2024.12, prod.

    >>> import weft as wf
    >>> wf.prod(wf.tensor([[1., 2.], [3., 4.]]), axis=0)
    tensor([3., 8.], dtype=float32, device=cpu:0)
    """

    dtype: DType | None = None

    def result(self, x: TensorType) -> DType:
        return same_kind(self, self.dtype, x)

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.prod(summable(x, self.dtype))

    def vjp(self, x: Any, dy: Any) -> Any:
        if not x.dtype.is_differentiable or not dy.dtype.is_differentiable:
            return None
        wide = dy.dtype.accumulation
        others = _products_of_others(cast_to(x, wide), normalize_axes(self.name, self.axis, x.ndim))
        return cast_to(self.spread(cast_to(dy, wide), x) * conj(others), x.dtype)


def _products_of_others(x: Any, axes: tuple[int, ...]) -> Any:
    """For every element the product of all other ones of its row: of those before it times that of those behind it.

    The product divided by the element would have no value at zeros, and products of what is not zero no derivatives.
    """
    if not axes:
        return F.filled_like(x, value=1.0)
    outer = tuple(d for d in range(x.ndim) if d not in axes)
    order = (*outer, *axes)
    aligned = F.permute_dims(x, axes=order)
    size = math.prod(x.shape[d] for d in axes)
    rows = F.reshape(aligned, shape=(*(x.shape[d] for d in outer), size))
    before = F.cumulative_prod(rows, axis=-1, include_initial=True)
    behind = F.cumulative_prod(rows, axis=-1, include_initial=True, reverse=True)
    others = window(before, len(outer), 0, size) * window(behind, len(outer), 1, size)
    inverse = tuple(order.index(d) for d in range(x.ndim))
    return F.permute_dims(F.reshape(others, shape=aligned.shape), axes=inverse)


def window(x: Any, axis: int, start: int, count: Any) -> Any:
    """The elements from start on along an axis, so many; a count may be a Size."""
    items = [(0, n, 1) for n in x.shape]
    items[axis] = (start, count, 1)
    return F.basic_index(x, items=tuple(items))


class FloatReduction(Reduction, rule="x: float -> y: result()"):
    """Base of those that take floating-point types only."""

    def infer(self, x: TensorType) -> TensorType:
        self.require_floats(x=x)
        return super().infer(x)


@op
class Mean(Reduction, rule="x: float|complex -> y: result()", aot_dtypes=("float32",)):
    """The arithmetic mean along axes.

    x: float[...] or complex[...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's
    dtype. The mean of nothing is NaN. Raises IndexError if an axis is out of range, DTypeError for integers.
    Source: array API 2024.12, mean.

    >>> import weft as wf
    >>> wf.mean(wf.tensor([1., 2., 6.])).item()
    3.0
    """

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_complex:
            self.require_floats(x=x)
        return super().infer(x)

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        total = row.sum(to_accumulation(x))
        return total / row.number(count, total.dtype)

    def decompose(self, x: Any) -> Any:
        total = self.total(x)
        return cast_to(
            F.divide_by_count(total, x, axis=normalize_axes(self.name, self.axis, x.ndim)), x.dtype
        )

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        axes = normalize_axes(self.name, self.axis, x.ndim)
        return self.spread(F.divide_by_count(dy, x, axis=axes), x)


class ExtremeReduction(Reduction, needs_order=True):
    """Base of the greatest and the least."""

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        if not x.dtype.is_floating:
            return None
        mask = cast_to(F.equal(x, self.spread(y, x)), x.dtype)
        axes = normalize_axes(self.name, self.axis, x.ndim)
        return self.spread(dy, x) * mask / F.sum(mask, axis=axes, keepdims=True)


@op
class Max(ExtremeReduction, aot_dtypes=("float32",)):
    """The greatest value along axes; NaN if there is one.

    x: any dtype [...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype. The
    gradient is shared equally between equal greatest values. Raises IndexError if an axis is out of range.
    An empty row gives the dtype's least value.
    Source: array API 2024.12, max.

    >>> import weft as wf
    >>> wf.max(wf.tensor([[1, 5], [7, 2]]), axis=1)
    tensor([5, 7], dtype=int64, device=cpu:0)
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.reduce("max", to_accumulation(x), 0) if x.dtype == "bool" else row.max(to_accumulation(x))


@op
class Min(ExtremeReduction):
    """The least value along axes; NaN if there is one.

    x: any dtype [...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype. The
    gradient is shared equally between equal least values. Raises IndexError if an axis is out of range.
    An empty row gives the dtype's greatest value.
    Source: array API 2024.12, min.

    >>> import weft as wf
    >>> wf.min(wf.tensor([[1, 5], [7, 2]]), axis=1)
    tensor([1, 2], dtype=int64, device=cpu:0)
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.min(to_accumulation(x))


class Quantifier(Reduction):
    """Base of any and all."""

    def result(self, x: TensorType) -> DType:
        return bool_


@op
class Any_(Quantifier, name="any"):
    """Whether at least one is true along axes.

    x: any dtype [...], true unless 0; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns bool;
    of nothing, false. Raises IndexError if an axis is out of range.
    Source: array API 2024.12, any.

    >>> import weft as wf
    >>> wf.any(wf.tensor([[True, False], [False, False]]), axis=1)
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.reduce("max", e.cast(e.cast(x, "bool"), "uint8"), 0)


@op
class All(Quantifier):
    """Whether all are true along axes.

    x: any dtype [...], true unless 0; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns bool;
    of nothing, true. Raises IndexError if an axis is out of range.
    Source: array API 2024.12, all.

    >>> import weft as wf
    >>> wf.all(wf.tensor([[True, False], [True, True]]), axis=1)
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.reduce("min", e.cast(e.cast(x, "bool"), "uint8"), 1)


@op
class CountNonzero(Reduction):
    """How many are not 0 along axes.

    x: any dtype [...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns int64. Raises
    IndexError if an axis is out of range.
    Source: array API 2024.12, count_nonzero.

    >>> import weft as wf
    >>> wf.count_nonzero(wf.tensor([3, 0, 5])).item()
    2
    """

    def result(self, x: TensorType) -> DType:
        return int64

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.sum(e.cast(e.cast(x, "bool"), "int64"))


class ExtremePosition(Reduction, needs_order=True):
    """Base of argmax and argmin."""

    axis: int | None = None

    def result(self, x: TensorType) -> DType:
        return int64

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.reduce(self.name, to_accumulation(x))


@op
class Argmax(ExtremePosition):
    """The index of the greatest value along an axis; of equal ones the first, and of NaN the first.

    x: any dtype [...]; axis: an int, or None: in x as one row; keepdims: leave sizes of 1. Returns int64. Raises
    IndexError if the axis is out of range. An empty row gives 0.
    Source: array API 2024.12, argmax.

    >>> import weft as wf
    >>> wf.argmax(wf.tensor([[1, 5], [7, 2]]), axis=1)
    tensor([1, 0], dtype=int64, device=cpu:0)
    """


@op
class Argmin(ExtremePosition):
    """The index of the least value along an axis; of equal ones the first, and of NaN the first.

    x: any dtype [...]; axis: an int, or None: in x as one row; keepdims: leave sizes of 1. Returns int64. Raises
    IndexError if the axis is out of range. An empty row gives 0.
    Source: array API 2024.12, argmin.

    >>> import weft as wf
    >>> wf.argmin(wf.tensor([[1, 5], [7, 2]]), axis=1)
    tensor([0, 1], dtype=int64, device=cpu:0)
    """


def _quotient(a: Any, norm: Any) -> Any:
    """a / norm, and 0 where the norm is 0, which has no derivative; so are the quotient's own derivatives there."""
    is_zero = F.equal(norm, 0)
    return F.where(is_zero, 0, a / F.where(is_zero, 1, norm))


def degrees_of_freedom(count: Scalar, correction: Scalar) -> Scalar:
    """The count less the correction; NaN if that is not positive."""
    remaining = count - correction
    return e.where(remaining > 0, remaining, float("nan"))


class SpreadReduction(FloatReduction):
    """Base of var and std: two passes, so that a large mean costs no digits."""

    correction: Runtime[float] = 0

    def variance(self, row: Row, x: Scalar, count: Any) -> Scalar:
        """The variance of the row."""
        wide = to_accumulation(x)
        number = row.number(count, wide.dtype)
        apart = wide - row.sum(wide) / number
        return row.dot(apart, apart) / degrees_of_freedom(number, row.number(self.correction, wide.dtype))

    def variance_of(self, x: Any) -> Any:
        """The variance along the axes, in the type that sums are kept in."""
        axes = normalize_axes(self.name, self.axis, x.ndim)
        wide = cast_to(x, x.dtype.accumulation)
        apart = wide - F.mean(wide, axis=axes, keepdims=True)
        return F.divide_by_count(self.total(apart * apart), x, axis=axes, correction=self.correction)

    def cotangent(self, x: Any) -> Any:
        """Half the variance's derivative in every element."""
        axes = normalize_axes(self.name, self.axis, x.ndim)
        apart = x - F.mean(x, axis=axes, keepdims=True)
        return F.divide_by_count(apart, x, axis=axes, correction=self.correction)


@op
class Var(SpreadReduction):
    """The variance along axes: the sum of (x - mean)^2, divided by their number less correction.

    x: float[...]; axis: an int, several, or None for all; correction: a number given when it runs, 1 for samples of a
    larger whole; keepdims: leave sizes of 1. Returns x's dtype; NaN if correction is the number or more. Raises
    IndexError if an axis is out of range, DTypeError for integers.
    Source: array API 2024.12, var.

    >>> import weft as wf
    >>> wf.var(wf.tensor([1., 3.])).item()
    1.0
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return self.variance(row, x, count)

    def decompose(self, x: Any) -> Any:
        return cast_to(self.variance_of(x), x.dtype)

    def vjp(self, x: Any, dy: Any) -> Any:
        return self.spread(dy * 2, x) * self.cotangent(x)


@op
class Std(SpreadReduction):
    """The standard deviation along axes: the square root of the variance.

    x: float[...]; axis: an int, several, or None for all; correction: a number given when it runs, 1 for samples of a
    larger whole; keepdims: leave sizes of 1. Returns x's dtype; NaN if correction is the number or more. Raises
    IndexError if an axis is out of range, DTypeError for integers. Where it is 0, which has no derivative, the gradient
    is 0, as PyTorch's.
    Source: array API 2024.12, std.

    >>> import weft as wf
    >>> wf.std(wf.tensor([1., 3.])).item()
    1.0
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return e.call("sqrt", self.variance(row, x, count))

    def decompose(self, x: Any) -> Any:
        return cast_to(F.sqrt(self.variance_of(x)), x.dtype)

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        return self.spread(_quotient(dy, y), x) * self.cotangent(x)


@op
class Logsumexp(FloatReduction):
    """log(sum(exp(x))) along axes; finite wherever the answer is.

    x: float[...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype; -inf for
    nothing and for rows of -inf. Raises IndexError if an axis is out of range, DTypeError for integers.
    Source: Blanchard, Higham, Higham 2021 (shifted form), IMA J. Numer. Anal. 41(4).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.logsumexp(wf.tensor([0., float("-inf")])).item()
    0.0
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        wide = to_accumulation(x)
        top = row.max(wide)
        shift = e.where(abs(top) == float("inf"), e.constant(0, wide.dtype), top)
        return e.call("log", row.sum(e.call("exp", wide - shift))) + shift

    def decompose(self, x: Any) -> Any:
        axes = normalize_axes(self.name, self.axis, x.ndim)
        wide = cast_to(x, x.dtype.accumulation)
        top = F.max(wide, axis=axes, keepdims=True)
        top = F.where(F.isinf(top), 0, top)
        shift = top if self.keepdims or not axes else F.squeeze(top, axis=axes)
        return cast_to(F.log(self.total(F.exp(wide - top))) + shift, x.dtype)

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        return self.spread(dy, x) * F.exp(x - self.spread(y, x))


@op
class VectorNorm(Reduction, rule="x: float|complex -> y: result()", positional=("axis", "keepdims", "ord")):
    """The ord-norm along axes: the sum of |x|^ord, to the power of 1 / ord.

    x: float[...] or complex[...]; axis: an int, several, or None for all; ord: 2, any other number, inf (the greatest
    |x|), -inf (the least) or 0 (how many are not 0); keepdims: leave sizes of 1. Returns x's dtype, or that of its
    parts. The gradient where the norm is 0 is 0. Raises IndexError if an axis is out of range, DTypeError for integers.
    Source: array API 2024.12, linalg.vector_norm.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.vector_norm(wf.tensor([3., -4.])).item()
    5.0
    """

    ord: float = 2

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_complex:
            self.require_floats(x=x)
        return super().infer(x)

    def result(self, x: TensorType) -> DType:
        return x.dtype.real

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        wide = to_accumulation(x)
        size = abs(wide)
        match self.ord:
            case 0:
                return row.sum(e.where(wide != 0, e.constant(1, size.dtype), e.constant(0, size.dtype)))
            case 1:
                return row.sum(size)
            case 2 if wide.dtype in e.COMPLEX:
                re, im = e.real(wide), e.imag(wide)
                return e.call("sqrt", row.sum(re * re + im * im))
            case 2:
                return e.call("sqrt", row.dot(wide, wide))
            case float() if self.ord == float("inf"):
                return row.reduce("max", size, 0)
            case float() if self.ord == float("-inf"):
                return row.min(size)
        total = row.sum(e.call("pow", size, e.constant(self.ord, size.dtype)))
        return e.call("pow", total, e.constant(1 / self.ord, size.dtype))

    def decompose(self, x: Any) -> Any:
        size = F.abs(cast_to(x, x.dtype.accumulation))
        match self.ord:
            case 0:
                norm = self.total(cast_to(F.not_equal(size, 0), size.dtype))
            case 1:
                norm = self.total(size)
            case 2:
                norm = F.sqrt(self.total(size * size))
            case float() if self.ord == float("inf"):
                norm = F.maximum(F.max(size, axis=self.axis, keepdims=self.keepdims), 0)  # 0 of none
            case float() if self.ord == float("-inf"):
                norm = F.min(size, axis=self.axis, keepdims=self.keepdims)
            case _:
                norm = F.pow(self.total(F.pow(size, self.ord)), 1 / self.ord)
        return cast_to(norm, x.dtype.real)

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        if self.ord == 0:
            return None
        if self.ord == 2:
            wide = y.dtype.accumulation  # of half types a quotient by a small norm would be infinite
            slope = _quotient(cast_to(dy, wide), cast_to(y, wide))
            return cast_to(cast_to(x, x.dtype.accumulation) * self.spread(slope, x), x.dtype)
        along, norm = self.spread(dy, x), self.spread(y, x)
        if abs(self.ord) == float("inf"):
            axes = normalize_axes(self.name, self.axis, x.ndim)
            mask = cast_to(F.equal(F.abs(x), norm), y.dtype)
            return along * F.sign(x) * mask / F.sum(mask, axis=axes, keepdims=True)
        if self.ord == 1:
            return along * F.sign(x)
        return along * F.sign(x) * F.pow(_quotient(F.abs(x), norm), float(self.ord - 1))


@op
class DivideByCount(Op, primitive=True, public=False):
    """a divided by the number of elements that x has along axes, less correction; the gradient of means."""

    axis: tuple[int, ...]
    correction: Runtime[float] = 0

    def infer(self, a: TensorType, x: TensorType) -> TensorType:
        return a.like()

    def kernels(self, a: TensorType, x: TensorType) -> Iterator[Several]:
        row = Row(inputs=1)
        wide = to_accumulation(e.load(0, a.dtype.name))
        number = row.number(math.prod(x.shape[d] for d in self.axis), wide.dtype)
        if not (isinstance(self.correction, int) and self.correction == 0):
            number = degrees_of_freedom(number, row.number(self.correction, wide.dtype))
        row.each(e.cast(wide / number, a.dtype.name))
        # Of x only the sizes are wanted: as an operand of the loop it would lend its own positions to it.
        yield Several(((row.loop(()), (0,), (0,)),))

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.divide_by_count(dy, x, axis=self.axis, correction=self.correction), None
