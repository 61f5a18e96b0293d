"""What tests know of the operators of weft.ops.families.elementary."""

import math

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError
from weft.ops.families.elementary import (
    Acos,
    Acosh,
    Asin,
    Atanh,
    Cast,
    Elementary,
    Erf,
    Erfc,
    FilledLike,
    Log,
    Log1p,
    Log2,
    Log10,
    Property,
    Rounding,
    Rsqrt,
    Sigmoid,
    Signbit,
    Sqrt,
    Tan,
)
from weft.ops.samples import Array, Sample, arrays

RANGES = {  # of the samples' elements, where it is not -2 ... 2
    Log: (0.1, 4.0),
    Log1p: (-0.8, 4.0),
    Log2: (0.1, 4.0),
    Log10: (0.1, 4.0),
    Sqrt: (0.1, 4.0),
    Rsqrt: (0.1, 4.0),
    Tan: (-1.2, 1.2),
    Asin: (-0.9, 0.9),
    Acos: (-0.9, 0.9),
    Acosh: (1.1, 4.0),
    Atanh: (-0.9, 0.9),
}


@material(Elementary)
class _:
    def reference(self, x):
        return getattr(np, self.name)(x)

    @classmethod
    def samples(cls):
        low, high = RANGES.get(cls, (-2.0, 2.0))
        for shape in ((2, 3), (), (0, 4), (17,)):
            yield Sample(Array(shape, low=low, high=high))


@material(Rsqrt)
class _:
    def reference(self, x):
        return 1 / np.sqrt(x)


@material(Erf)
class _:
    def reference(self, x):
        return np.vectorize(math.erf, otypes=[np.float64])(x)


@material(Erfc)
class _:
    def reference(self, x):
        return np.vectorize(math.erfc, otypes=[np.float64])(x)


@material(Sigmoid)
class _:
    def reference(self, x):
        return 1 / (1 + np.exp(-x))


@material(Rounding)
class _:
    @classmethod
    def samples(cls):
        yield from super(Rounding, cls).samples()
        yield Sample(Array((7,), values=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.0)))

    @classmethod
    def errors(cls):
        yield DTypeError, f"{cls.name}: takes", Sample(arrays((2,), dtype="bool"))


@material(Property)
class _:
    def reference(self, x):
        return getattr(np, self.name)(x)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)))
        yield Sample(Array((6,), values=(float("nan"), float("inf"), float("-inf"), -0.0, 0.0, -1.0)))


@material(Signbit)
class _:
    def reference(self, x):
        return np.signbit(x) if np.asarray(x).dtype.kind not in "b" else np.zeros(np.shape(x), bool)


@material(Cast)
class _:
    def reference(self, x):
        return np.asarray(x).astype(self.dtype.numpy)

    def torch_reference(self, torch, x):
        return x.to(getattr(torch, self.dtype.name))

    @classmethod
    def samples(cls):
        for dtype in ("float32", "int32", "bool", "bfloat16"):
            yield Sample(arrays((2, 3)), dtype=dtype, gradient=False)

    @classmethod
    def errors(cls):
        yield TypeError, "cast: dtype must be given", Sample(arrays((2,)))
        yield DTypeError, "cannot read 'float8'", Sample(arrays((2,)), dtype="float8")


@material(FilledLike)
class _:
    def reference(self, x):
        return np.full(np.shape(x), self.value, np.asarray(x).dtype)
