"""What the blocks of quantized GGUF tensors stand for: a table of types, each with one function on all blocks at once.

A block is some bytes: float16 scales, and small integers with 2 to 8 bits. A function takes uint8[blocks, bytes] and
gives float32[blocks, elements] (in some shape of as many elements).
Source: ggml, ggml-quants.c (the functions dequantize_row_*), and ggml-common.h (the layouts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BLOCKS", "Block"]

Array = np.ndarray[Any, Any]


class Block(NamedTuple):
    """A type of blocks."""

    name: str
    elements: int
    size_bytes: int
    values: Callable[[Array], Array]


def _parts(blocks: Array, *sizes: int) -> list[Array]:
    """The bytes of blocks in parts of these sizes, the last part the rest."""
    return np.split(blocks, np.cumsum(sizes), axis=1)


def _half(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.float16).astype(np.float32)


def _fields(x: Array, shifts: list[int], group: int, mask: int) -> Array:
    """Bit fields of bytes: of each `group` bytes in a row first the fields at the first shift, then at the next."""
    n = len(x)
    fields = x.reshape(n, -1, 1, group) >> np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return (fields & np.uint8(mask)).reshape(n, -1)


def _high_bits(x: Array) -> Array:
    """The 32 bits of 4 bytes, each as a number."""
    bits = np.ascontiguousarray(x).view(np.uint32) >> np.arange(32, dtype=np.uint32)
    return (bits & 1).astype(np.uint8)


def q4_0(blocks: Array) -> Array:
    scale, quants = _parts(blocks, 2)
    return _half(scale) * (_fields(quants, [0, 4], 16, 15).astype(np.int8) - np.int8(8)).astype(np.float32)


def q4_1(blocks: Array) -> Array:
    scale, least, quants = _parts(blocks, 2, 2)
    return _half(scale) * _fields(quants, [0, 4], 16, 15).astype(np.float32) + _half(least)


def q5_0(blocks: Array) -> Array:
    scale, high, quants = _parts(blocks, 2, 4)
    q = (_fields(quants, [0, 4], 16, 15) | (_high_bits(high) << 4)).astype(np.int8) - np.int8(16)
    return _half(scale) * q.astype(np.float32)


def q5_1(blocks: Array) -> Array:
    scale, least, high, quants = _parts(blocks, 2, 2, 4)
    q = _fields(quants, [0, 4], 16, 15) | (_high_bits(high) << 4)
    return _half(scale) * q.astype(np.float32) + _half(least)


def q8_0(blocks: Array) -> Array:
    scale, quants = _parts(blocks, 2)
    return _half(scale) * np.ascontiguousarray(quants).view(np.int8).astype(np.float32)


def q2_k(blocks: Array) -> Array:
    scales, quants, scale, least = _parts(blocks, 16, 64, 2)
    n = len(blocks)
    low = (_half(scale) * (scales & 15).astype(np.float32)).reshape(n, 16, 1)
    minimum = (_half(least) * (scales >> 4).astype(np.float32)).reshape(n, 16, 1)
    return low * _fields(quants, [0, 2, 4, 6], 32, 3).reshape(n, 16, 16).astype(np.float32) - minimum


def q3_k(blocks: Array) -> Array:
    high, quants, scales, scale = _parts(blocks, 32, 64, 12)
    n = len(blocks)
    low_bits, high_bits = scales[:, :8], scales[:, 8:]
    six_bits = _fields(low_bits, [0, 4], 8, 15) | (_fields(high_bits, [0, 2, 4, 6], 4, 3) << 4)
    factor = (_half(scale) * (six_bits.astype(np.int8) - np.int8(32)).astype(np.float32)).reshape(n, 16, 1)
    low = _fields(quants, [0, 2, 4, 6], 32, 3)
    missing = _fields(high, list(range(8)), 32, 1) ^ 1
    q = low.astype(np.int8) - (missing << 2).astype(np.int8)
    return factor * q.reshape(n, 16, 16).astype(np.float32)


def _scales_and_minima(scales: Array) -> tuple[Array, Array]:
    """The 8 scales and 8 minima, of 6 bits each, in 12 bytes."""
    d, m, both = (scales[:, at : at + 4] for at in (0, 4, 8))
    scale = np.concatenate([d & 0x3F, (both & 0x0F) | ((d >> 2) & 0x30)], axis=1)
    minimum = np.concatenate([m & 0x3F, (both >> 4) | ((m >> 2) & 0x30)], axis=1)
    return scale.astype(np.float32), minimum.astype(np.float32)


def _k_values(scale: Array, least: Array, scales: Array, q: Array) -> Array:
    n = len(q)
    factors, minima = _scales_and_minima(scales)
    factor, minimum = (_half(scale) * factors).reshape(n, 8, 1), (_half(least) * minima).reshape(n, 8, 1)
    return factor * q.reshape(n, 8, 32).astype(np.float32) - minimum


def q4_k(blocks: Array) -> Array:
    scale, least, scales, quants = _parts(blocks, 2, 2, 12)
    return _k_values(scale, least, scales, _fields(quants, [0, 4], 32, 15))


def q5_k(blocks: Array) -> Array:
    scale, least, scales, high, quants = _parts(blocks, 2, 2, 12, 32)
    q = _fields(quants, [0, 4], 32, 15) | (_fields(high, list(range(8)), 32, 1) << 4)
    return _k_values(scale, least, scales, q)


def q6_k(blocks: Array) -> Array:
    low, high, scales, scale = _parts(blocks, 128, 64, 16)
    n = len(blocks)
    q = _fields(low, [0, 4], 64, 15) | (_fields(high, [0, 2, 4, 6], 32, 3) << 4)
    factor = _half(scale) * np.ascontiguousarray(scales).view(np.int8).astype(np.float32)
    return factor.reshape(n, 16, 1) * (q.astype(np.int8) - np.int8(32)).reshape(n, 16, 16).astype(np.float32)


# The number of a type in the file -> the type.
BLOCKS = {
    2: Block("Q4_0", 32, 18, q4_0),
    3: Block("Q4_1", 32, 20, q4_1),
    6: Block("Q5_0", 32, 22, q5_0),
    7: Block("Q5_1", 32, 24, q5_1),
    8: Block("Q8_0", 32, 34, q8_0),
    10: Block("Q2_K", 256, 84, q2_k),
    11: Block("Q3_K", 256, 110, q3_k),
    12: Block("Q4_K", 256, 144, q4_k),
    13: Block("Q5_K", 256, 176, q5_k),
    14: Block("Q6_K", 256, 210, q6_k),
}
