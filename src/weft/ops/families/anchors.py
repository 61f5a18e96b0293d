"""Anchors: boxes of given sizes and shapes around the elements of an image, what they should learn, what they found."""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import float64, int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.detection import surviving
from weft.ops.families.interpolation import steps
from weft.ops.families.sampling_grid import component
from weft.ops.loops import scan
from weft.ops.node import constant
from weft.ops.op import op
from weft.ops.pointwise import cast_to


def around(x: Any, y: Any, halves: list[tuple[float, float]]) -> Any:
    """Boxes (x1, y1, x2, y2) [h * w * len(halves), 4] around each of w x and h y, of these half widths and heights."""
    h, w = y.shape[0], x.shape[0]
    x, y = (F.broadcast_to(v, shape=(h, w)) for v in (x, F.expand_dims(y, axis=1)))
    boxes = [F.stack([x - width, y - height, x + width, y + height], axis=-1) for width, height in halves]
    return F.reshape(F.stack(boxes, axis=2), shape=(h * w * len(halves), 4))


class Anchors(Composed, family="detection", rule="x[n,channels,h,w]: float -> y: x"):
    """Base: boxes around the elements of x, whose sizes alone are read, computed in float64."""

    def require_positive(self, **numbers: tuple[float, ...]) -> None:
        """Raise ValueError unless there are numbers, all above 0."""
        for name, values in numbers.items():
            if not values or not all(v > 0 for v in values):
                raise ValueError(f"{self.name}: {name} must be numbers above 0, got {values}")

    def vjp(self, x: Any) -> Any:
        return None


@op
class AnchorBoxes(Anchors, positional=("sizes", "ratios", "stride", "offset")):
    """Boxes of several sizes and shapes around each element of a feature map, in elements of the image.

    x: float[n, c, h, w], the feature map; sizes: roots of the boxes' areas; ratios: of heights to widths; stride: how
    far its elements are apart in the image, a number or (down, across); offset: where an element is within its stride,
    0 or 1/2. Returns x's dtype, [h * w * len(ratios) * len(sizes), 4], (x1, y1, x2, y2): for each element in row-major
    order all sizes of the first ratio, then of the next. Raises ValueError for numbers that are not above 0.
    Source: Ren et al. 2015, Faster R-CNN.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.anchor_boxes(wf.zeros((1, 8, 1, 2)), (4.0,), (1.0,), 16.0)
    tensor([[-2., -2.,  2.,  2.],
            [14., -2., 18.,  2.]], dtype=float32, device=cpu:0)
    """

    sizes: tuple[float, ...]
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    stride: float | tuple[float, ...] = 1.0
    offset: float = 0.0

    def check(self) -> None:
        stride = self.stride if isinstance(self.stride, tuple) else (self.stride,) * 2
        if len(stride) != 2:
            raise ValueError(f"{self.name}: stride must be a number or two, got {stride}")
        self.set("stride", stride)
        self.require_positive(sizes=self.sizes, ratios=self.ratios, stride=stride)

    def decompose(self, x: Any) -> Any:
        stride: Any = self.stride
        y, across = ((steps(x, n) + self.offset) * s for n, s in zip(x.shape[2:], stride, strict=True))
        halves = [(s / math.sqrt(r) / 2, s * math.sqrt(r) / 2) for r in self.ratios for s in self.sizes]
        return cast_to(around(across, y, halves), x.dtype)


@op
class MultiboxPrior(Anchors, positional=("sizes", "ratios")):
    """Default boxes around each element of a feature map, as shares of the image.

    x: float[n, c, h, w], the feature map; sizes: heights of the boxes of the first ratio; ratios: of widths to heights
    in elements; there are boxes of all sizes with the first ratio, then of the first size with the other ratios.
    steps: how far elements are apart, (down, across), by default 1 / h and 1 / w; offsets: where an element is within
    its step, (down, across); clip: cut at 0 and 1. Returns x's dtype, [1, h * w * (len(sizes) + len(ratios) - 1), 4],
    (x1, y1, x2, y2). Raises ValueError for numbers that are not above 0.
    Source: Liu et al. 2016, SSD: single shot multibox detector; MXNet's MultiBoxPrior.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.multibox_prior(wf.zeros((1, 8, 1, 2)), (0.5,))
    tensor([[[0.125, 0.25 , 0.375, 0.75 ],
             [0.625, 0.25 , 0.875, 0.75 ]]], dtype=float32, device=cpu:0)
    """

    sizes: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (1.0,)
    steps: tuple[float, ...] | None = None
    offsets: tuple[float, ...] = (0.5, 0.5)
    clip: bool = False

    def check(self) -> None:
        self.require_positive(sizes=self.sizes, ratios=self.ratios)
        if len(self.offsets) != 2 or (self.steps is not None and len(self.steps) != 2):
            raise ValueError(f"{self.name}: steps and offsets are pairs, got {self.steps} and {self.offsets}")

    def decompose(self, x: Any) -> Any:
        h, w = (int(n) for n in x.shape[2:])
        apart = self.steps or (1 / max(h, 1), 1 / max(w, 1))
        y, across = ((steps(x, n) + self.offsets[k]) * apart[k] for k, n in enumerate((h, w)))
        shapes = [(s, math.sqrt(self.ratios[0])) for s in self.sizes]
        shapes += [(self.sizes[0], math.sqrt(ratio)) for ratio in self.ratios[1:]]
        boxes = around(across, y, [(s * h / max(w, 1) * r / 2, s / r / 2) for s, r in shapes])
        boxes = F.clip(boxes, 0.0, 1.0) if self.clip else boxes
        return cast_to(F.expand_dims(boxes, axis=0), x.dtype)


class OfAnchors(Composed, family="detection"):
    """Base of what is learned of anchors [1, a, 4], or read from what was learned."""

    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)

    def check(self) -> None:
        if len(self.variances) != 4 or not all(self.variances):
            raise ValueError(f"{self.name}: variances are 4 numbers other than 0, got {self.variances}")

    @property
    def scales(self) -> tuple[float, ...]:
        """Those of box_encode."""
        return tuple(1 / v for v in self.variances)


@op
class MultiboxTarget(
    OfAnchors,
    rule="anchors[1,anchors,4]: float, labels[n,objects,columns]: float, scores[n,classes,anchors]: float "
    "-> offsets: anchors, mask: anchors, classes: anchors",
):
    """What anchors should learn of the objects of images: their classes, and the differences of boxes.

    anchors: float[1, a, 4], (x1, y1, x2, y2); labels: float[n, m, 5 or more], (class, x1, y1, x2, y2, ...) of each
    object, those from the first class of -1 on are none; scores: float[n, classes + 1, a], predictions before softmax,
    class 0 is the background. Objects get their best anchors first, the greatest overlap of all before the others, each
    anchor once; then anchors get the object with which their IoU is greatest, if that is above overlap_threshold (above
    0; else none do). With negative_ratio above 0 only so many times the number of these anchors, and at least
    least_negatives, are background: of those whose IoU is below negative_threshold the ones with the least predicted
    share of it; others are ignored. Returns offsets [n, 4 a], box_encode with the scales 1 / variances, 0 for others;
    mask [n, 4 a], 1 where an anchor has an object; classes [n, a]: 1 + the object's, 0 background, ignore_label what is
    ignored, as all is in an image without objects. There is no gradient. Raises ShapeError if sizes do not fit.
    Source: Liu et al. 2016, SSD: single shot multibox detector; MXNet's MultiBoxTarget.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> anchors = wf.tensor([[[0., 0., 0.5, 0.5], [0.5, 0.5, 1., 1.]]])
    >>> labels = wf.tensor([[[3., 0.5, 0.5, 0.9, 1.]]])
    >>> F.multibox_target(anchors, labels, wf.zeros((1, 5, 2)))[2]
    tensor([[0., 4.]], dtype=float32, device=cpu:0)
    """

    overlap_threshold: float = 0.5
    ignore_label: float = -1.0
    negative_ratio: float = -1.0
    negative_threshold: float = 0.5
    least_negatives: int = 0

    def decompose(self, anchors: Any, labels: Any, scores: Any) -> Any:
        if labels.shape[2] < 5:
            raise self.fail(ShapeError, "labels need a class and a box, 5 numbers", labels=labels.type)
        dtype = anchors.dtype
        wide = [cast_to(F.stop_gradient(v), v.dtype.accumulation) for v in (anchors, labels, scores)]
        n, m, a = labels.shape[0], labels.shape[1], anchors.shape[1]
        if m == 0 or a == 0:
            zeros = F.broadcast_to(constant(0, dtype), shape=(n, 4 * a))
            return zeros, zeros, F.broadcast_to(constant(self.ignore_label, dtype), shape=(n, a))
        anchors, labels, scores = wide
        category = component(labels, 0)
        is_object = F.equal(F.cumulative_sum(F.cast(F.equal(category, -1.0), dtype=int64), axis=1), 0)
        boxes = F.slice(labels, starts=(1,), stops=(5,), axes=(2,))
        overlaps = F.where(F.expand_dims(is_object, axis=1), F.box_iou(anchors, boxes), -1.0)
        number, is_positive = self.matched(overlaps)
        flags = self.flags(is_positive, F.max(overlaps, axis=2), scores)
        flags = F.where(F.any(is_object, axis=1, keepdims=True), flags, self.ignore_label)
        own_class = F.take_along_axis(category, number, axis=1) + 1
        own_box = F.take_along_axis(boxes, F.expand_dims(number, axis=-1), axis=1)
        is_masked = F.expand_dims(is_positive, axis=-1)
        offsets = F.where(is_masked, F.box_encode(own_box, anchors, scales=self.scales), 0.0)
        mask = F.broadcast_to(F.cast(is_masked, dtype=dtype), shape=(n, a, 4))
        return (
            F.reshape(cast_to(offsets, dtype), shape=(n, 4 * a)),
            F.reshape(mask, shape=(n, 4 * a)),
            cast_to(F.where(is_positive, own_class, flags), dtype),
        )

    def matched(self, overlaps: Any) -> tuple[Any, Any]:
        """Of overlaps [n, a, m] the number of the object of each anchor, and whether it has one, [n, a]."""
        n, a, m = overlaps.shape
        one_object, one_anchor = (F.slice(overlaps, starts=(0,), stops=(1,), axes=(axis,)) for axis in (2, 1))
        anchor_numbers, object_numbers = F.places_like(one_object, axis=1), F.places_like(one_anchor, axis=2)

        def step(_: Any, left: Any, number: Any, anchor_numbers: Any, object_numbers: Any) -> Any:
            """The greatest overlap that is left makes a pair."""
            flat = F.reshape(left, shape=(n, a * m))
            best = F.argmax(flat, axis=1, keepdims=True)
            is_pair = F.expand_dims(F.take_along_axis(flat, best, axis=1) > 1e-6, axis=-1)
            best = F.expand_dims(best, axis=-1)
            is_anchor = F.logical_and(F.equal(anchor_numbers, F.floor_divide(best, m)), is_pair)
            is_object = F.logical_and(F.equal(object_numbers, F.remainder(best, m)), is_pair)
            left = F.where(F.logical_or(is_anchor, is_object), -1.0, left)
            number = F.where(F.squeeze(is_anchor, axis=-1), F.remainder(F.squeeze(best, axis=-1), m), number)
            return [left, number], []

        nothing = F.places_like(component(overlaps, 0), axis=1) * 0 - 1
        (_, number), _ = scan(
            step,
            [F.permute_dims(object_numbers, axes=(2, 0, 1))],
            [overlaps, nothing],
            [anchor_numbers, object_numbers],
        )
        if self.overlap_threshold > 0:
            is_near = F.logical_and(number < 0, F.max(overlaps, axis=2) > self.overlap_threshold)
            number = F.where(is_near, F.argmax(overlaps, axis=2), number)
        return F.maximum(number, 0), number >= 0

    def flags(self, is_positive: Any, overlap: Any, scores: Any) -> Any:
        """0 for anchors that are background, ignore_label for those that are ignored, [n, a]."""
        if self.negative_ratio <= 0:
            return F.cast(is_positive, dtype=overlap.dtype) * 0.0
        positives = F.sum(F.cast(is_positive, dtype=int64), axis=1, keepdims=True)
        count = F.cast(F.floor(F.cast(positives, dtype=float64) * self.negative_ratio), dtype=int64)
        count = F.minimum(F.maximum(count, self.least_negatives), overlap.shape[1] - positives)
        is_candidate = F.logical_and(F.logical_not(is_positive), overlap < self.negative_threshold)
        share = F.squeeze(F.slice(F.softmax(scores, axis=1), starts=(0,), stops=(1,), axes=(1,)), axis=1)
        order = F.argsort(F.where(is_candidate, share, math.inf), axis=1)
        is_negative = F.logical_and(is_candidate, F.argsort(order, axis=1) < count)
        return F.where(is_negative, 0.0, self.ignore_label)


@op
class MultiboxDetection(
    OfAnchors,
    rule="scores[n,classes,anchors]: float, offsets[n,numbers]: float, anchors[1,anchors,4]: float -> y: scores",
):
    """The objects that predictions for anchors mean: boxes, after non-maximum suppression.

    scores: float[n, classes + 1, a], shares of the classes, of which class `background` is none; offsets: float[n, 4
    a], as multibox_target's; anchors: float[1, a, 4]. Anchors count whose best class has a share of at least threshold,
    of these the `limit` best if it is above 0; one that overlaps a better one of its class (with across_classes: of
    any) by at least nms_threshold is suppressed; a threshold of 0 or above 1 suppresses none, and keeps the anchors'
    order. clip: boxes are cut at 0 and 1; variances: as multibox_target's. Returns scores' dtype [n, a, 6], (class,
    share, x1, y1, x2, y2), the best first; the class is -1 of those that are suppressed, and all is -1 behind the last.
    Classes are counted without the background. There is no gradient. Raises ShapeError if sizes do not fit, ValueError
    for a background that is no class.
    Source: Liu et al. 2016, SSD: single shot multibox detector; MXNet's MultiBoxDetection.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> anchors = wf.tensor([[[0., 0., 0.5, 0.5], [0.5, 0.5, 1., 1.]]])
    >>> scores = wf.tensor([[[0.9, 0.2], [0.1, 0.8]]])
    >>> F.multibox_detection(scores, wf.zeros((1, 8)), anchors)[0, 0]
    tensor([0. , 0.8, 0.5, 0.5, 1. , 1. ], dtype=float32, device=cpu:0)
    """

    clip: bool = True
    threshold: float = 0.01
    background: int = 0
    nms_threshold: float = 0.5
    across_classes: bool = False
    limit: int = -1

    def decompose(self, scores: Any, offsets: Any, anchors: Any) -> Any:
        n, classes, a = scores.shape
        if offsets.shape[1] != 4 * a:
            raise self.fail(
                ShapeError, f"offsets must be [n, {4 * a}]", scores=scores.type, offsets=offsets.type
            )
        if not 0 <= self.background < classes:
            raise self.fail(ValueError, f"background {self.background} is no class", scores=scores.type)
        kind, dtype = scores.dtype.accumulation, scores.dtype
        if classes < 2 or a == 0:
            return F.broadcast_to(constant(-1, dtype), shape=(n, a, 6))
        wide = cast_to(F.stop_gradient(scores), kind)
        ends = ((0, self.background), (self.background + 1, classes))
        parts = [F.slice(wide, starts=(i,), stops=(j,), axes=(1,)) for i, j in ends if i < j]
        shares = F.concat(parts, axis=1)
        share = F.max(shares, axis=1)
        category = F.argmax(shares, axis=1)
        offsets = F.reshape(cast_to(F.stop_gradient(offsets), kind), shape=(n, a, 4))
        boxes = F.box_decode(offsets, cast_to(F.stop_gradient(anchors), kind), scales=self.scales)
        boxes = F.clip(boxes, 0.0, 1.0) if self.clip else boxes
        is_valid = share >= self.threshold
        suppresses = 0 < self.nms_threshold <= 1
        key = F.where(is_valid, share, -math.inf) if suppresses else F.cast(is_valid, dtype=kind)
        order = F.argsort(key, axis=1, descending=True)
        category, share, is_valid = (F.take_along_axis(v, order, axis=1) for v in (category, share, is_valid))
        boxes = F.take_along_axis(boxes, F.expand_dims(order, axis=-1), axis=1)
        count = a if self.limit <= 0 or not suppresses else min(self.limit, int(a))
        stays = F.logical_and(is_valid, F.places_like(share, axis=1) < count)
        if suppresses:
            stays = F.logical_and(stays, self.kept(boxes, category, stays, count))
        shown = F.where(stays, cast_to(category, kind), -1.0)
        rows = F.concat([F.stack([shown, share], axis=-1), boxes], axis=-1)
        return cast_to(F.where(F.expand_dims(is_valid, axis=-1), rows, -1.0), dtype)

    def kept(self, boxes: Any, category: Any, is_valid: Any, count: int) -> Any:
        """Which of the first `count` boxes, the best first, stay; the others do not matter."""
        a = category.shape[1]
        first = [F.slice(v, starts=(0,), stops=(count,), axes=(1,)) for v in (boxes, category, is_valid)]
        groups = None if self.across_classes else first[1]
        keep = surviving(first[0], groups, lambda iou: F.greater_equal(iou, self.nms_threshold))
        return F.pad(keep, pad=(0, a - count))


__all__ = ["AnchorBoxes", "MultiboxDetection", "MultiboxPrior", "MultiboxTarget"]
