"""The bytes of a file that may be hostile: every access is checked against the file's size before memory is taken.

Readers of formats take a FileSource and give tensors over a private mapping of the file, or over memory of their own.
"""

from __future__ import annotations

import mmap as memory_map
import os
import reprlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft import _core
from weft.arrays.serialization import (
    FileFormatError,
    check_bools,
    map_privately,
    open_regular,
    read_at,
)
from weft.base.device import Device
from weft.base.dtype import as_dtype
from weft.base.errors import ShapeError
from weft.base.typing import Any
from weft.ops import functions as F

__all__ = [
    "FLOAT8",
    "ITEM_BYTES",
    "Cursor",
    "FileFormatError",
    "FileSource",
    "MemorySource",
    "open_source",
    "short",
    "size_bytes_of",
]

MAX_TENSOR_BYTES = 2**63 - 1
MAX_DIMENSIONS = 64

# Floats of 8 bits have no dtype in weft: they are read as float16, which has all their values.
FLOAT8 = {"float8_e4m3": "e4m3", "float8_e5m2": "e5m2"}
ITEM_BYTES = {
    **{
        name: as_dtype(name).itemsize
        for name in (
            "bool",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "complex64",
            "complex128",
        )
    },
    **dict.fromkeys(FLOAT8, 1),
}

_shortener = reprlib.Repr()
_shortener.maxstring = 120


def short(value: object) -> str:
    """The repr of what a file holds, of bounded length."""
    return _shortener.repr(value)


def size_bytes_of(shape: Sequence[int], item_bytes: int, about: str) -> int:
    """The size of a dense array. Raises FileFormatError, beginning with about, for sizes that no array can have.

    >>> size_bytes_of((2, 3), 4, "x")
    24
    """
    if len(shape) > MAX_DIMENSIONS:
        raise FileFormatError(f"{about}: {len(shape)} dimensions are more than {MAX_DIMENSIONS}")
    size_bytes, has_zero = item_bytes, False
    for n in shape:
        if type(n) is not int or n < 0:
            raise FileFormatError(f"{about}: shape {short(tuple(shape))} is not of integers from 0")
        has_zero |= n == 0
        size_bytes *= n or 1
        if size_bytes > MAX_TENSOR_BYTES:
            raise FileFormatError(
                f"{about}: shape {short(tuple(shape))} is more than {MAX_TENSOR_BYTES} bytes"
            )
    return 0 if has_zero else size_bytes


class FileSource:
    """A regular file that is open for reading. where: how errors begin; device: where tensors go."""

    def __init__(self, fd: int, where: str, device: Device, is_mapped: bool) -> None:
        self.fd, self.where, self.device = fd, where, device
        self.size_bytes = os.fstat(fd).st_size
        self._mapping: memory_map.mmap | bytearray | None = None
        if is_mapped and self.size_bytes:
            self._mapping = map_privately(fd, self.size_bytes)

    def fail(self, fact: str) -> FileFormatError:
        """The error of this file, to be raised."""
        return FileFormatError(f"{self.where}: {fact}")

    def require(self, begin: int, size_bytes: int, what: str) -> None:
        """Raise FileFormatError unless the file has these bytes."""
        if begin < 0 or size_bytes < 0 or begin + size_bytes > self.size_bytes:
            raise self.fail(
                f"{what} takes bytes {short(begin)} to {short(begin + size_bytes)}, of {self.size_bytes}"
            )

    def read(self, begin: int, size_bytes: int, what: str) -> bytes:
        """A copy of these bytes. what: their name in the error."""
        self.require(begin, size_bytes, what)
        return bytes(self.copied(begin, size_bytes))

    def copied(self, begin: int, size_bytes: int) -> memory_map.mmap | bytearray:
        """These bytes, which are there, in memory of their own."""
        return read_at(self.fd, begin, size_bytes, self.where)

    def view(self) -> memoryview:
        """The bytes of the file, as they are used; all of them at once where the file is not mapped."""
        if self._mapping is None:
            self._mapping = read_at(self.fd, 0, self.size_bytes, self.where)
        return memoryview(self._mapping)

    def tensor(self, begin: int, shape: Sequence[int], dtype: str, what: str) -> Any:
        """The tensor whose dense little-endian elements begin there: over the mapping where that is aligned."""
        size_bytes = size_bytes_of(shape, ITEM_BYTES[dtype], f"{self.where}: {what}")
        self.require(begin, size_bytes, what)
        buffer: memory_map.mmap | bytearray
        if self._mapping is not None and begin % ITEM_BYTES[dtype] == 0 and size_bytes:
            buffer, offset = self._mapping, begin
        else:
            buffer, offset = self.copied(begin, size_bytes), 0
        return self.tensor_over(buffer, offset, shape, dtype, what)

    def tensor_over(self, buffer: Any, offset: int, shape: Sequence[int], dtype: str, what: str) -> Any:
        """The tensor over writable memory that holds its elements, on the device."""
        about = f"{self.where}: {what}"
        size_bytes = size_bytes_of(shape, ITEM_BYTES[dtype], about)
        if dtype == "bool":
            check_bools(buffer, offset, size_bytes, about)
        stored = "uint8" if dtype in FLOAT8 else dtype
        try:
            if _core.hides_memory(self.device):
                x = _core.copy_of(
                    _core.tensor_from_buffer(buffer, offset, tuple(shape), stored), stored, self.device
                )
            else:
                x = _core.tensor_from_buffer(buffer, offset, tuple(shape), stored, self.device)
        except ShapeError as error:
            raise FileFormatError(f"{about}: {error}") from error
        return F.from_float8(x, FLOAT8[dtype], "float16") if dtype in FLOAT8 else x

    def tensor_of(self, array: Any, dtype: str, what: str) -> Any:
        """The tensor over a dense NumPy array that nothing else writes; dtype: what its bytes are."""
        memory = memoryview(array).cast("B") if array.size else bytearray()
        return self.tensor_over(memory, 0, array.shape, dtype, what)


class MemorySource(FileSource):
    """Bytes in a file that are as a file of their own, such as an array in a pickle."""

    def __init__(self, data: bytes, where: str, device: Device) -> None:
        self.data, self.where, self.device = data, where, device
        self.size_bytes = len(data)
        self._mapping = None

    def copied(self, begin: int, size_bytes: int) -> bytearray:
        return bytearray(self.data[begin : begin + size_bytes])

    def view(self) -> memoryview:
        return memoryview(self.data)


class Cursor:
    """Reads numbers and texts one after the other from a source, each checked against the file's end."""

    def __init__(self, source: FileSource, at: int = 0) -> None:
        self.source, self.at = source, at

    def take(self, size_bytes: int, what: str) -> bytes:
        """The next bytes."""
        data = self.source.read(self.at, size_bytes, what)
        self.at += size_bytes
        return data

    def number(self, code: str, what: str) -> Any:
        """The next number, little endian; code: as struct has it, such as "I"."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), what))[0]

    def numbers(self, code: str, count: int, what: str) -> tuple[Any, ...]:
        """The next numbers of one kind."""
        item_bytes = struct.calcsize(f"<{code}")
        return struct.unpack(f"<{count}{code}", self.take(count * item_bytes, what))

    def text(self, size_bytes: int, what: str) -> str:
        """The next bytes as UTF-8."""
        begin = self.at
        try:
            return self.take(size_bytes, what).decode()
        except UnicodeDecodeError as error:
            raise self.source.fail(f"{what} is not UTF-8 at byte {begin + error.start}") from None


@contextmanager
def open_source(path: Any, where: str, device: Device, is_mapped: bool = True) -> Iterator[FileSource]:
    """A FileSource on a file; OSError or FileFormatError where there is no regular file."""
    with open_regular(path, where) as fd:
        yield FileSource(fd, where, device, is_mapped)
