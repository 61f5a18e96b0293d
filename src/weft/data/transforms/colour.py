"""Transforms that change colours of pictures u8[h, w, c], red first.

Linear changes of a pixel are one matrix [3, 4], however many there are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import _core
from weft.data.transforms.base import Item, Stream, Transform, spread

__all__ = [
    "ColorJitter",
    "GaussianNoise",
    "Grayscale",
    "Lighting",
    "Normalize",
    "RandAugment",
    "RandomErasing",
    "ToFloat",
]

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
FROM_YIQ = np.linalg.inv(TO_YIQ)
IDENTITY = np.eye(3, 4)


def brightness(factor: float, mean: float) -> np.ndarray:
    return factor * IDENTITY


def contrast(factor: float, mean: float) -> np.ndarray:
    """Away from, or towards, the picture's mean brightness."""
    matrix: np.ndarray = factor * IDENTITY
    matrix[:, 3] = (1 - factor) * mean
    return matrix


def saturation(factor: float, mean: float) -> np.ndarray:
    matrix: np.ndarray = factor * IDENTITY
    matrix[:, :3] += (1 - factor) * LUMA
    return matrix


def hue(turns: float, mean: float) -> np.ndarray:
    """The colours turned by a share of a full turn, in YIQ."""
    angle = 2 * math.pi * turns
    rotation = np.array(
        [[1, 0, 0], [0, math.cos(angle), -math.sin(angle)], [0, math.sin(angle), math.cos(angle)]]
    )
    return np.column_stack([FROM_YIQ @ rotation @ TO_YIQ, np.zeros(3)])


def _mix_channels(item: Item, matrix: np.ndarray) -> None:
    image = np.empty(item.image.shape, np.uint8)
    _core.image_mix_channels(item.image, image, np.ascontiguousarray(matrix, np.float32))
    item.image = image


def _histograms(image: np.ndarray) -> np.ndarray:
    counts = np.empty((image.shape[2], 256), np.int64)
    _core.image_count_values(image, counts)
    return counts


def _mean(image: np.ndarray) -> float:
    """The mean brightness, 0 to 255."""
    means = _histograms(image) @ np.arange(256) / (image.shape[0] * image.shape[1])
    return float(means @ LUMA) if len(means) == 3 else float(means.mean())


def _look_up_values(item: Item, table: np.ndarray) -> None:
    image: np.ndarray = np.empty(item.image.shape, np.uint8)
    tables = np.ascontiguousarray(np.broadcast_to(table, (image.shape[2], 256)), np.uint8)
    _core.image_look_up(item.image, image, tables)
    item.image = image


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in random order, by one matrix.

    brightness, contrast, saturation: x for a factor between 1 - x and 1 + x, or a pair of limits. hue: x for up to x
    turns of the colour circle in either direction, or a pair of limits. The result is rounded and bounded to 0..255
    once, at the end; contrast refers to the mean of the picture before all changes. Pictures with 1 channel get
    brightness and contrast only. Raises ValueError for other numbers of channels than 1 and 3.

    >>> picture = np.full((2, 2, 3), 100, np.uint8)
    >>> ColorJitter(brightness=(1.5, 1.5))(picture)[0, 0].tolist()
    [150, 150, 150]
    """

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        self.limits = [spread(brightness), spread(contrast), spread(saturation), spread(hue, 0.0)]

    def apply(self, item: Item, stream: Stream) -> None:
        makers: list[Callable[[float, float], np.ndarray]] = [brightness, contrast, saturation, hue]
        steps = [
            (make, stream.uniform(*limits))
            for make, limits, neutral in zip(makers, self.limits, (1.0, 1.0, 1.0, 0.0), strict=True)
            if tuple(limits) != (neutral, neutral)
        ]
        for k in range(len(steps) - 1, 0, -1):
            other = stream.below(k + 1)
            steps[k], steps[other] = steps[other], steps[k]
        mean = _mean(item.image) if any(make is contrast for make, _ in steps) else 0.0
        total = np.vstack([IDENTITY, [0, 0, 0, 1]])
        for make, amount in steps:
            total = np.vstack([make(amount, mean), [0, 0, 0, 1]]) @ total
        if item.image.shape[2] == 3:
            _mix_channels(item, total[:3])
        elif item.image.shape[2] == 1:
            matrix = np.eye(4)
            for make, amount in steps:
                if make in (brightness, contrast):
                    matrix = np.vstack([make(amount, mean), [0, 0, 0, 1]]) @ matrix
            _look_up_values(item, np.clip(np.rint(matrix[0, 0] * np.arange(256) + matrix[0, 3]), 0, 255))
        else:
            raise ValueError(f"ColorJitter: takes 1 or 3 channels, got {item.image.shape[2]}")


class Lighting(Transform):
    """Noise along the principal components of ImageNet's colours, one amount for the whole picture u8[h, w, 3].

    alpha: the standard deviation of the three amounts, as a share of the components' own.
    Source: Krizhevsky, Sutskever, Hinton 2012, ImageNet Classification with Deep Convolutional Neural Networks.

    >>> Lighting(alpha=0.0)(np.full((1, 1, 3), 7, np.uint8)).tolist()
    [[[7, 7, 7]]]
    """

    values = np.array([55.46, 4.794, 1.148])
    vectors = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])

    def __init__(self, alpha: float = 0.1) -> None:
        self.alpha = alpha

    def apply(self, item: Item, stream: Stream) -> None:
        amounts = self.alpha * np.array([stream.normal() for _ in range(3)])
        _mix_channels(item, np.column_stack([np.eye(3), self.vectors @ (amounts * self.values)]))


class Grayscale(Transform):
    """The brightness (ITU-R BT.601) in all 3 channels of a picture u8[h, w, 3], with probability p.

    >>> Grayscale()(np.array([[[255, 0, 0]]], np.uint8)).tolist()
    [[[76, 76, 76]]]
    """

    def __init__(self, p: float = 1.0) -> None:
        self.p = p

    def apply(self, item: Item, stream: Stream) -> None:
        if stream.uniform() < self.p:
            _mix_channels(item, saturation(0.0, 0.0))


class GaussianNoise(Transform):
    """Normally distributed noise on every value of a picture; the result is rounded and bounded to 0..255.

    std: the standard deviation, in the picture's units.

    >>> GaussianNoise(std=0.0)(np.full((1, 2, 1), 7, np.uint8)).tolist()
    [[[7], [7]]]
    """

    def __init__(self, std: float) -> None:
        self.std = std

    def apply(self, item: Item, stream: Stream) -> None:
        generator = np.random.Generator(np.random.PCG64([stream.bits(), stream.bits()]))
        noise = generator.standard_normal(item.image.shape, np.float32) * np.float32(self.std)
        item.image = np.clip(np.rint(item.image + noise), 0, 255).astype(np.uint8)


class RandomErasing(Transform):
    """A random rectangle of the picture is filled, with probability p. Boxes and masks stay.

    scale: limits of its share of the area; ratio: limits of height / width. fill: a number, one for each channel, or
    "random" for noise. If 10 rectangles do not fit, the picture stays as it is.
    Source: Zhong et al. 2017, Random Erasing Data Augmentation.

    >>> erased = RandomErasing(p=1, scale=(0.25, 0.25), ratio=(1, 1), fill=9)(np.zeros((8, 8, 1), np.uint8))
    >>> int((erased == 9).sum())
    16
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        fill: Any = 0,
    ) -> None:
        self.p, self.scale, self.ratio, self.fill = p, tuple(scale), tuple(ratio), fill

    def apply(self, item: Item, stream: Stream) -> None:
        if stream.uniform() >= self.p:
            return
        h, w = item.size
        for _ in range(10):
            area = stream.uniform(*self.scale) * h * w
            ratio = math.exp(stream.uniform(*map(math.log, self.ratio)))
            part_h, part_w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < part_h < h and 0 < part_w < w:
                y, x = stream.below(h - part_h + 1), stream.below(w - part_w + 1)
                item.image = item.image.copy()  # the dataset's own may be behind it
                part = item.image[y : y + part_h, x : x + part_w]
                if isinstance(self.fill, str):
                    generator = np.random.Generator(np.random.PCG64([stream.bits(), stream.bits()]))
                    part[...] = generator.integers(0, 256, part.shape, np.uint8)
                else:
                    part[...] = self.fill
                return


class Normalize(Transform):
    """(x - mean) / std for each channel, as f32[c, h, w], or f32[h, w, c] with layout="HWC"; the last transform.

    mean, std: of values 0..255, one for each channel or one for all; the defaults are ImageNet's. It crops and mirrors
    on the way where the transform before it is given as `crop`, (h, w), and `mirror`: one pass over the pixels.

    >>> Normalize(mean=100, std=50)(np.full((1, 2, 3), 200, np.uint8)).tolist()
    [[[2.0, 2.0]], [[2.0, 2.0]], [[2.0, 2.0]]]
    """

    def __init__(
        self,
        mean: Any = (123.675, 116.28, 103.53),
        std: Any = (58.395, 57.12, 57.375),
        layout: str = "CHW",
        *,
        crop: Sequence[int] | None = None,
        mirror: float = 0.0,
    ) -> None:
        if layout not in ("CHW", "HWC"):
            raise ValueError(f"Normalize: layout must be 'CHW' or 'HWC', got {layout!r}")
        if np.any(np.asarray(std) == 0):
            raise ValueError("Normalize: std must not be 0")
        self.mean, self.std, self.layout = np.asarray(mean, np.float32), np.asarray(std, np.float32), layout
        self.crop, self.mirror = crop, mirror

    def apply(self, item: Item, stream: Stream) -> np.ndarray:
        h, w = item.size if self.crop is None else (int(self.crop[0]), int(self.crop[1]))
        c = item.image.shape[2]
        y = x = 0
        if self.crop is not None:
            if h > item.size[0] or w > item.size[1]:
                raise ValueError(f"Normalize: the picture is {item.size[0]} x {item.size[1]}, crop {h} x {w}")
            y, x = stream.below(item.size[0] - h + 1), stream.below(item.size[1] - w + 1)
        mirror = self.mirror > 0 and stream.uniform() < self.mirror
        is_moved = (y, x) != (0, 0) or (h, w) != item.size or mirror
        if is_moved and (item.boxes is not None or item.mask is not None):
            copied = copy.copy(item)  # its picture is cropped and mirrored by image_normalize
            copied.crop(y, x, h, w)
            if mirror:
                copied.flip(1)
            item.boxes, item.mask, item.labels = copied.boxes, copied.mask, copied.labels
        out = np.empty((c, h, w) if self.layout == "CHW" else (h, w, c), np.float32)
        mean, factor = (np.ascontiguousarray(np.broadcast_to(v, (c,))) for v in (self.mean, 1 / self.std))
        _core.image_normalize(item.image, out, y, x, mirror, mean, factor, self.layout == "CHW")
        return out


class ToFloat(Normalize):
    """The picture as f32[c, h, w] with values 0..1; the last transform.

    >>> ToFloat()(np.full((1, 2, 1), 255, np.uint8)).tolist()
    [[[1.0, 1.0]]]
    """

    def __init__(self, layout: str = "CHW") -> None:
        super().__init__(0.0, 255.0, layout)


# -- RandAugment --


def _auto_contrast(item: Item, amount: float) -> None:
    """Each channel stretched to 0..255."""
    tables = []
    for counts in _histograms(item.image):
        (present,) = np.nonzero(counts)
        low, high = int(present[0]), int(present[-1])
        tables.append(
            np.clip(np.rint((np.arange(256) - low) * (255 / max(high - low, 1))), 0, 255)
            if high > low
            else np.arange(256)
        )
    _look_up_values(item, np.array(tables))


def _equalize(item: Item, amount: float) -> None:
    """Each channel's values spread so that all are about as frequent."""
    tables = []
    for counts in _histograms(item.image):
        smaller_count = np.cumsum(counts) - counts
        total = int(counts.sum() - counts[np.nonzero(counts)[0][-1]])
        tables.append(
            np.arange(256) if not total else np.clip(np.rint(smaller_count * (255 / total)), 0, 255)
        )
    _look_up_values(item, np.array(tables))


def _sharpen(item: Item, amount: float) -> None:
    image = np.empty(item.image.shape, np.uint8)
    _core.image_sharpen(item.image, image, amount)
    item.image = image


def _by_matrix(make: Callable[[float, float], np.ndarray]) -> Callable[[Item, float], None]:
    return lambda item, amount: _mix_channels(
        item, make(1 + amount, _mean(item.image) if make is contrast else 0.0)
    )


def _by_affine(name: str, largest: float) -> Callable[[Item, float], None]:
    def apply(item: Item, amount: float) -> None:
        h, w = item.size
        value = amount * largest
        inverse = np.eye(2, 3)
        middle = np.array([(w - 1) / 2, (h - 1) / 2])
        if name == "rotate":
            angle = math.radians(value)
            inverse[:, :2] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        elif name == "shear_x":
            inverse[0, 1] = -value
        elif name == "shear_y":
            inverse[1, 0] = -value
        inverse[:, 2] = middle - inverse[:, :2] @ middle
        if name == "shift_x":
            inverse[0, 2] -= value * w
        elif name == "shift_y":
            inverse[1, 2] -= value * h
        item.warp(inverse, (h, w), "linear", 128)

    return apply


class RandAugment(Transform):
    """Several random changes one after the other, each one of 14: rotation, shear, shift, colour, contrast, ...

    count: the number of changes; magnitude: from 0 (none) to 30. Pictures u8[h, w, 3]; pixels from outside are grey.
    Source: Cubuk, Zoph, Shlens, Le 2019, RandAugment: Practical automated data augmentation with a reduced search
    space.

    >>> RandAugment(count=2, magnitude=9)(np.zeros((8, 8, 3), np.uint8)).shape
    (8, 8, 3)
    """

    changes: dict[str, tuple[Callable[[Item, float], None], str]] = {  # noqa: RUF012
        "identity": (lambda item, amount: None, "signed"),
        "auto_contrast": (_auto_contrast, "signed"),
        "equalize": (_equalize, "signed"),
        "rotate": (_by_affine("rotate", 30.0), "signed"),
        "posterize": (
            lambda item, amount: _look_up_values(item, np.arange(256) & (0xFF << round(4 * amount))),
            "positive",
        ),
        "solarize": (
            lambda item, amount: _look_up_values(
                item, np.where(np.arange(256) >= 256 * (1 - amount), 255 - np.arange(256), np.arange(256))
            ),
            "positive",
        ),
        "saturation": (_by_matrix(saturation), "factor"),
        "contrast": (_by_matrix(contrast), "factor"),
        "brightness": (_by_matrix(brightness), "factor"),
        "sharpness": (_sharpen, "factor"),
        "shear_x": (_by_affine("shear_x", 0.3), "signed"),
        "shear_y": (_by_affine("shear_y", 0.3), "signed"),
        "shift_x": (_by_affine("shift_x", 0.45), "signed"),
        "shift_y": (_by_affine("shift_y", 0.45), "signed"),
    }

    def __init__(self, count: int = 2, magnitude: float = 9) -> None:
        if not 0 <= magnitude <= 30:
            raise ValueError(f"RandAugment: magnitude is 0 to 30, got {magnitude}")
        self.count, self.magnitude = count, magnitude

    def apply(self, item: Item, stream: Stream) -> None:
        choices = list(self.changes.values())
        for _ in range(self.count):
            change, kind = choices[stream.below(len(choices))]
            amount = self.magnitude / 30
            if kind != "positive" and stream.uniform() < 0.5:
                amount = -amount
            change(item, 0.9 * amount if kind == "factor" else amount)
