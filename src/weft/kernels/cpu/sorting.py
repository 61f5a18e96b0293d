"""Kernels of weft.ops.families.sorting on processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.ops.families.sorting import Argsort, Searchsorted, Sort, Topk
from weft.ops.kernels import Native
from weft.ops.types import TensorType, normalize_axes


@kernel(Sort)
def sort(op: Sort, x: TensorType) -> Iterator[Native]:
    axis = op.axis_of(x)

    def make(_: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return _core.kernel_sort(axis, op.descending, values=True, indices=outputs[1] is not None)

    yield Native(make, exact=False, optional=(1,))


@kernel(Argsort)
def argsort(op: Argsort, x: TensorType) -> Iterator[Native]:
    axis = op.axis_of(x)
    yield Native(
        lambda _, __: _core.kernel_sort(axis, op.descending, values=False, indices=True), exact=False
    )


@kernel(Topk)
def topk(op: Topk, x: TensorType) -> Iterator[Native]:
    axis = normalize_axes(op.name, op.axis, x.ndim)[0]
    yield Native(lambda _, __: _core.kernel_topk(axis, op.largest), exact=False)


@kernel(Searchsorted)
def searchsorted(
    op: Searchsorted, x1: TensorType, x2: TensorType, sorter: TensorType | None = None
) -> Iterator[Native]:
    if sorter is None and x1.dtype is x2.dtype and x2.ndim > 0 and x1.shape[:-1] == x2.shape[:-1]:
        yield Native(lambda _, __: _core.kernel_searchsorted(right=op.side == "right"), exact=False)
