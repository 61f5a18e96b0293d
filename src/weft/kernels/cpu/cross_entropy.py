"""Kernels of weft.ops.families.cross_entropy on processors."""

from __future__ import annotations

from collections.abc import Iterator

from weft import _core
from weft.kernels import kernel
from weft.ops.families.cross_entropy import CheckLabels
from weft.ops.kernels import Native
from weft.ops.types import TensorType


@kernel(CheckLabels)
def check_labels(op: CheckLabels, target: TensorType, x: TensorType) -> Iterator[Native]:
    yield Native(
        lambda _, __: _core.kernel_check_labels(op.of),
        exact=False,
        order=(0, 2),
        numbers=((x.shape[op.axis], "int64"), (op.ignore_index, "int64")),
    )
