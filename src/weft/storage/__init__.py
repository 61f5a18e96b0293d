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
from weft.base import flags
from weft.base.device import Device
from weft.base.errors import EngineError
from weft.engine import default_engine

__all__ = ["check", "reset_peaks", "set_limit", "stats", "trim"]

_core.set_array_engine(default_engine())


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
    >>> del x
    >>> trim() > 0
    True
    """
    given: int = _core.trim_memory(device)
    return given


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
    found = _core.check_memory(device)
    if found:
        raise EngineError(
            f"check: {found} writes outside of arrays or after their release; stderr names them"
        )


def _check_at_exit() -> None:
    for index in range(_core.used_devices()):
        _core.check_memory(f"cpu:{index}")


if flags.get("WEFT_CHECK"):
    atexit.register(_check_at_exit)
