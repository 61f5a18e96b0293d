"""Functionalization: represents the content of memory as Values while a program is recorded.

A Storage is a piece of memory and its newest content, a Value whose elements are laid out as `base` says. An array is a
geometry on a storage, so all views of it read and write the same content. Traces record arrays, whose
geometry is that of their memory (weft.recording.launch_recorder); functions that are called with Values have a
ValueStorage for each of them, and a Window for each view (weft.graph.capture).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from weft.base.device import Device
from weft.base.dtype import DType
from weft.graph.inner import stopped
from weft.ops import functions as F
from weft.ops.node import Value
from weft.ops.shapes import is_dense, row_major
from weft.ops.sizes import NeedsSizes
from weft.ops.types import TensorType

__all__ = [
    "Geometry",
    "Overlap",
    "Storage",
    "Storages",
    "ValueStorage",
    "Window",
    "in_memory_order",
]


class Geometry(NamedTuple):
    """The memory layout of an array, as native/bindings/launch_recorder.h gives it.

    serial: of its memory, None if it has none.
    """

    serial: int | None
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: DType
    device: Device
    memory: Any = None  # itself, where it has to be kept alive
    is_stopped: bool = False  # its content has no gradient: x.detach(), or a view made under no_grad

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def type(self) -> TensorType:
        return TensorType(self.shape, self.dtype, self.device)

    def extent(self) -> tuple[int, int]:
        """Addresses of its first byte and of the one behind its last."""
        low = high = 0
        for n, step in zip(self.shape, self.strides, strict=True):
            if n == 0:
                return self.address, self.address
            if step < 0:
                low += (n - 1) * step
            else:
                high += (n - 1) * step
        item = self.dtype.itemsize
        return self.address + low * item, self.address + (high + 1) * item

    @property
    def repeats(self) -> bool:
        """Whether several indices mean one element."""
        return any(n > 1 and step == 0 for n, step in zip(self.shape, self.strides, strict=True))

    def flat(self) -> Geometry:
        """All memory between its first and last element, as one row."""
        first, end = self.extent()
        return self._replace(address=first, shape=((end - first) // self.dtype.itemsize,), strides=(1,))

    def same_window(self, other: Geometry) -> bool:
        """Whether both are the same elements at the same indices; strides of sizes of 1 do not count."""
        return (
            self.address == other.address
            and self.shape == other.shape
            and self.dtype is other.dtype
            and (
                self.strides == other.strides
                or all(
                    n == 1 or a == b for n, a, b in zip(self.shape, self.strides, other.strides, strict=True)
                )
            )
        )


class Overlap(Exception):
    """Arrays share memory in a way that no graph describes."""


class Storage:
    """A piece of memory with a content.

    source: where it came from, for the recorder that made it. version: the number of writes.
    """

    def __init__(self, base: Geometry, value: Value, source: Any = None) -> None:
        self.base, self.value, self.source = base, value, source
        self.first, self.end = base.extent()
        self.is_written, self.version = False, 0

    def contains(self, x: Geometry) -> bool:
        first, end = x.extent()
        return self.first <= first and end <= self.end

    def overlaps(self, x: Geometry) -> bool:
        first, end = x.extent()
        return first < self.end and self.first < end

    def read(self, x: Geometry) -> Value:
        """The content of the window x."""
        if self.is_base(x):
            return self.value
        row = self.row()
        if self.is_all(x):
            sizes, axes = in_memory_order(x)
            return _permuted(_reshaped(row, sizes), axes)
        if (items := self._block(x)) is not None:
            return F.basic_index(self.value, items=items)
        return F.as_strided(row, shape=x.shape, strides=x.strides, offset=self._offset(x))

    def write(self, x: Geometry, value: Value) -> None:
        """Make value, of x's type, the content of the window x."""
        self.is_written = True
        self.version += 1
        if self.is_base(x):
            self.value = value
            return
        if self.is_all(x):
            row = _permuted(value, _inverse(in_memory_order(x)[1]))
        elif (items := self._block(x)) is not None:
            self.value = F.basic_put(self.value, value, items=items)
            return
        else:
            row = F.put_strided(self.row(), value, shape=x.shape, strides=x.strides, offset=self._offset(x))
        sizes, axes = in_memory_order(self.base)
        self.value = _permuted(_reshaped(row, sizes), axes)

    def is_base(self, x: Geometry) -> bool:
        """Whether the window is all of the storage, as base has it."""
        return x.same_window(self.base)

    def row(self) -> Value:
        """The content with its dimensions in memory order."""
        return _permuted(self.value, _inverse(in_memory_order(self.base)[1]))

    def is_all(self, x: Geometry) -> bool:
        """Whether the window has each element of the storage once."""
        return (
            x.size == self.base.size
            and x.dtype is self.base.dtype
            and x.extent() == (self.first, self.end)
            and is_dense(x.shape, x.strides)
        )

    def _block(self, x: Geometry) -> tuple[tuple[int, int, int], ...] | None:
        """The basic key of a window that is a block of base, with its dimensions: (first index, size, 1) for each.

        A view by such a key has the strides of the array that it is of, whichever these are in a program.
        """
        base = self.base
        numbers = (*x.shape, *x.strides, *base.shape, *base.strides, x.address)
        if x.dtype is not base.dtype or len(x.shape) != len(base.shape) or {*map(type, numbers)} != {int}:
            return None
        rest, firsts = self._offset(x), [0] * len(base.shape)
        for d in sorted(range(len(base.shape)), key=lambda d: -base.strides[d]):
            n, whole, step = x.shape[d], base.shape[d], base.strides[d]
            if whole > 1:
                if step < 1 or (n > 1 and x.strides[d] != step):
                    return None
                firsts[d], rest = divmod(rest, step)
            if not 0 < n <= whole - firsts[d]:
                return None
        return None if rest else tuple([(first, n, 1) for first, n in zip(firsts, x.shape, strict=True)])

    def _offset(self, x: Geometry) -> int:
        if x.dtype is not self.base.dtype:
            raise Overlap(f"memory of {self.base.dtype} is looked at as {x.dtype}")
        distance = x.address - self.first
        if distance % x.dtype.itemsize or not self.contains(x):
            raise Overlap("arrays overlap in part")
        return distance // x.dtype.itemsize


class ValueStorage(Storage):
    """The memory of an array that a function of Values was given, captured or made, as if it were row-major from 0 on.

    handle: the Value or the array outside that represents all of it. Its sizes may be symbols. Its windows come from
    view operators, so they are inside. is_row_major: False where the memory has other strides, which are not known:
    then it is not known, either, which reshapes of it are views. is_watched: some window has a content of its own.
    is_stopped: the handle has no gradient, as x.detach().
    """

    def __init__(
        self, handle: Any, value: Value, is_row_major: bool = True, is_stopped: bool = False
    ) -> None:
        self.base = Geometry(None, 0, value.shape, row_major(value.shape), value.dtype, value.device)
        self.handle, self.is_row_major, self.is_stopped = handle, is_row_major, is_stopped
        self.value = self.initial = value
        self.source, self.first, self.is_watched = None, 0, False
        self.is_written, self.version = False, 0

    def reset(self) -> None:
        """Give it the content that it had first."""
        self.value, self.is_written = self.initial, False
        self.version += 1

    def is_base(self, x: Geometry) -> bool:
        """As of any storage; False where it is not known."""
        try:
            return x is self.base or x.same_window(self.base)
        except NeedsSizes:
            return False

    def is_all(self, x: Geometry) -> bool:
        """Whether it is known that the window has each element once: it has as many, and repeats none."""
        try:
            return (
                bool(x.size == self.base.size) and x.dtype is self.base.dtype and is_dense(x.shape, x.strides)
            )
        except NeedsSizes:
            return False

    def _offset(self, x: Geometry) -> Any:
        return x.address // x.dtype.itemsize


class Window:
    """An array of a function of Values: a part of a storage, and its content when the storage had `version`.

    geometry: None where it is not known whether it is a view or a copy, which depends on strides. is_stopped: its
    content has no gradient, as that of x.detach().
    """

    __slots__ = ("geometry", "handle", "is_stopped", "storage", "value", "version")

    def __init__(
        self,
        handle: Any,
        storage: ValueStorage,
        geometry: Geometry | None,
        value: Value | None = None,
        is_stopped: bool = False,
    ) -> None:
        self.handle, self.storage, self.geometry = handle, storage, geometry
        self.value, self.is_stopped = value, is_stopped
        self.version = -1 if value is None else storage.version

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the storage, in the storage's shape."""
        return self.geometry is self.storage.base

    def read(self) -> Value:
        """Its content. Raises Overlap where that is not known."""
        if self.value is None or self.version != self.storage.version:
            if self.geometry is None:
                raise Overlap(
                    "an array was written of which another one is a reshape, a view or a copy of it, as strides have it"
                )
            value = self.storage.read(self.geometry)
            self.value, self.version = stopped(value) if self.is_stopped else value, self.storage.version
        return self.value

    def write(self, content: Value) -> None:
        """Make content, of its type, the window's. Raises Overlap as read."""
        if self.geometry is None:
            raise Overlap(
                "an array is written that is a reshape of another one, a view or a copy, as strides have it"
            )
        self.storage.write(self.geometry, content)


class Storages:
    """All memory that a program uses."""

    def __init__(self) -> None:
        self._by_serial: dict[int, list[Storage]] = {}

    def __iter__(self) -> Iterator[Storage]:
        return (storage for storages in self._by_serial.values() for storage in storages)

    def find(self, x: Geometry) -> Storage | None:
        """The storage that the window is in; raises Overlap if it is there in part."""
        for storage in self._by_serial.get(x.serial or 0, ()):
            if storage.contains(x):
                return storage
            if storage.overlaps(x):
                raise Overlap("arrays that share memory in part were met one after the other")
        return None

    def add(self, x: Geometry, value: Value, source: Any = None) -> Storage:
        """A storage of just this window, which has to be dense or flat."""
        storage = Storage(x, value, source)
        self._by_serial.setdefault(x.serial or 0, []).append(storage)
        return storage


def in_memory_order(x: Geometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of a dense window in memory order, and the axes that permute them to those of x.

    >>> from weft.base.device import cpu
    >>> from weft.base.dtype import float32
    >>> in_memory_order(Geometry(1, 0, (2, 3, 4), (12, 1, 3), float32, cpu(0)))
    ((2, 4, 3), (0, 2, 1))
    """
    order = sorted(range(len(x.shape)), key=lambda d: (-x.strides[d], d) if x.shape[d] != 1 else (0, d))
    # Sizes of 1 stay at their indices, as far as the others let them.
    rest = iter([d for d in order if x.shape[d] != 1])
    order = [d if n == 1 else next(rest) for d, n in enumerate(x.shape)]
    return tuple(x.shape[d] for d in order), _inverse(order)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(order)
    for position, axis in enumerate(order):
        inverse[axis] = position
    return tuple(inverse)


def _permuted(x: Value, axes: tuple[int, ...]) -> Value:
    return x if axes == tuple(range(len(axes))) else F.permute_dims(x, axes=axes)


def _reshaped(x: Value, shape: Sequence[int]) -> Value:
    return x if x.shape == tuple(shape) else F.reshape(x, shape=tuple(shape))
