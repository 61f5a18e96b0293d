"""ONNX's operators on regions and windows of images: boxes, bins, places of maxima, columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import functional as F
from weft.arrays.creation import arange, asarray, zeros
from weft.interop.onnx.calls import Call, Known, converts, numbers, tensor
from weft.interop.onnx.elementwise import text


@converts("NonMaxSuppression")
def non_max_suppression(
    call: Call, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None
) -> Known:
    """On the host: how many boxes stay depends on the numbers. Rows are (image, class, box)."""
    corners, points = numbers(call, boxes).astype(np.float64), numbers(call, scores)

    def option(x: Any, default: float) -> float:
        return default if x is None else float(numbers(call, x).ravel()[0])

    if call.get("center_point_box", 0):
        middle, half = corners[..., :2], corners[..., 2:] / 2
        low, high = middle - half, middle + half
    else:
        low, high = (f(corners[..., :2], corners[..., 2:]) for f in (np.minimum, np.maximum))
    limit, threshold, floor = int(option(most, 0)), option(overlap, 0.0), option(least, -math.inf)
    rows = []
    for image, of_image in enumerate(points):
        for kind, of_class in enumerate(of_image):
            kept: list[int] = []
            for k in np.argsort(-of_class, kind="stable"):
                if len(kept) == limit or not of_class[k] > floor:
                    break
                if all(_overlap(low[image], high[image], k, j) <= threshold for j in kept):
                    kept.append(int(k))
            rows += [(image, kind, k) for k in kept]
    return Known(np.array(rows, np.int64).reshape(-1, 3))


def _overlap(low: Any, high: Any, a: int, b: int) -> float:
    """The common area of two boxes as a part of what they cover together."""
    sides = np.minimum(high[a], high[b]) - np.maximum(low[a], low[b])
    common = math.prod(np.maximum(sides, 0.0))
    both = math.prod(high[a] - low[a]) + math.prod(high[b] - low[b]) - common
    return float(common / both) if both > 0 else 0.0


@converts("RoiAlign")
def roi_align(call: Call, x: Any, boxes: Any, images: Any) -> Any:
    x, boxes, images = map(tensor, (x, boxes, images))
    points = call.get("sampling_ratio", 0)
    if points > 0:
        return _aligned(call, x, boxes, images, (points, points))
    # As many points as a bin has elements: regions with equal numbers are taken together, so boxes are waited for.
    counts, size = _points(call, numbers(call, boxes)), _bins(call)
    order: list[int] = []
    parts = [zeros((0, x.shape[1], *size), dtype=x.dtype)]
    for count in np.unique(counts, axis=0):
        places = np.nonzero((counts == count).all(axis=1))[0]
        if count.all():
            chosen = asarray(places)
            regions = F.take(boxes, chosen, axis=0), F.take(images, chosen, axis=0)
            parts.append(_aligned(call, x, *regions, (int(count[0]), int(count[1]))))
        else:
            parts.append(zeros((len(places), x.shape[1], *size), dtype=x.dtype))
        order += places.tolist()
    return F.take(F.concat(*parts, axis=0), asarray(np.argsort(np.array(order, np.int64))), axis=0)


def _bins(call: Call) -> tuple[int, int]:
    return call.get("output_height", 1), call.get("output_width", 1)


def _has_half_pixels(call: Call) -> bool:
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    return text(call.get("coordinate_transformation_mode", default)) == "half_pixel"


def _points(call: Call, boxes: Any) -> Any:
    """How many points a bin of each region has along rows and columns, without a number in the node: int64[k, 2]."""
    scaled = boxes * boxes.dtype.type(call.get("spatial_scale", 1.0))
    lengths = scaled[:, [3, 2]] - scaled[:, [1, 0]]
    if not np.isfinite(lengths).all():
        raise call.fail("boxes are not finite")
    if not _has_half_pixels(call):
        lengths = np.maximum(lengths, 1)
    return np.maximum(np.ceil(lengths / np.array(_bins(call), lengths.dtype)), 0).astype(np.int64)


def _aligned(call: Call, x: Any, boxes: Any, images: Any, points: tuple[int, int]) -> Any:
    """The mean of the points of each bin; of "max" the greatest of the four terms of any, as the reference has it."""
    is_max = text(call.get("mode", "avg")) == "max"
    half, size, scale = _has_half_pixels(call), _bins(call), call.get("spatial_scale", 1.0)
    if not is_max and points[0] == points[1]:
        options: dict[str, Any] = {"spatial_scale": scale, "points": points[0], "is_aligned": half}
        return F.roi_align(x, boxes, images, output_size=size, **options)
    count, (c, h, w) = boxes.shape[0], x.shape[1:]
    wide = x.astype("float32") if x.dtype.itemsize < 4 else x
    corners = boxes.astype(wide.dtype) * scale - (0.5 if half else 0.0)
    rows = _between(corners[:, 1], corners[:, 3], size[0] * points[0], int(h), half)
    columns = _between(corners[:, 0], corners[:, 2], size[1] * points[1], int(w), half)
    pixels = F.permute_dims(wide, axes=(0, 2, 3, 1)).reshape((-1, c))
    first = images.astype("int64").reshape((-1, 1, 1)) * (h * w)
    total: Any = None
    for row_weight, row in rows:
        for column_weight, column in columns:
            index = first + F.expand_dims(row * w, axis=-1) + F.expand_dims(column, axis=-2)
            weight = F.expand_dims(row_weight, axis=-1) * F.expand_dims(column_weight, axis=-2)
            term = F.take(pixels, index, axis=0) * F.expand_dims(weight, axis=-1)
            total = term if total is None else (F.maximum if is_max else F.add)(total, term)
    parted = total.reshape((count, size[0], points[0], size[1], points[1], c))
    bins = (F.max if is_max else F.mean)(parted, axis=(2, 4))
    return F.permute_dims(bins, axes=(0, 3, 1, 2)).astype(x.dtype)


def _between(start: Any, stop: Any, count: int, size: int, half: bool) -> list[tuple[Any, Any]]:
    """(weight, index) of the two elements around each of `count` points along an axis: [k, count]."""
    length = stop - start if half else F.maximum(stop - start, 1.0)
    share = (arange(count).astype(start.dtype) + 0.5) / float(count)
    place = F.expand_dims(start, axis=-1) + F.expand_dims(length, axis=-1) * share
    near = F.logical_and(place >= -1.0, place <= float(size)).astype(start.dtype)
    place = F.clip(place, 0.0, float(size - 1))
    low = F.floor(place)
    share, index = place - low, low.astype("int64")
    return [((1.0 - share) * near, index), (share * near, F.minimum(index + 1, size - 1))]


@converts("DeformConv")
def deform_conv(call: Call, x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    x, weight = tensor(x), tensor(weight)
    if weight.ndim != 4:
        raise call.fail(f"{weight.ndim - 2} spatial axes are not supported, only 2")
    pads = list(call.get("pads") or [0] * 4)
    return F.deformable_conv2d(
        x,
        tensor(offset),
        weight,
        tensor(bias),
        tensor(mask),
        stride=tuple(call.get("strides") or (1, 1)),
        padding=tuple(zip(pads[:2], pads[2:], strict=True)),
        dilation=tuple(call.get("dilations") or (1, 1)),
        groups=call.get("group", 1),
    )


@converts("Col2Im")
def col2im(call: Call, x: Any, image: Any, block: Any) -> Any:
    """Each element of a column is added to its place; those in the padding to a place behind the image."""
    x = tensor(x)
    sizes, kernel = ([int(n) for n in numbers(call, v)] for v in (image, block))
    count = len(sizes)
    strides, dilations = (list(call.get(key) or [1] * count) for key in ("strides", "dilations"))
    pads = list(call.get("pads") or [0] * (2 * count))
    places, is_inside = np.zeros((1,) * (2 * count), np.int64), np.array(True)
    for d, (n, k, s, r) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        steps = (n + pads[d] + pads[count + d] - (k - 1) * r - 1) // s + 1
        at = np.arange(k)[:, None] * r + np.arange(steps) * s - pads[d]
        at = at.reshape([k if a == d else steps if a == count + d else 1 for a in range(2 * count)])
        places, is_inside = places * n + at, is_inside & (at >= 0) & (at < n)
    total, channels = math.prod(sizes), x.shape[1] // math.prod(kernel)
    where = asarray(np.where(is_inside, places, total).reshape(-1))
    columns = x.reshape((x.shape[0] * channels, -1))
    start = zeros((columns.shape[0], total + 1), dtype=x.dtype)
    y = F.index_put(start, columns, where, axes=(1,), position=1, mode="add")
    return y[:, :total].reshape((x.shape[0], channels, *sizes))


def places_of_maxima(
    call: Call, indices: Any, sizes: Sequence[int], padded: Sequence[int], low: Sequence[int]
) -> Any:
    """Indices into padded images [n, c, ...] as indices into all of x; storage_order=1: columns first."""
    order = list(range(len(sizes)))[:: 1 if call.get("storage_order", 0) else -1]
    strides, step = dict.fromkeys(order, 1), 1
    for d in order:
        strides[d] = step
        step *= int(sizes[d])
    n, c = indices.shape[:2]
    total = arange(n * c).reshape((n, c, *[1] * len(sizes))) * step
    for d in reversed(range(len(sizes))):
        total = total + (F.remainder(indices, int(padded[d])) - low[d]) * strides[d]
        indices = F.floor_divide(indices, int(padded[d]))
    return total


@converts("MaxUnpool")
def max_unpool(call: Call, x: Any, indices: Any, shape: Any = None) -> Any:
    x = tensor(x)
    kernel = call.get("kernel_shape")
    count = len(kernel)
    strides, pads = list(call.get("strides") or [1] * count), list(call.get("pads") or [0] * (2 * count))
    sizes = [
        (int(n) - 1) * s + k - pads[d] - pads[count + d]
        for d, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    whole = (*x.shape[:2], *sizes)
    start = zeros((math.prod(whole),), dtype=x.dtype)
    y = F.index_put(
        start, x.reshape((-1,)), tensor(indices).reshape((-1,)), axes=(0,), position=0, mode="set"
    )
    y = y.reshape(whole)
    target = whole if shape is None else [int(n) for n in numbers(call, shape)]
    more = [n - m for n, m in zip(target, whole, strict=True)]
    if any(n < 0 for n in more):
        raise call.fail(f"output_shape {list(target)} is smaller than {list(whole)}")
    return F.pad(y, pad=tuple(n for k in reversed(more) for n in (0, k))) if any(more) else y
