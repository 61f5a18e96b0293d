"""Convolutions without shared weights, windows as a view, and images cut into regions of their own weights."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.rearrangement import Blocks
from weft.ops.families.window import Windows, set_per_dimension, windows_of
from weft.ops.op import op


@op
class SlidingWindow(Blocks, positional=("kernel_size", "dilation", "padding", "stride")):
    """The windows of an image, each as an image of its own.

    x: [n, c, h, w]; kernel_size, dilation, padding, stride: an int or 2 of them; elements of the padding are 0. Returns
    x's dtype, [n, c, h', w', kh, kw]; unfold has the same as columns. Raises ShapeError unless x has 4 dimensions and a
    window fits.
    Source: MegEngine's sliding_window.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.sliding_window(wf.ones((1, 2, 5, 6)), 3).shape
    (1, 2, 3, 4, 3, 3)
    """

    def decompose(self, x: Any) -> Any:
        self.require_ndim(4, x=x)
        return windows_of(x, self.windows(), self.count(x.shape[2:], x))

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.sliding_window_transpose(dy, output_size=tuple(x.shape[2:]), **self.values())


@op
class SlidingWindowTranspose(
    Blocks, positional=("output_size", "kernel_size", "dilation", "padding", "stride")
):
    """Windows put into an image, where elements that overlap are added: the adjoint of sliding_window.

    x: [n, c, h', w', kh, kw], as sliding_window makes it of an image of output_size; kernel_size, dilation, padding,
    stride: as there. Returns x's dtype, [n, c, *output_size]. Raises ShapeError if x does not fit.
    Source: MegEngine's sliding_window_transpose.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.sliding_window_transpose(wf.ones((1, 1, 1, 2, 1, 2)), (1, 3), (1, 2))
    tensor([[[[1., 2., 1.]]]], dtype=float32, device=cpu:0)
    """

    output_size: tuple[int, ...]

    def decompose(self, x: Any) -> Any:
        self.require_ndim(6, x=x)
        count, size = tuple(self.count(self.output_size, x)), self.kernel_size
        if tuple(x.shape[2:]) != (*count, *size):  # type: ignore[misc]
            raise self.fail(ShapeError, f"windows must be [n, c, {count}, {size}]", x=x.type)
        n, c = x.shape[:2]
        columns = F.reshape(F.permute_dims(x, axes=(0, 1, 4, 5, 2, 3)), shape=(n, c * size[0] * size[1], -1))  # type: ignore[index]
        return F.fold(columns, **self.values())


@op
class LocalConv2d(
    Composed,
    family="convolution",
    rule="x: number, weight: learnable number -> y: promote",
    positional=("stride", "padding", "dilation"),
):
    """conv2d with a weight of its own for each place of the result.

    x: numbers [n, c, h, w]; weight: [g, h', w', c / g, kh, kw, o / g] for g groups of channels; stride, padding,
    dilation: an int or 2 of them, zeros are added at both ends. Returns the promoted type [n, o, h', w']. Raises
    ShapeError if sizes do not fit.
    Source: LeCun 1989, Generalization and network design strategies; MegEngine's local_conv2d.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> weight = wf.tensor([1., 10.]).reshape(1, 1, 2, 1, 1, 1, 1)
    >>> F.local_conv2d(wf.tensor([[[[1., 2.]]]]), weight)
    tensor([[[[ 1., 20.]]]], dtype=float32, device=cpu:0)
    """

    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1

    def check(self) -> None:
        set_per_dimension(self, 2, stride=1, dilation=1, padding=0)

    def decompose(self, x: Any, weight: Any) -> Any:
        own: Any = self
        if x.ndim != 4 or weight.ndim != 7 or weight.shape[0] * weight.shape[3] != x.shape[1]:
            fact = "takes x [n, c, h, w] and a weight [g, h', w', c / g, kh, kw, o / g]"
            raise self.fail(ShapeError, fact, x=x.type, weight=weight.type)
        groups, *count, channels, kh, kw, outputs = weight.shape
        windows = Windows((kh, kw), own.stride, own.padding, own.padding, own.dilation)
        if tuple(windows.number(x.shape[2:])) != tuple(count):
            fact = f"the weight has {tuple(count)} places, the result {windows.number(x.shape[2:])}"
            raise self.fail(ShapeError, fact, x=x.type, weight=weight.type)
        n, inner = x.shape[0], channels * kh * kw
        patches = windows_of(F.reshape(x, shape=(n, groups, channels, *x.shape[2:])), windows, count)
        rows = F.reshape(
            F.permute_dims(patches, axes=(1, 3, 4, 0, 2, 5, 6)), shape=(groups, *count, n, inner)
        )
        y = F.matmul(rows, F.reshape(weight, shape=(groups, *count, inner, outputs)))
        return F.reshape(F.permute_dims(y, axes=(3, 0, 4, 1, 2)), shape=(n, groups * outputs, *count))


@op
class RegionRestrictedConv(
    Composed,
    family="convolution",
    rule="x: float, weight: learnable float, input_regions: int, output_regions: int, bias?: learnable float -> y: "
    "promote(x weight bias)",
    positional=("stride", "padding", "dilation"),
):
    """A depthwise conv2d in which a result sees the elements of its own region alone.

    x: float[n, c, h, w]; weight: [c, 1, 1, kh, kw] or [c, 1, kh, kw]; input_regions: integers [n, h, w], the region of
    each element; output_regions: integers [n, h', w'], that of each result; bias: [c] or [1, c, 1, 1]; stride, padding,
    dilation: an int or 2 of them. Returns the promoted type [n, c, h', w']. Raises ShapeError if sizes do not fit.
    Source: MegEngine's region_restricted_conv.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x, regions = wf.tensor([[[[1., 2., 4.]]]]), wf.tensor([[[0, 0, 1]]])
    >>> F.region_restricted_conv(x, wf.ones((1, 1, 1, 3)), regions, regions, padding=(0, 1))
    tensor([[[[3., 3., 4.]]]], dtype=float32, device=cpu:0)
    """

    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1

    def check(self) -> None:
        set_per_dimension(self, 2, stride=1, dilation=1, padding=0)

    def decompose(
        self, x: Any, weight: Any, input_regions: Any, output_regions: Any, bias: Any = None
    ) -> Any:
        own: Any = self
        n, c = x.shape[:2]
        size = tuple(weight.shape[-2:])
        windows = Windows(size, own.stride, own.padding, own.padding, own.dilation)
        count = tuple(windows.number(x.shape[2:])) if x.ndim == 4 else ()
        fits = (
            weight.size == c * size[0] * size[1]
            and input_regions.shape == (n, *x.shape[2:])
            and output_regions.shape == (n, *count)
        )
        if not fits:
            fact = f"takes x [n, c, h, w], weight [c, 1, kh, kw], regions [n, h, w] and [n, {count}]"
            operands = {"x": x, "weight": weight, "input": input_regions, "output": output_regions}
            raise self.fail(ShapeError, fact, **{name: v.type for name, v in operands.items()})
        near = windows_of(x, windows, count)
        regions = windows_of(input_regions, windows, count)
        is_own = F.equal(regions, F.expand_dims(output_regions, axis=(-2, -1)))
        kernels = F.reshape(weight, shape=(c, 1, 1, *size))
        y = F.sum_of_products(F.where(F.expand_dims(is_own, axis=1), near, 0), kernels, axis=(-2, -1))
        return y if bias is None else y + F.reshape(bias, shape=(c, 1, 1))


__all__ = ["LocalConv2d", "RegionRestrictedConv", "SlidingWindow", "SlidingWindowTranspose"]
