"""What tests know of the operators of weft.ops.families.grid."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.grid import BroadcastArrays, Meshgrid, OneHot, PlacesLike, Triangle
from weft.ops.samples import Array, Sample, arrays


@material(Triangle)
class _:
    def reference(self, x):
        return getattr(np, self.name)(x, self.k)

    @classmethod
    def samples(cls):
        for k in (0, 1, -2):
            yield Sample(arrays((3, 4)), k=k)
        yield Sample(arrays((2, 3, 3)), 1)
        yield Sample(arrays((0, 3)))

    @classmethod
    def errors(cls):
        yield ShapeError, f"{cls.name}: needs at least 2 dimensions", Sample(arrays((2,)))


@material(PlacesLike)
class _:
    def reference(self, x):
        return np.indices(np.shape(x))[self.axis]


@material(OneHot)
class _:
    def reference(self, x):
        return (np.asarray(x)[..., None] == np.arange(self.num_classes)).astype(np.int64)

    @classmethod
    def samples(cls):
        yield Sample(Array((2, 3), low=0, high=4, dtype="int64"), 5)
        yield Sample(Array((3,), values=(-1, 1, 7), dtype="int32"), num_classes=3)
        yield Sample(Array((), values=1, dtype="uint8"), 2)
        yield Sample(Array((0,), dtype="int64"), 2)

    @classmethod
    def errors(cls):
        yield DTypeError, "one_hot: takes integers", Sample(arrays((2,)), 3)


@material(BroadcastArrays)
class _:
    def reference(self, *x):
        return tuple(np.broadcast_arrays(*x))

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 1)), arrays((3,)), arrays(()))
        yield Sample([arrays((2, 3))])

    @classmethod
    def errors(cls):
        yield ShapeError, "broadcast_arrays: sizes 2 and 3", Sample(arrays((2,)), arrays((3,)))


@material(Meshgrid)
class _:
    def reference(self, *x):
        indexing = self.indexing
        return tuple(np.meshgrid(*x, indexing=indexing))

    @classmethod
    def samples(cls):
        for indexing in ("xy", "ij"):
            yield Sample([arrays((2,)), arrays((3,)), arrays((4,))], indexing=indexing)
            yield Sample(arrays((2,)), indexing=indexing)

    @classmethod
    def errors(cls):
        yield ShapeError, "meshgrid: takes arrays of one", Sample(arrays((2, 3)))
        yield ValueError, "indexing must be", Sample(arrays((2,)), indexing="yx")
