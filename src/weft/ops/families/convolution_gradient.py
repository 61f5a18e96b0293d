"""The gradients of convolutions with respect to x and to the weight: operators, too, so that they have gradients."""

from __future__ import annotations

import math
from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.convolution import Convolving, gradient_attributes
from weft.ops.families.matrix import has_sizes, is_matrix_float, recast
from weft.ops.families.window import Windows, windows_of
from weft.ops.op import op
from weft.ops.pointwise import conj
from weft.ops.types import TensorType, promote

# When the gradient of the weights is one product (ConvolutionWeightGradient.unfolds).
FEW_WINDOWS = 64  # of an image
WIDE_CHANNELS = 128
UNFOLDED_BYTES = 16 << 20  # of all windows: more do not stay in the cache


class ConvolutionGradient(Convolving, public=False):
    """Base of the gradients: the windows as numbers, nothing left to derive."""

    stride: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def windows_of_size(self, size: tuple[Any, ...]) -> Windows:
        return Windows(size, self.stride, self.low, self.high, self.dilation)

    def again(self, x: Any, weight: Any) -> Any:
        """The convolution whose gradient this is."""
        return getattr(F, f"conv{len(self.stride)}d")(
            x,
            weight,
            stride=self.stride,
            padding=tuple(zip(self.low, self.high, strict=True)),
            dilation=self.dilation,
            groups=self.groups,
        )

    def window_attributes(self) -> dict[str, Any]:
        """The attributes that all the gradients of one convolution share."""
        return gradient_attributes(self.windows_of_size(()), self.groups)


@op
class ConvolutionInputGradient(ConvolutionGradient, outputs=("dx",)):
    """dx of a convolution from dy and w. dy: [n, o, *windows]; weight: [o, c, *size].

    Returns [n, groups * c, *spatial].

    spatial_size: x's, which does not follow from the rest if the stride is not 1.
    """

    spatial_size: tuple[int, ...]

    def infer(self, dy: TensorType, weight: TensorType) -> TensorType:
        count = self.windows_of_size(weight.shape[2:]).number(self.spatial_size)
        if dy.shape[1:] != (weight.shape[0], *count):
            fact = f"dy needs the sizes {(weight.shape[0], *count)} after the first"
            raise self.fail(ShapeError, fact, dy=dy, weight=weight)
        channels = weight.shape[1] * self.groups
        return dy.like((dy.shape[0], channels, *self.spatial_size), promote(dy, weight))

    def decompose(self, dy: Any, weight: Any) -> Any:
        cast = recast(F.convolution_input_gradient, (dy, weight), **self.values())
        return self.of_windows(dy, weight) if cast is None else cast

    def of_windows(self, dy: Any, weight: Any) -> Any:
        """Windows that count backwards over dy, spread by the stride."""
        windows = self.windows_of_size(weight.shape[2:])
        n, g, dims = dy.shape[0], self.groups, len(self.stride)
        outputs, channels = weight.shape[0] // g, weight.shape[1]
        low = tuple(max(n - 1 - p, 0) for n, p in zip(windows.extents, self.low, strict=True))
        start = tuple(padding + p for padding, p in zip(low, self.low, strict=True))
        reach = tuple(
            first + size - 1 - padding - (count - 1) * step
            for first, size, padding, count, step in zip(
                start, self.spatial_size, low, dy.shape[2:], self.stride, strict=True
            )
        )
        grouped = F.reshape(dy, shape=(n, g, outputs, 1, *dy.shape[2:]))
        cotangents = F.spread(
            grouped, low=low, high=tuple(max(r, 0) for r in reach), step=self.stride, value=0
        )
        patches = F.sliding_windows(
            cotangents,
            start=start,
            count=self.spatial_size,
            size=windows.size,
            stride=(1,) * dims,
            dilation=tuple(-d for d in self.dilation),
        )
        kernels = F.reshape(weight, shape=(g, outputs, channels, *(1,) * dims, *windows.size))
        dx = F.sum_of_products(patches, kernels, axis=(2, *range(4 + dims, 4 + 2 * dims)))
        return F.reshape(dx, shape=(n, g * channels, *self.spatial_size))

    def vjp(self, dy: Any, weight: Any, ddx: Any) -> Any:
        dw = F.convolution_weight_gradient(
            ddx, conj(dy), kernel_size=weight.shape[2:], **self.window_attributes()
        )
        return F.cast(self.again(ddx, conj(weight)), dtype=dy.dtype), F.cast(dw, dtype=weight.dtype)


@op
class ConvolutionWeightGradient(ConvolutionGradient, outputs=("dw",)):
    """dw of a convolution from x and dy. x: [n, groups * c, *spatial]; dy: [n, o, *windows].

    Returns [o, c, *size].

    kernel_size: the weight's, which does not follow from the rest if the stride is not 1.
    """

    kernel_size: tuple[int, ...]

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        count = self.windows_of_size(self.kernel_size).number(x.shape[2:])
        if (dy.shape[0], *dy.shape[2:]) != (x.shape[0], *count):
            raise self.fail(ShapeError, f"dy needs the sizes {count} after the second", x=x, dy=dy)
        return x.like((dy.shape[1], x.shape[1] // self.groups, *self.kernel_size), promote(x, dy))

    def unfolds(self, x: Any, dy: Any) -> bool:
        """Whether one product of matrices is quicker than a convolution's code, though windows of x are written out.

        That code is slow where windows are few or move by more than one; the design notes have the numbers.
        """
        if self.groups != 1 or not is_matrix_float(x, dy) or has_sizes(x, dy):
            return False
        size, count = math.prod(self.kernel_size), math.prod(dy.shape[2:])
        is_slow = max(self.stride) > 1 or (count <= FEW_WINDOWS and size > 1)
        is_wide = min(x.shape[1], dy.shape[1]) >= WIDE_CHANNELS
        return (
            is_slow
            and is_wide
            and dy.shape[0] * count * x.shape[1] * size * x.dtype.itemsize <= UNFOLDED_BYTES
        )

    def unfolded(self, x: Any, dy: Any) -> Any:
        """dw as one product of dy's pixels and x's windows; channels come last, as one more dimension of a window."""
        dims, channels = len(self.stride), x.shape[1]
        channels_last = (0, *range(2, 2 + dims), 1)
        windows = Windows(
            (*self.kernel_size, channels),
            (*self.stride, 1),
            (*self.low, 0),
            (*self.high, 0),
            (*self.dilation, 1),
        )
        patches = windows_of(F.permute_dims(x, axes=channels_last), windows, (*dy.shape[2:], 1))
        pixels = dy.shape[0] * math.prod(dy.shape[2:])
        rows = F.reshape(patches, shape=(pixels, math.prod(self.kernel_size) * channels))
        cotangents = F.reshape(F.permute_dims(dy, axes=channels_last), shape=(pixels, dy.shape[1]))
        dw = F.matmul(F.permute_dims(cotangents, axes=(1, 0)), rows)
        dw = F.reshape(dw, shape=(dy.shape[1], *self.kernel_size, channels))
        return F.permute_dims(dw, axes=(0, 1 + dims, *range(1, 1 + dims)))

    def decompose(self, x: Any, dy: Any) -> Any:
        if self.unfolds(x, dy):
            return self.unfolded(x, dy)
        cast = recast(F.convolution_weight_gradient, (x, dy), **self.values())
        return self.of_windows(x, dy) if cast is None else cast

    def of_windows(self, x: Any, dy: Any) -> Any:
        """As products of windows of x with dy."""
        windows = self.windows_of_size(self.kernel_size)
        n, g, dims = x.shape[0], self.groups, len(self.stride)
        outputs, channels = dy.shape[1] // g, x.shape[1] // g
        count = dy.shape[2:]
        patches = windows_of(F.reshape(x, shape=(n, g, 1, channels, *x.shape[2:])), windows, count)
        cotangents = F.reshape(dy, shape=(n, g, outputs, 1, *count, *(1,) * dims))
        dw = F.sum_of_products(patches, cotangents, axis=(0, *range(4, 4 + dims)))
        return F.reshape(dw, shape=(g * outputs, channels, *self.kernel_size))

    def vjp(self, x: Any, dy: Any, ddw: Any) -> Any:
        dx = F.convolution_input_gradient(conj(dy), ddw, spatial_size=x.shape[2:], **self.window_attributes())
        return F.cast(dx, dtype=x.dtype), F.cast(self.again(conj(x), ddw), dtype=dy.dtype)
