"""Files from which a parameter server continues after it was killed: a snapshot, and a journal since then.

A snapshot is a safetensors file, which replaces the one before at once. The journal has a record for each committed
update, written before the update is acknowledged. After a restart the snapshot is loaded and the records behind it are
applied in their order, which gives the same state bit for bit. Records are numbered: those that a snapshot has already
are left out, so a server may die between writing a snapshot and beginning again.

Behind a snapshot the journal begins at the front of its file again, because writing over memory that the system holds
already is much quicker than extending a file. What an earlier round has left behind the last record does not count:
the numbers of valid records follow each other, and older ones are less.

A record is a header, JSON, and raw bytes; both have their length and a checksum in front, so a record that was cut off
is recognised and ends the journal. Nothing in a file is executed.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.base.dtype import as_dtype

__all__ = ["Journal"]

FRAME = struct.Struct("<IIQI")  # magic, bytes of the header, bytes of the data, checksum of both
MAGIC = 0x77656675
PAGE = 4096


class Journal:
    """Records of updates behind a snapshot, in a folder. sync: also make the disk write each record (os.fsync).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(folder)
    ...     journal.append({"key": "w"}, [np.ones(2, "float32")])
    ...     journal.close()
    ...     [(header["key"], arrays[0].tolist()) for header, arrays in Journal(folder).records(0)]
    [('w', [1.0, 1.0])]
    """

    def __init__(self, folder: str | os.PathLike[str], sync: bool = False) -> None:
        self.folder, self.sync = Path(folder), sync
        self.folder.mkdir(parents=True, exist_ok=True)
        self.number = 0  # of the last record
        self.size_bytes = 0  # of the records since the snapshot
        self._file: Any = None

    @property
    def snapshot(self) -> Path:
        """The path of the snapshot."""
        return self.folder / "snapshot.safetensors"

    def _path(self) -> Path:
        return self.folder / "journal"

    def append(self, header: Mapping[str, Any], arrays: Sequence[Any]) -> None:
        """Write a record. Raises OSError if that fails; the journal then ends before it."""
        if self._file is None:
            self._path().touch()
            self._file = open(self._path(), "r+b", buffering=0)  # noqa: SIM115 - kept open
        parts: list[Any] = [np.ascontiguousarray(a).reshape(-1).view("uint8") for a in arrays]
        kinds = [[a.dtype.name, list(a.shape)] for a in arrays]
        text = json.dumps({**header, "number": self.number + 1, "arrays": kinds}).encode()
        check = zlib.crc32(text)
        for part in parts:
            check = _checksum(part, check)
        size = sum(part.nbytes for part in parts)
        begin = self._file.seek(self.size_bytes)
        try:
            _write(self._file, [FRAME.pack(MAGIC, len(text), size, check), text, *parts])
            if self.sync:
                os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(begin)
            raise
        self.number += 1
        self.size_bytes = self._file.tell()

    def records(self, after: int) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """The records behind number `after`; one that is cut off ends them, and is cut away."""
        self.number, self.size_bytes = after, 0
        if not self._path().exists():
            return
        valid_bytes, last = 0, None
        with open(self._path(), "rb") as file:
            while (record := _read_record(file)) is not None:
                header, arrays = record
                if last is not None and header["number"] != last + 1:
                    break  # of an earlier round
                last, valid_bytes = header["number"], file.tell()
                if last > self.number:
                    self.number, self.size_bytes = last, valid_bytes
                    yield header, arrays
        if valid_bytes < self._path().stat().st_size:
            os.truncate(self._path(), valid_bytes)

    def restart(self) -> None:
        """All records are in a snapshot now: begin at the front of the file."""
        self.size_bytes = 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._file.close()


def _checksum(part: Any, initial: int) -> int:
    """The checksum of bytes, behind others that have the checksum `initial`.

    The CRC of the sums of pages: it finds a page that is missing, torn or elsewhere, as quickly as memory is read.
    """
    whole = part.size // PAGE * PAGE
    if whole:
        sums = np.add.reduce(np.frombuffer(part[:whole], "<u8").reshape(-1, PAGE // 8), axis=1)
        initial = zlib.crc32(sums, initial)
    return zlib.crc32(part[whole:], initial)


def _write(file: Any, parts: Sequence[Any]) -> None:
    for part in parts:
        view = memoryview(part)
        while view.nbytes:
            view = view[file.write(view) :]


def _read_record(file: Any) -> tuple[dict[str, Any], list[Any]] | None:
    frame = file.read(FRAME.size)
    if len(frame) < FRAME.size:
        return None
    magic, header_bytes, data_bytes, check = FRAME.unpack(frame)
    if magic != MAGIC:
        return None
    rest = os.fstat(file.fileno()).st_size - file.tell()
    if header_bytes + data_bytes > rest:
        return None
    text, data = file.read(header_bytes), file.read(data_bytes)
    computed = zlib.crc32(text)
    try:
        header = json.loads(text)
    except ValueError:
        return None
    arrays, offset = [], 0
    for name, shape in header["arrays"]:
        dtype = as_dtype(name).numpy if name != "bool" else np.dtype("bool")
        count = int(np.prod(shape, dtype="int64"))
        size = count * np.dtype(dtype).itemsize
        if offset + size > len(data):
            return None
        computed = _checksum(np.frombuffer(data, "uint8", size, offset), computed)
        arrays.append(np.frombuffer(data, dtype, count, offset).reshape(shape))
        offset += size
    return (header, arrays) if computed == check else None
