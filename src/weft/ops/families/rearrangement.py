"""Operators that move elements between channels, places of images, and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.window import Windows, set_per_dimension, windows_of
from weft.ops.op import op


class BlockwiseMove(Composed, family="rearrangement", rule="x -> y: x"):
    """Base: blocks of places [b, b] of images [..., c, h, w] become channels, or the other way."""

    def require_block(self, block: int) -> None:
        """Raise ValueError unless the block's size is at least 1."""
        if block < 1:
            raise ValueError(f"{self.name}: the block must be at least 1, got {block}")

    def to_places(self, x: Any, block: int, blocks_first: bool) -> Any:
        """[..., c b^2, h, w] -> [..., c, h b, w b]; blocks_first: the channels are (b, b, c), else (c, b, b)."""
        *lead, channels, h, w = self.image_shape(x)
        if channels % block**2:
            raise self.fail(ShapeError, f"{channels} channels are not a multiple of {block}^2", x=x.type)
        c, k = channels // block**2, len(lead)
        split = (block, block, c) if blocks_first else (c, block, block)
        of_channel, row, column = (2, 0, 1) if blocks_first else (0, 1, 2)
        order = (*range(k), k + of_channel, k + 3, k + row, k + 4, k + column)
        moved = F.permute_dims(F.reshape(x, shape=(*lead, *split, h, w)), axes=order)
        return F.reshape(moved, shape=(*lead, c, h * block, w * block))

    def to_channels(self, x: Any, block: int, blocks_first: bool) -> Any:
        """[..., c, h b, w b] -> [..., c b^2, h, w]."""
        *lead, c, h, w = self.image_shape(x)
        if h % block or w % block:
            raise self.fail(ShapeError, f"sizes {h} and {w} are not multiples of {block}", x=x.type)
        k = len(lead)
        split = F.reshape(x, shape=(*lead, c, h // block, block, w // block, block))
        inner = (k + 2, k + 4, k) if blocks_first else (k, k + 2, k + 4)
        moved = F.permute_dims(split, axes=(*range(k), *inner, k + 1, k + 3))
        return F.reshape(moved, shape=(*lead, c * block**2, h // block, w // block))

    def image_shape(self, x: Any) -> tuple[Any, ...]:
        """x's shape. Raises ShapeError for fewer than 3 dimensions."""
        if x.ndim < 3:
            raise self.fail(ShapeError, "x needs at least 3 dimensions", x=x.type)
        shape: tuple[Any, ...] = x.shape
        return shape


@op
class PixelShuffle(BlockwiseMove, positional=("upscale_factor",)):
    """Channels become places: each r^2 channels (c, r, r) give blocks of r x r pixels of one channel.

    x: [..., c r^2, h, w]; upscale_factor: r. Returns x's dtype, [..., c, h r, w r]. Raises ShapeError for fewer than 3
    dimensions or a number of channels that r^2 does not divide.
    Source: Shi et al. 2016, Real-time single image and video super-resolution (sub-pixel convolution).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.pixel_shuffle(wf.reshape(wf.arange(4), (1, 4, 1, 1)), 2)
    tensor([[[[0, 1],
              [2, 3]]]], dtype=int64, device=cpu:0)
    """

    upscale_factor: int

    def check(self) -> None:
        self.require_block(self.upscale_factor)

    def decompose(self, x: Any) -> Any:
        return self.to_places(x, self.upscale_factor, blocks_first=False)


@op
class PixelUnshuffle(BlockwiseMove, positional=("downscale_factor",)):
    """Places become channels: the inverse of pixel_shuffle.

    x: [..., c, h r, w r]; downscale_factor: r. Returns x's dtype, [..., c r^2, h, w]. Raises ShapeError for fewer than
    3 dimensions or sizes that r does not divide.
    Source: Shi et al. 2016, Real-time single image and video super-resolution (sub-pixel convolution).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.pixel_unshuffle(wf.zeros((1, 3, 4, 6)), 2).shape
    (1, 12, 2, 3)
    """

    downscale_factor: int

    def check(self) -> None:
        self.require_block(self.downscale_factor)

    def decompose(self, x: Any) -> Any:
        return self.to_channels(x, self.downscale_factor, blocks_first=False)


@op
class DepthToSpace(BlockwiseMove, positional=("block_size",)):
    """Channels become places, as pixel_shuffle, but the channels are (b, b, c): the block's place counts first.

    x: [..., c b^2, h, w]; block_size: b. Returns x's dtype, [..., c, h b, w b]. Raises ShapeError for fewer than 3
    dimensions or a number of channels that b^2 does not divide.
    Source: MXNet's depth_to_space; ONNX's DepthToSpace with mode DCR.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.depth_to_space(wf.zeros((1, 12, 2, 3)), 2).shape
    (1, 3, 4, 6)
    """

    block_size: int

    def check(self) -> None:
        self.require_block(self.block_size)

    def decompose(self, x: Any) -> Any:
        return self.to_places(x, self.block_size, blocks_first=True)


@op
class SpaceToDepth(BlockwiseMove, positional=("block_size",)):
    """Places become channels (b, b, c): the inverse of depth_to_space.

    x: [..., c, h b, w b]; block_size: b. Returns x's dtype, [..., c b^2, h, w]. Raises ShapeError for fewer than 3
    dimensions or sizes that b does not divide.
    Source: MXNet's space_to_depth; ONNX's SpaceToDepth.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.space_to_depth(wf.zeros((1, 3, 4, 6)), 2).shape
    (1, 12, 2, 3)
    """

    block_size: int

    def check(self) -> None:
        self.require_block(self.block_size)

    def decompose(self, x: Any) -> Any:
        return self.to_channels(x, self.block_size, blocks_first=True)


@op
class ChannelShuffle(Composed, family="rearrangement", rule="x -> y: x", positional=("groups",)):
    """The channels of several groups in turn: one of each group, then the next of each.

    x: [n, c, ...]; groups: a divisor of c. Returns x's shape and dtype. Raises ShapeError for fewer than 2 dimensions
    or a c that groups does not divide.
    Source: Zhang et al. 2018, ShuffleNet.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.channel_shuffle(wf.reshape(wf.arange(4), (1, 4)), 2)
    tensor([[0, 2, 1, 3]], dtype=int64, device=cpu:0)
    """

    groups: int

    def decompose(self, x: Any) -> Any:
        if x.ndim < 2:
            raise self.fail(ShapeError, "x needs at least 2 dimensions", x=x.type)
        n, c, *spatial = x.shape
        if self.groups < 1 or c % self.groups:
            raise self.fail(ShapeError, f"{c} channels do not make {self.groups} groups", x=x.type)
        grouped = F.reshape(x, shape=(n, self.groups, c // self.groups, *spatial))
        return F.reshape(F.swapaxes(grouped, axis1=1, axis2=2), shape=x.shape)


class Blocks(Composed, family="rearrangement", rule="x -> y: x"):
    """Base of unfold and fold: windows over the last two dimensions of an image [n, c, h, w]."""

    kernel_size: int | tuple[int, ...]
    dilation: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    stride: int | tuple[int, ...] = 1

    def check(self) -> None:
        set_per_dimension(self, 2, kernel_size=1, dilation=1, padding=0, stride=1)

    def windows(self) -> Windows:
        op: Any = self
        return Windows(op.kernel_size, op.stride, op.padding, op.padding, op.dilation)

    def count(self, spatial: Sequence[Any], x: Any) -> tuple[Any, ...]:
        """How many windows there are along each dimension. Raises ShapeError if none fits."""
        windows = self.windows()
        count = windows.number(spatial)
        if any(isinstance(n, int) and n < 1 for n in count):
            fact = f"a window of {windows.extents} does not fit {tuple(spatial)} with its padding"
            raise self.fail(ShapeError, fact, x=x.type)
        return count


@op
class Unfold(Blocks, positional=("kernel_size", "dilation", "padding", "stride")):
    """The elements of every window of an image as a column, windows in row-major order (im2col).

    x: [n, c, h, w]; kernel_size, dilation, padding, stride: an int or 2 of them. Places of the padding are 0. Returns
    x's dtype, [n, c kh kw, l] for l windows; fold is its adjoint. Raises ShapeError unless x has 4 dimensions and a
    window fits.
    Source: PyTorch's unfold; Chellapilla, Puri, Simard 2006, High performance convolutional neural networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.unfold(wf.reshape(wf.arange(4.), (1, 1, 2, 2)), 2)
    tensor([[[0.],
             [1.],
             [2.],
             [3.]]], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        self.require_ndim(4, x=x)
        count = self.count(x.shape[2:], x)
        patches = F.permute_dims(windows_of(x, self.windows(), count), axes=(0, 1, 4, 5, 2, 3))
        n, c = x.shape[:2]
        size: Any = self.kernel_size
        return F.reshape(patches, shape=(n, c * math.prod(size), math.prod(count)))

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.fold(dy, output_size=tuple(x.shape[2:]), **self.values())


@op
class Fold(
    Blocks,
    rule="x: number|complex -> y: x",
    positional=("output_size", "kernel_size", "dilation", "padding", "stride"),
):
    """Windows given as columns put into an image, where elements that overlap are added (col2im).

    x: [n, c kh kw, l], as unfold makes it of an image of output_size; kernel_size, dilation, padding, stride: an int or
    2 of them. Returns x's dtype, [n, c, *output_size]. Raises ShapeError if x does not have that many rows or windows.
    Source: PyTorch's fold; MXNet's col2im.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.fold(wf.ones((1, 2, 2)), (1, 3), (1, 2))
    tensor([[[[1., 2., 1.]]]], dtype=float32, device=cpu:0)
    """

    output_size: int | tuple[int, ...]

    def check(self) -> None:
        super().check()
        set_per_dimension(self, 2, output_size=0)

    def decompose(self, x: Any) -> Any:
        self.require_ndim(3, x=x)
        size: Any = self.kernel_size
        output: Any = self.output_size
        windows, count = self.windows(), self.count(output, x)
        if x.shape[1] % math.prod(size) or x.shape[2] != math.prod(count):
            fact = f"needs rows for each of {math.prod(size)} elements and {math.prod(count)} windows"
            raise self.fail(ShapeError, fact, x=x.type)
        n, c = x.shape[0], x.shape[1] // math.prod(size)
        y = F.reshape(x, shape=(n, c, *size, *count))
        y = overlapped(F.permute_dims(y, axes=(0, 1, 2, 4, 5, 3)), windows, 1, output[1])
        y = overlapped(F.permute_dims(y, axes=(0, 1, 4, 3, 2)), windows, 0, output[0])
        return F.matrix_transpose(y)

    def vjp(self, dy: Any) -> Any:
        values = self.values()
        del values["output_size"]
        return F.unfold(dy, **values)


def overlapped(x: Any, windows: Windows, d: int, size: int) -> Any:
    """[..., count, k] -> [..., size]: the sum of the windows' elements along dimension d of the image."""
    count, elements = x.shape[-2:]
    step, low, dilation = windows.stride[d], windows.low[d], windows.dilation[d]
    total: Any = None
    for k in range(elements):
        part = F.squeeze(F.slice(x, starts=(k,), stops=(k + 1,), axes=(-1,)), axis=-1)
        first = k * dilation
        wide = max(size + 2 * low, (count - 1) * step + (elements - 1) * dilation + 1)
        high = wide - first - (count - 1) * step - 1
        spread = F.spread(part, low=(first,), high=(high,), step=(step,), value=0)
        total = spread if total is None else total + spread
    return F.slice(total, starts=(low,), stops=(low + size,), axes=(-1,))


__all__ = [
    "ChannelShuffle",
    "DepthToSpace",
    "Fold",
    "PixelShuffle",
    "PixelUnshuffle",
    "SpaceToDepth",
    "Unfold",
]
