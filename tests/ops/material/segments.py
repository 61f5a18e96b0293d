"""What tests know of the operators of weft.ops.families.segments."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.segments import SegmentExtremes, SegmentMean, Segments, SegmentSoftmax
from weft.ops.samples import Array, Sample, arrays

INDICES = (2, 0, 2, 0, 3)


@material(Segments)
class _:
    def combine(self, rows):
        return rows.sum(0)

    def reference(self, x, segments):
        x, segments = np.asarray(x), np.asarray(segments)
        rows = [self.combine(x[segments == k]) for k in range(self.length)]
        return np.stack(rows) if rows else np.zeros((0, *x.shape[1:]), x.dtype)

    @classmethod
    def samples(cls):
        for dtype in ("int64", "int32"):
            segments = Array((5,), values=INDICES, dtype=dtype)
            yield Sample(arrays((5,), distinct=True), segments, length=4)
            yield Sample(arrays((5, 2, 3), distinct=True), segments, length=4)
        yield Sample(arrays((0, 3)), arrays((0,), dtype="int64"), length=0)

    @classmethod
    def errors(cls):
        segments = Array((5,), values=INDICES, dtype="int64")
        yield ShapeError, "x has 4 rows, segments expects 5", Sample(arrays((4,)), segments, length=4)
        yield DTypeError, "takes integers as segments", Sample(arrays((5,)), arrays((5,)), length=4)


@material(SegmentMean)
class _:
    def combine(self, rows):
        return rows.sum(0) / max(len(rows), 1)


@material(SegmentExtremes)
class _:
    def combine(self, rows):
        if not len(rows):
            kind = rows.dtype.kind
            low, high = (-np.inf, np.inf) if kind == "f" else (0, 1) if kind == "b" else (0, 0)
            if kind in "iu":
                low, high = np.iinfo(rows.dtype).min, np.iinfo(rows.dtype).max
            return np.full(rows.shape[1:], low if self.mode == "max" else high, rows.dtype)
        return rows.max(0) if self.mode == "max" else rows.min(0)

    @classmethod
    def samples(cls):
        segments = Array((5,), values=(2, 0, 2, 0, 1), dtype="int64")
        yield Sample(arrays((5,), distinct=True), segments, length=3)
        yield Sample(arrays((5, 2, 3), distinct=True), segments, length=3)
        yield Sample(arrays((5,), distinct=True), segments, length=4, gradient=False)


@material(SegmentSoftmax)
class _:
    def reference(self, x, segments):
        x, segments = np.asarray(x), np.asarray(segments)
        y = np.zeros_like(x)
        for k in set(segments.tolist()):
            weights = np.exp(x[segments == k] - x[segments == k].max(0))
            y[segments == k] = weights / weights.sum(0)
        return y
