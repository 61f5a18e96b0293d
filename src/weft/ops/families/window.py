"""Sliding windows over images: the common base of convolutions and pooling, and both in terms of views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple

from weft.ops import functions as F
from weft.ops.families.shape import Viewing
from weft.ops.kernels import Parts
from weft.ops.op import Op, op
from weft.ops.types import TensorType

__all__ = ["SlidingWindows", "Spatial", "Spread", "Windows", "set_per_dimension", "windows_of"]


class Windows(NamedTuple):
    """Of every spatial dimension: the window's size, its step, the padding at both ends, its elements' distance."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def padding(self) -> list[tuple[int, int]]:
        """As the native core takes it."""
        return list(zip(self.low, self.high, strict=True))

    @property
    def extents(self) -> tuple[int, ...]:
        """What a window covers, with its gaps."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.size, self.dilation, strict=True))

    def number(self, spatial: Sequence[Any]) -> tuple[Any, ...]:
        """How many windows there are along each dimension; below 1 where none fits.

        >>> Windows((3,), (2,), (1,), (1,), (1,)).number((5,))
        (3,)
        """
        sizes = zip(spatial, self.low, self.high, self.extents, self.stride, strict=True)
        return tuple((n + low + high - extent) // step + 1 for n, low, high, extent, step in sizes)


def _words(dimensions: int) -> dict[str, str]:
    """What texts on operators of so many spatial dimensions say."""
    sizes, k = ("l", "h, w", "d, h, w")[dimensions - 1], dimensions
    return {
        "d": f"{k}d",
        "image": ("sequence", "image", "volume")[k - 1],
        "an_image": ("a sequence", "an image", "a volume")[k - 1],
        "ndim": str(k + 2),
        "sizes": sizes,
        "new_sizes": ", ".join(f"{n}'" for n in sizes.split(", ")),
        "kernel": ", ".join(f"k{n}" for n in sizes.split(", ")),
        "size": sizes[0],
        "more": ", ..." * (k > 1),
        "ints": "an int" if k == 1 else f"an int or {k} of them",
        **{f"x{n}": ", ".join([str(n)] * k) for n in range(10)},
        "halves": str(2**k),
    }


class Spatial(Op):
    """Base of operators on sequences, images and volumes; a class of theirs is for one number of dimensions: spatial=2.

    text: the documentation of all of them, where {image}, {sizes}, {ints} ... are words of the number of dimensions,
    and {x3} is as many 3s.
    """

    spatial: ClassVar[int] = 0
    text: ClassVar[str] = ""

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__(**declared)
        if "spatial" in declared:
            cls.__doc__ = cls.text.format_map(_words(cls.spatial))


def set_per_dimension(op: Op, spatial: int, **least: int) -> None:
    """Bring attributes of an operator into the form of one number for each spatial dimension.

    least: the least number, by the name of the attribute. Raises ValueError for smaller ones or another number of them.
    """
    for name, lowest in least.items():
        value = getattr(op, name)
        numbers = (value,) * spatial if isinstance(value, int) else tuple(value)
        if len(numbers) != spatial or any(n < lowest for n in numbers):
            raise ValueError(
                f"{op.name}: {name} must be an int or {spatial} of them, at least {lowest}: got {value}"
            )
        op.set(name, numbers)


@op
class SlidingWindows(Viewing, public=False):
    """A view with the elements of windows in new last dimensions; windows may overlap.

    x: [..., *spatial]; start: the first element of the first window; count: of windows; size, stride, dilation: theirs;
    a dilation below 0 counts backwards. All must be inside x. Returns [..., *count, *size].
    """

    start: tuple[int, ...]
    count: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        lead = len(shape) - len(self.size)
        outer = tuple(s * step for s, step in zip(strides[lead:], self.stride, strict=True))
        inner = tuple(s * d for s, d in zip(strides[lead:], self.dilation, strict=True))
        offset = sum(s * n for s, n in zip(strides[lead:], self.start, strict=True))
        return (*shape[:lead], *self.count, *self.size), (*strides[:lead], *outer, *inner), offset

    def vjp(self, x: Any, dy: Any) -> Any:
        """One term for each element of a window, as windows may overlap."""
        lead = x.ndim - len(self.size)
        full = tuple((0, n, 1) for n in dy.shape[: dy.ndim - len(self.size)])
        total: Any = None
        for index in product(*map(range, self.size)):
            part = F.basic_index(dy, items=(*full, *index))
            low = tuple(a + p * d for a, p, d in zip(self.start, index, self.dilation, strict=True))
            ends = zip(x.shape[lead:], low, self.count, self.stride, strict=True)
            high = tuple(n - first - (k - 1) * step - 1 for n, first, k, step in ends)
            spread = F.spread(part, low=low, high=high, step=self.stride, value=0)
            total = spread if total is None else total + spread
        return total


@op
class Spread(Op, family="window", primitive=True, public=False):
    """A larger array of `value` with x's elements at the indices low + i * step of its last dimensions.

    x: [..., *spatial]; low, high: how much is added at both ends. Returns [..., *(low + (n - 1) * step + 1 + high)].
    Source: XLA's Pad.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    step: tuple[int, ...]
    value: float = 0

    def infer(self, x: TensorType) -> TensorType:
        lead = x.ndim - len(self.low)
        sizes = zip(x.shape[lead:], self.low, self.high, self.step, strict=True)
        return x.like((*x.shape[:lead], *(low + (n - 1) * step + 1 + high for n, low, high, step in sizes)))

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """The window of the result that x fills."""
        lead = len(shape) - len(self.low)
        sizes = zip(shape[lead:], self.low, self.high, self.step, strict=True)
        spatial = tuple((n - low - high - 1) // step + 1 for n, low, high, step in sizes)
        steps = tuple(s * step for s, step in zip(strides[lead:], self.step, strict=True))
        offset = sum(s * low for s, low in zip(strides[lead:], self.low, strict=True))
        return (*shape[:lead], *spatial), (*strides[:lead], *steps), offset

    def kernels(self, x: TensorType) -> Iterator[Any]:
        yield Parts(((0, self.see),), fill=self.value)

    def vjp(self, x: Any, dy: Any) -> Any:
        spatial = x.shape[x.ndim - len(self.low) :]
        ones = (1,) * len(self.low)
        dx = F.sliding_windows(dy, start=self.low, count=spatial, size=ones, stride=self.step, dilation=ones)
        return F.reshape(dx, shape=x.shape)


def windows_of(x: Any, windows: Windows, count: Sequence[int], value: float = 0) -> Any:
    """The windows of an image [..., *spatial] as [..., *count, *size]: a view of the padded image."""
    spatial = len(windows.size)
    lead = x.ndim - spatial
    ends = [
        start + (n - 1) * step + extent
        for start, n, step, extent in zip(
            (-low for low in windows.low), count, windows.stride, windows.extents, strict=True
        )
    ]
    low = tuple(max(n, 0) for n in windows.low)
    high = tuple(max(end - n, 0) for end, n in zip(ends, x.shape[lead:], strict=True))
    if any(low) or any(high):
        x = F.spread(x, low=low, high=high, step=(1,) * spatial, value=value)
    return F.sliding_windows(
        x,
        start=tuple(added - padding for added, padding in zip(low, windows.low, strict=True)),
        count=tuple(count),
        size=windows.size,
        stride=windows.stride,
        dilation=windows.dilation,
    )
