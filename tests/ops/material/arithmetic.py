"""What tests know of the operators of weft.ops.families.arithmetic."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.arithmetic import (
    Add,
    Arithmetic,
    Atan2,
    Clip,
    Copysign,
    Divide,
    Division,
    Extreme,
    FloatPair,
    FloorDivide,
    Fmax,
    Fmin,
    Fmod,
    Hypot,
    Lerp,
    Logaddexp,
    Maximum,
    Minimum,
    Multiply,
    OneNumber,
    Pow,
    Reciprocal,
    Remainder,
    Sign,
    Subtract,
)
from weft.ops.samples import Array, Sample, arrays

PAIRS = (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0, 3), (1, 1)), ((), (2,)))
# The range of each operand in samples: the second operand of a division keeps away from 0.
RANGES = {Division: ((-2.0, 2.0), (0.5, 3.0)), Pow: ((0.5, 2.0), (-2.0, 2.0))}
SIGNS = (-7.0, 7.0, -7.0, 7.0, 6.0, -6.0, 0.0, 2.5), (2.0, -2.0, -2.0, 2.0, 3.0, 3.0, 3.0, -0.5)


@material(Arithmetic)
class _:
    @classmethod
    def samples(cls):
        ranges = (RANGES[base] for base in cls.__mro__ if base in RANGES)
        (low, high), (low2, high2) = next(ranges, ((-2.0, 2.0), (-2.0, 2.0)))
        for a, b in PAIRS:
            yield Sample(
                Array(a, low=low, high=high, distinct=True), Array(b, low=low2, high=high2, distinct=True)
            )
        yield Sample(Array((3,), low=low, high=high), 2)
        yield Sample(Array((3,), low=low, high=high), 1.5)

    @classmethod
    def errors(cls):
        yield ShapeError, f"{cls.name}: sizes 2 and 3", Sample(arrays((2,)), arrays((3,)))
        if "bool" not in cls.takes:
            flags = arrays((2,), dtype="bool")
            yield DTypeError, f"{cls.name}: takes", Sample(flags, flags)


@material(Division)
class _:
    @classmethod
    def samples(cls):
        yield from super(Division, cls).samples()
        yield Sample(*(Array((8,), values=values) for values in SIGNS), gradient=False)
        yield Sample(
            Array((3,), values=(3, -3, 0), dtype="int32"), Array((3,), values=(0, 0, 0), dtype="int32")
        )


@material(Add)
class _:
    def reference(self, a, b):
        return a + b


@material(Subtract)
class _:
    def reference(self, a, b):
        return a - b


@material(Multiply)
class _:
    def reference(self, a, b):
        return a * b


@material(Divide)
class _:
    def reference(self, a, b):
        return np.true_divide(a, b)

    @classmethod
    def errors(cls):
        yield ShapeError, "divide: sizes 2 and 3", Sample(arrays((2,)), arrays((3,)))


@material(FloorDivide)
class _:
    def reference(self, a, b):
        return np.floor_divide(a, b)


@material(Remainder)
class _:
    def reference(self, a, b):
        return np.remainder(a, b)


@material(Fmod)
class _:
    def reference(self, a, b):
        return np.fmod(a, b)


@material(Pow)
class _:
    def reference(self, a, b):
        if np.result_type(a, b).kind in "iu":
            size = np.broadcast(a, b).shape
            exact = [_wrapped_power(int(x), int(y)) for x, y in np.broadcast(a, b)]
            return np.array(exact, np.uint64).reshape(size).astype(np.result_type(a, b))
        return np.power(a, b)

    @classmethod
    def samples(cls):
        yield from super(Pow, cls).samples()
        whole = Array((7,), values=(0, 1, -1, 2, -3, 5, -2), dtype="int32")
        yield Sample(whole, Array((7,), values=(0, -1, -3, 31, 3, 20, -1), dtype="int32"))
        yield Sample(Array((3,), values=(-2, 3, -1.5)), Array((3,), values=(3, 2, 2)), gradient=False)


def _wrapped_power(a, b):
    if b < 0:
        return (a**-b if abs(a) == 1 else 0) % 2**64
    return pow(a, b, 2**64)


@material(Extreme)
class _:
    @classmethod
    def samples(cls):
        yield from super(Extreme, cls).samples()
        nan = float("nan")
        yield Sample(
            Array((4,), values=(nan, 1.0, nan, 2.0)),
            Array((4,), values=(1.0, nan, nan, -2.0)),
            gradient=False,
        )


@material(Maximum)
class _:
    def reference(self, a, b):
        return np.maximum(a, b)


@material(Minimum)
class _:
    def reference(self, a, b):
        return np.minimum(a, b)


@material(Fmax)
class _:
    def reference(self, a, b):
        return np.fmax(a, b)


@material(Fmin)
class _:
    def reference(self, a, b):
        return np.fmin(a, b)


@material(FloatPair)
class _:
    @classmethod
    def errors(cls):
        yield ShapeError, f"{cls.name}: sizes 2 and 3", Sample(arrays((2,)), arrays((3,)))


@material(Hypot)
class _:
    def reference(self, a, b):
        return np.hypot(a, b)


@material(Logaddexp)
class _:
    def reference(self, a, b):
        return np.logaddexp(a, b)


@material(Atan2)
class _:
    def reference(self, a, b):
        return np.arctan2(a, b)


@material(Copysign)
class _:
    def reference(self, a, b):
        return np.copysign(a, b)


@material(Lerp)
class _:
    def reference(self, a, b, weight):
        return a + weight * (b - a)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((2, 3)), 0.25)
        yield Sample(arrays((2, 3)), arrays((3,)), arrays((2, 1), low=0.0, high=1.0))
        yield Sample(arrays(()), arrays((0,)), 1.0)

    @classmethod
    def errors(cls):
        yield ShapeError, "lerp: sizes 2 and 3", Sample(arrays((2,)), arrays((3,)), 0.5)


@material(Clip)
class _:
    def reference(self, x, min=None, max=None):
        above = x if min is None else np.maximum(x, min)
        return above if max is None else np.minimum(above, max)

    @classmethod
    def samples(cls):
        x = arrays((2, 3), distinct=True)
        yield Sample(x, 0, 1)
        yield Sample(x, -0.5, 1, dtypes=("float32", "float64"))
        yield Sample(x, None, 0.5)
        yield Sample(x, arrays((3,)))
        yield Sample(x, arrays((2, 1)), arrays((3,)))
        yield Sample(arrays((0,)), 0)

    @classmethod
    def errors(cls):
        yield DTypeError, "clip: takes", Sample(arrays((2,), dtype="bool"))


@material(OneNumber)
class _:
    def reference(self, x):
        return getattr(np, self.name)(x)

    @classmethod
    def samples(cls):
        for shape in ((2, 3), (), (0, 4)):
            yield Sample(arrays(shape, distinct=True))

    @classmethod
    def errors(cls):
        if "bool" not in cls.takes:
            yield DTypeError, f"{cls.name}: takes", Sample(arrays((2,), dtype="bool"))


@material(Reciprocal)
class _:
    def reference(self, x):
        return np.true_divide(1, x)


@material(Sign)
class _:
    def torch_reference(self, torch, x):
        return torch.sgn(x)
