"""Random numbers as expressions: what native/storage/random.cpp computes, bit for bit, one element at a time.

A source is a key, a stream and an offset; of a draw they are parameters 0 to 2, its reservation. Element i of an array,
in row-major order, takes item i, of 32 or 64 bits. A group of 16 blocks has the lower halves of its blocks, then the
upper ones, of 64 bits each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.expr import scalar as e

__all__ = ["integer", "item32", "item64", "normal", "philox", "place", "reservation", "unit"]

Scalar = e.Scalar
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # and the key's steps: Salmon et al. 2011, table 2
STEPS = (0x9E3779B9, 0xBB67AE85)
LANES = 16  # blocks of a group
MASK = 0xFFFFFFFF
LOG = (
    *(-1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)  # of _log, from the second coefficient on


def _word(value: int) -> Scalar:
    return e.constant(value, "uint64")


def reservation() -> Sequence[Scalar]:
    """The source of a draw's kernel."""
    return [e.parameter(k, "uint64") for k in range(3)]


def philox(position: Scalar, key: Scalar, stream: Scalar) -> list[Scalar]:
    """The four words of the block at a position, each in the lower half of 64 bits."""
    low, half = _word(MASK), _word(32)
    x0, x1, x2, x3 = position & low, position >> half, stream & low, stream >> half
    k0, k1 = key & low, key >> half
    for _ in range(ROUNDS):
        p0, p1 = x0 * _word(MULTIPLIERS[0]), x2 * _word(MULTIPLIERS[1])
        x0, x1, x2, x3 = (p1 >> half) ^ x1 ^ k0, p1 & low, (p0 >> half) ^ x3 ^ k1, p0 & low
        k0, k1 = (k0 + _word(STEPS[0])) & low, (k1 + _word(STEPS[1])) & low
    return [x0, x1, x2, x3]


def _block(half: Scalar, source: Sequence[Scalar]) -> tuple[list[Scalar], Scalar]:
    """The words of the block with this half, and whether it is its upper one; halves are numbered as they come."""
    group, rest = half >> _word(5), half & _word(31)
    key, stream, offset = source
    position = offset + group * _word(LANES) + (rest & _word(LANES - 1))
    return philox(position, key, stream), rest >= _word(LANES)


def item64(number: Scalar, source: Sequence[Scalar] | None = None) -> Scalar:
    """The item of 64 bits with this number, uint64."""
    (x0, x1, x2, x3), is_upper = _block(number, source or reservation())
    low, high = e.where(is_upper, x2, x0), e.where(is_upper, x3, x1)
    return low | high << _word(32)


def item32(number: Scalar, source: Sequence[Scalar] | None = None) -> Scalar:
    """The item of 32 bits with this number, in the lower half of a uint64."""
    (x0, x1, x2, x3), is_upper = _block(number >> _word(1), source or reservation())
    is_odd = (number & _word(1)) == _word(1)
    return e.where(is_odd, e.where(is_upper, x3, x1), e.where(is_upper, x2, x0))


def unit(bits: Scalar, real: str) -> Scalar:
    """Item bits as a number in [0, 1): those of 64 bits as float64, those of 32 as float32."""
    if real == "float64":
        upper = e.bitcast(bits >> _word(12) | _word(0x3FF0000000000000), real) - e.constant(1.0, real)
        return upper + e.bitcast((bits >> _word(11) & _word(1)) * _word(0x3CA0000000000000), real)
    return e.cast(e.cast(bits >> _word(8), "int32"), real) * e.constant(2.0**-24, real)


def integer(bits: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """low + the upper 64 bits of an item of 64 bits times the range, uint64; low, high: int64."""
    first = e.cast(low, "uint64")
    size = e.where(high > low, e.cast(high, "uint64") - first, _word(1))
    mask, half = _word(MASK), _word(32)
    a0, a1, b0, b1 = bits & mask, bits >> half, size & mask, size >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    return first + a1 * b1 + (middle >> half) + (a0 * b1 + (middle & mask) >> half)


def _log(x: Scalar) -> Scalar:
    """ln(x) of a positive normal float32 (Cephes, logf)."""

    def word(value: int) -> Scalar:
        return e.constant(value, "uint32")

    def real(value: float) -> Scalar:
        return e.constant(value, "float32")

    root_of_half = word(0x3F3504F3)
    shifted = e.bitcast(x, "uint32") - root_of_half
    exponent = e.cast(e.bitcast(shifted, "int32") >> e.constant(23, "int32"), "float32")
    y = e.bitcast((shifted & word(0x7FFFFF)) + root_of_half, "float32") - real(1.0)
    z = y * y
    p = real(7.0376836292e-2)
    for coefficient in LOG:
        p = p * y + real(coefficient)
    p = p * y * z + exponent * real(-2.12194440e-4) - real(0.5) * z
    return y + p + exponent * real(0.693359375)


def _turn(bits: Scalar) -> tuple[Scalar, Scalar]:
    """Cosine and sine of bits / 2^32 turns, float32 (Cephes, sinf and cosf); bits: uint32."""

    def word(value: int) -> Scalar:
        return e.constant(value, "uint32")

    def real(value: float) -> Scalar:
        return e.constant(value, "float32")

    quarter = bits + word(1 << 29) >> word(30)
    rest = e.bitcast(bits - (quarter << word(30)), "int32")
    x = e.cast(rest, "float32") * real(2 * math.pi * 2.0**-32)
    z = x * x
    sine = ((real(-1.9515295891e-4) * z + real(8.3321608736e-3)) * z - real(1.6666654611e-1)) * z * x + x
    cosine = (real(2.443315711809948e-5) * z - real(1.388731625493765e-3)) * z + real(4.166664568298827e-2)
    cosine = cosine * z * z - real(0.5) * z + real(1.0)
    s, c = e.bitcast(sine, "uint32"), e.bitcast(cosine, "uint32")
    swap = (s ^ c) & (word(0) - (quarter & word(1)))
    return (
        e.bitcast(c ^ swap ^ ((quarter + word(1) & word(2)) << word(30)), "float32"),
        e.bitcast(s ^ swap ^ ((quarter & word(2)) << word(30)), "float32"),
    )


def normal(number: Scalar, real: str) -> Scalar:
    """The normally distributed number with this number: float32, or float64, which is the processor's to rounding.

    A block has pairs of items, of which the lower halves give radii and the upper ones angles; the group's cosines come
    first, then its sines.
    """
    zero = e.constant(0.0, real)
    if real == "float64":
        half = (number >> _word(5)) * _word(2 * LANES) + (number & _word(LANES - 1))
        (x0, x1, x2, x3), _ = _block(half, reservation())
        u = unit(x0 | x1 << _word(32), real) + e.constant(2.0**-54, real)
        angle = unit(x2 | x3 << _word(32), real) * e.constant(2 * math.pi, real)
        radius = e.call("sqrt", e.maximum(e.constant(-2.0, real) * e.call("log", u), zero))
        is_sine = (number & _word(LANES)) != _word(0)
        return radius * e.where(is_sine, e.call("sin", angle), e.call("cos", angle))
    pair = number & _word(2 * LANES - 1)
    (x0, x1, x2, x3), _ = _block((number >> _word(6)) * _word(2 * LANES) + (pair >> _word(1)), reservation())
    is_odd, is_sine = (pair & _word(1)) == _word(1), (number & _word(2 * LANES)) != _word(0)
    bits = e.cast(e.where(is_odd, x1, x0) >> _word(1), "int32")
    u = (e.cast(bits, real) + e.constant(0.5, real)) * e.constant(2.0**-31, real)
    radius = e.call("sqrt", e.maximum(e.constant(-2.0, real) * _log(u), zero))
    cosine, sine = _turn(e.cast(e.where(is_odd, x3, x2), "uint32"))
    return radius * e.where(is_sine, sine, cosine)


def place(sizes: Sequence[Scalar]) -> Scalar:
    """The number of the loops' position in row-major order, uint64; sizes: int64, of each loop.

    >>> place([e.parameter(0, "int64"), e.parameter(1, "int64")])
    cast[uint64](add(mul(i0, p1), i1))
    """
    if not sizes:
        return _word(0)
    number = e.index(0)
    for d, size in enumerate(sizes[1:], 1):
        number = number * size + e.index(d)
    return e.cast(number, "uint64")
