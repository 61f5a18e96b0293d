"""Memory of the devices: what is in use, what is held from the system, and giving it back.

>>> import weft as wf
>>> from weft import storage
>>> x = wf.empty(1000)
>>> storage.stats()["in_use_bytes"] >= 4000
True
"""

from __future__ import annotations

from weft import _core
from weft.base.device import Device
from weft.engine import default_engine

__all__ = ["reset_peaks", "stats", "trim"]

_core.set_array_engine(default_engine())


def stats(device: Device | str | None = None) -> dict[str, int]:
    """Numbers of a device's memory; device None is cpu:0.

    in_use_bytes: of arrays that live, rounded as the pool rounds them; reserved_bytes: taken from the system and not
    given back; peak_in_use_bytes, peak_reserved_bytes: the largest since the start or reset_peaks; allocations: how
    many; reused: how many of them took no new memory from the system.

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
