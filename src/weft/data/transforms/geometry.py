"""Transforms that move pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.data.images import FILTERS
from weft.data.transforms.base import Item, Stream, Transform, pair, spread

__all__ = [
    "CenterCrop",
    "Pad",
    "RandomAffine",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShear",
    "RandomVerticalFlip",
    "Resize",
    "ShortestEdgeResize",
]


def checked_filter(filter: str) -> str:
    if filter not in FILTERS:
        raise ValueError(f"filter must be one of {', '.join(FILTERS)}, got {filter!r}")
    return filter


class Resize(Transform):
    """The picture in the size (h, w), or a square; see weft.data.images.resize for the filters.

    >>> Resize((10, 20))(np.zeros((5, 5, 3), np.uint8)).shape
    (10, 20, 3)
    """

    def __init__(self, size: int | Sequence[int], filter: str = "area") -> None:
        self.size, self.filter = pair(size), checked_filter(filter)

    def apply(self, item: Item, stream: Stream) -> None:
        item.resize_part((0, 0, *item.size), self.size, self.filter)


class ShortestEdgeResize(Transform):
    """The shorter edge becomes `size`, but the longer one at most `longest`; the ratio stays.

    >>> ShortestEdgeResize(10, longest=30)(np.zeros((20, 80, 3), np.uint8)).shape
    (8, 30, 3)
    """

    def __init__(self, size: int, longest: int | None = None, filter: str = "area") -> None:
        self.size, self.longest, self.filter = size, longest, checked_filter(filter)

    def apply(self, item: Item, stream: Stream) -> None:
        h, w = item.size
        scale = self.size / min(h, w)
        if self.longest is not None:
            scale = min(scale, self.longest / max(h, w))
        size = max(1, round(h * scale)), max(1, round(w * scale))
        item.resize_part((0, 0, h, w), size, self.filter)


def _room(item: Item, size: tuple[int, int], who: str) -> tuple[int, int]:
    """How far a part of this size can be moved down and to the right."""
    room = item.size[0] - size[0], item.size[1] - size[1]
    if min(room) < 0:
        raise ValueError(
            f"{who}: the picture is {item.size[0]} x {item.size[1]}, smaller than {size[0]} x {size[1]}"
        )
    return room


class CenterCrop(Transform):
    """The middle part of the size (h, w), or a square. Raises ValueError if the picture is smaller."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = pair(size)

    def apply(self, item: Item, stream: Stream) -> None:
        down, right = _room(item, self.size, "CenterCrop")
        item.crop(down // 2, right // 2, *self.size)


class RandomCrop(Transform):
    """A part of the size (h, w), or a square, anywhere; padding: pixels of colour `fill` added on each side before.

    Raises ValueError if the picture is smaller.
    """

    def __init__(self, size: int | Sequence[int], padding: int = 0, fill: Any = 0) -> None:
        self.size, self.padding, self.fill = pair(size), padding, fill

    def apply(self, item: Item, stream: Stream) -> None:
        if self.padding:
            n = self.padding
            item.pad(n, n, n, n, self.fill)
        down, right = _room(item, self.size, "RandomCrop")
        item.crop(stream.below(down + 1), stream.below(right + 1), *self.size)


class RandomResizedCrop(Transform):
    """A part with a random share of the area and ratio of the edges, in the size (h, w): Inception's crop.

    scale: limits of the share; ratio: of width to height, drawn evenly on a logarithmic scale. After 10 parts that do
    not fit, the largest one in the middle is taken whose ratio is within the limits.
    Source: Szegedy et al. 2015, Going Deeper with Convolutions.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        filter: str = "area",
    ) -> None:
        self.size, self.scale, self.ratio, self.filter = (
            pair(size),
            pair(scale),
            pair(ratio),
            checked_filter(filter),
        )

    def part(self, h: int, w: int, stream: Stream) -> tuple[int, int, int, int]:
        """(y, x, h, w) of a part of a picture of this size."""
        low, high = map(math.log, self.ratio)
        for _ in range(10):
            area = stream.uniform(*self.scale) * h * w
            ratio = math.exp(stream.uniform(low, high))
            part_w, part_h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < part_w <= w and 0 < part_h <= h:
                return stream.below(h - part_h + 1), stream.below(w - part_w + 1), part_h, part_w
        part_h, part_w = h, w
        if w / h < self.ratio[0]:
            part_h = max(1, min(h, round(w / self.ratio[0])))
        elif w / h > self.ratio[1]:
            part_w = max(1, min(w, round(h * self.ratio[1])))
        return (h - part_h) // 2, (w - part_w) // 2, part_h, part_w

    def apply(self, item: Item, stream: Stream) -> None:
        item.resize_part(self.part(*item.size, stream), self.size, self.filter)


class RandomHorizontalFlip(Transform):
    """Left and right exchanged, with probability p."""

    axis = 1

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def apply(self, item: Item, stream: Stream) -> None:
        if stream.uniform() < self.p:
            item.flip(self.axis)


class RandomVerticalFlip(RandomHorizontalFlip):
    """Up and down exchanged, with probability p."""

    axis = 0


class Pad(Transform):
    """Pixels of colour `fill` at the edges.

    padding: a number for all edges, or (top, bottom, left, right). size: at the bottom and the right, up to this size
    (h, w).

    >>> Pad(size=(4, 5))(np.zeros((2, 2, 1), np.uint8)).shape
    (4, 5, 1)
    """

    def __init__(
        self, padding: int | Sequence[int] = 0, fill: Any = 0, *, size: Sequence[int] | None = None
    ) -> None:
        self.padding = [padding] * 4 if isinstance(padding, int) else list(padding)
        self.fill, self.size = fill, size

    def apply(self, item: Item, stream: Stream) -> None:
        top, bottom, left, right = self.padding
        if self.size is not None:
            bottom = max(bottom, self.size[0] - item.size[0] - top)
            right = max(right, self.size[1] - item.size[1] - left)
        item.pad(top, bottom, left, right, self.fill)


class RandomAffine(Transform):
    """Rotation, shift, scaling and shear around the middle, in one pass; the size stays.

    degrees: largest rotation to either side, or limits. translate: largest shift as a share of (height, width), or of
    both. scale: limits of the factor. shear: largest angle in degrees, or limits. fill: the colour of what comes in.
    """

    def __init__(
        self,
        degrees: Any = 0,
        translate: Any = 0,
        scale: Any = (1.0, 1.0),
        shear: Any = 0,
        filter: str = "linear",
        fill: Any = 0,
    ) -> None:
        self.degrees, self.shear = spread(degrees, 0.0), spread(shear, 0.0)
        self.translate, self.scale = pair(translate), pair(scale)
        self.filter, self.fill = checked_filter(filter), fill

    def apply(self, item: Item, stream: Stream) -> None:
        h, w = item.size
        angle, shear = (math.radians(stream.uniform(*limits)) for limits in (self.degrees, self.shear))
        scale = stream.uniform(*self.scale)
        shift = [
            stream.uniform(-limit, limit) * size for limit, size in zip(self.translate, (h, w), strict=True)
        ]
        turned = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        forward = scale * turned @ np.array([[1, math.tan(shear)], [0, 1]])
        back = np.linalg.inv(forward)
        middle = np.array([(w - 1) / 2, (h - 1) / 2])
        offset = middle - back @ (middle + shift[::-1])
        item.warp(np.column_stack([back, offset]), (h, w), self.filter, self.fill)


class RandomRotation(RandomAffine):
    """Rotation around the middle by up to `degrees` to either side, or within limits."""

    def __init__(self, degrees: Any, filter: str = "linear", fill: Any = 0) -> None:
        super().__init__(degrees=degrees, filter=filter, fill=fill)


class RandomShear(RandomAffine):
    """Horizontal shear by an angle of up to `degrees` to either side, or within limits."""

    def __init__(self, degrees: Any, filter: str = "linear", fill: Any = 0) -> None:
        super().__init__(shear=degrees, filter=filter, fill=fill)
