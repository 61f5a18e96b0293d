"""What the functions share: the bits of float types, constants in parts, polynomials, powers of two."""

from __future__ import annotations

import struct

from weft.base.record import Record
from weft.expr.scalar import Scalar, bitcast, constant, fma, where


class Layout(Record):
    """The bits of a float type, as the integer type of its size sees them."""

    integer: str
    fraction: int
    bias: int

    @property
    def magic(self) -> float:
        """Adding it rounds to an integer, which is then in the lowest bits: 1.5 times the number whose ulp is 1."""
        return 1.5 * 2.0**self.fraction

    def bits(self, value: float) -> int:
        code = "<f" if self.fraction == 23 else "<d"
        return int.from_bytes(struct.pack(code, value), "little")


LAYOUTS = {"float32": Layout("int32", 23, 127), "float64": Layout("int64", 52, 1023)}

# Constants in parts that add up to them, each the nearest number to what is left.
LN2 = {
    "float32": (0.6931471824645996, -1.9046542121259336e-09),
    "float64": (0.6931471805599453, 2.3190468138462996e-17),
}
LOG2_E = {
    "float32": (1.4426950216293335, 1.925963033500011e-08),
    "float64": (1.4426950408889634, 2.0355273740931033e-17),
}
LOG10_E = {
    "float32": (0.4342944920063019, -1.0103049952192578e-08),
    "float64": (0.4342944819032518, 1.098319650216765e-17),
}
LOG10_2 = {
    "float32": (0.3010300099849701, -1.432098883924482e-08),
    "float64": (0.3010299956639812, -2.8037281277851704e-18),
}
PI = {
    "float32": (3.1415927410125732, -8.742277657347586e-08),
    "float64": (3.141592653589793, 1.2246467991473532e-16),
}
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)


def polynomial(x: Scalar, coefficients: tuple[float, ...]) -> Scalar:
    """coefficients[0] + coefficients[1] x + ..., Horner's way."""
    total = constant(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def bits_of(x: Scalar) -> Scalar:
    return bitcast(x, LAYOUTS[x.dtype].integer)


def either(condition: Scalar, a: float, b: float, dtype: str) -> Scalar:
    return where(condition, constant(a, dtype), b)


def at_most(x: Scalar, limit: float) -> Scalar:
    """NaN stays, and on x86 it is one instruction, which minimum is not."""
    return where(x > limit, limit, x)


def at_least(x: Scalar, limit: float) -> Scalar:
    return where(x < limit, limit, x)


def nearest(x: Scalar, factor: float) -> tuple[Scalar, Scalar]:
    """rint(factor x) as a number, and as an integer with other upper bits. It must be below 2^22, 2^51."""
    layout = LAYOUTS[x.dtype]
    shifted = fma(x, factor, layout.magic)
    return shifted - layout.magic, bitcast(shifted, layout.integer)


def power_of_two(n: Scalar, dtype: str) -> Scalar:
    """2^n for an integer n of the type's normal range."""
    layout = LAYOUTS[dtype]
    return bitcast((n + layout.bias) << layout.fraction, dtype)


def factors(n: Scalar, below: Scalar | bool, dtype: str) -> tuple[Scalar, Scalar]:
    """Two numbers of the type whose product is 2^n, which may be none; below: n <= 0, else n >= 0.

    The first is one of two constants, so (1 + p) times it is a number near 1 with another exponent: exact.
    """
    layout = LAYOUTS[dtype]
    up = layout.fraction + 2
    if isinstance(below, bool):
        below = constant(below, "bool")
    first = where(below, constant(2.0**-up, dtype), 2.0)
    bias = where(
        below, constant((layout.bias + up) << layout.fraction, n.dtype), (layout.bias - 1) << layout.fraction
    )
    return first, bitcast((n << layout.fraction) + bias, dtype)


def quotient(a: Scalar, b: Scalar, b_low: Scalar) -> Scalar:
    """a / (b + b_low), rounded nearly once, where b_low is what the rounding of b left out."""
    inverse = 1 / b
    y = a * inverse
    return fma(fma(-y, b_low, fma(-y, b, a)), inverse, y)
