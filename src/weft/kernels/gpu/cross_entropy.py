"""Kernels of weft.ops.families.cross_entropy on GPUs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.expr import scalar as e
from weft.expr.kernel import Each, Store
from weft.expr.launches import thread_loop
from weft.kernels import kernel
from weft.kernels.gpu.indexing import first_refused
from weft.ops.families.cross_entropy import CheckLabels
from weft.ops.kernels import Native
from weft.ops.types import TensorType


def label_and_whether_it_is_one(dtype: str) -> tuple[e.Scalar, e.Scalar]:
    """A label, and whether it is a class or ignored; parameters: classes, ignored."""
    classes, ignored = e.parameter(0, "int64"), e.parameter(1, "int64")
    label = e.cast(e.load(0, dtype), "int64")
    return label, ((label >= 0) & (label < classes)) | (label == ignored)


@functools.cache
def label_check(dtype: str, rank: int) -> Any:
    """The first label that is neither a class nor ignored."""
    return first_refused(dtype, rank, ~label_and_whether_it_is_one(dtype)[1], "check_labels", 2)


@functools.cache
def as_int64(dtype: str) -> Any:
    """The labels, those that a check refuses as 0."""
    label, is_one = label_and_whether_it_is_one(dtype)
    store = Store(1, e.where(is_one, label, e.constant(0, "int64")))
    return thread_loop("labels", (dtype, "int64"), (Each((store,)),), inputs=1)


@kernel(CheckLabels, device="gpu")
def check_labels(op: CheckLabels, target: TensorType, x: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        dtype, shape, _ = inputs[0]
        return _core.make_checked_labels(op.of, label_check(dtype, len(shape)), as_int64(dtype))

    yield Native(
        make,
        exact=False,
        order=(0, 2),
        numbers=((x.shape[op.axis], "int64"), (op.ignore_index, "int64")),
    )
