"""Pooling over windows that are chosen so that the result has given sizes."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.interpolation import Taps, resampled, steps
from weft.ops.families.window import Spatial, set_per_dimension
from weft.ops.op import op
from weft.ops.pointwise import cast_to


class AdaptivePooling(
    Spatial,
    Composed,
    family="pooling",
    rule="x[n,c,i^spatial]: float -> y[n,c,*output_size]: x",
    positional=("output_size",),
):
    """Base: windows over x's last `spatial` dimensions, one axis after the other."""

    output_size: int | tuple[int, ...]

    def check(self) -> None:
        set_per_dimension(self, self.spatial, output_size=1)

    def require_image(self, x: Any) -> None:
        """Raise ShapeError unless x has the dimensions, and elements in them."""
        if x.ndim != self.spatial + 2 or any(isinstance(n, int) and n < 1 for n in x.shape[2:]):
            fact = f"x needs {self.spatial + 2} dimensions, those behind the second not empty"
            raise self.fail(ShapeError, fact, x=x.type)

    def regular(self, x: Any) -> tuple[int, ...] | None:
        """The size of all windows, where they are side by side and of one size."""
        size: Any = self.output_size
        pairs = list(zip(x.shape[2:], size, strict=True))
        return None if any(n % m for n, m in pairs) else tuple(n // m for n, m in pairs)


def windows_along(x: Any, n: int, m: int) -> tuple[Any, Any, int]:
    """The first elements of m windows that cover n, those behind their last, and the size of the largest one."""
    number = steps(x, m, int64)
    first = F.floor_divide(number * n, m)
    stop = F.floor_divide(number * n + (n + m - 1), m)
    return first, stop, max(-(-(k + 1) * n // m) - k * n // m for k in range(m))


class AdaptiveAveraging(AdaptivePooling):
    """Base of adaptive_avg_pool1d, 2d, 3d."""

    text = """Averages over windows of {an_image}, chosen so that the result has output_size.

    x: float[n, c, {sizes}]; output_size: an int or ({new_sizes}). Window i of m over n elements has floor(i n / m) ...
    ceil((i + 1) n / m) - 1. Returns x's dtype, [n, c, {new_sizes}]. Raises ShapeError unless x has {ndim} dimensions
    and is not empty behind the second.
    Source: Lin et al. 2013, Network in network, for an output_size of 1; PyTorch's adaptive_avg_pool{d}.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.adaptive_avg_pool{d}(wf.ones((1, 3, {x7})), 2).shape
    (1, 3, {x2})
    """

    def decompose(self, x: Any) -> Any:
        self.require_image(x)
        size: Any = self.output_size
        if (window := self.regular(x)) is not None:
            axes = tuple(range(2, x.ndim))
            is_all = window == tuple(x.shape[2:])
            return F.mean(x, axis=axes, keepdims=True) if is_all else self.pooled(x, window)
        y = cast_to(x, x.dtype.accumulation)
        for axis in range(
            2, x.ndim
        ):  # the first one first: whole rows are read, and fewer are left for the others
            first, stop, largest = windows_along(x, int(x.shape[axis]), size[axis - 2])
            share = 1 / cast_to(stop - first, y.dtype)
            taps = [F.minimum(first + k, stop - 1) for k in range(largest)]
            y = resampled(
                y, axis, Taps(taps, [F.where(first + k < stop, share, 0.0) for k in range(largest)])
            )
        return cast_to(y, x.dtype)

    def pooled(self, x: Any, window: tuple[int, ...]) -> Any:
        """Averages of windows side by side."""
        return getattr(F, f"avg_pool{self.spatial}d")(x, kernel_size=window)


class AdaptiveMaximum(AdaptivePooling, rule="x[n,c,i^spatial]: number -> y[n,c,*output_size]: x"):
    """Base of adaptive_max_pool1d, 2d, 3d."""

    text = """Maxima over windows of {an_image}, chosen so that the result has output_size.

    x: numbers [n, c, {sizes}]; output_size: an int or ({new_sizes}). Window i of m over n elements has floor(i n / m)
    ... ceil((i + 1) n / m) - 1. Returns x's dtype, [n, c, {new_sizes}]. Raises ShapeError unless x has {ndim}
    dimensions and is not empty behind the second.
    Source: PyTorch's adaptive_max_pool{d}.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.adaptive_max_pool{d}(wf.ones((1, 3, {x7})), 2).shape
    (1, 3, {x2})
    """

    def decompose(self, x: Any) -> Any:
        self.require_image(x)
        if (window := self.regular(x)) is not None:
            return getattr(F, f"max_pool{self.spatial}d")(x, kernel_size=window)
        for axis in range(2, x.ndim):
            x = F.max(self.windowed(x, axis), axis=axis + 1)
        return x

    def windowed(self, x: Any, axis: int) -> Any:
        """[..., n, ...] -> [..., m, k, ...]: the elements of each window, the last ones repeated in shorter windows."""
        size: Any = self.output_size
        first, stop, largest = windows_along(x, int(x.shape[axis]), size[axis - 2])
        taps = [F.minimum(first + k, stop - 1) for k in range(largest)]
        return F.take(x, F.stack(taps, axis=1), axis=axis)


class AdaptiveMaximumWithIndices(
    AdaptiveMaximum,
    rule="x[n,c,i^spatial]: number -> y[n,c,*output_size]: x, indices[n,c,*output_size]: int64",
):
    """Base of those that give the places of the maxima, too."""

    text = """Maxima and their places over windows of {an_image}, chosen so that the result has output_size.

    x: numbers [n, c, {sizes}]; output_size: an int or ({new_sizes}). Window i of m over n elements has floor(i n / m)
    ... ceil((i + 1) n / m) - 1. Returns x's dtype, [n, c, {new_sizes}], and the indices of the maxima in the flat
    {image}, int64 of that shape, of equal ones the first. Raises ShapeError unless x has {ndim} dimensions and is not
    empty behind the second.
    Source: PyTorch's adaptive_max_pool{d}.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.adaptive_max_pool{d}_with_indices(wf.ones((1, 3, {x7})), 2)[1].shape
    (1, 3, {x2})
    """

    def decompose(self, x: Any) -> Any:
        self.require_image(x)
        step, indices = 1, None
        for axis in range(x.ndim - 1, 1, -1):
            at = F.reshape(steps(x, x.shape[axis], int64) * step, shape=(-1,) + (1,) * (x.ndim - 1 - axis))
            step = step * x.shape[axis]
            indices = F.broadcast_to(at, shape=x.shape) if indices is None else indices + at
            elements, places = self.windowed(x, axis), self.windowed(indices, axis)
            which = F.argmax(elements, axis=axis + 1, keepdims=True)
            x, indices = (
                F.squeeze(F.take_along_axis(v, which, axis=axis + 1), axis=axis + 1)
                for v in (elements, places)
            )
        return x, indices


@op
class AdaptiveAvgPool1d(AdaptiveAveraging, spatial=1): ...


@op
class AdaptiveAvgPool2d(AdaptiveAveraging, spatial=2): ...


@op
class AdaptiveAvgPool3d(AdaptiveAveraging, spatial=3): ...


@op
class AdaptiveMaxPool1d(AdaptiveMaximum, spatial=1): ...


@op
class AdaptiveMaxPool2d(AdaptiveMaximum, spatial=2): ...


@op
class AdaptiveMaxPool3d(AdaptiveMaximum, spatial=3): ...


@op
class AdaptiveMaxPool1dWithIndices(AdaptiveMaximumWithIndices, spatial=1): ...


@op
class AdaptiveMaxPool2dWithIndices(AdaptiveMaximumWithIndices, spatial=2): ...


@op
class AdaptiveMaxPool3dWithIndices(AdaptiveMaximumWithIndices, spatial=3): ...


__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool1dWithIndices",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool2dWithIndices",
    "AdaptiveMaxPool3d",
    "AdaptiveMaxPool3dWithIndices",
]
