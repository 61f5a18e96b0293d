"""Arithmetic of arrays, element by element: the operators behind + - * / and their kind."""

from __future__ import annotations

import math

from weft.base.typing import Any
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.op import op
from weft.ops.pointwise import Pointwise, unbroadcast

Scalar = e.Scalar
COMMON = ("float32", "float64", "int64")
NUMBERS = ("int", "uint", "float")
INEXACT = ("float", "complex")
ALL = ("bool", *NUMBERS, "complex")


class Arithmetic(Pointwise, family="arithmetic"):
    """Base of binary operators on numbers."""


class Division(Arithmetic, takes=NUMBERS):
    """Base of what divides."""


@op
class Add(Arithmetic, aot_dtypes=COMMON, takes=ALL):
    """a + b; for booleans their or.

    a, b: arrays whose shapes fit by broadcasting, or numbers. Returns the promoted type. Integers wrap.
    Source: array API 2024.12, add.

    >>> import weft as wf
    >>> wf.add(wf.tensor([1, 2]), 1)
    tensor([2, 3], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a | b if a.dtype == "bool" else a + b


@op
class Subtract(Arithmetic, aot_dtypes=COMMON, takes=(*NUMBERS, "complex")):
    """a - b.

    a, b: numbers, no booleans; shapes fit by broadcasting. Returns the promoted type. Integers wrap.
    Source: array API 2024.12, subtract.

    >>> import weft as wf
    >>> wf.subtract(wf.tensor([3, 2]), 1)
    tensor([2, 1], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a - b


@op
class Multiply(Arithmetic, aot_dtypes=COMMON, takes=ALL):
    """a * b; for booleans their and.

    a, b: arrays whose shapes fit by broadcasting, or numbers. Returns the promoted type. Integers wrap.
    Source: array API 2024.12, multiply.

    >>> import weft as wf
    >>> wf.multiply(wf.tensor([1., 2.]), 3)
    tensor([3., 6.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a & b if a.dtype == "bool" else a * b


@op
class Divide(Division, aot_dtypes=COMMON, result="float", takes=INEXACT):
    """a / b as real or complex numbers.

    a, b: shapes fit by broadcasting; integers and booleans are computed as float32. Returns the promoted
    floating-point type. Division by 0 gives an infinity, 0 / 0 NaN.
    Source: array API 2024.12, divide.

    >>> import weft as wf
    >>> wf.divide(wf.tensor([1, 3]), 2)
    tensor([0.5, 1.5], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a / b


def _signs_differ(a: Scalar, b: Scalar) -> Scalar:
    zero = e.constant(0, a.dtype)
    return (a < zero) ^ (b < zero)


@op
class FloorDivide(Division, smooth=False):
    """The greatest whole number that is at most a / b.

    a, b: numbers, no booleans; shapes fit by broadcasting. Returns the promoted type. Integers divided by 0 give 0,
    floats as a / b. No gradient.
    Source: array API 2024.12, floor_divide.

    >>> import weft as wf
    >>> wf.floor_divide(wf.tensor([7, -7]), 2)
    tensor([ 3, -4], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        if a.dtype in e.UNSIGNED:
            return a / b
        remainder = a % b
        below = (remainder != 0) & _signs_differ(remainder, b)
        if a.dtype not in e.FLOATS:
            return a / b - e.cast(below & (b != 0), a.dtype)
        quotient = (a - remainder) / b
        quotient = quotient - e.cast(below, a.dtype)
        down = e.call("floor", quotient)
        near = e.where(quotient - down > 0.5, down + 1, down)
        return e.where(b == 0, a / b, e.where(near == 0, e.call("copysign", near, a / b), near))


@op
class Remainder(Division):
    """a - b * floor(a / b): what division leaves, with the sign of b.

    a, b: numbers, no booleans; shapes fit by broadcasting. Returns the promoted type. For b = 0 integers give 0, floats
    NaN.
    Source: array API 2024.12, remainder.

    >>> import weft as wf
    >>> wf.remainder(wf.tensor([7, -7]), 3)
    tensor([1, 2], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        remainder = a % b
        if a.dtype in e.UNSIGNED:
            return remainder
        moved = e.where((remainder != 0) & _signs_differ(remainder, b), remainder + b, remainder)
        if a.dtype in e.FLOATS:
            return e.where(remainder == 0, e.call("copysign", remainder, b), moved)
        return e.where(b == 0, e.constant(0, a.dtype), moved)

    def vjp(self, a: Any, b: Any, dy: Any) -> Any:
        if not dy.dtype.is_differentiable:
            return None, None
        return unbroadcast(dy, a), -unbroadcast(dy * F.floor_divide(a, b), b)


@op
class Fmod(Division):
    """a - b * trunc(a / b): what division leaves, with the sign of a.

    a, b: numbers, no booleans; shapes fit by broadcasting. Returns the promoted type. For b = 0 integers give 0, floats
    NaN.
    Source: IEEE C99, fmod.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.fmod(wf.tensor([7, -7]), 3)
    tensor([ 1, -1], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        if a.dtype in e.FLOATS:
            return a % b
        return e.where(b == 0, e.constant(0, a.dtype), a % b)


@op
class Pow(Arithmetic, takes=(*NUMBERS, "complex")):
    """a to the power of b.

    a, b: numbers, no booleans; shapes fit by broadcasting. Returns the promoted type. Integers wrap; a negative power
    of an integer is 0 unless that is 1 or -1. Floats as C's pow: 0 ** 0 and NaN ** 0 are 1, a negative number to a
    power that is not whole is NaN.
    Source: array API 2024.12, pow.

    >>> import weft as wf
    >>> wf.pow(wf.tensor([2., 3.]), 2)
    tensor([4., 9.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return _integer_power(a, b) if a.dtype in e.BITS_OF_INTEGERS else e.call("pow", a, b)


def _integer_power(a: Scalar, b: Scalar) -> Scalar:
    """By squaring: one step for each bit of the exponent."""
    one, zero = e.constant(1, a.dtype), e.constant(0, a.dtype)
    power, square = one, a
    steps = e.BITS[a.dtype] - (a.dtype in e.SIGNED)
    for bit in range(steps):
        power = e.where((b >> bit) & 1 == 1, power * square, power)
        square = square * square
    if a.dtype in e.UNSIGNED:
        return power
    odd = e.where(b & 1 == 1, a, one)
    return e.where(b < 0, e.where((a == 1) | (a == -1), odd, zero), power)


class Extreme(Arithmetic):
    """Base of the larger and the smaller of two."""


@op
class Maximum(Extreme):
    """The larger of a and b; NaN if one is NaN.

    a, b: any dtype; shapes fit by broadcasting. Returns the promoted type. The gradient is shared between equal ones.
    Source: array API 2024.12, maximum.

    >>> import weft as wf
    >>> wf.maximum(wf.tensor([1, 5]), 3)
    tensor([3, 5], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return e.maximum(a, b)


@op
class Minimum(Extreme):
    """The smaller of a and b; NaN if one is NaN.

    a, b: any dtype; shapes fit by broadcasting. Returns the promoted type. The gradient is shared between equal ones.
    Source: array API 2024.12, minimum.

    >>> import weft as wf
    >>> wf.minimum(wf.tensor([1, 5]), 3)
    tensor([1, 3], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return e.minimum(a, b)


def _not_nan(a: Scalar, b: Scalar, both: Scalar) -> Scalar:
    """Of two numbers the one that is not NaN; both if neither is."""
    if a.dtype not in e.FLOATS:
        return both
    return e.where(a != a, b, e.where(b != b, a, both))


@op
class Fmax(Extreme):
    """The larger of a and b; if one is NaN, the other.

    a, b: any dtype; shapes fit by broadcasting. Returns the promoted type.
    Source: IEEE 754-2019, maximumNumber.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.fmax(wf.tensor([1., float("nan")]), 0)
    tensor([1., 0.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return _not_nan(a, b, e.maximum(a, b))


@op
class Fmin(Extreme):
    """The smaller of a and b; if one is NaN, the other.

    a, b: any dtype; shapes fit by broadcasting. Returns the promoted type.
    Source: IEEE 754-2019, minimumNumber.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.fmin(wf.tensor([1., float("nan")]), 2)
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return _not_nan(a, b, e.minimum(a, b))


class FloatPair(Arithmetic, result="float", takes=("float",)):
    """Base of binary functions of real numbers: integers are computed as float32."""


@op
class Hypot(FloatPair):
    """sqrt(a**2 + b**2), without overflow on the way.

    a, b: float[...], integers as float32; shapes fit by broadcasting. Returns the promoted type. An infinity gives an
    infinity. The gradient at (0, 0) is 0.
    Source: array API 2024.12, hypot.

    >>> import weft as wf
    >>> wf.hypot(wf.tensor([3.]), 4)
    tensor([5.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        # One of the two where they are equal, in all places, and a ratio with its sign: derivatives of every order are
        # those of the formula.
        is_first = abs(a) >= abs(b)
        long = e.where(is_first, abs(a), abs(b))
        ratio = e.where(is_first, b, a) / e.where(is_first, a, b)
        infinite = (abs(a) == float("inf")) | (abs(b) == float("inf"))
        length = long * e.call("sqrt", ratio * ratio + 1)
        return e.where(
            infinite, e.constant(float("inf"), a.dtype), e.where((a == 0) & (b == 0), long, length)
        )


@op
class Logaddexp(FloatPair):
    """log(exp(a) + exp(b)), finite wherever the answer is.

    a, b: float[...], integers as float32; shapes fit by broadcasting. Returns the promoted type.
    Source: array API 2024.12, logaddexp.

    >>> import weft as wf
    >>> wf.logaddexp(wf.tensor(float("-inf")), 1.).item()
    1.0
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        apart = e.maximum(a, b) + e.call("log1p", e.call("exp", -abs(a - b)))
        return e.where(a == b, a + math.log(2), apart)

    def vjp(self, a: Any, b: Any, dy: Any) -> Any:
        return unbroadcast(dy * F.sigmoid(a - b), a), unbroadcast(dy * F.sigmoid(b - a), b)


@op
class Atan2(FloatPair):
    """The angle of the point (b, a) in radians, from -pi to pi.

    a, b: float[...], integers as float32; shapes fit by broadcasting. Returns the promoted type. Signs of zeros count.
    Source: array API 2024.12, atan2.

    >>> import weft as wf
    >>> wf.atan2(wf.tensor([0., 0.]), 1)
    tensor([0., 0.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return e.call("atan2", a, b)


@op
class Copysign(FloatPair):
    """The magnitude of a with the sign of b.

    a, b: float[...], integers as float32; shapes fit by broadcasting. Returns the promoted type. The sign of a zero and
    of NaN counts. The gradient at a = 0 is 0.
    Source: array API 2024.12, copysign.

    >>> import weft as wf
    >>> wf.copysign(wf.tensor([1., -2.]), -0.)
    tensor([-1., -2.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return e.call("copysign", a, b)


@op
class Lerp(Pointwise, family="arithmetic", result="float", takes=("float",)):
    """a + weight * (b - a): from a at weight 0 to b at weight 1, exact at both.

    a, b, weight: float[...] or numbers; shapes fit by broadcasting. Returns the promoted type.
    Source: PyTorch's lerp.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.lerp(wf.tensor([0., 2.]), wf.tensor([10., 4.]), 0.5)
    tensor([5., 3.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar, weight: Scalar) -> Scalar:
        rise = b - a
        return e.where(abs(weight) < 0.5, a + weight * rise, b - rise * (1 - weight))

    def vjp(self, a: Any, b: Any, weight: Any, dy: Any) -> Any:
        return (
            unbroadcast(dy * (1 - weight), a),
            unbroadcast(dy * weight, b),
            None if weight.type.weak else unbroadcast(dy * (b - a), weight),
        )


@op
class Clip(Pointwise, family="arithmetic", takes=NUMBERS):
    """x, but at least min and at most max: minimum(maximum(x, min), max).

    x: numbers [...]; min, max: arrays whose shapes fit by broadcasting, numbers, or None for no bound. Returns x's
    dtype, or the promoted one if a bound is a float and x is not. NaN stays NaN. Where min > max the result is max.
    Source: array API 2024.12, clip.

    >>> import weft as wf
    >>> wf.clip(wf.tensor([-1, 4, 9]), 0, 5)
    tensor([0, 4, 5], dtype=int64, device=cpu:0)
    """

    def scalar(self, x: Scalar, min: Scalar | None = None, max: Scalar | None = None) -> Scalar:
        above = x if min is None else e.maximum(x, min)
        return above if max is None else e.minimum(above, max)


class OneNumber(Pointwise, family="arithmetic", takes=NUMBERS):
    """Base of functions of one number that keep its type."""


@op
class Negative(OneNumber, aot_dtypes=("float32",), takes=(*NUMBERS, "complex")):
    """-x.

    x: numbers [...], no booleans. Returns x's shape and dtype. Integers wrap.
    Source: array API 2024.12, negative.

    >>> import weft as wf
    >>> wf.negative(wf.tensor([1, -2]))
    tensor([-1,  2], dtype=int64, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return -x


@op
class Positive(OneNumber, takes=(*NUMBERS, "complex")):
    """+x: the same numbers.

    x: numbers [...], no booleans. Returns x's shape and dtype.
    Source: array API 2024.12, positive.

    >>> import weft as wf
    >>> wf.positive(wf.tensor([1, -2]))
    tensor([ 1, -2], dtype=int64, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return x


@op
class Abs(OneNumber, aot_dtypes=("float32",), takes=(*NUMBERS, "complex"), result="real"):
    """The magnitude of x.

    x: numbers [...], no booleans. Returns x's shape and dtype, of complex numbers that of their parts. The least
    integer of a type stays itself. The gradient at 0 is 0.
    Source: array API 2024.12, abs.

    >>> import weft as wf
    >>> wf.abs(wf.tensor([1, -2]))
    tensor([1, 2], dtype=int64, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return x if x.dtype in e.UNSIGNED else abs(x)


@op
class Sign(OneNumber, takes=(*NUMBERS, "complex")):
    """-1, 0 or 1 as x is negative, zero or positive; NaN for NaN; of a complex number x / |x|, or 0.

    x: numbers [...], no booleans. Returns x's shape and dtype. The gradient is 0 where x is real.
    Source: array API 2024.12, sign.

    >>> import weft as wf
    >>> wf.sign(wf.tensor([3., -2., 0.]))
    tensor([ 1., -1.,  0.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        zero, one = e.constant(0, x.dtype), e.constant(1, x.dtype)
        if x.dtype in e.COMPLEX:
            return e.where(x == zero, zero, x / abs(x))
        negative = zero if x.dtype in e.UNSIGNED else e.where(x < 0, -one, zero)
        sign = e.where(x > 0, one, negative)
        return e.where(x != x, x, sign) if x.dtype in e.FLOATS else sign

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        return super().vjp(*values) if values[0].dtype.is_complex else (None,)


@op
class Square(OneNumber, takes=(*NUMBERS, "complex")):
    """x * x.

    x: numbers [...], no booleans. Returns x's shape and dtype. Integers wrap.
    Source: array API 2024.12, square.

    >>> import weft as wf
    >>> wf.square(wf.tensor([3, -2]))
    tensor([9, 4], dtype=int64, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return x * x


@op
class Reciprocal(OneNumber, result="float", takes=ALL):
    """1 / x.

    x: float[...], integers and booleans as float32. Returns x's shape. 0 gives an infinity of its sign.
    Source: array API 2024.12, reciprocal.

    >>> import weft as wf
    >>> wf.reciprocal(wf.tensor([2, 4]))
    tensor([0.5 , 0.25], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return 1 / x
