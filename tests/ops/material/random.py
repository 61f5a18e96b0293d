"""What tests know of the operators of weft.ops.families.random."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.random import (
    Bernoulli,
    Dropout,
    RandomIntegers,
    RandomNormal,
    RandomPermutation,
    RandomUniform,
)
from weft.ops.samples import Sample, arrays


@material(Dropout)
class _:
    def reference(self, x):
        if not self.training:
            return x
        p = self.p
        mask = np.random.default_rng(0).random(x.shape) >= p
        return np.where(mask, x / (1 - p) if p < 1 else 0, 0), mask

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), p=0.5)
        yield Sample(arrays((3, 4)), p=0.0)
        yield Sample(arrays((3, 4)), p=1.0)
        yield Sample(arrays((3, 4)), p=0.5, training=False)
        yield Sample(arrays((0, 4)))

    @classmethod
    def errors(cls):
        yield ValueError, "p must be in 0.0..1.0, got 1.5", Sample(arrays((2,)), p=1.5)
        yield DTypeError, "floating-point", Sample(arrays((2,), dtype="int32"))


@material(Bernoulli)
class _:
    def reference(self, p):
        return np.asarray(
            np.random.default_rng(0).random(p.shape) < p, self.dtype.numpy if self.dtype else p.dtype
        )

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4), low=0, high=1))
        yield Sample(arrays((5,), low=0, high=1), dtype="int32")

    @classmethod
    def errors(cls):
        yield DTypeError, "floating-point", Sample(arrays((2,), dtype="int32"))


@material(RandomPermutation)
class _:
    def reference(self, x):
        return np.random.default_rng(0).permutation(x)

    @classmethod
    def samples(cls):
        yield Sample(arrays((5, 2)))
        yield Sample(arrays((3,), dtype="int32"))
        yield Sample(arrays((0, 4)))

    @classmethod
    def errors(cls):
        yield ShapeError, "needs at least 1 dimension", Sample(arrays(()))


@material(RandomNormal)
class _:
    def reference(self):
        mean = self.mean
        std = self.std
        return mean + std * np.random.default_rng(0).standard_normal(self.shape)


@material(RandomUniform)
class _:
    def reference(self):
        low = self.low
        high = self.high
        return np.random.default_rng(0).uniform(low, high, self.shape)


@material(RandomIntegers)
class _:
    def reference(self):
        low = self.low
        high = self.high
        return np.random.default_rng(0).integers(low, high, self.shape)
