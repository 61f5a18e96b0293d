"""Kernels of weft.ops.families.indexing on GPUs.

Elements are read by a thread for each of the result. They are written by a thread for each position of the other axes,
which goes through the indices in their order: so repeated ones mean what they mean on a processor, and results repeat
bit for bit.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.expr import draws
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Each, Fold, Once, Reduction, Store
from weft.expr.launches import thread_loop
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

Scalar = e.Scalar


def first_refused(
    dtype: str,
    rank: int,
    refused: Scalar,
    name: str,
    first_size: int,
    value: Scalar | None = None,
    others: tuple[str, ...] = (),
) -> Any:
    """A loop from an array to the place, in row-major order, of the first element that is refused, and to its value.

    value: int64, of the element; None: the element itself. others: types of other arrays of its shape, which refused
    and value may read.

    The place is -1 if none is. The array's sizes are parameters from first_size on.
    """
    inputs = 1 + len(others)
    flag = e.where(refused, e.constant(1, "int32"), e.constant(0, "int32"))
    fold = Fold((Reduction(0, "argmax", flag), Reduction(1, "max", flag)))
    none = e.result(1, "int32") == e.constant(0, "int32")
    place = e.where(none, e.constant(-1, "int64"), e.result(0, "int64"))
    axes = (1 << max(rank, 1)) - 1
    number = e.cast(draws.place([e.parameter(first_size + d, "int64") for d in range(rank)]), "int64")
    is_first = number == e.result(0, "int64")
    value = e.cast(e.load(0, dtype), "int64") if value is None else value
    value = e.where(is_first, value, e.constant(0, "int64"))
    stages = (
        fold,
        Fold((Reduction(2, "sum", value),)),
        Once((Store(inputs, place), Store(inputs + 1, e.result(2, "int64")))),
    )
    dtypes = (dtype, *others, "int64", "int64")
    return thread_loop(name, dtypes, stages, inputs=inputs, row_axes=axes, positions=axes, is_ordered=True)


@functools.cache
def index_check(dtype: str, rank: int) -> Any:
    """The first index outside of -n ... n-1; parameter 0 is n."""
    size = e.parameter(0, "int64")
    index = e.load(0, dtype)
    if dtype == "uint64":
        refused = index >= e.cast(size, dtype)
    else:
        index = e.cast(index, "int64")
        refused = (index < -size) | (index >= size)
    return first_refused(dtype, rank, refused, "check_indices", 1)


def position_of(operand: int, dtype: str, number: int) -> Scalar:
    """Where index number `number` points; negative ones count from the end, and those that a check refuses are 0.

    Its size is the parameter `number`.
    """
    index, size = e.cast(e.load(operand, dtype), "int64"), e.parameter(number, "int64")
    index = e.where(index < 0, index + size, index)
    return e.where((index >= 0) & (index < size), index, e.constant(0, "int64"))


@functools.cache
def reading(dtype: str, index_types: tuple[str, ...]) -> Any:
    """y = x at indices: operands x, indices, y."""
    positions = [position_of(1 + k, t, k) for k, t in enumerate(index_types)]
    y = 1 + len(index_types)
    stages = (Each((Store(y, e.load_at(0, dtype, *positions)),)),)
    return thread_loop("gather", (dtype, *index_types, dtype), stages, inputs=y, gathered=(len(positions),))


def latter(old: Scalar, new: Scalar) -> Scalar:
    """What remains of an element that is set."""
    return new


@functools.cache
def writing(dtype: str, index_types: tuple[str, ...], rows: int, mode: str) -> Any:
    """y at indices = its element and the update, combined: operands indices, updates, y; rows: axes of the indices."""
    count = len(index_types)
    positions = tuple(position_of(k, t, k) for k, t in enumerate(index_types))
    old, new = e.load_at(count + 1, dtype, *positions), e.load(count, dtype)
    of_numbers = {"set": latter, "add": operator.add, "max": e.maximum, "min": e.minimum}
    of_bools = {"set": latter, "add": operator.or_, "max": operator.or_, "min": operator.and_}
    value = (of_bools if dtype == "bool" else of_numbers)[mode](old, new)
    stages = (Each((Store(count + 1, expand(value), at=positions),)),)
    dtypes = (*index_types, dtype, dtype)
    gathered = (*[0] * (count + 1), count)
    return thread_loop(
        "scatter",
        dtypes,
        stages,
        inputs=count + 1,
        row_axes=rows,
        positions=rows,
        is_ordered=True,
        gathered=gathered,
    )


@functools.cache
def copying(dtype: str, source: str = "") -> Any:
    """y = x, which is of the type `source`, or of the same."""
    source = source or dtype
    value = expand(e.cast(e.load(0, source), dtype))
    return thread_loop("copy", (source, dtype), (Each((Store(1, value),)),), inputs=1)


def checks(indices: Sequence[Any]) -> list[Any]:
    return [index_check(dtype, len(shape)) for dtype, shape, _ in indices]


def ways_of_points(rank: int, axes: Sequence[int], position: int, points: int) -> tuple[list[int], list[int]]:
    """For the axes of x[indices]: the axis of x, and that of the indices, each -1 where there is none."""
    others = [d for d in range(rank) if d not in axes]
    of_x = [*others[:position], *[-1] * points, *others[position:]]
    of_indices = [*[-1] * position, *range(points), *[-1] * (len(others) - position)]
    return of_x, of_indices


def get(axes: Sequence[int], position: int) -> Any:
    """make() of a Native that reads x at indices: operands x, indices, y."""

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        (x, *indices), (y,) = inputs, outputs
        of_x, of_indices = ways_of_points(len(x[1]), axes, position, len(indices[0][1]))
        last = 1 + len(indices)
        rank = len(y[1])
        operands = [
            (0, of_x, list(axes)),
            *((1 + k, of_indices, []) for k in range(len(indices))),
            (last, list(range(rank)), []),
        ]
        loop = reading(x[0], tuple(i[0] for i in indices))
        loops = [(last, d) for d in range(rank)]
        places = [(1 + k, 0, axis) for k, axis in enumerate(axes)]
        return _core.make_indexed_threads("index", loops, operands, places, checks(indices), loop, None)

    return make


@kernel(Take, device="gpu")
def take(op: Take, x: TensorType, indices: TensorType) -> Iterator[Native]:
    axis = op.axis_of(x)
    yield Native(get([axis], axis), exact=False)


@functools.cache
def zero() -> Any:
    """y = 0, what a check of indices gives to the loop that reads at them."""
    return thread_loop("checked", ("int64",), (Each((Store(0, e.constant(0, "int64")),)),), inputs=0)


@kernel(CheckIndices, device="gpu")
def check_indices(op: CheckIndices, x: TensorType, *indices: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        _, *indices = inputs
        places = [(1 + k, 0, axis) for k, axis in enumerate(op.axes)]
        return _core.make_indexed_threads(
            op.blamed, [], [(1 + len(indices), [], [])], places, checks(indices), zero(), None
        )

    yield Native(make, exact=False)


@kernel(IndexGet, device="gpu")
def index_get(op: IndexGet, x: TensorType, *indices: TensorType) -> Iterator[Native]:
    if all(t.shape == indices[0].shape for t in indices):
        yield Native(get([a % x.ndim for a in op.axes], op.position), exact=False)


@kernel(Embedding, device="gpu")
def embedding(op: Embedding, indices: TensorType, table: TensorType) -> Iterator[Native]:
    make = get([0], 0)
    yield Native(lambda inputs, outputs: make(inputs[::-1], outputs), exact=False, order=(1, 0, 2))


@kernel(TakeAlongAxis, device="gpu")
def take_along_axis(op: TakeAlongAxis, x: TensorType, indices: TensorType) -> Iterator[Native]:
    axis, shape, repeated = op.shapes(x, indices)
    if (x.shape, indices.shape) != (repeated, shape):
        return

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        x, indices = inputs
        each = list(range(len(x[1])))
        of_x = [-1 if d == axis else d for d in each]
        operands = [(0, of_x, [axis]), (1, each, []), (2, each, [])]
        loop = reading(x[0], (indices[0],))
        return _core.make_indexed_threads(
            "take_along_axis", [(2, d) for d in each], operands, [(1, 0, axis)], checks([indices]), loop, None
        )

    yield Native(make, exact=False)


@kernel(PutAlongAxis, device="gpu")
def put_along_axis(
    op: PutAlongAxis, x: TensorType, indices: TensorType, updates: TensorType
) -> Iterator[Native]:
    if updates.shape != indices.shape or updates.dtype is not x.dtype:
        return
    axis = normalize_axes(op.name, op.axis, x.ndim)[0]

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        x, indices, _ = inputs
        each = list(range(len(x[1])))
        of_y = [-1 if d == axis else d for d in each]
        operands = [(1, each, []), (2, each, []), (3, of_y, [axis])]
        loop = writing(x[0], (indices[0],), 1 << len(each) - 1 - axis, op.mode)
        return _core.make_indexed_threads(
            "scatter",
            [(1, d) for d in each],
            operands,
            [(1, 0, axis)],
            checks([indices]),
            loop,
            copying(x[0]),
        )

    yield Native(make, exact=False, in_place=((0, 0),))


@kernel(IndexPut, device="gpu")
def index_put(op: IndexPut, x: TensorType, updates: TensorType, *indices: TensorType) -> Iterator[Native]:
    shape = split_shape(op, x, indices, op.axes, op.position)[1]
    if not op._plain(x, updates, indices, shape):
        return
    axes = [a % x.ndim for a in op.axes]
    count = len(indices)

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        x, updates, *indices = inputs
        points = len(indices[0][1])
        of_y, of_indices = ways_of_points(len(x[1]), axes, op.position, points)
        of_updates = list(range(len(updates[1])))
        loops = [(count + 1, d) for d in of_updates]
        rows = [d for d, axis in enumerate(of_indices) if axis >= 0]
        if not rows:  # one point: a row of one
            of_y, of_indices, of_updates = [*of_y, -1], [*of_indices, -1], [*of_updates, -1]
            loops, rows = [*loops, (-1, 0)], [len(loops)]
        operands = [
            *((1 + k, of_indices, []) for k in range(count)),
            (count + 1, of_updates, []),
            (count + 2, of_y, axes),
        ]
        row_axes = sum(1 << len(loops) - 1 - d for d in rows)
        loop = writing(x[0], tuple(i[0] for i in indices), row_axes, op.mode)
        places = [(1 + k, 0, axis) for k, axis in enumerate(axes)]
        return _core.make_indexed_threads(
            "index_put", loops, operands, places, checks(indices), loop, copying(x[0])
        )

    yield Native(make, exact=False, order=(0, *range(2, 2 + count), 1, 2 + count), in_place=((0, 0),))
