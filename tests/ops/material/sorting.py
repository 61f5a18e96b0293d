"""What tests know of the operators of weft.ops.families.sorting."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.sorting import Argsort, Searchsorted, Sort, Sorting, Topk
from weft.ops.samples import Sample, arrays


@material(Sorting)
class _:
    @classmethod
    def samples(cls):
        for descending in (False, True):
            yield Sample(arrays((5,), distinct=True), descending=descending)
            yield Sample(arrays((3, 4), distinct=True), axis=0, descending=descending)
            yield Sample(arrays((2, 6), dtype="int32"), descending=descending)
        yield Sample(arrays((2, 0)))

    @classmethod
    def errors(cls):
        yield IndexError, "axis 2 is out of range", Sample(arrays((2, 3)), axis=2)
        yield IndexError, "axis -1 is out of range", Sample(arrays(()))


def order_reference(x, axis, descending):
    """The stable order of NumPy's elements, NaN last."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    if x.dtype.kind == "f":
        return np.argsort(-x, axis=axis, kind="stable")
    backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - backwards


@material(Sort)
class _:
    def reference(self, x):
        order = order_reference(x, self.axis, self.descending)
        return np.take_along_axis(x, order, self.axis), order

    def torch_reference(self, torch, x):
        return torch.sort(x, dim=self.axis, descending=self.descending).values


@material(Argsort)
class _:
    def reference(self, x):
        return order_reference(x, self.axis, self.descending)


@material(Topk)
class _:
    def reference(self, x):
        if self.largest and x.dtype.kind == "f":
            order = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=self.axis, kind="stable")
        else:
            order = order_reference(x, self.axis, self.largest)
        order = np.take(order, np.arange(self.k), axis=self.axis)
        return np.take_along_axis(x, order, self.axis), order

    def torch_reference(self, torch, x):
        """For floats, which differ in samples: PyTorch gives equal elements in any order."""
        if not x.is_floating_point():
            return NotImplemented
        return torch.topk(x, self.k, self.axis, self.largest, self.sorted)

    @classmethod
    def samples(cls):
        yield Sample(arrays((5,), distinct=True), k=3)
        yield Sample(arrays((4, 3), distinct=True), k=2, axis=0, largest=False)
        yield Sample(arrays((2, 6), dtype="int32"), k=4)
        yield Sample(arrays((2, 3), distinct=True), k=0)

    @classmethod
    def errors(cls):
        yield ShapeError, "topk: k must be in 0..3, got 4", Sample(arrays((2, 3)), k=4)
        yield IndexError, "axis 2 is out of range", Sample(arrays((2, 3)), k=1, axis=2)


@material(Searchsorted)
class _:
    def reference(self, x1, x2, sorter=None):
        side = self.side
        x1 = x1 if sorter is None else np.take_along_axis(x1, sorter, -1)
        if np.ndim(x1) == 1:
            return np.searchsorted(x1, x2, side)
        places = [np.searchsorted(x1[k], x2[k], side) for k in np.ndindex(x1.shape[:-1])]
        return np.reshape(places, x2.shape).astype(np.int64)

    @classmethod
    def samples(cls):
        row = arrays((4,), values=[0, 1, 1, 2])
        for side in ("left", "right"):
            yield Sample(row, arrays((5,), values=[0, -2, 1, 2, 0]), side=side)
        yield Sample(row, arrays((2, 3)))
        yield Sample(row, arrays(()))
        yield Sample(arrays((2, 3), values=[[0, 1, 2], [0, 0, 1]]), arrays((2, 4)))
        signed = arrays((4,), values=[-1, 0, 0, 1])
        yield Sample(signed, arrays((2, 3)), dtypes=("int8", "int64", "float32", "float64"))
        order = arrays((4,), values=[2, 0, 3, 1], dtype="int64")
        yield Sample(arrays((4,), values=[0, 2, -1, 1]), arrays((2, 3)), order, dtypes=("int8", "float32"))

    @classmethod
    def errors(cls):
        yield ValueError, "side must be", Sample(arrays((3,)), arrays((3,)), side="middle")
        order = arrays((2,), dtype="int64")
        yield ShapeError, "sorter needs x1's shape", Sample(arrays((3,)), arrays((3,)), order)
        yield ShapeError, "x1 needs one dimension", Sample(arrays((2, 3)), arrays((3, 4)))
