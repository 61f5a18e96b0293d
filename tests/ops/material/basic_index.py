"""What tests know of the operators of weft.ops.families.basic_index."""

import numpy as np
from tests.ops.material import material

from weft.ops.families.basic_index import BasicIndex, BasicPut
from weft.ops.samples import Sample, arrays


@material(BasicIndex)
class _:
    def reference(self, x):
        return x[_key(self.items)]

    @classmethod
    def samples(cls):
        yield Sample(arrays((4, 3)), items=(1, (0, 3, 1)))
        yield Sample(arrays((4, 3)), items=((3, 2, -2), None, (1, 2, 1)))


@material(BasicPut)
class _:
    def reference(self, x, value):
        y = np.array(x)
        y[_key(self.items)] = value
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((4, 3)), arrays((3,)), items=(1, (0, 3, 1)))
        yield Sample(arrays((4, 3)), arrays(()), items=((3, 2, -2), None, (1, 2, 1)))


def _key(items):
    def one(item):
        if not isinstance(item, tuple):
            return item
        start, count, step = item
        stop = start + count * step
        return slice(start, stop if stop >= 0 else None, step) if count else slice(0, 0)

    return tuple(one(item) for item in items)
