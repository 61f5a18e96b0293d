"""Kernels of weft.ops.families.matrix_functions on processors."""

from __future__ import annotations

from collections.abc import Iterator

from weft import _core
from weft.kernels import kernel
from weft.kernels.cpu.linalg import offered
from weft.ops.families.matrix_functions import Det
from weft.ops.kernels import Native
from weft.ops.types import TensorType


def is_large(op: Det, x: TensorType) -> bool:
    """Whether the formula of up to 3 rows does not apply."""
    return not (isinstance(x.shape[-1], int) and x.shape[-1] <= 3)


@kernel(Det, provider="lapack", when=is_large)
def det(op: Det, x: TensorType) -> Iterator[Native]:
    yield offered(lambda _: _core.kernel_det())
