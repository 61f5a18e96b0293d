"""Pieces of arrays: which part of an array is on which parameter server."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.kvstore.base import Key

__all__ = ["DIVIDE_FROM", "Piece", "pieces_of"]

DIVIDE_FROM = 1_000_000  # elements; larger arrays are divided among all servers


class Piece:
    """Rows begin..end of an array, or elements of it flattened, on a server. whole: all of it, in its own shape."""

    def __init__(self, server: int, begin: int, end: int, by_rows: bool, whole: bool) -> None:
        self.server, self.begin, self.end, self.by_rows, self.whole = server, begin, end, by_rows, whole

    def of(self, array: Any) -> Any:
        """The part of a NumPy array; a view if the array is dense."""
        if self.whole:
            return array
        return array[self.begin : self.end] if self.by_rows else array.reshape(-1)[self.begin : self.end]

    def write(self, arrays: Sequence[Any], content: Any) -> None:
        """Write the part of some NumPy arrays."""
        for y in arrays:
            if self.whole or self.by_rows or y.flags.c_contiguous:
                self.of(y)[...] = content
            else:
                y[np.unravel_index(np.arange(self.begin, self.end), y.shape)] = content

    def __repr__(self) -> str:
        return f"Piece({self.server}, {self.begin}:{self.end})"


def pieces_of(key: Key, shape: Sequence[int], servers: int, big: int = DIVIDE_FROM) -> list[Piece]:
    """The pieces of an array: all on the server of its key below `big` elements, else a part on each server.

    >>> pieces_of("w", (4,), 3), pieces_of("w", (4, 2), 3, big=8)
    ([Piece(0, 0:4)], [Piece(0, 0:1), Piece(1, 1:3), Piece(2, 3:4)])
    """
    size = int(np.prod(shape, dtype="int64"))
    if servers == 1 or size < big:
        number = key * 9973 if isinstance(key, int) else zlib.crc32(key.encode())
        return [Piece(number % servers, 0, shape[0] if shape else 1, True, True)]
    by_rows = len(shape) > 1 and shape[0] >= servers
    n = shape[0] if by_rows else size
    ends = [round(n / servers * k) for k in range(servers + 1)]
    return [Piece(k, ends[k], ends[k + 1], by_rows, False) for k in range(servers) if ends[k] < ends[k + 1]]
