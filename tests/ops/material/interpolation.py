"""What tests know of the operators of weft.ops.families.interpolation."""

import math

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.interpolation import Interpolate
from weft.ops.samples import Sample, arrays


def keys(t, a):
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def weights(op, n, m, ratio):
    """The matrix [m, n] that makes m places of n elements."""
    w = np.zeros((m, n))
    for i in range(m):
        if op.mode in ("nearest", "nearest-exact"):
            w[i, min(math.floor((i + (0.5 if "exact" in op.mode else 0)) * ratio + 1e-9), n - 1)] = 1
        elif op.mode == "area":
            first, stop = i * n // m, -(-(i + 1) * n // m)
            w[i, first:stop] = 1 / (stop - first)
        elif op.antialias:
            width = max(ratio, 1)
            center = (i + 0.5) * ratio
            kernel = (lambda t: keys(t, -0.5)) if op.mode == "bicubic" else (lambda t: max(0, 1 - abs(t)))
            for j in range(n):
                w[i, j] = kernel((j + 0.5 - center) / width)
            w[i] /= w[i].sum()
        else:
            at = i * (n - 1) / max(m - 1, 1) if op.align_corners else (i + 0.5) * ratio - 0.5
            if op.mode == "bicubic":
                first = math.floor(at)
                for j in range(first - 1, first + 3):
                    w[i, min(max(j, 0), n - 1)] += keys(at - j, -0.75)
            else:
                at = max(at, 0)
                first = min(math.floor(at), n - 1)
                w[i, first] += 1 - (at - first)
                w[i, min(first + 1, n - 1)] += at - first
    return w


@material(Interpolate)
class _:
    def reference(self, x):
        y = x
        for d, n in enumerate(x.shape[2:]):
            given = self.scale_factor if self.size is None else self.size
            each = given if isinstance(given, int | float) else given[d]
            m = math.floor(n * each) if self.size is None else each
            ratio = 1 / each if self.size is None else n / m
            w = weights(self, n, m, ratio)
            if self.mode in ("nearest", "nearest-exact"):
                y = np.take(y, w.argmax(axis=1), axis=d + 2)
            else:
                y = np.moveaxis(np.tensordot(w, y, (1, d + 2)), 0, d + 2)
        return y

    def torch_reference(self, torch, x):
        if self.scale_factor is not None and "nearest" in self.mode:
            return NotImplemented  # in float32 there
        scale = self.scale_factor
        return torch.nn.functional.interpolate(
            x, self.size, scale, self.mode, self.align_corners, antialias=self.antialias
        )

    @classmethod
    def samples(cls):
        shapes = {"linear": (2, 2, 5), "trilinear": (1, 2, 3, 4, 3)}
        for mode in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"):
            x = arrays(shapes.get(mode, (2, 2, 5, 4)))
            sizes = (7, 3, 3)[: len(x.shape) - 2]
            yield Sample(x, size=sizes, mode=mode)
            yield Sample(x, scale_factor=2, mode=mode)
            yield Sample(x, scale_factor=0.6, mode=mode)
            if "linear" in mode or mode == "bicubic":
                yield Sample(x, size=sizes, mode=mode, align_corners=True)
                yield Sample(x, size=1, mode=mode, align_corners=True)
        for mode in ("bilinear", "bicubic"):
            for size in ((9, 7), (3, 2), (1, 8)):
                yield Sample(arrays((1, 2, 9, 7)), size=size, mode=mode, antialias=True)
        yield Sample(arrays((0, 2, 5, 4)), size=3, mode="bilinear")
        yield Sample(arrays((1, 1, 1, 1)), size=3, mode="bicubic")

    @classmethod
    def errors(cls):
        x = arrays((1, 2, 3, 4))
        yield ValueError, "mode must be one of", Sample(x, size=2, mode="cubic")
        yield ValueError, "either size or scale_factor", Sample(x)
        yield (
            ValueError,
            "align_corners does not apply to mode='nearest'",
            Sample(x, size=2, align_corners=True),
        )
        yield ValueError, "antialias is for", Sample(x, size=2, antialias=True)
        yield ShapeError, "3 sizes or factors for 2 axes", Sample(x, size=(1, 2, 3))
        yield ShapeError, "sizes must be at least 1", Sample(x, scale_factor=0.1)
        yield ShapeError, "x needs 3 dimensions", Sample(x, size=2, mode="linear")
        yield (
            DTypeError,
            "floating-point",
            Sample(arrays((1, 2, 3, 4), dtype="int64"), size=2, mode="bilinear"),
        )
