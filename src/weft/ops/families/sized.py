"""What depends on elements, in results of a given size: indices of what is not zero, distinct elements, repetitions.

Ranks in a running sum say where an element of the result comes from, which a search in it finds: no step depends on
data, so traces, symbols and batches of examples have them like any others. weft.arrays.data_dependent has them without
a size.
"""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.indexing import broadcast_all
from weft.ops.families.interpolation import steps
from weft.ops.families.reduction import window
from weft.ops.op import Runtime, op
from weft.ops.pointwise import cast_to
from weft.ops.types import broadcast_shapes, normalize_axes


class Sized(Composed, family="indexing"):
    """Base: the number of results is an attribute."""

    size: int

    def check(self) -> None:
        if self.size < 0:
            raise ValueError(f"{self.name}: size must be at least 0, got {self.size}")

    def true_places(self, mask: Any) -> tuple[Any, Any]:
        """The first `size` indices of a flat mask's true elements, int64, and which are there; others are 0."""
        ranks = F.cumulative_sum(F.cast(mask, dtype=int64))
        places = F.searchsorted(ranks, steps(mask, self.size, int64) + 1)
        is_there = places < mask.shape[0]
        return F.where(is_there, places, 0), is_there


@op
class Argwhere(Sized, rule="x -> y: int64", positional=("size", "fill_value")):
    """The indices of the elements that are not zero, in row-major order, as rows of a result of a given size.

    x: any dtype [...]; size: the number of rows; more indices than that are cut off; fill_value: what further rows
    have. NaN is not zero. Returns int64[size, dimensions of x]. weft.argwhere and weft.nonzero also work without a
    size. Raises ValueError for a size below 0.
    Source: NumPy's argwhere; JAX's, for the size.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.argwhere(wf.tensor([[1, 0], [0, 2]]), 3, -1).tolist()
    [[0, 0], [1, 1], [-1, -1]]
    """

    fill_value: int = 0

    def decompose(self, x: Any) -> Any:
        if x.ndim == 0:
            return F.reshape(steps(x, 0, int64), shape=(self.size, 0))
        flat = F.not_equal(F.reshape(x, shape=(-1,)) if x.ndim > 1 else x, 0)
        places, is_there = self.true_places(flat)
        columns, step = [], 1
        for n in reversed(x.shape):
            index = F.remainder(F.floor_divide(places, step), n) if n else places
            columns.append(F.where(is_there, index, self.fill_value))
            step = step * n if n else step
        return F.stack(columns[::-1], axis=-1)

    def vjp(self, x: Any) -> Any:
        return None


@op
class MaskedSelect(Sized, rule="x, mask: bool -> y: x", positional=("size", "fill_value")):
    """The elements of x where a mask is true, in row-major order, in a result of a given size.

    x: any dtype [...]; mask: booleans; both fit by broadcasting; size: more elements than that are cut off; fill_value:
    what is behind the last, given when it runs. Returns x's dtype [size]. weft.masked_select also works without a size.
    Raises DTypeError unless the mask is boolean, ShapeError if shapes do not fit, ValueError for a size below 0.
    Source: PyTorch's masked_select.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.masked_select(wf.tensor([1., 2., 3.]), wf.tensor([True, False, True]), 3)
    tensor([1., 3., 0.], dtype=float32, device=cpu:0)
    """

    fill_value: Runtime[float] = 0.0

    def decompose(self, x: Any, mask: Any) -> Any:
        shape = broadcast_shapes(self.name, {"x": x.type, "mask": mask.type})
        x, mask = (F.reshape(v, shape=(-1,)) for v in broadcast_all((x, mask), shape))
        if 0 in shape:
            empty = steps(x, self.size, x.dtype)
            return F.masked_fill(empty, F.equal(empty, empty), value=self.fill_value)
        places, is_there = self.true_places(mask)
        return F.masked_fill(F.take(x, places, axis=0), F.logical_not(is_there), value=self.fill_value)


@op
class UniqueAll(
    Sized,
    rule="x -> values: x, indices: int64, inverse: int64, counts: int64",
    positional=("size", "fill_value"),
):
    """The distinct elements in ascending order, with indices, inverse indices and counts, in results of a given size.

    x: any dtype but complex, [...]; size: more elements than that are cut off; fill_value: what is behind the last;
    by default the least element. Returns values [size]; indices int64[size], of the first occurrence in row-major
    order, behind the last those of the least element; inverse int64 of x's shape, the index of each element among all
    distinct ones, also those that are cut off; counts int64[size], 0 behind the last. Every NaN is distinct; zeros of
    both signs are equal. weft.unique_all also works without a size. Raises DTypeError for complex numbers, ShapeError
    for an empty x without fill_value, ValueError for a size below 0.
    Source: array API 2024.12, unique_all; JAX's unique, for the size.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> [part.tolist() for part in F.unique_all(wf.tensor([3, 1, 3]), 3)]
    [[1, 3, 1], [1, 0, 1], [1, 0, 1], [1, 2, 0]]
    """

    fill_value: float | None = None

    def decompose(self, x: Any) -> Any:
        self.require_order(x=x.type)
        n = x.size
        if n == 0:
            if self.fill_value is None and self.size:
                raise self.fail(
                    ShapeError, f"{self.size} distinct elements of none need fill_value", x=x.type
                )
            nothing = steps(x, self.size, int64) * 0
            values = F.masked_fill(cast_to(nothing, x.dtype), F.equal(nothing, 0), value=self.fill_value or 0)
            return values, nothing, F.reshape(steps(x, 0, int64), shape=x.shape), nothing
        flat = F.reshape(x, shape=(n,))
        order = F.argsort(flat)
        ordered = F.take(flat, order, axis=0)
        is_new = F.not_equal(window(ordered, 0, 1, n - 1), window(ordered, 0, 0, n - 1))
        group = F.cumulative_sum(F.cast(is_new, dtype=int64), include_initial=True)
        inverse = F.index_put(group * 0, group, order, axes=(0,))
        first = F.searchsorted(group, steps(x, self.size + 1, int64))
        starts, ends = window(first, 0, 0, self.size), window(first, 0, 1, self.size)
        is_there = starts < n
        starts = F.where(is_there, starts, 0)
        values = F.take(ordered, starts, axis=0)
        if self.fill_value is not None:
            values = F.masked_fill(values, F.logical_not(is_there), value=self.fill_value)
        counts = F.where(is_there, ends - starts, 0)
        return values, F.take(order, starts, axis=0), F.reshape(inverse, shape=x.shape), counts


@op
class RepeatEach(Sized, rule="x, repeats: int -> y: x", positional=("size", "axis")):
    """Slices of x, each as often as a number of its own says, one after the other, in a result of a given size.

    x: [..., n, ...]; repeats: integers of at least 0, [n], or one for all; axis: along which, None: x is flattened
    first; size: the result's along it; more slices than that are cut off, and the last slice is repeated further.
    Returns x's dtype. weft.repeat also works without a size. Raises ShapeError if the numbers do not fit, or for an
    empty axis and a size above 0, IndexError if the axis is out of range, ValueError for a size below 0.
    Source: array API 2024.12, repeat; JAX's total_repeat_length, for the size.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.repeat_each(wf.tensor([1, 2, 3]), wf.tensor([2, 0, 1]), 4).tolist()
    [1, 1, 3, 3]
    """

    axis: int | None = None

    def decompose(self, x: Any, repeats: Any) -> Any:
        if self.axis is None:
            x = F.reshape(x, shape=(-1,))
        (axis,) = normalize_axes(self.name, self.axis or 0, x.ndim)
        n = x.shape[axis]
        if repeats.ndim > 1 or math.prod(repeats.shape) not in (1, n):
            raise self.fail(ShapeError, f"needs {n} repeats, or one", x=x.type, repeats=repeats.type)
        if n == 0:
            if self.size:
                raise self.fail(ShapeError, f"nothing to repeat {self.size} times", x=x.type)
            return x
        (repeats,) = broadcast_all((cast_to(repeats, int64),), (n,))
        ends = F.cumulative_sum(repeats)
        source = F.searchsorted(ends, steps(x, self.size, int64), side="right")
        return F.take(x, F.minimum(source, n - 1), axis=axis)


__all__ = ["Argwhere", "MaskedSelect", "RepeatEach", "UniqueAll"]
