"""Convolutions over one to three spatial dimensions, and their transposes; gradients are in convolution_gradient."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.matrix import recast
from weft.ops.families.window import Spatial, Windows, set_per_dimension, windows_of
from weft.ops.op import op
from weft.ops.pointwise import cast_to, conj
from weft.ops.types import TensorType


class Convolving(Spatial, family="convolution"):
    """Base of all operators here, of which each computes one of x, w, y from the other two.

    Their relation: y[n, o, p] = sum over c, k of w[o, c, k] x[n, c, p * stride + k * dilation - low], in groups.
    """


class WithKernel(Convolving, positional=("stride", "padding", "dilation", "groups")):
    """Base of what multiplies windows of x by a weight [o, c / groups, *kernel_size]."""

    text = """The convolution (in fact the cross-correlation) of {image}s, in groups of channels.

    x: numbers [n, c, {sizes}]; weight: [o, c / groups, {kernel}]; bias: [o] or None.
    stride, dilation: {ints};
    padding: zeros at both ends, {ints}, "same" (the output's sizes are x's; stride 1), "valid" (none)
    or (low, high) pairs. Returns the promoted type
    [n, o, ({size} + low + high - (k - 1) dilation - 1) // stride + 1{more}],
    channels last in memory.
    out_channels, kernel_size: o and {kernel}, for symbols, which make the weight and the bias themselves.
    Raises ShapeError if channels or sizes do not fit, ValueError for attributes out of range.
    Source: LeCun et al. 1989, Backpropagation applied to handwritten zip code recognition.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.conv{d}(wf.ones((1, 1, {x5})), wf.ones((2, 1, {x3})), padding=1).shape
    (1, 2, {x5})
    """

    stride: int | tuple[int, ...] = 1
    padding: int | str | tuple[int, ...] | tuple[tuple[int, ...], ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    out_channels: int | None = None
    kernel_size: int | tuple[int, ...] | None = None

    def check(self) -> None:
        set_per_dimension(self, self.spatial, stride=1, dilation=1)
        if self.groups < 1:
            raise ValueError(f"{self.name}: groups must be at least 1, got {self.groups}")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"{self.name}: padding must be numbers, 'same' or 'valid': {self.padding!r}")
            if self.padding == "same" and set(self.stride) != {1}:  # type: ignore[arg-type]
                raise ValueError(f"{self.name}: padding 'same' needs a stride of 1, got {self.stride}")
        elif isinstance(self.padding, int) or all(isinstance(n, int) for n in self.padding):
            set_per_dimension(self, self.spatial, padding=0)
        elif len(self.padding) != self.spatial or any(len(pair) != 2 for pair in self.padding):  # type: ignore[arg-type]
            raise ValueError(f"{self.name}: padding needs {self.spatial} pairs, got {self.padding}")
        if self.kernel_size is not None:
            set_per_dimension(self, self.spatial, kernel_size=1)

    def windows(self, weight: Any) -> Windows:
        """For a weight (a type, Value or array) [o, c, *size]."""
        size: Any = weight.shape[2:]
        padding: Any = self.padding
        stride: Any = self.stride
        dilation: Any = self.dilation
        if padding == "valid":
            padding = (0,) * self.spatial
        elif padding == "same":
            total = [(k - 1) * d for k, d in zip(size, dilation, strict=True)]
            padding = tuple((n // 2, n - n // 2) for n in total)
        pairs = [(p, p) if isinstance(p, int) else p for p in padding]
        return Windows(size, stride, tuple(p for p, _ in pairs), tuple(q for _, q in pairs), dilation)

    def output_sizes(self, x: TensorType, weight: TensorType, *_: TensorType | None) -> tuple[Any, ...]:
        """The result's spatial sizes."""
        if self.groups != 1 and weight.shape[0] % self.groups:
            fact = f"{weight.shape[0]} outputs do not divide into {self.groups} groups"
            raise self.fail(ShapeError, fact, x=x, weight=weight)
        windows = self.windows(weight)
        count = windows.number(x.shape[2:])
        if any(isinstance(n, int) and n < 1 for n in count):
            fact = f"a window of {windows.extents} does not fit x with its padding"
            raise self.fail(ShapeError, fact, x=x, weight=weight)
        return tuple(count)


class Convolution(
    WithKernel,
    rule="x[n,groups*channels,i^spatial], weight[out_channels,channels,kernel_size^spatial]: learnable, "
    "bias[out_channels]?: learnable -> y[n,out_channels,output_sizes()^spatial]: promote to number|complex",
    channel_axis=1,
):
    """Base of conv1d, conv2d, conv3d."""

    def decompose(self, x: Any, weight: Any, bias: Any = None) -> Any:
        cast = recast(getattr(F, self.name), (x, weight, bias), **self.values())
        return self.of_windows(x, weight, bias) if cast is None else cast

    def of_windows(self, x: Any, weight: Any, bias: Any) -> Any:
        """As products of windows of x; 16-bit floats are rounded once."""
        windows = self.windows(weight)
        count = windows.number(x.shape[2:])
        n, channels = x.shape[:2]
        g, dims = self.groups, self.spatial
        patches = windows_of(F.reshape(x, shape=(n, g, 1, channels // g, *x.shape[2:])), windows, count)
        kernels = F.reshape(
            weight, shape=(g, weight.shape[0] // g, channels // g, *(1,) * dims, *windows.size)
        )
        axes = (3, *range(4 + dims, 4 + 2 * dims))
        is_wide = bias is not None and x.dtype.accumulation is not x.dtype
        y = F.sum_of_products(patches, kernels, axis=axes, is_wide=is_wide)
        y = F.reshape(y, shape=(n, weight.shape[0], *count))
        if bias is None:
            return y
        return cast_to(y + F.reshape(cast_to(bias, y.dtype), shape=(-1, *(1,) * dims)), x.dtype)

    def vjp(self, x: Any, weight: Any, bias: Any, dy: Any) -> Any:
        keywords = gradient_attributes(self.windows(weight), self.groups)
        dx = dw = db = None
        if x.dtype.is_differentiable:
            dx = F.convolution_input_gradient(dy, conj(weight), spatial_size=x.shape[2:], **keywords)
            dx = F.cast(dx, dtype=x.dtype)
        if weight.dtype.is_differentiable:
            dw = F.convolution_weight_gradient(conj(x), dy, kernel_size=weight.shape[2:], **keywords)
            dw = F.cast(dw, dtype=weight.dtype)
        if bias is not None and bias.dtype.is_differentiable:
            db = F.cast(F.sum(dy, axis=(0, *range(2, dy.ndim))), dtype=bias.dtype)
        return dx, dw, db


def gradient_attributes(windows: Windows, groups: int) -> dict[str, Any]:
    """The attributes of the gradients' operators."""
    return {
        "stride": windows.stride,
        "low": windows.low,
        "high": windows.high,
        "dilation": windows.dilation,
        "groups": groups,
    }


@op
class Conv1d(Convolution, spatial=1): ...


@op
class Conv2d(Convolution, spatial=2): ...


@op
class Conv3d(Convolution, spatial=3): ...


class TransposedConvolution(
    Convolving,
    rule="x[n,channels,i^spatial], weight[channels,m,kernel_size^spatial]: learnable, "
    "bias[groups*m=out_channels]?: learnable -> "
    "y[n,groups*m=out_channels,output_sizes()^spatial]: promote to number|complex",
    positional=("stride", "padding", "output_padding", "groups", "dilation"),
):
    """Base of conv_transpose1d, conv_transpose2d, conv_transpose3d: the gradient of a convolution with respect to x."""

    text = """The transpose of conv{d}: the gradient of its x, for upsampling {image}s.

    x: numbers [n, c, {sizes}]; weight: [c, o / groups, {kernel}]; bias: [o] or None.
    stride, dilation, padding: those of the convolution; output_padding: added at the end of the result.
    Returns the promoted type [n, o, ({size} - 1) stride - 2 padding + (k - 1) dilation + output_padding + 1{more}].
    out_channels, kernel_size: o and {kernel}, for symbols, which make the weight and the bias themselves.
    Raises ShapeError if channels or sizes do not fit, ValueError for attributes out of range.
    Source: Zeiler et al. 2010, Deconvolutional networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.conv_transpose{d}(wf.ones((1, 1, {x4})), wf.ones((1, 2, {x2})), stride=2).shape
    (1, 2, {x8})
    """

    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    output_padding: int | tuple[int, ...] = 0
    groups: int = 1
    dilation: int | tuple[int, ...] = 1
    out_channels: int | None = None
    kernel_size: int | tuple[int, ...] | None = None

    def check(self) -> None:
        set_per_dimension(self, self.spatial, stride=1, dilation=1, padding=0, output_padding=0)
        if self.kernel_size is not None:
            set_per_dimension(self, self.spatial, kernel_size=1)
        if self.groups < 1:
            raise ValueError(f"{self.name}: groups must be at least 1, got {self.groups}")

    def windows(self, weight: Any) -> Windows:
        op: Any = self
        return Windows(weight.shape[2:], op.stride, op.padding, op.padding, op.dilation)

    def sizes(self, x: Any, weight: Any) -> tuple[Any, ...]:
        """The result's spatial sizes."""
        windows = self.windows(weight)
        output_padding: Any = self.output_padding
        return tuple(
            (n - 1) * step - low - high + extent + extra
            for n, step, low, high, extent, extra in zip(
                x.shape[2:],
                windows.stride,
                windows.low,
                windows.high,
                windows.extents,
                output_padding,
                strict=True,
            )
        )

    def output_sizes(
        self, x: TensorType, weight: TensorType, bias: TensorType | None = None
    ) -> tuple[Any, ...]:
        """The result's spatial sizes, checked."""
        if self.groups != 1 and x.shape[1] % self.groups:
            fact = f"{x.shape[1]} channels do not divide into {self.groups} groups"
            raise self.fail(ShapeError, fact, x=x, weight=weight)
        windows = self.windows(weight)
        output_padding: Any = self.output_padding
        limits = zip(output_padding, windows.stride, windows.dilation, strict=True)
        if any(n >= max(step, apart) for n, step, apart in limits):
            fact = f"output_padding {output_padding} must be below the stride or the dilation"
            raise self.fail(ValueError, fact, x=x, weight=weight)
        sizes = self.sizes(x, weight)
        if any(isinstance(n, int) and n < 1 for n in sizes):
            raise self.fail(ShapeError, f"the padding leaves the sizes {sizes}", x=x, weight=weight)
        return sizes

    def decompose(self, x: Any, weight: Any, bias: Any = None) -> Any:
        windows = self.windows(weight)
        output_padding: Any = self.output_padding
        # Behind what a window of the convolution could begin at there are only zeros.
        zeros = [max(n - step + 1, 0) for n, step in zip(output_padding, windows.stride, strict=True)]
        sizes = zip(self.sizes(x, weight), zeros, strict=True)
        y = F.convolution_input_gradient(
            x,
            weight,
            spatial_size=tuple(n - count for n, count in sizes),
            **gradient_attributes(windows, self.groups),
        )
        if any(zeros):
            y = F.pad(y, pad=tuple(n for count in reversed(zeros) for n in (0, count)))
        return y if bias is None else y + F.reshape(bias, shape=(-1, *(1,) * self.spatial))


@op
class ConvTranspose1d(TransposedConvolution, spatial=1): ...


@op
class ConvTranspose2d(TransposedConvolution, spatial=2): ...


@op
class ConvTranspose3d(TransposedConvolution, spatial=3): ...
