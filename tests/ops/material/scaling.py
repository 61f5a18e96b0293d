"""What tests know of the operators of weft.ops.families.scaling."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.scaling import Bilinear, LocalResponseNorm, Normalize
from weft.ops.samples import Sample, arrays


@material(Normalize)
class _:
    def reference(self, x):
        norm = (np.abs(x) ** self.p).sum(axis=self.axis, keepdims=True) ** (1 / self.p)
        return x / np.maximum(norm, self.eps)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)))
        yield Sample(arrays((3, 4, 2)), p=3.0, axis=-1, eps=0.1)
        yield Sample(arrays((3, 4, 2)), axis=(0, 2))

    @classmethod
    def errors(cls):
        yield IndexError, "axis 1 is out of range", Sample(arrays((3,)))


@material(LocalResponseNorm)
class _:
    def reference(self, x):
        y = np.empty_like(x)
        for c in range(x.shape[1]):
            first, last = max(c - self.size // 2, 0), c + (self.size - 1) // 2
            total = (x[:, first : last + 1] ** 2).sum(axis=1)
            y[:, c] = x[:, c] / (self.k + self.alpha * total / self.size) ** self.beta
        return y

    @classmethod
    def samples(cls):
        for size in (1, 2, 3, 5):
            yield Sample(arrays((2, 4, 3)), size=size, alpha=0.5)
        yield Sample(arrays((2, 3, 2, 2)), size=3, alpha=1.0, beta=0.5, k=2.0)

    @classmethod
    def errors(cls):
        yield ShapeError, "at least 3 dimensions", Sample(arrays((2, 3)), size=3)
        yield ValueError, "size must be at least 1", Sample(arrays((2, 3, 1)), size=0)


@material(Bilinear)
class _:
    def reference(self, x1, x2, weight, bias=None):
        y = np.einsum("...i,oij,...j->...o", x1, weight, x2)
        return y if bias is None else y + bias

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((2, 4)), arrays((5, 3, 4)), arrays((5,)), tolerance=3)
        yield Sample(arrays((2, 2, 3)), arrays((2, 2, 2)), arrays((1, 3, 2)), tolerance=3)
        yield Sample(arrays((3,)), arrays((2,)), arrays((2, 3, 2)), tolerance=3)

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "needs x1 [*b, 3] and x2 [*b, 4]",
            Sample(arrays((2, 3)), arrays((2, 3)), arrays((5, 3, 4))),
        )
