"""Kernels of weft.ops.simple on processors."""

from __future__ import annotations

from collections.abc import Iterator

from weft import _core
from weft.kernels import kernel
from weft.ops.kernels import RESERVATION, Native
from weft.ops.simple import UniformLike
from weft.ops.types import TensorType


@kernel(UniformLike)
def uniform_like(op: UniformLike, *x: TensorType) -> Iterator[Native]:
    numbers = (*RESERVATION, (0.0, "float64"), (1.0, "float64"))
    yield Native(lambda _, __: _core.kernel_random_uniform(), exact=False, order=(len(x),), numbers=numbers)
