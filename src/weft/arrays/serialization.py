"""Tensors in files: the safetensors format, replaced atomically, loaded by mapping.

A file is the header's length (8 bytes, little endian), the header (JSON in UTF-8, padded with spaces), and the bytes
of the tensors: dense, row-major, little endian, one after the other without holes. Nothing in it is ever executed.
Source: https://github.com/huggingface/safetensors (Format). The upper part of this module has bytes, descriptors and
names of types; save, load_safetensors (weft.load of this format) and load_metadata, at the end, know tensors.
"""

from __future__ import annotations

import importlib
import json
import math
import mmap as memory_map
import os
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from weft import _core
from weft.arrays.creation import host_of
from weft.arrays.replacing import replace_file
from weft.arrays.tensor import Tensor
from weft.base.device import Device, as_device
from weft.base.errors import DTypeError, ShapeError
from weft.ops import functions as F

__all__ = ["FileFormatError", "load_metadata", "save"]

MAX_HEADER_BYTES = 100_000_000  # what other readers of the format accept
DATA_ALIGNMENT_BYTES = 64  # of the first tensor in the file, and so in a mapping of it
MAX_TENSOR_BYTES = 2**63 - 1  # strides are int64
METADATA = "__metadata__"
STRUCTURE = "weft.structure"  # the key of the metadata that says how lists and dictionaries held the tensors
PAIRS = (
    "weft.complex128"  # the key of the metadata that names float64 tensors [..., 2] that are complex128 [...]
)
SPARSE = {
    "csr": "weft.sparse.csr",
    "row_sparse": "weft.sparse.csr",
}  # kinds of storage, and who makes arrays of them
MAX_DEPTH = 32
MAX_STRUCTURE_BYTES = 50_000_000

_CODE_AND_BYTES = {
    "bool": ("BOOL", 1),
    "int8": ("I8", 1),
    "int16": ("I16", 2),
    "int32": ("I32", 4),
    "int64": ("I64", 8),
    "uint8": ("U8", 1),
    "uint16": ("U16", 2),
    "uint32": ("U32", 4),
    "uint64": ("U64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
}
# Floats of 8 bits have no dtype in weft: they are read as float16, which has all their values.
_FLOAT8 = {"F8_E4M3": "e4m3", "F8_E5M2": "e5m2"}
_DTYPE_OF_CODE = {code: dtype for dtype, (code, _) in _CODE_AND_BYTES.items()} | {
    code: code for code in _FLOAT8
}

Bytes = bytes | bytearray | memoryview | memory_map.mmap

_shortener = reprlib.Repr()  # bounds the text of what a file holds, however long or deep
_shortener.maxstring = 120
_short = _shortener.repr


class FileFormatError(ValueError):
    """A file is not what it has to be: truncated, corrupt, or of another format.

    >>> raise FileFormatError("load: 'model.safetensors': 5 bytes are too few for a header")
    Traceback (most recent call last):
        ...
    weft.arrays.serialization.FileFormatError: load: 'model.safetensors': 5 bytes are too few for a header
    """


class Entry(NamedTuple):
    """One tensor of a file: begin is in bytes from the end of the header. dtype: weft's, or the code of a float8."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int

    @property
    def item_bytes(self) -> int:
        if self.dtype in _FLOAT8:
            return 1
        return 16 if self.dtype == "complex128" else _CODE_AND_BYTES[self.dtype][1]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes

    @property
    def end(self) -> int:
        return self.begin + self.size_bytes


# ---- The header, from entries to bytes and back ----------------------------------------------------------------------


def lay_out(described: Iterable[tuple[str, str, Sequence[int]]]) -> list[Entry]:
    """Entries for (name, dtype, shape), in the order of the file: large elements first, then by name.

    That order leaves no holes and aligns every tensor to its element size.
    Raises DTypeError for a dtype that the format does not hold.

    >>> entries = lay_out([("a", "int8", [3]), ("b", "float32", [2]), ("c", "float32", [])])
    >>> [(entry.name, entry.begin) for entry in entries]
    [('b', 0), ('c', 8), ('a', 12)]
    """
    described = list(described)
    for name, dtype, _ in described:
        if dtype not in _CODE_AND_BYTES:
            raise DTypeError(f"save: tensor {name!r} is {dtype}; files hold {', '.join(_CODE_AND_BYTES)}")
    entries: list[Entry] = []
    begin = 0
    for name, dtype, shape in sorted(described, key=lambda each: (-_CODE_AND_BYTES[each[1]][1], each[0])):
        entries.append(Entry(name, dtype, tuple(shape), begin))
        begin = entries[-1].end
    return entries


def build_header(entries: Iterable[Entry], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file: length and header, padded to a multiple of 64.

    Raises ValueError if a name or text is not valid Unicode, or if it all exceeds 100 MB.

    >>> build_header([Entry("x", "int8", (3,), 0)], {})
    b'8\\x00\\x00\\x00\\x00\\x00\\x00\\x00{"x":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}}    '
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for entry in entries:
        code = _CODE_AND_BYTES[entry.dtype][0]
        header[entry.name] = {"dtype": code, "shape": entry.shape, "data_offsets": (entry.begin, entry.end)}
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"save: a lone surrogate in {_short(error.object[: error.end][-40:])}") from None
    text += b" " * (-(8 + len(text)) % DATA_ALIGNMENT_BYTES)
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(f"save: names and metadata take {len(text)} bytes, more than {MAX_HEADER_BYTES}")
    return len(text).to_bytes(8, "little") + text


def parse_header(text: bytes, where: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What the header says: (name -> unchecked description, metadata).

    Raises FileFormatError, beginning with where, unless it is a JSON object without duplicate keys whose
    "__metadata__", if any, maps text to text.

    >>> parse_header(b'{"__metadata__":{"step":"7"},"x":{}}', "load")
    ({'x': {}}, {'step': '7'})
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            keys: set[str] = set()
            twice = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
            raise FileFormatError(f"{where}: the header has the key {_short(twice)} twice")
        return members

    if not text.startswith(b"{"):
        raise FileFormatError(f"{where}: the header is not a JSON object, it begins with {text[:8]!r}")
    try:
        header: dict[str, Any] = json.loads(text.decode(), object_pairs_hook=distinct)
    except FileFormatError:
        raise
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{where}: the header is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise FileFormatError(f"{where}: the header is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, and an integer of too many digits
        raise FileFormatError(f"{where}: the header is not JSON: {error}") from None
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict):
        raise FileFormatError(f"{where}: {METADATA} is {_short(metadata)}, not an object")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise FileFormatError(f"{where}: {METADATA} has {_short(value)} at {_short(key)}, not text")
    for each in (*header, *metadata, *metadata.values()):
        if not _is_unicode(each):
            raise FileFormatError(f"{where}: the header has a lone surrogate in {_short(each)}")
    return header, metadata


def parse_entries(header: Mapping[str, Any], data_bytes: int, where: str) -> list[Entry]:
    """The entries of a header, in the order of their data, which cover data_bytes exactly.

    Raises FileFormatError, beginning with where, if a description is malformed or if the data has holes, overlaps or
    another size; DTypeError for an element type that weft does not have.
    """
    ranges = [_parse_entry(name, described, where) for name, described in header.items()]
    ranges.sort(key=lambda each: (each[0].begin, each[1]))
    expected = 0
    for entry, end in ranges:
        if entry.begin != expected:
            fault = "overlaps the one before" if entry.begin < expected else "leaves a hole"
            raise FileFormatError(
                f"{where}: tensor {_short(entry.name)} begins at {_short(entry.begin)}, not {expected}: {fault}"
            )
        if end > data_bytes:
            raise FileFormatError(
                f"{where}: tensor {_short(entry.name)} ends at {_short(end)}, of {data_bytes} bytes of data"
            )
        expected = end
    if expected != data_bytes:
        raise FileFormatError(f"{where}: the tensors take {expected} of {data_bytes} bytes of data")
    return [entry for entry, _ in ranges]


def _parse_entry(name: str, described: Any, where: str) -> tuple[Entry, int]:
    """One entry and the end it claims."""

    def subject() -> str:
        return f"{where}: tensor {_short(name)}"

    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(
            f"{subject()} has {_short(described)}, not exactly the keys dtype, shape, data_offsets"
        )
    code, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(code, str):
        raise FileFormatError(f"{subject()} has dtype {_short(code)}, not text")
    if not _are_sizes(shape):
        raise FileFormatError(f"{subject()} has shape {_short(shape)}, not integers from 0")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FileFormatError(f"{subject()} has data_offsets {_short(offsets)}, not [begin, end]")
    if code not in _DTYPE_OF_CODE:
        raise DTypeError(f"{subject()} is {_short(code)}; weft reads {', '.join(_DTYPE_OF_CODE)}")
    dtype = _DTYPE_OF_CODE[code]
    bytes_ = Entry(name, dtype, (), 0).item_bytes
    for size in shape:  # zeros left out, as strides are
        bytes_ *= size or 1
        if bytes_ > MAX_TENSOR_BYTES:  # at once: the product of a long shape would take very long
            raise FileFormatError(
                f"{subject()} has shape {_short(shape)}, more than {MAX_TENSOR_BYTES} bytes"
            )
    entry = Entry(name, dtype, tuple(shape), offsets[0])
    if entry.end != offsets[1]:
        raise FileFormatError(
            f"{subject()} has data_offsets {_short(offsets)}, but {code}{_short(shape)} takes {entry.size_bytes} bytes"
        )
    return entry, offsets[1]


def _are_sizes(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    for each in value:  # noqa: SIM110 - of some thousand tensors, `all` takes a tenth of what reading a file does
        if type(each) is not int or each < 0:  # True is not a size
            return False
    return True


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---- Reading ---------------------------------------------------------------------------------------------------------


@contextmanager
def open_regular(path: str | os.PathLike[str], where: str) -> Iterator[int]:
    """The descriptor of a regular file, open for reading; OSError or FileFormatError where there is none."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)  # a pipe or terminal must not block here
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise FileFormatError(f"{where}: {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}")
        yield fd
    finally:
        os.close(fd)


_SIGNATURES = {
    b"PK": "an archive, as torch.save and numpy.savez write",
    b"\x80": "a pickle",
    b"\x93NUMPY": "an array of NumPy",
}


def _beginning(first: bytes) -> str:
    kind = next((kind for signature, kind in _SIGNATURES.items() if first.startswith(signature)), "")
    return f"it begins with {first!r}" + (f", {kind}" if kind else "")


def read_header(fd: int, where: str) -> tuple[bytes, int, int]:
    """(header text, where the data begins, size of the data), the last two in bytes.

    Reads nothing else, and allocates only after the length has proved possible. Raises FileFormatError if it is not.
    """
    file_bytes = os.fstat(fd).st_size
    if file_bytes < 8:
        raise FileFormatError(f"{where}: {file_bytes} bytes are too few for a header")
    length = int.from_bytes(read_at(fd, 0, 8, where), "little")
    if length > MAX_HEADER_BYTES:
        fact = f"a header of {length} bytes is more than {MAX_HEADER_BYTES}"
        raise FileFormatError(
            f"{where}: is not a safetensors file: {_beginning(bytes(read_at(fd, 0, 8, where)))}; {fact}"
        )
    if length > file_bytes - 8:
        raise FileFormatError(f"{where}: a header of {length} bytes in a file of {file_bytes}")
    return bytes(read_at(fd, 8, length, where)), 8 + length, file_bytes - 8 - length


def read_at(fd: int, begin: int, size_bytes: int, where: str) -> memory_map.mmap | bytearray:
    """These bytes of a file in fresh writable memory, aligned for every dtype; FileFormatError if it ends early."""
    if size_bytes < memory_map.PAGESIZE:
        buffer: memory_map.mmap | bytearray = bytearray(size_bytes)
    else:  # pages that are not cleared by hand first, and go back to the system when the tensor goes
        buffer = memory_map.mmap(-1, size_bytes, memory_map.MAP_PRIVATE | memory_map.MAP_ANONYMOUS)
    read_bytes = 0
    with memoryview(buffer) as view:
        while read_bytes < size_bytes:
            with view[read_bytes:] as rest:
                count = os.preadv(fd, [rest], begin + read_bytes)
            if not count:
                raise FileFormatError(
                    f"{where}: the file was cut to {begin + read_bytes} bytes while it was read"
                )
            read_bytes += count
    return buffer


def map_privately(fd: int, size_bytes: int) -> memory_map.mmap:
    """A file mapped copy-on-write; where Python has the flag, one larger than the machine's memory can be, too."""
    flags = memory_map.MAP_PRIVATE | getattr(memory_map, "MAP_NORESERVE", 0)
    return memory_map.mmap(fd, size_bytes, flags, memory_map.PROT_READ | memory_map.PROT_WRITE)


def check_bools(data: Bytes, begin: int, size_bytes: int, about: str) -> None:
    """Raise FileFormatError unless each of these bytes is 0 or 1: compiled code relies on that."""
    step = 1 << 20
    with memoryview(data) as view:
        for at in range(begin, begin + size_bytes, step):
            if bytes(view[at : min(at + step, begin + size_bytes)]).translate(None, b"\0\1"):
                raise FileFormatError(f"{about} is bool and holds bytes other than 0 and 1")


# ---- Tensors ---------------------------------------------------------------------------------------------------------


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any] | Sequence[Any],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors, by name, into one safetensors file, which replaces what was at path in one step.

    tensors: name -> Tensor of any shape, also empty or 0-d; an empty mapping is fine. Waits for pending writes to them.
    Or a list or tuple of tensors; or lists, tuples and dictionaries of these in each other, which load gives back as
    they were. In the file their tensors are named by the way to them, such as "layers.0.weight", and the metadata has
    one key more, "weft.structure"; other readers see a flat file. Views and tensors that share memory are written as
    separate dense ones. In the file, wide element types come first, then names in order. metadata: text -> text, see
    load_metadata. Whatever goes wrong, a full disk or the end of the process included, path holds either its whole
    old content or its whole new one, and when save returns the new one is on disk. The old file's permissions stay;
    symbolic links are followed. Several processes may save to one path: the last wins. A file that is mapped by load
    can be replaced. Raises TypeError for anything but tensors in lists, tuples and dictionaries with text for keys,
    or metadata other than text; DTypeError for a dtype the format lacks; ValueError for the name "__metadata__", for
    two ways of one name, for containers in each other more than 32 deep (or in themselves), or for more than 100 MB
    of names; OSError if path is a folder, a device or write-protected, or the disk is full; and the error of the
    operation that should have computed a tensor. Source: the safetensors format,
    https://github.com/huggingface/safetensors.

    >>> import tempfile, weft as wf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     wf.save(f"{folder}/model.safetensors", {"w": wf.tensor([[1.0, 2.0]]), "b": wf.tensor([3.0])})
    ...     {name: tensor.shape for name, tensor in wf.load(f"{folder}/model.safetensors").items()}
    {'b': (1,), 'w': (1, 2)}
    """
    tensors_by_name, structure = _flattened(tensors)
    texts = dict(_checked_metadata(metadata))
    for key in (STRUCTURE, PAIRS):
        if key in texts:
            raise ValueError(f"save: the metadata {key!r} is save's own")
    if structure is not None:
        texts[STRUCTURE] = structure
    described = {name: (tensor.dtype.name, tuple(tensor.shape)) for name, tensor in tensors_by_name.items()}
    pairs = [name for name, (dtype, _) in described.items() if dtype == "complex128"]
    if pairs:
        texts[PAIRS] = json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))
        described |= {name: ("float64", (*described[name][1], 2)) for name in pairs}
    entries = lay_out((name, *described[name]) for name in described)
    header = build_header(entries, texts)
    replace_file(path, _chunks(header, entries, tensors_by_name))


def load_safetensors(
    path: str | os.PathLike[str], device: Device | str | None = None, mmap: bool = True
) -> Any:
    """What weft.load returns, of a safetensors file; any other is an error. weft.load reads other formats, too.

    Raises FileFormatError (a ValueError) if the file is corrupt, truncated, a folder or of another format; DTypeError
    if it has an element type that weft lacks, such as F8_E8M0; DeviceError for a device that is not; OSError if it
    cannot be opened.
    """
    target = as_device(device)
    where = f"load: {os.fsdecode(path)!r}"
    with open_regular(path, where) as fd:
        text, data_begin, data_bytes = read_header(fd, where)
        header, texts = parse_header(text, where)
        entries = parse_entries(header, data_bytes, where)
        structure = parse_structure(texts.get(STRUCTURE), {entry.name for entry in entries}, where)
        entries = paired(entries, texts.get(PAIRS), where)
        mapped = None
        if mmap and data_bytes:
            mapped = map_privately(fd, data_begin + data_bytes)
        tensors = {entry.name: _tensor(entry, fd, mapped, data_begin, target, where) for entry in entries}
        return tensors if structure is None else _rebuilt(structure, tensors, where)


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The metadata that was given to save, text -> text; empty if there was none. Reads the header only.

    Descriptions of tensors are not looked at, so files with element types that weft lacks are fine.
    Raises FileFormatError (a ValueError) if there is no valid header; OSError if the file cannot be opened.

    >>> import tempfile, weft as wf
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     wf.save(file.name, {}, metadata={"step": "7"})
    ...     wf.load_metadata(file.name)
    {'step': '7'}
    """
    where = f"load_metadata: {os.fsdecode(path)!r}"
    with open_regular(path, where) as fd:
        texts = parse_header(read_header(fd, where)[0], where)[1]
        return {key: text for key, text in texts.items() if key not in (STRUCTURE, PAIRS)}


def paired(entries: Sequence[Entry], text: str | None, where: str) -> list[Entry]:
    """Entries with those as complex128 that a file's metadata names, which the format has no type for.

    Raises FileFormatError, beginning with where, unless these are float64 and end in a size of 2.
    """
    if text is None:
        return list(entries)
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FileFormatError(f"{where}: the metadata {PAIRS!r} is not a list of names")
    waiting, found = set(names), []
    for entry in entries:
        if entry.name in waiting and entry.dtype == "float64" and entry.shape[-1:] == (2,):
            waiting.discard(entry.name)
            entry = Entry(entry.name, "complex128", entry.shape[:-1], entry.begin)
        found.append(entry)
    if waiting:
        raise FileFormatError(
            f"{where}: the metadata {PAIRS!r} names {_short(min(waiting))}, no float64[..., 2]"
        )
    return found


# How tensors were held, as JSON: a text is the name of a tensor, {"d": {key: ...}} a dictionary, {"l": [...]} a list,
# {"t": [...]} a tuple, {"s": [kind, shape, {part: ...}]} a sparse array.


def _flattened(tensors: Any) -> tuple[dict[str, Any], str | None]:
    """The tensors by name, and the text of how they were held; None for a flat mapping."""
    if not isinstance(tensors, Mapping | list | tuple):
        if isinstance(tensors, str | os.PathLike):
            hint = "; the path comes first: save(path, tensors)"
        elif hasattr(tensors, "state_dict"):
            hint = "; save(path, x.state_dict()) saves its parameters"
        elif isinstance(tensors, Tensor):
            hint = "; a single tensor is saved by save(path, [x])"
        else:
            hint = ""
        raise TypeError(
            f"save: takes tensors in a mapping, a list or a tuple, not {type(tensors).__name__}{hint}"
        )
    tensors_by_name: dict[str, Any] = {}
    structure = _structure_of(tensors, "", tensors_by_name, 0)
    is_flat = isinstance(tensors, Mapping) and all(isinstance(x, Tensor) for x in tensors.values())
    if is_flat:
        return tensors_by_name, None
    text = json.dumps(structure, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_STRUCTURE_BYTES:
        raise ValueError(f"save: the structure takes {len(text)} characters, more than {MAX_STRUCTURE_BYTES}")
    return tensors_by_name, text


def _structure_of(value: Any, name: str, tensors: dict[str, Any], depth: int) -> Any:
    if isinstance(value, Tensor):
        if name == METADATA:
            raise ValueError(f"save: the format keeps the name {METADATA!r} for itself")
        if name in tensors:
            raise ValueError(f"save: two tensors would be called {name!r}: a key has a dot in it")
        tensors[name] = value
        return name
    if depth > MAX_DEPTH:
        raise ValueError(f"save: tensors{_short(name)} is in more than {MAX_DEPTH} containers, or in itself")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"save: names are text, not {_short(key)}")
        return {
            "d": {k: _structure_of(x, _join(name, k, depth), tensors, depth + 1) for k, x in value.items()}
        }
    if hasattr(value, "__weft_parts__"):
        kind, shape, stored = value.__weft_parts__()
        return {
            "s": [
                kind,
                list(shape),
                {k: _structure_of(x, _join(name, k, 1), tensors, depth) for k, x in stored.items()},
            ]
        }
    if type(value) in (list, tuple):
        parts = [
            _structure_of(x, _join(name, str(k), depth), tensors, depth + 1) for k, x in enumerate(value)
        ]
        return {"l" if isinstance(value, list) else "t": parts}
    raise TypeError(f"save: tensors[{name!r}] is of type {type(value).__name__}, not a tensor")


def _join(name: str, key: str, depth: int) -> str:
    return f"{name}.{key}" if depth else key


def parse_structure(text: str | None, names: set[str], where: str) -> Any:
    """The structure of a file, which names each of its tensors once; None if it has none.

    Raises FileFormatError, beginning with where, for anything else.
    """
    if text is None:
        return None
    fault = f"{where}: the metadata {STRUCTURE!r}"
    try:
        structure = json.loads(text)
    except (ValueError, RecursionError):
        raise FileFormatError(f"{fault} is not JSON") from None
    unused = set(names)
    waiting = [(structure, 0)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, str):
            if part not in unused:
                raise FileFormatError(f"{fault} names {_short(part)}, of which there is none, or twice")
            unused.discard(part)
            continue
        kind = next(iter(part)) if isinstance(part, dict) and len(part) == 1 else None
        content = None if kind is None else part[kind]
        if kind == "s" and content is not None and _is_sparse(content):
            kind, content = "d", content[2]
        fits = (kind == "d" and isinstance(content, dict)) or (
            kind in ("l", "t") and isinstance(content, list)
        )
        if not fits or depth > MAX_DEPTH:
            raise FileFormatError(f"{fault} has {_short(part)}, no list, tuple or dictionary of tensors")
        items = content.values() if isinstance(content, dict) else content or ()
        waiting.extend((item, depth + 1) for item in items)
    if unused:
        raise FileFormatError(f"{fault} leaves out {_short(min(unused))}")
    return structure


def _is_sparse(content: Any) -> bool:
    """Whether it describes a sparse array: its kind, its sizes, and its parts by name."""
    if not isinstance(content, list) or len(content) != 3 or not isinstance(content[0], str):
        return False
    names = content[2].values() if isinstance(content[2], dict) else (None,)
    return content[0] in SPARSE and _are_sizes(content[1]) and all(isinstance(name, str) for name in names)


def _rebuilt(structure: Any, tensors: Mapping[str, Any], where: str) -> Any:
    if isinstance(structure, str):
        return tensors[structure]
    ((kind, content),) = structure.items()
    if kind == "d":
        return {key: _rebuilt(part, tensors, where) for key, part in content.items()}
    if kind == "s":
        storage, shape, parts = content
        module = importlib.import_module(SPARSE[storage])
        try:
            return module.from_parts(storage, shape, {key: tensors[name] for key, name in parts.items()})
        except (LookupError, TypeError, ValueError) as fault:
            raise FileFormatError(f"{where}: the parts of a {storage} array do not fit: {fault}") from None
    items = [_rebuilt(part, tensors, where) for part in content]
    return items if kind == "l" else tuple(items)


def _checked_metadata(metadata: Any) -> Mapping[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"save: metadata is a mapping from text to text, not {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"save: metadata maps text to text, not {_short(key)} to {_short(value)}")
    return metadata


def _chunks(header: bytes, entries: Iterable[Entry], tensors: Mapping[str, Any]) -> Iterator[Bytes]:
    """The file, piece by piece; a dense copy of a view lives only until it is written."""
    yield header
    for entry in entries:
        memory = tensors[entry.name].contiguous().memory()
        assert memory.nbytes == entry.size_bytes, entry
        yield memory


def _tensor(
    entry: Entry, fd: int, mapped: memory_map.mmap | None, data_begin: int, device: Device, where: str
) -> Any:
    """The tensor of one entry: over the mapping where that is aligned, else over memory of its own."""
    begin = data_begin + entry.begin
    buffer: memory_map.mmap | bytearray
    if mapped is not None and begin % entry.item_bytes == 0 and entry.size_bytes:
        buffer, offset = mapped, begin
    else:
        buffer, offset = read_at(fd, begin, entry.size_bytes, where), 0
    if entry.dtype == "bool":
        check_bools(buffer, offset, entry.size_bytes, f"{where}: tensor {_short(entry.name)}")
    stored = "uint8" if entry.dtype in _FLOAT8 else entry.dtype
    x: Any
    try:
        x = _core.tensor_from_buffer(buffer, offset, entry.shape, stored, host_of(device))
        if x.device is not device:
            x = _core.copy_of(x, stored, device)
    except ShapeError as error:  # more axes than a tensor can have
        raise FileFormatError(f"{where}: tensor {_short(entry.name)}: {error}") from error
    return F.from_float8(x, _FLOAT8[entry.dtype], "float16") if entry.dtype in _FLOAT8 else x
