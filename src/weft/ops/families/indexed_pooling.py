"""Maxima over windows with their places, what puts them back, and norms of windows."""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.interpolation import steps
from weft.ops.families.pooling import Pooling
from weft.ops.families.window import Spatial, set_per_dimension, windows_of
from weft.ops.kernels import lowest
from weft.ops.node import constant
from weft.ops.op import op
from weft.ops.pointwise import cast_to


class MaxPoolingWithIndices(
    Pooling, Composed, rule="x[n,c,i^spatial]: number -> y[n,c,o^spatial]: x, indices[n,c,o^spatial]: int64"
):
    """Base of max_pool1d_with_indices, 2d, 3d."""

    text = """The greatest element of every window of {an_image}, and its index in the flat {image}.

    Of equal ones the first.

    x: numbers [n, c, {sizes}]; kernel_size, stride (default: kernel_size), padding, dilation: {ints}; ceil_mode: a last
    window may reach beyond the padding. NaN is greater than all. Returns x's dtype and int64, both of the shape of
    max_pool{d}. Raises ShapeError if no window fits, ValueError for attributes out of range.
    Source: PyTorch's max_pool{d}_with_indices.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> [v.shape for v in F.max_pool{d}_with_indices(wf.ones((1, 1, {x4})), 2)]
    [(1, 1, {x2}), (1, 1, {x2})]
    """

    def decompose(self, x: Any) -> Any:
        self.infer_one(x.type)
        windows = self.windows(x.shape[2:])
        count = windows.number(x.shape[2:])
        full = (*x.shape[:2], *count, math.prod(windows.size))
        elements = F.reshape(windows_of(x, windows, count, lowest(x.dtype.name)), shape=full)
        numbers = F.reshape(steps(x, math.prod(x.shape[2:]), int64), shape=(1, 1, *x.shape[2:]))
        numbers = F.reshape(windows_of(numbers, windows, count, -1), shape=(1, 1, *full[2:]))
        if any(windows.low) or any(windows.high):  # -inf of x is greater than that of the padding
            elements = F.where(numbers < 0, constant(lowest(x.dtype.name), x.dtype), elements)
        which = F.argmax(elements, axis=-1, keepdims=True)
        each = (elements, F.broadcast_to(numbers, shape=full))
        return tuple(F.squeeze(F.take_along_axis(v, which, axis=-1), axis=-1) for v in each)


class FractionalPooling(
    Spatial,
    Composed,
    family="pooling",
    public=False,
    rule="x[n,c,i^spatial]: number, samples[n,c,axes]: fixed float "
    "-> y[n,c,output_size^spatial]: x, indices[n,c,output_size^spatial]: int64",
):
    """Base of fractional_pool2d, 3d."""

    text = """Maxima of windows of {an_image} at uneven distances, and their indices in the flat {image}.

    x: numbers [n, c, {sizes}]; samples: float[n, c, axes], 0 <= u < 1 for each channel and axis. Of o windows of k
    elements along n the one with number i begins at floor((i + u) a) - floor(u a), a = (n - k) / (o - 1), the last at n
    - k. Returns x's dtype and int64. Raises ShapeError if the windows do not fit.
    """

    kernel_size: int | tuple[int, ...]
    output_size: int | tuple[int, ...]

    def check(self) -> None:
        set_per_dimension(self, self.spatial, kernel_size=1, output_size=1)

    def decompose(self, x: Any, samples: Any) -> Any:
        op: Any = self
        sizes, count, lead = x.shape[2:], op.output_size, x.shape[:2]
        if samples.shape[-1] != self.spatial:
            fact = f"samples needs {self.spatial} numbers for each channel"
            raise self.fail(ShapeError, fact, x=x.type, samples=samples.type)
        if any(o + k - 1 > n for n, o, k in zip(sizes, count, op.kernel_size, strict=True)):
            fact = f"{count} windows of {op.kernel_size} elements do not fit {sizes}"
            raise self.fail(ShapeError, fact, x=x.type)
        places: Any = 0
        for axis, (n, o, k) in enumerate(zip(sizes, count, op.kernel_size, strict=True)):
            starts = self.starts(x, F.slice(samples, starts=(axis,), stops=(axis + 1,), axes=(2,)), n, o, k)
            index = F.expand_dims(starts, axis=-1) + steps(x, k, int64)
            shape = [1] * (2 * self.spatial)
            shape[axis], shape[self.spatial + axis] = o, k
            places = places * n + F.reshape(index, shape=(*lead, *shape))
        area = math.prod(op.kernel_size)
        places = F.reshape(places, shape=(*lead, math.prod(count) * area))
        elements = F.take_along_axis(F.reshape(x, shape=(*lead, math.prod(sizes))), places, axis=-1)
        elements, places = (F.reshape(v, shape=(*lead, *count, area)) for v in (elements, places))
        which = F.argmax(elements, axis=-1, keepdims=True)
        return tuple(F.squeeze(F.take_along_axis(v, which, axis=-1), axis=-1) for v in (elements, places))

    def starts(self, x: Any, sample: Any, n: Any, o: int, k: int) -> Any:
        """The first element of each window along an axis, [n, c, o]; sample: [n, c, 1]."""
        number = steps(x, o, int64)
        if o == 1:
            return F.broadcast_to(number + (n - k), shape=(*x.shape[:2], 1))
        kind = sample.dtype.accumulation
        sample, ratio = cast_to(F.stop_gradient(sample), kind), (n - k) / (o - 1)
        first = F.floor((F.cast(number, dtype=kind) + sample) * ratio) - F.floor(sample * ratio)
        return F.minimum(F.where(F.equal(number, o - 1), n - k, F.cast(first, dtype=int64)), n - k)


class MaxUnpooling(
    Spatial,
    Composed,
    family="pooling",
    rule="x: number, indices: int -> y: x",
    positional=("kernel_size", "stride", "padding", "output_size"),
):
    """Base of max_unpool1d, 2d, 3d."""

    text = """Elements put back to where max_pool{d}_with_indices found them, 0 elsewhere.

    x: numbers [n, c, {sizes}]; indices: integers of x's shape, into a flat {image} of the new size; kernel_size, stride
    (default: kernel_size), padding: {ints}; output_size: the new sizes, by default (n - 1) stride - 2 padding +
    kernel_size. Returns x's dtype. Of equal indices the last one counts. Raises ShapeError if shapes differ, IndexError
    for an index out of range.
    Source: Zeiler, Fergus 2014, Visualizing and understanding convolutional networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.max_unpool{d}(*F.max_pool{d}_with_indices(wf.ones((1, 1, {x4})), 2), 2).sum().item()
    {halves}.0
    """

    kernel_size: int | tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: int | tuple[int, ...] = 0
    output_size: tuple[int, ...] | None = None

    def check(self) -> None:
        if self.stride is None:
            self.set("stride", self.kernel_size)
        set_per_dimension(self, self.spatial, kernel_size=1, stride=1, padding=0)
        if self.output_size is not None:
            set_per_dimension(self, self.spatial, output_size=1)

    def decompose(self, x: Any, indices: Any) -> Any:
        self.require_ndim(self.spatial + 2, x=x)
        if indices.shape != x.shape:
            raise self.fail(ShapeError, "shapes differ", x=x.type, indices=indices.type)
        op: Any = self
        windows = zip(x.shape[2:], op.stride, op.padding, op.kernel_size, strict=True)
        spatial = op.output_size or tuple((n - 1) * step - 2 * p + k for n, step, p, k in windows)
        rows = (*x.shape[:2], math.prod(x.shape[2:]))
        zeros = F.broadcast_to(constant(0, x.dtype), shape=(*x.shape[:2], math.prod(spatial)))
        y = F.put_along_axis(zeros, F.reshape(indices, shape=rows), F.reshape(x, shape=rows), axis=-1)
        return F.reshape(y, shape=(*x.shape[:2], *spatial))


class LpPooling(Pooling, Composed, rule="x[n,c,i^spatial]: float -> y[n,c,o^spatial]: x"):
    """Base of lp_pool1d, 2d, 3d."""

    text = """The norm of every window of {an_image}: the sum of |x|^norm_type, to the power of 1 / norm_type.

    x: float[n, c, {sizes}]; norm_type: a number, as vector_norm's ord; kernel_size, stride (default: kernel_size):
    {ints}; ceil_mode: a last window may reach beyond x. Returns x's dtype, of the shape of avg_pool{d}. Raises
    ShapeError if no window fits, ValueError for attributes out of range. PyTorch takes the sum of x^norm_type, without
    absolute values. padding and dilation are 0 and 1.
    Source: Sermanet, Chintala, LeCun 2012, Convolutional neural networks applied to house numbers digit classification.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.lp_pool{d}(wf.ones((1, 1, {x4})), 2, 2).shape
    (1, 1, {x2})
    """

    norm_type: float

    def check(self) -> None:
        super().check()
        ones, zeros = (1,) * self.spatial, (0,) * self.spatial
        if (self.padding, self.dilation) != (zeros, ones):
            raise ValueError(
                f"{self.name}: padding and dilation must be 0 and 1, got {self.padding} and {self.dilation}"
            )

    def decompose(self, x: Any) -> Any:
        self.infer_one(x.type)
        windows = self.windows(x.shape[2:])
        patches = windows_of(x, windows, windows.number(x.shape[2:]))
        axes = tuple(range(2 + self.spatial, 2 + 2 * self.spatial))
        return F.vector_norm(patches, axis=axes, ord=self.norm_type)


@op
class MaxPool1dWithIndices(MaxPoolingWithIndices, spatial=1): ...


@op
class MaxPool2dWithIndices(MaxPoolingWithIndices, spatial=2): ...


@op
class MaxPool3dWithIndices(MaxPoolingWithIndices, spatial=3): ...


@op
class FractionalPool2d(FractionalPooling, spatial=2, public=False): ...


@op
class FractionalPool3d(FractionalPooling, spatial=3, public=False): ...


@op
class MaxUnpool1d(MaxUnpooling, spatial=1): ...


@op
class MaxUnpool2d(MaxUnpooling, spatial=2): ...


@op
class MaxUnpool3d(MaxUnpooling, spatial=3): ...


@op
class LpPool1d(LpPooling, positional=("norm_type", "kernel_size", "stride", "ceil_mode"), spatial=1): ...


@op
class LpPool2d(LpPooling, positional=("norm_type", "kernel_size", "stride", "ceil_mode"), spatial=2): ...


@op
class LpPool3d(LpPooling, positional=("norm_type", "kernel_size", "stride", "ceil_mode"), spatial=3): ...


__all__ = [
    "FractionalPool2d",
    "FractionalPool3d",
    "LpPool1d",
    "LpPool2d",
    "LpPool3d",
    "MaxPool1dWithIndices",
    "MaxPool2dWithIndices",
    "MaxPool3dWithIndices",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]
