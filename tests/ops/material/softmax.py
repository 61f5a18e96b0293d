"""What tests know of the operators of weft.ops.families.softmax."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError
from weft.ops.families.softmax import LogSoftmax, Softmax, Softmin
from weft.ops.samples import Sample, arrays


@material(Softmax)
class _:
    def reference(self, x):
        powers = np.exp(x - np.max(x, axis=self.axis, keepdims=True, initial=-np.inf))
        return powers / np.sum(powers, axis=self.axis, keepdims=True)

    @classmethod
    def samples(cls):
        for axis in (0, 1, -1):
            yield Sample(arrays((3, 4, 5)), axis=axis)
        yield Sample(arrays((2, 0)))

    @classmethod
    def errors(cls):
        yield IndexError, f"{cls.name}: axis 2", Sample(arrays((2, 3)), axis=2)
        yield DTypeError, f"{cls.name}: takes floating-point", Sample(arrays((2,), dtype="int32"))


@material(LogSoftmax)
class _:
    def reference(self, x):
        return x - np.logaddexp.reduce(x, axis=self.axis, keepdims=True)


@material(Softmin)
class _:
    def reference(self, x):
        powers = np.exp(np.min(x, axis=self.axis, keepdims=True) - x)
        return powers / np.sum(powers, axis=self.axis, keepdims=True)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4, 5)), axis=1)
        yield Sample(arrays((4,)))
