"""ONNX's Resize: each axis is a product with a matrix of weights, which is made on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft import functional as F
from weft.arrays.creation import asarray
from weft.interop.onnx.calls import Call, converts, numbers, tensor
from weft.interop.onnx.elementwise import text


class Axis(NamedTuple):
    """One axis: its number, its new size, the factor between sizes, and the part that is read (tf_crop_and_resize)."""

    axis: int
    size: int
    factor: float
    start: float = 0.0
    end: float = 1.0


@converts("Resize", "Upsample")
def resize(call: Call, x: Any, *inputs: Any) -> Any:
    x = tensor(x)
    roi = sizes = None
    if call.operator == "Upsample" or call.opset < 11:
        scales = inputs[0] if inputs else None
        factors = call.get("scales") if scales is None else numbers(call, scales)
        coordinates, nearest = "asymmetric", "floor"
    else:
        roi, scales, sizes = ([*inputs, None, None, None])[:3]
        factors = [] if scales is None else numbers(call, scales)
        coordinates = text(call.get("coordinate_transformation_mode", "half_pixel"))
        nearest = text(call.get("nearest_mode", "round_prefer_floor"))
    given = None if sizes is None else [int(n) for n in numbers(call, sizes)]
    for axis in _axes(call, x, [float(f) for f in factors], given, roi if "crop" in coordinates else None):
        if axis.size != int(x.shape[axis.axis]) or axis.factor != 1 or "crop" in coordinates:
            x = _resized(call, x, axis, coordinates, nearest)
    return x


def _axes(call: Call, x: Any, factors: list[float], sizes: list[int] | None, roi: Any) -> list[Axis]:
    axes = [a % x.ndim for a in call.get("axes") or range(x.ndim)]
    shape = [int(x.shape[a]) for a in axes]
    region = [0.0] * len(axes) + [1.0] * len(axes) if roi is None else [float(n) for n in numbers(call, roi)]
    starts, ends = region[: len(axes)], region[len(axes) :]
    policy = text(call.get("keep_aspect_ratio_policy", "stretch"))
    if not factors:
        assert sizes is not None
        factors = [n / m for n, m in zip(sizes, shape, strict=True)]
        if policy != "stretch":
            if policy not in ("not_larger", "not_smaller"):
                raise call.fail(f"keep_aspect_ratio_policy {policy!r} is not supported")
            factors = [(min if policy == "not_larger" else max)(factors)] * len(axes)
            sizes = [math.floor(f * m + 0.5) for f, m in zip(factors, shape, strict=True)]
    if sizes is None or not sizes:
        parts = zip(shape, factors, starts, ends, strict=True)
        sizes = [math.floor(m * f * (end - start)) for m, f, start, end in parts]
    return [Axis(*each) for each in zip(axes, sizes, factors, starts, ends, strict=True)]


def _sources(call: Call, axis: Axis, size: int, coordinates: str) -> Any:
    """Where in the axis each new element is read, between elements."""
    n, factor = axis.size, axis.factor
    at = np.arange(n, dtype=np.float64)
    last, middle = size - 1, (axis.start + axis.end) / 2
    places: dict[str, Callable[[], Any]] = {
        "half_pixel": lambda: (at + 0.5) / factor - 0.5,
        "half_pixel_symmetric": lambda: size / 2 * (1 - n / (factor * size)) + (at + 0.5) / factor - 0.5,
        "pytorch_half_pixel": lambda: (at + 0.5) / factor - 0.5 if n > 1 else at * 0,
        "asymmetric": lambda: at / factor,
        "align_corners": lambda: at * last / (factor * size - 1) if n > 1 else at * 0,
        "tf_crop_and_resize": lambda: (
            axis.start * last + at * ((axis.end - axis.start) * last / (n - 1))
            if n > 1
            else at + middle * last
        ),
    }
    if coordinates not in places:
        raise call.fail(f"coordinate_transformation_mode {coordinates!r} is not supported")
    return places[coordinates]()


def _resized(call: Call, x: Any, axis: Axis, coordinates: str, nearest: str) -> Any:
    size, mode = int(x.shape[axis.axis]), text(call.get("mode", "nearest"))
    source = _sources(call, axis, size, coordinates)
    if mode == "nearest":
        rounded = {
            "floor": lambda: np.floor(source),
            "ceil": lambda: np.ceil(source),
            "round_prefer_floor": lambda: np.ceil(source - 0.5),
            "round_prefer_ceil": lambda: np.floor(source + 0.5),
        }
        places = np.clip(rounded[nearest](), 0, size - 1).astype(np.int64)
        y = F.take(x, asarray(places), axis=axis.axis)
    else:
        wide = x.astype("float32") if x.dtype.itemsize < 4 else x
        weights = asarray(_weights(call, source, size, axis.factor, mode)).astype(wide.dtype)
        y = F.moveaxis(F.tensordot(wide, weights, axes=((axis.axis,), (1,))), -1, axis.axis).astype(x.dtype)
    is_outside = (source < 0) | (source > size - 1)
    if coordinates != "tf_crop_and_resize" or not is_outside.any():
        return y
    outside = asarray(is_outside.reshape((-1,) + (1,) * (x.ndim - 1 - axis.axis)))
    return F.where(outside, call.get("extrapolation_value", 0.0), y).astype(x.dtype)


def _weights(call: Call, source: Any, size: int, factor: float, mode: str) -> Any:
    """The weights [new elements, elements]; antialias: the filter is as much wider as the axis becomes shorter."""
    a = call.get("cubic_coeff_a", -0.75)

    def linear(t: Any) -> Any:
        return np.maximum(1 - np.abs(t), 0.0)

    def cubic(t: Any) -> Any:
        t = np.abs(t)
        inner = ((a + 2) * t - (a + 3)) * t * t + 1
        return np.where(t <= 1, inner, np.where(t < 2, a * (((t - 5) * t + 8) * t - 4), 0.0))

    if mode not in ("linear", "cubic"):
        raise call.fail(f"mode {mode!r} is not supported")
    filter, radius = (linear, 1) if mode == "linear" else (cubic, 2)
    width = min(factor, 1.0) if call.get("antialias", 0) else 1.0
    base = np.floor(source)
    reach = math.ceil(radius / width)
    taps = [(k, filter((k - (source - base)) * width)) for k in range(1 - reach, reach + 1)]
    if call.get("exclude_outside", 0):
        taps = [(k, np.where((base + k >= 0) & (base + k < size), w, 0.0)) for k, w in taps]
    if call.get("exclude_outside", 0) or width < 1:
        total: Any = sum(w for _, w in taps)
        taps = [(k, w / total) for k, w in taps]
    weights = np.zeros((len(source), size))
    for k, w in taps:
        np.add.at(weights, (np.arange(len(source)), np.clip(base + k, 0, size - 1).astype(int)), w)
    return weights
