"""What tests know of the operators of weft.ops.families.convolution."""

import math

import numpy as np
from tests.ops.material import material
from tests.ops.material.window import exact, windows_reference

from weft.base.errors import ShapeError
from weft.ops.families.convolution import Convolution, TransposedConvolution
from weft.ops.samples import Sample, arrays


@material(Convolution)
class _:
    def reference(self, x, weight, bias=None):
        windows = self.windows(weight)
        y = convolve_reference(x, weight, windows, windows.number(x.shape[2:]), self.groups)
        return y if bias is None else y + bias.reshape(-1, *(1,) * self.spatial)

    @classmethod
    def samples(cls):
        n = cls.spatial
        image, window = (5, 4, 3)[:n], (3, 2, 2)[:n]
        small, ones = (2,) * n, (1,) * n
        weight = arrays((4, 2, *window))
        yield Sample(arrays((2, 2, *image)), weight, arrays((4,)), tolerance=4)
        yield Sample(arrays((2, 2, *image)), weight, stride=2, padding=1)
        yield Sample(arrays((1, 2, *image)), weight, padding="same")
        yield Sample(arrays((1, 2, *image)), weight, padding="valid", dilation=(2, 2, 1)[:n])
        yield Sample(arrays((1, 4, *image)), weight, arrays((4,)), groups=2, padding=ones, tolerance=4)
        yield Sample(arrays((1, 2, *image)), arrays((2, 1, *small)), groups=2, stride=2)
        yield Sample(arrays((1, 1, *image)), arrays((1, 1, *window)), padding=((1, 2),) * n, stride=2)
        yield Sample(arrays((0, 2, *image)), weight)

    @classmethod
    def errors(cls):
        n = cls.spatial
        x = arrays((1, 3, *(4,) * n))
        yield (
            ShapeError,
            "x has 3 channels, weight expects 2 (groups=1)",
            Sample(x, arrays((4, 2, *(2,) * n))),
        )
        yield ShapeError, f"x needs {n + 2} dimensions", Sample(arrays((3, 4)), arrays((4, 3)))
        yield ShapeError, "does not fit x", Sample(x, arrays((4, 3, *(5,) * n)))
        yield (
            ShapeError,
            "weight has 4 out_channels, bias expects 3",
            Sample(x, arrays((4, 3, *(2,) * n)), arrays((3,))),
        )
        yield ValueError, "padding must be", Sample(x, arrays((4, 3, *(2,) * n)), padding="full")
        yield ValueError, "stride must be", Sample(x, arrays((4, 3, *(2,) * n)), stride=0)


def convolve_reference(x, w, windows, count, groups):
    patches = windows_reference(x, windows, count)
    shape = patches.shape
    patches = patches.reshape(shape[0], groups, shape[1] // groups, math.prod(count), math.prod(windows.size))
    kernels = exact(w).reshape(groups, w.shape[0] // groups, w.shape[1], math.prod(windows.size))
    y = np.einsum("ngcpk,gock->ngop", patches, kernels)
    return y.reshape(x.shape[0], w.shape[0], *count)


@material(TransposedConvolution)
class _:
    @classmethod
    def samples(cls):
        n = cls.spatial
        image, window = (3, 2, 3)[:n], (3, 2, 2)[:n]
        x = arrays((2, 2, *image))
        yield Sample(x, arrays((2, 3, *window)), arrays((3,)))
        yield Sample(x, arrays((2, 3, *window)), stride=2, padding=1, output_padding=1)
        yield Sample(x, arrays((2, 3, *window)), dilation=3, output_padding=2)
        yield Sample(x, arrays((2, 3, *window)), arrays((3,)), stride=2, dilation=3, output_padding=2)
        yield Sample(x, arrays((2, 1, *window)), arrays((2,)), groups=2, dilation=2, stride=2)

    @classmethod
    def errors(cls):
        n = cls.spatial
        x = arrays((1, 3, *(4,) * n))
        yield ShapeError, "x has 3 channels, weight expects 2", Sample(x, arrays((2, 3, *(2,) * n)))
        yield ShapeError, f"x needs {n + 2} dimensions", Sample(arrays((3, 4)), arrays((3, 4)))
        yield ValueError, "output_padding", Sample(x, arrays((3, 3, *(2,) * n)), output_padding=1)
