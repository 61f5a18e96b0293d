"""Regions of images, each as a few bins: means of points between elements, maxima and means of elements."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.base.dtype import float64, int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.cumulative import shifted
from weft.ops.families.detection import corners
from weft.ops.families.interpolation import steps
from weft.ops.op import op
from weft.ops.pointwise import cast_to


class OfRegions(
    Composed,
    family="detection",
    rule="x[n,channels,h,w]: float, boxes[boxes,four]: float, images[boxes]: int -> y: x",
    positional=("output_size", "spatial_scale"),
):
    """Base: x, boxes (x1, y1, x2, y2) that spatial_scale brings to x's elements, and the image of each.

    is_position_sensitive: bin (i, j) of channel c of the result reads x's channel (c p + i) q + j alone.
    """

    output_size: tuple[int, ...]
    spatial_scale: float = 1.0
    is_position_sensitive: ClassVar[bool] = False

    def check(self) -> None:
        if len(self.output_size) != 2 or min(self.output_size) < 1:
            raise ValueError(
                f"{self.name}: output_size must be two sizes of at least 1, got {self.output_size}"
            )

    def require(self, x: Any, boxes: Any) -> int:
        """The number of channels that each bin reads. Raises ShapeError if the operands do not fit."""
        if boxes.shape[-1] != 4 or 0 in x.shape[2:]:
            raise self.fail(ShapeError, "boxes are [k, 4], and x has elements", x=x.type, boxes=boxes.type)
        bins = math.prod(self.output_size) if self.is_position_sensitive else 1
        if x.shape[1] % bins:
            fact = f"{x.shape[1]} channels do not divide into {bins} bins"
            raise self.fail(ShapeError, fact, x=x.type)
        return int(x.shape[1]) // bins

    def rows(self, x: Any) -> Any:
        """x [n, c, h, w] as rows of the channels that a bin reads: [n h w, c], or [n h w p q, c / (p q)]."""
        n, c, h, w = x.shape
        if not self.is_position_sensitive:
            return F.reshape(F.permute_dims(x, axes=(0, 2, 3, 1)), shape=(n * h * w, c))
        bins = math.prod(self.output_size)
        parted = F.permute_dims(F.reshape(x, shape=(n, c // bins, bins, h, w)), axes=(0, 3, 4, 2, 1))
        return F.reshape(parted, shape=(n * h * w * bins, c // bins))

    def row_index(self, pixel: Any, points: int = 1) -> Any:
        """The row of a pixel [k, p points, q points] that the bin of each point reads."""
        if not self.is_position_sensitive:
            return pixel
        p, q = self.output_size
        down, across = (F.floor_divide(steps(pixel, m * points, int64), points) for m in (p, q))
        return pixel * (p * q) + F.expand_dims(down * q, axis=-1) + across

    def result(self, bins: Any, x: Any) -> Any:
        """[k, p, q, c] as the output."""
        return cast_to(F.permute_dims(bins, axes=(0, 3, 1, 2)), x.dtype)


class Aligned(OfRegions):
    """Base: means of points, each read between elements."""

    points: int = 2
    is_aligned: bool = True

    def check(self) -> None:
        super().check()
        if self.points < 1:
            raise ValueError(f"{self.name}: points must be at least 1, got {self.points}")

    def decompose(self, x: Any, boxes: Any, images: Any) -> Any:
        c = self.require(x, boxes)
        h, w = x.shape[2:]
        kind, count = x.dtype.accumulation, boxes.shape[0]
        x1, y1, x2, y2 = corners(
            cast_to(boxes, kind) * self.spatial_scale - (0.5 if self.is_aligned else 0.0)
        )
        pixels = self.rows(cast_to(x, kind))
        first = F.reshape(cast_to(images, int64) * (h * w), shape=(count, 1, 1))
        rows = self.places(x, y1, y2, self.output_size[0], h, kind)
        columns = self.places(x, x1, x2, self.output_size[1], w, kind)
        total: Any = None
        for row_weight, row in rows:
            for column_weight, column in columns:
                index = first + F.expand_dims(row * w, axis=-1) + F.expand_dims(column, axis=-2)
                weight = F.expand_dims(row_weight, axis=-1) * F.expand_dims(column_weight, axis=-2)
                read = F.take(pixels, self.row_index(index, self.points), axis=0)
                part = read * F.expand_dims(weight, axis=-1)
                total = part if total is None else total + part
        (p, q), s = self.output_size, self.points
        return self.result(F.mean(F.reshape(total, shape=(count, p, s, q, s, c)), axis=(2, 4)), x)

    def places(self, x: Any, start: Any, stop: Any, bins: int, size: Any, kind: Any) -> list[tuple[Any, Any]]:
        """(weight, index) of the two elements around each point along one axis: [k, bins * points]."""
        length = stop - start if self.is_aligned else F.maximum(stop - start, 1.0)
        share = (F.cast(steps(x, bins * self.points), dtype=kind) + 0.5) * (1 / (bins * self.points))
        place = F.expand_dims(start, axis=-1) + F.expand_dims(length, axis=-1) * share
        is_near = F.logical_and(F.greater_equal(place, -1.0), F.less_equal(place, float(size)))
        place = F.minimum(F.maximum(place, 0.0), float(size - 1))
        low = F.floor(place)
        share = place - low
        index = F.cast(low, dtype=int64)
        near = F.cast(is_near, dtype=kind)
        return [((1.0 - share) * near, index), (share * near, F.minimum(index + 1, size - 1))]


@op
class RoiAlign(Aligned):
    """Regions of images, each as output_size bins: the mean of points of a bin, read between elements.

    x: float[n, c, h, w]; boxes: float[k, 4], (x1, y1, x2, y2), times spatial_scale in elements of x; images:
    integers[k], the image of each; points: how many of each bin along each axis. is_aligned: element i has its middle
    at i + 1/2, else at i, and regions are at least 1 wide. Points more than 1 outside the image are 0, others read its
    edge. Returns x's dtype, [k, c, *output_size]. Raises ShapeError if sizes do not fit.
    Source: He et al. 2017, Mask R-CNN.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.arange(16.).reshape(1, 1, 4, 4)
    >>> F.roi_align(x, wf.tensor([[0., 0., 4., 4.]]), wf.tensor([0]), (2, 2)).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """


@op
class PsRoiAlign(Aligned):
    """roi_align where each bin has channels of its own (position-sensitive): bin (i, j) reads c of x's c p q channels.

    x: float[n, c p q, h, w], of which bin (i, j) of channel k reads channel (k p + i) q + j; boxes, images, points,
    spatial_scale, is_aligned: as roi_align's; output_size: (p, q). Returns x's dtype, [k, c, p, q]. Raises ShapeError
    if sizes do not fit.
    Source: Li et al. 2018, Light-head R-CNN; Dai et al. 2016, R-FCN.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.tensor([1., 2., 3., 4.]).reshape(1, 4, 1, 1) * wf.ones((1, 4, 6, 6))
    >>> F.ps_roi_align(x, wf.tensor([[1., 1., 4., 4.]]), wf.tensor([0]), (2, 2)).tolist()
    [[[[1.0, 2.0], [3.0, 4.0]]]]
    """

    is_position_sensitive = True


class Pooled(OfRegions):
    """Base: bins of whole elements, the ends of regions being rounded to elements."""

    shift: ClassVar[int]  # 1: the last element of a region belongs to it

    def bins(self, start: Any, stop: Any, count: int, size: Any) -> tuple[Any, Any]:
        """The first element of each bin along an axis, and the one behind its last, [k, count], within the image."""
        first = rounded(start * self.spatial_scale)
        length = F.maximum(rounded(stop * self.spatial_scale) - first + self.shift, 1)
        number = steps(start, count, int64)
        first, length = F.expand_dims(first, axis=-1), F.expand_dims(length, axis=-1)
        low = F.floor_divide(number * length, count)
        high = F.floor_divide((number + 1) * length + (count - 1), count)
        return F.clip(low + first, 0, size), F.clip(high + first, 0, size)

    def vertices(self, x: Any, boxes: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """The bins along rows [k, p, 1] and columns [k, 1, q], low and high."""
        x1, y1, x2, y2 = corners(cast_to(F.stop_gradient(boxes), boxes.dtype.accumulation))
        rows = self.bins(y1, y2, self.output_size[0], x.shape[2])
        columns = self.bins(x1, x2, self.output_size[1], x.shape[3])
        return (
            (F.expand_dims(rows[0], axis=-1), F.expand_dims(rows[1], axis=-1)),
            (F.expand_dims(columns[0], axis=-2), F.expand_dims(columns[1], axis=-2)),
        )


def rounded(x: Any) -> Any:
    """The nearest int64, halves away from 0."""
    return F.cast(F.where(x < 0, F.ceil(x - 0.5), F.floor(x + 0.5)), dtype=int64)


def levels(size: Any) -> int:
    """The number of powers of two up to a size."""
    return int(size).bit_length()


@op
class RoiPool(Pooled):
    """Regions of images, each as output_size bins: the greatest element of each bin.

    x: float[n, c, h, w]; boxes: float[k, 4], (x1, y1, x2, y2), times spatial_scale in elements of x, rounded, with the
    last row and column; images: integers[k], the image of each. Bin i of p of a region of r rows has the rows
    floor(i r / p) ... ceil((i + 1) r / p) - 1; those outside the image are left out, and a bin without elements is 0.
    Returns x's dtype, [k, c, *output_size]. The gradient goes to the greatest elements, not to the boxes. Raises
    ShapeError if sizes do not fit.
    Source: Girshick 2015, Fast R-CNN; PyTorch's torchvision.ops.roi_pool, MXNet's ROIPooling.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.arange(16.).reshape(1, 1, 4, 4)
    >>> F.roi_pool(x, wf.tensor([[0., 0., 3., 3.]]), wf.tensor([0]), (2, 2)).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """

    shift = 1

    def decompose(self, x: Any, boxes: Any, images: Any) -> Any:
        """Maxima of windows of 2^a x 2^b elements; four of these, which may overlap, cover a bin."""
        self.require(x, boxes)
        n, c, h, w = x.shape
        (top, bottom), (left, right) = self.vertices(x, boxes)
        level_y, height = fitting_power(bottom - top, levels(h))
        level_x, width = fitting_power(right - left, levels(w))
        is_empty = F.logical_or(bottom <= top, right <= left)
        rows = F.reshape(
            F.permute_dims(self.maxima(x), axes=(0, 1, 3, 4, 2)), shape=(levels(h) * levels(w) * n * h * w, c)
        )
        image = F.reshape(cast_to(images, int64), shape=(-1, 1, 1))
        table = (level_y * levels(w) + level_x) * n + image
        y: Any = None
        for row in (F.minimum(top, h - 1), F.maximum(bottom - height, 0)):
            for column in (F.minimum(left, w - 1), F.maximum(right - width, 0)):
                part = F.take(rows, (table * h + row) * w + column, axis=0)
                y = part if y is None else F.maximum(y, part)
        return self.result(F.where(F.expand_dims(is_empty, axis=-1), 0, y), x)

    def maxima(self, x: Any) -> Any:
        """The maxima of the windows that begin at each element, [levels, n, c, h, w]: widths vary faster."""
        tables = []
        for y in doubled(x, 2):
            tables += doubled(y, 3)
        return F.stack(tables, axis=0)


def doubled(x: Any, axis: int) -> list[Any]:
    """The maxima of 1, 2, 4, ... elements along an axis, from each element on."""
    tables = [x]
    for k in range(levels(x.shape[axis]) - 1):
        tables.append(F.maximum(tables[-1], shifted(tables[-1], axis, 2**k, -math.inf)))
    return tables


def fitting_power(length: Any, count: int) -> tuple[Any, Any]:
    """The greatest k < count with 2^k <= length, and 2^k; 0 and 1 for lengths below 1."""
    level, power = length * 0, length * 0 + 1
    for k in range(1, count):
        fits = length >= 2**k
        level, power = F.where(fits, k, level), F.where(fits, 2**k, power)
    return level, power


@op
class PsRoiPool(Pooled):
    """Regions of images, each as output_size bins with channels of its own: the mean of a bin's elements.

    x: float[n, c p q, h, w], of which bin (i, j) of channel k reads channel (k p + i) q + j; boxes, images,
    spatial_scale: as roi_pool's, but a region ends before its rounded last row and column; output_size: (p, q). A bin
    without elements is 0. Returns x's dtype, [k, c, p, q]. Means are differences of sums over the whole image in
    float64, so one NaN or infinity of a channel reaches all of its bins behind it. The gradient goes to x only. Raises
    ShapeError if sizes do not fit.
    Source: Dai et al. 2016, R-FCN: object detection via region-based fully convolutional networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.tensor([1., 2., 3., 4.]).reshape(1, 4, 1, 1) * wf.ones((1, 4, 6, 6))
    >>> F.ps_roi_pool(x, wf.tensor([[1., 1., 4., 4.]]), wf.tensor([0]), (2, 2)).tolist()
    [[[[1.0, 2.0], [3.0, 4.0]]]]
    """

    shift = 0
    is_position_sensitive = True

    def decompose(self, x: Any, boxes: Any, images: Any) -> Any:
        self.require(x, boxes)
        h, w = x.shape[2:]
        sums = cast_to(x, float64)
        for axis in (2, 3):
            sums = F.cumulative_sum(sums, axis=axis, include_initial=True)
        rows = self.rows(sums)
        (top, bottom), (left, right) = self.vertices(x, boxes)
        image = F.reshape(cast_to(images, int64), shape=(-1, 1, 1))

        def total(row: Any, column: Any) -> Any:
            index = (image * (h + 1) + row) * (w + 1) + column
            return F.take(rows, self.row_index(index), axis=0)

        inner = total(bottom, right) - total(top, right) - total(bottom, left) + total(top, left)
        area = F.maximum(bottom - top, 0) * F.maximum(right - left, 0)
        return self.result(inner / F.expand_dims(cast_to(F.maximum(area, 1), float64), axis=-1), x)


@op
class DeformablePsRoiPool(
    Composed,
    family="detection",
    rule="x[n,channels,h,w]: float, boxes[boxes,four]: float, images[boxes]: int, "
    "offsets[boxes,pairs,u,v]?: float -> y: x",
):
    """Regions of images, each as output_size bins that are moved by learned offsets: the mean of points of a bin.

    x: float[n, c g g, h, w], g = group_size, of which bin (i, j) of channel k reads channel (k g + floor(i g / p)) g +
    floor(j g / q); boxes: float[k, 4], (x1, y1, x2, y2), times spatial_scale in elements of x, rounded before, with the
    last row and column; images: integers[k]; offsets: float[k, 2 m, u, v] for m groups of c / m channels, or None: bin
    (i, j) is moved by offset_scale offsets[:, 2 group, floor(i u / p), floor(j v / q)] widths of the region to the
    right, and by the next one's heights down. output_size: (p, q); points: of each bin along each axis; those more than
    1/2 outside the image do not count, and a bin without any is 0. Returns x's dtype [k, c, p, q]. The gradient goes to
    x and to the offsets. Raises ShapeError if sizes do not fit, ValueError for attributes below 1.
    Source: Dai et al. 2017, Deformable convolutional networks; MegEngine's deformable_psroi_pooling.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.arange(16.).reshape(1, 1, 4, 4)
    >>> boxes, images = wf.tensor([[0., 0., 3., 3.]]), wf.tensor([0])
    >>> F.deformable_ps_roi_pool(x, boxes, images, output_size=(2, 2), points=2).tolist()
    [[[[1.25, 3.0], [8.25, 10.0]]]]
    """

    output_size: tuple[int, ...]
    spatial_scale: float = 1.0
    group_size: int = 1
    points: int = 1
    offset_scale: float = 0.1

    def check(self) -> None:
        if len(self.output_size) != 2 or min(*self.output_size, self.group_size, self.points) < 1:
            raise ValueError(
                f"{self.name}: output_size must be two sizes, they, group_size and points at least 1: {self!r}"
            )

    def decompose(self, x: Any, boxes: Any, images: Any, offsets: Any = None) -> Any:
        n, channels, h, w = x.shape
        (p, q), g, k = self.output_size, self.group_size, boxes.shape[0]
        groups = 1 if offsets is None else offsets.shape[1] // 2
        if boxes.shape[-1] != 4 or 0 in (h, w):
            raise self.fail(ShapeError, "boxes are [k, 4], and x has elements", x=x.type, boxes=boxes.type)
        if (offsets is not None and offsets.shape[1] % 2) or groups < 1 or channels % (g * g * groups):
            fact = f"{channels} channels do not divide into {g} x {g} bins of {groups} groups of offsets"
            raise self.fail(ShapeError, fact, x=x.type, offsets=None if offsets is None else offsets.type)
        kind = x.dtype.accumulation
        x1, y1, x2, y2 = (
            F.cast(rounded(v), dtype=kind) for v in corners(cast_to(F.stop_gradient(boxes), kind))
        )
        x1, y1 = x1 * self.spatial_scale - 0.5, y1 * self.spatial_scale - 0.5
        width = F.maximum((x2 + 1.0) * self.spatial_scale - 0.5 - x1, 0.1)
        height = F.maximum((y2 + 1.0) * self.spatial_scale - 0.5 - y1, 0.1)
        moved = (
            [None, None] if offsets is None else [self.moved(cast_to(offsets, kind), axis) for axis in (0, 1)]
        )
        across = self.places(x, x1, width, moved[0], 3, groups)
        down = self.places(x, y1, height, moved[1], 2, groups)
        across, down = F.expand_dims(across, axis=-2), F.expand_dims(down, axis=-1)
        inside = F.logical_and(is_within(down, h), is_within(across, w))  # [k, groups, p, q, points, points]
        # Rows of the channels that a bin of a group reads: (image, row, column, group, bin of g x g).
        inner = channels // (groups * g * g)
        rows = F.reshape(cast_to(x, kind), shape=(n, groups, inner, g * g, h, w))
        rows = F.reshape(
            F.permute_dims(rows, axes=(0, 4, 5, 1, 3, 2)), shape=(n * h * w * groups * g * g, inner)
        )
        image = F.reshape(cast_to(images, int64), shape=(k, 1, 1, 1, 1, 1))
        group = F.reshape(steps(x, groups, int64), shape=(1, groups, 1, 1, 1, 1))
        bins = [F.floor_divide(steps(x, m, int64) * g, m) for m in (p, q)]
        part = F.reshape(F.expand_dims(bins[0] * g, axis=1) + bins[1], shape=(1, 1, p, q, 1, 1))
        total: Any = None
        for row_share, row in between(down, h, kind):
            for column_share, column in between(across, w, kind):
                index = (((image * h + row) * w + column) * groups + group) * (g * g) + part
                share = F.expand_dims(row_share * column_share * F.cast(inside, dtype=kind), axis=-1)
                read = F.sum(F.take(rows, index, axis=0) * share, axis=(4, 5))
                total = read if total is None else total + read
        count = F.maximum(F.sum(F.cast(inside, dtype=kind), axis=(4, 5)), 1.0)
        y = F.permute_dims(total / F.expand_dims(count, axis=-1), axes=(0, 1, 4, 2, 3))
        return cast_to(F.reshape(y, shape=(k, groups * inner, p, q)), x.dtype)

    def moved(self, offsets: Any, axis: int) -> Any:
        """The offsets of all bins along an axis, 0 for across, in sizes of the region: [k, groups, p, q]."""
        k, pairs, u, v = offsets.shape
        y = F.reshape(offsets, shape=(k, pairs // 2, 2, u, v))
        y = F.squeeze(F.slice(y, starts=(axis,), stops=(axis + 1,), axes=(2,)), axis=2)
        for place, (bins, parts) in enumerate(zip(self.output_size, (u, v), strict=True), 2):
            y = F.take(y, F.floor_divide(steps(offsets, bins, int64) * parts, bins), axis=place)
        return y * self.offset_scale

    def places(self, x: Any, start: Any, length: Any, moved: Any, axis: int, groups: Any) -> Any:
        """Where the points of each bin are along an axis: [k, groups, p, q, points]."""
        bins, k = self.output_size[axis - 2], start.shape[0]
        shape = [1, 1, 1, 1, 1]
        shape[axis] = bins
        share = F.reshape(F.cast(steps(x, bins), dtype=start.dtype), shape=tuple(shape)) * (1 / bins)
        point = F.cast(steps(x, self.points), dtype=start.dtype) * (1 / (bins * self.points))
        start, length = (F.reshape(v, shape=(k, 1, 1, 1, 1)) for v in (start, length))
        place = share + point if moved is None else share + point + F.expand_dims(moved, axis=-1)
        return F.broadcast_to(start + length * place, shape=(k, groups, *self.output_size, self.points))


def is_within(place: Any, size: Any) -> Any:
    """Whether a place is at most 1/2 outside of the elements."""
    return F.logical_and(F.greater_equal(place, -0.5), F.less_equal(place, size - 0.5))


def between(place: Any, size: Any, kind: Any) -> list[tuple[Any, Any]]:
    """(share, index) of the two elements around a place, which is brought within them."""
    place = F.minimum(F.maximum(place, 0.0), float(size - 1))
    low = F.floor(place)
    index = F.cast(low, dtype=int64)
    return [(1.0 - (place - low), index), (place - low, F.minimum(index + 1, size - 1))]


__all__ = ["DeformablePsRoiPool", "PsRoiAlign", "PsRoiPool", "RoiAlign", "RoiPool"]
