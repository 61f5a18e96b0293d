"""What tests know of the operators of weft.ops.families.cumulative."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.cumulative import Cumulative, CumulativeExtreme
from weft.ops.samples import Array, Sample, arrays


@material(Cumulative)
class _:
    def reference(self, x):
        ufunc = np.add if self.combine == "sum" else np.multiply
        axis = 0 if self.axis is None else self.axis
        dtype = None if self.dtype is None else self.dtype.numpy
        if dtype is None and np.asarray(x).dtype.kind in "biu":
            dtype = np.uint64 if np.asarray(x).dtype.kind == "u" else np.int64
        turned = np.flip(x, axis) if self.reverse else np.asarray(x)
        found = ufunc.accumulate(turned, axis=axis, dtype=dtype)
        if self.include_initial:
            shape = [1 if d == axis % x.ndim else n for d, n in enumerate(x.shape)]
            found = np.concatenate([np.full(shape, self.start, found.dtype), found], axis=axis)
        return np.flip(found, axis) if self.reverse else found

    def torch_reference(self, torch, x):
        axis, dtype = self.axis or 0, None if self.dtype is None else getattr(torch, self.dtype.name)
        turned = x.flip(axis) if self.reverse else x
        y = getattr(torch, f"cum{self.combine}")(turned, dim=axis, dtype=dtype)
        if self.include_initial:
            y = torch.cat([torch.full_like(y.narrow(axis, 0, 1), self.start), y], axis)
        return y.flip(axis) if self.reverse else y

    @classmethod
    def samples(cls):
        yield Sample(Array((4,), low=0.5, high=2.0))
        for axis in (0, -1):
            for reverse in (False, True):
                for initial in (False, True):
                    yield Sample(
                        Array((2, 3), low=0.5, high=2.0), axis=axis, reverse=reverse, include_initial=initial
                    )
        for dtype in ("float64", "int64"):
            yield Sample(arrays((2, 3)), axis=1, dtype=dtype, gradient=False)
        yield Sample(arrays((0, 3)), axis=0)

    @classmethod
    def errors(cls):
        yield ShapeError, f"{cls.name}: axis must be given", Sample(arrays((2, 3)))
        yield IndexError, f"{cls.name}: axis 2", Sample(arrays((2, 3)), axis=2)


@material(CumulativeExtreme)
class _:
    def reference(self, x):
        ufunc = np.maximum if self.combine == "max" else np.minimum
        axis = 0 if self.axis is None else self.axis
        turned = np.flip(x, axis) if self.reverse else np.asarray(x)
        found = ufunc.accumulate(turned, axis=axis)
        return np.flip(found, axis) if self.reverse else found

    def torch_reference(self, torch, x):
        axis = self.axis or 0
        turned = x.flip(axis) if self.reverse else x
        y, _ = getattr(torch, f"cum{self.combine}")(turned, dim=axis)
        return y.flip(axis) if self.reverse else y

    @classmethod
    def samples(cls):
        for reverse in (False, True):
            yield Sample(arrays((5,), distinct=True), reverse=reverse)
            yield Sample(arrays((3, 4), distinct=True), axis=0, reverse=reverse)
            yield Sample(arrays((2, 3), dtype="int32"), axis=-1, reverse=reverse)
        yield Sample(arrays((0, 3)), axis=0)

    @classmethod
    def errors(cls):
        yield ShapeError, f"{cls.name}: axis must be given", Sample(arrays((2, 3)))
        yield ValueError, "takes no dtype", Sample(arrays((2,)), dtype="float64")
