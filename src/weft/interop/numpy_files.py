"""Arrays of NumPy: files .npy and .npz, and pickles that hold arrays.

Source: NumPy, "NPY format" (NEP 1), numpy.lib.format; .npz is a ZIP archive of .npy files.
"""

from __future__ import annotations

import ast
import math
import re

import numpy as np

from weft.base.errors import DTypeError
from weft.base.typing import Any
from weft.interop.archive import Archive
from weft.interop.pickled import Rebuilt
from weft.interop.source import ITEM_BYTES, FileSource, short, size_bytes_of

__all__ = ["NAMES", "SIGNATURE", "PickledArray", "read_npy", "read_npz"]

SIGNATURE = b"\x93NUMPY"
MAX_HEADER_BYTES = 10_000  # what numpy.load accepts


def dtype_of(text: Any, about: str) -> np.dtype[Any]:
    """The dtype of a description such as "<f4". Raises DTypeError for one that weft does not have."""
    if not isinstance(text, str) or not re.fullmatch(r"[<>|=]?[biufcV?]\d{0,2}", text):
        raise DTypeError(f"{about}: elements of dtype {short(text)}; weft reads {', '.join(ITEM_BYTES)}")
    try:
        dtype = np.dtype(text)
    except TypeError:
        raise DTypeError(f"{about}: elements of dtype {short(text)}, which NumPy does not have") from None
    if dtype.newbyteorder("=").name not in ITEM_BYTES:
        raise DTypeError(f"{about}: elements of dtype {short(text)}; weft reads {', '.join(ITEM_BYTES)}")
    return dtype


def _header(data: bytes, source: FileSource, about: str) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """(dtype, whether columns come first, shape, where the elements begin) of the beginning of an .npy file."""
    if data[:6] != SIGNATURE or len(data) < 10:
        raise source.fail(f"{about} does not begin as an .npy file: {data[:8]!r}")
    length_bytes = {1: 2, 2: 4, 3: 4}.get(data[6])
    if length_bytes is None:
        raise source.fail(f"{about}: version {data[6]} of the .npy format; weft reads 1 to 3")
    begin = 8 + length_bytes
    length = int.from_bytes(data[8:begin], "little")
    if length > MAX_HEADER_BYTES or begin + length > len(data):
        raise source.fail(f"{about}: a header of {length} bytes")
    try:
        header = ast.literal_eval(
            data[begin : begin + length].decode("utf-8" if data[6] == 3 else "latin-1").strip()
        )
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise source.fail(f"{about}: the header is not a dictionary") from None
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        raise source.fail(f"{about}: the header is {short(header)}, not descr, fortran_order, shape")
    shape, by_columns = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not isinstance(by_columns, bool):
        raise source.fail(f"{about}: shape {short(shape)}, fortran_order {short(by_columns)}")
    return dtype_of(header["descr"], f"{source.where}: {about}"), by_columns, shape, begin + length


def array_over(
    data: Any, dtype: np.dtype[Any], by_columns: bool, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """The dense array of these bytes, row-major, in the machine's byte order, in writable memory of its own."""
    array = np.frombuffer(data, dtype, math.prod(shape))
    array = array.reshape(shape, order="F" if by_columns else "C")
    return np.array(array, dtype.newbyteorder("="), order="C")


def read_npy(source: FileSource) -> Any:
    """The tensor of an .npy file."""
    beginning = source.read(0, min(source.size_bytes, MAX_HEADER_BYTES + 16), "the header")
    dtype, by_columns, shape, begin = _header(beginning, source, "the array")
    size_bytes = size_bytes_of(shape, dtype.itemsize, f"{source.where}: the array")
    if begin + size_bytes != source.size_bytes:
        raise source.fail(f"{size_bytes} bytes of elements behind byte {begin}, of {source.size_bytes}")
    if not by_columns and dtype.isnative:
        return source.tensor(begin, shape, dtype.name, "the array")
    data = source.read(begin, size_bytes, "the array")
    array = array_over(data, dtype, by_columns, shape)
    return source.tensor_of(array, array.dtype.name, "the array")


def read_npz(archive: Archive) -> dict[str, Any]:
    """The tensors of an .npz file, by name."""
    source, tensors = archive.source, {}
    for member in archive.members.values():
        name = member.name.removesuffix(".npy")
        about = f"array {short(name)}"
        dtype, by_columns, shape, begin = _header(archive.read(member, MAX_HEADER_BYTES + 16), source, about)
        size_bytes = size_bytes_of(shape, dtype.itemsize, f"{source.where}: {about}")
        if begin + size_bytes != member.size_bytes:
            raise source.fail(
                f"{about}: {size_bytes} bytes of elements behind byte {begin}, of {member.size_bytes}"
            )
        if member.is_stored and not by_columns and dtype.isnative:
            tensors[name] = source.tensor(archive.begin_of(member) + begin, shape, dtype.name, about)
        else:
            data = memoryview(archive.read(member))[begin:]
            array = array_over(data, dtype, by_columns, shape)
            tensors[name] = source.tensor_of(array, array.dtype.name, about)
    return tensors


# ---- Arrays in pickles -----------------------------------------------------------------------------------------------


class PickledDtype(Rebuilt):
    """numpy.dtype in a pickle: a code such as "f4", and a state that has the byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = code, "|"

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise ValueError(f"state of a dtype: {short(state)}")
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        code = self.code.lstrip("<>|=") if isinstance(self.code, str) else self.code
        return dtype_of(f"{self.order}{code}", "pickle")


class PickledArray(Rebuilt):
    """numpy.ndarray in a pickle."""

    def __init__(self, *_: Any) -> None:
        self.state: tuple[tuple[int, ...], PickledDtype, bool, Any] | None = None

    def set_state(self, state: Any) -> None:
        match state:
            case (
                _,
                tuple() as shape,
                PickledDtype() as dtype,
                bool() | int() as by_columns,
                bytes() | str() as data,
            ):
                # Python 2 wrote bytes as text
                self.state = (
                    shape,
                    dtype,
                    bool(by_columns),
                    data if isinstance(data, bytes) else data.encode("latin-1"),
                )
            case _:
                raise ValueError(
                    "state of an array: neither shape, dtype and bytes; arrays of objects are not read"
                )

    def array(self, source: FileSource) -> np.ndarray[Any, Any]:
        """The array, in memory of its own. Raises FileFormatError."""
        if self.state is None:
            raise source.fail("an array of a pickle without elements")
        shape, pickled, by_columns, data = self.state
        dtype = pickled.dtype()
        size_bytes = size_bytes_of(shape, dtype.itemsize, f"{source.where}: an array")
        if size_bytes != len(data):
            raise source.fail(f"an array of a pickle: shape {short(shape)} of {dtype} in {len(data)} bytes")
        return array_over(data, dtype, by_columns, shape)


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    array = PickledArray()
    array.set_state((1, shape, dtype, order == "F", bytes(data)))
    return array


def _scalar(dtype: Any, data: Any) -> Any:
    kind = dtype.dtype() if isinstance(dtype, PickledDtype) else None
    data = data.encode("latin-1") if isinstance(data, str) else data
    if kind is None or len(data) != kind.itemsize:
        raise ValueError("a number of NumPy in the wrong number of bytes")
    return np.frombuffer(data, kind)[0].item()


NAMES: dict[str, Any] = {"numpy.ndarray": "ndarray", "numpy.dtype": PickledDtype}
for _core_name in ("numpy.core", "numpy._core"):
    NAMES |= {
        f"{_core_name}.multiarray._reconstruct": PickledArray,
        f"{_core_name}.multiarray.scalar": _scalar,
        f"{_core_name}.numeric._frombuffer": _from_buffer,
    }
