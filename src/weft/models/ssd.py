"""SSD: objects of images found in one pass, as classes and boxes of anchors at several sizes of features.

Names of parameters are torchvision's, so its state dictionaries load.
"""

from __future__ import annotations

import math

import numpy as np

from weft import functional as F
from weft.arrays.creation import full, tensor
from weft.arrays.tensor import Tensor
from weft.models.classic import VGG
from weft.module import Conv2d, MaxPool2d, Module, Parameter, ReLU, Sequential, init

__all__ = ["SSD", "ssd300"]

# Of each size of features: the ratio of other boxes than squares, and how far places are apart in pixels of 300.
RATIOS = ((2.0,), (2.0, 3.0), (2.0, 3.0), (2.0, 3.0), (2.0,), (2.0,))
STEPS = (8, 16, 32, 64, 100, 300)
SCALES = (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05)
VARIANCES = (0.1, 0.1, 0.2, 0.2)


class Features(Module):
    """VGG-16 without its classifier and four pairs of convolutions: features of six sizes, each half of the one before.

    Source: Liu et al. 2016, SSD: single shot multibox detector.
    """

    def __init__(self, width: int) -> None:
        layers = list(VGG((2, 2, 3, 3, 3), classes=1, width=width, hidden=1).features)
        third, fourth = [k for k, layer in enumerate(layers) if isinstance(layer, MaxPool2d)][2:4]
        layers[third] = MaxPool2d(2, 2, ceil_mode=True)
        self.scale_weight = Parameter(full((8 * width,), 20.0))
        self.features = Sequential(*layers[:fourth])
        n = width
        wide = Sequential(
            *(MaxPool2d(3, 1, padding=1), Conv2d(8 * n, 16 * n, 3, padding=6, dilation=6), ReLU()),
            *(Conv2d(16 * n, 16 * n, 1), ReLU()),
        )
        self.extra = [
            Sequential(*layers[fourth:-1], wide),
            pair(16 * n, 4 * n, 8 * n, stride=2, padding=1),
            pair(8 * n, 2 * n, 4 * n, stride=2, padding=1),
            pair(4 * n, 2 * n, 4 * n),
            pair(4 * n, 2 * n, 4 * n),
        ]

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.features(x)
        length = F.maximum(F.vector_norm(x, axis=1, keepdims=True), 1e-12)
        maps = [self.scale_weight.reshape(1, -1, 1, 1) * (x / length)]
        for part in self.extra:
            x = part(x)
            maps.append(x)
        return maps


def pair(inputs: int, inner: int, outputs: int, stride: int = 1, padding: int = 0) -> Sequential:
    """A convolution that mixes channels, and one of 3x3 that makes the image smaller."""
    return Sequential(
        *(Conv2d(inputs, inner, 1), ReLU()), *(Conv2d(inner, outputs, 3, stride, padding=padding), ReLU())
    )


class Scores(Module):
    """A 3x3 convolution of the features of each size, with `numbers` results for each of its anchors, in one row."""

    def __init__(self, channels: list[int], anchors: list[int], numbers: int) -> None:
        self.numbers = numbers
        self.module_list = [
            Conv2d(n, numbers * count, 3, padding=1) for n, count in zip(channels, anchors, strict=True)
        ]

    def forward(self, maps: list[Tensor]) -> Tensor:
        rows = []
        for layer, x in zip(self.module_list, maps, strict=True):
            y = F.permute_dims(layer(x), (0, 2, 3, 1))
            rows.append(y.reshape(y.shape[0], -1, self.numbers))
        return F.concat(rows, axis=1)


class Head(Module):
    """The scores of classes, and the offsets of boxes."""

    def __init__(self, channels: list[int], anchors: list[int], classes: int) -> None:
        self.classification_head = Scores(channels, anchors, classes)
        self.regression_head = Scores(channels, anchors, 4)

    def forward(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        return self.classification_head(maps), self.regression_head(maps)


class SSD(Module):
    """A VGG-16 and smaller features, with scores of classes and offsets of boxes for each of their anchors.

    classes: kinds of objects, without the background, which is class 0 of the scores; width: channels of the first
    stage. forward(x): x float[n, 3, h, w], from about 260 x 260 on, made for 300 x 300 -> scores float[n, a, classes +
    1], before softmax, offsets float[n, a, 4], and anchors float[a, 4] (x1, y1, x2, y2) as shares of the image, a =
    8732 for 300 x 300. weft.functional.multibox_target makes what is learned of these, detect(x) the objects.
    Source: Liu et al. 2016, SSD: single shot multibox detector.

    >>> import weft as wf
    >>> from weft import models
    >>> scores, offsets, anchors = models.SSD(classes=2, width=2)(wf.zeros((1, 3, 300, 300)))
    >>> scores.shape, offsets.shape, anchors.shape
    ((1, 8732, 3), (1, 8732, 4), (8732, 4))
    """

    repr_attributes = ("classes", "width")

    def __init__(self, classes: int = 90, width: int = 64) -> None:
        self.classes, self.width = classes, width
        self.backbone = Features(width)
        channels = [width * n for n in (8, 16, 8, 4, 4, 4)]
        self.head = Head(channels, [2 + 2 * len(ratios) for ratios in RATIOS], classes + 1)
        for part in (*self.backbone.extra, self.head):
            part.apply(begin)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        maps = self.backbone(x)
        scores, offsets = self.head(maps)
        return scores, offsets, default_boxes([m.shape[2:] for m in maps], x)

    def detect(
        self, x: Tensor, threshold: float = 0.01, nms_threshold: float = 0.45, limit: int = 400
    ) -> Tensor:
        """Objects float[n, a, 6], (class, share, x1, y1, x2, y2) as shares of the image, -1 behind the last.

        Classes are counted without the background. See weft.functional.multibox_detection.
        """
        scores, offsets, anchors = self(x)
        shares = F.swapaxes(F.softmax(scores, axis=-1), 1, 2)
        flat = offsets.reshape(offsets.shape[0], -1)
        return F.multibox_detection(
            shares,
            flat,
            anchors[None],
            variances=VARIANCES,
            threshold=threshold,
            nms_threshold=nms_threshold,
            limit=limit,
        )


def begin(module: Module) -> None:
    """First values of the layers that VGG does not have."""
    if isinstance(module, Conv2d):
        init.xavier_uniform_(module.weight)
        if module.bias is not None:
            init.zeros_(module.bias)


def default_boxes(sizes: list[tuple[int, ...]], x: Tensor) -> Tensor:
    """The anchors of features of these sizes of an image x, as shares of it: squares, and boxes of other ratios."""
    parts = []
    for k, (rows, columns) in enumerate(sizes):
        between = math.sqrt(SCALES[k] * SCALES[k + 1])
        shapes = [(SCALES[k], SCALES[k]), (between, between)]
        for ratio in RATIOS[k]:
            w, h = SCALES[k] * math.sqrt(ratio), SCALES[k] / math.sqrt(ratio)
            shapes += [(w, h), (h, w)]
        halves = np.array([(min(w, 1.0) / 2, min(h, 1.0) / 2) for w, h in shapes])
        down = (np.arange(rows) + 0.5) * (STEPS[k] / x.shape[2])
        across = (np.arange(columns) + 0.5) * (STEPS[k] / x.shape[3])
        centers = np.stack(np.meshgrid(across, down), axis=-1).reshape(-1, 1, 2)
        parts.append(np.concatenate([centers - halves, centers + halves], axis=-1).reshape(-1, 4))
    return tensor(np.concatenate(parts), dtype=x.dtype, device=x.device)


def ssd300(classes: int = 90) -> SSD:
    """SSD of 300 x 300 images with VGG-16: 35.6 million parameters with 90 classes."""
    return SSD(classes)
