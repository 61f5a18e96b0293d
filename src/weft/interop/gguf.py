"""GGUF files, as llama.cpp and others write them: metadata with types, and tensors that may be quantized in blocks.

Quantized tensors are read as float32, exactly what their blocks stand for; F16 and BF16 stay as they are.
Source: ggml, docs/gguf.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weft.base.device import as_device
from weft.base.errors import DTypeError
from weft.base.typing import Any
from weft.interop.gguf_blocks import BLOCKS
from weft.interop.source import Cursor, FileSource, open_source, short, size_bytes_of

__all__ = ["load_metadata"]

SIGNATURE = b"GGUF"
MAX_ENTRIES = 10_000_000  # of metadata arrays, tensors
MAX_DEPTH = 4

_PLAIN = {
    0: "float32",
    1: "float16",
    24: "int8",
    25: "int16",
    26: "int32",
    27: "int64",
    28: "float64",
    30: "bfloat16",
}
_NAMES = {  # of types that are not read
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_STEP = 1 << 14  # blocks that are dequantized at a time, so that the numbers in between take little memory


class GGUFEntry(NamedTuple):
    """A tensor of the file; begin: in bytes from the beginning of the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    begin: int


class Header(NamedTuple):
    """What comes before the data."""

    metadata: dict[str, Any]
    entries: list[GGUFEntry]
    data_begin: int


def _text(cursor: Cursor, what: str) -> str:
    return cursor.text(cursor.number("Q", what), what)


def _value(cursor: Cursor, kind: int, key: str, depth: int = 0) -> Any:
    what = f"the value of {short(key)}"
    if kind in _NUMBERS:
        return cursor.number(_NUMBERS[kind], what)
    if kind == _TEXT:
        return _text(cursor, what)
    if kind != _ARRAY or depth > MAX_DEPTH:
        raise cursor.source.fail(f"{what} is of type {kind}, in {depth} arrays")
    part, count = cursor.number("I", what), cursor.number("Q", what)
    if count > min(MAX_ENTRIES, cursor.source.size_bytes):
        raise cursor.source.fail(f"{what} has {count} elements, in {cursor.source.size_bytes} bytes")
    if part in _NUMBERS:
        return list(cursor.numbers(_NUMBERS[part], count, what))
    return [_value(cursor, part, key, depth + 1) for _ in range(count)]


def _header(source: FileSource) -> Header:
    cursor = Cursor(source, len(SIGNATURE))
    version = cursor.number("I", "the version")
    if version not in (2, 3):
        order = ", big endian" if version >= 1 << 16 else ""
        raise source.fail(f"version {version}{order} of GGUF; weft reads 2 and 3, little endian")
    tensors, pairs = cursor.number("Q", "the number of tensors"), cursor.number("Q", "the number of entries")
    if max(tensors, pairs) > min(MAX_ENTRIES, source.size_bytes):
        raise source.fail(f"{tensors} tensors and {pairs} entries, in {source.size_bytes} bytes")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = _text(cursor, "a key")
        metadata[key] = _value(cursor, cursor.number("I", f"the type of {short(key)}"), key)
    entries, names = [], set()
    for _ in range(tensors):
        name = _text(cursor, "the name of a tensor")
        what = f"tensor {short(name)}"
        if name in names:
            raise source.fail(f"{what} is there twice")
        names.add(name)
        ndim = cursor.number("I", what)
        if ndim > 8:
            raise source.fail(f"{what} has {ndim} dimensions")
        shape = tuple(reversed(cursor.numbers("Q", ndim, what)))
        entries.append(GGUFEntry(name, shape, cursor.number("I", what), cursor.number("Q", what)))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise source.fail(f"general.alignment is {short(alignment)}")
    return Header(metadata, entries, -(-cursor.at // alignment) * alignment)


def read(source: FileSource) -> dict[str, Any]:
    """The tensors of a GGUF file by name. Raises FileFormatError, or DTypeError for a type that weft does not read."""
    header = _header(source)
    return {entry.name: _tensor(source, entry, header.data_begin + entry.begin) for entry in header.entries}


def _tensor(source: FileSource, entry: GGUFEntry, begin: int) -> Any:
    what = f"tensor {short(entry.name)}"
    if entry.kind in _PLAIN:
        return source.tensor(begin, entry.shape, _PLAIN[entry.kind], what)
    if entry.kind not in BLOCKS:
        known = ", ".join((*_PLAIN.values(), *(block.name for block in BLOCKS.values())))
        raise DTypeError(
            f"{source.where}: {what} is of type {_NAMES.get(entry.kind, entry.kind)}; weft reads {known}"
        )
    block = BLOCKS[entry.kind]
    size_bytes_of(entry.shape, 4, f"{source.where}: {what}")
    row = entry.shape[-1] if entry.shape else 1
    if row % block.elements:
        raise source.fail(f"{what}: rows of {row} elements, not of whole blocks of {block.elements}")
    count = size_bytes_of(entry.shape, 1, what) // block.elements
    source.require(begin, count * block.size_bytes, what)
    result = np.empty((count, block.elements), np.float32)
    _dequantize(source, begin, what, block.size_bytes, block.values, result)
    return source.tensor_of(result.reshape(entry.shape), "float32", what)


def _dequantize(
    source: FileSource, begin: int, what: str, block_bytes: int, values: Callable[..., Any], result: Any
) -> None:
    """Write what blocks stand for, one row of the result for each."""
    for first in range(0, len(result), _STEP):
        rows = result[first : first + _STEP]
        data = source.read(begin + first * block_bytes, len(rows) * block_bytes, what)
        with np.errstate(all="ignore"):  # scales of a hostile file may be infinite
            rows[...] = values(np.frombuffer(data, np.uint8).reshape(len(rows), block_bytes)).reshape(
                rows.shape
            )


def load_metadata(path: Any) -> dict[str, Any]:
    """The metadata of a GGUF file: texts, numbers, bools, and lists of these, by key.

    Raises FileFormatError for a damaged file, OSError if it cannot be opened.
    Source: ggml, docs/gguf.md.
    """
    with open_source(path, f"load_metadata: {str(path)!r}", as_device("cpu"), False) as source:
        if source.read(0, min(4, source.size_bytes), "the signature") != SIGNATURE:
            raise source.fail("is not a GGUF file")
        return _header(source).metadata
