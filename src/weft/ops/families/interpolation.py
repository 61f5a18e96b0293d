"""Images in other sizes: one axis after the other, each as a weighted sum of a few slices of what came before."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base.dtype import float64, int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed, weighted_sum
from weft.ops.families.creation import Stepped
from weft.ops.op import op
from weft.ops.pointwise import cast_to

DIMS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
MODES = ("nearest", "nearest-exact", *DIMS, "area")
FEW = 4  # taps that are taken one by one and added in one loop


class Taps(NamedTuple):
    """Of each place along a new axis the indices along the old one that it is made of, and their weights."""

    indices: list[Any]
    weights: list[Any]


def steps(x: Any, count: int, dtype: Any = float64) -> Any:
    """0, 1, ..., count - 1, where x is."""
    return x.__weft_apply__(Stepped, (), {"shape": (count,), "dtype": dtype})


def cubic(distance: Any, a: float) -> Any:
    """Keys' kernel of cubic convolution of distances 0 ... 2, and 0 beyond."""
    inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    outer = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return F.where(distance <= 1, inner, F.where(distance < 2, outer, 0.0))


def triangle(distance: Any) -> Any:
    """1 - distance, and 0 from 1 on."""
    return F.maximum(1 - distance, 0.0)


def resampled(x: Any, axis: int, taps: Taps) -> Any:
    """The weighted sum of x's slices at the taps' indices, along an axis; without weights the slices themselves."""
    if not taps.weights:
        return F.take(x, taps.indices[0], axis=axis)
    behind = (1,) * (x.ndim - 1 - axis)
    weights = [cast_to(weight, x.dtype) for weight in taps.weights]
    if len(weights) <= FEW:
        slices = [F.take(x, indices, axis=axis) for indices in taps.indices]
        weights = [F.reshape(weight, shape=(-1, *behind)) for weight in weights]
        return weighted_sum(list(zip(weights, slices, strict=True)))
    slices = F.take(x, F.stack(taps.indices, axis=1), axis=axis)
    weights = F.reshape(F.stack(weights, axis=1), shape=(*slices.shape[axis : axis + 2], *behind))
    return F.sum(slices * weights, axis=axis + 1)


@op
class Interpolate(
    Composed,
    family="interpolation",
    rule="x -> y: x",
    positional=("size", "scale_factor", "mode", "align_corners"),
):
    """Images of other sizes, by the elements near each place or by averages.

    x: float[n, c, *s], any dtype for "nearest", with 1 to 3 spatial sizes; size: an int or the new sizes; or
    scale_factor: a number or one for each spatial axis, the new size is floor(n scale_factor). mode: "nearest" (element
    floor(i n / m)), "nearest-exact" (floor((i + 1/2) n / m)), "linear", "bilinear", "trilinear" (between the
    neighbours, for 1, 2, 3 spatial axes), "bicubic" (Keys' kernel with a = -3/4), "area" (averages, adaptive_avg_pool).
    Place i is at (i + 1/2) n / m - 1/2, with align_corners=True at i (n - 1) / (m - 1). antialias: where "bilinear" and
    "bicubic" (a = -1/2 then) make an image smaller, the kernel is as wide as n / m. Indices and weights are computed in
    float64, 16-bit floats in float32. Returns x's dtype, [n, c, *size]. Raises ShapeError for sizes that do not fit or
    are 0, ValueError for a mode or an option that does not apply, DTypeError for integers.
    Source: PyTorch's interpolate; Keys 1981, Cubic convolution interpolation for digital image processing.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.interpolate(wf.tensor([[[1., 3.]]]), 4, mode="linear")
    tensor([[[1. , 1.5, 2.5, 3. ]]], dtype=float32, device=cpu:0)
    """

    size: int | tuple[int, ...] | None = None
    scale_factor: float | tuple[float, ...] | None = None
    mode: str = "nearest"
    align_corners: bool | None = None
    antialias: bool = False

    def check(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"interpolate: mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if (self.size is None) == (self.scale_factor is None):
            raise ValueError("interpolate: needs either size or scale_factor")
        if self.align_corners is not None and self.mode not in DIMS:
            raise ValueError(f"interpolate: align_corners does not apply to mode={self.mode!r}")
        if self.antialias and (self.mode not in ("bilinear", "bicubic") or self.align_corners):
            raise ValueError(
                "interpolate: antialias is for mode='bilinear' and 'bicubic' without align_corners, got "
                f"mode={self.mode!r}, align_corners={self.align_corners}"
            )

    def new_sizes(self, spatial: Sequence[Any], x: Any) -> tuple[list[int], list[float]]:
        """The new sizes, and how far places are apart in the old image."""
        given: Any = self.size if self.scale_factor is None else self.scale_factor
        each = (given,) * len(spatial) if isinstance(given, int | float) else given
        if len(each) != len(spatial):
            raise self.fail(ShapeError, f"{len(each)} sizes or factors for {len(spatial)} axes", x=x.type)
        sizes = (
            list(each)
            if self.scale_factor is None
            else [math.floor(int(n) * f) for n, f in zip(spatial, each, strict=True)]
        )
        if any(n < 1 for n in (*spatial, *sizes)):
            fact = f"sizes must be at least 1, and are {tuple(spatial)} -> {tuple(sizes)}"
            raise self.fail(ShapeError, fact, x=x.type)
        if self.scale_factor is None:
            return sizes, [int(n) / m for n, m in zip(spatial, sizes, strict=True)]
        return sizes, [1 / f for f in each]

    def decompose(self, x: Any) -> Any:
        self.require_ndim(*((DIMS[self.mode] + 2,) if self.mode in DIMS else (3, 4, 5)), x=x)
        spatial = x.shape[2:]
        sizes, ratios = self.new_sizes(spatial, x)
        if self.mode == "area":
            average = getattr(F, f"adaptive_avg_pool{len(spatial)}d")
            return average(x, output_size=tuple(sizes))
        if not self.is_nearest:
            self.require_floats(x=x.type)
        y = x if self.is_nearest else cast_to(x, x.dtype.accumulation)
        for d in smallest_first(spatial, sizes):
            n, m = int(spatial[d]), sizes[d]
            if n != m or ratios[d] != 1:
                y = resampled(y, d + 2, self.taps(x, n, m, ratios[d]))
        return cast_to(y, x.dtype)

    @property
    def is_nearest(self) -> bool:
        """Whether elements are copied."""
        return self.mode.startswith("nearest")

    def taps(self, x: Any, n: int, m: int, ratio: float) -> Taps:
        """What each of m places along an axis of n elements is made of."""
        place = steps(x, m)
        if self.is_nearest:
            half = int(self.mode == "nearest-exact")
            if n / m == ratio:  # in integers, which are exact
                index = F.floor_divide(steps(x, m, int64) * (2 * n) + half * n, 2 * m)
            else:
                index = F.cast(F.floor((place + half / 2) * ratio), dtype=int64)
            return Taps([F.minimum(index, n - 1)], [])
        if self.antialias:
            return self.wide_taps(place, n, ratio)
        across = (n - 1) / (m - 1) if m > 1 else 0.0
        source = place * across if self.align_corners else (place + 0.5) * ratio - 0.5
        if self.mode != "bicubic":
            source = F.maximum(source, 0.0)
        share = source - F.floor(source)
        first = F.cast(F.floor(source), dtype=int64)
        if self.mode != "bicubic":
            return Taps([within(first, n), within(first + 1, n)], [1 - share, share])
        offsets = (-1, 0, 1, 2)
        return Taps(
            [within(first + k, n) for k in offsets], [cubic(F.abs(share - k), -0.75) for k in offsets]
        )

    def wide_taps(self, place: Any, n: int, ratio: float) -> Taps:
        """Those of a kernel that is as wide as places are apart, cut off at the image's ends."""
        is_cubic, width = self.mode == "bicubic", max(ratio, 1.0)
        radius = width * (2 if is_cubic else 1)
        center = (place + 0.5) * ratio
        first = F.cast(F.maximum(F.trunc(center - radius + 0.5), 0.0), dtype=int64)
        stop = F.minimum(F.cast(F.trunc(center + radius + 0.5), dtype=int64), n)
        indices = [first + k for k in range(min(2 * math.ceil(radius) + 1, n))]
        weights = []
        for index in indices:
            distance = F.abs(F.cast(index, dtype=float64) - center + 0.5) * (1 / width)
            weight = cubic(distance, -0.5) if is_cubic else triangle(distance)
            weights.append(F.where(index < stop, weight, 0.0))
        total = functools.reduce(F.add, weights)
        return Taps([within(k, n) for k in indices], [weight / total for weight in weights])


def smallest_first(spatial: Sequence[Any], sizes: Sequence[int]) -> list[int]:
    """The order of axes that has the smallest arrays in between; of equal ones those whose slices are long."""
    growth = [m / int(n) for n, m in zip(spatial, sizes, strict=True)]
    return sorted(range(len(sizes)), key=lambda d: (growth[d], d if growth[d] < 1 else -d))


def within(indices: Any, n: int) -> Any:
    """Indices beyond the ends become those of the ends."""
    return F.clip(indices, 0, n - 1)


__all__ = ["Interpolate"]
