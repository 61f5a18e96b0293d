"""What tests know of the operators of weft.ops.families.sampling_grid: NumPy, one place at a time."""

import itertools
import math

import numpy as np
from tests.ops.material import material
from tests.ops.material.interpolation import keys

from weft.base.errors import ShapeError
from weft.ops.families.sampling_grid import (
    AffineGrid,
    BilinearSampler,
    GridGenerator,
    GridSample,
    Remap,
    SpatialTransformer,
    WarpAffine,
    WarpPerspective,
)
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


def read(image, row, column):
    """image [c, h, w] at a place, zeros beyond."""
    total = np.zeros(image.shape[0])
    for r in (np.floor(row), np.floor(row) + 1):
        for t in (np.floor(column), np.floor(column) + 1):
            if 0 <= r < image.shape[1] and 0 <= t < image.shape[2]:
                total += image[:, int(r), int(t)] * (1 - abs(row - r)) * (1 - abs(column - t))
    return total


def warped(op, x, matrix):
    height, width = op.size
    y = np.zeros((len(x), x.shape[1], height, width))
    for k, r, t in np.ndindex(len(x), height, width):
        u, v, *rest = matrix[k] @ [t, r, 1]
        y[k, :, r, t] = read(x[k], v / (rest or [1])[0], u / (rest or [1])[0])
    return y


TURN = np.array([[0.8, -0.3, 0.62], [0.21, 0.9, -0.44]])


@material(WarpAffine)
class _:
    def reference(self, x, matrix):
        return warped(self, x, matrix)

    @classmethod
    def samples(cls):
        yield Sample(
            arrays((2, 2, 4, 5)), Array((2, 2, 3), values=np.stack([TURN, TURN[::-1]])), (3, 4), tolerance=4
        )

    @classmethod
    def errors(cls):
        yield ShapeError, "needs matrices [n, 2, 3]", Sample(arrays((2, 1, 3, 3)), arrays((1, 2, 3)), (3, 3))
        yield ValueError, "size is", Sample(arrays((2, 1, 3, 3)), arrays((2, 2, 3)), (3,))


@material(WarpPerspective)
class _:
    def reference(self, x, matrix):
        return warped(self, x, matrix)

    @classmethod
    def samples(cls):
        matrix = np.concatenate([TURN, [[0.05, 0.11, 1.2]]])
        yield Sample(arrays((1, 2, 4, 5)), Array((1, 3, 3), values=matrix[None]), (3, 4), tolerance=4)

    @classmethod
    def errors(cls):
        yield ShapeError, "needs matrices [n, 3, 3]", Sample(arrays((2, 1, 3, 3)), arrays((2, 2, 3)), (3, 3))


def affine_places(maps, size):
    """[n, h, w, 2], x and y of -1 to 1."""
    y = np.zeros((len(maps), *size, 2))
    for k, i, j in np.ndindex(len(maps), *size):
        at = [0 if n == 1 else -1 + 2 * t / (n - 1) for t, n in ((j, size[1]), (i, size[0]))]
        y[k, i, j] = maps[k].reshape(2, 3) @ [*at, 1]
    return y


def sampled(x, grid):
    """x at places [n, h, w, 2] of -1 to 1, from the middle of the first element to that of the last."""
    y = np.zeros((len(x), x.shape[1], *grid.shape[1:3]))
    for k, i, j in np.ndindex(*grid.shape[:3]):
        column, row = ((p + 1) * (n - 1) / 2 for p, n in zip(grid[k, i, j], x.shape[:1:-1], strict=True))
        y[k, :, i, j] = read(x[k], row, column)
    return y


@material(GridGenerator)
class _:
    def reference(self, x):
        if self.kind == "affine":
            return np.moveaxis(affine_places(x, self.size), -1, 1)
        columns, rows = np.meshgrid(*(np.arange(n, dtype=float) for n in x.shape[:1:-1]))
        return np.stack(
            [
                (x[:, k] + at) * 2 / max(n - 1, 1) - 1
                for k, (at, n) in enumerate(((columns, x.shape[3]), (rows, x.shape[2])))
            ],
            axis=1,
        )

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 6)), size=(3, 4))
        yield Sample(arrays((1, 6)), size=(1, 1))
        yield Sample(arrays((2, 2, 3, 4)), kind="warp")

    @classmethod
    def errors(cls):
        yield ShapeError, "affine maps are [n, 6]", Sample(arrays((2, 5)), size=(3, 4))
        yield ShapeError, "a warp is [n, 2, h, w]", Sample(arrays((2, 3, 3, 4)), kind="warp")
        yield ValueError, "affine maps need", Sample(arrays((2, 6)))
        yield ValueError, "affine maps need", Sample(arrays((2, 2, 3, 4)), kind="warp", size=(3, 4))


@material(BilinearSampler)
class _:
    def reference(self, x, grid):
        return sampled(x, np.moveaxis(grid, 1, -1))

    @classmethod
    def samples(cls):
        grid = Array((2, 2, 3, 4), low=-1.43, high=1.37, distinct=True)
        yield Sample(arrays((2, 2, 4, 3)), grid, dtypes=("float32", "float64"), tolerance=5)

    @classmethod
    def errors(cls):
        yield ShapeError, "grid must be [2, 2, h, w]", Sample(arrays((2, 1, 3, 3)), arrays((1, 2, 3, 3)))


@material(SpatialTransformer)
class _:
    def reference(self, x, theta):
        return sampled(x, affine_places(theta, self.size))

    @classmethod
    def samples(cls):
        maps = Array(
            (2, 6), values=((0.8, -0.31, 0.12, 0.2, 0.9, -0.14), (0.53, 0.1, 0.3, -0.41, 1.13, 0.22))
        )
        yield Sample(arrays((2, 2, 4, 5)), maps, (3, 4), dtypes=("float32", "float64"), tolerance=5)

    @classmethod
    def errors(cls):
        yield ShapeError, "affine maps are [n, 6]", Sample(arrays((2, 1, 3, 3)), arrays((2, 5)), (2, 2))


@material(Remap)
class _:
    def reference(self, x, places):
        y = np.zeros((*x.shape[:2], *places.shape[1:3]))
        for k, i, j in np.ndindex(*places.shape[:3]):
            at = places[k, i, j][::-1].tolist()
            y[k, :, i, j] = sample_at(x[k], at, self.mode, self.padding_mode, True)
        return y

    @classmethod
    def samples(cls):
        places = Array((2, 3, 4, 2), low=-1.43, high=4.37, distinct=True)
        for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
            options = {
                "dtypes": ("float32", "float64"),
                "tolerance": 5,
                "mode": mode,
                "padding_mode": padding,
            }
            yield Sample(arrays((2, 2, 4, 3)), places, **options)

    @classmethod
    def errors(cls):
        x = arrays((2, 2, 4, 3))
        yield ShapeError, "places must be [2, h, w, 2]", Sample(x, arrays((2, 3, 4, 3)))
        yield ShapeError, "no elements", Sample(arrays((2, 2, 0, 3)), arrays((2, 3, 4, 2)))
        yield ValueError, "padding_mode must be", Sample(x, arrays((2, 3, 4, 2)), padding_mode="wrap")
