"""Devices, which hold data and run work: ``cpu(0)``, ``gpu(1)``, and the current one of a thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar

from weft.base.errors import DeviceError

__all__ = ["Device", "as_device", "cpu", "current_device", "device", "gpu"]

_OTHERS = ("hip", "mps", "npu", "tpu", "xpu")  # names that other libraries have for devices
KINDS = ["cpu", "gpu"]  # and those that are added


def add_kind(name: str) -> None:
    """Make the name of one more kind of device known; done by weft.kernels.devices, which also gives it to the core.

    Raises ValueError for what is not a name of lower-case letters, digits and underscores.
    """
    if not (name.isidentifier() and name.isascii() and name == name.lower()):
        raise ValueError(
            f"device: the name of a kind has lower-case letters, digits and underscores, got {name!r}"
        )
    if name not in KINDS:
        KINDS.append(name)


def _accepted() -> str:
    added = "".join(f", {kind!r}" for kind in KINDS[2:])
    return f"accepted are a Device, None (the current device), 'cpu', 'gpu', 'cpu:1', 'gpu:1', ...{added}"


class Device:
    """One device: a kind, such as "cpu", and an index from 0. Immutable; equal devices are one object.

    Several cpu devices are one processor with separate queues and workers. Naming a gpu does not check whether
    it exists; using it does.
    Raises DeviceError if kind is another word or index is not an integer from 0 to 65535.

    >>> Device("cpu", 1), Device("cpu", 1) is cpu(1)
    (cpu:1, True)
    >>> cpu(0).kind, cpu(0).index
    ('cpu', 0)
    """

    __slots__ = ("index", "kind")

    kind: str
    index: int

    def __new__(cls, kind: str, index: int = 0) -> Device:
        existing = _DEVICES.get((kind, index)) if type(kind) is str and type(index) is int else None
        if existing is not None:
            return existing
        if kind not in KINDS:
            raise DeviceError(f"device: unknown kind {kind!r}; kinds are {', '.join(KINDS)}")
        if type(index) is not int or not 0 <= index < 65536:
            raise DeviceError(f"device: the index of a {kind} is an integer from 0 to 65535, got {index!r}")
        new = super().__new__(cls)
        object.__setattr__(new, "kind", kind)
        object.__setattr__(new, "index", index)
        return _DEVICES.setdefault((kind, index), new)  # one step, so that threads agree on the object

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[type[Device], tuple[str, int]]:
        return Device, (self.kind, self.index)

    def __copy__(self) -> Device:
        return self

    def __deepcopy__(self, memo: object) -> Device:
        return self

    def __repr__(self) -> str:
        return f"{self.kind}:{self.index}"


_DEVICES: dict[tuple[str, int], Device] = {}
# None: the device outside of any `with device(...)`, or the same one inside.
_current: ContextVar[Device | None] = ContextVar("weft.current_device", default=None)
# Before the first `with device(...)` the native core need not look up which device is current.
_ever_scoped = [False]


def cpu(index: int = 0) -> Device:
    """The cpu device of this index.

    >>> cpu(), cpu(1)
    (cpu:0, cpu:1)
    """
    return Device("cpu", index)


def gpu(index: int = 0) -> Device:
    """The gpu device of this index; it need not exist until it is used.

    >>> gpu(0)
    gpu:0
    """
    return Device("gpu", index)


_OUTSIDE = cpu(0)  # current outside of any ``with device(...)``


def as_device(value: Device | str | None = None) -> Device:
    """The device that value means: a Device, its name as text, or None for the current one.

    Raises DeviceError if value is anything else.

    "cuda" is another spelling of "gpu".

    >>> as_device("cpu:1"), as_device("gpu"), as_device("cuda:1"), as_device(None)
    (cpu:1, gpu:0, gpu:1, cpu:0)
    >>> as_device("tpu:0")
    Traceback (most recent call last):
        ...
    weft.base.errors.DeviceError: device: cannot read 'tpu:0'; accepted are a Device, None (the current \
device), 'cpu', 'gpu', 'cpu:1', 'gpu:1', ...; weft has none of these: leave the device out
    """
    if isinstance(value, Device):
        return value
    if value is None:
        return current_device()
    kind, colon, index = value.partition(":") if isinstance(value, str) else ("", "", "")
    kind = "gpu" if kind == "cuda" else kind
    if kind not in KINDS or (colon and not (index.isascii() and index.isdigit() and len(index) <= 5)):
        advice = "; weft has none of these: leave the device out" if kind in _OTHERS else ""
        raise DeviceError(f"device: cannot read {value!r}; {_accepted()}{advice}")
    return Device(kind, int(index or 0))


def current_device() -> Device:
    """The device of the innermost ``with device(...)`` around this code; cpu:0 outside of any.

    It belongs to the thread (and to the asyncio task); a new thread starts at cpu:0.

    >>> current_device()
    cpu:0
    """
    return _current.get() or _OUTSIDE


scoped_device = _current.get
"""The current device where it is another one than outside of any ``with device(...)``, else None; no call of Python.

>>> with device("cpu:1"):
...     scoped_device()
cpu:1
"""


def device(value: Device | str) -> AbstractContextManager[Device]:
    """Make a device the current one for a block.

    Raises DeviceError, at once, if value is not what as_device takes.

    >>> with device("cpu:1") as chosen:
    ...     print(current_device() is chosen)
    True
    >>> current_device()
    cpu:0
    """
    return _scope(as_device(value))


@contextlib.contextmanager
def _scope(device: Device) -> Iterator[Device]:
    _ever_scoped[0] = True
    token = _current.set(None if device is _OUTSIDE else device)
    try:
        yield device
    finally:
        _current.reset(token)
