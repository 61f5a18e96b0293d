"""Kernels of weft.ops.families.statistics on processors."""

from __future__ import annotations

from collections.abc import Iterator

from weft import _core
from weft.kernels import kernel
from weft.ops.families.statistics import Bincount
from weft.ops.kernels import Native
from weft.ops.types import TensorType


@kernel(Bincount)
def bincount(op: Bincount, x: TensorType, weights: TensorType | None = None) -> Iterator[Native]:
    if weights is None:
        yield Native(lambda _, __: _core.kernel_bincount(), exact=False)
