"""Layers that add borders to sequences [n, c, l], images [n, c, h, w] and volumes [n, c, d, h, w]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module.module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Base: padding is a size for all ends, or two for each axis from the last one on, before and after."""

    dims: ClassVar[int]
    mode: ClassVar[str]
    repr_attributes: ClassVar[tuple[str, ...]] = ("padding",)

    def __init_subclass__(cls, dims: int = 0, mode: str = "constant", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if dims:
            cls.dims, cls.mode = dims, mode

    def __init__(self, padding: int | Sequence[int]) -> None:
        sizes = (padding,) * (2 * self.dims) if isinstance(padding, int) else tuple(padding)
        if len(sizes) != 2 * self.dims:
            raise ValueError(
                f"{type(self).__name__}: padding must be an int or {2 * self.dims} of them, got {padding}"
            )
        self.padding = sizes

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, self.mode)


class _ConstantPad(_Pad):
    repr_attributes = ("padding", "value")

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, self.mode, self.value)


class CircularPad1d(_Pad, dims=1, mode="circular"):
    """Borders of what comes at the other end around sequences: an int, or 2 of them. See weft.functional.pad."""


class CircularPad2d(_Pad, dims=2, mode="circular"):
    """Borders of what comes at the other end around images: an int, or 4 of them. See weft.functional.pad."""


class CircularPad3d(_Pad, dims=3, mode="circular"):
    """Borders of what comes at the other end around volumes: an int, or 6 of them. See weft.functional.pad."""


class ConstantPad1d(_ConstantPad, dims=1):
    """Borders of a value around sequences: an int, or 2 of them. See weft.functional.pad."""


class ConstantPad2d(_ConstantPad, dims=2):
    """Borders of a value around images: an int, or 4 of them. See weft.functional.pad."""


class ConstantPad3d(_ConstantPad, dims=3):
    """Borders of a value around volumes: an int, or 6 of them. See weft.functional.pad."""


class ReflectionPad1d(_Pad, dims=1, mode="reflect"):
    """Borders of what is mirrored at the ends around sequences: an int, or 2 of them. See weft.functional.pad."""


class ReflectionPad2d(_Pad, dims=2, mode="reflect"):
    """Borders of what is mirrored at the ends around images: an int, or 4 of them. See weft.functional.pad."""


class ReflectionPad3d(_Pad, dims=3, mode="reflect"):
    """Borders of what is mirrored at the ends around volumes: an int, or 6 of them. See weft.functional.pad."""


class ReplicationPad1d(_Pad, dims=1, mode="replicate"):
    """Borders of the elements at the ends around sequences: an int, or 2 of them. See weft.functional.pad."""


class ReplicationPad2d(_Pad, dims=2, mode="replicate"):
    """Borders of the elements at the ends around images: an int, or 4 of them. See weft.functional.pad."""


class ReplicationPad3d(_Pad, dims=3, mode="replicate"):
    """Borders of the elements at the ends around volumes: an int, or 6 of them. See weft.functional.pad."""


class ZeroPad1d(_Pad, dims=1):
    """Borders of zeros around sequences: an int, or 2 of them. See weft.functional.pad."""


class ZeroPad2d(_Pad, dims=2):
    """Borders of zeros around images: an int, or 4 of them. See weft.functional.pad.

    >>> import weft as wf
    >>> ZeroPad2d((1, 0, 0, 2))(wf.ones((1, 1, 2, 2))).shape
    (1, 1, 4, 3)
    """


class ZeroPad3d(_Pad, dims=3):
    """Borders of zeros around volumes: an int, or 6 of them. See weft.functional.pad."""
