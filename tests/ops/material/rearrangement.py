"""What tests know of the operators of weft.ops.families.rearrangement."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.window import exact

from weft.base.errors import ShapeError
from weft.ops.families.rearrangement import (
    ChannelShuffle,
    DepthToSpace,
    Fold,
    PixelShuffle,
    PixelUnshuffle,
    SpaceToDepth,
    Unfold,
)
from weft.ops.samples import Sample, arrays


def block_order(channels, block, blocks_first):
    """Of each channel of the many: (channel, row in the block, column in the block)."""
    shape = (block, block, channels) if blocks_first else (channels, block, block)
    for place in np.ndindex(shape):
        yield (place[2], place[0], place[1]) if blocks_first else place


def to_places(x, block, blocks_first):
    *lead, c, h, w = x.shape
    y = np.empty((*lead, c // block**2, h * block, w * block), x.dtype)
    for k, (channel, row, column) in enumerate(block_order(c // block**2, block, blocks_first)):
        y[..., channel, row::block, column::block] = x[..., k, :, :]
    return y


def to_channels(x, block, blocks_first):
    *lead, c, h, w = x.shape
    y = np.empty((*lead, c * block**2, h // block, w // block), x.dtype)
    for k, (channel, row, column) in enumerate(block_order(c, block, blocks_first)):
        y[..., k, :, :] = x[..., channel, row::block, column::block]
    return y


@material(PixelShuffle)
class _:
    def torch_reference(self, torch, x):
        if 0 in x.shape:
            return NotImplemented  # PyTorch's gradient fails
        return torch.nn.functional.pixel_shuffle(x, self.upscale_factor)

    def reference(self, x):
        return to_places(x, self.upscale_factor, False)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 8, 3, 2)), upscale_factor=2)
        yield Sample(arrays((9, 1, 2)), upscale_factor=3)
        yield Sample(arrays((0, 4, 3, 2)), upscale_factor=2)

    @classmethod
    def errors(cls):
        yield ShapeError, "6 channels are not a multiple of 2^2", Sample(arrays((6, 1, 1)), upscale_factor=2)
        yield ShapeError, "at least 3 dimensions", Sample(arrays((6, 1)), upscale_factor=2)
        yield ValueError, "at least 1, got 0", Sample(arrays((6, 1, 1)), upscale_factor=0)


@material(PixelUnshuffle)
class _:
    def reference(self, x):
        return to_channels(x, self.downscale_factor, False)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4, 6)), downscale_factor=2)
        yield Sample(arrays((1, 3, 3)), downscale_factor=3)

    @classmethod
    def errors(cls):
        fact = "sizes 3 and 4 are not multiples of 2"
        yield ShapeError, fact, Sample(arrays((1, 3, 4)), downscale_factor=2)


@material(DepthToSpace)
class _:
    def reference(self, x):
        return to_places(x, self.block_size, True)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 8, 3, 2)), block_size=2)


@material(SpaceToDepth)
class _:
    def reference(self, x):
        return to_channels(x, self.block_size, True)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4, 6)), block_size=2)


@material(ChannelShuffle)
class _:
    def reference(self, x):
        c = x.shape[1]
        order = [g * (c // self.groups) + k for k in range(c // self.groups) for g in range(self.groups)]
        return x[:, order]

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 6, 3)), groups=3)
        yield Sample(arrays((2, 4)), groups=2)

    @classmethod
    def errors(cls):
        yield ShapeError, "5 channels do not make 2 groups", Sample(arrays((1, 5)), groups=2)


def window_elements(op, spatial):
    """(window, element, row, column) of every element of every window that is inside of the image."""
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(spatial, op.padding, op.dilation, op.kernel_size, op.stride, strict=True)
    ]
    for window, at in enumerate(np.ndindex(*counts)):
        for element, of in enumerate(np.ndindex(*op.kernel_size)):
            place = [
                a * s - p + o * d
                for a, s, p, o, d in zip(at, op.stride, op.padding, of, op.dilation, strict=True)
            ]
            if all(0 <= i < n for i, n in zip(place, spatial, strict=True)):
                yield window, element, *place
    return


def number_of_windows(op, spatial):
    sizes = zip(spatial, op.padding, op.dilation, op.kernel_size, op.stride, strict=True)
    return int(np.prod([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in sizes]))


GEOMETRIES = (
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
    {"kernel_size": 2, "dilation": (1, 2), "padding": 1, "stride": 2},
)


@material(Unfold)
class _:
    def reference(self, x):
        x = exact(x)
        n, c, *spatial = x.shape
        elements = int(np.prod(self.kernel_size))
        y = np.zeros((n, c, elements, number_of_windows(self, spatial)), x.dtype)
        for window, element, row, column in window_elements(self, spatial):
            y[:, :, element, window] = x[:, :, row, column]
        return y.reshape(n, c * elements, -1) if y.size else y.reshape(n, c * elements, y.shape[-1])

    @classmethod
    def samples(cls):
        for attributes in GEOMETRIES:
            yield Sample(arrays((2, 2, 5, 4)), **attributes)
        yield Sample(arrays((0, 2, 5, 4)), kernel_size=2)
        yield Sample(arrays((2, 2, 0, 3)), kernel_size=2, padding=1, stride=2)

    @classmethod
    def errors(cls):
        yield ShapeError, "x needs 4 dimensions", Sample(arrays((2, 5, 4)), kernel_size=2)
        yield (
            ShapeError,
            "a window of (6, 6) does not fit (5, 4)",
            Sample(arrays((1, 1, 5, 4)), kernel_size=6),
        )


@material(Fold)
class _:
    def reference(self, x):
        x = exact(x)
        elements = int(np.prod(self.kernel_size))
        columns = x.reshape(x.shape[0], x.shape[1] // elements, elements, x.shape[2])
        y = np.zeros((*columns.shape[:2], *self.output_size), x.dtype)
        for window, element, row, column in window_elements(self, self.output_size):
            y[:, :, row, column] += columns[:, :, element, window]
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 8, 12)), output_size=(5, 4), kernel_size=2)
        yield Sample(arrays((2, 8, 2)), output_size=(0, 3), kernel_size=2, padding=1, stride=2)
        yield Sample(arrays((2, 12, 9)), output_size=(5, 4), **GEOMETRIES[1])
        yield Sample(arrays((1, 8, 6)), output_size=(5, 4), **GEOMETRIES[2])

    @classmethod
    def errors(cls):
        x = arrays((1, 8, 11))
        yield ShapeError, "4 elements and 12 windows", Sample(x, output_size=(5, 4), kernel_size=2)
