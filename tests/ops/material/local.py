"""What tests know of the operators of weft.ops.families.local: NumPy, one window at a time."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.deformable import pair

from weft.base.errors import ShapeError
from weft.ops.families.local import LocalConv2d, RegionRestrictedConv, SlidingWindow, SlidingWindowTranspose
from weft.ops.samples import Array, Sample, arrays


def window_places(op, size, spatial):
    """Of each window (i, j) the places (u, v) in it with those of the image (row, column) that are inside."""
    padding, stride, dilation = (pair(v) for v in (op.padding, op.stride, op.dilation))
    count = [
        (n + 2 * p - (k - 1) * d - 1) // s + 1
        for n, p, k, d, s in zip(spatial, padding, size, dilation, stride, strict=True)
    ]
    for place in np.ndindex(*count, *size):
        at = [place[k] * stride[k] - padding[k] + place[2 + k] * dilation[k] for k in (0, 1)]
        if all(0 <= a < n for a, n in zip(at, spatial, strict=True)):
            yield count, place, at


def count_of(op, size, spatial):
    for count, _, _ in window_places(op, size, spatial):
        return tuple(count)
    return (0, 0)


@material(SlidingWindow)
class _:
    def reference(self, x):
        size, spatial = pair(self.kernel_size), x.shape[2:]
        y = np.zeros((*x.shape[:2], *count_of(self, size, spatial), *size), x.dtype)
        for _, place, (row, column) in window_places(self, size, spatial):
            y[(slice(None), slice(None), *place)] = x[:, :, row, column]
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 2, 4, 3)), 2)
        yield Sample(arrays((1, 2, 5, 4)), (3, 2), (1, 2), (1, 0), (2, 1))

    @classmethod
    def errors(cls):
        yield ShapeError, "needs 4 dimensions", Sample(arrays((2, 4, 3)), 2)
        yield ShapeError, "does not fit", Sample(arrays((1, 1, 2, 2)), 3)


@material(SlidingWindowTranspose)
class _:
    def reference(self, x):
        y = np.zeros((*x.shape[:2], *self.output_size), x.dtype)
        for _, place, (row, column) in window_places(self, pair(self.kernel_size), self.output_size):
            y[:, :, row, column] += x[(slice(None), slice(None), *place)]
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 2, 3, 2, 2, 2)), (4, 3), 2)
        yield Sample(arrays((1, 2, 3, 2, 3, 2)), (5, 4), (3, 2), (1, 2), (1, 0), (2, 1))

    @classmethod
    def errors(cls):
        yield ShapeError, "windows must be", Sample(arrays((1, 1, 3, 3, 2, 2)), (3, 3), 2)
        yield ShapeError, "needs 6 dimensions", Sample(arrays((1, 1, 3, 3)), (3, 3), 2)


@material(LocalConv2d)
class _:
    def reference(self, x, weight):
        groups, h, w, channels, kh, kw, outputs = weight.shape
        y = np.zeros((len(x), groups * outputs, h, w), np.result_type(x, weight))
        for _, (i, j, u, v), (row, column) in window_places(self, (kh, kw), x.shape[2:]):
            for g in range(groups):
                part = x[:, g * channels : (g + 1) * channels, row, column]
                y[:, g * outputs : (g + 1) * outputs, i, j] += part @ weight[g, i, j, :, u, v]
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 2, 4, 3)), arrays((1, 3, 2, 2, 2, 2, 3)), tolerance=4)
        options = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "tolerance": 4}
        yield Sample(arrays((2, 4, 5, 4)), arrays((2, 3, 2, 2, 3, 2, 1)), **options)

    @classmethod
    def errors(cls):
        yield ShapeError, "takes x", Sample(arrays((2, 3, 4, 3)), arrays((1, 3, 2, 2, 2, 2, 3)))
        yield ShapeError, "the weight has", Sample(arrays((2, 2, 4, 4)), arrays((1, 3, 2, 2, 2, 2, 3)))


@material(RegionRestrictedConv)
class _:
    def reference(self, x, weight, inputs, outputs, bias=None):
        size = weight.shape[-2:]
        kernels = weight.reshape(x.shape[1], *size)
        y = np.zeros((*x.shape[:2], *outputs.shape[1:])) + (0 if bias is None else bias.reshape(-1, 1, 1))
        for _, (i, j, u, v), (row, column) in window_places(self, size, x.shape[2:]):
            is_own = (inputs[:, row, column] == outputs[:, i, j])[:, None]
            y[:, :, i, j] += np.where(is_own, x[:, :, row, column] * kernels[:, u, v], 0)
        return y

    @classmethod
    def samples(cls):
        def regions(*shape):
            return Array(shape, low=0, high=2, dtype="int32")

        operands = (arrays((2, 3, 4, 5)), arrays((3, 1, 1, 3, 3)), regions(2, 4, 5), regions(2, 4, 5))
        yield Sample(*operands, arrays((1, 3, 1, 1)), padding=1, tolerance=4)
        yield Sample(
            arrays((1, 2, 5, 4)),
            arrays((2, 1, 3, 2)),
            regions(1, 5, 4),
            regions(1, 2, 3),
            stride=(2, 1),
            tolerance=4,
        )

    @classmethod
    def errors(cls):
        region = Array((2, 4, 5), dtype="int32")
        yield ShapeError, "takes x", Sample(arrays((2, 3, 4, 5)), arrays((3, 1, 1, 3, 3)), region, region)
