"""Detection: overlaps of boxes, boxes as differences to anchors, suppression of overlapping boxes, regions of
images."""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.interpolation import steps
from weft.ops.families.sampling_grid import PADDINGS, component, samples
from weft.ops.loops import scan
from weft.ops.op import op
from weft.ops.pointwise import cast_to


def corners(boxes: Any) -> list[Any]:
    """x1, y1, x2, y2 of boxes [..., 4]."""
    return [component(boxes, k) for k in range(4)]


def _positive(x: Any) -> Any:
    return F.maximum(x, 0.0)


@op
class BoxIou(Composed, family="detection", rule="a: float, b: float -> y: promote", positional=("kind",)):
    """The overlap of each box of a with each of b: area of the intersection over that of the union.

    a: float[..., n, 4], b: float[..., m, 4], boxes (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2. kind: "iou"; "giou",
    less the share of the smallest box around both that neither covers; "diou", less the squared distance of centers
    over that of this box's corners; "ciou", diou less a term for different aspect ratios. Returns the promoted type
    [..., n, m]; 0 for boxes without area. The ciou's factor of that term has no gradient, as in its source.
    Raises ShapeError unless the last sizes are 4, ValueError for another kind.
    Source: Rezatofighi et al. 2019, Generalized intersection over union; Zheng et al. 2020, Distance-IoU loss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.box_iou(wf.tensor([[0., 0., 2., 2.]]), wf.tensor([[1., 0., 3., 2.], [0., 0., 2., 2.]]))
    tensor([[0.33333334, 1.        ]], dtype=float32, device=cpu:0)
    """

    kind: str = "iou"

    def check(self) -> None:
        if self.kind not in ("iou", "giou", "diou", "ciou"):
            raise ValueError(f"{self.name}: kind must be iou, giou, diou or ciou, got {self.kind!r}")

    def decompose(self, a: Any, b: Any) -> Any:
        for name, x in (("a", a), ("b", b)):
            if x.ndim < 2 or x.shape[-1] != 4:
                raise self.fail(ShapeError, f"{name} needs boxes [..., n, 4]", a=a.type, b=b.type)
        return self.overlap(F.expand_dims(a, axis=-2), F.expand_dims(b, axis=-3))

    def overlap(self, a: Any, b: Any) -> Any:
        """Of boxes that broadcast."""
        ax1, ay1, ax2, ay2 = corners(a)
        bx1, by1, bx2, by2 = corners(b)
        aw, ah, bw, bh = ax2 - ax1, ay2 - ay1, bx2 - bx1, by2 - by1
        width = _positive(F.minimum(ax2, bx2) - F.maximum(ax1, bx1))
        height = _positive(F.minimum(ay2, by2) - F.maximum(ay1, by1))
        shared = width * height
        union = aw * ah + bw * bh - shared
        iou = _share(shared, union)
        if self.kind == "iou":
            return iou
        around_w = F.maximum(ax2, bx2) - F.minimum(ax1, bx1)
        around_h = F.maximum(ay2, by2) - F.minimum(ay1, by1)
        if self.kind == "giou":
            around = around_w * around_h
            return iou - _share(around - union, around)
        across = F.square(ax1 + ax2 - bx1 - bx2) + F.square(ay1 + ay2 - by1 - by2)
        y = iou - _share(across * 0.25, F.square(around_w) + F.square(around_h))
        if self.kind == "diou":
            return y
        difference = F.square(F.atan2(aw, ah) - F.atan2(bw, bh)) * (4 / math.pi**2)
        factor = F.stop_gradient(_share(difference, 1.0 - iou + difference))
        return y - factor * difference


def _share(x: Any, whole: Any) -> Any:
    """x / whole, 0 where whole is."""
    is_empty = F.equal(whole, 0.0)
    return F.where(is_empty, 0.0, x / F.where(is_empty, 1.0, whole))


class AnchoredBoxes(Composed, family="detection", rule="x: float, anchors: float -> y: promote"):
    """Base: boxes (x1, y1, x2, y2) and what they differ by from anchors."""

    scales: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)

    def check(self) -> None:
        if len(self.scales) != 4 or not all(self.scales):
            raise ValueError(f"{self.name}: scales are 4 numbers other than 0, got {self.scales}")

    def center_forms(self, *boxes: Any) -> list[Any]:
        """Centers and sizes, x, y, w, h of each."""
        if any(x.ndim < 1 or x.shape[-1] != 4 for x in boxes):
            raise self.fail(
                ShapeError, "boxes are [..., 4]", **{f"x{k}": x.type for k, x in enumerate(boxes)}
            )
        parts = []
        for x in boxes:
            x1, y1, x2, y2 = corners(x)
            parts.append(((x1 + x2) * 0.5, (y1 + y2) * 0.5, x2 - x1, y2 - y1))
        return parts


@op
class BoxEncode(AnchoredBoxes):
    """Boxes as differences to anchors: centers over the anchor's size, and logarithms of sizes, times scales.

    x: float[..., 4], boxes (x1, y1, x2, y2); anchors: float[..., 4], which fit by broadcasting; scales: factors of the
    four results, such as 10, 10, 5, 5. Returns the promoted type [..., 4]: (dx, dy, dw, dh). Raises ShapeError unless
    the last sizes are 4.
    Source: Girshick et al. 2014, Rich feature hierarchies (appendix C).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.box_encode(wf.tensor([1., 0., 3., 2.]), wf.tensor([0., 0., 2., 2.]))
    tensor([0.5, 0. , 0. , 0. ], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any, anchors: Any) -> Any:
        (x0, y0, w, h), (ax, ay, aw, ah) = self.center_forms(x, anchors)
        parts = ((x0 - ax) / aw, (y0 - ay) / ah, F.log(w / aw), F.log(h / ah))
        return F.stack([part * scale for part, scale in zip(parts, self.scales, strict=True)], axis=-1)


@op
class BoxDecode(AnchoredBoxes):
    """The boxes that differ so from anchors: the inverse of box_encode.

    x: float[..., 4], (dx, dy, dw, dh); anchors: float[..., 4], boxes, which fit by broadcasting; scales: as
    box_encode's; limit: the largest logarithm of a size's factor, so that it stays finite; None: any. Returns the
    promoted type [..., 4], boxes (x1, y1, x2, y2). Raises ShapeError unless the last sizes are 4.
    Source: Girshick et al. 2014, Rich feature hierarchies (appendix C).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.box_decode(wf.tensor([0.5, 0., 0., 0.]), wf.tensor([0., 0., 2., 2.]))
    tensor([1., 0., 3., 2.], dtype=float32, device=cpu:0)
    """

    limit: float | None = None

    def decompose(self, x: Any, anchors: Any) -> Any:
        (ax, ay, aw, ah), *_ = self.center_forms(anchors, x)
        dx, dy, dw, dh = (part * (1 / scale) for part, scale in zip(corners(x), self.scales, strict=True))
        if self.limit is not None:
            dw, dh = F.minimum(dw, self.limit), F.minimum(dh, self.limit)
        x0, y0, w, h = ax + dx * aw, ay + dy * ah, F.exp(dw) * aw * 0.5, F.exp(dh) * ah * 0.5
        return F.stack([x0 - w, y0 - h, x0 + w, y0 + h], axis=-1)


@op
class Nms(
    Composed,
    family="detection",
    rule="boxes[boxes,four]: float, scores[boxes]: float, classes[boxes]?: int -> y[boxes]: bool",
):
    """Which boxes stay if those that overlap a better one by more than a threshold go (non-maximum suppression).

    boxes: float[n, 4], (x1, y1, x2, y2); scores: float[n], the best first, equal ones in their order; classes:
    integers[n]: only boxes of one class suppress each other. threshold: of the IoU. Returns bool[n] in the order of
    boxes, of a fixed shape, so that it is part of traces; boxes[keep] are those that stay. It holds n^2 overlaps. There
    is no gradient. Raises ShapeError if sizes do not fit.
    Source: Felzenszwalb et al. 2010, Object detection with discriminatively trained part-based models.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> boxes = wf.tensor([[0., 0., 2., 2.], [0., 0., 2., 1.9], [5., 5., 6., 6.]])
    >>> F.nms(boxes, wf.tensor([0.8, 0.9, 0.1])).tolist()
    [False, True, True]
    """

    threshold: float = 0.5

    def decompose(self, boxes: Any, scores: Any, classes: Any = None) -> Any:
        if boxes.shape[-1] != 4:
            raise self.fail(ShapeError, "boxes are [n, 4]", boxes=boxes.type)
        order = F.argsort(scores, descending=True)
        ranked = F.take(F.stop_gradient(boxes), order, axis=0)
        overlaps = F.greater(F.box_iou(ranked, ranked), self.threshold)
        if classes is not None:
            group = F.take(classes, order, axis=0)
            overlaps = F.logical_and(
                overlaps, F.equal(F.expand_dims(group, axis=1), F.expand_dims(group, axis=0))
            )
        places = F.places_like(scores, axis=0)

        def step(row: Any, place: Any, keep: Any, places: Any) -> Any:
            """A box that is kept suppresses those behind it."""
            is_kept = F.any(F.logical_and(keep, F.equal(places, place)))
            behind = F.logical_and(F.logical_and(row, F.greater(places, place)), is_kept)
            return [F.logical_and(keep, F.logical_not(behind))], []

        everything = F.greater_equal(places, 0)
        (keep,), _ = scan(step, [overlaps, places], [everything], [places])
        return F.take(keep, F.argsort(order), axis=0)

    def vjp(self, boxes: Any) -> Any:
        return None, None, None


@op
class RoiAlign(
    Composed,
    family="detection",
    rule="x[n,channels,h,w]: float, boxes[boxes,four]: float, images[boxes]: int -> y: x",
    positional=("output_size", "spatial_scale"),
):
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

    output_size: tuple[int, ...]
    spatial_scale: float = 1.0
    points: int = 2
    is_aligned: bool = True

    def check(self) -> None:
        if len(self.output_size) != 2 or min(self.output_size) < 1 or self.points < 1:
            raise ValueError(
                f"{self.name}: needs two sizes and points of at least 1, got {self.output_size}, {self.points}"
            )

    def decompose(self, x: Any, boxes: Any, images: Any) -> Any:
        n, c, h, w = x.shape
        if boxes.shape[-1] != 4 or 0 in x.shape[2:]:
            raise self.fail(ShapeError, "boxes are [k, 4], and x has elements", x=x.type, boxes=boxes.type)
        kind, count = x.dtype.accumulation, boxes.shape[0]
        x1, y1, x2, y2 = corners(
            cast_to(boxes, kind) * self.spatial_scale - (0.5 if self.is_aligned else 0.0)
        )
        pixels = F.reshape(F.permute_dims(cast_to(x, kind), axes=(0, 2, 3, 1)), shape=(n * h * w, c))
        first = F.reshape(cast_to(images, int64) * (h * w), shape=(count, 1, 1))
        rows = self._places(x, y1, y2, self.output_size[0], h, kind)
        columns = self._places(x, x1, x2, self.output_size[1], w, kind)
        total: Any = None
        for row_weight, row in rows:
            for column_weight, column in columns:
                index = first + F.expand_dims(row * w, axis=-1) + F.expand_dims(column, axis=-2)
                weight = F.expand_dims(row_weight, axis=-1) * F.expand_dims(column_weight, axis=-2)
                part = F.take(pixels, index, axis=0) * F.expand_dims(weight, axis=-1)
                total = part if total is None else total + part
        (p, q), s = self.output_size, self.points
        bins = F.mean(F.reshape(total, shape=(count, p, s, q, s, c)), axis=(2, 4))
        return cast_to(F.permute_dims(bins, axes=(0, 3, 1, 2)), x.dtype)

    def _places(
        self, x: Any, start: Any, stop: Any, bins: int, size: Any, kind: Any
    ) -> list[tuple[Any, Any]]:
        """(weight, index) of the two elements around each point along one axis: [k, bins * samples]."""
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


class Warp(Composed, family="sampling", rule="x: float, matrix: float -> y: x", positional=("size",)):
    """Base: images read at places that a matrix gives for each element of the result."""

    size: tuple[int, ...]
    mode: str = "bilinear"
    padding_mode: str = "zeros"

    rows = 3

    def check(self) -> None:
        if self.mode not in ("bilinear", "nearest", "bicubic") or self.padding_mode not in PADDINGS:
            accepted = ", ".join(PADDINGS)
            raise ValueError(
                f"{self.name}: mode must be bilinear, nearest or bicubic and padding_mode one of {accepted}, "
                f"got {self.mode!r} and {self.padding_mode!r}"
            )
        if len(self.size) != 2 or min(self.size) < 0:
            raise ValueError(f"{self.name}: size is (height, width), got {self.size}")

    def decompose(self, x: Any, matrix: Any) -> Any:
        self.require_ndim(4, x=x)
        if matrix.shape != (x.shape[0], self.rows, 3):
            raise self.fail(ShapeError, f"needs matrices [n, {self.rows}, 3]", x=x.type, matrix=matrix.type)
        kind = matrix.dtype.accumulation
        wide = F.reshape(cast_to(matrix, kind), shape=(x.shape[0], 1, 1, self.rows, 3))
        across, down = (
            F.reshape(F.cast(steps(x, n), dtype=kind), shape=shape)
            for n, shape in ((self.size[1], (1, 1, -1)), (self.size[0], (1, -1, 1)))
        )
        parts = [component(wide, k) for k in range(3)]
        mapped = [
            component(parts[0], r) * across + component(parts[1], r) * down + component(parts[2], r)
            for r in range(self.rows)
        ]
        places = [mapped[1], mapped[0]] if self.rows == 2 else [mapped[1] / mapped[2], mapped[0] / mapped[2]]
        return samples(x, places, self.mode, self.padding_mode, True)


@op
class WarpAffine(Warp):
    """Images mapped by matrices: element (x, y) of the result is read at matrix (x, y, 1), in elements of the image.

    x: float[n, c, h, w]; matrix: float[n, 2, 3]; size: (height, width) of the result; mode and padding_mode: as
    grid_sample's. Returns x's dtype, [n, c, *size]. Raises ShapeError if sizes do not fit, ValueError for another word.
    Source: Hartley, Zisserman 2004, Multiple view geometry in computer vision, 2.4.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.warp_affine(wf.tensor([[[[1., 2., 3.]]]]), wf.tensor([[[1., 0., 1.], [0., 1., 0.]]]), (1, 2))
    tensor([[[[2., 3.]]]], dtype=float32, device=cpu:0)
    """

    rows = 2


@op
class WarpPerspective(Warp):
    """Images mapped by projective matrices, read at the places that these give.

    Element (x, y) of the result is read at (u / t, v / t), (u, v, t) being matrix (x, y, 1), in elements of the image.
    x: float[n, c, h, w]; matrix: float[n, 3, 3]; size: (height, width) of the result; mode and padding_mode: as
    grid_sample's. Returns x's dtype, [n, c, *size]; NaN where t is 0. Raises ShapeError if sizes do not fit, ValueError
    for another word.
    Source: Hartley, Zisserman 2004, Multiple view geometry in computer vision, 2.3.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> shift = wf.tensor([[[1., 0., 1.], [0., 1., 0.], [0., 0., 1.]]])
    >>> F.warp_perspective(wf.tensor([[[[1., 2., 3.]]]]), shift, (1, 2))
    tensor([[[[2., 3.]]]], dtype=float32, device=cpu:0)
    """


__all__ = ["BoxDecode", "BoxEncode", "BoxIou", "Nms", "RoiAlign", "WarpAffine", "WarpPerspective"]
