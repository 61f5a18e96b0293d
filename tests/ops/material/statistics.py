"""What tests know of the operators of weft.ops.families.statistics."""

import math

import numpy as np
from tests.ops.material import material
from tests.ops.material.reduction import rows_of

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.statistics import (
    Bincount,
    Corrcoef,
    Cov,
    Histogram,
    Median,
    Nanmean,
    Quantile,
    WithoutNaN,
)
from weft.ops.samples import Array, Sample, arrays

NAN = math.nan
AXES = (
    {},
    {"axis": 0},
    {"axis": -1, "keepdims": True},
    {"axis": (0, 2)},
)


@material(Quantile)
class _:
    def reference(self, x):
        x = np.asarray(x, np.float64)
        return np.quantile(x, self.q, axis=self.axis, method=self.interpolation, keepdims=self.keepdims)

    def torch_reference(self, torch, x):
        rows, shape = rows_of(self, x)
        q = torch.tensor(self.q, dtype=x.dtype)
        y = torch.quantile(rows, q, dim=-1, interpolation=self.interpolation)
        return y.reshape((*q.shape, *shape))

    @classmethod
    def samples(cls):
        for attributes in AXES:
            yield Sample(arrays((2, 3, 4), distinct=True), q=0.3, **attributes)
        for interpolation in ("linear", "lower", "higher", "nearest", "midpoint"):
            for q in (0.0, 0.25, 1.0, (0.5, 0.1)):
                yield Sample(arrays((3, 6), distinct=True), q=q, axis=1, interpolation=interpolation)
        yield Sample(arrays(()), q=0.5)
        yield Sample(arrays((5,), dtype="int32"), q=0.4)
        yield Sample(
            Array((2, 3), values=((1.0, NAN, 2.0), (1.0, 2.0, math.inf))), q=0.7, axis=1, gradient=False
        )

    @classmethod
    def errors(cls):
        yield ValueError, "q must be at least 0 and at most 1", Sample(arrays((2,)), q=1.5)
        yield ShapeError, "no elements along the axes", Sample(arrays((2, 0)), q=0.5, axis=1)
        yield IndexError, "axis 2", Sample(arrays((2, 3)), q=0.5, axis=2)


@material(Median)
class _:
    def reference(self, x):
        return np.median(np.asarray(x), axis=self.axis, keepdims=self.keepdims)

    def torch_reference(self, torch, x):  # whose median is the lower one of two
        rows, shape = rows_of(self, x)
        return torch.quantile(rows, 0.5, dim=-1).reshape(shape)

    @classmethod
    def samples(cls):
        for attributes in AXES:
            yield Sample(arrays((2, 3, 4), distinct=True), **attributes)
        yield Sample(arrays((5,), dtype="int32"))

    @classmethod
    def errors(cls):
        yield ShapeError, "no elements along the axes", Sample(arrays((0,)))


@material(WithoutNaN)
class _:
    def reference(self, x):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return getattr(np, self.name)(np.asarray(x), axis=self.axis, keepdims=self.keepdims)

    def torch_reference(self, torch, x):
        if not hasattr(torch, self.name):
            return NotImplemented  # it has nanmean and nansum alone
        rows, shape = rows_of(self, x)
        return getattr(torch, self.name)(rows, dim=-1).reshape(shape)

    @classmethod
    def samples(cls):
        for attributes in AXES:
            yield Sample(arrays((2, 3, 4), distinct=True), **attributes)
        values = Array((3, 3), values=((1.0, NAN, 2.0), (NAN, NAN, NAN), (3.0, -4.0, 0.5)))
        for axis in (None, 0, 1):
            yield Sample(values, axis=axis, gradient=False)
        if cls is not Nanmean:
            yield Sample(arrays((4,), dtype="int32"))


@material(Nanmean)
class _:
    @classmethod
    def errors(cls):
        yield DTypeError, "takes floating-point types", Sample(arrays((2,), dtype="int32"))


@material(Bincount)
class _:
    def reference(self, x, weights=None):
        y = np.bincount(x, weights, self.length)
        return y if weights is None else y.astype(np.asarray(weights).dtype)

    def torch_reference(self, torch, x, weights=None):
        if weights is None:
            return torch.bincount(x, None, self.length)
        return weights.new_zeros(self.length).index_add(0, x, weights)  # bincount has no gradient

    @classmethod
    def samples(cls):
        x = Array((6,), values=(0, 4, 1, 1, 4, 4), dtype="int64")
        yield Sample(x, length=6)
        yield Sample(x, arrays((6,)), length=5)
        yield Sample(Array((3,), values=(2, 0, 2), dtype="uint8"), length=3)
        yield Sample(arrays((0,), dtype="int32"), length=2)

    @classmethod
    def errors(cls):
        yield DTypeError, "takes integers", Sample(arrays((2,)), length=2)
        yield ShapeError, "bincount: x", Sample(arrays((2, 2), dtype="int32"), length=2)
        yield (
            ShapeError,
            "x has 2 n, weights expects 3",
            Sample(arrays((2,), dtype="int32"), arrays((3,)), length=2),
        )


@material(Histogram)
class _:
    def reference(self, x):
        return np.histogram(np.asarray(x), self.bins, self.range)[0]

    def torch_reference(self, torch, x):
        return torch.histogram(x, self.bins, range=self.range).hist

    @classmethod
    def samples(cls):
        yield Sample(arrays((40,)), bins=5, range=(-1.5, 1.5))
        yield Sample(arrays((2, 3)), bins=1, range=(-2.0, 2.0))
        yield Sample(Array((6,), values=(0.0, 0.25, 0.5, 1.0, 1.5, NAN)), bins=4, range=(0.0, 1.0))
        yield Sample(arrays((0,)), bins=3, range=(0.0, 1.0))

    @classmethod
    def errors(cls):
        yield ValueError, "bins must be at least 1", Sample(arrays((2,)), bins=0, range=(0.0, 1.0))
        yield ValueError, "two finite numbers that increase", Sample(arrays((2,)), bins=1, range=(1.0, 1.0))


@material(Cov)
class _:
    def reference(self, x):
        values = np.cov(np.asarray(x), ddof=int(self.correction))
        return values.reshape((len(x),) * 2 if np.ndim(x) == 2 else ())

    def torch_reference(self, torch, x):
        return torch.cov(x, correction=int(self.correction)).reshape((len(x),) * 2 if x.ndim == 2 else ())

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 5)))
        yield Sample(arrays((5,)))
        yield Sample(arrays((2, 4)), correction=0)
        yield Sample(arrays((3, 0)), gradient=False)  # of no observations: NaN
        yield Sample(arrays((1, 5)))

    @classmethod
    def errors(cls):
        yield ShapeError, "takes one or two dimensions", Sample(arrays((2, 2, 2)))


@material(Corrcoef)
class _:
    def reference(self, x):
        return np.corrcoef(np.asarray(x)).reshape((len(x),) * 2 if np.ndim(x) == 2 else ())

    def torch_reference(self, torch, x):
        return torch.corrcoef(x).reshape((len(x),) * 2 if x.ndim == 2 else ())

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 5), distinct=True))
        yield Sample(arrays((5,), distinct=True), gradient=False)
        yield Sample(arrays((1, 5), distinct=True), gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "takes one or two dimensions", Sample(arrays((2, 2, 2)))
