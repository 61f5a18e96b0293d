"""Operators that put arrays together, take them apart, and repeat or move their elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.shape import END
from weft.ops.kernels import Parts
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType, device_of, normalize_axes, promote


def region(axis: int, start: Any, size: Any) -> Any:
    """See of a Part: the indices from start on along an axis, as many as size."""

    def see(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        return (*shape[:axis], size, *shape[axis + 1 :]), strides, strides[axis] * start

    return see


@op
class Concat(Op, family="shape", rule="*x -> y: promote", positional=("axis",)):
    """Arrays one after the other along an axis.

    x: one or more arrays [..., n, ...] whose other sizes are equal, as a list or one by one; axis: which, None: each is
    flattened first. Returns the promoted type. Raises ShapeError if the other sizes differ, IndexError if the axis is
    out of range.
    Source: array API 2024.12, concat.

    >>> import weft as wf
    >>> wf.concat([wf.tensor([1, 2]), wf.tensor([3])])
    tensor([1, 2, 3], dtype=int64, device=cpu:0)
    """

    axis: int | None = 0

    def infer(self, *x: TensorType) -> TensorType:
        operands = {f"x{k}": t for k, t in enumerate(x)}
        if not x:
            raise ShapeError("concat: needs at least one array")
        if self.axis is None:
            return TensorType((sum(t.size for t in x),), promote(*x), device_of(*x))
        (axis,) = normalize_axes(self.name, self.axis, x[0].ndim)
        total: Any = 0
        for t in x:
            if t.ndim != x[0].ndim:
                fact = f"arrays need the same number of dimensions, got {x[0].ndim} and {t.ndim}"
                raise self.fail(ShapeError, fact, **operands)
            for d, (n, m) in enumerate(zip(t.shape, x[0].shape, strict=True)):
                if d != axis and n is not m and n != m:
                    raise self.fail(ShapeError, f"sizes {m} and {n} of axis {d} differ", **operands)
            total = t.shape[axis] + total
        shape = [total if d == axis else n for d, n in enumerate(x[0].shape)]
        return TensorType(shape, promote(*x), device_of(*x))

    def kernels(self, *x: TensorType) -> Iterator[Parts]:
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
        dtype = promote(*(v.type for v in x))  # which Python numbers take
        return F.concat([F.flatten(F.cast(v, dtype=dtype) if v.type.weak else v) for v in x], axis=0)

    def vjp(self, x: Any, dy: Any) -> Any:
        if self.axis is None:
            return NotImplemented
        gradients, start = [], 0
        axis = self.axis % dy.ndim
        for v in x:
            stop = start + v.shape[axis]
            piece = F.slice(dy, starts=(start,), stops=(stop,), axes=(axis,))
            gradients.append(cast_to(piece, v.dtype) if v.dtype.is_differentiable else None)
            start = stop
        return gradients


@op
class Stack(Op, family="shape", rule="*x -> y: promote", positional=("axis",)):
    """Arrays side by side along a new axis.

    x: one or more arrays of one shape, as a list or one by one; axis: where the new one is in the result. Returns the
    promoted type. Raises ShapeError if shapes differ, IndexError if the axis is out of range.
    Source: array API 2024.12, stack.

    >>> import weft as wf
    >>> wf.stack([wf.tensor([1, 2]), wf.tensor([3, 4])], axis=1)
    tensor([[1, 3],
            [2, 4]], dtype=int64, device=cpu:0)
    """

    axis: int = 0

    def infer(self, *x: TensorType) -> TensorType:
        operands = {f"x{k}": t for k, t in enumerate(x)}
        if not x or any(t.shape != x[0].shape for t in x[1:]):
            raise self.fail(ShapeError, "needs arrays of one shape", **operands)
        (axis,) = normalize_axes(self.name, self.axis, x[0].ndim + 1)
        shape = (*x[0].shape[:axis], len(x), *x[0].shape[axis:])
        return TensorType(shape, promote(*x), device_of(*x))

    def decompose(self, *x: Any) -> Any:
        return F.concat([F.expand_dims(v, axis=self.axis) for v in x], axis=self.axis)


class Pieces(Op, family="shape", rule="x -> *y: x"):
    """Base: one array as several views along an axis."""

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


@op
class Split(Pieces, positional=("sizes", "axis")):
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

    def check(self) -> None:
        if min(self.sizes, default=0) < 0 if isinstance(self.sizes, tuple) else self.sizes < 1:
            raise ValueError(f"split: sizes must be positive, got {self.sizes}")

    def count_outputs(self, count: int) -> int | None:
        return len(self.sizes) if isinstance(self.sizes, tuple) else None

    def sizes_of(self, size: Any) -> tuple[Any, ...]:
        size = int(size)
        if isinstance(self.sizes, int):
            return tuple(min(self.sizes, size - k) for k in range(0, max(size, 1), self.sizes))
        if sum(self.sizes) != size:
            raise ShapeError(f"split: sizes {self.sizes} do not add up to {size}")
        return self.sizes


@op
class Chunk(Pieces, positional=("chunks", "axis")):
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

    def check(self) -> None:
        if self.chunks < 1:
            raise ValueError(f"chunk: chunks must be at least 1, got {self.chunks}")

    def count_outputs(self, count: int) -> int | None:
        return self.chunks  # fewer if the size is too small, which a symbol finds once the size is known

    def sizes_of(self, size: Any) -> tuple[Any, ...]:
        size = int(size)
        if size == 0:
            return (0,) * self.chunks
        chunk = -(-size // self.chunks)
        return tuple(min(chunk, size - k) for k in range(0, size, chunk))


@op
class Unstack(Pieces, positional=("axis",)):
    """The arrays along an axis, without that axis, as views.

    x: [..., n, ...]; axis: which. Returns a tuple of n, x's dtype. Raises IndexError if the axis is out of range.
    Source: array API 2024.12, unstack.

    >>> import weft as wf
    >>> [y.shape for y in wf.unstack(wf.zeros((3, 2)))]
    [(2,), (2,), (2,)]
    """

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


MODES = ("constant", "reflect", "replicate", "edge", "circular")


@op
class Pad(Op, family="shape", rule="x -> y: x", positional=("pad", "mode", "value")):
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

    pad: tuple[int, ...]
    mode: str = "constant"
    value: Runtime[float] = 0.0

    def check(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"pad: mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if len(self.pad) % 2 or min(self.pad, default=0) < 0:
            raise ValueError(
                "pad: pad holds two sizes of at least 0, before and after, for each axis from the last one on, "
                f"got {self.pad}"
            )

    def _widths(self, ndim: int) -> list[tuple[int, int]]:
        if len(self.pad) > 2 * ndim:
            raise ShapeError(f"pad: {len(self.pad)} sizes for {ndim} dimensions")
        pairs = [(self.pad[k], self.pad[k + 1]) for k in range(0, len(self.pad), 2)]
        return [*([(0, 0)] * (ndim - len(pairs))), *pairs[::-1]]

    def infer(self, x: TensorType) -> TensorType:
        widths = self._widths(x.ndim)
        margins = {"reflect": 1, "replicate": None, "edge": None, "circular": 0}
        for axis, (n, (before, after)) in enumerate(zip(x.shape, widths, strict=True)):
            if self.mode != "constant" and (before or after):
                margin = margins[self.mode]
                least = 1 if margin is None else max(before, after) + margin
                if n < least:
                    raise self.fail(
                        ShapeError, f"{self.mode} needs size {least} of axis {axis}, got {n}", x=x
                    )
        return x.like([n + (b + a) if b + a else n for n, (b, a) in zip(x.shape, widths, strict=True)])

    def kernels(self, x: TensorType) -> Iterator[Parts]:
        if self.mode == "constant":
            yield Parts(((0, self.inside),), fill=self.value)

    def inside(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """The view of the result that x is copied to."""
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


@op
class Roll(Op, family="shape", rule="x -> y: x", positional=("shift", "axis")):
    """The elements moved along axes; what leaves at one end comes in at the other.

    x: [...]; shift: how far, an int or one for each axis; axis: an int, several, or None: x is taken as one row.
    Returns x's shape and dtype. Raises IndexError if an axis is out of range, ValueError if shifts and axes differ in
    number.
    Source: array API 2024.12, roll.

    >>> import weft as wf
    >>> wf.roll(wf.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2], dtype=int64, device=cpu:0)
    """

    shift: int | tuple[int, ...]
    axis: int | tuple[int, ...] | None = None

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


@op
class Tile(Op, family="shape", rule="x -> y: x", positional=("repetitions",)):
    """x repeated as a whole along each dimension.

    x: [...]; repetitions: how often, for the last dimensions; more than x has make new ones in front. Returns x's
    dtype. Raises ValueError for a number below 0.
    Source: array API 2024.12, tile.

    >>> import weft as wf
    >>> wf.tile(wf.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2], dtype=int64, device=cpu:0)
    """

    repetitions: tuple[int, ...]

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


@op
class Repeat(Op, family="shape", rule="x -> y: x", positional=("repeats", "axis")):
    """Every element several times, one after the other.

    x: [...]; repeats: how often; axis: along which, None: x is flattened first. Returns x's dtype. Raises ValueError
    for a number below 0, IndexError if the axis is out of range.
    Source: array API 2024.12, repeat, with one number for all.

    >>> import weft as wf
    >>> wf.repeat(wf.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2], dtype=int64, device=cpu:0)
    """

    repeats: int
    axis: int | None = None

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
