"""Copies from and to GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from weft import _core
from weft.kernels import kernel
from weft.ops.families.placement import ToDevice
from weft.ops.kernels import Native
from weft.ops.types import TensorType


@kernel(ToDevice, device="gpu", when=lambda op, x: x.device is not op.device)
def to_device(op: ToDevice, x: TensorType) -> Iterator[Native]:
    yield Native(lambda _, __: _core.kernel_transfer(op.device, x.device), exact=False)
