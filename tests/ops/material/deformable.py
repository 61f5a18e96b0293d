"""What tests know of the operators of weft.ops.families.deformable: NumPy, one place at a time."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.sampling_grid import read

from weft.base.errors import ShapeError
from weft.ops.families.deformable import Correlation, DeformableConv2d
from weft.ops.samples import Array, Sample, arrays


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


@material(DeformableConv2d)
class _:
    def reference(self, x, offset, weight, bias=None, mask=None):
        (n, c), (o, per_group, kh, kw), (h, w) = x.shape[:2], weight.shape, offset.shape[2:]
        parts = offset.shape[1] // (2 * kh * kw)
        padding, stride, dilation = (pair(v) for v in (self.padding, self.stride, self.dilation))
        y = np.zeros((n, o, h, w)) + (0 if bias is None else bias.reshape(-1, 1, 1))
        for k, part, i, j, u, v in np.ndindex(n, parts, h, w, kh, kw):
            m = (part * kh + u) * kw + v
            row = i * stride[0] - padding[0] + u * dilation[0] + offset[k, 2 * m, i, j]
            column = j * stride[1] - padding[1] + v * dilation[1] + offset[k, 2 * m + 1, i, j]
            channels = slice(part * c // parts, (part + 1) * c // parts)
            found = read(x[k, channels], row, column) * (1 if mask is None else mask[k, m, i, j])
            for channel, value in zip(range(channels.start, channels.stop), found, strict=True):
                group = channel // per_group
                rows = slice(group * o // self.groups, (group + 1) * o // self.groups)
                y[k, rows, i, j] += weight[rows, channel % per_group, u, v] * value
        return y

    @classmethod
    def samples(cls):
        exact = {"dtypes": ("float32", "float64"), "tolerance": 8}

        def offsets(*shape):  # no place is on an element
            return Array(shape, low=-1.43, high=1.37, distinct=True)

        yield Sample(arrays((2, 2, 4, 3)), offsets(2, 8, 3, 2), arrays((3, 2, 2, 2)), **exact)
        operands = (arrays((1, 4, 5, 4)), offsets(1, 24, 2, 4), arrays((2, 2, 3, 2)), arrays((2,)))
        options = {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2), "groups": 2}
        yield Sample(*operands, arrays((1, 12, 2, 4)), **options, **exact)

    @classmethod
    def errors(cls):
        x, weight = arrays((2, 2, 4, 3)), arrays((3, 2, 2, 2))
        yield ShapeError, "offset must be [n, 8 d, 3, 2]", Sample(x, arrays((2, 6, 3, 2)), weight)
        yield ShapeError, "offset must be [n, 8 d, 3, 2]", Sample(x, arrays((2, 8, 4, 3)), weight)
        operands = (x, arrays((2, 8, 3, 2)), weight, None)
        yield ShapeError, "mask must have 4 channels", Sample(*operands, arrays((2, 8, 3, 2)))
        yield ShapeError, "channels", Sample(arrays((2, 3, 4, 3)), arrays((2, 8, 3, 2)), weight)


@material(Correlation)
class _:
    def reference(self, x1, x2):
        edge, k, s = self.padding, self.kernel_size, self.stride
        a, b = (np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge))) for x in (x1, x2))
        most, apart = self.max_displacement, self.displacement_stride
        radius = most // apart
        h, w = (-(-(n - 2 * most - k + 1) // s) for n in a.shape[2:])
        y = np.zeros((len(x1), (2 * radius + 1) ** 2, h, w))
        for d, i, j in np.ndindex(*y.shape[1:]):
            row, column = most + i * s, most + j * s
            down, across = (
                v * apart for v in (d // (2 * radius + 1) - radius, d % (2 * radius + 1) - radius)
            )
            p = a[:, :, row : row + k, column : column + k]
            q = b[:, :, row + down : row + down + k, column + across : column + across + k]
            y[:, d, i, j] = (p * q if self.multiply else np.abs(p - q)).mean(axis=(1, 2, 3))
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4, 5)), arrays((2, 3, 4, 5)), max_displacement=1, padding=1, tolerance=4)
        options = {
            "kernel_size": 3,
            "max_displacement": 3,
            "displacement_stride": 2,
            "stride": 2,
            "padding": 4,
        }
        yield Sample(arrays((1, 2, 5, 4)), arrays((1, 2, 5, 4)), **options, tolerance=4)
        x = Array((1, 2, 5, 4), distinct=True)
        yield Sample(x, Array((1, 2, 5, 4), low=3, high=5), multiply=False, tolerance=4)

    @classmethod
    def errors(cls):
        x = arrays((1, 2, 3, 3))
        yield ShapeError, "patches need 1", Sample(x, x, max_displacement=2)
        yield ValueError, "kernel_size is odd", Sample(x, x, kernel_size=2)
