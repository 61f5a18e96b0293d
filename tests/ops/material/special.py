"""What tests know of the operators of weft.ops.families.special."""

import math

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError
from weft.ops.families.special import (
    Deg2rad,
    Digamma,
    Erfinv,
    Gamma,
    Heaviside,
    Lgamma,
    Logit,
    NanToNum,
    Nextafter,
    Polygamma,
    Rad2deg,
    Sinc,
    Xlogy,
)
from weft.ops.samples import Array, Sample, arrays

NAN, INF = math.nan, math.inf


def each(function, at_zero=None):
    """The function of single numbers on arrays; at_zero: its value for 0, where the function raises."""
    return np.vectorize(
        lambda x: at_zero if x == 0 and at_zero is not None else function(float(x)), otypes=[np.float64]
    )


def positive(shapes=((2, 3), (), (0, 4), (17,)), low=0.3, high=7.0):
    for shape in shapes:
        yield Sample(Array(shape, low=low, high=high))


def polygamma(n, x):
    """By the sum of 60 terms and the first of Euler and Maclaurin's."""
    s = n + 1
    y = sum((x + k) ** -s for k in range(60))
    z = x + 60
    y += z**-n / n + z**-s / 2 + s / 12 * z ** -(s + 1) - s * (s + 1) * (s + 2) / 720 * z ** -(s + 3)
    return (-1) ** s * math.factorial(n) * y


def digamma(x):
    y = -sum(1 / (x + k) for k in range(60))
    z = x + 60
    return y + math.log(z) - 1 / (2 * z) - z**-2 / 12 + z**-4 / 120


def erfinv(y):
    """By bisection."""
    if abs(y) == 1:
        return y * INF
    low, high = -6.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < y else (low, middle)
    return low


@material(Erfinv)
class _:
    def reference(self, x):
        return each(erfinv)(x)

    @classmethod
    def samples(cls):
        yield from positive(low=-0.97, high=0.97)


@material(Gamma)
class _:
    def reference(self, x):
        return each(math.gamma, INF)(x)

    @classmethod
    def samples(cls):
        yield from positive()


@material(Lgamma)
class _:
    def reference(self, x):
        return each(math.lgamma, INF)(x)

    @classmethod
    def samples(cls):
        yield from positive()


@material(Digamma)
class _:
    def reference(self, x):
        return each(digamma, -INF)(x)

    @classmethod
    def samples(cls):
        yield from positive()


@material(Polygamma)
class _:
    def reference(self, x):
        return (
            each(lambda v: polygamma(self.n, v), (-1) ** (self.n + 1) * INF)(x)
            if self.n
            else each(digamma, -INF)(x)
        )

    def torch_reference(self, torch, x):
        return torch.polygamma(self.n, x)

    @classmethod
    def samples(cls):
        for n in range(4):
            yield Sample(Array((2, 3), low=0.5, high=4.0), n=n)

    @classmethod
    def errors(cls):
        yield ValueError, "n must be at least 0, got -1", Sample(arrays((2,)), n=-1)


@material(Sinc)
class _:
    def reference(self, x):
        return np.sinc(x)

    @classmethod
    def samples(cls):
        yield from positive(low=-3.0)
        yield Sample(Array((5,), low=-0.01, high=0.01))
        yield Sample(Array((3,), values=(0.0, -0.0, 1.0)), gradient=False)


@material(Logit)
class _:
    def reference(self, x):
        x = np.clip(x, self.eps, 1 - self.eps)
        return np.log(x / (1 - x))

    @classmethod
    def samples(cls):
        yield from positive(low=0.05, high=0.95)
        yield Sample(Array((5,), low=0.3, high=0.7), eps=0.25)
        yield Sample(Array((4,), values=(-1.0, 0.1, 0.9, 2.0)), eps=0.25, gradient=False)


@material(Deg2rad)
class _:
    def reference(self, x):
        return np.deg2rad(x)


@material(Rad2deg)
class _:
    def reference(self, x):
        return np.rad2deg(x)


@material(Xlogy)
class _:
    def reference(self, a, b):
        with np.errstate(all="ignore"):
            return np.where((a == 0) & ~np.isnan(b), 0.0, a * np.log(b))

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), Array((3,), low=0.5, high=4.0))
        yield Sample(arrays(()), Array((0, 2), low=0.5, high=4.0))
        values = (
            Array((5,), values=(0.0, 0.0, 0.0, 1.0, -1.0)),
            Array((5,), values=(0.0, -1.0, NAN, 0.0, INF)),
        )
        yield Sample(*values, gradient=False)


@material(Heaviside)
class _:
    def reference(self, a, b):
        a, b = np.asarray(a), np.asarray(b)
        return np.where(a < 0, a * 0, np.where(a > 0, a * 0 + 1, np.where(a == 0, b, a))).astype(
            np.result_type(a, b)
        )

    def torch_reference(self, torch, a, b):  # which gives 0 for NaN
        return NotImplemented if a.isnan().any() else torch.heaviside(a, b)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((3,)))
        yield Sample(Array((4,), values=(0.0, -0.0, NAN, -1.0)), arrays((4,)), gradient=False)

    @classmethod
    def errors(cls):
        yield DTypeError, "heaviside: takes", Sample(arrays((2,), dtype="bool"), arrays((2,), dtype="bool"))


@material(Nextafter)
class _:
    def reference(self, a, b):
        return np.nextafter(a, b)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((3,)), gradient=False)


@material(NanToNum)
class _:
    def reference(self, x):
        x = np.asarray(x)
        return np.nan_to_num(x, nan=self.nan, posinf=self.posinf, neginf=self.neginf)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)))
        yield Sample(arrays((0,), dtype="int32"), gradient=False)
        for attributes in ({}, {"nan": 2.0, "posinf": 3.0, "neginf": -4.0}):
            values = Array((5,), values=(NAN, INF, -INF, 0.0, 1.0), dtype="float64")
            yield Sample(values, gradient=False, **attributes)
