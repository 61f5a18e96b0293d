"""What tests know of the operators of weft.ops.families.comparison."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.arithmetic import PAIRS

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.comparison import (
    BitShift,
    BitwiseInvert,
    BitwiseLeftShift,
    BitwiseRightShift,
    Comparison,
    Equal,
    Isclose,
    LogicalNot,
    Pair,
    Where,
)
from weft.ops.samples import Array, Sample, arrays

NAN = float("nan")


@material(Pair)
class _:
    def reference(self, a, b):
        return getattr(np, self.name)(a, b)

    @classmethod
    def samples(cls):
        for a, b in PAIRS:
            yield Sample(arrays(a), arrays(b))
        yield Sample(arrays((3,)), 1)

    @classmethod
    def errors(cls):
        kind = None if "float" in cls.takes else "int32"
        yield (
            ShapeError,
            f"{cls.name}: sizes 2 and 3",
            Sample(arrays((2,), dtype=kind), arrays((3,), dtype=kind)),
        )
        if "float" not in cls.takes:
            yield DTypeError, f"{cls.name}: takes", Sample(arrays((2,)), arrays((2,)))


@material(Comparison)
class _:
    @classmethod
    def samples(cls):
        yield from super(Comparison, cls).samples()
        yield Sample(Array((4,), values=(1.0, 2.0, 2.0, NAN)), Array((4,), values=(2.0, 1.0, 2.0, NAN)))


@material(Equal)
class _:
    def torch_reference(self, torch, a, b):
        return torch.eq(a, b)


@material(LogicalNot)
class _:
    def reference(self, x):
        return np.logical_not(x)

    @classmethod
    def samples(cls):
        for shape in ((2, 3), (), (0,)):
            yield Sample(arrays(shape))


@material(BitwiseInvert)
class _:
    def reference(self, x):
        return np.invert(x)

    def torch_reference(self, torch, x):
        return torch.bitwise_not(x)

    @classmethod
    def samples(cls):
        for shape in ((2, 3), (), (0,)):
            yield Sample(arrays(shape))

    @classmethod
    def errors(cls):
        yield DTypeError, "bitwise_invert: takes", Sample(arrays((2,)))


@material(BitShift)
class _:
    @classmethod
    def samples(cls):
        for a, b in PAIRS:
            yield Sample(arrays(a), arrays(b, low=0.0, high=6.0))
        yield Sample(arrays((3,)), 1)
        yield Sample(
            Array((4,), values=(1, -1, 5, -5), dtype="int32"),
            Array((4,), values=(31, 32, 40, 40), dtype="int32"),
        )


@material(BitwiseLeftShift)
class _:
    def reference(self, a, b):
        return np.left_shift(a, b)


@material(BitwiseRightShift)
class _:
    def reference(self, a, b):
        return np.right_shift(a, b)


@material(Where)
class _:
    def reference(self, condition, x1, x2):
        return np.where(condition, x1, x2)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3), dtype="bool"), arrays((2, 3)), arrays((2, 3)))
        yield Sample(arrays((2, 1), dtype="bool"), arrays((3,)), 0)
        yield Sample(arrays((2, 1), dtype="bool"), 1.5, arrays((3,)))
        yield Sample(arrays((2,), dtype="int32"), arrays(()), arrays((1,)))
        yield Sample(arrays((0,), dtype="bool"), arrays(()), arrays((1,)))

    @classmethod
    def errors(cls):
        yield ShapeError, "where: sizes 2 and 3", Sample(arrays((2,), dtype="bool"), arrays((3,)), 0)


@material(Isclose)
class _:
    def reference(self, a, b):
        return np.isclose(a, b, self.rtol, self.atol, self.equal_nan)

    @classmethod
    def samples(cls):
        inf = float("inf")
        a = Array((6,), values=(1.0, 2.0, NAN, inf, inf, -3.0))
        b = Array((6,), values=(1.0 + 1e-7, 2.5, NAN, inf, -inf, inf))
        for equal_nan in (False, True):
            yield Sample(a, b, equal_nan=equal_nan, dtypes=("float32", "float64"))
        yield Sample(arrays((2, 3)), arrays((3,)), rtol=0.5, atol=0.25)

    @classmethod
    def errors(cls):
        yield ShapeError, "isclose: sizes 2 and 3", Sample(arrays((2,)), arrays((3,)))
