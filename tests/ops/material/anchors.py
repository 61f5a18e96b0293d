"""What tests know of the operators of weft.ops.families.anchors: NumPy, one anchor at a time."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.detection import overlap

from weft.base.errors import ShapeError
from weft.ops.families.anchors import AnchorBoxes, MultiboxDetection, MultiboxPrior, MultiboxTarget
from weft.ops.samples import Array, Sample, arrays


@material(AnchorBoxes)
class _:
    def reference(self, x):
        y = []
        for i, j in np.ndindex(*x.shape[2:]):
            row, column = ((v + self.offset) * s for v, s in zip((i, j), self.stride, strict=True))
            for ratio in self.ratios:
                for size in self.sizes:
                    w, h = size / ratio**0.5 / 2, size * ratio**0.5 / 2
                    y.append((column - w, row - h, column + w, row + h))
        return np.array(y).reshape(-1, 4)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 2, 3)), (8.0, 16.0), stride=4.0)
        yield Sample(arrays((1, 1, 3, 1)), (8.0,), (1.0,), (4.0, 8.0), 0.5)
        yield Sample(arrays((1, 1, 0, 2)), (8.0,))

    @classmethod
    def errors(cls):
        yield ValueError, "sizes must be numbers above 0", Sample(arrays((1, 1, 2, 2)), (0.0,))
        yield ValueError, "stride must be", Sample(arrays((1, 1, 2, 2)), (1.0,), stride=(1.0, 2.0, 3.0))
        yield ShapeError, "x needs 4 dimensions", Sample(arrays((1, 2, 2)), (1.0,))


@material(MultiboxPrior)
class _:
    def reference(self, x):
        h, w = x.shape[2:]
        down, across = self.steps or (1 / max(h, 1), 1 / max(w, 1))
        shapes = [(size, self.ratios[0]) for size in self.sizes]
        shapes += [(self.sizes[0], ratio) for ratio in self.ratios[1:]]
        y = []
        for i, j in np.ndindex(h, w):
            row, column = (i + self.offsets[0]) * down, (j + self.offsets[1]) * across
            for size, ratio in shapes:
                b, a = size / ratio**0.5 / 2, size * h / w * ratio**0.5 / 2
                y.append((column - a, row - b, column + a, row + b))
        boxes = np.array(y).reshape(1, -1, 4)
        return boxes.clip(0, 1) if self.clip else boxes

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 2, 3)), (0.3, 0.5), (1.0, 2.0, 0.5))
        yield Sample(arrays((1, 1, 3, 2)), (0.75,), (4.0,), clip=True)
        yield Sample(arrays((1, 1, 1, 2)), steps=(0.5, 0.25), offsets=(0.0, 1.0))
        yield Sample(arrays((1, 1, 0, 2)))

    @classmethod
    def errors(cls):
        yield ValueError, "ratios must be numbers above 0", Sample(arrays((1, 1, 2, 2)), ratios=(-1.0,))
        yield ValueError, "steps and offsets are pairs", Sample(arrays((1, 1, 2, 2)), steps=(1.0,))


ANCHORS = np.array(
    [
        [0, 0, 0.4, 0.4],
        [0.1, 0.1, 0.5, 0.5],
        [0.5, 0.5, 1, 1],
        [0.4, 0.55, 0.9, 0.95],
        [0.7, 0, 1, 0.3],
        [0, 0.7, 0.2, 1],
    ]
)
LABELS = np.array(
    [
        [[1, 0.12, 0.1, 0.5, 0.42], [0, 0.45, 0.5, 0.9, 1], [2, 0.06, 0.04, 0.4, 0.5]],
        [[2, 0.5, 0.52, 0.94, 0.9], [-1, 0, 0, 0, 0], [1, 0, 0, 1, 1]],
        [[-1, 0, 0, 0, 0], [0, 0, 0, 0.5, 0.5], [-1, 0, 0, 0, 0]],
    ]
)


def flags_of(op, overlaps, scores):
    """For overlaps [a, m] of one image: the object of each anchor, -1: background, -2: ignored."""
    found = np.full(len(overlaps), -2)
    left = overlaps.copy()
    while left.size and left.max() > 1e-6:
        j, k = np.unravel_index(left.argmax(), left.shape)
        found[j] = k
        left[j], left[:, k] = -1, -1
    for j in range(len(found)):
        if found[j] == -2 and op.overlap_threshold > 0 and overlaps[j].max() > op.overlap_threshold:
            found[j] = overlaps[j].argmax()
    positives = int((found >= 0).sum())
    rest = [j for j in range(len(found)) if found[j] < 0]
    if op.negative_ratio > 0:
        count = min(max(int(positives * op.negative_ratio), op.least_negatives), len(found) - positives)
        shares = np.exp(scores) / np.exp(scores).sum(axis=0)
        rest = sorted(
            (j for j in rest if overlaps[j].max() < op.negative_threshold), key=lambda j: shares[0, j]
        )
        rest = rest[:count]
    found[rest] = -1
    return found


@material(MultiboxTarget)
class _:
    def reference(self, anchors, labels, scores):
        n, a = len(labels), anchors.shape[1]
        offsets, mask = np.zeros((n, a, 4)), np.zeros((n, a, 4))
        classes = np.full((n, a), self.ignore_label)
        for i in range(n):
            objects = (
                labels[i, : (labels[i, :, 0] == -1).tolist().index(True)]
                if -1 in labels[i, :, 0]
                else labels[i]
            )
            if not len(objects):
                continue
            overlaps = np.array([[overlap(p, q[1:5], "iou") for q in objects] for p in anchors[0]])
            for j, k in enumerate(flags_of(self, overlaps, scores[i])):
                if k >= 0:
                    (ax, ay), (aw, ah) = (
                        (anchors[0, j, :2] + anchors[0, j, 2:]) / 2,
                        anchors[0, j, 2:] - anchors[0, j, :2],
                    )
                    (x, y), (w, h) = (
                        (objects[k, 1:3] + objects[k, 3:5]) / 2,
                        objects[k, 3:5] - objects[k, 1:3],
                    )
                    parts = ((x - ax) / aw, (y - ay) / ah, np.log(w / aw), np.log(h / ah))
                    offsets[i, j], mask[i, j] = np.array(parts) / self.variances, 1
                    classes[i, j] = objects[k, 0] + 1
                elif k == -1:
                    classes[i, j] = 0
        return offsets.reshape(n, -1), mask.reshape(n, -1), classes

    @classmethod
    def samples(cls):
        anchors, labels = Array((1, 6, 4), values=ANCHORS[None]), Array((3, 3, 5), values=LABELS)
        scores = Array((3, 4, 6), distinct=True)
        exact = {
            "dtypes": ("float32", "float64"),
            "gradient": False,
            "tolerance": 4,
        }  # overlaps near each other
        yield Sample(anchors, labels, scores, **exact)
        yield Sample(anchors, labels, scores, overlap_threshold=0.0, **exact)
        options = {"negative_ratio": 0.5, "negative_threshold": 0.4, "ignore_label": -2.0}
        yield Sample(anchors, labels, scores, least_negatives=1, **options, **exact)
        yield Sample(anchors, arrays((2, 0, 5)), arrays((2, 4, 6)), **exact)

    @classmethod
    def errors(cls):
        anchors, scores = arrays((1, 6, 4)), arrays((2, 4, 6))
        yield ShapeError, "labels need a class and a box", Sample(anchors, arrays((2, 3, 4)), scores)
        yield ShapeError, "anchors has", Sample(arrays((2, 6, 4)), arrays((2, 3, 5)), scores)
        yield ValueError, "variances are 4", Sample(anchors, arrays((2, 3, 5)), scores, variances=(1.0,))


@material(MultiboxDetection)
class _:
    def reference(self, scores, offsets, anchors):
        n, classes, a = scores.shape
        y = np.full((n, a, 6), -1.0)
        others = [k for k in range(classes) if k != self.background]
        for i in range(n):
            found = []
            for j in range(a if others else 0):
                k = int(scores[i, others, j].argmax())
                if scores[i, others[k], j] >= self.threshold:
                    d, box = offsets[i].reshape(a, 4)[j] * self.variances, anchors[0, j]
                    center, size = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
                    center, half = center + d[:2] * size, np.exp(d[2:]) * size / 2
                    corners = np.concatenate([center - half, center + half])
                    corners = corners.clip(0, 1) if self.clip else corners
                    found.append([k, scores[i, others[k], j], *corners])
            suppresses = 0 < self.nms_threshold <= 1
            if suppresses:
                found.sort(key=lambda row: -row[1])
            kept = []
            for place, row in enumerate(found):
                near = (
                    k
                    for k in kept
                    if (self.across_classes or k[0] == row[0])
                    and overlap(np.array(k[2:]), np.array(row[2:]), "iou") >= self.nms_threshold
                )
                if suppresses and (any(near) or 0 < self.limit <= place):
                    row = [-1, *row[1:]]
                else:
                    kept.append(row)
                y[i, place] = row
        return y

    @classmethod
    def samples(cls):
        shares = Array((2, 3, 6), low=0.05, high=0.95, distinct=True)
        offsets, anchors = arrays((2, 24)), Array((1, 6, 4), values=ANCHORS[None])
        exact = {"dtypes": ("float32", "float64"), "gradient": False, "tolerance": 4}
        yield Sample(shares, offsets, anchors, nms_threshold=0.2, **exact)
        yield Sample(shares, offsets, anchors, nms_threshold=0.2, across_classes=True, threshold=0.5, **exact)
        yield Sample(shares, offsets, anchors, nms_threshold=0.0, background=1, clip=False, **exact)
        yield Sample(shares, offsets, anchors, nms_threshold=0.4, limit=3, **exact)
        yield Sample(arrays((2, 1, 6)), offsets, anchors, **exact)

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "offsets must be [n, 24]",
            Sample(arrays((2, 3, 6)), arrays((2, 12)), arrays((1, 6, 4))),
        )
        operands = (arrays((2, 3, 6)), arrays((2, 24)), arrays((1, 6, 4)))
        yield ValueError, "background 3 is no class", Sample(*operands, background=3)
