"""Base of transforms: functions of a sample's picture, boxes and mask, and of the sample's random stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import _core
from weft.data import images
from weft.data.collator import rebuild_sequence
from weft.data.sample_context import stream

__all__ = ["MIN_AREA", "Compose", "Item", "RandomApply", "RandomChoice", "Transform", "pair"]

MIN_AREA = 0.25  # of a box that must stay in the picture
Stream = Any  # _core.SampleRandom


class Item:
    """A picture and what moves with it: the methods change all of them, so that transforms need not.

    image: u8[h, w, c]. boxes: [n, 4 or more], corners x0, y0, x1, y1 in pixels first. mask: [h, w, ...]. labels: [n],
    of the boxes; those of boxes that leave the picture are removed. Raises ValueError for other shapes.

    >>> item = Item(np.zeros((4, 6, 3), np.uint8), boxes=[[1, 1, 3, 2]])
    >>> item.flip(1)
    >>> item.boxes.tolist()
    [[3.0, 1.0, 5.0, 2.0]]
    """

    def __init__(
        self,
        image: np.ndarray,
        boxes: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ) -> None:
        self.image = images.pixels(image)
        self.boxes = None if boxes is None else np.array(boxes, np.float32).reshape(len(boxes), -1)
        self.mask, self.labels = mask, labels
        if self.boxes is not None and len(self.boxes) and self.boxes.shape[1] < 4:
            raise ValueError(f"boxes have 4 columns or more, got shape {self.boxes.shape}")
        if mask is not None and np.shape(mask)[:2] != self.image.shape[:2]:
            raise ValueError(f"the mask is {np.shape(mask)[:2]}, the picture {self.image.shape[:2]}")

    @property
    def size(self) -> tuple[int, int]:
        """(h, w)"""
        return self.image.shape[0], self.image.shape[1]

    def resize_part(
        self, part: Sequence[float], size: Sequence[int], filter: str, mirror: bool = False
    ) -> None:
        """Keep the part (y, x, h, w), in another size (h, w), mirrored or not."""
        y, x, h, w = part
        self.image = images.crop_resized(self.image, part, size, filter, mirror)
        if self.mask is not None:
            rows = np.clip(np.floor(y + (np.arange(size[0]) + 0.5) * h / size[0]), 0, self.mask.shape[0] - 1)
            columns = np.clip(
                np.floor(x + (np.arange(size[1]) + 0.5) * w / size[1]), 0, self.mask.shape[1] - 1
            )
            columns = columns[::-1] if mirror else columns
            self.mask = self.mask[np.ix_(rows.astype(np.int64), columns.astype(np.int64))]
        if self.boxes is not None:
            scale = np.array([size[1] / w, size[0] / h] * 2, np.float32)
            corners = (self.boxes[:, :4] - np.array([x, y] * 2, np.float32)) * scale
            if mirror:
                corners[:, [0, 2]] = size[1] - corners[:, [2, 0]]
            self._set_corners(corners)

    def crop(self, y: int, x: int, h: int, w: int) -> None:
        """Keep the part [y, y + h) x [x, x + w)."""
        self.image = self.image[y : y + h, x : x + w]
        if self.mask is not None:
            self.mask = self.mask[y : y + h, x : x + w]
        if self.boxes is not None:
            self._set_corners(self.boxes[:, :4] - np.array([x, y] * 2, np.float32))

    def flip(self, axis: int) -> None:
        """Mirror along an axis: 0 up and down, 1 left and right."""
        if axis == 1:
            mirrored = np.empty_like(self.image)
            _core.image_crop(self.image, mirrored, 0, 0, True)
            self.image = mirrored
        else:
            self.image = np.ascontiguousarray(self.image[::-1])
        if self.mask is not None:
            self.mask = np.flip(self.mask, axis)
        if self.boxes is not None:
            columns = [0, 2] if axis else [1, 3]
            self.boxes[:, columns] = self.size[axis] - self.boxes[:, columns[::-1]]

    def pad(self, top: int, bottom: int, left: int, right: int, fill: Any) -> None:
        """Add pixels of one colour at the edges; of a mask, zeros."""
        h, w = self.size
        image = np.empty((h + top + bottom, w + left + right, self.image.shape[2]), np.uint8)
        image[...] = fill
        image[top : top + h, left : left + w] = self.image
        self.image = image
        if self.mask is not None:
            widths = [(top, bottom), (left, right), *[(0, 0)] * (self.mask.ndim - 2)]
            self.mask = np.pad(self.mask, widths)
        if self.boxes is not None:
            self.boxes[:, :4] += np.array([left, top] * 2, np.float32)

    def warp(self, matrix: np.ndarray, size: Sequence[int], filter: str, fill: Any) -> None:
        """matrix f64[2, 3]: from a point (x, y) of the result to one of the picture; pixel centres at integers."""
        channels = self.image.shape[2]
        colour = np.broadcast_to(np.asarray(fill, np.uint8), (channels,)).tolist()
        image = np.empty((*size, channels), np.uint8)
        _core.image_warp(self.image, image, matrix.ravel().tolist(), filter, colour)
        if self.mask is not None:
            y, x = np.mgrid[: size[0], : size[1]]
            points = np.rint(
                np.einsum("ij,jyx->iyx", matrix[:, :2], np.stack([x, y])) + matrix[:, 2, None, None]
            )
            h, w = self.size
            is_inside = (points[0] >= 0) & (points[0] < w) & (points[1] >= 0) & (points[1] < h)
            source = points.astype(np.int64) * is_inside
            self.mask = np.where(is_inside, self.mask[source[1], source[0]], 0).astype(self.mask.dtype)
        self.image = image
        if self.boxes is not None:
            inverse = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))[:2]
            corners = self.boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2) - 0.5
            moved_corners = corners @ inverse[:, :2].T + inverse[:, 2] + 0.5
            self._set_corners(np.concatenate([moved_corners.min(axis=1), moved_corners.max(axis=1)], axis=1))

    def _set_corners(self, corners: np.ndarray) -> None:
        """Boxes at these corners, cut at the edges; those with less than MIN_AREA left are removed."""
        assert self.boxes is not None
        h, w = self.size
        clipped = np.clip(corners, 0, np.array([w, h] * 2, np.float32))
        area = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
        visible_area = np.prod(clipped[:, 2:] - clipped[:, :2], axis=1)
        is_visible = (visible_area > 0) & (visible_area >= MIN_AREA * area)
        self.boxes = np.concatenate([clipped, self.boxes[:, 4:]], axis=1)[is_visible].astype(np.float32)
        if self.labels is not None:
            self.labels = np.asarray(self.labels)[is_visible]


class Transform:
    """Base: a subclass writes apply(item, stream), which changes the item.

    stream.uniform(low, high), .below(n), .normal() draw from the sample's stream. What apply() returns instead of None
    takes the place of the picture: an array of any kind, after which no other transform of pictures can follow.

    >>> class Invert(Transform):
    ...     def apply(self, item, stream):
    ...         item.image = 255 - item.image
    >>> Invert()(np.full((1, 1, 1), 5, np.uint8)).tolist()
    [[[250]]]
    """

    def apply(self, item: Item, stream: Stream) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: has no apply()")

    def __call__(self, sample: Any) -> Any:
        if isinstance(sample, Mapping):
            item = Item(sample["image"], sample.get("boxes"), sample.get("mask"), sample.get("labels"))
            image = self.apply(item, stream())
            changed = {"image": item.image if image is None else image}
            for name in ("boxes", "mask", "labels"):
                if name in sample and getattr(item, name) is not None:
                    changed[name] = getattr(item, name)
            return {**sample, **changed}
        first = sample[0] if isinstance(sample, tuple | list) else sample
        item = Item(first)
        image = self.apply(item, stream())
        image = item.image if image is None else image
        return rebuild_sequence(sample, [image, *sample[1:]]) if isinstance(sample, tuple | list) else image


class Compose(Transform):
    """Transforms one after the other. Other callables may be among them: they are called with the picture.

    >>> invert = lambda image: 255 - image
    >>> Compose([invert, lambda image: image // 2])(np.zeros((1, 1, 1), np.uint8)).tolist()
    [[[127]]]
    """

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = list(transforms)

    def apply(self, item: Item, stream: Stream) -> Any:
        image = None
        for each in self.transforms:
            if not isinstance(each, Transform):
                image = each(item.image if image is None else image)
            elif image is not None:
                raise TypeError(
                    f"Compose: {type(each).__name__} cannot follow what gives no picture u8[h, w, c]"
                )
            else:
                image = each.apply(item, stream)
            if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3:
                item.image, image = images.pixels(image), None
        return image


class RandomApply(Transform):
    """Applies a transform with probability p.

    >>> from weft.data import transforms as T
    >>> RandomApply(T.Grayscale(), p=0.0)(np.full((1, 1, 3), 7, np.uint8)).tolist()
    [[[7, 7, 7]]]
    """

    def __init__(self, transform: Transform, p: float = 0.5) -> None:
        self.transform, self.p = transform, p

    def apply(self, item: Item, stream: Stream) -> Any:
        return self.transform.apply(item, stream) if stream.uniform() < self.p else None


class RandomChoice(Transform):
    """Applies one of several transforms, each equally likely.

    >>> from weft.data import transforms as T
    >>> RandomChoice([T.CenterCrop(2), T.Resize(2)])(np.zeros((8, 8, 3), np.uint8)).shape
    (2, 2, 3)
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = list(transforms)

    def apply(self, item: Item, stream: Stream) -> Any:
        return self.transforms[stream.below(len(self.transforms))].apply(item, stream)


def pair(value: Any) -> tuple[Any, Any]:
    """(value, value) of a number, the two of a pair."""
    if isinstance(value, int | float):
        return value, value
    first, second = value
    return first, second


def spread(value: Any, center: float = 1.0) -> tuple[float, float]:
    """Limits of a factor: (center - value, center + value), at least 0 around 1, of a number; a pair as it is."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"an amount of change is at least 0, got {value}")
        return (max(0.0, center - value) if center else -value), center + value
    low, high = value
    return low, high
