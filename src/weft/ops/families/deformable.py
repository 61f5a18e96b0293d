"""Convolutions that read images at places that are computed, and correlations of two images over displacements."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.convolution import WithKernel
from weft.ops.families.interpolation import steps
from weft.ops.families.matrix import cast_all
from weft.ops.families.sampling_grid import samples
from weft.ops.families.window import Windows, windows_of
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType


@op
class DeformableConv2d(
    WithKernel,
    rule="x[n,groups*channels,i^spatial]: float, offset[n,offsets,j^spatial]: float, "
    "weight[out_channels,channels,kernel_size^spatial]: learnable float, bias[out_channels]?: learnable float, "
    "mask[n,masks,j^spatial]?: float -> y[n,out_channels,output_sizes()^spatial]: promote(x weight bias mask)",
):
    """conv2d whose kernel reads each of its elements beside its place, by an offset that is given for each result.

    x: float[n, c, h, w], zeros beyond; offset: float[n, 2 d kh kw, h', w'], (down, across) of each element of the
    kernel in each of d parts of x's channels; weight: [o, c / groups, kh, kw]; bias: [o] or None; mask: float [n, d kh
    kw, h', w'], factors of what is read (version 2), or None. stride, padding, dilation, groups, out_channels,
    kernel_size: as conv2d's. Returns the promoted type [n, o, h', w'] of conv2d's sizes. Raises ShapeError if channels
    or sizes do not fit.
    Source: Dai et al. 2017, Deformable convolutional networks; Zhu et al. 2019, Deformable ConvNets v2.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x, weight = wf.tensor([[[[1., 2., 4.]]]]), wf.ones((1, 1, 1, 1))
    >>> offset = wf.tensor([[[[0., 0., 0.]], [[0.5, 1., 0.]]]])
    >>> F.deformable_conv2d(x, offset, weight)
    tensor([[[[1.5, 4. , 4. ]]]], dtype=float32, device=cpu:0)
    """

    spatial = 2

    def output_sizes(  # type: ignore[override]
        self, x: TensorType, offset: TensorType, weight: TensorType, *_: TensorType | None
    ) -> tuple[Any, ...]:
        """The result's spatial sizes."""
        return super().output_sizes(x, weight)

    def infer(
        self,
        x: TensorType,
        offset: TensorType,
        weight: TensorType,
        bias: TensorType | None = None,
        mask: TensorType | None = None,
    ) -> Any:
        y = super().infer(x, offset, weight, bias, mask)
        self.parts(x, offset, weight, mask)
        return y

    def decompose(self, x: Any, offset: Any, weight: Any, bias: Any = None, mask: Any = None) -> Any:
        windows = self.windows(weight)
        count = windows.number(x.shape[2:])
        (n, c), o, (kh, kw) = x.shape[:2], weight.shape[0], windows.size
        parts = self.parts(x.type, offset.type, weight.type, None if mask is None else mask.type)
        kind = offset.dtype.accumulation
        moved = F.reshape(cast_to(offset, kind), shape=(n * parts, kh * kw, 2, *count))
        places = []
        for k, size in enumerate((kh, kw)):
            at = steps(x, count[k], kind) * windows.stride[k] - windows.low[k]
            at = F.reshape(at, shape=(-1, 1) if k == 0 else (1, -1))
            inner = F.reshape(
                steps(x, size, kind) * windows.dilation[k], shape=(-1, 1) if k == 0 else (1, -1)
            )
            inner = F.reshape(F.broadcast_to(inner, shape=(kh, kw)), shape=(kh * kw, 1, 1))
            shift = F.squeeze(F.slice(moved, starts=(k,), stops=(k + 1,), axes=(2,)), axis=2)
            places.append(shift + (inner + at))
        read = samples(F.reshape(x, shape=(n * parts, c // parts, *x.shape[2:])), places)
        if mask is not None:
            read = read * F.reshape(mask, shape=(n * parts, 1, kh * kw, *count))
        g, inner_size = self.groups, c // self.groups * kh * kw
        columns = F.reshape(read, shape=(n, g, inner_size, count[0] * count[1]))
        y = F.matmul(F.reshape(weight, shape=(g, o // g, inner_size)), columns)
        y = F.reshape(y, shape=(n, o, *count))
        return y if bias is None else y + F.reshape(bias, shape=(-1, 1, 1))

    def parts(self, x: TensorType, offset: TensorType, weight: TensorType, mask: TensorType | None) -> int:
        """Into how many parts of channels the offsets divide x. Raises ShapeError if operands do not fit."""
        c, (kh, kw), count = x.shape[1], weight.shape[2:], self.windows(weight).number(x.shape[2:])
        parts = offset.shape[1] // (2 * kh * kw)
        if offset.shape[2:] != count or parts < 1 or offset.shape[1] % (2 * kh * kw) or c % parts:
            fact = f"offset must be [n, {2 * kh * kw} d, {count[0]}, {count[1]}] with d that divides {c} channels"
            raise self.fail(ShapeError, fact, x=x, offset=offset, weight=weight)
        if mask is not None and mask.shape[1] != parts * kh * kw:
            fact = f"mask must have {parts * kh * kw} channels"
            raise self.fail(ShapeError, fact, offset=offset, mask=mask)
        return int(parts)


class Displacing(Op, family="window", rule="x1[n,c,h,w], x2[n,c,h2,w2] -> y: promote", public=False):
    """Base: x2 is larger than x1 by (size - 1) * step in both directions."""

    size: int
    step: int

    def windows(self, x: Any, low: int) -> Windows:
        """Of so many zeros at both ends."""
        return Windows((self.size,) * 2, (1, 1), (low,) * 2, (low,) * 2, (self.step,) * 2)


@op
class DisplacedProducts(Displacing):
    """y[n, i, j, u, v] = sum over c of x1[n, c, i, j] x2[n, c, i + u step, j + v step], u and v below size."""

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        (dtype,) = self.match(x1, x2)
        return x1.like((x1.shape[0], *x1.shape[2:], self.size, self.size), dtype=dtype)

    def decompose(self, x1: Any, x2: Any) -> Any:
        near = windows_of(x2, self.windows(x2, 0), x1.shape[2:])
        return F.sum_of_products(F.expand_dims(x1, axis=(-2, -1)), near, axis=(1,))

    def vjp(self, x1: Any, x2: Any, dy: Any) -> Any:
        weight = F.expand_dims(dy, axis=1)
        near = windows_of(x2, self.windows(x2, 0), x1.shape[2:])
        dx1 = F.sum_of_products(weight, near, axis=(-2, -1))
        return cast_to(dx1, x1.dtype), cast_to(
            F.displaced_back(x1, dy, size=self.size, step=self.step), x2.dtype
        )


@op
class DisplacedBack(Displacing, rule="x1[n,c,h,w], weight[n,h,w,u,v] -> y: promote"):
    """y[n, c, i, j] = sum over u, v of x1[n, c, i - u step, j - v step] weight[n, i - u step, j - v step, u, v].

    What is beyond x1 is 0; y is larger than x1 by (size - 1) * step. The gradient of displaced_products.
    """

    def infer(self, x1: TensorType, weight: TensorType) -> TensorType:
        (dtype,) = self.match(x1, weight)
        more = (self.size - 1) * self.step
        return x1.like((*x1.shape[:2], *(n + more for n in x1.shape[2:])), dtype=dtype)

    def decompose(self, x1: Any, weight: Any) -> Any:
        more = (self.size - 1) * self.step
        sizes = tuple(n + more for n in x1.shape[2:])
        around = windows_of(
            x1, self.windows(x1, more), sizes
        )  # element u, v: that of i + (u - size + 1) step
        turned = F.flip(F.permute_dims(weight, axes=(0, 3, 4, 1, 2)), axis=(1, 2))
        skewed = windows_of(turned, self.windows(turned, more), sizes)  # [n, u, v, i, j, a, b]
        skewed = F.diagonal(
            F.diagonal(skewed, axis1=1, axis2=5), axis1=1, axis2=4
        )  # u = a, v = b: [n, i, j, u, v]
        return F.sum_of_products(around, F.expand_dims(skewed, axis=1), axis=(-2, -1))

    def vjp(self, x1: Any, weight: Any, dy: Any) -> Any:
        near = windows_of(dy, self.windows(dy, 0), x1.shape[2:])
        dx1 = F.sum_of_products(F.expand_dims(weight, axis=1), near, axis=(-2, -1))
        dweight = F.displaced_products(x1, dy, size=self.size, step=self.step)
        return cast_to(dx1, x1.dtype), cast_to(dweight, weight.dtype)


@op
class Correlation(
    Composed, family="convolution", rule="x1[n,c,h,w]: float, x2[n,c,h,w]: float -> y: promote"
):
    """How alike the patches of two images are, for each place and displacement: the mean of their products.

    x1, x2: float[n, c, h, w]; kernel_size: of the patches, odd; max_displacement: how far those of x2 are away at most,
    in elements; stride: the distance of places; displacement_stride: that of displacements; padding: zeros around both;
    multiply: False for the mean of differences |x1 - x2|. Returns the promoted type [n, d^2, h', w'] with d = 2
    floor(max_displacement / displacement_stride) + 1 and h' = ceil((h + 2 padding - 2 max_displacement - kernel_size +
    1) / stride): displacements in row-major order, all patches are inside of the padded images. Raises ShapeError if
    none fits, ValueError for attributes out of range.
    Source: Dosovitskiy et al. 2015, FlowNet; MXNet's Correlation.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.tensor([[[[1., 2., 3.]]]])
    >>> F.correlation(x, x, max_displacement=1, padding=1)[0, 3:6, 0].tolist()
    [[0.0, 2.0, 6.0], [1.0, 4.0, 9.0], [2.0, 6.0, 0.0]]
    """

    kernel_size: int = 1
    max_displacement: int = 1
    stride: int = 1
    displacement_stride: int = 1
    padding: int = 0
    multiply: bool = True

    def check(self) -> None:
        least = min(self.stride, self.displacement_stride)
        if self.kernel_size % 2 != 1 or least < 1 or min(self.max_displacement, self.padding) < 0:
            raise ValueError(
                f"{self.name}: kernel_size is odd, strides are at least 1, others at least 0: {self!r}"
            )

    def decompose(self, x1: Any, x2: Any) -> Any:
        n, c, h, w = x1.shape
        radius = self.max_displacement // self.displacement_stride
        size, step = 2 * radius + 1, self.displacement_stride
        edge = self.padding - self.max_displacement  # zeros around x1's places
        extents = [m + 2 * edge for m in (h, w)]
        if any(isinstance(m, int) and m < self.kernel_size for m in extents):
            raise self.fail(ShapeError, f"patches need {self.kernel_size}, there are {extents}", x1=x1.type)
        x1, x2 = cast_all((x1, x2))
        kind = x1.dtype.accumulation
        first, second = cropped(cast_to(x1, kind), edge), cropped(cast_to(x2, kind), edge + radius * step)
        if self.multiply:
            y = F.displaced_products(first, second, size=size, step=step)
        else:
            y = self.differences(first, second, size)
        maps = F.reshape(F.permute_dims(y, axes=(0, 3, 4, 1, 2)), shape=(n, size * size, *first.shape[2:]))
        maps = F.avg_pool2d(maps, kernel_size=self.kernel_size, stride=self.stride) * (1 / max(c, 1))
        return cast_to(maps, x1.dtype)

    def differences(self, x1: Any, x2: Any, size: int) -> Any:
        """The sums of |x1 - x2| over channels, [n, h, w, size, size]: a graph for each displacement."""
        step, (h, w) = self.displacement_stride, x1.shape[2:]
        parts = []
        for u in range(size):
            for v in range(size):
                starts = (u * step, v * step)
                stops = tuple(s + m for s, m in zip(starts, (h, w), strict=True))
                near = F.slice(x2, starts=starts, stops=stops, axes=(2, 3))
                parts.append(F.sum(F.abs(x1 - near), axis=1))
        y = F.stack(parts, axis=-1)
        return F.reshape(y, shape=(*y.shape[:-1], size, size))


def cropped(x: Any, edge: int) -> Any:
    """Images with so many zeros around them, or without so many rows and columns, below 0."""
    if edge >= 0:
        return F.pad(x, pad=(edge,) * 4) if edge else x
    stops = tuple(n + edge for n in x.shape[2:])
    return F.slice(x, starts=(-edge, -edge), stops=stops, axes=(2, 3))


__all__ = ["Correlation", "DeformableConv2d"]
