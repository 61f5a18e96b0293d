"""Memory of the devices: what is in use, what is held from the system, and giving it back.

>>> import weft as wf
>>> from weft import storage
>>> x = wf.empty(1000)
>>> storage.stats()["in_use_bytes"] >= 4000
True
"""

from __future__ import annotations

import atexit
import operator

from weft import _core
from weft._core import Memory
from weft.base import flags
from weft.base.device import Device
from weft.base.errors import EngineError
from weft.engine import default_engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weft.base.typing import Any
    from weft.storage.shared import SharedMemory, alloc_shared, attach_shared

__all__ = [
    "Memory",
    "SharedMemory",
    "alloc",
    "alloc_shared",
    "attach_shared",
    "check",
    "direct_free",
    "free",
    "reset_peaks",
    "set_limit",
    "stats",
    "trim",
]

_core.set_array_engine(default_engine())


def __getattr__(name: str) -> Any:
    if name not in ("SharedMemory", "alloc_shared", "attach_shared"):
        from weft.base.name_hints import missing

        raise missing(__name__, name, lambda: __all__)
    from weft.storage import shared  # not before it is needed

    return getattr(shared, name)


def alloc(size_bytes: int, device: Device | str | None = None) -> Memory:
    r"""Memory of a device's pool, with undefined content, aligned to 64 bytes; device None is cpu:0.

    It counts in stats, and obeys set_limit. The engine takes it where it takes variables, which orders its users.
    Raises ValueError for a negative size, MemoryError as arrays do.

    >>> import numpy as np
    >>> memory = alloc(12)
    >>> memory
    Memory(size_bytes=12, device=cpu:0)
    >>> np.frombuffer(memory, "int32")[:] = 7
    >>> bytes(memory)[:4]
    b'\x07\x00\x00\x00'
    >>> free(memory)
    >>> memory.freed
    True
    """
    size_bytes = operator.index(size_bytes)
    if size_bytes < 0:
        raise ValueError(f"alloc: size_bytes must be at least 0, got {size_bytes}")
    memory: Memory = _core.allocate_memory(size_bytes, device)
    return memory


def free(memory: Memory) -> None:
    """Give memory back to its pool, for the next that needs some, after the operations that use it.

    Raises ValueError if it has been freed, BufferError while memoryviews or NumPy arrays show it, TypeError for
    anything but a Memory.
    """
    _freed("free", memory)


def direct_free(memory: Memory) -> None:
    """As free, and give what no array uses, this with it, back to the system.

    >>> memory = alloc(1 << 20)
    >>> direct_free(memory)
    """
    _freed("direct_free", memory)
    trim(memory.device)


def _freed(operation: str, memory: Memory) -> None:
    if not isinstance(memory, Memory):
        raise TypeError(f"{operation}: expected a Memory made by alloc(), got {type(memory).__name__}")
    memory.free()


def stats(device: Device | str | None = None) -> dict[str, int]:
    """Numbers of a device's memory; device None is cpu:0.

    in_use_bytes: of arrays that live, rounded as the pool rounds them; reserved_bytes: taken from the system and not
    given back; peak_in_use_bytes, peak_reserved_bytes: the largest since the start or reset_peaks; allocations: how
    many; reused: how many of them took no new memory from the system; live_blocks: arrays' memories in use;
    largest_free_bytes: what can be had without asking the system.

    >>> stats("cpu:1")["peak_in_use_bytes"] >= 0
    True
    """
    numbers: dict[str, int] = _core.memory_stats(device)
    return numbers


def trim(device: Device | str | None = None) -> int:
    """Give memory that no array uses back to the system; returns how many bytes.

    >>> import weft as wf
    >>> x = wf.zeros((1024, 1024))
    >>> x.wait()  # else what fills it keeps its memory for a while
    >>> del x
    >>> trim() > 0
    True
    """
    freed_bytes: int = _core.trim_memory(device)
    return freed_bytes


def reset_peaks(device: Device | str | None = None) -> None:
    """Let the peaks begin again at what is in use now.

    >>> reset_peaks()
    """
    _core.reset_memory_peaks(device)


def set_limit(size_bytes: int, device: Device | str | None = None) -> None:
    """Let a device take at most this much from the system; 0: what the machine has, the default.

    What is unused and above the limit is given back at once. An array that does not fit raises MemoryError, after
    unused memory has been given back and pending operations have been waited for once.

    >>> import weft as wf
    >>> set_limit(1 << 20, "cpu:7")
    >>> wf.empty(1 << 21, device="cpu:7")
    Traceback (most recent call last):
        ...
    MemoryError: cpu:7: out of memory: 8.0 MiB asked for; 0 bytes in use by 0 blocks; 0 bytes held from the \
system, limit 1.0 MiB
    >>> set_limit(0, "cpu:7")
    """
    size_bytes = operator.index(size_bytes)
    if size_bytes < 0:
        raise ValueError(f"set_limit: size_bytes must be at least 0, got {size_bytes}")
    _core.set_memory_limit(device, size_bytes)


def check(device: Device | str | None = None) -> None:
    """In checking mode (WEFT_CHECK=1): look for writes outside of arrays and into memory that was given back.

    Each is described on stderr, once; releasing an array and the end of the process look, too.
    Raises EngineError if there were any.

    >>> check()
    """
    faults = _core.check_memory(device)
    if faults:
        raise EngineError(
            f"check: {faults} writes outside of arrays or after their release; stderr names them"
        )


def _check_at_exit() -> None:
    for device in _core.used_devices():
        _core.check_memory(device)


if flags.get("WEFT_CHECK"):
    atexit.register(_check_at_exit)
