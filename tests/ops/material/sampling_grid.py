"""What tests know of the operators of weft.ops.families.sampling_grid."""

import itertools
import math

import numpy as np
from tests.ops.material import material
from tests.ops.material.interpolation import keys

from weft.base.errors import ShapeError
from weft.ops.families.sampling_grid import AffineGrid, GridSample
from weft.ops.samples import Array, Sample, arrays


def inside(place, n, padding_mode, align_corners):
    """The place where it is read, as the padding mode has it."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, high = (0, n - 1) if align_corners else (-0.5, n - 0.5)
        while high > low and not low <= place <= high:
            place = 2 * low - place if place < low else 2 * high - place
    return min(max(place, 0), n - 1)


def sample_at(x, places, mode, padding_mode, align_corners):
    """One place of one image [c, *spatial]."""
    spatial = x.shape[1:]
    if mode != "bicubic":
        places = [inside(p, n, padding_mode, align_corners) for p, n in zip(places, spatial, strict=True)]
    around = []
    for place in places:
        first = math.floor(place)
        if mode == "nearest":
            around.append([(1.0, round(place))])
        elif mode == "bilinear":
            around.append([(1 - (place - first), first), (place - first, first + 1)])
        else:
            around.append([(keys(place - j, -0.75), j) for j in range(first - 1, first + 3)])
    total = np.zeros(x.shape[0])
    for corner in itertools.product(*around):
        index = [j for _, j in corner]
        if mode == "bicubic":
            index = [
                int(inside(j, n, padding_mode, align_corners)) for j, n in zip(index, spatial, strict=True)
            ]
        if all(0 <= j < n for j, n in zip(index, spatial, strict=True)):
            total = total + math.prod(w for w, _ in corner) * x[(slice(None), *index)]
    return total


@material(GridSample)
class _:
    def reference(self, x, grid):
        y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
        for n, *at in np.ndindex(grid.shape[:-1]):
            places = [
                (p + 1) * (size - 1) / 2 if self.align_corners else ((p + 1) * size - 1) / 2
                for p, size in zip(grid[(n, *at)][::-1].tolist(), x.shape[2:], strict=True)
            ]
            found = sample_at(x[n], places, self.mode, self.padding_mode, self.align_corners)
            y[(n, slice(None), *at)] = found
        return y

    @classmethod
    def samples(cls):
        # Beyond -1 ... 1, too, and where no place is on an element or at half of the way.
        image, volume = arrays((2, 2, 4, 3)), arrays((1, 2, 3, 2, 4))
        grid = Array((2, 3, 4, 2), low=-1.43, high=1.37, distinct=True)
        grid3 = Array((1, 2, 3, 2, 3), low=-1.43, high=1.37, distinct=True)
        half = ("float32", "float64")  # halves are coarse as places
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                both = {"padding_mode": padding, "align_corners": align, "dtypes": half, "tolerance": 5}
                yield Sample(image, grid, **both)
                yield Sample(image, grid, mode="bicubic", **both)
                yield Sample(image, grid, mode="nearest", **both)
                yield Sample(volume, grid3, **both)
        yield Sample(image, Array((2, 0, 4, 2)), dtypes=half)
        yield Sample(
            image, Array((2, 3, 4, 2), low=0.02, high=0.1), tolerance=20
        )  # no place is on an element

    @classmethod
    def errors(cls):
        x = arrays((2, 2, 4, 3))
        yield ShapeError, "grid must be [2, h, w, 2]", Sample(x, arrays((2, 3, 4, 3)))
        yield ShapeError, "x needs 4 or 5 dimensions", Sample(arrays((2, 3)), arrays((2, 3)))
        yield ValueError, "mode must be", Sample(x, arrays((2, 3, 4, 2)), mode="linear")
        yield ValueError, "padding_mode must be", Sample(x, arrays((2, 3, 4, 2)), padding_mode="wrap")


@material(AffineGrid)
class _:
    def reference(self, theta):
        spatial = self.size[2:]
        dims = len(spatial)
        y = np.zeros((theta.shape[0], *spatial, dims))
        for place in np.ndindex(*spatial):
            at = [
                (0 if n == 1 else -1 + 2 * i / (n - 1)) if self.align_corners else (2 * i + 1) / n - 1
                for i, n in zip(place, spatial, strict=True)
            ]
            y[(slice(None), *place)] = theta @ np.array([*at[::-1], 1.0])
        return y

    @classmethod
    def samples(cls):
        for align in (False, True):
            yield Sample(arrays((2, 2, 3)), size=(2, 1, 3, 4), align_corners=align)
            yield Sample(arrays((1, 3, 4)), size=(1, 1, 1, 2, 3), align_corners=align)

    @classmethod
    def errors(cls):
        yield ShapeError, "needs theta [n, 2, 3]", Sample(arrays((2, 2, 2)), size=(2, 1, 3, 4))
