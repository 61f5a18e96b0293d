"""What tests know of the operators of weft.ops.families.window."""

import numpy as np
from tests.ops.material import material

from weft.base.dtype import float32
from weft.ops.families.window import SlidingWindows, Spread
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType


def exact(x):
    """Arrays of 16-bit floats as float32, as NumPy computes with those only."""
    return np.asarray(x, np.float32) if np.asarray(x).dtype.name in ("float16", "bfloat16") else x


def windows_reference(x, windows, count, value=0):
    """The same in NumPy."""
    x = exact(x)
    spatial = len(windows.size)
    lead = x.ndim - spatial
    high = [
        max((n - 1) * step + extent - low - size, 0)
        for n, step, extent, low, size in zip(
            count, windows.stride, windows.extents, windows.low, x.shape[lead:], strict=True
        )
    ]
    padded = np.pad(x, [(0, 0)] * lead + list(zip(windows.low, high, strict=True)), constant_values=value)
    found = np.empty((*x.shape[:lead], *count, *windows.size), x.dtype)
    for place in np.ndindex(windows.size):
        found[(..., *place)] = padded[(..., *window_places(windows, place, count))]
    return found


def window_places(windows, place, count):
    """Where the padded image has one element of all windows."""
    return tuple(
        slice(p * d, p * d + (n - 1) * step + 1, step) if n else slice(0, 0)
        for p, d, step, n in zip(place, windows.dilation, windows.stride, count, strict=True)
    )


@material(SlidingWindows)
class _:
    def reference(self, x):
        flat = np.ascontiguousarray(x)
        shape, strides, offset = self.see(x.shape, tuple(s // x.itemsize for s in flat.strides))
        if 0 in shape:
            return np.zeros(shape, x.dtype)
        places = sum(
            (
                np.arange(n).reshape((n,) + (1,) * (len(shape) - 1 - d)) * s
                for d, (n, s) in enumerate(zip(shape, strides, strict=True))
            ),
            start=np.asarray(offset),
        )
        return flat.reshape(-1)[places]

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 7)), start=(1,), count=(2,), size=(3,), stride=(2,), dilation=(1,))
        yield Sample(arrays((2, 7)), start=(4,), count=(3,), size=(3,), stride=(1,), dilation=(-2,))


@material(Spread)
class _:
    def reference(self, x):
        shape = self.infer(TensorType(x.shape, float32)).shape
        y = np.full(shape, self.value, x.dtype)
        places = tuple(
            slice(low, low + (n - 1) * step + 1, step)
            for n, low, step in zip(x.shape[x.ndim - len(self.low) :], self.low, self.step, strict=True)
        )
        y[(..., *places)] = x
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)), low=(1, 0), high=(2, 1), step=(2, 1), value=0)
        yield Sample(arrays((2, 3)), low=(1,), high=(0,), step=(3,), value=1.5)
