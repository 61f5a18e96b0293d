"""Memory that several processes see: ``weft.storage.alloc_shared`` and ``attach_shared``."""

from __future__ import annotations

import mmap
import operator
import os
import re

from weft.base.typing import Any

__all__ = ["SharedMemory", "alloc_shared", "attach_shared"]


class SharedMemory:
    """Bytes that processes of one user on one machine share, filled with zeros at first.

    name: for attach_shared in another process, as long as this process holds the memory. buffer: a memoryview of the
    bytes; arrays over it copy nothing: ``wf.asarray(numpy.frombuffer(m.buffer, "float32"))``. The bytes live until the
    last process that holds them has freed them or ended, however it ended: no file is left. Nothing orders what
    processes write; that is theirs to do. It can be pickled, for a process that is started while this one holds it.
    """

    def __init__(self, file: int, size_bytes: int, name: str) -> None:
        self._file, self.size_bytes, self._name = file, size_bytes, name
        self._map: mmap.mmap | None = mmap.mmap(file, max(size_bytes, 1))

    @property
    def name(self) -> str:
        """How other processes find it. Raises ValueError if it has been freed."""
        self._open_map()
        return self._name

    @property
    def buffer(self) -> memoryview:
        """The bytes, writable. Raises ValueError if they have been freed."""
        return memoryview(self._open_map())[: self.size_bytes]

    @property
    def freed(self) -> bool:
        """Whether this process has given it up."""
        return self._map is None

    def free(self) -> None:
        """Give it up in this process. Raises ValueError if it was, BufferError while arrays or views show it."""
        self._open_map().close()
        os.close(self._file)
        self._map = None

    def _open_map(self) -> mmap.mmap:
        if self._map is None:
            raise ValueError("shared memory: it has been freed")
        return self._map

    def __del__(self) -> None:
        if getattr(self, "_map", None) is not None:
            self._map = None  # closed by its last view
            os.close(self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        return attach_shared, (self.name,)

    def __repr__(self) -> str:
        state = "freed" if self.freed else f"name={self._name!r}"
        return f"SharedMemory(size_bytes={self.size_bytes}, {state})"


def alloc_shared(size_bytes: int) -> SharedMemory:
    """New memory that other processes can attach by its name.

    Raises ValueError for a negative size, OSError where the system has no memory of this kind.

    >>> import numpy as np
    >>> memory = alloc_shared(8)
    >>> np.frombuffer(memory.buffer, "float32")[:] = [1, 2]
    >>> again = attach_shared(memory.name)  # in this or another process
    >>> np.frombuffer(again.buffer, "float32").tolist()
    [1.0, 2.0]
    """
    size_bytes = operator.index(size_bytes)
    if size_bytes < 0:
        raise ValueError(f"alloc_shared: size_bytes must be at least 0, got {size_bytes}")
    if not hasattr(os, "memfd_create"):
        raise OSError("alloc_shared: this system has no memory files (memfd_create)")
    file = os.memfd_create("weft-shared", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, max(size_bytes, 1))
        return SharedMemory(file, size_bytes, f"{os.getpid()}.{file}.{os.fstat(file).st_ino}.{size_bytes}")
    except BaseException:
        os.close(file)
        raise


def attach_shared(name: str) -> SharedMemory:
    """The memory of this name, of a process that still holds it.

    Raises ValueError for any other name, or one that is held no longer; OSError if the process may not be looked at.
    """
    parts = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)\.(\d+)", name) if isinstance(name, str) else None
    if parts is None:
        raise ValueError(f"attach_shared: {name!r} is not a name of shared memory")
    process, number, inode, size_bytes = (int(part) for part in parts.groups())
    error = ValueError(f"attach_shared: {name!r} is not held any more")
    try:
        file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        raise error from None
    status = os.fstat(file)
    if status.st_ino != inode or status.st_size != max(size_bytes, 1):
        os.close(file)
        raise error
    return SharedMemory(file, size_bytes, name)
