"""What there is to know of the devices: ``wf.device.count()``, ``wf.device.memory("gpu:0")``."""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft import _core, storage
from weft.base import device as devices
from weft.base.device import Device, as_device
from weft.base.errors import DeviceError
from weft.engine import default_engine

__all__ = ["device"]


class device:  # its public name
    """Make a device the current one for a block; its functions tell what devices there are.

    Raises DeviceError, at once, if value is not what as_device takes.

    >>> import weft as wf
    >>> with wf.device("cpu:1") as chosen:
    ...     print(wf.zeros(2).device)
    cpu:1
    >>> wf.device.is_available("cpu:1")
    True
    """

    def __new__(cls, value: Device | str) -> AbstractContextManager[Device]:  # type: ignore[misc]
        return devices.device(value)

    @staticmethod
    def count(kind: str = "gpu") -> int:
        """How many GPUs the driver has; 0 without a driver. cpu devices are one processor: 1.

        Raises DeviceError for another kind.

        >>> device.count("cpu")
        1
        """
        if kind == "cpu":
            return 1
        if kind not in ("gpu", "cuda"):
            raise DeviceError(f"count: kinds are cpu and gpu (or cuda), got {kind!r}")
        return len(_chips())

    @staticmethod
    def is_available(value: Device | str | None = None) -> bool:
        """Whether a device can be used; None is the current one.

        >>> device.is_available("cpu"), device.is_available("gpu:63")
        (True, False)
        """
        where = as_device(value)
        if where.kind == "cpu":
            return where.index < 64
        return where.index < len(_chips()) if where.kind == "gpu" else True

    @staticmethod
    def name(value: Device | str | None = None) -> str:
        """What code is compiled for: "sm_90" of a GPU, "stand-in" of the one of the tests; of a cpu "cpu".

        Raises DeviceError if the device is not there.
        """
        where = as_device(value)
        if where.kind != "gpu":
            return where.kind
        chips: list[str] = _core.gpu_chips()
        if where.index >= len(chips):
            raise DeviceError(f"device {where} is not available: the driver has {len(chips)} devices")
        return chips[where.index]

    @staticmethod
    def synchronize(value: Device | str | None = None) -> None:
        """Wait until everything that has been called has run, on every device; value is checked.

        Raises the error of an operation that has failed, unless it was raised before.

        >>> import weft as wf
        >>> y = wf.ones(3) + 1
        >>> device.synchronize()
        """
        as_device(value)
        default_engine().wait_for_all()

    @staticmethod
    def reset(value: Device | str | None = None) -> None:
        """Give a GPU a new context and empty memory, after it has failed or to free all of it.

        value: None is the current device. Waits for what is pending. The arrays of the device are lost: each use of one
        raises DeviceError. No other thread may use the device meanwhile. Raises DeviceError if the device is no GPU,
        was not used, or cannot be reset.

        >>> device.reset("cpu:0")
        Traceback (most recent call last):
        ...
        weft.base.errors.DeviceError: reset: cpu:0 is no GPU that was used
        """
        _core.reset_device(as_device(value))

    @staticmethod
    def memory(value: Device | str | None = None) -> dict[str, int]:
        """Numbers of a device's memory, those of weft.storage.stats; None is the current device.

        >>> device.memory("cpu:0")["in_use_bytes"] >= 0
        True
        """
        return storage.stats(as_device(value))


def _chips() -> list[str]:
    try:
        chips: list[str] = _core.gpu_chips()
    except DeviceError:
        return []
    return chips
