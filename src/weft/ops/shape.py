"""Operators that show the same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.kernels import View
from weft.ops.op import Op, op
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType, normalize_axes


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


@op
class PermuteDims(Viewing):
    """A view with the dimensions in the order of axes.

    x: [...]; axes: a permutation of x's dimensions. Returns x's dtype. Raises ShapeError if it is none.
    Source: array API 2024.12, permute_dims.

    >>> import weft as wf
    >>> wf.permute_dims(wf.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """

    axes: tuple[int, ...]
    positional = ("axes",)

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        axes = [a + len(shape) if a < 0 else a for a in self.axes]
        if sorted(axes) != list(range(len(shape))):
            raise ShapeError(f"permute_dims: {self.axes} is no permutation of {len(shape)} dimensions")
        return tuple(shape[a] for a in axes), tuple(strides[a] for a in axes), 0

    def vjp(self, x: Any, dy: Any) -> Any:
        axes = [a % x.ndim for a in self.axes]
        return F.permute_dims(dy, axes=tuple(axes.index(d) for d in range(x.ndim)))

    def reference(self, x: Any) -> Any:
        return np.transpose(x, self.axes)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3, 4)), axes=(2, 0, 1))
        yield Sample(arrays((2, 3)), axes=(-1, 0))
        yield Sample(arrays(()), axes=())


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


@op
class Squeeze(Viewing):
    """A view without these dimensions of size 1.

    x: [...]; axis: an int or several. Returns x's dtype. Raises IndexError if one is out of range, ShapeError if its size
    is not 1.
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


__all__ = ["BroadcastTo", "ExpandDims", "PermuteDims", "Reshape", "Squeeze", "Viewing"]
