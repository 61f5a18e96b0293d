"""What tests know of the operators of weft.ops.families.strided."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.strided import Assemble, AsStrided, PutStrided
from weft.ops.samples import Sample, arrays

WINDOWS = (  # of twelve elements
    {"shape": (2, 3), "strides": (6, 2), "offset": 1},
    {"shape": (4, 3), "strides": (1, 4), "offset": 0},
    {"shape": (3,), "strides": (-4,), "offset": 11},
    {"shape": (), "strides": (), "offset": 5},
    {"shape": (0, 2), "strides": (1, 1), "offset": 0},
)


def window_of(op, x):
    """The window of a contiguous NumPy array, sharing its memory."""
    steps = tuple(s * x.itemsize for s in op.strides)
    return np.lib.stride_tricks.as_strided(x.reshape(-1)[op.offset :], op.shape, steps)


@material(AsStrided)
class _:
    def reference(self, x):
        return window_of(self, np.ascontiguousarray(x)).copy()

    @classmethod
    def samples(cls):
        for window in WINDOWS:
            yield Sample(arrays((3, 4)), **window)
        yield Sample(arrays((3, 4)), shape=(3, 2, 2), strides=(4, 0, 1), offset=1)
        yield Sample(arrays((8,)), shape=(4, 3), strides=(1, 1))

    @classmethod
    def errors(cls):
        yield ShapeError, "are not inside", Sample(arrays((3,)), shape=(2,), strides=(3,))
        yield ShapeError, "2 sizes, but 1 strides", Sample(arrays((3,)), shape=(2, 1), strides=(3,))


@material(PutStrided)
class _:
    def reference(self, x, value):
        y = np.array(x, order="C")
        window_of(self, y)[...] = value
        return y

    @classmethod
    def samples(cls):
        for window in WINDOWS:
            yield Sample(arrays((3, 4)), arrays(window["shape"]), **window)

    @classmethod
    def errors(cls):
        window = {"shape": (2,), "strides": (1,)}
        yield ShapeError, "value does not fit", Sample(arrays((3,)), arrays((3,)), **window)


@material(Assemble)
class _:
    def reference(self, *part):
        y = np.zeros(self.shape, part[0].dtype)
        for x, view in zip(part, self.windows(), strict=True):
            window_of(view, y)[...] = x
        return y

    @classmethod
    def samples(cls):
        two = {"sizes": ((2, 2), (2,)), "strides": ((3, 1), (3,)), "offsets": (0, 2)}
        yield Sample([arrays((2, 2)), arrays((2,))], shape=(2, 3), **two)
        yield Sample([arrays((2,))], shape=(6,), sizes=((2,),), strides=((3,),), offsets=(2,))

    @classmethod
    def errors(cls):
        one = {"sizes": ((2,),), "strides": ((1,),), "offsets": (0,)}
        yield ShapeError, "does not fit", Sample([arrays((3,))], shape=(4,), **one)
        yield ShapeError, "2 parts, but 1 windows", Sample([arrays((2,)), arrays((2,))], shape=(4,), **one)
        yield ShapeError, "are not inside", Sample([arrays((2,))], shape=(1,), **one)
