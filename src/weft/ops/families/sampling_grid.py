"""Images read at places that are computed: grids of places, samples at them, warps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed, weighted_sum
from weft.ops.families.interpolation import cubic, steps
from weft.ops.op import op
from weft.ops.pointwise import cast_to

PADDINGS = ("zeros", "border", "reflection")


def component(x: Any, k: int) -> Any:
    """x[..., k]."""
    return F.squeeze(F.slice(x, starts=(k,), stops=(k + 1,), axes=(-1,)), axis=-1)


def elements_at(x: Any, indices: Sequence[Any], zeros_beyond: bool) -> Any:
    """x[n, :, i, j, ...] at the places of integer arrays [n, *s], one for each spatial axis: [n, c, *s].

    zeros_beyond: 0 at places beyond the image; else the nearest element.
    """
    spatial = x.shape[2:]
    inside, flat = None, None
    for index, size in zip(indices, spatial, strict=True):
        if zeros_beyond:
            is_inside = F.logical_and(index >= 0, index < size)
            inside = is_inside if inside is None else F.logical_and(inside, is_inside)
        index = F.clip(index, 0, size - 1)  # those of places that are NaN, too
        flat = index if flat is None else flat * size + index
    assert flat is not None
    n, c = x.shape[:2]
    rows = F.reshape(x, shape=(n, c, x.size // max(n * c, 1)))
    y = F.take_along_axis(rows, F.reshape(flat, shape=(n, 1, -1)), axis=-1)
    y = F.reshape(y, shape=(n, c, *flat.shape[1:]))
    return y if inside is None else F.where(F.expand_dims(inside, axis=1), y, 0)


def reflected(place: Any, low: float, high: float) -> Any:
    """Places beyond low and high mirrored there, as often as needed."""
    span = high - low
    if span <= 0:
        return place * 0
    distance = F.abs(place - low)
    turns = F.floor(distance * (1 / span))
    rest = distance - turns * span
    return F.where(F.equal(turns - F.floor(turns * 0.5) * 2, 0), low + rest, high - rest)


def samples(
    x: Any,
    places: Sequence[Any],
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Any:
    """Images [n, c, *spatial] read between elements at places [n, *s], in elements, one array for each axis."""
    places = [cast_to(place, place.dtype.accumulation) for place in places]
    wide = cast_to(x, x.dtype.accumulation)

    def kept(place: Any, size: int) -> Any:
        """Within the image, as the padding mode has it."""
        if padding_mode == "zeros":
            return place
        if padding_mode == "reflection":
            ends = (0.0, float(size - 1)) if align_corners else (-0.5, size - 0.5)
            place = reflected(place, *ends)
        return F.clip(place, 0, size - 1)

    sizes = x.shape[2:]
    is_open = padding_mode == "zeros"
    if mode != "bicubic":
        places = [kept(place, n) for place, n in zip(places, sizes, strict=True)]
    if mode == "nearest":
        indices = [F.cast(F.round(place), dtype=int64) for place in places]
        return elements_at(x, indices, is_open)
    axes: list[list[tuple[Any, Any]]] = []  # of each axis (weight, index) of the elements around a place
    for place, n in zip(places, sizes, strict=True):
        first = F.floor(place)
        share = place - first
        if mode == "bicubic":
            around = [(cubic(F.abs(share - k), -0.75), kept(first + k, n)) for k in (-1, 0, 1, 2)]
        else:
            beyond = first + 1
            around = [(1 - share, first), (share, beyond if is_open else F.minimum(beyond, n - 1))]
        axes.append([(weight, F.cast(index, dtype=int64)) for weight, index in around])
    parts = []
    for corner in itertools.product(*axes):
        weight = corner[0][0]
        for other, _ in corner[1:]:
            weight = weight * other
        parts.append(
            (F.expand_dims(weight, axis=1), elements_at(wide, [index for _, index in corner], is_open))
        )
    return cast_to(weighted_sum(parts), x.dtype)


@op
class GridSample(
    Composed,
    family="sampling",
    rule="x: float, grid: float -> y: x",
    positional=("mode", "padding_mode", "align_corners"),
):
    """Images read at the places of a grid.

    x: float[n, c, h, w] or [n, c, d, h, w]; grid: float[n, *s, 2] or [n, *s, 3] with as many sizes, places (x, y) or
    (x, y, z) from -1 to 1 across the image: between the centers of the outer elements with align_corners=True, else
    between the image's edges. mode: "bilinear" (of volumes trilinear), "nearest" (halves to the even element) or
    "bicubic" (images; a = -3/4). padding_mode: what is beyond the image: "zeros", "border" (the nearest element),
    "reflection". Returns x's dtype, [n, c, *s]; at places that are NaN, NaN ("nearest": any element). Raises ShapeError
    if shapes do not fit, ValueError for another word, DTypeError for integers.
    Source: Jaderberg et al. 2015, Spatial transformer networks; PyTorch's grid_sample.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.grid_sample(wf.tensor([[[[1., 3.]]]]), wf.zeros((1, 1, 1, 2)))
    tensor([[[[2.]]]], dtype=float32, device=cpu:0)
    """

    mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    def check(self) -> None:
        if self.mode not in ("bilinear", "nearest", "bicubic"):
            raise ValueError(f"{self.name}: mode must be bilinear, nearest or bicubic, got {self.mode!r}")
        if self.padding_mode not in PADDINGS:
            accepted = ", ".join(PADDINGS)
            raise ValueError(
                f"{self.name}: padding_mode must be one of {accepted}, got {self.padding_mode!r}"
            )

    def decompose(self, x: Any, grid: Any) -> Any:
        self.require_ndim(*((4,) if self.mode == "bicubic" else (4, 5)), x=x)
        dims = x.ndim - 2
        if grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != dims:
            fact = f"grid must be [{x.shape[0]}, {', '.join('hwd'[:dims])}, {dims}]"
            raise self.fail(ShapeError, fact, x=x.type, grid=grid.type)
        if 0 in x.shape[2:]:
            raise self.fail(ShapeError, "x has no elements to read", x=x.type)
        places = []
        for k, n in enumerate(x.shape[2:]):
            place = cast_to(component(grid, dims - 1 - k), grid.dtype.accumulation)
            places.append((place + 1) * ((n - 1) / 2) if self.align_corners else ((place + 1) * n - 1) * 0.5)
        return samples(x, places, self.mode, self.padding_mode, self.align_corners)


@op
class AffineGrid(
    Composed, family="sampling", rule="theta: float -> y: theta", positional=("size", "align_corners")
):
    """The places that affine maps give to the elements of an image, for grid_sample.

    theta: float[n, 2, 3] for images or [n, 3, 4] for volumes; size: (n, c, h, w) or (n, c, d, h, w) of the image;
    align_corners: as grid_sample's. Returns theta's dtype, [n, h, w, 2] or [n, d, h, w, 3]: theta (x, y, 1) of the
    places (x, y) from -1 to 1. Raises ShapeError if theta does not fit the size.
    Source: Jaderberg et al. 2015, Spatial transformer networks; PyTorch's affine_grid.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.affine_grid(wf.tensor([[[1., 0., 0.], [0., 1., 0.]]]), (1, 1, 1, 2))
    tensor([[[[-0.5,  0. ],
              [ 0.5,  0. ]]]], dtype=float32, device=cpu:0)
    """

    size: tuple[int, ...]
    align_corners: bool = False

    def decompose(self, theta: Any) -> Any:
        dims = len(self.size) - 2
        if dims not in (2, 3) or theta.shape != (self.size[0], dims, dims + 1):
            fact = f"size {self.size} needs theta [n, 2, 3] or [n, 3, 4]"
            raise self.fail(ShapeError, fact, theta=theta.type)
        kind = theta.dtype.accumulation
        wide = F.reshape(cast_to(theta, kind), shape=(self.size[0], *(1,) * dims, dims, dims + 1))
        total = component(wide, dims)
        for k, n in enumerate(reversed(self.size[2:])):
            first, step = (-1.0, 2 / max(n - 1, 1)) if self.align_corners else (1 / n - 1, 2 / n)
            first = 0.0 if n == 1 else first
            place = cast_to(steps(theta, n) * step + first, kind)
            total = total + component(wide, k) * F.reshape(place, shape=(n, *(1,) * (k + 1)))
        return cast_to(total, theta.dtype)


__all__ = ["AffineGrid", "GridSample", "elements_at", "samples"]
