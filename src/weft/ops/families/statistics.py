"""Order statistics, sums that leave NaN out, histograms, covariances."""

from __future__ import annotations

import math
from typing import Any, Literal

from weft.base.dtype import DType, float32, int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.creation import Full, Stepped
from weft.ops.families.reduction import same_kind, window
from weft.ops.families.segments import unwrapped
from weft.ops.op import op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType, normalize_axes

Axes = int | tuple[int, ...] | None


def _floating(x: Any) -> Any:
    """x, or its float32 where it is of integers."""
    return x if x.dtype.is_floating else F.cast(x, dtype=float32)


class OfFloats(Composed, family="statistics", rule="x: number|bool -> y: result()"):
    """Base: integers are computed as float32."""

    def result(self, x: TensorType) -> DType:
        """The output's dtype."""
        return x.dtype if x.dtype.is_floating else float32


def _rows(name: str, x: Any, axis: Axes, keepdims: bool) -> tuple[Any, tuple[Any, ...]]:
    """x with the reduced axes as one last axis, and the shape of the result."""
    axes = normalize_axes(name, axis, x.ndim)
    kept = [d for d in range(x.ndim) if d not in axes]
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes)
    ordered = F.permute_dims(x, axes=(*kept, *axes)) if axes else F.expand_dims(x, axis=-1)
    size = math.prod(x.shape[d] for d in axes)
    return F.reshape(ordered, shape=(*(x.shape[d] for d in kept), size)), shape


@op
class Quantile(OfFloats, positional=("q", "axis")):
    """The numbers below which shares q of a row's elements are: 0 the least, 0.5 the median, 1 the greatest.

    x: numbers [...], integers as float32; q: a share or several, in 0 ... 1; axis: which axes are rows, None for all;
    keepdims: they stay, of size 1; interpolation: "linear" between the two elements around the position q (n - 1), or
    "lower", "higher", "nearest" (of two equally near the one of even index), "midpoint". Returns x's dtype, for several
    q with these along the first axis. A row with a NaN has NaN. Raises ValueError for q out of range, ShapeError for
    empty rows.
    Source: Hyndman, Fan 1996, Sample quantiles in statistical packages, definition 7.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.quantile(wf.tensor([1., 2., 3., 10.]), (0.5, 1.0))
    tensor([ 2.5, 10. ], dtype=float32, device=cpu:0)
    """

    q: float | tuple[float, ...]
    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    interpolation: Literal["linear", "lower", "higher", "nearest", "midpoint"] = "linear"

    def check(self) -> None:
        shares = self.q if isinstance(self.q, tuple) else (self.q,)
        if any(not 0 <= q <= 1 for q in shares):
            raise ValueError(f"{self.name}: q must be at least 0 and at most 1, got {self.q}")

    def decompose(self, x: Any) -> Any:
        rows, shape = _rows(self.name, _floating(x), self.axis, self.keepdims)
        n = rows.shape[-1]
        if n == 0:
            raise self.fail(ShapeError, "there are no elements along the axes", x=x.type)
        sorted_rows = F.sort(rows, axis=-1)
        has_nan = F.isnan(_element(sorted_rows, int(n) - 1))  # NaN is sorted behind all others
        shares = self.q if isinstance(self.q, tuple) else (self.q,)
        results = [F.where(has_nan, math.nan, self._of(sorted_rows, q, int(n))) for q in shares]
        results = [F.reshape(y, shape=shape) for y in results]
        return F.stack(results, axis=0) if isinstance(self.q, tuple) else results[0]

    def _of(self, rows: Any, q: float, n: int) -> Any:
        position = q * (n - 1)
        low, high = math.floor(position), math.ceil(position)
        if self.interpolation != "linear" and self.interpolation != "midpoint":
            index = {"lower": low, "higher": high, "nearest": round(position)}[self.interpolation]
            return _element(rows, index)
        below, above = (_element(rows, index) for index in (low, high))
        share = 0.5 if self.interpolation == "midpoint" and low != high else position - low
        if share == 0:
            return below
        is_stuck = F.logical_and(
            F.equal(below, above), F.equal(abs(below), math.inf)
        )  # equal infinities stay
        return F.where(is_stuck, below, below + share * (above - below))


def _element(rows: Any, k: int) -> Any:
    """The k-th of each row."""
    return F.reshape(window(rows, rows.ndim - 1, k, 1), shape=rows.shape[:-1])


@op
class Median(OfFloats, positional=("axis",)):
    """The middle of a row's sorted elements, for an even number of them the mean of both.

    x: numbers [...], integers as float32; axis: which axes are rows, None for all; keepdims: they stay, of
    size 1. Returns x's dtype. A row with a NaN
    has NaN. PyTorch's median gives the lower one of two: quantile(x, 0.5, interpolation="lower") does. Raises
    ShapeError for empty rows.
    Source: NumPy's median.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.median(wf.tensor([[1., 3., 2.], [4., 4., 9.]]), axis=1)
    tensor([2., 4.], dtype=float32, device=cpu:0)
    """

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False

    def decompose(self, x: Any) -> Any:
        return F.quantile(x, q=0.5, axis=self.axis, keepdims=self.keepdims)


class WithoutNaN(Composed, family="statistics", rule="x: number|bool -> y: x", positional=("axis",)):
    """Base: a reduction of the elements that are not NaN."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False

    def result(self, x: TensorType) -> DType:
        """Sums' and products' dtype."""
        return same_kind(self, None, x)

    def with_others(self, x: Any, value: float) -> Any:
        """x with a value in the place of NaN."""
        return F.where(F.isnan(x), value, x) if x.dtype.is_floating else x

    def where_any(self, x: Any, y: Any) -> Any:
        """y, but NaN where no element was a number."""
        if not x.dtype.is_floating:
            return y
        is_number = F.logical_not(F.isnan(x))
        return F.where(F.any(is_number, axis=self.axis, keepdims=self.keepdims), y, math.nan)


@op
class Nansum(WithoutNaN, rule="x: number|bool -> y: result()"):
    """The sum along axes, in which NaN counts as 0.

    x: numbers [...]; axis: which axes, None for all; keepdims: they stay, of size 1.
    Returns what sum does. The gradient of NaN is 0.
    Source: NumPy's nansum.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.nansum(wf.tensor([1., float("nan"), 2.]))
    tensor(3., dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        return F.sum(self.with_others(x, 0.0), axis=self.axis, keepdims=self.keepdims)


@op
class Nanprod(WithoutNaN, rule="x: number|bool -> y: result()"):
    """The product along axes, in which NaN counts as 1.

    x: numbers [...]; axis: which axes, None for all; keepdims: they stay, of size 1.
    Returns what prod does. The gradient of NaN is 0.
    Source: NumPy's nanprod.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.nanprod(wf.tensor([3., float("nan"), 2.]))
    tensor(6., dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        return F.prod(self.with_others(x, 1.0), axis=self.axis, keepdims=self.keepdims)


@op
class Nanmean(WithoutNaN, rule="x: float -> y: x"):
    """The mean along axes of the elements that are not NaN; NaN where there is none.

    x: float[...]; axis: which axes, None for all; keepdims: they stay, of size 1.
    Returns x's dtype. Raises DTypeError for integers.
    Source: NumPy's nanmean.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.nanmean(wf.tensor([1., float("nan"), 2.]))
    tensor(1.5, dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        wide = cast_to(x, x.dtype.accumulation)
        total = F.nansum(wide, axis=self.axis, keepdims=self.keepdims)
        number = F.sum(cast_to(F.logical_not(F.isnan(x)), wide.dtype), axis=self.axis, keepdims=self.keepdims)
        return cast_to(total / number, x.dtype)


@op
class Nanmax(WithoutNaN):
    """The greatest along axes of the elements that are not NaN; NaN where there is none.

    x: numbers [...]; axis: which axes, None for all; keepdims: they stay, of size 1.
    Returns x's dtype. Raises ValueError for empty rows.
    Source: NumPy's nanmax.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.nanmax(wf.tensor([1., float("nan"), 2.]))
    tensor(2., dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        y = F.max(self.with_others(x, -math.inf), axis=self.axis, keepdims=self.keepdims)
        return self.where_any(x, y)


@op
class Nanmin(WithoutNaN):
    """The least along axes of the elements that are not NaN; NaN where there is none.

    x: numbers [...]; axis: which axes, None for all; keepdims: they stay, of size 1.
    Returns x's dtype. Raises ValueError for empty rows.
    Source: NumPy's nanmin.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.nanmin(wf.tensor([1., float("nan"), 2.]))
    tensor(1., dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        y = F.min(self.with_others(x, math.inf), axis=self.axis, keepdims=self.keepdims)
        return self.where_any(x, y)


@op
class Bincount(Composed, family="statistics", rule="x[n]: int, weights[n]?: number -> y[length]: result()"):
    """How often each number 0 ... length - 1 occurs, or the sum of its weights.

    x: integers [n] within 0 ... length - 1; weights: numbers [n], optional; length: the result's size, so that it does
    not depend on elements. Returns int64 [length], or weights' dtype. Raises IndexError for numbers out of range,
    DTypeError for floats, ShapeError for other dimensions.
    Source: NumPy's bincount, whose minlength is the least length.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.bincount(wf.tensor([0, 2, 2]), length=4)
    tensor([1, 0, 2, 0], dtype=int64, device=cpu:0)
    """

    length: int

    def result(self, x: TensorType, weights: TensorType | None = None) -> DType:
        """The output's dtype."""
        return int64 if weights is None else weights.dtype

    def decompose(self, x: Any, weights: Any = None) -> Any:
        updates = (
            x.__weft_apply__(Full, (), {"shape": x.shape, "value": 1, "dtype": int64})
            if weights is None
            else weights
        )
        zeros = x.__weft_apply__(Full, (), {"shape": (self.length,), "dtype": updates.dtype})
        return F.index_put(zeros, updates, unwrapped(x), axes=(0,), mode="add")


@op
class Histogram(
    Composed, family="statistics", rule="x: number|bool -> y[bins]: int64", positional=("bins", "range")
):
    """How many elements are in each of so many bins of equal width: [low, high) each, the last one with its end.

    x: numbers [...], integers as float32; bins: at least 1; range: the ends (low, high), low < high. Elements outside,
    and NaN, are not counted. Returns int64 [bins]. Raises ValueError for other bins or ranges.
    Source: NumPy's histogram.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.histogram(wf.tensor([0., 0.1, 0.5, 1., 2.]), 2, (0., 1.))
    tensor([2, 2], dtype=int64, device=cpu:0)
    """

    bins: int
    range: tuple[float, ...]

    def check(self) -> None:
        if self.bins < 1:
            raise ValueError(f"{self.name}: bins must be at least 1, got {self.bins}")
        if (
            len(self.range) != 2
            or not self.range[0] < self.range[1]
            or not all(map(math.isfinite, self.range))
        ):
            raise ValueError(f"{self.name}: range must be two finite numbers that increase, got {self.range}")

    def decompose(self, x: Any) -> Any:
        low, high = self.range
        x = F.reshape(_floating(x), shape=(-1,))
        x = cast_to(x, x.dtype.accumulation)
        is_within = F.logical_and(x >= low, x <= high)
        position = self.counted_position(x) if self.has_wide_bins(x.dtype) else self.searched_position(x)
        position = F.cast(F.where(is_within, F.minimum(position, self.bins - 1), self.bins), dtype=int64)
        counts = F.bincount(position, length=self.bins + 1)
        return window(counts, 0, 0, self.bins)

    def edge(self, number: Any, dtype: DType) -> Any:
        """The lower ends of bins by their numbers, floats of that type."""
        low, high = self.range
        return F.where(F.equal(number, self.bins), high, low + number * ((high - low) / self.bins))

    def has_wide_bins(self, dtype: DType) -> bool:
        """Whether rounding moves ends of bins by less than a bin."""
        low, high = self.range
        return (high - low) / self.bins > 2.0 ** (4 - dtype.digits) * max(abs(low), abs(high))

    def counted_position(self, x: Any) -> Any:
        """The bin of each element by division, whose rounding is off by one at most, and then by the bin's ends."""
        low, high = self.range
        guess = F.floor((x - low) * (self.bins / (high - low)))
        guess = F.clip(guess, 0, self.bins - 1)
        below, above = self.edge(guess, x.dtype), self.edge(guess + 1, x.dtype)
        return F.where(x < below, guess - 1, F.where(x >= above, guess + 1, guess))

    def searched_position(self, x: Any) -> Any:
        """The bin of each element among ends that may be equal."""
        steps = x.__weft_apply__(Stepped, (), {"shape": (self.bins + 1,), "dtype": x.dtype})
        return F.searchsorted(self.edge(steps, x.dtype), x, side="right") - 1


@op
class Cov(OfFloats):
    """The covariances of variables, which are the rows of x; columns are observations.

    x: numbers [variables, observations] or [observations], integers as float32; correction: what the number of
    observations is reduced by; NaN where it is that number or more. Returns [variables, variables], or [] of one row of
    observations. Raises ShapeError for more dimensions.
    Source: NumPy's cov.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cov(wf.tensor([[0., 1., 2.], [2., 1., 0.]]))
    tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float32, device=cpu:0)
    """

    correction: float = 1.0

    def decompose(self, x: Any) -> Any:
        if not 1 <= x.ndim <= 2:
            raise self.fail(ShapeError, "takes one or two dimensions", x=x.type)
        rows = F.reshape(_floating(x), shape=(1, -1)) if x.ndim == 1 else _floating(x)
        apart = rows - F.mean(rows, axis=-1, keepdims=True)
        products = F.matmul(apart, F.matrix_transpose(apart))
        products = F.divide_by_count(products, rows, axis=(1,), correction=self.correction)
        return F.reshape(products, shape=()) if x.ndim == 1 else products


@op
class Corrcoef(OfFloats):
    """The correlations of variables, which are the rows of x: covariances divided by both deviations.

    x: numbers [variables, observations] or [observations], integers as float32. Returns [variables, variables], or []
    for one variable. Raises ShapeError for more dimensions.
    Source: NumPy's corrcoef.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.corrcoef(wf.tensor([[0., 1., 2.], [4., 2., 0.]]))
    tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        products = F.cov(x)
        if x.ndim == 1:
            return products / products
        deviations = F.sqrt(F.diagonal(products))
        return products / F.expand_dims(deviations, axis=1) / F.expand_dims(deviations, axis=0)


__all__ = [
    "Bincount",
    "Corrcoef",
    "Cov",
    "Histogram",
    "Median",
    "Nanmax",
    "Nanmean",
    "Nanmin",
    "Nanprod",
    "Nansum",
    "Quantile",
]
