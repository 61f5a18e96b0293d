"""What tests know of the operators of weft.ops.families.regions: NumPy, one bin and one point at a time."""

import math

import numpy as np
from tests.ops.material import material
from tests.ops.material.detection import boxes

from weft.base.errors import ShapeError
from weft.ops.families.regions import Aligned, DeformablePsRoiPool, Pooled, PsRoiPool, RoiPool
from weft.ops.samples import Array, Sample, arrays

PLACES = np.array([[0.3, 1.1, 5.2, 4.4], [2.2, 0.4, 2.9, 3.3], [-3.1, -2.7, 9.4, 8.3]])


def image(cls, channels, output_size, **options):
    """Two images with as many channels as the operator needs for results of so many."""
    bins = math.prod(output_size) if cls.is_position_sensitive else 1
    return arrays((2, channels * bins, 5, 6), **options)


def of_bin(op, x, i, j):
    """The channels of one image [c, h, w] that a bin reads."""
    p, q = op.output_size
    return x[i * q + j :: p * q] if op.is_position_sensitive else x


@material(Aligned)
class _:
    def reference(self, x, boxes, images):
        (_, c, h, w), (p, q), s = x.shape, self.output_size, self.points
        c = c // (p * q) if self.is_position_sensitive else c
        y = np.zeros((len(boxes), c, p, q))
        for k, (box, image) in enumerate(zip(boxes, images, strict=True)):
            x1, y1, x2, y2 = box * self.spatial_scale - (0.5 if self.is_aligned else 0)
            width, height = (v if self.is_aligned else max(v, 1) for v in (x2 - x1, y2 - y1))
            for i, j, a, b in np.ndindex(p, q, s, s):
                row = y1 + (i + (a + 0.5) / s) * height / p
                column = x1 + (j + (b + 0.5) / s) * width / q
                if not (-1 <= row <= h and -1 <= column <= w):
                    continue
                row, column = min(max(row, 0), h - 1), min(max(column, 0), w - 1)
                r, t = int(row), int(column)
                fr, ft = row - r, column - t
                r2, t2 = min(r + 1, h - 1), min(t + 1, w - 1)
                part = of_bin(self, x[image], i, j)
                top = part[:, r, t] * (1 - ft) + part[:, r, t2] * ft
                below = part[:, r2, t] * (1 - ft) + part[:, r2, t2] * ft
                y[k, :, i, j] += (top * (1 - fr) + below * fr) / s**2
        return y

    @classmethod
    def samples(cls):
        places, images = boxes(PLACES), Array((3,), values=(1, 0, 1), dtype="int64")
        yield Sample(image(cls, 2, (2, 3)), places, images, (2, 3), tolerance=4)
        options = {"points": 1, "is_aligned": False, "tolerance": 4}
        yield Sample(image(cls, 2, (2, 2)), places, images, (2, 2), 0.5, **options)
        yield Sample(arrays((1, 2, 3, 3)), boxes(np.zeros((0, 4))), Array((0,), dtype="int64"), (1, 1))

    @classmethod
    def errors(cls):
        images = Array((2,), values=(0, 0), dtype="int64")
        yield ShapeError, "boxes are", Sample(arrays((1, 1, 3, 3)), arrays((2, 5)), images, (1, 1))
        yield ValueError, "must be two sizes", Sample(arrays((1, 1, 3, 3)), arrays((2, 4)), images, (1,))
        operands = (arrays((1, 1, 3, 3)), arrays((2, 4)), images)
        yield ValueError, "points must be", Sample(*operands, (1, 1), points=0)


def round_away(x):
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


@material(Pooled)
class _:
    def reference(self, x, boxes, images):
        (_, c, h, w), (p, q) = x.shape, self.output_size
        c = c // (p * q) if self.is_position_sensitive else c
        y = np.zeros((len(boxes), c, p, q))
        for k, (box, image) in enumerate(zip(boxes, images, strict=True)):
            left, top, right, bottom = (round_away(v * self.spatial_scale) for v in box)
            height, width = (max(n + self.shift, 1) for n in (bottom - top, right - left))
            for i, j in np.ndindex(p, q):
                rows = [r for r in range(i * height // p, -(-(i + 1) * height // p)) if 0 <= r + top < h]
                columns = [r for r in range(j * width // q, -(-(j + 1) * width // q)) if 0 <= r + left < w]
                if rows and columns:
                    part = of_bin(self, x[image], i, j)
                    part = part[
                        :, rows[0] + top : rows[-1] + top + 1, columns[0] + left : columns[-1] + left + 1
                    ]
                    y[k, :, i, j] = self.reduced(part)
        return y

    @classmethod
    def samples(cls):
        places, images = boxes(PLACES), Array((3,), values=(1, 0, 1), dtype="int64")
        yield Sample(image(cls, 2, (2, 3), distinct=True), places, images, (2, 3), gradient=False)
        yield Sample(image(cls, 1, (2, 2), distinct=True), places, images, (2, 2), 0.5, gradient=False)
        yield Sample(arrays((1, 2, 3, 3)), boxes(np.zeros((0, 4))), Array((0,), dtype="int64"), (1, 1))

    @classmethod
    def errors(cls):
        images = Array((2,), values=(0, 0), dtype="int64")
        yield ShapeError, "boxes are", Sample(arrays((1, 1, 3, 3)), arrays((2, 5)), images, (1, 1))
        yield ShapeError, "has elements", Sample(arrays((1, 1, 0, 3)), arrays((2, 4)), images, (1, 1))
        if cls.is_position_sensitive:
            yield ShapeError, "do not divide", Sample(arrays((1, 3, 3, 3)), arrays((2, 4)), images, (2, 2))


@material(RoiPool)
class _:
    def reduced(self, part):
        return part.max(axis=(1, 2))


@material(PsRoiPool)
class _:
    def reduced(self, part):
        return part.mean(axis=(1, 2))


@material(DeformablePsRoiPool)
class _:
    def reference(self, x, boxes, images, offsets=None):
        (_, channels, h, w), (p, q), g, s = x.shape, self.output_size, self.group_size, self.points
        c, groups = channels // (g * g), 1 if offsets is None else offsets.shape[1] // 2
        y = np.zeros((len(boxes), c, p, q))
        for k, (box, image) in enumerate(zip(boxes, images, strict=True)):
            x1, y1, x2, y2 = (round_away(v) for v in box)
            left, top = x1 * self.spatial_scale - 0.5, y1 * self.spatial_scale - 0.5
            width = max((x2 + 1) * self.spatial_scale - 0.5 - left, 0.1)
            height = max((y2 + 1) * self.spatial_scale - 0.5 - top, 0.1)
            for channel, i, j in np.ndindex(c, p, q):
                dx = dy = 0.0
                if offsets is not None:
                    group, (u, v) = channel // (c // groups), offsets.shape[2:]
                    dx, dy = offsets[k, 2 * group : 2 * group + 2, i * u // p, j * v // q] * self.offset_scale
                plane = x[image, (channel * g + i * g // p) * g + j * g // q]
                values = []
                for a, b in np.ndindex(s, s):
                    row = top + height * (i / p + dy) + a * height / p / s
                    column = left + width * (j / q + dx) + b * width / q / s
                    if not (-0.5 <= row <= h - 0.5 and -0.5 <= column <= w - 0.5):
                        continue
                    row, column = min(max(row, 0), h - 1), min(max(column, 0), w - 1)
                    r, t = int(row), int(column)
                    r2, t2, fr, ft = min(r + 1, h - 1), min(t + 1, w - 1), row - r, column - t
                    first = plane[r, t] * (1 - ft) + plane[r, t2] * ft
                    values.append(first * (1 - fr) + (plane[r2, t] * (1 - ft) + plane[r2, t2] * ft) * fr)
                y[k, channel, i, j] = np.mean(values) if values else 0
        return y

    @classmethod
    def samples(cls):
        places, images = boxes(PLACES), Array((3,), values=(1, 0, 1), dtype="int64")
        offsets = np.random.default_rng(5).uniform(-1, 1, (3, 4, 2, 2))
        offsets = Array((3, 4, 2, 2), values=offsets)
        options = {"group_size": 2, "points": 3, "offset_scale": 0.15, "tolerance": 4}
        yield Sample(
            arrays((2, 8, 5, 6)), places, images, offsets, output_size=(2, 3), spatial_scale=0.83, **options
        )
        yield Sample(arrays((2, 3, 5, 6)), places, images, None, output_size=(2, 2), points=2, tolerance=4)
        yield Sample(
            arrays((1, 2, 3, 3)),
            boxes(np.zeros((0, 4))),
            Array((0,), dtype="int64"),
            None,
            output_size=(1, 1),
        )

    @classmethod
    def errors(cls):
        images = Array((2,), values=(0, 0), dtype="int64")
        x, places = arrays((1, 4, 3, 3)), arrays((2, 4))
        yield ShapeError, "boxes are", Sample(x, arrays((2, 5)), images, None, output_size=(1, 1))
        yield (
            ShapeError,
            "4 channels do not divide",
            Sample(x, places, images, arrays((2, 6, 1, 1)), output_size=(1, 1)),
        )
        yield ValueError, "output_size must be two sizes", Sample(x, places, images, None, output_size=(1,))
