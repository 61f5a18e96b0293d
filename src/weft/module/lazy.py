"""Layers that learn the size of their input at the first call, and are ordinary layers from then on."""

from __future__ import annotations

from typing import Any, ClassVar

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.module.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from weft.module.linear import Linear
from weft.module.module import UNSIZED, Module
from weft.module.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class _Lazy(Module):
    """Base: keeps the arguments behind the size, and becomes the layer at the first call.

    Until then its parameters cannot be listed, so that no optimizer misses them.
    """

    layer: ClassVar[type[Module]]
    axis: ClassVar[int] = 1  # of the input, whose size is the layer's first argument

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self._arguments = (args, keywords)
        self._roles["weight"] = UNSIZED

    def forward(self, x: Tensor) -> Any:
        if x.ndim < 2:
            raise ShapeError(f"{type(self).__name__}: needs at least 2 dimensions: x is {_core.describe(x)}")
        if _core.capture() is not None or _core.get_recorder() is not None:
            raise RuntimeError(
                f"{type(self).__name__}: has no parameters before its first call, which cannot be one that is "
                "recorded; call the module once with an example before it is traced or transformed"
            )
        (args, keywords), size = self._arguments, x.shape[self.axis]
        del self._arguments, self._roles["weight"]
        self.__class__ = self.layer  # type: ignore[assignment]
        self.__init__(size, *args, **keywords)  # type: ignore[misc]
        return self.forward(x)

    def extra_repr(self) -> str:
        args, keywords = self._arguments
        return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in keywords.items())])


class LazyLinear(_Lazy):
    """Linear, whose in_features are those of its first input.

    >>> import weft as wf
    >>> import weft.module as M
    >>> net = M.Sequential(M.Flatten(), M.LazyLinear(10))
    >>> net(wf.zeros((2, 3, 4))).shape
    (2, 10)
    >>> net[1]
    Linear(in_features=12, out_features=10)
    """

    layer = Linear
    axis = -1


class LazyConv1d(_Lazy):
    """Conv1d, whose in_channels are the channels of its first input. See LazyLinear."""

    layer = Conv1d


class LazyConv2d(_Lazy):
    """Conv2d, whose in_channels are the channels of its first input. See LazyLinear."""

    layer = Conv2d


class LazyConv3d(_Lazy):
    """Conv3d, whose in_channels are the channels of its first input. See LazyLinear."""

    layer = Conv3d


class LazyConvTranspose1d(_Lazy):
    """ConvTranspose1d, whose in_channels are the channels of its first input. See LazyLinear."""

    layer = ConvTranspose1d


class LazyConvTranspose2d(_Lazy):
    """ConvTranspose2d, whose in_channels are the channels of its first input. See LazyLinear."""

    layer = ConvTranspose2d


class LazyConvTranspose3d(_Lazy):
    """ConvTranspose3d, whose in_channels are the channels of its first input. See LazyLinear."""

    layer = ConvTranspose3d


class LazyBatchNorm1d(_Lazy):
    """BatchNorm1d, whose num_features are the channels of its first input. See LazyLinear."""

    layer = BatchNorm1d


class LazyBatchNorm2d(_Lazy):
    """BatchNorm2d, whose num_features are the channels of its first input. See LazyLinear."""

    layer = BatchNorm2d


class LazyBatchNorm3d(_Lazy):
    """BatchNorm3d, whose num_features are the channels of its first input. See LazyLinear."""

    layer = BatchNorm3d


class LazyInstanceNorm1d(_Lazy):
    """InstanceNorm1d, whose num_features are the channels of its first input. See LazyLinear."""

    layer = InstanceNorm1d


class LazyInstanceNorm2d(_Lazy):
    """InstanceNorm2d, whose num_features are the channels of its first input. See LazyLinear."""

    layer = InstanceNorm2d


class LazyInstanceNorm3d(_Lazy):
    """InstanceNorm3d, whose num_features are the channels of its first input. See LazyLinear."""

    layer = InstanceNorm3d
