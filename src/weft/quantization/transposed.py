"""Transposed convolutions of integers: a convolution for each place between two inputs, whose results are interleaved.

Of a result at s i + r, with s the stride, only the weights s j + r take part: x[i - j] w[s j + r], added up over j. So
it is a plain convolution with s times as many channels in each dimension, and no product with a zero that was put
between inputs.
Source: Shi et al. 2016, Is the deconvolution layer the same as a convolutional layer?
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import functional as F
from weft.arrays.creation import tensor
from weft.ops.families.convolution import TransposedConvolution

__all__ = ["interleaved", "phase_sizes", "phases", "repeated"]


def phase_sizes(op: TransposedConvolution, kernel: Any) -> list[int]:
    """The sizes of the windows of the plain convolution."""
    values: Any = op
    extra = values.output_padding
    return [-(-(k + e) // s) for k, e, s in zip(kernel, extra, values.stride, strict=True)]


def phases(op: TransposedConvolution, weight: Any) -> Any:
    """The weight [o s..., c / groups, windows...] of the plain convolution, of [c, o / groups, k...]."""
    values: Any = op
    stride, spatial = values.stride, op.spatial
    w = weight.numpy()
    groups, (c, outputs), kernel = op.groups, w.shape[:2], w.shape[2:]
    sizes = phase_sizes(op, kernel)
    room = [(0, n * s - k) for n, s, k in zip(sizes, stride, kernel, strict=True)]
    w = np.pad(w, ((0, 0), (0, 0), *room))
    split = [part for n, s in zip(sizes, stride, strict=True) for part in (n, s)]
    w = w.reshape(groups, c // groups, outputs, *split)
    windows, offsets = range(3, 3 + 2 * spatial, 2), range(4, 4 + 2 * spatial, 2)
    w = np.flip(w.transpose(0, 2, *offsets, 1, *windows), tuple(range(-spatial, 0)))
    rows = groups * outputs * math.prod(stride)
    return tensor(np.ascontiguousarray(w).reshape(rows, c // groups, *sizes), dtype=weight.dtype)


def repeated(op: TransposedConvolution, numbers: Any) -> Any:
    """A number for each channel as one for each of phases' channels."""
    values: Any = op
    count = math.prod(values.stride)
    return F.reshape(
        F.broadcast_to(F.reshape(numbers, shape=(-1, 1)), shape=(numbers.size, count)), shape=(-1,)
    )


def interleaved(op: TransposedConvolution, y: Any, sizes: Any) -> Any:
    """The result [n, o, sizes...] of that of the plain convolution."""
    values: Any = op
    stride, spatial = values.stride, op.spatial
    outputs, inner = y.shape[1] // math.prod(stride), y.shape[2:]
    y = F.reshape(y, shape=(y.shape[0], outputs, *stride, *inner))
    order = [axis for d in range(spatial) for axis in (2 + spatial + d, 2 + d)]
    y = F.permute_dims(y, axes=(0, 1, *order))
    whole = [n * s for n, s in zip(inner, stride, strict=True)]
    y = F.reshape(y, shape=(y.shape[0], outputs, *whole))
    low = values.padding
    return y[(slice(None), slice(None), *(slice(a, a + n) for a, n in zip(low, sizes, strict=True)))]
