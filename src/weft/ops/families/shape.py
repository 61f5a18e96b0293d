"""Operators that show the same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.kernels import Parts, View
from weft.ops.op import Op, op
from weft.ops.pointwise import unbroadcast
from weft.ops.types import TensorType, normalize_axes


class Viewing(Op, family="view", primitive=True, rule="x -> y: x"):
    """Base: the output is a view; a class gives see(shape, strides), as weft.ops.kernels.View needs it.

    keeps_order: the elements in row-major order in another shape, which is a copy where strides allow no view.
    """

    keeps_order: ClassVar[bool] = False

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
        raise NotImplementedError

    def infer(self, x: TensorType) -> TensorType:
        geometry = self.see(x.shape, (1,) * x.ndim)
        assert geometry is not None
        return x.like(geometry[0])

    def kernels(self, x: TensorType) -> Iterator[View]:
        yield View(self.see)

    def vjp(self, x: Any, dy: Any) -> Any:
        """dy at the elements that the view shows; only for views that show no element twice."""
        return F.view_gradient(dy, x, of=self)


@op
class ViewGradient(Op, primitive=True, public=False, outputs=("z",)):
    """Zeros of x's shape, with dy at the elements that a view of x covers. Only the type of x is used."""

    of: object

    def infer(self, dy: TensorType, x: TensorType) -> TensorType:
        return dy.like(x.shape)

    def kernels(self, dy: TensorType, x: TensorType) -> Iterator[Parts]:
        of: Any = self.of
        yield Parts(((0, of.see),), fill=0)

    def vjp(self, dy: Any, dz: Any) -> Any:
        of: Any = self.of
        return dz.__weft_apply__(type(of), (dz,), of.values()), None


class Permuting(Viewing):
    """Base: a view with the dimensions in another order."""

    def order(self, ndim: int) -> tuple[int, ...]:
        """Which dimension of x each one of the result is."""
        raise NotImplementedError

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        axes = self.order(len(shape))
        return tuple([shape[a] for a in axes]), tuple([strides[a] for a in axes]), 0

    def vjp(self, x: Any, dy: Any) -> Any:
        axes = self.order(x.ndim)
        return F.permute_dims(dy, axes=tuple(axes.index(d) for d in range(x.ndim)))


@op
class PermuteDims(Permuting, positional=("axes",)):
    """A view with the dimensions in the order of axes.

    x: [...]; axes: a permutation of x's dimensions. Returns x's dtype. Raises ShapeError if it is none.
    Source: array API 2024.12, permute_dims.

    >>> import weft as wf
    >>> wf.permute_dims(wf.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """

    axes: tuple[int, ...]

    def order(self, ndim: int) -> tuple[int, ...]:
        axes = tuple(a + ndim if a < 0 else a for a in self.axes)
        if sorted(axes) != list(range(ndim)):
            raise ShapeError(f"permute_dims: axes {self.axes} are not a permutation of the {ndim} of x")
        return axes


@op
class ExpandDims(Viewing, positional=("axis",)):
    """A view with new dimensions of size 1 at these indices of the result's.

    x: [...]; axis: an int or several, distinct. Returns x's dtype. Raises IndexError if one is out of range.
    Source: array API 2024.12, expand_dims.

    >>> import weft as wf
    >>> wf.expand_dims(wf.zeros((2, 3)), axis=1).shape
    (2, 1, 3)
    """

    axis: int | tuple[int, ...] = 0

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        count = 1 if isinstance(self.axis, int) else len(self.axis)
        axes = normalize_axes(self.name, self.axis, len(shape) + count)
        sizes, steps = iter(shape), iter(strides)
        dimensions = range(len(shape) + count)
        return (
            tuple([1 if d in axes else next(sizes) for d in dimensions]),
            tuple([0 if d in axes else next(steps) for d in dimensions]),
            0,
        )

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.squeeze(dy, axis=normalize_axes(self.name, self.axis, dy.ndim))


@op
class Squeeze(Viewing, positional=("axis",)):
    """A view without these dimensions of size 1.

    x: [...]; axis: an int or several. Returns x's dtype. Raises IndexError if one is out of range, ShapeError if its
    size is not 1.
    Source: array API 2024.12, squeeze.

    >>> import weft as wf
    >>> wf.squeeze(wf.zeros((2, 1, 3)), axis=1).shape
    (2, 3)
    """

    axis: int | tuple[int, ...]

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        axes = normalize_axes(self.name, self.axis, len(shape))
        for a in axes:
            if shape[a] != 1:
                raise ShapeError(f"squeeze: size {shape[a]} of axis {a} is not 1")
        others = [d for d in range(len(shape)) if d not in axes]
        return tuple(shape[d] for d in others), tuple(strides[d] for d in others), 0

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.expand_dims(dy, axis=normalize_axes(self.name, self.axis, x.ndim))


@op
class Reshape(Viewing, keeps_order=True, positional=("shape",)):
    """The same elements in another shape, in row-major order; one size may be -1.

    x: [...]; shape: sizes whose product is x's; copy: None gives a view where the strides allow it, True always a copy,
    False never. Returns x's dtype. Raises ShapeError if the number of elements differs, ValueError if copy=False and no
    view shows them. Source: array API 2024.12, reshape.

    >>> import weft as wf
    >>> wf.reshape(wf.arange(6), (2, -1)).shape
    (2, 3)
    """

    shape: int | tuple[int, ...]
    copy: bool | None = None

    def check(self) -> None:
        if isinstance(self.shape, int):
            self.set("shape", (self.shape,))

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
        new_shape = self._resolve(shape)
        steps = reshape_strides(shape, strides, new_shape)
        if steps is None and self.copy is False:
            raise ValueError(
                f"reshape: copy=False, but this needs a copy: x has shape {shape}, strides {strides}"
            )
        return None if steps is None else (new_shape, steps, 0)

    def _resolve(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        size = math.prod(shape)
        new_shape: Any = self.shape
        count = math.prod(n for n in new_shape if n != -1)
        if new_shape.count(-1) == 1 and count and size % count == 0:
            new_shape = tuple(size // count if n == -1 else n for n in new_shape)
        if any(n < 0 for n in new_shape) or math.prod(new_shape) != size:
            raise ShapeError(
                f"reshape: {size} elements do not fit the shape {self.shape}: x has shape {shape}"
            )
        return tuple(new_shape)

    def infer(self, x: TensorType) -> TensorType:
        return x.like(self._resolve(x.shape))

    def kernels(self, x: TensorType) -> Iterator[View | Parts]:  # type: ignore[override]
        if self.copy is not True:
            yield View(self.see)
        else:
            shape: Any = x.shape
            yield Parts(((0, Reshape(shape=shape).see),))

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.reshape(dy, shape=x.shape)


def reshape_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides that show the elements in the new shape, None if only a copy could.

    >>> reshape_strides((2, 3), (3, 1), (6,)), reshape_strides((2, 3), (1, 2), (6,))
    ((1,), None)
    """
    if math.prod(shape) == 0:
        return tuple(math.prod(new_shape[d + 1 :]) for d in range(len(new_shape)))
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    new = [d for d, n in enumerate(new_shape) if n != 1]
    result = [1] * len(new_shape)
    k = j = 0
    while k < len(old):
        # The shortest run of old dimensions that has as many elements as a run of new ones.
        start = j
        olds, news = old[k][0], new_shape[new[j]]
        k, j = k + 1, j + 1
        while olds != news:
            if olds < news:
                if old[k - 1][1] != old[k][0] * old[k][1]:
                    return None
                olds, k = olds * old[k][0], k + 1
            else:
                news, j = news * new_shape[new[j]], j + 1
        step = old[k - 1][1]
        for d in reversed(new[start:j]):
            result[d] = step
            step *= new_shape[d]
    return tuple(result)


@op
class BroadcastTo(Viewing, positional=("shape",)):
    """A view in a larger shape, whose new dimensions repeat the same elements; those cannot be written.

    x: [...]; shape: sizes. Returns x's dtype. Raises ShapeError if a size of x is neither 1 nor that of the shape.
    Source: array API 2024.12, broadcast_to.

    >>> import weft as wf
    >>> wf.broadcast_to(wf.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]], dtype=int64, device=cpu:0)
    """

    shape: int | tuple[int, ...]

    def check(self) -> None:
        if isinstance(self.shape, int):
            self.set("shape", (self.shape,))

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        target: Any = self.shape
        return see_broadcast(self.name, shape, strides, target)

    def vjp(self, x: Any, dy: Any) -> Any:
        return unbroadcast(dy, x)


@op
class BroadcastLike(Op, primitive=True, public=False):
    """A view of a repeated to the shape of x, of which nothing else is read; the gradient of reductions."""

    def infer(self, a: TensorType, x: TensorType) -> TensorType:
        return a.like(see_broadcast(self.name, a.shape, (0,) * a.ndim, x.shape)[0])

    def kernels(self, a: TensorType, x: TensorType) -> Iterator[View]:
        yield View(lambda shape, strides: see_broadcast(self.name, shape, strides, x.shape))

    def vjp(self, a: Any, dy: Any) -> Any:
        return unbroadcast(dy, a), None


def see_broadcast(
    name: str, shape: tuple[Any, ...], strides: tuple[Any, ...], target: tuple[Any, ...]
) -> tuple[Any, Any, Any]:
    """The geometry of a repeated view; ShapeError if it does not fit."""
    extra = len(target) - len(shape)
    is_repeatable = extra >= 0 and all(
        n == 1 or n is w or n == w for n, w in zip(shape, target[extra:], strict=True)
    )
    if not is_repeatable:
        raise ShapeError(f"{name}: x does not fit {target}: x has shape {shape}")
    steps = tuple(0 if isinstance(n, int) and n == 1 else s for n, s in zip(shape, strides, strict=True))
    return tuple(target), (0,) * extra + steps, 0


@op
class Swapaxes(Permuting, positional=("axis1", "axis2")):
    """A view with two dimensions exchanged.

    x: [...]; axis1, axis2: which. Returns x's dtype. Raises IndexError if one is out of range.
    Source: NumPy's swapaxes.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.swapaxes(wf.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """

    axis1: int
    axis2: int

    def order(self, ndim: int) -> tuple[int, ...]:
        first, second = (normalize_axes(self.name, a, ndim)[0] for a in (self.axis1, self.axis2))
        axes = list(range(ndim))
        axes[first], axes[second] = second, first
        return tuple(axes)


@op
class MatrixTranspose(Permuting):
    """A view with the last two dimensions exchanged.

    x: [..., n, m]. Returns [..., m, n], x's dtype. Raises ShapeError for fewer than 2 dimensions.
    Source: array API 2024.12, matrix_transpose.

    >>> import weft as wf
    >>> wf.matrix_transpose(wf.zeros((2, 3, 4))).shape
    (2, 4, 3)
    """

    def order(self, ndim: int) -> tuple[int, ...]:
        if ndim < 2:
            raise ShapeError(f"matrix_transpose: needs at least 2 dimensions, got {ndim}")
        return (*range(ndim - 2), ndim - 1, ndim - 2)


@op
class Moveaxis(Permuting, positional=("source", "destination")):
    """A view with some dimensions moved to other indices, the others in their order.

    x: [...]; source: an int or several; destination: where they come in the result. Returns x's dtype.
    Raises IndexError if one is out of range, ValueError if there are more of one than of the other.
    Source: array API 2024.12, moveaxis.

    >>> import weft as wf
    >>> wf.moveaxis(wf.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """

    source: int | tuple[int, ...]
    destination: int | tuple[int, ...]

    def check(self) -> None:
        for name in ("source", "destination"):
            value = getattr(self, name)
            self.set(name, (value,) if isinstance(value, int) else value)
        if len(self.source) != len(self.destination):  # type: ignore[arg-type]
            raise ValueError(f"moveaxis: {self.source} and {self.destination} differ in number")

    def order(self, ndim: int) -> tuple[int, ...]:
        normalize_axes(self.name, self.source, ndim)
        normalize_axes(self.name, self.destination, ndim)
        pairs: Any = zip(self.source, self.destination, strict=True)  # type: ignore[arg-type]
        moved = {d % ndim: s % ndim for s, d in pairs}
        unmoved = iter(a for a in range(ndim) if a not in moved.values())
        return tuple(moved[d] if d in moved else next(unmoved) for d in range(ndim))


@op
class Flatten(Viewing, keeps_order=True, positional=("start_axis", "end_axis")):
    """x with the dimensions from start_axis to end_axis as one; a view where strides allow it.

    x: [...]; start_axis, end_axis: the first and the last of them. Returns x's dtype; a 0-d x gives one dimension.
    Raises IndexError if one is out of range, ValueError if the last comes before the first.
    Source: PyTorch's flatten.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.flatten(wf.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """

    start_axis: int = 0
    end_axis: int = -1

    def _shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        if not shape:
            return (1,)
        first, last = (normalize_axes(self.name, a, len(shape))[0] for a in (self.start_axis, self.end_axis))
        if last < first:
            raise ValueError(f"flatten: end_axis {self.end_axis} comes before start_axis {self.start_axis}")
        size: Any = 1
        for n in shape[first : last + 1]:
            size = n if isinstance(size, int) and size == 1 else size * n
        return (*shape[:first], size, *shape[last + 1 :])

    def infer(self, x: TensorType) -> TensorType:
        return x.like(self._shape(x.shape))

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
        new_shape = self._shape(shape)
        steps = reshape_strides(shape, strides, new_shape)
        return None if steps is None else (new_shape, steps, 0)

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.reshape(dy, shape=x.shape)


@op
class Flip(Viewing, positional=("axis",)):
    """A view with the elements in reverse order along axes.

    x: [...]; axis: an int, several, or None for all. Returns x's shape and dtype. Raises IndexError if one is out of
    range.
    Source: array API 2024.12, flip.

    >>> import weft as wf
    >>> wf.flip(wf.tensor([1, 2, 3]))
    tensor([3, 2, 1], dtype=int64, device=cpu:0)
    """

    axis: int | tuple[int, ...] | None = None

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        axes = normalize_axes(self.name, self.axis, len(shape))
        offset: Any = 0
        for a in axes:
            if not (isinstance(shape[a], int) and shape[a] == 0):
                offset = (shape[a] - 1) * strides[a] + offset
        return shape, tuple(-1 * n if d in axes else n for d, n in enumerate(strides)), offset

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.flip(dy, axis=self.axis)


END = 2**62  # as a stop of slices: there is none


@op
class Slice(Viewing, positional=("starts", "stops", "steps", "axes")):
    """A view of the elements from starts to before stops, every steps-th, along axes, as Python's slices take them.

    x: [...]; starts, stops: one number for each axis, below 0 from the end, beyond the ends the end; steps: by default
    1, below 0 backwards; axes: by default the first ones. Returns x's dtype. Raises IndexError if an axis is out of
    range, ValueError if a step is 0 or the numbers of numbers differ. A stop of -2**62 goes backwards through the first
    one.
    Source: Python's slice; ONNX's Slice.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.slice(wf.arange(6), (1,), (6,), (2,))
    tensor([1, 3, 5], dtype=int64, device=cpu:0)
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None

    def check(self) -> None:
        count = len(self.starts)
        self.set("steps", (1,) * count if self.steps is None else self.steps)
        self.set("axes", tuple(range(count)) if self.axes is None else self.axes)
        sizes = {count, len(self.stops), len(self.steps or ()), len(self.axes or ())}
        if len(sizes) > 1:
            raise ValueError(f"slice: starts, stops, steps and axes differ in number: {self!r}")
        if 0 in (self.steps or ()):
            raise ValueError("slice: a step must not be 0")

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        assert self.steps is not None
        assert self.axes is not None
        normalize_axes(self.name, self.axes, len(shape))
        sizes, jumps, offset = list(shape), list(strides), 0
        for start, stop, step, axis in zip(self.starts, self.stops, self.steps, self.axes, strict=True):
            indices = range(*slice(start, stop, step).indices(shape[axis]))
            sizes[axis], jumps[axis] = len(indices), strides[axis] * step
            if len(indices):
                offset = strides[axis] * indices.start + offset
        return tuple(sizes), tuple(jumps), offset


@op
class Diagonal(Viewing, positional=("offset", "axis1", "axis2")):
    """A view of the elements at equal indices of two axes, as a new last dimension.

    x: [..., n, ..., m, ...]; offset: by how much axis2's index exceeds axis1's; axis1, axis2: which. Returns x's dtype.
    Raises IndexError if an axis is out of range, ValueError if both are the same.
    Source: NumPy's diagonal.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.diagonal(wf.tensor([[1, 2], [3, 4]]))
    tensor([1, 4], dtype=int64, device=cpu:0)
    """

    offset: int = 0
    axis1: int = 0
    axis2: int = 1

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        normalize_axes(self.name, (self.axis1, self.axis2), len(shape))
        first, second = self.axis1 % len(shape), self.axis2 % len(shape)
        rows, columns = shape[first], shape[second]
        down, right = max(-self.offset, 0), max(self.offset, 0)
        size = max(0, min(int(rows) - down, int(columns) - right))
        start = down * strides[first] + right * strides[second] if size else 0
        others = [d for d in range(len(shape)) if d not in (first, second)]
        return (
            (*(shape[d] for d in others), size),
            (*(strides[d] for d in others), strides[first] + strides[second]),
            start,
        )


__all__ = ["END", "Viewing", "reshape_strides", "see_broadcast"]
