"""MXNet's files of arrays (.params, mx.nd.save): all versions of the list format, dense and sparse, and writing it.

A file is a magic number, the arrays, and their names. An array of version 1 to 3 begins with a magic number of its own;
one of version 0 begins with its number of dimensions. Sparse arrays are read as dense ones.
Source: Apache MXNet 1.9, src/ndarray/ndarray.cc (NDArray::Save, Load, LegacyLoad); verified against files it wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import numpy as np

from weft.arrays.replacing import replace_file
from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError
from weft.base.typing import Any
from weft.interop.source import ITEM_BYTES, Cursor, FileSource, short, size_bytes_of

__all__ = ["SIGNATURE", "read", "read_array", "save_params"]

SIGNATURE = struct.pack("<Q", 0x112)
_VERSIONS = {0xF993FAC8: 1, 0xF993FAC9: 2, 0xF993FACA: 3}
_DTYPES = {
    0: "float32",
    1: "float64",
    2: "float16",
    3: "uint8",
    4: "int32",
    5: "int8",
    6: "int64",
    7: "bool",
    8: "int16",
    9: "uint16",
    10: "uint32",
    11: "uint64",
    12: "bfloat16",
}
_CODES = {name: code for code, name in _DTYPES.items()}
_DENSE, _ROW_SPARSE, _CSR = 0, 1, 2
_AUXILIARY = {_ROW_SPARSE: 1, _CSR: 2}
MAX_SPARSE_EXPANSION = 1 << 31  # bytes of a dense array that a sparse one may become


class _Reader(Cursor):
    """Reads arrays, one after the other."""

    def shape(self, what: str, code: str = "q") -> tuple[int, ...]:
        ndim = self.number("i", what)
        if not 0 <= ndim <= 64:
            raise self.source.fail(f"{what} has {ndim} dimensions, byte {self.at - 4}")
        return self.numbers(code, ndim, what)

    def dtype(self, what: str) -> str:
        code = self.number("i", what)
        if code not in _DTYPES:
            raise DTypeError(f"{self.source.where}: {what} is of dtype {code}; MXNet has {sorted(_DTYPES)}")
        return _DTYPES[code]

    def context(self, what: str) -> None:
        """The device: its kind and index, which are not used."""
        self.numbers("i", 2, what)

    def array(self, what: str) -> Any:
        """The next array; None for one that has no elements yet."""
        first = self.number("I", what)
        version = _VERSIONS.get(first, 0)
        if not version and first > 64:
            raise self.source.fail(
                f"{what} begins with {first:#x}, no version of an array, byte {self.at - 4}"
            )
        storage = self.number("i", what) if version >= 2 else _DENSE
        if storage not in (_DENSE, *_AUXILIARY):
            raise self.source.fail(f"{what} has storage {storage}, byte {self.at - 4}")
        stored_shape = self.shape(what) if storage != _DENSE else ()
        shape = self.shape(what) if version else self.numbers("I", first, what)
        if not shape and version < 3:  # an array without a shape yet
            return None
        self.context(what)
        dtype = self.dtype(what)
        if storage == _DENSE:
            x = self.source.tensor(self.at, shape, dtype, what)
            self.at += size_bytes_of(shape, ITEM_BYTES[dtype], what)
            return x
        return self.sparse(storage, stored_shape, shape, dtype, what)

    def sparse(
        self, storage: int, stored_shape: tuple[int, ...], shape: tuple[int, ...], dtype: str, what: str
    ) -> Any:
        """The dense array of a sparse one."""
        described = [(self.dtype(what), self.shape(what)) for _ in range(_AUXILIARY[storage])]
        values = self.part(dtype, stored_shape, what)
        if any(name not in ("int32", "int64") for name, _ in described):
            raise self.source.fail(f"{what} has indices of {', '.join(name for name, _ in described)}")
        indices = [self.part(name, sizes, f"indices of {what}") for name, sizes in described]
        about = f"{self.source.where}: {what}"
        size_bytes = size_bytes_of(shape, ITEM_BYTES[dtype], about)
        if size_bytes > MAX_SPARSE_EXPANSION:
            raise self.source.fail(
                f"{what} takes {size_bytes} bytes as a dense array, more than {MAX_SPARSE_EXPANSION}"
            )
        dense = np.zeros(shape, values.dtype)
        if storage == _ROW_SPARSE:
            (rows,) = indices
            if rows.shape != values.shape[:1] or values.shape[1:] != shape[1:] or _outside(rows, shape[0]):
                raise self.source.fail(f"{what}: rows {values.shape} at {rows.shape} indices of {shape}")
            dense[rows] = values
        else:
            row_ends, columns = indices
            is_whole = len(shape) == 2 and row_ends.shape == (shape[0] + 1,) and columns.shape == values.shape
            if not is_whole or values.ndim != 1:
                raise self.source.fail(
                    f"{what}: {values.shape} elements at {columns.shape} columns of {shape}"
                )
            counts = np.diff(row_ends.astype(np.int64))
            if (
                row_ends[0] != 0
                or row_ends[-1] != len(values)
                or (counts < 0).any()
                or _outside(columns, shape[1])
            ):
                raise self.source.fail(f"{what}: ends of rows or columns are outside of {shape}")
            dense[np.repeat(np.arange(shape[0]), counts), columns] = values
        return self.source.tensor_of(dense, dtype, what)

    def part(self, dtype: str, shape: tuple[int, ...], what: str) -> np.ndarray[Any, Any]:
        """A dense part of a sparse array; bfloat16 as its bits."""
        size_bytes = size_bytes_of(shape, ITEM_BYTES[dtype], f"{self.source.where}: {what}")
        kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        return np.frombuffer(self.take(size_bytes, what), kind).reshape(shape)


def _outside(indices: np.ndarray[Any, Any], size: int) -> bool:
    return bool(((indices < 0) | (indices >= size)).any())


def read_array(source: FileSource) -> Any:
    """The one array that a source is, without names: what NDArray pickles as."""
    reader = _Reader(source)
    x = reader.array("the array")
    if x is None or reader.at != source.size_bytes:
        raise source.fail(f"an array ends at byte {reader.at} of {source.size_bytes}")
    return x


def read(source: FileSource) -> Any:
    """The arrays of a file, by name; a list if it has no names."""
    reader = _Reader(source, len(SIGNATURE))
    reader.number("Q", "the reserved number")
    count = reader.number("Q", "the number of arrays")
    if count > source.size_bytes // 4:
        raise source.fail(f"{count} arrays, in {source.size_bytes} bytes")
    arrays = [reader.array(f"array {k}") for k in range(count)]
    names_count = reader.number("Q", "the number of names")
    if names_count not in (0, count):
        raise source.fail(f"{names_count} names of {count} arrays, byte {reader.at - 8}")
    names = [reader.text(reader.number("Q", f"name {k}"), f"name {k}") for k in range(names_count)]
    if reader.at != source.size_bytes:
        raise source.fail(f"{source.size_bytes - reader.at} bytes behind the names, at byte {reader.at}")
    if missing := [k for k, x in enumerate(arrays) if x is None]:
        name = names[missing[0]] if names else missing[0]
        raise source.fail(f"array {short(name)} has no shape: it was saved before it was initialized")
    if not names:
        return arrays
    if len(set(names)) != len(names):
        raise source.fail("two arrays of one name")
    return dict(zip(names, arrays, strict=True))


def save_params(path: Any, arrays: Mapping[str, Any]) -> None:
    """Write tensors as MXNet's mx.nd.save does, which replaces what was at path in one step.

    arrays: by name; a name of a symbol's file begins with "arg:" or "aux:". Raises DTypeError for complex numbers, and
    for bfloat16, which MXNet 1.9 reads on some processors only; ValueError for arrays without dimensions, which its
    files have not. Source: Apache MXNet 1.9, src/ndarray/ndarray.cc.

    >>> import tempfile, weft as wf
    >>> from weft.interop import mxnet
    >>> with tempfile.NamedTemporaryFile(suffix=".params") as file:
    ...     mxnet.save_params(file.name, {"arg:w": wf.ones((2, 2))})
    ...     {name: x.shape for name, x in wf.load(file.name).items()}
    {'arg:w': (2, 2)}
    """
    for name, x in arrays.items():
        if x.dtype.name not in _CODES or x.dtype.name == "bfloat16":
            raise DTypeError(f"save_params: {short(name)} is {x.dtype}; the files hold {', '.join(_CODES)}")
        if x.ndim == 0 or 0 in x.shape:
            raise ValueError(
                f"save_params: {short(name)} has shape {x.shape}; the files hold arrays with elements"
            )
    replace_file(path, _chunks(arrays))


def _chunks(arrays: Mapping[str, Any]) -> Iterator[Any]:
    yield SIGNATURE + struct.pack("<QQ", 0, len(arrays))
    for x in arrays.values():
        head = struct.pack("<IiI", 0xF993FAC9, _DENSE, x.ndim) + struct.pack(f"<{x.ndim}q", *x.shape)
        yield head + struct.pack("<iii", 1, 0, _CODES[as_dtype(x.dtype).name])  # 1, 0: the first processor
        yield x.contiguous().memory()
    yield struct.pack("<Q", len(arrays))
    for name in arrays:
        text = name.encode()
        yield struct.pack("<Q", len(text)) + text
