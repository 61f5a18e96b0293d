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
    mode, points = text(call.get("mode", "avg")), call.get("sampling_ratio", 0)
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    if mode != "avg" or points < 1:
        raise call.fail(f"mode {mode!r} with sampling_ratio {points} is not supported, only 'avg' from 1 on")
    return F.roi_align(
        tensor(x),
        tensor(boxes),
        tensor(images),
        output_size=(call.get("output_height", 1), call.get("output_width", 1)),
        spatial_scale=call.get("spatial_scale", 1.0),
        points=points,
        is_aligned=text(call.get("coordinate_transformation_mode", default)) == "half_pixel",
    )


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
