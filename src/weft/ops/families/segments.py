"""Reductions of rows that belong together by a number: sums, means, extremes of segments."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.base.dtype import int64, uint64
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.creation import Full
from weft.ops.kernels import highest, lowest
from weft.ops.op import op
from weft.ops.pointwise import cast_to


def unwrapped(numbers: Any) -> Any:
    """Numbers as indices of which none counts from the end: a negative one is out of range."""
    return numbers if numbers.dtype.kind == "uint" else cast_to(cast_to(numbers, int64), uint64)


class Segments(
    Composed,
    family="segments",
    positional=("length",),
    rule="x[rows,*s]: number|bool, segments[rows]: int -> y[length,*s]: x",
):
    """Base: x[i] is combined into the row segments[i] of the result."""

    length: int
    mode: ClassVar[str] = "add"

    def put(self, x: Any, segments: Any, start: float) -> Any:
        """All rows combined into so many that begin with a number."""
        shape = (self.length, *x.shape[1:])
        rows = x.__weft_apply__(Full, (), {"shape": shape, "value": start, "dtype": x.dtype})
        return F.index_put(rows, x, unwrapped(segments), axes=(0,), mode=self.mode)

    def counts(self, x: Any, segments: Any) -> Any:
        """The number of rows of each segment, as x's type, of the result's rank."""
        counts = cast_to(F.bincount(segments, length=self.length), x.dtype.accumulation)
        return F.reshape(counts, shape=(self.length, *(1,) * (x.ndim - 1)))


@op
class SegmentSum(Segments):
    """y[k] = the sum of the rows x[i] with segments[i] == k.

    x: numbers [n, ...]; segments: integers [n] within 0 ... length - 1, in any order; length: the number of rows of the
    result. Returns x's dtype [length, ...], 0 where there are no rows. Raises IndexError for a number out of range,
    DTypeError for floats among segments, ShapeError for another number of them.
    Source: TensorFlow's unsorted_segment_sum.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.segment_sum(wf.tensor([1., 2., 4.]), wf.tensor([0, 2, 0]), 3)
    tensor([5., 0., 2.], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any, segments: Any) -> Any:
        return self.put(x, segments, 0)


@op
class SegmentMean(Segments, rule="x[rows,*s]: float, segments[rows]: int -> y[length,*s]: x"):
    """y[k] = the mean of the rows x[i] with segments[i] == k, 0 where there are none.

    x: float[n, ...]; segments: integers [n] within 0 ... length - 1; length: the number of rows of the result. Returns
    x's dtype [length, ...]. Raises as segment_sum, and DTypeError for integers x.
    Source: TensorFlow's unsorted_segment_mean.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.segment_mean(wf.tensor([1., 2., 4.]), wf.tensor([0, 2, 0]), 3)
    tensor([2.5, 0. , 2. ], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any, segments: Any) -> Any:
        total = F.segment_sum(cast_to(x, x.dtype.accumulation), segments, length=self.length)
        return cast_to(total / F.maximum(self.counts(x, segments), 1), x.dtype)


class SegmentExtremes(Segments):
    """Base: the gradient is shared equally by equal extremes."""

    def decompose(self, x: Any, segments: Any) -> Any:
        start = lowest(x.dtype.name) if self.mode == "max" else highest(x.dtype.name)
        return self.put(x, segments, start)


@op
class SegmentMax(SegmentExtremes, mode="max"):
    """y[k] = the greatest of the rows x[i] with segments[i] == k, element by element.

    x: numbers [n, ...]; segments: integers [n] within 0 ... length - 1; length: the number of rows of the result.
    Returns x's dtype [length, ...], its least value where there are no rows. Raises as segment_sum.
    Source: TensorFlow's unsorted_segment_max.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.segment_max(wf.tensor([1., 2., 4.]), wf.tensor([0, 1, 0]), 2)
    tensor([4., 2.], dtype=float32, device=cpu:0)
    """


@op
class SegmentMin(SegmentExtremes, mode="min"):
    """y[k] = the least of the rows x[i] with segments[i] == k, element by element.

    x: numbers [n, ...]; segments: integers [n] within 0 ... length - 1; length: the number of rows of the result.
    Returns x's dtype [length, ...], its greatest value where there are no rows. Raises as segment_sum.
    Source: TensorFlow's unsorted_segment_min.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.segment_min(wf.tensor([1., 2., 4.]), wf.tensor([0, 1, 0]), 2)
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """


@op
class SegmentSoftmax(Segments, rule="x[rows,*s]: float, segments[rows]: int -> y[rows,*s]: x"):
    """y[i] = exp(x[i]) / the sum of exp(x[j]) over all j of i's segment.

    x: float[n, ...]; segments: integers [n] within 0 ... length - 1; length: the number of segments. Returns x's shape
    and dtype. Raises as segment_sum, and DTypeError for integers x.
    Source: Velickovic et al. 2018, Graph attention networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.segment_softmax(wf.tensor([1., 2., 1.]), wf.tensor([0, 1, 0]), 2)
    tensor([0.5, 1. , 0.5], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any, segments: Any) -> Any:
        wide = cast_to(x, x.dtype.accumulation)
        greatest = F.stop_gradient(F.segment_max(wide, segments, length=self.length))
        shift = F.where(F.equal(abs(greatest), math.inf), 0.0, greatest)
        weights = F.exp(wide - F.take(shift, segments, axis=0))
        total = F.segment_sum(weights, segments, length=self.length)
        return cast_to(weights / F.take(total, segments, axis=0), x.dtype)


__all__ = ["SegmentMax", "SegmentMean", "SegmentMin", "SegmentSoftmax", "SegmentSum"]
