"""Adds kinds of devices beside the processor.

    toy = add_device_kind("toy")              # from now on there are wf.Device("toy", 0), "toy:1", ...

    @kernel(Matmul, device="toy")             # what it computes in its own way; loops, views and decompositions are
    def matmul(op, a, b): ...                 # those of every device

A kind has its own engine queues, pools of memory, random streams, plans and counters. Its memory is the host's: what
allocates, fills and copies it are the host's functions. Its loops are the processor's machine code unless `loops`
makes others.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import _core
from weft.base import device as devices
from weft.base.device import Device
from weft.base.typing import Any
from weft.kernels import LOOPS

__all__ = ["DeviceKind", "add_device_kind"]


class DeviceKind:
    """A kind of device that was added; see add_device_kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stream: Callable[[int, str], int | None] | None = None

    def __call__(self, index: int = 0) -> Device:
        """The device of this index, 0 to 63."""
        return Device(self.name, index)

    def counters(self) -> dict[str, int]:
        """Counts: kernels that ran on its devices; copies_in, copies_out, bytes_in and bytes_out, between
        them and devices of other kinds."""
        counts: dict[str, int] = _core.device_kind_counters(self.name)
        return counts

    def __repr__(self) -> str:
        return f"DeviceKind({self.name!r})"


_KINDS: dict[str, DeviceKind] = {}


def add_device_kind(
    name: str,
    *,
    stream: Callable[[int, str], int | None] | None = None,
    loops: Callable[[Any], Any] | None = None,
) -> DeviceKind:
    """Add a kind of device; it stays as long as the process. A name that was added before gives the same kind, with
    these functions in place of its earlier ones for devices and loops that have not been used yet.

    stream(index, queue): a number that says where commands of a device's queue ("compute", "wide", "copy", "io",
    "priority") go, for kernels to find in their run context; it is called once for each. None: there are none.
    loops(code): the kernel (_core.Kernel) of a weft.executor.loop_code.LoopCode; None: code.native(), which runs
    machine code of the processor on memory that the processor can address.
    Raises ValueError for "cpu" and for what is not a name, and if there are 8 kinds.

    >>> add_device_kind("cpu")
    Traceback (most recent call last):
        ...
    ValueError: add_device_kind: cpu is there from the start
    """
    if name == "cpu":
        raise ValueError("add_device_kind: cpu is there from the start")
    kind = _KINDS.get(name)
    if kind is None:
        devices.add_kind(name)
        kind = DeviceKind(name)
        _core.add_device_kind(name, lambda index, queue: kind.stream and kind.stream(index, queue))
        _KINDS[name] = kind
    kind.stream = stream
    if loops is None:
        LOOPS.pop(name, None)
    else:
        LOOPS[name] = loops
    return kind
