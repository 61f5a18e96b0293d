"""RecordIO files, byte for byte those of MXNet and dmlc-core: many small pieces of data in one file.

>>> import os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "some.rec")
>>> with RecordWriter(path) as writer:
...     _ = writer.write(b"one"), writer.write(b"two")
>>> list(RecordReader(path))
[b'one', b'two']
"""

from __future__ import annotations

import bisect
import glob
import itertools
import numbers
import os
import struct
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from weft import _core
from weft.base.name_hints import add_hints as _add_hints
from weft.data import images
from weft.data.dataset import Dataset, StreamDataset

__all__ = [
    "IRHeader",
    "IndexedRecordReader",
    "IndexedRecordWriter",
    "RecordDataset",
    "RecordError",
    "RecordReader",
    "RecordStream",
    "RecordWriter",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]

MAGIC = struct.pack("<I", 0xCED7230A)
MAX_PART_BYTES = (1 << 29) - 1  # of one part
BUFFER_BYTES = 1 << 20
Path = str | os.PathLike[str]


class RecordError(ValueError):
    """A record that is corrupt or cut off; `offset`: of its begin in the file, in bytes."""

    def __init__(self, path: Path, offset: int, problem: str) -> None:
        super().__init__(f"{os.fspath(path)}: no record at byte {offset}: {problem}")
        self.path, self.offset, self.problem = path, offset, problem

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.offset, self.problem)


def encode(content: bytes | bytearray | memoryview) -> bytes:
    """The bytes of a record in a file: split where the magic number occurs at a multiple of 4 bytes.

    Raises ValueError for a part of 2**29 bytes or more.

    >>> encode(b"abc").hex(" ", 4)
    '0a23d7ce 03000000 61626300'
    """
    content = bytes(content)
    cuts, begin = [], content.find(MAGIC)
    while begin >= 0:
        if begin % 4 == 0:
            cuts.append(begin)
            begin = content.find(MAGIC, begin + 4)
        else:
            begin = content.find(MAGIC, begin + 1)
    parts: list[bytes] = []
    start = 0
    for end in [*cuts, len(content)]:
        size_bytes = end - start
        if size_bytes > MAX_PART_BYTES:
            raise ValueError(f"RecordWriter: a record has less than 2**29 bytes, this has {len(content)}")
        flag = 0 if not cuts else 1 if not parts else 3 if len(parts) == len(cuts) else 2
        head = MAGIC + struct.pack("<I", flag << 29 | size_bytes)
        parts.append(head + content[start:end] + b"\0" * (-size_bytes % 4))
        start = end + 4
    return b"".join(parts)


class RecordWriter:
    """Writes records into a new file, or at the end of one (append=True).

    Records are collected and written by the megabyte; flush() and close() write the rest. If the disk is full, OSError
    says how many records the file has; it is cut behind the last whole one, and stays readable.
    Raises ValueError after close(). As a context manager it closes at the end.
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self.path = path
        self._file = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (0 if append else os.O_TRUNC), 0o666
        )
        self._end = os.lseek(self._file, 0, os.SEEK_END)  # of what is in the file
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.count = 0  # records written by this writer

    def tell(self) -> int:
        """The offset at which the next record will begin."""
        return self._end + self._pending_bytes

    def write(self, content: bytes | bytearray | memoryview) -> int:
        """Add a record; returns its offset."""
        if self._file < 0:
            raise ValueError(f"RecordWriter: {os.fspath(self.path)} is closed")
        record = encode(content)
        offset = self.tell()
        self._pending.append(record)
        self._pending_bytes += len(record)
        self.count += 1
        if self._pending_bytes >= BUFFER_BYTES:
            self.flush()
        return offset

    def flush(self) -> None:
        """Write what was collected. Raises OSError; records that did not fit are gone, and it says how many stay."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        view = memoryview(b"".join(pending))
        written_bytes = 0
        try:
            while written_bytes < len(view):
                written_bytes += os.pwrite(self._file, view[written_bytes:], self._end + written_bytes)
        except OSError as error:
            ends = list(itertools.accumulate(map(len, pending)))
            written_count = bisect.bisect_right(ends, written_bytes)
            self.count -= len(pending) - written_count
            self._end += ends[written_count - 1] if written_count else 0
            os.ftruncate(self._file, self._end)
            self._discard_pending()
            error.add_note(
                f"{os.fspath(self.path)} has {self.count} records of this writer, up to byte {self._end}; "
                f"{len(pending) - written_count} were not written"
            )
            raise
        self._end += written_bytes

    def _discard_pending(self) -> None:
        """The last records could not be written."""

    def close(self) -> None:
        """Write the rest and close the file."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()


class IndexedRecordWriter(RecordWriter):
    """Writes records and a file of their keys and offsets: lines "key<TAB>offset", by default beside it, ".idx".

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "some.rec")
    >>> with IndexedRecordWriter(path) as writer:
    ...     _ = writer.write_idx(7, b"seven"), writer.write_idx(3, b"three")
    >>> reader = IndexedRecordReader(path)
    >>> reader.keys, reader.read_idx(3)
    ([7, 3], b'three')
    """

    def __init__(self, path: Path, index_path: Path | None = None, *, append: bool = False) -> None:
        self.index_path = index_beside(path) if index_path is None else index_path
        self._index = open(self.index_path, "a" if append else "w")  # noqa: SIM115
        self._lines: list[tuple[int, str]] = []
        super().__init__(path, append=append)

    def write_idx(self, key: int, content: bytes | bytearray | memoryview) -> int:
        """Add a record under a key; returns its offset."""
        offset = self.tell()
        self._lines.append((offset, f"{int(key)}\t{offset}\n"))
        try:
            return super().write(content)
        except ValueError:
            self._lines.pop()
            raise

    def write(self, content: bytes | bytearray | memoryview) -> int:
        """Add a record under the next key: the number of records before it."""
        return self.write_idx(self.count, content)

    def flush(self) -> None:
        super().flush()
        self._index.writelines(line for _, line in self._lines)
        self._lines = []
        self._index.flush()

    def _discard_pending(self) -> None:
        self._index.writelines(line for offset, line in self._lines if offset < self._end)
        self._lines = []
        self._index.flush()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._index.close()


def index_beside(path: Path) -> str:
    """some/file.rec -> some/file.idx"""
    return os.path.splitext(os.fspath(path))[0] + ".idx"


class RecordReader:
    """Reads the records of a file one after the other.

    skip_corrupt: what is not a record is passed over, up to the next one; `skipped` counts such places. Otherwise it
    raises RecordError with the offset. num_parts, part_index: read one of several parts of about as many bytes; every
    record is in exactly one.
    Raises OSError if the file cannot be read. Readers can be pickled, and go on where they were.
    """

    def __init__(
        self, path: Path, *, skip_corrupt: bool = False, num_parts: int = 1, part_index: int = 0
    ) -> None:
        self.path, self.skip_corrupt, self.skipped = path, skip_corrupt, 0
        self._open()
        self.begin, self.end = byte_ranges([self._file.size_bytes], num_parts, part_index, self._find)[0]
        self._offset = self.begin

    def _open(self) -> None:
        self._file = _core.RecordFile(os.fsdecode(self.path))

    def _find(self, file: int, offset: int) -> int:
        return int(self._file.find(offset))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_file"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def tell(self) -> int:
        """The offset of the record that is read next."""
        return self._offset

    def seek(self, offset: int) -> None:
        """Go on with the record at this offset."""
        self._offset = offset

    def reset(self) -> None:
        """Begin again."""
        self._offset = self.begin

    def read(self) -> bytes | None:
        """The next record, or None after the last one."""
        while self._offset < self.end:
            content, next_or_problem = self._file.read(self._offset)
            if content is not None:
                self._offset = next_or_problem
                return bytes(content)
            self._skip(next_or_problem)
        return None

    def read_at(self, offset: int, size_bytes: int | None = None) -> bytes:
        """The record at an offset, or its first bytes; what read() gives next does not change."""
        content, problem = self._file.read(offset)
        if content is None:
            raise RecordError(self.path, offset, problem)
        return bytes(content if size_bytes is None else memoryview(content)[:size_bytes])

    def _skip(self, problem: str) -> None:
        if not self.skip_corrupt:
            raise RecordError(self.path, self._offset, problem)
        self.skipped += 1
        self._offset = self._file.find(self._offset + 4)

    def __iter__(self) -> Iterator[bytes]:
        """All records from the beginning."""
        offset = self.begin
        while offset < self.end:
            contents, offset, problem = self._file.read_many(offset, self.end, 4096, BUFFER_BYTES)
            yield from contents
            if problem is not None:
                if not self.skip_corrupt:
                    self._offset = offset
                    raise RecordError(self.path, offset, problem)
                # One scan of what follows: from each place anew, hostile bytes would take quadratic time.
                offsets, stop, problem, skipped = self._file.scan(offset, self.end, True)
                self.skipped += skipped
                for offset in offsets:
                    yield self.read_at(int(offset))
                if problem is not None:
                    raise RecordError(self.path, stop, problem)
                break
        self._offset = self.end

    def offsets(self) -> np.ndarray:
        """Offsets of all records, int64[n], found by reading through the file."""
        offsets, stop, problem, skipped = self._file.scan(self.begin, self.end, self.skip_corrupt)
        if problem is not None:
            raise RecordError(self.path, stop, problem)
        self.skipped = skipped
        return np.asarray(offsets)

    def close(self) -> None:
        """Has no effect: the file is closed when the reader goes. For code written for MXNet."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class IndexedRecordReader(RecordReader):
    """Reads records by their keys, from a file and its index; without an index file, by position.

    index_path: by default the file of the same name that ends in .idx, if there is one.
    """

    def __init__(self, path: Path, index_path: Path | None = None, *, skip_corrupt: bool = False) -> None:
        super().__init__(path, skip_corrupt=skip_corrupt)
        self.index_path = index_path
        self._keys, self._record_offsets = read_index(self, index_path)
        self._position: dict[int, int] | None = None

    @property
    def keys(self) -> Sequence[int]:
        """The keys in the order of the index."""
        return range(len(self._record_offsets)) if self._keys is None else self._keys.tolist()

    def __len__(self) -> int:
        return len(self._record_offsets)

    def read_idx(self, key: int) -> bytes:
        """The record of a key. Raises KeyError, or RecordError if there is none where the index says."""
        if self._keys is None:
            if not 0 <= key < len(self._record_offsets):
                raise KeyError(key)
            return self.read_at(int(self._record_offsets[key]))
        if self._position is None:
            self._position = {key: position for position, key in enumerate(self._keys.tolist())}
        return self.read_at(int(self._record_offsets[self._position[key]]))

    def seek_idx(self, key: int) -> None:
        """read() continues with the record of this key."""
        position = key if self._keys is None else self.keys.index(key)
        self.seek(int(self._record_offsets[position]))


def read_index(reader: RecordReader, index_path: Path | None) -> tuple[np.ndarray | None, np.ndarray]:
    """(keys, None for 0, 1, ..., offsets): from the index file, or found by reading through the records."""
    if index_path is None:
        beside = index_beside(reader.path)
        if not os.path.exists(beside):
            return None, reader.offsets()
        index_path = beside
    keys, offsets = _core.read_record_index(os.fspath(index_path))
    return keys, offsets


def byte_ranges(sizes: Sequence[int], num_parts: int, part_index: int, find: Any) -> list[tuple[int, int]]:
    """[begin, end) of one part of several files of these sizes, for each file; find(file, offset): the next record.

    The files' bytes are cut into parts of the same size; a record belongs to the part that its first byte is in.
    """
    if not 0 <= part_index < num_parts:
        raise ValueError(f"part_index {part_index} is not one of num_parts={num_parts}")
    step = -(-sum(sizes) // num_parts)
    step += -step % 4
    begin, end = step * part_index, step * (part_index + 1)
    spans, start = [], 0
    for k, size in enumerate(sizes):
        span = [min(max(limit - start, 0), size) for limit in (begin, end)]
        first, last = (limit if limit in (0, size) or num_parts == 1 else find(k, limit) for limit in span)
        spans.append((first, last))
        start += size
    return spans


def expand_paths(paths: Path | Sequence[Path]) -> list[str]:
    """Paths, each may be a pattern with *, as a sorted list for each; several in one text are divided by ;."""
    if isinstance(paths, str | os.PathLike):
        paths = os.fspath(paths).split(";")
    expanded: list[str] = []
    for path in paths:
        each = os.fspath(path)
        matches = sorted(glob.glob(each)) if glob.has_magic(each) else [each]
        if not matches:
            raise FileNotFoundError(f"no file matches {each}")
        expanded += matches
    return expanded


class RecordDataset(Dataset):
    """The records of one or several RecordIO files by number: bytes, or what `decode` makes of them.

    index: the files' index files, by default those beside them (.idx); files without one are read through once.
    decode: called with each record's bytes; "image": a pair of picture u8[h, w, 3] and label, of records that
    pack_img() or im2rec wrote. skip_corrupt: records that are found corrupt while a file without index is read through
    are left out. num_parts, part_index: only one of several parts of about as many bytes.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "some.rec")
    >>> with IndexedRecordWriter(path) as writer:
    ...     _ = [writer.write(bytes([65 + k])) for k in range(5)]
    >>> dataset = RecordDataset(path, decode=bytes.decode)
    >>> len(dataset), dataset[3]
    (5, 'D')
    """

    def __init__(
        self,
        path: Path | Sequence[Path],
        index: Path | Sequence[Path] | None = None,
        *,
        decode: Any = None,
        skip_corrupt: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
    ) -> None:
        self.paths = expand_paths(path)
        indices = [None] * len(self.paths) if index is None else expand_paths(index)
        if len(indices) != len(self.paths):
            raise ValueError(f"RecordDataset: {len(self.paths)} files, but {len(indices)} index files")
        self.decode = decode_image if decode == "image" else decode
        self._files = [RecordReader(each, skip_corrupt=skip_corrupt) for each in self.paths]
        sizes = [each.end for each in self._files]
        spans = byte_ranges(sizes, num_parts, part_index, lambda k, offset: self._files[k]._find(k, offset))
        self._offsets: list[np.ndarray] = []
        for reader, each, (begin, end) in zip(self._files, indices, spans, strict=True):
            offsets = np.asarray(read_index(reader, each)[1])
            whole = (begin, end) == (0, reader.end)
            self._offsets.append(offsets if whole else offsets[(offsets >= begin) & (offsets < end)])
        self._ends = list(itertools.accumulate(map(len, self._offsets)))

    def __len__(self) -> int:
        return self._ends[-1]

    def record(self, k: int) -> bytes:
        """The bytes of a record. Raises IndexError, RecordError."""
        reader, offset = self._position(k)
        return reader.read_at(offset)

    def _position(self, k: int) -> tuple[RecordReader, int]:
        """The file of a record, and its offset there."""
        if not -len(self) <= k < len(self):
            raise IndexError(f"RecordDataset: index {k} is not one of {len(self)} records")
        k %= len(self)
        which = bisect.bisect_right(self._ends, k)
        position = k - (self._ends[which - 1] if which else 0)
        return self._files[which], int(self._offsets[which][position])

    def label_width(self, k: int) -> int:
        """The number of labels in the header of a record that pack() made."""
        reader, offset = self._position(k)
        content = reader.read_at(offset, HEADER.size)
        flag: int = IRHeader(*HEADER.unpack_from(content)).flag if len(content) == HEADER.size else 0
        return flag or 1

    def __getitem__(self, k: int) -> Any:
        content = self.record(k)
        return content if self.decode is None else self.decode(content)


class RecordStream(StreamDataset):
    """The records of RecordIO files in their order, without an index.

    Arguments as for RecordDataset; a part begins and ends at the first record behind its limits.
    """

    def __init__(
        self,
        path: Path | Sequence[Path],
        *,
        decode: Any = None,
        skip_corrupt: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
    ) -> None:
        self.paths = expand_paths(path)
        self.decode = decode_image if decode == "image" else decode
        self.skip_corrupt = skip_corrupt
        readers = [RecordReader(each) for each in self.paths]
        self.spans = byte_ranges(
            [each.end for each in readers],
            num_parts,
            part_index,
            lambda k, offset: readers[k]._find(k, offset),
        )

    def __iter__(self) -> Iterator[Any]:
        for path, (begin, end) in zip(self.paths, self.spans, strict=True):
            reader = RecordReader(path, skip_corrupt=self.skip_corrupt)
            reader.begin, reader.end = begin, end
            yield from reader if self.decode is None else map(self.decode, reader)


# -- what is in a record of a picture --


class IRHeader(NamedTuple):
    """The header of a labelled record: flag (0, or the number of labels), label, id, id2.

    label: a number, or several as an array of float32.
    """

    flag: int
    label: Any
    id: int
    id2: int


HEADER = struct.Struct("<IfQQ")


def pack(header: IRHeader, content: bytes) -> bytes:
    """A record of a header and content. Several labels are written behind the header, and flag is their number.

    >>> unpack(pack(IRHeader(0, [1.0, 2.0], 5, 0), b"content"))
    (IRHeader(flag=2, label=array([1., 2.], dtype=float32), id=5, id2=0), b'content')
    """
    header = IRHeader(*header)
    if isinstance(header.label, numbers.Number):
        return HEADER.pack(0, *header[1:]) + content
    labels = np.asarray(header.label, "<f4")
    return HEADER.pack(labels.size, 0, header.id, header.id2) + labels.tobytes() + content


def unpack(record: bytes) -> tuple[IRHeader, bytes]:
    """Header and content of a record that pack() made. Raises ValueError if it is too short."""
    if len(record) < HEADER.size:
        raise ValueError(f"unpack: a header has {HEADER.size} bytes, the record {len(record)}")
    header = IRHeader(*HEADER.unpack_from(record))
    end = HEADER.size + 4 * header.flag
    if header.flag:
        if len(record) < end:
            raise ValueError(f"unpack: {header.flag} labels need {end} bytes, the record has {len(record)}")
        header = header._replace(label=np.frombuffer(record, "<f4", header.flag, HEADER.size))
    return header, record[end:]


def pack_img(header: IRHeader, image: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """A record of a picture u8[h, w, c], red first; quality: of JPEG, 1 to 100. img_fmt: ".jpg" or ".png"."""
    return pack(header, images.encode(image, img_fmt, quality=quality))


def unpack_img(record: bytes, mode: str = "RGB") -> tuple[IRHeader, np.ndarray]:
    """Header and picture, u8[h, w, 3], red first; mode "L": u8[h, w, 1]."""
    header, content = unpack(record)
    return header, images.decode(content, mode)


def decode_image(record: bytes) -> tuple[np.ndarray, Any]:
    """Picture and label."""
    header, image = unpack_img(record)
    return image, header.label


_add_hints(globals())
