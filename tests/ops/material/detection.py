"""What tests know of the operators of weft.ops.families.detection: NumPy, one box and one point at a time."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.detection import (
    BoxDecode,
    BoxEncode,
    BoxIou,
    Nms,
    RoiAlign,
    WarpAffine,
    WarpPerspective,
)
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
        return np.array([[overlap(p, q, self.kind) for q in b] for p in a]).reshape(len(a), len(b))

    @classmethod
    def samples(cls):
        for kind in ("iou", "giou", "diou"):
            yield Sample(boxes(), boxes(OTHERS), kind=kind)
        yield Sample(
            boxes(), boxes(OTHERS), kind="ciou", gradient=False
        )  # its factor is no function to differentiate
        yield Sample(boxes(np.zeros((0, 4))), boxes(OTHERS))

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


@material(RoiAlign)
class _:
    def reference(self, x, boxes, images):
        (_, c, h, w), (p, q), s = x.shape, self.output_size, self.points
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
                top = x[image, :, r, t] * (1 - ft) + x[image, :, r, t2] * ft
                below = x[image, :, r2, t] * (1 - ft) + x[image, :, r2, t2] * ft
                y[k, :, i, j] += (top * (1 - fr) + below * fr) / s**2
        return y

    @classmethod
    def samples(cls):
        places = boxes(np.array([[0.3, 1.1, 5.2, 4.4], [2.2, 0.4, 2.9, 3.3], [-3.1, -2.7, 9.4, 8.3]]))
        images = Array((3,), values=(1, 0, 1), dtype="int64")
        yield Sample(arrays((2, 2, 5, 6)), places, images, (2, 3), tolerance=4)
        yield Sample(
            arrays((2, 2, 5, 6)), places, images, (2, 2), 0.5, points=1, is_aligned=False, tolerance=4
        )
        yield Sample(arrays((1, 2, 3, 3)), boxes(np.zeros((0, 4))), Array((0,), dtype="int64"), (1, 1))

    @classmethod
    def errors(cls):
        images = Array((2,), values=(0, 0), dtype="int64")
        yield ShapeError, "boxes are", Sample(arrays((1, 1, 3, 3)), arrays((2, 5)), images, (1, 1))
        yield ValueError, "needs two sizes", Sample(arrays((1, 1, 3, 3)), arrays((2, 4)), images, (1,))


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
