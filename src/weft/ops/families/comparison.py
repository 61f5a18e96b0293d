"""Comparisons, logic, bits, and choosing by a condition."""

from __future__ import annotations

from weft.base.dtype import DType, bool_, float64
from weft.expr import scalar as e
from weft.ops.op import Runtime, op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType, promote

Scalar = e.Scalar


class Pair(Pointwise, family="comparison"):
    """Base of binary operators whose name is NumPy's, too."""


class Comparison(Pair, aot_dtypes=("float32", "int64"), result="bool"):
    """Base: true or false of two numbers in their promoted type. NaN is unequal to all and not ordered."""


@op
class Equal(Comparison, takes=("bool", "int", "uint", "float", "complex")):
    """Whether a = b.

    a, b: any dtype; shapes fit by broadcasting. Returns bool. Compared in the promoted type; NaN equals nothing.
    Source: array API 2024.12, equal.

    >>> import weft as wf
    >>> wf.equal(wf.tensor([1, 2]), 2)
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a == b


@op
class NotEqual(Comparison, takes=("bool", "int", "uint", "float", "complex")):
    """Whether a and b differ.

    a, b: any dtype; shapes fit by broadcasting. Returns bool. Compared in the promoted type; NaN differs from itself.
    Source: array API 2024.12, not_equal.

    >>> import weft as wf
    >>> wf.not_equal(wf.tensor([1, 2]), 2)
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a != b


@op
class Less(Comparison):
    """Whether a < b.

    a, b: any dtype; shapes fit by broadcasting. Returns bool. Compared in the promoted type; false for NaN.
    Source: array API 2024.12, less.

    >>> import weft as wf
    >>> wf.less(wf.tensor([1, 2]), 2)
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a < b


@op
class LessEqual(Comparison):
    """Whether a <= b.

    a, b: any dtype; shapes fit by broadcasting. Returns bool. Compared in the promoted type; false for NaN.
    Source: array API 2024.12, less_equal.

    >>> import weft as wf
    >>> wf.less_equal(wf.tensor([1, 2]), 1)
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a <= b


@op
class Greater(Comparison):
    """Whether a > b.

    a, b: any dtype; shapes fit by broadcasting. Returns bool. Compared in the promoted type; false for NaN.
    Source: array API 2024.12, greater.

    >>> import weft as wf
    >>> wf.greater(wf.tensor([1, 2]), 1)
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a > b


@op
class GreaterEqual(Comparison):
    """Whether a >= b.

    a, b: any dtype; shapes fit by broadcasting. Returns bool. Compared in the promoted type; false for NaN.
    Source: array API 2024.12, greater_equal.

    >>> import weft as wf
    >>> wf.greater_equal(wf.tensor([1, 2]), 2)
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a >= b


class Logic(Pair, result="bool", takes=("bool", "int", "uint", "float", "complex")):
    """Base: numbers count as true unless they are 0."""


@op
class LogicalAnd(Logic):
    """Whether both are true.

    a, b: any dtype, true unless 0 (NaN is true); shapes fit by broadcasting. Returns bool.
    Source: array API 2024.12, logical_and.

    >>> import weft as wf
    >>> wf.logical_and(wf.tensor([True, False]), True)
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return e.cast(a, "bool") & e.cast(b, "bool")


@op
class LogicalOr(Logic):
    """Whether at least one is true.

    a, b: any dtype, true unless 0 (NaN is true); shapes fit by broadcasting. Returns bool.
    Source: array API 2024.12, logical_or.

    >>> import weft as wf
    >>> wf.logical_or(wf.tensor([True, False]), False)
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return e.cast(a, "bool") | e.cast(b, "bool")


@op
class LogicalXor(Logic):
    """Whether just one is true.

    a, b: any dtype, true unless 0 (NaN is true); shapes fit by broadcasting. Returns bool.
    Source: array API 2024.12, logical_xor.

    >>> import weft as wf
    >>> wf.logical_xor(wf.tensor([True, False]), True)
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return e.cast(a, "bool") ^ e.cast(b, "bool")


@op
class LogicalNot(
    Pointwise, family="comparison", result="bool", takes=("bool", "int", "uint", "float", "complex")
):
    """Whether x is false.

    x: any dtype [...], true unless 0 (NaN is true). Returns bool of x's shape.
    Source: array API 2024.12, logical_not.

    >>> import weft as wf
    >>> wf.logical_not(wf.tensor([True, False]))
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return ~e.cast(x, "bool")


class Bits(Pair, takes=("bool", "int", "uint")):
    """Base of operators on bits."""


@op
class BitwiseAnd(Bits):
    """The bits that both a and b have: a & b.

    a, b: integers or booleans; shapes fit by broadcasting. Returns the promoted type.
    Source: array API 2024.12, bitwise_and.

    >>> import weft as wf
    >>> wf.bitwise_and(wf.tensor([5, 6]), 3)
    tensor([1, 2], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a & b


@op
class BitwiseOr(Bits):
    """The bits that a or b has: a | b.

    a, b: integers or booleans; shapes fit by broadcasting. Returns the promoted type.
    Source: array API 2024.12, bitwise_or.

    >>> import weft as wf
    >>> wf.bitwise_or(wf.tensor([5, 6]), 3)
    tensor([7, 7], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a | b


@op
class BitwiseXor(Bits):
    """The bits in which a and b differ: a ^ b.

    a, b: integers or booleans; shapes fit by broadcasting. Returns the promoted type.
    Source: array API 2024.12, bitwise_xor.

    >>> import weft as wf
    >>> wf.bitwise_xor(wf.tensor([5, 6]), 3)
    tensor([6, 5], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a ^ b


@op
class BitwiseInvert(Pointwise, family="comparison", takes=("bool", "int", "uint")):
    """All bits changed: ~x; for booleans their not.

    x: integers or booleans [...]. Returns x's shape and dtype.
    Source: array API 2024.12, bitwise_invert.

    >>> import weft as wf
    >>> wf.bitwise_invert(wf.tensor([0, 5]))
    tensor([-1, -6], dtype=int64, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return ~x


class BitShift(Bits, takes=("int", "uint")):
    """Base of shifts."""


def _outside(b: Scalar, bits: int) -> Scalar:
    return b >= bits if b.dtype in e.UNSIGNED else (b < 0) | (b >= bits)


@op
class BitwiseLeftShift(BitShift):
    """a * 2**b by moving bits to the left: a << b.

    a, b: integers; shapes fit by broadcasting. Returns the promoted type. Bits that leave are lost; b below 0 or at
    least the number of bits gives 0.
    Source: array API 2024.12, bitwise_left_shift.

    >>> import weft as wf
    >>> wf.bitwise_left_shift(wf.tensor([1, 3]), 2)
    tensor([ 4, 12], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        bits = e.BITS[a.dtype]
        return e.where(_outside(b, bits), e.constant(0, a.dtype), a << (b & (bits - 1)))


@op
class BitwiseRightShift(BitShift):
    """floor(a / 2**b) by moving bits to the right: a >> b.

    a, b: integers; shapes fit by broadcasting. Returns the promoted type. b below 0 or at least the number of bits
    gives 0, or -1 if a is negative.
    Source: array API 2024.12, bitwise_right_shift.

    >>> import weft as wf
    >>> wf.bitwise_right_shift(wf.tensor([12, -1]), 2)
    tensor([ 3, -1], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        bits = e.BITS[a.dtype]
        zero = e.constant(0, a.dtype)
        outside = zero if a.dtype in e.UNSIGNED else e.where(a < 0, e.constant(-1, a.dtype), zero)
        return e.where(_outside(b, bits), outside, a >> (b & (bits - 1)))


@op
class Where(Pointwise, family="comparison", takes=("bool", "int", "uint", "float", "complex")):
    """x1 where the condition holds, else x2.

    condition: bool, or numbers that are true unless 0; x1, x2: arrays or numbers; shapes fit by broadcasting. Returns
    the promoted type of x1 and x2.
    Source: array API 2024.12, where.

    >>> import weft as wf
    >>> wf.where(wf.tensor([True, False]), 1., 2.)
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        return promote(*(t for t in inputs[1:] if t is not None))

    def operand_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...]:
        common = self.compute_dtype(*inputs)
        return bool_, common, common

    def scalar(self, condition: Scalar, x1: Scalar, x2: Scalar) -> Scalar:
        return e.where(condition, x1, x2)


@op
class Isclose(
    Pointwise,
    family="comparison",
    result="bool",
    takes=("bool", "int", "uint", "float", "complex"),
    positional=("rtol", "atol", "equal_nan"),
):
    """Whether |a - b| <= atol + rtol * |b|.

    a, b: numbers; shapes fit by broadcasting. rtol, atol: numbers given when it runs; equal_nan: whether NaN is close
    to NaN. Returns bool. Integers are compared as float64. Infinities are close to themselves only.
    Source: NumPy's isclose.

    >>> import weft as wf
    >>> wf.isclose(wf.tensor([1., 2.]), wf.tensor([1.000001, 2.1]))
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    rtol: Runtime[float] = 1e-5
    atol: Runtime[float] = 1e-8
    equal_nan: bool = False

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        common = super().compute_dtype(*inputs)
        return common if common.is_inexact else float64

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        near = abs(a - b) <= abs(b) * self.rtol + self.atol
        close = (a == b) | (near & (abs(b) < float("inf")))
        return close | ((a != a) & (b != b)) if self.equal_nan else close
