"""Kernels of weft.ops.families.keyed on GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from weft.kernels import kernel
from weft.kernels.gpu.random import filling
from weft.ops.families.keyed import KeyLike
from weft.ops.kernels import RESERVATION, Native
from weft.ops.types import TensorType


@kernel(KeyLike, device="gpu")
def key_like(op: KeyLike, *x: TensorType) -> Iterator[Native]:
    numbers = (*RESERVATION, (0, "int64"), (2**63 - 1, "int64"), (2, "int64"))
    yield Native(filling("integers"), exact=False, order=(len(x),), numbers=numbers)
