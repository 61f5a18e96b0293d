"""Where values are: buffers, and views of them. Geometry in elements, of ints or of Sizes.

>>> from weft.base.dtype import float32
>>> from weft.ops.types import TensorType
>>> whole = Buffer(TensorType((2, 3), float32), (3, 1)).whole()
>>> whole.view((3, 2), (1, 3)).is_whole, whole.is_whole
(False, True)
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.typing import Any
from weft.ops.shapes import row_major
from weft.ops.types import TensorType

__all__ = [
    "Buffer",
    "BufferView",
    "channels_last",
    "is_one",
    "is_repeated",
    "is_row_major",
    "like_strides",
    "row_major",
    "same",
    "same_shape",
]


class Buffer:
    """Memory of one array: an input's, an output's, or temporary space.

    number: the array's index among the program's inputs, -1 if it is none. like: the index of the input whose shape it
    has, and whose order in memory it takes where strides are not known when planning; -1: none. output: it leaves the
    program.
    kept: its content is computed by hoisted steps, and stays from run to run (executor/preparation.py).
    flexible: its strides do not matter to its writers and readers, which all are loops. in_parts: several steps
    write it. within: the output in whose memory it is, None if it has memory of its own.
    """

    __slots__ = ("flexible", "in_parts", "kept", "like", "number", "output", "strides", "type", "within")

    def __init__(self, type: TensorType, strides: Sequence[Any], number: int = -1, like: int = -1) -> None:
        self.type, self.strides, self.number, self.like = type, tuple(strides), number, like
        self.output, self.flexible, self.in_parts, self.kept = False, False, False, False
        self.within: Buffer | None = None

    def whole(self) -> BufferView:
        """The view of all of it."""
        return BufferView(self, self.type, self.strides, 0)

    @property
    def is_input(self) -> bool:
        return self.number >= 0

    @property
    def is_temporary(self) -> bool:
        return self.number < 0 and not self.output and not self.kept

    @property
    def size_bytes(self) -> Any:
        return self.type.size * self.type.dtype.itemsize


class BufferView:
    """A strided array in a buffer; offset: of its first element, in elements."""

    __slots__ = ("_key", "buffer", "ndim", "offset", "shape", "strides", "type")

    _key: tuple[Any, ...]

    def __init__(self, buffer: Buffer, type: TensorType, strides: Sequence[Any], offset: Any) -> None:
        self.buffer, self.type, self.strides, self.offset = buffer, type, tuple(strides), offset
        self.shape: tuple[Any, ...] = type.shape
        self.ndim = len(self.shape)

    def view(self, shape: Sequence[Any], strides: Sequence[Any], offset: Any = 0) -> BufferView:
        """A view of the same buffer; offset: from this view's first element."""
        return BufferView(self.buffer, self.type.like(shape), strides, self.offset + offset)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same elements of the same buffer."""
        try:
            return self._key
        except AttributeError:
            numbers: Any = (*self.shape, *self.strides, self.offset)
            if {*map(type, numbers)} != {int}:  # equal Sizes are one object
                numbers = [n if isinstance(n, int) else ("size", id(n)) for n in numbers]
            self._key = (id(self.buffer), *numbers)
            return self._key

    @property
    def is_whole(self) -> bool:
        """Whether it is the buffer as the buffer describes itself."""
        buffer = self.buffer
        return (
            isinstance(self.offset, int)
            and self.offset == 0
            and (self.type is buffer.type or same_shape(self.type.shape, buffer.type.shape))
            and (self.strides is buffer.strides or same_shape(self.strides, buffer.strides))
        )


def same(n: Any, m: Any) -> bool:
    """Whether two sizes are known to be equal."""
    return n is m or (isinstance(n, int) and isinstance(m, int) and n == m)


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are known to be equal."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    for n, m in zip(a, b, strict=True):
        if n is not m and not (isinstance(n, int) and isinstance(m, int) and n == m):
            return False
    return True


def is_one(n: Any) -> bool:
    """Whether a size is known to be 1; a Size that stands for an input's is not."""
    return isinstance(n, int) and n == 1


def is_row_major(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements are contiguous in this order; strides of sizes of 1 do not matter.

    >>> is_row_major((2, 1, 3), (3, 77, 1))
    True
    """
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, row_major(shape), strict=True))


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of images with the logical shape (n, c, ...) whose channels are next to each other.

    >>> channels_last((2, 3, 4, 5))
    (60, 1, 15, 3)
    """
    n, c, *rest = shape
    inner = row_major((n, *rest, c))
    return (inner[0], inner[-1], *inner[1:-1])


def is_repeated(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether a dimension is known to be one element again and again.

    >>> is_repeated((2, 3), (0, 1)), is_repeated((1, 3), (0, 1))
    (True, False)
    """
    return any(isinstance(s, int) and s == 0 and not is_one(n) for n, s in zip(shape, strides, strict=True))


def like_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps in the order of dimensions that others have: what native code gives a new array.

    Where elements are repeated there is no order to take: row-major.

    >>> like_strides((2, 3), (1, 100)), like_strides((2, 1), (7, 7)), like_strides((2, 3), (0, 4))
    ((1, 2), (1, 1), (3, 1))
    """
    if is_row_major(shape, strides) or is_repeated(shape, strides):
        return row_major(shape)
    dense = [0] * len(shape)
    step = 1
    order = sorted(range(len(shape)), key=lambda d: -abs(strides[d]))
    for d in order[::-1]:
        dense[d] = step
        step *= max(shape[d], 1)
    return tuple(dense)
