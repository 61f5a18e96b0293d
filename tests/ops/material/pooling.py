"""What tests know of the operators of weft.ops.families.pooling."""

import math

import numpy as np
from tests.ops.material import material
from tests.ops.material.window import window_places, windows_reference

from weft.base.dtype import as_dtype
from weft.base.errors import ShapeError
from weft.ops.families.pooling import (
    AveragePooling,
    AvgPoolGradient,
    MaxPoolGradient,
    MaxPooling,
    Pooling,
    PoolingGradient,
)
from weft.ops.kernels import lowest
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType


@material(Pooling)
class _:
    @classmethod
    def samples(cls):
        n = cls.spatial
        x = arrays((2, 2, *(6, 5, 4)[:n]), distinct=True)
        yield Sample(x, kernel_size=2)
        yield Sample(x, kernel_size=(3, 2, 2)[:n], stride=(2, 1, 2)[:n], padding=1)
        yield Sample(x, kernel_size=3, stride=2, ceil_mode=True, padding=1)
        yield Sample(arrays((0, 2, *(3,) * n), distinct=True), kernel_size=2, stride=1)

    @classmethod
    def errors(cls):
        n = cls.spatial
        x = arrays((1, 2, *(4,) * n))
        yield ShapeError, f"x needs {n + 2} dimensions", Sample(arrays((4,)), kernel_size=2)
        yield ShapeError, "does not fit x", Sample(x, kernel_size=5)
        yield ValueError, "at most half of kernel_size", Sample(x, kernel_size=2, padding=2)
        yield ValueError, "kernel_size must be", Sample(x, kernel_size=0)


@material(MaxPooling)
class _:
    def reference(self, x):
        windows = self.windows(x.shape[2:])
        count = windows.number(x.shape[2:])
        least = lowest(as_dtype(x.dtype).name)
        patches = windows_reference(x, windows, count, least)
        flat = patches.reshape(*x.shape[:2], *count, math.prod(windows.size))
        _, indices = self.infer(TensorType(x.shape, as_dtype(x.dtype)))
        return flat.max(axis=-1), flat.argmax(axis=-1).astype(indices.dtype.numpy)

    @classmethod
    def samples(cls):
        yield from super(MaxPooling, cls).samples()
        n = cls.spatial
        yield Sample(
            arrays((1, 2, *(6, 5, 4)[:n]), distinct=True), kernel_size=2, stride=1, dilation=(2, 1, 2)[:n]
        )


@material(PoolingGradient)
class _:
    def gathered_reference(self, dy, chosen):
        """chosen(k): what of dy goes to element k of the windows."""
        windows = self.windows()
        count = dy.shape[2:]
        sizes = [
            max(n + low, (k - 1) * step + extent)
            for n, low, k, step, extent in zip(
                self.spatial_size, self.low, count, self.stride, windows.extents, strict=True
            )
        ]
        padded = np.zeros((*dy.shape[:2], *sizes), dy.dtype)
        for k, place in enumerate(np.ndindex(windows.size)):
            padded[(..., *window_places(windows, place, count))] += chosen(k)
        inner = (slice(low, low + n) for low, n in zip(self.low, self.spatial_size, strict=True))
        return padded[(..., *inner)]


@material(MaxPoolGradient)
class _:
    def reference(self, dy, indices):
        return self.gathered_reference(dy, lambda k: np.where(indices == k, dy, 0))

    @classmethod
    def samples(cls):
        indices = arrays((2, 2, 3, 4), low=0, high=5.99, dtype="uint8")
        yield Sample(
            arrays((2, 2, 3, 4)),
            indices,
            spatial_size=(6, 5),
            size=(3, 2),
            stride=(2, 1),
            low=(1, 0),
            high=(0, 0),
            dilation=(1, 1),
        )


@material(AveragePooling)
class _:
    def reference(self, x):
        windows = self.windows(x.shape[2:])
        count = windows.number(x.shape[2:])
        axes = tuple(range(-self.spatial, 0))
        total = windows_reference(x, windows, count).sum(axis=axes)
        return total / counts_reference(self.divisor(x.shape[2:]), windows, x.shape[2:], self.padding)

    def torch_reference(self, torch, x):
        kept = {k: v for k, v in self.values().items() if k != "dilation"}
        return getattr(torch.nn.functional, self.name)(x, **kept)

    @classmethod
    def samples(cls):
        yield from super(AveragePooling, cls).samples()
        n = cls.spatial
        x = arrays((1, 2, *(6, 5, 4)[:n]))
        yield Sample(x, kernel_size=3, stride=2, padding=1, count_include_pad=False)
        yield Sample(x, kernel_size=3, stride=2, padding=1, count_include_pad=False, ceil_mode=True)


def counts_reference(divisor, windows, spatial, padding):
    if divisor == "window":
        return math.prod(windows.size)
    count = windows.number(spatial)
    ones = np.ones(spatial)
    if divisor == "padded":
        ones = np.pad(ones, [(p, p) for p in padding], constant_values=1)
        windows = windows._replace(low=(0,) * len(padding))
    return windows_reference(ones, windows, count).sum(axis=tuple(range(-len(count), 0)))


@material(AvgPoolGradient)
class _:
    def reference(self, dy):
        part = dy / counts_reference(self.divisor, self.windows(), self.spatial_size, self.padding)
        return self.gathered_reference(dy, lambda _: part)

    @classmethod
    def samples(cls):
        for divisor in ("window", "inside", "padded"):
            yield Sample(
                arrays((2, 2, 4, 6)),
                spatial_size=(6, 5),
                size=(3, 2),
                stride=(2, 1),
                low=(1, 1),
                high=(2, 1),
                dilation=(1, 1),
                divisor=divisor,
                padding=(1, 1),
            )
