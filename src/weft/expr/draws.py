"""Random numbers as expressions: what native/storage/random.cpp computes, bit for bit, one element at a time.

A source is a key, a stream and an offset; of a draw they are parameters 0 to 2, its reservation. Element i of an array,
in row-major order, takes item i, of 32 or 64 bits. A group of 16 blocks has the lower halves of its blocks, then the
upper ones, of 64 bits each.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr import scalar as e

__all__ = ["item32", "item64", "place", "reservation"]

Scalar = e.Scalar
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # and the key's steps: Salmon et al. 2011, table 2
STEPS = (0x9E3779B9, 0xBB67AE85)
LANES = 16  # blocks of a group
MASK = 0xFFFFFFFF


def _word(value: int) -> Scalar:
    return e.constant(value, "uint64")


def reservation() -> Sequence[Scalar]:
    """The source of a draw's kernel."""
    return [e.parameter(k, "uint64") for k in range(3)]


def _philox(position: Scalar, key: Scalar, stream: Scalar) -> list[Scalar]:
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
    return _philox(position, key, stream), rest >= _word(LANES)


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
