"""Maxima and averages over windows of images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from weft.base.dtype import bool_, int32
from weft.base.errors import DTypeError, ShapeError
from weft.ops import functions as F
from weft.ops.families.window import Spatial, Windows, set_per_dimension, windows_of
from weft.ops.kernels import lowest
from weft.ops.node import constant
from weft.ops.op import Op, op
from weft.ops.types import TensorType

Geometry = tuple[str, tuple[int, ...], tuple[int, ...]]


class Pooling(
    Spatial,
    family="pooling",
    rule="x[n,c,i^spatial]: number -> y[n,c,o^spatial]: x",
    positional=("kernel_size", "stride", "padding"),
):
    """Base: windows over the last `spatial` dimensions of x [n, c, *spatial]."""

    kernel_size: int | tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: int | tuple[int, ...] = 0
    ceil_mode: bool = False
    dilation: int | tuple[int, ...] = 1

    def check(self) -> None:
        if self.stride is None:
            self.set("stride", self.kernel_size)
        set_per_dimension(self, self.spatial, kernel_size=1, stride=1, padding=0, dilation=1)
        size: Any = self.kernel_size
        padding: Any = self.padding
        if any(2 * p > k for p, k in zip(padding, size, strict=True)):
            raise ValueError(f"{self.name}: padding must be at most half of kernel_size, got {padding}")

    def windows(self, spatial: Sequence[Any]) -> Windows:
        """The padding at the end is made to fit the last window of ceil_mode."""
        op: Any = self
        windows = Windows(op.kernel_size, op.stride, op.padding, op.padding, op.dilation)
        if not self.ceil_mode:
            return windows
        high = []
        for n, step, low, extent in zip(spatial, windows.stride, windows.low, windows.extents, strict=True):
            count = -((extent - n - 2 * low) // step) + 1
            if (count - 1) * step >= n + low:  # it would begin in the padding
                count -= 1
            reach = (count - 1) * step + extent
            high.append(reach - n - low if reach > n + low else 0)
        return windows._replace(high=tuple(high))

    def infer_one(self, x: TensorType) -> TensorType:
        if x.dtype is bool_:
            raise self.fail(DTypeError, "takes numbers", x=x)
        if x.ndim != self.spatial + 2:
            raise self.fail(ShapeError, f"x needs {self.spatial + 2} dimensions", x=x)
        windows = self.windows(x.shape[2:])
        count = windows.number(x.shape[2:])
        if any(isinstance(n, int) and n < 1 for n in count):
            raise self.fail(ShapeError, f"a window of {windows.extents} does not fit x with its padding", x=x)
        return x.like((*x.shape[:2], *count))


def attributes_of(windows: Windows, spatial: Sequence[Any]) -> dict[str, Any]:
    """The attributes of the gradients' operators."""
    return {"spatial_size": tuple(spatial), **windows._asdict()}


class MaxPooling(Pooling, outputs=("y", "indices"), hidden=1, residuals=("indices",)):
    """Base of max_pool1d, max_pool2d, max_pool3d; a residual says which of its window's elements is y."""

    text = """The greatest element of every window; NaN if there is one. The gradient goes to the first of equal ones.

    In float32 and bfloat16 NaN is passed over, and a window of only NaN and -inf gives the least finite number or -inf.

    x: numbers [n, c, {sizes}]; kernel_size, stride (default: kernel_size), padding, dilation: {ints};
    ceil_mode: a last window may reach beyond the padding. Returns x's dtype,
    [n, c, ({size} + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1{more}].
    Raises ShapeError if no window fits, ValueError for attributes out of range.
    Source: Yamaguchi et al. 1990, A neural network for speaker-independent isolated word recognition.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.max_pool{d}(wf.ones((1, 1, {x4})), 2).shape
    (1, 1, {x2})
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        self.require_order(x=x)
        y = self.infer_one(x)
        (indices,) = self.residual_types((y.like(dtype=int32),), (x,))
        return y, indices

    def decompose(self, x: Any) -> tuple[Any, Any]:
        windows = self.windows(x.shape[2:])
        count = windows.number(x.shape[2:])
        patches = windows_of(x, windows, count, lowest(x.dtype.name))
        flat = F.reshape(patches, shape=(*x.shape[:2], *count, math.prod(windows.size)))
        _, of_indices = self.infer(x.type)
        return F.max(flat, axis=-1), F.cast(F.argmax(flat, axis=-1), dtype=of_indices.dtype)

    def vjp(self, x: Any, indices: Any, dy: Any) -> Any:
        windows = self.windows(x.shape[2:])
        return F.max_pool_gradient(dy, indices, **attributes_of(windows, x.shape[2:]))


class PoolingGradient(Op, family="pooling", public=False, outputs=("dx",)):
    """Base of the gradients: the windows as numbers."""

    spatial_size: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dilation: tuple[int, ...]

    def windows(self) -> Windows:
        return Windows(self.size, self.stride, self.low, self.high, self.dilation)

    def infer_one(self, dy: TensorType) -> TensorType:
        count = self.windows().number(self.spatial_size)
        if dy.shape[2:] != count:
            raise self.fail(ShapeError, f"dy needs the sizes {count} after the second", dy=dy)
        return dy.like((*dy.shape[:2], *self.spatial_size))

    def gathered(self, parts: Iterator[Any]) -> Any:
        """The sum of the window's elements' gradients, each spread to where the elements were."""
        windows = self.windows()
        count = windows.number(self.spatial_size)
        lead: tuple[Any, ...] = ()
        total: Any = None
        sizes = [
            max(n + low, (k - 1) * step + extent)
            for n, low, k, step, extent in zip(
                self.spatial_size, self.low, count, self.stride, windows.extents, strict=True
            )
        ]
        for index, part in zip(product(*map(range, windows.size)), parts, strict=True):
            lead = part.shape[:2]
            low = tuple(p * d for p, d in zip(index, self.dilation, strict=True))
            high = tuple(
                n - first - (k - 1) * step - 1
                for n, first, k, step in zip(sizes, low, count, self.stride, strict=True)
            )
            spread = F.spread(part, low=low, high=high, step=self.stride, value=0)
            total = spread if total is None else total + spread
        spatial = tuple((low, n, 1) for low, n in zip(self.low, self.spatial_size, strict=True))
        return F.basic_index(total, items=((0, lead[0], 1), (0, lead[1], 1), *spatial))


@op
class MaxPoolGradient(PoolingGradient):
    """dx of a max_pool from dy and its hidden indices. Returns [n, c, *spatial_size]."""

    def infer(self, dy: TensorType, indices: TensorType) -> TensorType:
        if indices.shape != dy.shape:
            raise self.fail(ShapeError, "shapes differ", dy=dy, indices=indices)
        return self.infer_one(dy)

    def decompose(self, dy: Any, indices: Any) -> Any:
        zero = constant(0, dy.dtype)
        parts = (F.where(F.equal(indices, k), dy, zero) for k in range(math.prod(self.size)))
        return self.gathered(parts)

    def vjp(self, indices: Any, ddx: Any) -> Any:
        windows = self.windows()
        count = windows.number(self.spatial_size)
        patches = windows_of(ddx, windows, count)
        flat = F.reshape(patches, shape=(*ddx.shape[:2], *count, math.prod(self.size)))
        elements = F.cast(F.expand_dims(indices, axis=-1), dtype=int32)
        return F.squeeze(F.take_along_axis(flat, elements), axis=-1), None


class AveragePooling(Pooling, rule="x[n,c,i^spatial]: float -> y[n,c,o^spatial]: x"):
    """Base of avg_pool1d, avg_pool2d, avg_pool3d."""

    text = """The average of every window.

    x: float[n, c, {sizes}]; kernel_size, stride (default: kernel_size), padding: {ints}; ceil_mode: a last
    window may reach beyond the padding, where nothing is counted; count_include_pad: zeros of the padding are counted.
    Returns x's dtype, [n, c, ({size} + 2 padding - kernel_size) // stride + 1{more}].
    dilation must be 1. Raises ShapeError if no window fits, ValueError for attributes out of range.
    Source: LeCun et al. 1989, Backpropagation applied to handwritten zip code recognition.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.avg_pool{d}(wf.ones((1, 1, {x4})), 2).shape
    (1, 1, {x2})
    """

    count_include_pad: bool = True

    def check(self) -> None:
        super().check()
        if self.dilation != (1,) * self.spatial:
            raise ValueError(f"{self.name}: dilation must be 1, got {self.dilation}")

    def infer(self, x: TensorType) -> TensorType:
        self.require_floats(x=x)
        return self.infer_one(x)

    def divisor(self, spatial: Sequence[Any]) -> str:
        """What sums are divided by: "window", "inside" (the elements that are x's), "padded" (and the padding's)."""
        windows = self.windows(spatial)
        padding: Any = self.padding
        beyond = any(high > p for high, p in zip(windows.high, padding, strict=True))
        if not self.count_include_pad and (beyond or any(padding)):
            return "inside"
        return "padded" if beyond else "window"

    def decompose(self, x: Any) -> Any:
        windows = self.windows(x.shape[2:])
        count = windows.number(x.shape[2:])
        axes = tuple(range(2 + self.spatial, 2 + 2 * self.spatial))
        total = F.sum(windows_of(x, windows, count), axis=axes)
        return divide(total, self.divisor(x.shape[2:]), windows, x.shape[2:], self.padding)

    def vjp(self, x: Any, dy: Any) -> Any:
        windows = self.windows(x.shape[2:])
        return F.avg_pool_gradient(
            dy,
            divisor=self.divisor(x.shape[2:]),
            padding=self.padding,
            **attributes_of(windows, x.shape[2:]),
        )


def divide(total: Any, divisor: str, windows: Windows, spatial: Sequence[int], padding: Any) -> Any:
    """Sums over windows divided by what they count."""
    if divisor == "window":
        return total * constant(1 / math.prod(windows.size), total.dtype)
    ones = F.broadcast_to(constant(1, total.dtype), shape=(1, 1, *spatial))
    if divisor == "padded":
        step = (1,) * len(padding)
        ones = F.spread(ones, low=padding, high=padding, step=step, value=1)
        windows = windows._replace(low=(0,) * len(padding))
    count = total.shape[2:]
    axes = tuple(range(2 + len(count), 2 + 2 * len(count)))
    return F.divide(total, F.sum(windows_of(ones, windows, count), axis=axes))


@op
class AvgPoolGradient(PoolingGradient):
    """dx of an avg_pool from dy. divisor: see AveragePooling. Returns [n, c, *spatial_size]."""

    divisor: str
    padding: tuple[int, ...]

    def infer(self, dy: TensorType) -> TensorType:
        return self.infer_one(dy)

    def decompose(self, dy: Any) -> Any:
        part = divide(dy, self.divisor, self.windows(), self.spatial_size, self.padding)
        return self.gathered(part for _ in range(math.prod(self.size)))

    def vjp(self, ddx: Any) -> Any:
        windows = self.windows()
        count = windows.number(self.spatial_size)
        dims = len(count)
        total = F.sum(windows_of(ddx, windows, count), axis=tuple(range(2 + dims, 2 + 2 * dims)))
        return divide(total, self.divisor, windows, self.spatial_size, self.padding)


@op
class MaxPool1d(MaxPooling, spatial=1): ...


@op
class AvgPool1d(AveragePooling, spatial=1): ...


@op
class MaxPool2d(MaxPooling, spatial=2): ...


@op
class AvgPool2d(AveragePooling, spatial=2): ...


@op
class MaxPool3d(MaxPooling, spatial=3): ...


@op
class AvgPool3d(AveragePooling, spatial=3): ...
