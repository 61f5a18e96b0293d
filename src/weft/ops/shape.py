"""Operators that show the same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from weft.base.dtype import int64
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, Parts, View, pointwise_loop
from weft.ops.op import Op, Runtime, op
from weft.ops.samples import Array, Sample, arrays
from weft.ops.types import TensorType, broadcast_shapes, normalize_axes, promote


class Viewing(Op):
    """Base: the output is a view; a class gives see(shape, strides), as weft.ops.kernels.View wants it."""

    family: ClassVar[str] = "view"

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
        raise NotImplementedError

    def infer(self, x: TensorType) -> TensorType:
        seen = self.see(x.shape, (1,) * x.ndim)
        assert seen is not None
        return x.like(seen[0])

    def kernels(self, x: TensorType) -> Iterator[View]:  # type: ignore[override]
        yield View(self.see)

    def vjp(self, x: Any, dy: Any) -> Any:
        """dy at the places that the view shows; only for views that show no element twice."""
        return F.view_gradient(dy, x, of=self)


@op
class ViewGradient(Op):
    """Zeros of x's shape, with dy at the places that a view of x shows; of x nothing else is read."""

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    of: object

    def infer(self, dy: TensorType, x: TensorType) -> TensorType:
        return dy.like(x.shape)

    def kernels(self, dy: TensorType, x: TensorType) -> Iterator[Parts]:  # type: ignore[override]
        of: Any = self.of
        yield Parts(((0, of.see),), fill=0)

    def vjp(self, dy: Any, dz: Any) -> Any:
        of: Any = self.of
        return dz.__weft_apply__(type(of), (dz,), of.values()), None

    outputs: ClassVar[tuple[str, ...]] = ("z",)

    def reference(self, dy: Any, x: Any) -> Any:
        of: Any = self.of
        z = np.zeros(np.shape(x), dy.dtype)
        shape, strides, offset = of.see(z.shape, tuple(s // z.itemsize for s in z.strides))
        if z.size:
            start = z.reshape(-1)[offset:]
            np.lib.stride_tricks.as_strided(start, shape, [n * z.itemsize for n in strides])[...] = dy
        return z


class Permuting(Viewing):
    """Base: a view with the dimensions in another order."""

    def order(self, ndim: int) -> tuple[int, ...]:
        """Which dimension of x each one of the result is."""
        raise NotImplementedError

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        axes = self.order(len(shape))
        return tuple(shape[a] for a in axes), tuple(strides[a] for a in axes), 0

    def vjp(self, x: Any, dy: Any) -> Any:
        axes = self.order(x.ndim)
        return F.permute_dims(dy, axes=tuple(axes.index(d) for d in range(x.ndim)))


@op
class PermuteDims(Permuting):
    """A view with the dimensions in the order of axes.

    x: [...]; axes: a permutation of x's dimensions. Returns x's dtype. Raises ShapeError if it is none.
    Source: array API 2024.12, permute_dims.

    >>> import weft as wf
    >>> wf.permute_dims(wf.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """

    axes: tuple[int, ...]
    positional = ("axes",)

    def order(self, ndim: int) -> tuple[int, ...]:
        axes = tuple(a + ndim if a < 0 else a for a in self.axes)
        if sorted(axes) != list(range(ndim)):
            raise ShapeError(f"permute_dims: {self.axes} is no permutation of {ndim} dimensions")
        return axes

    def reference(self, x: Any) -> Any:
        return np.transpose(x, self.axes)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3, 4)), axes=(2, 0, 1))
        yield Sample(arrays((2, 3)), axes=(-1, 0))
        yield Sample(arrays(()), axes=())

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "(0, 0) is no permutation of 2", Sample(arrays((2, 3)), axes=(0, 0))


@op
class ExpandDims(Viewing):
    """A view with new dimensions of size 1 at these places of the result.

    x: [...]; axis: an int or several, distinct. Returns x's dtype. Raises IndexError if one is out of range.
    Source: array API 2024.12, expand_dims.

    >>> import weft as wf
    >>> wf.expand_dims(wf.zeros((2, 3)), axis=1).shape
    (2, 1, 3)
    """

    axis: int | tuple[int, ...] = 0
    positional = ("axis",)

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        count = 1 if isinstance(self.axis, int) else len(self.axis)
        axes = normalize_axes(self.name, self.axis, len(shape) + count)
        sizes, steps = iter(shape), iter(strides)
        places = range(len(shape) + count)
        return (
            tuple(1 if d in axes else next(sizes) for d in places),
            tuple(0 if d in axes else next(steps) for d in places),
            0,
        )

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.squeeze(dy, axis=normalize_axes(self.name, self.axis, dy.ndim))

    def reference(self, x: Any) -> Any:
        return np.expand_dims(x, self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3)), axis=1)
        yield Sample(arrays((2, 3)), axis=(0, -1))
        yield Sample(arrays(()), axis=0)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "expand_dims: axis 3", Sample(arrays((2, 3)), axis=3)


@op
class Squeeze(Viewing):
    """A view without these dimensions of size 1.

    x: [...]; axis: an int or several. Returns x's dtype. Raises IndexError if one is out of range, ShapeError if its
    size is not 1.
    Source: array API 2024.12, squeeze.

    >>> import weft as wf
    >>> wf.squeeze(wf.zeros((2, 1, 3)), axis=1).shape
    (2, 3)
    """

    axis: int | tuple[int, ...]
    positional = ("axis",)

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        axes = normalize_axes(self.name, self.axis, len(shape))
        for a in axes:
            if shape[a] != 1:
                raise ShapeError(f"squeeze: size {shape[a]} of axis {a} is not 1")
        kept = [d for d in range(len(shape)) if d not in axes]
        return tuple(shape[d] for d in kept), tuple(strides[d] for d in kept), 0

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.expand_dims(dy, axis=normalize_axes(self.name, self.axis, x.ndim))

    def reference(self, x: Any) -> Any:
        return np.squeeze(x, self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 1, 3)), axis=1)
        yield Sample(arrays((1, 2, 1)), axis=(0, -1))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "squeeze: size 3 of axis 1 is not 1", Sample(arrays((2, 3)), axis=1)
        yield IndexError, "squeeze: axis 2", Sample(arrays((2, 3)), axis=2)


@op
class Reshape(Viewing):
    """The same elements in another shape, in row-major order; one size may be -1. A view where strides allow it.

    x: [...]; shape: sizes whose product is x's. Returns x's dtype. Raises ShapeError if it is not.
    Source: array API 2024.12, reshape.

    >>> import weft as wf
    >>> wf.reshape(wf.arange(6), (2, -1)).shape
    (2, 3)
    """

    shape: tuple[int, ...]
    positional = ("shape",)

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
        wanted = self._resolve(shape)
        steps = reshape_strides(shape, strides, wanted)
        return None if steps is None else (wanted, steps, 0)

    def _resolve(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        size = math.prod(shape)
        known = math.prod(n for n in self.shape if n != -1)
        wanted = self.shape
        if wanted.count(-1) == 1 and known and size % known == 0:
            wanted = tuple(size // known if n == -1 else n for n in wanted)
        if any(n < 0 for n in wanted) or math.prod(wanted) != size:
            raise ShapeError(
                f"reshape: {size} elements do not fit the shape {self.shape}: x has shape {shape}"
            )
        return wanted

    def infer(self, x: TensorType) -> TensorType:
        return x.like(self._resolve(x.shape))

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.reshape(dy, shape=x.shape)

    def reference(self, x: Any) -> Any:
        return np.reshape(x, self.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 6)), shape=(3, -1))
        yield Sample(arrays((2, 6)), shape=(2, 3, 2))
        yield Sample(arrays(()), shape=(1, 1))
        yield Sample(arrays((0, 3)), shape=(3, 0, 2))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "reshape: 6 elements do not fit", Sample(arrays((2, 3)), shape=(4, -1))


def reshape_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides that show the elements in the wanted shape, None if only a copy could.

    >>> reshape_strides((2, 3), (3, 1), (6,)), reshape_strides((2, 3), (1, 2), (6,))
    ((1,), None)
    """
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    if math.prod(shape) == 0:
        return tuple(math.prod(wanted[d + 1 :]) for d in range(len(wanted)))
    result: list[int] = []
    k = 0
    room = 1  # elements of the current run of old dimensions that new ones have not used yet
    step = 1
    for n in wanted:
        if n == 1:
            result.append(step)
            continue
        if room == 1:
            if k == len(old):
                return None
            room, last = old[k][0], old[k][1]
            k += 1
            while room % n and k < len(old):
                if last != old[k][0] * old[k][1]:
                    return None
                room, last = room * old[k][0], old[k][1]
                k += 1
            step = room * last
        if room % n:
            return None
        room //= n
        step //= n
        result.append(step)
    return tuple(result)


@op
class BroadcastTo(Viewing):
    """A view in a larger shape, whose new dimensions repeat the same elements; those cannot be written.

    x: [...]; shape: sizes. Returns x's dtype. Raises ShapeError if a size of x is neither 1 nor that of the shape.
    Source: array API 2024.12, broadcast_to.

    >>> import weft as wf
    >>> wf.broadcast_to(wf.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]], dtype=int64, device=cpu:0)
    """

    shape: tuple[int, ...]
    positional = ("shape",)

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        return see_broadcast(self.name, shape, strides, self.shape)

    def vjp(self, x: Any, dy: Any) -> Any:
        from weft.ops.pointwise import unbroadcast

        return unbroadcast(dy, x)

    def reference(self, x: Any) -> Any:
        return np.broadcast_to(x, self.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 1)), shape=(3, 2, 4))
        yield Sample(arrays(()), shape=(2,))
        yield Sample(arrays((1, 3)), shape=(0, 3))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "broadcast_to: x of shape (2,)", Sample(arrays((2,)), shape=(3,))


@op
class BroadcastLike(Op):
    """A view of a repeated to the shape of x, of which nothing else is read; the gradient of reductions."""

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False

    def infer(self, a: TensorType, x: TensorType) -> TensorType:
        return a.like(see_broadcast(self.name, a.shape, (0,) * a.ndim, x.shape)[0])

    def kernels(self, a: TensorType, x: TensorType) -> Iterator[View]:  # type: ignore[override]
        yield View(lambda shape, strides: see_broadcast(self.name, shape, strides, x.shape))

    def vjp(self, a: Any, dy: Any) -> Any:
        from weft.ops.pointwise import unbroadcast

        return unbroadcast(dy, a), None

    def reference(self, a: Any, x: Any) -> Any:
        return np.broadcast_to(a, x.shape)


def see_broadcast(
    name: str, shape: tuple[Any, ...], strides: tuple[Any, ...], wanted: tuple[Any, ...]
) -> tuple[Any, Any, Any]:
    """The geometry of a repeated view; ShapeError if it does not fit."""
    extra = len(wanted) - len(shape)
    fits = extra >= 0 and all(n == 1 or n is w or n == w for n, w in zip(shape, wanted[extra:], strict=True))
    if not fits:
        raise ShapeError(f"{name}: x of shape {shape} does not fit the shape {wanted}")
    steps = tuple(0 if isinstance(n, int) and n == 1 else s for n, s in zip(shape, strides, strict=True))
    return tuple(wanted), (0,) * extra + steps, 0


@op
class Swapaxes(Permuting):
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
    positional = ("axis1", "axis2")

    def order(self, ndim: int) -> tuple[int, ...]:
        first, second = (normalize_axes(self.name, a, ndim)[0] for a in (self.axis1, self.axis2))
        axes = list(range(ndim))
        axes[first], axes[second] = second, first
        return tuple(axes)

    def reference(self, x: Any) -> Any:
        return np.swapaxes(x, self.axis1, self.axis2)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3, 4)), 0, -1)
        yield Sample(arrays((2, 3)), axis1=1, axis2=1)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "swapaxes: axis 2", Sample(arrays((2, 3)), 0, 2)


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

    def reference(self, x: Any) -> Any:
        return np.swapaxes(x, -1, -2)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3, 4)))
        yield Sample(arrays((2, 0)))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "matrix_transpose: needs at least 2", Sample(arrays((2,)))


@op
class Moveaxis(Permuting):
    """A view with some dimensions at other places, the others in their order.

    x: [...]; source: an int or several; destination: where they come in the result. Returns x's dtype.
    Raises IndexError if one is out of range, ValueError if there are more of one than of the other.
    Source: array API 2024.12, moveaxis.

    >>> import weft as wf
    >>> wf.moveaxis(wf.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """

    source: int | tuple[int, ...]
    destination: int | tuple[int, ...]
    positional = ("source", "destination")

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
        others = iter(a for a in range(ndim) if a not in moved.values())
        return tuple(moved[d] if d in moved else next(others) for d in range(ndim))

    def reference(self, x: Any) -> Any:
        return np.moveaxis(x, self.source, self.destination)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3, 4)), 0, -1)
        yield Sample(arrays((2, 3, 4)), source=(0, -1), destination=(1, 0))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "moveaxis: axis 2", Sample(arrays((2, 3)), 2, 0)
        yield ValueError, "differ in number", Sample(arrays((2, 3)), (0, 1), 0)


@op
class Flatten(Viewing):
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
    positional = ("start_axis", "end_axis")

    def _shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        if not shape:
            return (1,)
        first, last = (normalize_axes(self.name, a, len(shape))[0] for a in (self.start_axis, self.end_axis))
        if last < first:
            raise ValueError(f"flatten: end_axis {self.end_axis} comes before start_axis {self.start_axis}")
        joined: Any = 1
        for n in shape[first : last + 1]:
            joined = n if isinstance(joined, int) and joined == 1 else joined * n
        return (*shape[:first], joined, *shape[last + 1 :])

    def infer(self, x: TensorType) -> TensorType:
        return x.like(self._shape(x.shape))

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
        wanted = self._shape(shape)
        steps = reshape_strides(shape, strides, wanted)
        return None if steps is None else (wanted, steps, 0)

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.reshape(dy, shape=x.shape)

    def reference(self, x: Any) -> Any:
        return np.reshape(x, self._shape(np.shape(x)))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3, 4)))
        yield Sample(arrays((2, 3, 4)), 1)
        yield Sample(arrays((2, 3, 4)), start_axis=0, end_axis=1)
        yield Sample(arrays(()))
        yield Sample(arrays((2, 0, 4)), 1)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "flatten: axis 2", Sample(arrays((2, 3)), 2)
        yield ValueError, "end_axis 0 comes before", Sample(arrays((2, 3)), 1, 0)


@op
class Flip(Viewing):
    """A view with the elements in reverse order along axes.

    x: [...]; axis: an int, several, or None for all. Returns x's shape and dtype. Raises IndexError if one is out of
    range.
    Source: array API 2024.12, flip.

    >>> import weft as wf
    >>> wf.flip(wf.tensor([1, 2, 3]))
    tensor([3, 2, 1], dtype=int64, device=cpu:0)
    """

    axis: int | tuple[int, ...] | None = None
    positional = ("axis",)

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        axes = normalize_axes(self.name, self.axis, len(shape))
        offset: Any = 0
        for a in axes:
            if not (isinstance(shape[a], int) and shape[a] == 0):
                offset = (shape[a] - 1) * strides[a] + offset
        return shape, tuple(-1 * n if d in axes else n for d, n in enumerate(strides)), offset

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.flip(dy, axis=self.axis)

    def reference(self, x: Any) -> Any:
        return np.flip(x, self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axis in (None, 0, -1, (0, 2), ()):
            yield Sample(arrays((2, 3, 4)), axis=axis)
        yield Sample(arrays(()))
        yield Sample(arrays((0, 2)))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "flip: axis 2", Sample(arrays((2, 3)), axis=2)


END = 2**62  # as a stop of slices: there is none


@op
class Slice(Viewing):
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
    positional = ("starts", "stops", "steps", "axes")

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
            places = range(*slice(start, stop, step).indices(shape[axis]))
            sizes[axis], jumps[axis] = len(places), strides[axis] * step
            if len(places):
                offset = strides[axis] * places.start + offset
        return tuple(sizes), tuple(jumps), offset

    def reference(self, x: Any) -> Any:
        where = [slice(None)] * np.ndim(x)
        assert self.steps is not None
        assert self.axes is not None
        for start, stop, step, axis in zip(self.starts, self.stops, self.steps, self.axes, strict=True):
            where[axis] = slice(start, stop, step)
        return np.asarray(x)[tuple(where)]

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((5, 4)), (1,), (-1,))
        yield Sample(arrays((5, 4)), (4, 0), (-(2**62), END), (-2, 3))
        yield Sample(arrays((5, 4)), starts=(1,), stops=(END,), axes=(-1,))
        yield Sample(arrays((5, 4)), (3,), (1,))
        yield Sample(arrays((5, 4)), (-9,), (2,))
        yield Sample(arrays(()), (), ())

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "slice: axis 2", Sample(arrays((2, 3)), (0,), (1,), axes=(2,))
        yield ValueError, "must not be 0", Sample(arrays((2, 3)), (0,), (1,), (0,))
        yield ValueError, "differ in number", Sample(arrays((2, 3)), (0, 1), (1,))


@op
class Diagonal(Viewing):
    """A view of the elements at equal places of two axes, as a new last dimension.

    x: [..., n, ..., m, ...]; offset: how far axis2's place lies after axis1's; axis1, axis2: which. Returns x's dtype.
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
    positional = ("offset", "axis1", "axis2")

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        normalize_axes(self.name, (self.axis1, self.axis2), len(shape))
        first, second = self.axis1 % len(shape), self.axis2 % len(shape)
        rows, columns = shape[first], shape[second]
        down, right = max(-self.offset, 0), max(self.offset, 0)
        size = max(0, min(int(rows) - down, int(columns) - right))
        start = down * strides[first] + right * strides[second] if size else 0
        kept = [d for d in range(len(shape)) if d not in (first, second)]
        return (
            (*(shape[d] for d in kept), size),
            (*(strides[d] for d in kept), strides[first] + strides[second]),
            start,
        )

    def reference(self, x: Any) -> Any:
        return np.diagonal(x, self.offset, self.axis1, self.axis2)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for offset in (0, 1, -1, 7):
            yield Sample(arrays((3, 4)), offset)
        yield Sample(arrays((2, 3, 4)), axis1=-1, axis2=0, offset=1)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "diagonal: axis 1 is out of range", Sample(arrays((2,)))
        yield ValueError, "diagonal: an axis is named twice", Sample(arrays((2, 3)), 0, 0, 0)


def region(axis: int, start: Any, size: Any) -> Any:
    """See of a Part: the places from start on along an axis, as many as size."""

    def see(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        return (*shape[:axis], size, *shape[axis + 1 :]), strides, strides[axis] * start

    return see


def device_of(*inputs: TensorType) -> Any:
    """The device of the first that is no number."""
    return next((t.device for t in inputs if not t.weak), inputs[0].device)


@op
class Concat(Op):
    """Arrays one after the other along an axis.

    x: one or more arrays [..., n, ...] whose other sizes are equal, as a list or one by one; axis: which, None: each is
    flattened first. Returns the promoted type. Raises ShapeError if the other sizes differ, IndexError if the axis is
    out of range.
    Source: array API 2024.12, concat.

    >>> import weft as wf
    >>> wf.concat([wf.tensor([1, 2]), wf.tensor([3])])
    tensor([1, 2, 3], dtype=int64, device=cpu:0)
    """

    family: ClassVar[str] = "shape"
    method: ClassVar[bool] = False
    axis: int | None = 0
    positional = ("axis",)

    def infer(self, *x: TensorType) -> TensorType:
        named = {f"x{k}": t for k, t in enumerate(x)}
        if not x:
            raise ShapeError("concat: needs at least one array")
        if self.axis is None:
            return TensorType((sum(t.size for t in x),), promote(*x), device_of(*x))
        (axis,) = normalize_axes(self.name, self.axis, x[0].ndim)
        total: Any = 0
        for t in x:
            if t.ndim != x[0].ndim:
                raise self.fail(ShapeError, f"{t.ndim} dimensions beside {x[0].ndim}", **named)
            for d, (n, m) in enumerate(zip(t.shape, x[0].shape, strict=True)):
                if d != axis and n is not m and n != m:
                    raise self.fail(ShapeError, f"sizes {m} and {n} of axis {d} differ", **named)
            total = t.shape[axis] + total
        shape = [total if d == axis else n for d, n in enumerate(x[0].shape)]
        return TensorType(shape, promote(*x), device_of(*x))

    def kernels(self, *x: TensorType) -> Iterator[Parts]:  # type: ignore[override]
        if self.axis is not None:
            (axis,) = normalize_axes(self.name, self.axis, x[0].ndim)
            parts, start = [], 0
            for k, t in enumerate(x):
                parts.append((k, region(axis, start, t.shape[axis])))
                start = t.shape[axis] + start  # type: ignore[assignment]
            yield Parts(tuple(parts))

    def decompose(self, *x: Any) -> Any:
        if self.axis is not None:
            return NotImplemented
        return F.concat([F.flatten(v) for v in x], axis=0)

    def vjp(self, x: Any, dy: Any) -> Any:
        if self.axis is None:
            return NotImplemented
        gradients, start = [], 0
        axis = self.axis % dy.ndim
        for v in x:
            stop = start + v.shape[axis]
            piece = F.slice(dy, starts=(start,), stops=(stop,), axes=(axis,))
            gradients.append(F.cast(piece, dtype=v.dtype) if v.dtype.kind == "float" else None)
            start = stop
        return gradients

    def reference(self, *x: Any) -> Any:
        return np.concatenate(x, axis=self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample([arrays((2, 3)), arrays((1, 3)), arrays((0, 3))])
        yield Sample([arrays((2, 3)), arrays((2, 2))], axis=-1)
        yield Sample([arrays((2, 3)), arrays((2,))], axis=None)
        yield Sample([arrays((2, 3)), arrays((2, 3), dtype="int32")], axis=1)
        yield Sample([arrays((2,))])

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "concat: sizes 3 and 2 of axis 1 differ", Sample([arrays((2, 3)), arrays((2, 2))])
        yield ShapeError, "concat: 1 dimensions beside 2", Sample([arrays((2, 3)), arrays((3,))])
        yield IndexError, "concat: axis 2", Sample([arrays((2, 3))], axis=2)


@op
class Stack(Op):
    """Arrays side by side along a new axis.

    x: one or more arrays of one shape, as a list or one by one; axis: where the new one is in the result. Returns the
    promoted type. Raises ShapeError if shapes differ, IndexError if the axis is out of range.
    Source: array API 2024.12, stack.

    >>> import weft as wf
    >>> wf.stack([wf.tensor([1, 2]), wf.tensor([3, 4])], axis=1)
    tensor([[1, 3],
            [2, 4]], dtype=int64, device=cpu:0)
    """

    family: ClassVar[str] = "shape"
    method: ClassVar[bool] = False
    axis: int = 0
    positional = ("axis",)

    def infer(self, *x: TensorType) -> TensorType:
        named = {f"x{k}": t for k, t in enumerate(x)}
        if not x or any(t.shape != x[0].shape for t in x[1:]):
            raise self.fail(ShapeError, "needs arrays of one shape", **named)
        (axis,) = normalize_axes(self.name, self.axis, x[0].ndim + 1)
        shape = (*x[0].shape[:axis], len(x), *x[0].shape[axis:])
        return TensorType(shape, promote(*x), device_of(*x))

    def decompose(self, *x: Any) -> Any:
        return F.concat([F.expand_dims(v, axis=self.axis) for v in x], axis=self.axis)

    def reference(self, *x: Any) -> Any:
        return np.stack(x, axis=self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axis in (0, 1, -1):
            yield Sample([arrays((2, 3)), arrays((2, 3)), arrays((2, 3))], axis=axis)
        yield Sample([arrays(()), arrays(())])

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "stack: needs arrays of one shape", Sample([arrays((2, 3)), arrays((3,))])
        yield IndexError, "stack: axis 3", Sample([arrays((2, 3))], axis=3)


class Pieces(Op):
    """Base: one array as several views along an axis."""

    family: ClassVar[str] = "shape"
    outputs: ClassVar[tuple[str, ...]] = ("*y",)
    axis: int = 0

    def sizes_of(self, size: Any) -> tuple[Any, ...]:
        """The pieces' sizes."""
        raise NotImplementedError

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        sizes = self.sizes_of(x.shape[axis])
        return tuple(x.like([n if d == axis else m for d, m in enumerate(x.shape)]) for n in sizes)

    def decompose(self, x: Any) -> Any:
        pieces, start = [], 0
        axis = self.axis % x.ndim
        for size in self.sizes_of(x.shape[axis]):
            pieces.append(F.slice(x, starts=(start,), stops=(start + size,), axes=(axis,)))
            start += size
        return pieces

    def vjp(self, y: Any, dy: Any) -> Any:
        if not y:
            return None
        return F.concat(
            [F.filled_like(v) if d is None else d for v, d in zip(y, dy, strict=True)], axis=self.axis
        )

    def reference(self, x: Any) -> Any:
        starts = np.cumsum(self.sizes_of(np.shape(x)[self.axis]))
        return tuple(np.split(x, starts[:-1], axis=self.axis)) if len(starts) else ()


@op
class Split(Pieces):
    """Views of sizes along an axis, one after the other.

    x: [..., n, ...]; sizes: that of all (the last may be smaller), or one for each, with the sum n; axis: which.
    Returns a tuple, x's dtype. Raises ShapeError if the sum is another, ValueError for a size below 0 (1 for that of
    all), IndexError if the axis is out of range.
    Source: PyTorch's split.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> [y.shape for y in F.split(wf.zeros((5, 2)), 2)]
    [(2, 2), (2, 2), (1, 2)]
    """

    sizes: int | tuple[int, ...]
    positional = ("sizes", "axis")

    def check(self) -> None:
        if min(self.sizes, default=0) < 0 if isinstance(self.sizes, tuple) else self.sizes < 1:
            raise ValueError(f"split: sizes must be positive, got {self.sizes}")

    def sizes_of(self, size: Any) -> tuple[Any, ...]:
        size = int(size)
        if isinstance(self.sizes, int):
            return tuple(min(self.sizes, size - k) for k in range(0, max(size, 1), self.sizes))
        if sum(self.sizes) != size:
            raise ShapeError(f"split: sizes {self.sizes} do not add up to {size}")
        return self.sizes

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((5, 2)), 2)
        yield Sample(arrays((2, 5)), (1, 0, 4), axis=-1)
        yield Sample(arrays((0, 5)), 2)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "split: sizes (1, 2) do not add up to 5", Sample(arrays((5,)), (1, 2))
        yield ValueError, "split: sizes must be positive", Sample(arrays((5,)), 0)
        yield IndexError, "split: axis 1", Sample(arrays((5,)), 2, 1)


@op
class Chunk(Pieces):
    """At most `chunks` views of equal size along an axis, the last one smaller if need be.

    x: [..., n, ...]; chunks: how many, at least 1; axis: which. Returns a tuple, x's dtype. Raises ValueError for fewer
    chunks, IndexError if the axis is out of range.
    Source: PyTorch's chunk.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> [y.shape for y in F.chunk(wf.zeros(5), 2)]
    [(3,), (2,)]
    """

    chunks: int
    positional = ("chunks", "axis")

    def check(self) -> None:
        if self.chunks < 1:
            raise ValueError(f"chunk: chunks must be at least 1, got {self.chunks}")

    def sizes_of(self, size: Any) -> tuple[Any, ...]:
        size = int(size)
        if size == 0:
            return (0,) * self.chunks
        each = -(-size // self.chunks)
        return tuple(min(each, size - k) for k in range(0, size, each))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((5, 2)), 2)
        yield Sample(arrays((2, 5)), chunks=4, axis=1)
        yield Sample(arrays((0,)), 2)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ValueError, "chunk: chunks must be at least 1", Sample(arrays((5,)), 0)


@op
class Unstack(Pieces):
    """The arrays that lie side by side along an axis, without that axis, as views.

    x: [..., n, ...]; axis: which. Returns a tuple of n, x's dtype. Raises IndexError if the axis is out of range.
    Source: array API 2024.12, unstack.

    >>> import weft as wf
    >>> [y.shape for y in wf.unstack(wf.zeros((3, 2)))]
    [(2,), (2,), (2,)]
    """

    positional = ("axis",)

    def sizes_of(self, size: Any) -> tuple[Any, ...]:
        return (1,) * int(size)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        shape = [n for d, n in enumerate(x.shape) if d != axis]
        return tuple(x.like(shape) for _ in self.sizes_of(x.shape[axis]))

    def decompose(self, x: Any) -> Any:
        return [F.squeeze(piece, axis=self.axis) for piece in super().decompose(x)]

    def vjp(self, y: Any, dy: Any) -> Any:
        if not y:
            return None
        return F.stack(
            [F.filled_like(v) if d is None else d for v, d in zip(y, dy, strict=True)], axis=self.axis
        )

    def reference(self, x: Any) -> Any:
        return tuple(np.moveaxis(x, self.axis, 0))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((3, 2)))
        yield Sample(arrays((3, 2)), axis=-1)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "unstack: axis 1", Sample(arrays((5,)), axis=1)


MODES = ("constant", "reflect", "replicate", "edge", "circular")


@op
class Pad(Op):
    """x with borders: pad[0] before and pad[1] after the last axis, pad[2] and pad[3] the one before, and so on.

    x: [...]; pad: an even number of sizes, at most two for each axis; mode: "constant" (value), "reflect" (mirrored at
    the first and last element, which is not repeated), "replicate" or "edge" (the first and last element), "circular"
    (what comes at the other end); value: a number given when it runs. Returns x's dtype. Raises ValueError for another
    mode or negative or odd numbers of sizes, ShapeError if x is too small for what is mirrored or comes from the other
    end.
    Source: PyTorch's pad.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.pad(wf.tensor([1, 2, 3]), (1, 2), mode="circular")
    tensor([3, 1, 2, 3, 1, 2], dtype=int64, device=cpu:0)
    """

    family: ClassVar[str] = "shape"
    pad: tuple[int, ...]
    mode: str = "constant"
    value: Runtime[float] = 0.0
    positional = ("pad", "mode", "value")

    def check(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"pad: mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if len(self.pad) % 2 or min(self.pad, default=0) < 0:
            raise ValueError(f"pad: needs two sizes of at least 0 for an axis, got {self.pad}")

    def _widths(self, ndim: int) -> list[tuple[int, int]]:
        if len(self.pad) > 2 * ndim:
            raise ShapeError(f"pad: {len(self.pad)} sizes for {ndim} dimensions")
        given = [(self.pad[k], self.pad[k + 1]) for k in range(0, len(self.pad), 2)]
        return [*([(0, 0)] * (ndim - len(given))), *given[::-1]]

    def infer(self, x: TensorType) -> TensorType:
        widths = self._widths(x.ndim)
        needed = {"reflect": 1, "replicate": None, "edge": None, "circular": 0}
        for axis, (n, (before, after)) in enumerate(zip(x.shape, widths, strict=True)):
            if self.mode != "constant" and (before or after):
                rest = needed[self.mode]
                least = 1 if rest is None else max(before, after) + rest
                if n < least:
                    raise self.fail(
                        ShapeError, f"{self.mode} needs size {least} of axis {axis}, got {n}", x=x
                    )
        return x.like([n + (b + a) if b + a else n for n, (b, a) in zip(x.shape, widths, strict=True)])

    def kernels(self, x: TensorType) -> Iterator[Parts]:  # type: ignore[override]
        if self.mode == "constant":
            yield Parts(((0, self.inside),), fill=self.value)

    def inside(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """The place of x in the result."""
        offset: Any = 0
        sizes = list(shape)
        for axis, (before, after) in enumerate(self._widths(len(shape))):
            if before:
                offset = strides[axis] * before + offset
            if before + after:
                sizes[axis] = shape[axis] - (before + after)
        return tuple(sizes), strides, offset

    def vjp(self, x: Any, dy: Any) -> Any:
        if self.mode != "constant":
            return NotImplemented
        widths = self._widths(x.ndim)
        axes = [d for d, width in enumerate(widths) if width != (0, 0)]
        starts = tuple(widths[d][0] for d in axes)
        stops = tuple(widths[d][0] + x.shape[d] for d in axes)
        return F.slice(dy, starts=starts, stops=stops, axes=tuple(axes))

    def decompose(self, x: Any) -> Any:
        if self.mode == "constant":
            return NotImplemented
        for axis, (before, after) in enumerate(self._widths(x.ndim)):
            if before or after:
                x = F.concat(self._pieces(x, axis, before, after), axis=axis)
        return x

    def _pieces(self, x: Any, axis: int, before: int, after: int) -> list[Any]:
        n = x.shape[axis]

        def piece(start: int, stop: int, step: int = 1) -> Any:
            return F.slice(x, starts=(start,), stops=(stop,), steps=(step,), axes=(axis,))

        if self.mode == "circular":
            ends = piece(n - before, n), piece(0, after)
        elif self.mode == "reflect":
            last = n - 2 - after
            ends = piece(before, 0, -1), piece(n - 2, last if last >= 0 else -END, -1)
        else:
            shape = list(x.shape)
            first, last = piece(0, 1), piece(n - 1, n)
            ends = tuple(
                F.broadcast_to(v, shape=(*shape[:axis], size, *shape[axis + 1 :]))
                for v, size in ((first, before), (last, after))
            )
        return [v for v, size in ((ends[0], before), (x, 1), (ends[1], after)) if size]

    def reference(self, x: Any) -> Any:
        if self.mode == "constant":
            return np.pad(x, self._widths(np.ndim(x)), constant_values=self.value)
        mode: Any = {"replicate": "edge", "circular": "wrap"}.get(self.mode, self.mode)
        return np.pad(x, self._widths(np.ndim(x)), mode=mode)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for mode in MODES:
            yield Sample(arrays((3, 4)), (1, 2), mode=mode)
            yield Sample(arrays((3, 4)), (2, 0, 1, 2), mode=mode)
            yield Sample(arrays((3, 4)), (), mode=mode)
        yield Sample(arrays((2, 3)), pad=(1, 1), value=1)
        yield Sample(arrays((0, 2)), (1, 1, 2, 0))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ValueError, "pad: mode must be one of", Sample(arrays((2,)), (1, 1), mode="mirror")
        yield ValueError, "pad: needs two sizes", Sample(arrays((2,)), (1,))
        yield ShapeError, "pad: 4 sizes for 1 dimensions", Sample(arrays((2,)), (1, 1, 1, 1))
        yield ShapeError, "reflect needs size 3 of axis 0", Sample(arrays((2,)), (2, 0), mode="reflect")


@op
class Roll(Op):
    """The elements moved along axes; what leaves at one end comes in at the other.

    x: [...]; shift: how far, an int or one for each axis; axis: an int, several, or None: x is taken as one row.
    Returns x's shape and dtype. Raises IndexError if an axis is out of range, ValueError if shifts and axes differ in
    number.
    Source: array API 2024.12, roll.

    >>> import weft as wf
    >>> wf.roll(wf.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2], dtype=int64, device=cpu:0)
    """

    family: ClassVar[str] = "shape"
    shift: int | tuple[int, ...]
    axis: int | tuple[int, ...] | None = None
    positional = ("shift", "axis")

    def check(self) -> None:
        if self.axis is not None and isinstance(self.axis, int) != isinstance(self.shift, int):
            several = (self.axis,) if isinstance(self.axis, int) else self.axis
            self.set("axis", several)
            self.set("shift", (self.shift,) * len(several) if isinstance(self.shift, int) else self.shift)
        if isinstance(self.axis, tuple) and len(self.axis) != len(self.shift):  # type: ignore[arg-type]
            raise ValueError(f"roll: shift {self.shift} and axis {self.axis} differ in number")
        if self.axis is None and not isinstance(self.shift, int):
            raise ValueError("roll: several shifts need as many axes")

    def infer(self, x: TensorType) -> TensorType:
        for axis in self.axis if isinstance(self.axis, tuple) else (self.axis,):
            normalize_axes(self.name, axis, x.ndim)
        return x.like()

    def decompose(self, x: Any) -> Any:
        if self.axis is None:
            return F.reshape(F.roll(F.flatten(x), self.shift, axis=0), shape=x.shape)
        axes = (self.axis,) if isinstance(self.axis, int) else self.axis
        shifts = (self.shift,) if isinstance(self.shift, int) else self.shift
        for axis, shift in zip(axes, shifts, strict=True):
            n = x.shape[axis]
            cut = (n - shift) % n if n else 0
            if cut:
                parts = [(cut, n), (0, cut)]
                x = F.concat([F.slice(x, (a,), (b,), axes=(axis,)) for a, b in parts], axis=axis)
        return x if axes else F.positive(x)

    def reference(self, x: Any) -> Any:
        return np.roll(x, self.shift, self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3)), 1)
        yield Sample(arrays((2, 3)), -4, axis=1)
        yield Sample(arrays((2, 3)), (1, 2), axis=(0, -1))
        yield Sample(arrays((2, 3)), 1, axis=(0, 1))
        yield Sample(arrays((0, 3)), 1, axis=0)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield IndexError, "roll: axis 2", Sample(arrays((2, 3)), 1, axis=2)
        yield ValueError, "differ in number", Sample(arrays((2, 3)), (1, 2, 3), axis=(0, 1))


@op
class Tile(Op):
    """x repeated as a whole along each dimension.

    x: [...]; repetitions: how often, for the last dimensions; more than x has make new ones in front. Returns x's
    dtype. Raises ValueError for a number below 0.
    Source: array API 2024.12, tile.

    >>> import weft as wf
    >>> wf.tile(wf.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2], dtype=int64, device=cpu:0)
    """

    family: ClassVar[str] = "shape"
    repetitions: tuple[int, ...]
    positional = ("repetitions",)

    def check(self) -> None:
        if min(self.repetitions, default=0) < 0:
            raise ValueError(f"tile: repetitions must be at least 0, got {self.repetitions}")

    def _aligned(self, shape: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        rank = max(len(shape), len(self.repetitions))
        return (
            (1,) * (rank - len(shape)) + tuple(shape),
            (1,) * (rank - len(self.repetitions)) + self.repetitions,
        )

    def infer(self, x: TensorType) -> TensorType:
        shape, times = self._aligned(x.shape)
        return x.like([n * k for n, k in zip(shape, times, strict=True)])

    def decompose(self, x: Any) -> Any:
        shape, times = self._aligned(x.shape)
        result = tuple(n * k for n, k in zip(shape, times, strict=True))
        pairs = F.reshape(x, shape=tuple(v for n in shape for v in (1, n)))
        wide = F.broadcast_to(
            pairs, shape=tuple(v for n, k in zip(shape, times, strict=True) for v in (k, n))
        )
        return F.reshape(wide, shape=result)

    def reference(self, x: Any) -> Any:
        return np.tile(x, self.repetitions)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for repetitions in ((2,), (2, 1, 3), (), (0, 2)):
            yield Sample(arrays((2, 3)), repetitions)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ValueError, "tile: repetitions must be at least 0", Sample(arrays((2,)), (-1,))


@op
class Repeat(Op):
    """Every element several times, one after the other.

    x: [...]; repeats: how often; axis: along which, None: x is flattened first. Returns x's dtype. Raises ValueError
    for a number below 0, IndexError if the axis is out of range.
    Source: array API 2024.12, repeat, with one number for all.

    >>> import weft as wf
    >>> wf.repeat(wf.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2], dtype=int64, device=cpu:0)
    """

    family: ClassVar[str] = "shape"
    repeats: int
    axis: int | None = None
    positional = ("repeats", "axis")

    def check(self) -> None:
        if self.repeats < 0:
            raise ValueError(f"repeat: repeats must be at least 0, got {self.repeats}")

    def infer(self, x: TensorType) -> TensorType:
        if self.axis is None:
            return x.like([x.size * self.repeats])
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        return x.like([n * self.repeats if d == axis else n for d, n in enumerate(x.shape)])

    def decompose(self, x: Any) -> Any:
        if self.axis is None:
            x = F.flatten(x)
        axis = 0 if self.axis is None else self.axis % x.ndim
        head, n, tail = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        wide = F.broadcast_to(F.expand_dims(x, axis=axis + 1), shape=(*head, n, self.repeats, *tail))
        return F.reshape(wide, shape=(*head, n * self.repeats, *tail))

    def reference(self, x: Any) -> Any:
        return np.repeat(x, self.repeats, self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axis in (None, 0, -1):
            yield Sample(arrays((2, 3)), 2, axis=axis)
        yield Sample(arrays((2, 3)), 0, axis=1)
        yield Sample(arrays(()), 3)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ValueError, "repeat: repeats must be at least 0", Sample(arrays((2,)), -1)
        yield IndexError, "repeat: axis 1", Sample(arrays((2,)), 1, axis=1)


class Triangle(Op):
    """Base: the elements on one side of a diagonal, 0 on the other."""

    family: ClassVar[str] = "shape"
    k: int = 0
    positional = ("k",)

    def keeps(self, row: e.Scalar, column: e.Scalar) -> e.Scalar:
        """Whether the element at this place stays."""
        raise NotImplementedError

    def infer(self, x: TensorType) -> TensorType:
        if x.ndim < 2:
            raise self.fail(ShapeError, "needs at least 2 dimensions", x=x)
        return x.like()

    def kernels(self, x: TensorType) -> Iterator[Loop]:  # type: ignore[override]
        value = e.load(0, x.dtype.name)
        stays = self.keeps(e.index(x.ndim - 2) + self.k, e.index(x.ndim - 1))
        yield pointwise_loop((x,), [e.where(stays, value, e.constant(0, x.dtype.name))])

    def vjp(self, dy: Any) -> Any:
        return dy.__weft_apply__(type(self), (dy,), self.values())

    def reference(self, x: Any) -> Any:
        return getattr(np, self.name)(x, self.k)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for k in (0, 1, -2):
            yield Sample(arrays((3, 4)), k=k)
        yield Sample(arrays((2, 3, 3)), 1)
        yield Sample(arrays((0, 3)))

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, f"{cls.name}: needs at least 2 dimensions", Sample(arrays((2,)))


@op
class Tril(Triangle):
    """The elements on and below the k-th diagonal of the last two dimensions, 0 above it.

    x: [..., n, m]; k: how far the diagonal lies to the right of the main one. Returns x's shape and dtype. Raises
    ShapeError for fewer than 2 dimensions.
    Source: array API 2024.12, tril.

    >>> import weft as wf
    >>> wf.tril(wf.tensor([[1, 2], [3, 4]]))
    tensor([[1, 0],
            [3, 4]], dtype=int64, device=cpu:0)
    """

    def keeps(self, row: e.Scalar, column: e.Scalar) -> e.Scalar:
        return column <= row


@op
class Triu(Triangle):
    """The elements on and above the k-th diagonal of the last two dimensions, 0 below it.

    x: [..., n, m]; k: how far the diagonal lies to the right of the main one. Returns x's shape and dtype. Raises
    ShapeError for fewer than 2 dimensions.
    Source: array API 2024.12, triu.

    >>> import weft as wf
    >>> wf.triu(wf.tensor([[1, 2], [3, 4]]))
    tensor([[1, 2],
            [0, 4]], dtype=int64, device=cpu:0)
    """

    def keeps(self, row: e.Scalar, column: e.Scalar) -> e.Scalar:
        return column >= row


@op
class PlacesLike(Op):
    """The place of every element of x along an axis, int64, in x's shape; of x nothing else is read."""

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    axis: int

    def infer(self, x: TensorType) -> TensorType:
        return x.like(dtype=int64)

    def kernels(self, x: TensorType) -> Iterator[Loop]:  # type: ignore[override]
        yield pointwise_loop((x,), [e.index(self.axis % x.ndim)])

    def vjp(self, x: Any) -> Any:
        return None

    def reference(self, x: Any) -> Any:
        return np.indices(np.shape(x))[self.axis]


@op
class OneHot(Op):
    """1 at the place that x names, in a new last dimension, 0 elsewhere.

    x: integers [...]; num_classes: the new dimension's size. Returns int64[..., num_classes]; an x outside of
    0..num_classes-1 gives only 0. Raises DTypeError for floats.
    Source: PyTorch's one_hot.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.one_hot(wf.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]], dtype=int64, device=cpu:0)
    """

    family: ClassVar[str] = "shape"
    num_classes: int
    positional = ("num_classes",)

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.kind not in ("int", "uint"):
            raise self.fail(DTypeError, "takes integers", x=x)
        return x.like((*x.shape, self.num_classes), int64)

    def decompose(self, x: Any) -> Any:
        wide = F.broadcast_to(F.expand_dims(x, axis=-1), shape=(*x.shape, self.num_classes))
        return F.cast(F.equal(F.cast(wide, dtype=int64), F.places_like(wide, axis=-1)), dtype=int64)

    def vjp(self, x: Any) -> Any:
        return None

    def reference(self, x: Any) -> Any:
        return (np.asarray(x)[..., None] == np.arange(self.num_classes)).astype(np.int64)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(Array((2, 3), low=0, high=4, dtype="int64"), 5)
        yield Sample(Array((3,), values=(-1, 1, 7), dtype="int32"), num_classes=3)
        yield Sample(Array((), values=1, dtype="uint8"), 2)
        yield Sample(Array((0,), dtype="int64"), 2)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield DTypeError, "one_hot: takes integers", Sample(arrays((2,)), 3)


@op
class BroadcastArrays(Op):
    """Views of arrays, repeated to the shape that all fit.

    x: arrays, as a list or one by one. Returns a tuple, each one's dtype. Raises ShapeError if two sizes differ.
    Source: array API 2024.12, broadcast_arrays.

    >>> import weft as wf
    >>> [y.shape for y in wf.broadcast_arrays(wf.zeros((2, 1)), wf.zeros(3))]
    [(2, 3), (2, 3)]
    """

    family: ClassVar[str] = "shape"
    method: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ("*y",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        shape = broadcast_shapes(self.name, {f"x{k}": t for k, t in enumerate(x)}) if x else ()
        return tuple(t.like(shape) for t in x)

    def decompose(self, *x: Any) -> Any:
        shape = broadcast_shapes(self.name, {f"x{k}": v.type for k, v in enumerate(x)})
        return [F.broadcast_to(v, shape=shape) for v in x]

    def reference(self, *x: Any) -> Any:
        return tuple(np.broadcast_arrays(*x))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 1)), arrays((3,)), arrays(()))
        yield Sample([arrays((2, 3))])

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "broadcast_arrays: sizes 2 and 3", Sample(arrays((2,)), arrays((3,)))


@op
class Meshgrid(Op):
    """Views of rows, each along its own dimension of one grid.

    x: arrays [n], as a list or one by one; indexing: "ij", the k-th along dimension k, or "xy", with the first two
    exchanged. Returns a tuple, each one's dtype. Raises ShapeError for other than one dimension, ValueError for another
    word.
    Source: array API 2024.12, meshgrid.

    >>> import weft as wf
    >>> [y.shape for y in wf.meshgrid(wf.zeros(2), wf.zeros(3))]
    [(3, 2), (3, 2)]
    """

    family: ClassVar[str] = "shape"
    method: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ("*y",)
    indexing: str = "xy"

    def check(self) -> None:
        if self.indexing not in ("xy", "ij"):
            raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {self.indexing!r}")

    def _dimension(self, k: int, count: int) -> int:
        return 1 - k if self.indexing == "xy" and k < 2 <= count else k

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        if any(t.ndim != 1 for t in x):
            raise self.fail(
                ShapeError, "takes arrays of one dimension", **{f"x{k}": t for k, t in enumerate(x)}
            )
        shape = [x[self._dimension(d, len(x))].shape[0] for d in range(len(x))]
        return tuple(t.like(shape) for t in x)

    def decompose(self, *x: Any) -> Any:
        count = len(x)
        shape = tuple(x[self._dimension(d, count)].shape[0] for d in range(count))
        places = [self._dimension(k, count) for k in range(count)]
        return [
            F.broadcast_to(F.expand_dims(v, axis=tuple(a for a in range(count) if a != d)), shape=shape)
            for v, d in zip(x, places, strict=True)
        ]

    def reference(self, *x: Any) -> Any:
        indexing: Any = self.indexing
        return tuple(np.meshgrid(*x, indexing=indexing))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for indexing in ("xy", "ij"):
            yield Sample([arrays((2,)), arrays((3,)), arrays((4,))], indexing=indexing)
            yield Sample(arrays((2,)), indexing=indexing)

    @classmethod
    def errors(cls) -> Iterator[Any]:
        yield ShapeError, "meshgrid: takes arrays of one", Sample(arrays((2, 3)))
        yield ValueError, "indexing must be", Sample(arrays((2,)), indexing="yx")


__all__ = ["BroadcastTo", "ExpandDims", "Parts", "PermuteDims", "Reshape", "Squeeze", "Viewing"]
