"""Transforms that move pixels of pictures u8[h, w, c]; sizes and distances are in pixels."""

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


def _room(item: Item, size: tuple[int, int], name: str) -> tuple[int, int]:
    """The distances that a part of this size can be moved down and to the right."""
    room = item.size[0] - size[0], item.size[1] - size[1]
    if min(room) < 0:
        raise ValueError(
            f"{name}: the picture is {item.size[0]} x {item.size[1]}, smaller than {size[0]} x {size[1]}"
        )
    return room


class CenterCrop(Transform):
    """The middle part of a picture.

    size: (h, w), or a number for a square. Raises ValueError if the picture is smaller.

    >>> CenterCrop(2)(np.arange(16, dtype=np.uint8).reshape(4, 4, 1))[..., 0].tolist()
    [[5, 6], [9, 10]]
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = pair(size)

    def apply(self, item: Item, stream: Stream) -> None:
        down, right = _room(item, self.size, "CenterCrop")
        item.crop(down // 2, right // 2, *self.size)


class RandomCrop(Transform):
    """A part of a picture at a random position; each position is equally likely.

    size: (h, w), or a number for a square. padding: the number of pixels of colour `fill` that are added at each edge
    first. Raises ValueError if the padded picture is smaller.

    >>> RandomCrop(32, padding=4)(np.zeros((32, 32, 3), np.uint8)).shape
    (32, 32, 3)
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
    """A random part of a picture, resized to one size: Inception's crop.

    size: (h, w) of the result, or a number for a square. scale: limits of the part's share of the area; ratio: limits
    of width / height, drawn evenly on a logarithmic scale. After 10 parts that do not fit, the largest one in the
    middle is taken whose ratio is within the limits. filter: see weft.data.images.resize.
    Source: Szegedy et al. 2015, Going Deeper with Convolutions.

    >>> RandomResizedCrop(8)(np.zeros((20, 30, 3), np.uint8)).shape
    (8, 8, 3)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        filter: str = "area",
    ) -> None:
        self.size, self.scale, self.ratio = pair(size), pair(scale), pair(ratio)
        self.filter = checked_filter(filter)

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
    """Left and right exchanged, with probability p; boxes and masks move along.

    >>> RandomHorizontalFlip(p=1)(np.array([[[1], [2]]], np.uint8)).tolist()
    [[[2], [1]]]
    """

    axis = 1

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def apply(self, item: Item, stream: Stream) -> None:
        if stream.uniform() < self.p:
            item.flip(self.axis)


class RandomVerticalFlip(RandomHorizontalFlip):
    """Top and bottom exchanged, with probability p; boxes and masks move along.

    >>> RandomVerticalFlip(p=1)(np.array([[[1]], [[2]]], np.uint8)).tolist()
    [[[2]], [[1]]]
    """

    axis = 0


class Pad(Transform):
    """Pixels of one colour added at the edges.

    padding: a number for all edges, or (top, bottom, left, right). size: (h, w) that the picture is extended to, at the
    bottom and the right. fill: the colour, a number or one for each channel.

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
    """Random rotation, shift, scaling and shear around the middle, in one pass; the size stays.

    degrees: the largest rotation in either direction, or a pair of limits. translate: the largest shift as a share of
    the edges, one number or (of the height, of the width). scale: limits of the factor. shear: the largest angle in
    degrees, or a pair of limits. fill: the colour of pixels from outside of the picture.

    >>> RandomAffine(degrees=(180, 180))(np.array([[[1], [2]]], np.uint8)).tolist()
    [[[2], [1]]]
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
        rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        forward = scale * rotation @ np.array([[1, math.tan(shear)], [0, 1]])
        inverse = np.linalg.inv(forward)
        middle = np.array([(w - 1) / 2, (h - 1) / 2])
        offset = middle - inverse @ (middle + shift[::-1])
        item.warp(np.column_stack([inverse, offset]), (h, w), self.filter, self.fill)


class RandomRotation(RandomAffine):
    """Random rotation around the middle; degrees: the largest angle in either direction, or a pair of limits.

    >>> RandomRotation((180, 180))(np.array([[[1], [2]]], np.uint8)).tolist()
    [[[2], [1]]]
    """

    def __init__(self, degrees: Any, filter: str = "linear", fill: Any = 0) -> None:
        super().__init__(degrees=degrees, filter=filter, fill=fill)


class RandomShear(RandomAffine):
    """Random horizontal shear; degrees: the largest angle in either direction, or a pair of limits.

    >>> RandomShear(10)(np.zeros((4, 6, 1), np.uint8)).shape
    (4, 6, 1)
    """

    def __init__(self, degrees: Any, filter: str = "linear", fill: Any = 0) -> None:
        super().__init__(shear=degrees, filter=filter, fill=fill)
