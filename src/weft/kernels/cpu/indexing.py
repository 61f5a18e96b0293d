"""Kernels of weft.ops.families.indexing on processors."""

from __future__ import annotations

from collections.abc import Iterator

from weft import _core
from weft.kernels import kernel
from weft.ops.families.indexing import (
    CheckIndices,
    Embedding,
    IndexGet,
    IndexPut,
    PutAlongAxis,
    Take,
    TakeAlongAxis,
    split_shape,
)
from weft.ops.kernels import Native
from weft.ops.types import TensorType, normalize_axes


@kernel(Take)
def take(op: Take, x: TensorType, indices: TensorType) -> Iterator[Native]:
    axis = op.axis_of(x)
    yield Native(lambda _, __: _core.kernel_index_get([axis], axis), exact=False)


@kernel(CheckIndices)
def check_indices(op: CheckIndices, x: TensorType, *indices: TensorType) -> Iterator[Native]:
    yield Native(
        lambda _, __: _core.kernel_check_indices(op.blamed, op.axes),
        exact=False,
        order=tuple(range(1, len(indices) + 2)),
        numbers=tuple((x.shape[axis], "int64") for axis in op.axes),
    )


@kernel(TakeAlongAxis)
def take_along_axis(op: TakeAlongAxis, x: TensorType, indices: TensorType) -> Iterator[Native]:
    axis, shape, repeated = op.shapes(x, indices)
    if (x.shape, indices.shape) == (repeated, shape):
        yield Native(lambda _, __: _core.kernel_take_along_axis(axis), exact=False)


@kernel(PutAlongAxis)
def put_along_axis(
    op: PutAlongAxis, x: TensorType, indices: TensorType, updates: TensorType
) -> Iterator[Native]:
    if updates.shape == indices.shape and updates.dtype is x.dtype:
        axis = normalize_axes(op.name, op.axis, x.ndim)[0]
        yield Native(lambda _, __: _core.kernel_scatter(axis, op.mode), exact=False, in_place=((0, 0),))


@kernel(IndexGet)
def index_get(op: IndexGet, x: TensorType, *indices: TensorType) -> Iterator[Native]:
    if all(t.shape == indices[0].shape for t in indices):
        axes = [a % x.ndim for a in op.axes]
        yield Native(lambda _, __: _core.kernel_index_get(axes, op.position), exact=False)


@kernel(IndexPut)
def index_put(op: IndexPut, x: TensorType, updates: TensorType, *indices: TensorType) -> Iterator[Native]:
    shape = split_shape(op, x, indices, op.axes, op.position)[1]
    if op._plain(x, updates, indices, shape):
        axes = [a % x.ndim for a in op.axes]
        last = 2 + len(indices)
        yield Native(
            lambda _, __: _core.kernel_index_put(axes, op.position, op.mode),
            exact=False,
            order=(0, *range(2, last), 1, last),
            in_place=((0, 0),),
        )


@kernel(Embedding)
def embedding(op: Embedding, indices: TensorType, table: TensorType) -> Iterator[Native]:
    yield Native(lambda _, __: _core.kernel_index_get([0], 0), exact=False, order=(1, 0, 2))
