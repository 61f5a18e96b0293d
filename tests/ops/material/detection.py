"""What tests know of the operators of weft.ops.families.detection: NumPy, one box at a time."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.detection import BoxDecode, BoxEncode, BoxIou, Nms, SoftNms
from weft.ops.samples import Array, Sample, arrays

BOXES = np.array([[0, 0, 4, 3], [1, 0.5, 3, 2], [3.5, 1, 7, 6], [0.25, 0, 4, 3.25], [6, 6, 9, 7]])
OTHERS = np.array([[0.55, 0.6, 2.1, 5.1], [3.1, 2.2, 8.3, 4.6], [10, 10, 12, 11]])  # no edges of BOXES


def boxes(values=BOXES):
    return Array(values.shape, values=values)


def overlap(a, b, kind):
    width = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    (aw, ah), (bw, bh) = a[2:] - a[:2], b[2:] - b[:2]
    union = aw * ah + bw * bh - width * height
    iou = width * height / union
    low, high = np.minimum(a[:2], b[:2]), np.maximum(a[2:], b[2:])
    if kind == "giou":
        return iou - (np.prod(high - low) - union) / np.prod(high - low)
    if kind == "iou":
        return iou
    centers = (a[:2] + a[2:]) / 2 - (b[:2] + b[2:]) / 2
    diou = iou - (centers**2).sum() / ((high - low) ** 2).sum()
    if kind == "diou":
        return diou
    aspect = 4 / np.pi**2 * (np.arctan(aw / ah) - np.arctan(bw / bh)) ** 2
    return diou - aspect**2 / (1 - iou + aspect) if aspect else diou


@material(BoxIou)
class _:
    def reference(self, a, b):
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
        y = np.zeros((*lead, a.shape[-2], b.shape[-2]))
        for *at, i, j in np.ndindex(y.shape):
            y[(*at, i, j)] = overlap(a[(*at, i)], b[(*at, j)], self.kind)
        return y

    @classmethod
    def samples(cls):
        for kind in ("iou", "giou", "diou"):
            yield Sample(boxes(), boxes(OTHERS), kind=kind)
        yield Sample(
            boxes(), boxes(OTHERS), kind="ciou", gradient=False
        )  # its factor is no function to differentiate
        yield Sample(boxes(np.zeros((0, 4))), boxes(OTHERS))
        yield Sample(boxes(np.stack([BOXES, BOXES + 0.125])), boxes(OTHERS))

    @classmethod
    def errors(cls):
        yield ShapeError, "a needs boxes", Sample(arrays((2, 3)), arrays((2, 4)))
        yield ValueError, "kind must be", Sample(arrays((2, 4)), arrays((2, 4)), kind="area")


def centered(x):
    return [
        (x[..., 0] + x[..., 2]) / 2,
        (x[..., 1] + x[..., 3]) / 2,
        x[..., 2] - x[..., 0],
        x[..., 3] - x[..., 1],
    ]


@material(BoxEncode)
class _:
    def reference(self, x, anchors):
        (px, py, pw, ph), (ax, ay, aw, ah) = centered(x), centered(anchors)
        return np.stack([(px - ax) / aw, (py - ay) / ah, np.log(pw / aw), np.log(ph / ah)], -1) * self.scales

    @classmethod
    def samples(cls):
        yield Sample(boxes(BOXES[:3]), boxes(OTHERS), scales=(10.0, 10.0, 5.0, 5.0))
        yield Sample(boxes(), boxes(OTHERS[0]))

    @classmethod
    def errors(cls):
        yield ShapeError, "boxes are", Sample(arrays((2, 3)), arrays((2, 4)))
        yield (
            ValueError,
            "scales are 4 numbers",
            Sample(arrays((2, 4)), arrays((2, 4)), scales=(1.0, 0.0, 1.0, 1.0)),
        )


@material(BoxDecode)
class _:
    def reference(self, x, anchors):
        (ax, ay, aw, ah), (dx, dy, dw, dh) = centered(anchors), np.moveaxis(x / self.scales, -1, 0)
        most = np.inf if self.limit is None else self.limit
        w, h = np.exp(np.minimum(dw, most)) * aw / 2, np.exp(np.minimum(dh, most)) * ah / 2
        px, py = ax + dx * aw, ay + dy * ah
        return np.stack([px - w, py - h, px + w, py + h], -1)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), boxes(OTHERS), scales=(10.0, 10.0, 5.0, 5.0))
        yield Sample(arrays((3, 4), low=0.5, high=1.0), boxes(OTHERS), limit=0.25)

    @classmethod
    def errors(cls):
        yield ShapeError, "boxes are", Sample(arrays((2, 4)), arrays((2, 3)))


@material(Nms)
class _:
    def reference(self, boxes, scores, classes=None):
        keep = np.zeros(len(boxes), bool)
        for i in np.argsort(-scores, kind="stable"):
            others = [j for j in np.flatnonzero(keep) if classes is None or classes[i] == classes[j]]
            keep[i] = all(overlap(boxes[i], boxes[j], "iou") <= self.threshold for j in others)
        return keep

    @classmethod
    def samples(cls):
        scores = Array((5,), values=(0.5, 0.75, 0.25, 0.5, 0.125))
        yield Sample(boxes(), scores)
        yield Sample(boxes(), scores, threshold=0.2)
        yield Sample(boxes(), scores, Array((5,), values=(0, 1, 0, 0, 1), dtype="int32"), threshold=0.2)

    @classmethod
    def errors(cls):
        yield ShapeError, "boxes are", Sample(arrays((2, 3)), arrays((2,)))
        yield ShapeError, "boxes", Sample(arrays((2, 4)), arrays((3,)))


@material(SoftNms)
class _:
    def reference(self, boxes, scores, classes=None):
        y, left = np.array(scores, np.float64), list(range(len(boxes)))
        while left:
            best = max(left, key=lambda i: (y[i], -i))
            left.remove(best)
            if y[best] < self.least:
                break
            for i in left:
                if classes is None or classes[i] == classes[best]:
                    iou = overlap(boxes[best], boxes[i], "iou")
                    linear = 1 - iou if iou > self.threshold else 1
                    y[i] *= np.exp(-(iou**2) / self.sigma) if self.kind == "gaussian" else linear
        return y

    @classmethod
    def samples(cls):
        scores = Array((5,), values=(0.5, 0.75, 0.25, 0.55, 0.125))
        classes = Array((5,), values=(0, 1, 0, 0, 1), dtype="int32")
        apart = boxes(BOXES + 0.01 * np.arange(20).reshape(5, 4))  # no two edges are at one place
        yield Sample(apart, scores, threshold=0.2)
        yield Sample(apart, scores, classes, threshold=0.2)
        yield Sample(apart, scores, kind="gaussian", sigma=0.3)
        yield Sample(boxes(), scores, kind="gaussian", least=0.3, gradient=False)
        yield Sample(boxes(np.zeros((0, 4))), arrays((0,)))

    @classmethod
    def errors(cls):
        yield ShapeError, "boxes are", Sample(arrays((2, 3)), arrays((2,)))
        yield ValueError, "sigma must be", Sample(arrays((2, 4)), arrays((2,)), sigma=0.0)
        yield TypeError, "kind must be", Sample(arrays((2, 4)), arrays((2,)), kind="hard")
