"""Images read at places that are computed: grids of places, samples at them, warps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

from weft.base.dtype import DType, int32, int64
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


def place_dtype(sizes: Sequence[Any]) -> DType:
    """The integers that count the elements of an image: short ones take half of the memory and time."""
    return int32 if all(isinstance(n, int) for n in sizes) and math.prod(sizes) < 1 << 31 else int64


def elements_at(x: Any, indices: Sequence[Any], zeros_beyond: bool) -> Any:
    """x[n, :, i, j, ...] at the places of integer arrays [n, k], one for each spatial axis: [n, c, k].

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
    y = F.take_along_axis(rows, F.expand_dims(flat, axis=1), axis=-1)
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
    # One axis of places, and no reshaping between the reads and the sum, which become one loop.
    shape = (*x.shape[:2], *places[0].shape[1:])
    count = math.prod(shape[2:])
    places = [
        cast_to(F.reshape(place, shape=(shape[0], count)), place.dtype.accumulation) for place in places
    ]
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
    integer = place_dtype(sizes)
    is_open = padding_mode == "zeros"
    if is_open:  # there is nothing beyond, at infinity as well, whose share between two elements would be NaN
        places = [F.clip(place, -3.0, n + 2.0) for place, n in zip(places, sizes, strict=True)]
    if mode != "bicubic":
        places = [kept(place, n) for place, n in zip(places, sizes, strict=True)]
    if mode == "nearest":
        indices = [F.cast(F.round(place), dtype=integer) for place in places]
        return F.reshape(elements_at(x, indices, is_open), shape=shape)
    axes: list[list[tuple[Any, Any]]] = []  # of each axis (weight, index) of the elements around a place
    for place, n in zip(places, sizes, strict=True):
        first = F.floor(place)
        share = place - first
        if mode == "bicubic":
            around = [(cubic(F.abs(share - k), -0.75), kept(first + k, n)) for k in (-1, 0, 1, 2)]
        else:
            beyond = first + 1
            around = [(1 - share, first), (share, beyond if is_open else F.minimum(beyond, n - 1))]
        axes.append([(weight, F.cast(index, dtype=integer)) for weight, index in around])
    parts = []
    for corner in itertools.product(*axes):
        weight = corner[0][0]
        for other, _ in corner[1:]:
            weight = weight * other
        parts.append(
            (F.expand_dims(weight, axis=1), elements_at(wide, [index for _, index in corner], is_open))
        )
    return F.reshape(cast_to(weighted_sum(parts), x.dtype), shape=shape)


class Sampling(Composed, family="sampling"):
    """Base: images read at places, as a mode and a padding mode have it."""

    mode: str = "bilinear"
    padding_mode: str = "zeros"

    def check(self) -> None:
        if self.mode not in ("bilinear", "nearest", "bicubic") or self.padding_mode not in PADDINGS:
            accepted = ", ".join(PADDINGS)
            raise ValueError(
                f"{self.name}: mode must be bilinear, nearest or bicubic, padding_mode must be one of {accepted}; "
                f"got {self.mode!r} and {self.padding_mode!r}"
            )

    def require_elements(self, x: Any) -> None:
        """Raise ShapeError for images without elements."""
        if 0 in x.shape[2:]:
            raise self.fail(ShapeError, "x has no elements to read", x=x.type)


@op
class GridSample(
    Sampling,
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

    align_corners: bool = False

    def decompose(self, x: Any, grid: Any) -> Any:
        self.require_ndim(*((4,) if self.mode == "bicubic" else (4, 5)), x=x)
        dims = x.ndim - 2
        if grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != dims:
            fact = f"grid must be [{x.shape[0]}, {', '.join('hwd'[:dims])}, {dims}]"
            raise self.fail(ShapeError, fact, x=x.type, grid=grid.type)
        self.require_elements(x)
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


def grid_of(places: Any) -> Any:
    """[n, 2, h, w], x and y, as grid_sample's [n, h, w, 2]."""
    return F.permute_dims(places, axes=(0, 2, 3, 1))


@op
class GridGenerator(Composed, family="sampling", rule="x: float -> y: x"):
    """Grids of places from -1 to 1, for bilinear_sampler.

    kind "affine": x: float[n, 6], the rows of affine maps one after the other, of the grid with the size (h, w); kind
    "warp": x: float[n, 2, h, w], how far, in elements, each place is from its element. Returns x's dtype, [n, 2, h, w]:
    x, then y of the places; -1 and 1 are the middles of the first and the last element. Raises ShapeError if x does not
    fit the kind, ValueError if a size is missing or given without need.
    Source: MXNet's GridGenerator; Jaderberg et al. 2015, Spatial transformer networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.grid_generator(wf.tensor([[1., 0., 0., 0., 1., 0.]]), size=(1, 3))[0, 0]
    tensor([[-1.,  0.,  1.]], dtype=float32, device=cpu:0)
    """

    kind: Literal["affine", "warp"] = "affine"
    size: tuple[int, ...] | None = None

    def check(self) -> None:
        if (self.kind == "affine") != (self.size is not None and len(self.size) == 2):
            raise ValueError(
                f"{self.name}: kind {self.kind!r} with size {self.size}; affine maps need (h, w)"
            )

    def decompose(self, x: Any) -> Any:
        if self.kind == "affine":
            size: Any = self.size
            if x.ndim != 2 or x.shape[1] != 6:
                raise self.fail(ShapeError, "affine maps are [n, 6]", x=x.type)
            theta = F.reshape(x, shape=(-1, 2, 3))
            grid = F.affine_grid(theta, size=(x.shape[0], 1, *size), align_corners=True)
            return F.permute_dims(grid, axes=(0, 3, 1, 2))
        if x.ndim != 4 or x.shape[1] != 2:
            raise self.fail(ShapeError, "a warp is [n, 2, h, w]", x=x.type)
        parts = []
        wide = cast_to(x, x.dtype.accumulation)
        for k, axis in enumerate((3, 2)):
            part = F.squeeze(F.slice(wide, starts=(k,), stops=(k + 1,), axes=(1,)), axis=1)
            place = part + cast_to(F.places_like(part, axis=axis - 1), wide.dtype)
            parts.append(place * (2 / max(x.shape[axis] - 1, 1)) - 1)
        return cast_to(F.stack(parts, axis=1), x.dtype)


@op
class BilinearSampler(Composed, family="sampling", rule="x: float, grid: float -> y: x"):
    """Images read between elements at the places of a grid, 0 beyond the image.

    x: float[n, c, h, w]; grid: float[n, 2, h', w'], x and y of places; -1 and 1 are the middles of the first and the
    last element. Returns x's dtype, [n, c, h', w']. Raises ShapeError if they do not fit.
    Source: MXNet's BilinearSampler; Jaderberg et al. 2015, Spatial transformer networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.bilinear_sampler(wf.tensor([[[[1., 3.]]]]), wf.zeros((1, 2, 1, 1)))
    tensor([[[[2.]]]], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any, grid: Any) -> Any:
        self.require_ndim(4, x=x, grid=grid)
        if grid.shape[:2] != (x.shape[0], 2):
            fact = f"grid must be [{x.shape[0]}, 2, h, w]"
            raise self.fail(ShapeError, fact, x=x.type, grid=grid.type)
        return F.grid_sample(x, grid_of(grid), align_corners=True)


@op
class SpatialTransformer(
    Composed, family="sampling", rule="x: float, theta: float -> y: x", positional=("size",)
):
    """Images mapped by affine maps that a network gives: bilinear_sampler at the places of grid_generator.

    x: float[n, c, h, w]; theta: float[n, 6], the two rows of each map; size: (h', w') of the result. Returns x's dtype,
    [n, c, h', w']. Raises ShapeError if they do not fit.
    Source: Jaderberg et al. 2015, Spatial transformer networks; MXNet's SpatialTransformer.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.spatial_transformer(wf.tensor([[[[1., 3.]]]]), wf.tensor([[1., 0., 0., 0., 1., 0.]]), (1, 3))
    tensor([[[[1., 2., 3.]]]], dtype=float32, device=cpu:0)
    """

    size: tuple[int, ...]

    def decompose(self, x: Any, theta: Any) -> Any:
        return F.bilinear_sampler(x, F.grid_generator(theta, size=self.size))


@op
class Remap(Sampling, rule="x: float, places: float -> y: x"):
    """Images read between elements at given places.

    x: float[n, c, h, w]; places: float[n, h', w', 2], (x, y) in elements of the image, 0 being the middle of the first;
    mode and padding_mode: as grid_sample's. Returns x's dtype, [n, c, h', w']. Raises ShapeError if they do not fit,
    ValueError for another word.
    Source: OpenCV's and MegEngine's remap.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.remap(wf.tensor([[[[1., 3.]]]]), wf.tensor([[[[0.5, 0.]]]]))
    tensor([[[[2.]]]], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any, places: Any) -> Any:
        self.require_ndim(4, x=x, places=places)
        self.require_elements(x)
        if places.shape[0] != x.shape[0] or places.shape[3] != 2:
            fact = f"places must be [{x.shape[0]}, h, w, 2]"
            raise self.fail(ShapeError, fact, x=x.type, places=places.type)
        return samples(x, [component(places, 1), component(places, 0)], self.mode, self.padding_mode, True)


class Warp(Sampling, rule="x: float, matrix: float -> y: x", positional=("size",)):
    """Base: images read at places that a matrix gives for each element of the result."""

    size: tuple[int, ...]

    rows = 3

    def check(self) -> None:
        super().check()
        if len(self.size) != 2 or min(self.size) < 0:
            raise ValueError(f"{self.name}: size is (height, width), got {self.size}")

    def decompose(self, x: Any, matrix: Any) -> Any:
        self.require_ndim(4, x=x)
        self.require_elements(x)
        if matrix.shape != (x.shape[0], self.rows, 3):
            raise self.fail(ShapeError, f"needs matrices [n, {self.rows}, 3]", x=x.type, matrix=matrix.type)
        kind = matrix.dtype.accumulation
        wide = F.reshape(cast_to(matrix, kind), shape=(x.shape[0], 1, 1, self.rows, 3))
        across, down = (
            F.reshape(F.cast(steps(x, n), dtype=kind), shape=shape)
            for n, shape in ((self.size[1], (1, 1, -1)), (self.size[0], (1, -1, 1)))
        )
        parts = [component(wide, k) for k in range(3)]
        mapped = [
            component(parts[0], r) * across + component(parts[1], r) * down + component(parts[2], r)
            for r in range(self.rows)
        ]
        places = [mapped[1], mapped[0]] if self.rows == 2 else [mapped[1] / mapped[2], mapped[0] / mapped[2]]
        return samples(x, places, self.mode, self.padding_mode, True)


@op
class WarpAffine(Warp):
    """Images mapped by matrices: element (x, y) of the result is read at matrix (x, y, 1), in elements of the image.

    x: float[n, c, h, w]; matrix: float[n, 2, 3]; size: (height, width) of the result; mode and padding_mode: as
    grid_sample's. Returns x's dtype, [n, c, *size]. Raises ShapeError if sizes do not fit, ValueError for another word.
    Source: Hartley, Zisserman 2004, Multiple view geometry in computer vision, 2.4.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.warp_affine(wf.tensor([[[[1., 2., 3.]]]]), wf.tensor([[[1., 0., 1.], [0., 1., 0.]]]), (1, 2))
    tensor([[[[2., 3.]]]], dtype=float32, device=cpu:0)
    """

    rows = 2


@op
class WarpPerspective(Warp):
    """Images mapped by projective matrices, read at the places that these give.

    Element (x, y) of the result is read at (u / t, v / t), (u, v, t) being matrix (x, y, 1), in elements of the image.
    x: float[n, c, h, w]; matrix: float[n, 3, 3]; size: (height, width) of the result; mode and padding_mode: as
    grid_sample's. Returns x's dtype, [n, c, *size]; NaN where t is 0. Raises ShapeError if sizes do not fit, ValueError
    for another word.
    Source: Hartley, Zisserman 2004, Multiple view geometry in computer vision, 2.3.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> shift = wf.tensor([[[1., 0., 1.], [0., 1., 0.], [0., 0., 1.]]])
    >>> F.warp_perspective(wf.tensor([[[[1., 2., 3.]]]]), shift, (1, 2))
    tensor([[[[2., 3.]]]], dtype=float32, device=cpu:0)
    """


__all__ = [
    "AffineGrid",
    "BilinearSampler",
    "GridGenerator",
    "GridSample",
    "Remap",
    "SpatialTransformer",
    "WarpAffine",
    "WarpPerspective",
    "component",
    "elements_at",
    "samples",
]
