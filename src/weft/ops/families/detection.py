"""Boxes: their overlaps, boxes as differences to anchors, suppression of those that overlap better ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.sampling_grid import component
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


def surviving(boxes: Any, classes: Any, is_too_near: Callable[[Any], Any]) -> Any:
    """Which of boxes [*b, n, 4], the best first, stay: those that none that stays before them is too near to.

    classes: integers [*b, n] or None: only boxes of one class count; is_too_near: of overlaps [*b, n].
    """
    lead = boxes.ndim - 2
    places = F.places_like(component(boxes, 0), axis=-1)
    to_front = (lead, *range(lead), lead + 1)
    sequences = [F.permute_dims(boxes, axes=to_front), F.permute_dims(places, axes=to_front[:-1])]
    constants = [boxes, places]
    if classes is not None:
        sequences.append(F.permute_dims(classes, axes=to_front[:-1]))
        constants.append(classes)

    def step(box: Any, place: Any, *rest: Any) -> Any:
        """A box that is kept suppresses those behind it."""
        group, (keep, boxes, places, *classes) = rest[:grouped], rest[grouped:]
        place = F.expand_dims(place, axis=-1)
        is_kept = F.any(F.logical_and(keep, F.equal(places, place)), axis=-1, keepdims=True)
        iou = F.squeeze(F.box_iou(F.expand_dims(box, axis=-2), boxes), axis=-2)
        goes = F.logical_and(F.logical_and(is_too_near(iou), F.greater(places, place)), is_kept)
        if group:
            goes = F.logical_and(goes, F.equal(F.expand_dims(group[0], axis=-1), classes[0]))
        return [F.logical_and(keep, F.logical_not(goes))], []

    grouped = int(classes is not None)
    (keep,), _ = scan(step, sequences, [F.greater_equal(places, 0)], constants)
    return keep


@op
class Nms(
    Composed,
    family="detection",
    rule="boxes[boxes,four]: float, scores[boxes]: float, classes[boxes]?: int -> y[boxes]: bool",
):
    """Which boxes stay if those that overlap a better one by more than a threshold go (non-maximum suppression).

    boxes: float[n, 4], (x1, y1, x2, y2); scores: float[n], the best first, equal ones in their order; classes:
    integers[n]: only boxes of one class suppress each other. threshold: of the IoU. Returns bool[n] in the order of
    boxes, of a fixed shape, so that it is part of traces; boxes[keep] are those that stay. There is no gradient. Raises
    ShapeError if sizes do not fit.
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
        group = None if classes is None else F.take(classes, order, axis=0)
        keep = surviving(ranked, group, lambda iou: F.greater(iou, self.threshold))
        return F.take(keep, F.argsort(order), axis=0)

    def vjp(self, boxes: Any) -> Any:
        return None, None, None


@op
class SoftNms(
    Composed,
    family="detection",
    rule="boxes[boxes,four]: float, scores[boxes]: float, classes[boxes]?: int -> y[boxes]: scores",
):
    """Scores of boxes, lowered where boxes overlap better ones: non-maximum suppression without a hard decision.

    The best box of those left is taken, and the scores of the others are multiplied by 1 - IoU where that is above the
    threshold (kind "linear"), or by exp(-IoU^2 / sigma) ("gaussian"), until none of at least `least` is left.
    boxes: float[n, 4], (x1, y1, x2, y2); scores: finite float[n]; of equal ones the first is taken; classes:
    integers[n]: only boxes of one class lower each other's scores. Returns scores' dtype [n] in the order of boxes;
    y >= least are those that stay. Raises ShapeError if sizes do not fit, ValueError unless sigma is above 0.
    Source: Bodla et al. 2017, Soft-NMS: improving object detection with one line of code.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> boxes = wf.tensor([[0., 0., 2., 2.], [0., 0., 2., 1.5], [5., 5., 6., 6.]])
    >>> F.soft_nms(boxes, wf.tensor([0.8, 0.9, 0.1]))
    tensor([0.2, 0.9, 0.1], dtype=float32, device=cpu:0)
    """

    threshold: float = 0.5
    kind: Literal["linear", "gaussian"] = "linear"
    sigma: float = 0.5
    least: float = 0.001

    def check(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"{self.name}: sigma must be greater than 0, got {self.sigma}")

    def decompose(self, boxes: Any, scores: Any, classes: Any = None) -> Any:
        if boxes.shape[-1] != 4:
            raise self.fail(ShapeError, "boxes are [n, 4]", boxes=boxes.type)
        wide = cast_to(scores, scores.dtype.accumulation)
        places = F.places_like(wide, axis=0)
        constants = [cast_to(boxes, wide.dtype), places, *([] if classes is None else [classes])]

        def step(_: Any, is_left: Any, scores: Any, boxes: Any, places: Any, classes: Any = None) -> Any:
            """The best box that is left lowers the scores of the others."""
            best = F.argmax(F.where(is_left, scores, -math.inf), axis=0, keepdims=True)
            is_left = F.logical_and(is_left, F.not_equal(places, best))
            is_lower = F.logical_and(is_left, F.greater_equal(F.take(scores, best, axis=0), self.least))
            if classes is not None:
                is_lower = F.logical_and(is_lower, F.equal(classes, F.take(classes, best, axis=0)))
            factor = self.factor(F.squeeze(F.box_iou(F.take(boxes, best, axis=0), boxes), axis=0))
            return [is_left, F.where(is_lower, scores * factor, scores)], []

        (_, y), _ = scan(step, [places], [F.greater_equal(places, 0), wide], constants)
        return cast_to(y, scores.dtype)

    def factor(self, iou: Any) -> Any:
        """By what a score is multiplied at an overlap."""
        if self.kind == "gaussian":
            return F.exp(F.square(iou) * (-1 / self.sigma))
        return F.where(F.greater(iou, self.threshold), 1.0 - iou, 1.0)


__all__ = ["BoxDecode", "BoxEncode", "BoxIou", "Nms", "SoftNms", "corners", "surviving"]
