"""What tests know of the operators of weft.ops.families.convolution_gradient."""

import math

import numpy as np
from tests.ops.material import material
from tests.ops.material.window import exact, window_places, windows_reference

from weft.ops.families.convolution import gradient_attributes
from weft.ops.families.convolution_gradient import ConvolutionInputGradient, ConvolutionWeightGradient
from weft.ops.families.window import Windows
from weft.ops.samples import Sample, arrays


@material(ConvolutionInputGradient)
class _:
    def reference(self, dy, weight):
        windows = self.windows_of_size(weight.shape[2:])
        g, dy, weight = self.groups, exact(dy), exact(weight)
        sizes = [
            max(n + low + high, extent + (count - 1) * step)
            for n, low, high, extent, count, step in zip(
                self.spatial_size,
                self.low,
                self.high,
                windows.extents,
                dy.shape[2:],
                self.stride,
                strict=True,
            )
        ]
        padded = np.zeros((dy.shape[0], g * weight.shape[1], *sizes), np.result_type(dy, weight))
        slopes = dy.reshape(dy.shape[0], g, dy.shape[1] // g, math.prod(dy.shape[2:]))
        kernels = weight.reshape(g, -1, *weight.shape[1:])
        for place in np.ndindex(windows.size):
            part = np.einsum("ngop,goc->ngcp", slopes, kernels[(..., *place)])
            here = (..., *window_places(windows, place, dy.shape[2:]))
            padded[here] += part.reshape(padded[here].shape)
        inner = (slice(low, low + n) for low, n in zip(self.low, self.spatial_size, strict=True))
        return padded[(..., *inner)]

    @classmethod
    def samples(cls):
        for count, attributes in _gradient_cases():
            weight = arrays((2, 2 // attributes["groups"], 3, 2))
            yield Sample(arrays((2, 2, *count)), weight, spatial_size=(6, 5), **attributes)


# Strides, dilations, groups and paddings at both ends, for images of 6x5 and windows of 3x2.
GRADIENT_CASES = (
    ((1, 1), (1, 1), 1, (0, 0), (0, 0)),
    ((2, 1), (1, 2), 1, (1, 0), (1, 1)),
    ((2, 3), (1, 1), 2, (2, 1), (0, 1)),
    ((1, 1), (1, 1), 1, (4, 3), (3, 3)),
)


def _gradient_cases():
    """How many windows there are, and the attributes."""
    for stride, dilation, groups, low, high in GRADIENT_CASES:
        windows = Windows((3, 2), stride, low, high, dilation)
        yield windows.number((6, 5)), gradient_attributes(windows, groups)


@material(ConvolutionWeightGradient)
class _:
    def reference(self, x, dy):
        windows = self.windows_of_size(self.kernel_size)
        g, count = self.groups, dy.shape[2:]
        patches = windows_reference(x, windows, count)
        patches = patches.reshape(
            x.shape[0], g, x.shape[1] // g, math.prod(count), math.prod(self.kernel_size)
        )
        slopes = exact(dy).reshape(x.shape[0], g, dy.shape[1] // g, math.prod(count))
        dw = np.einsum("ngcpk,ngop->gock", patches, slopes)
        return dw.reshape(dy.shape[1], x.shape[1] // g, *self.kernel_size)

    @classmethod
    def samples(cls):
        for count, attributes in _gradient_cases():
            yield Sample(arrays((2, 2, 6, 5)), arrays((2, 2, *count)), kernel_size=(3, 2), **attributes)
