"""The operator that brings values from one device to another. All others run where their inputs are."""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.device import Device
from weft.base.typing import Any
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import View, pointwise_loop
from weft.ops.op import Op, op
from weft.ops.types import TensorType


@op
class ToDevice(
    Op,
    family="device",
    primitive=True,
    positional=("device",),
    rule="x[*s] -> y[*s]: x",
):
    """x on a device: x itself if it is there, else a copy, made on the device's copy queue.

    x: any dtype [...]; device: a Device or its name. Returns x's shape and dtype. Its gradient is copied back.
    Raises DeviceError for what is not a device. Source: array API 2024.12, to_device.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.to_device(wf.ones(2), "cpu:1").device
    cpu:1
    """

    device: Device

    def infer(self, x: TensorType) -> TensorType:
        return x.like().on(self.device)

    def fixed_device(self) -> Device:
        return self.device

    def kernels(self, x: TensorType) -> Iterator[Any]:
        if x.device is self.device:
            yield View(lambda shape, strides: (shape, strides, 0))
        elif "gpu" not in (x.device.kind, self.device.kind):  # whose memory no loop of another device touches
            yield pointwise_loop((x,), [e.load(0, x.dtype.name)])

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.to_device(dy, device=x.device)


__all__ = ["ToDevice"]
