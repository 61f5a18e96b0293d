"""Convolutions over sequences, images and volumes, and their transposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType, float64
from weft.module.linear import hint_at_float64, parameter, uniform_fan_in_
from weft.module.module import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Size = int | Sequence[int]
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Channels(Module):
    """Base: a weight and a bias of as many channels as divide into groups."""

    ndim: ClassVar[int]
    repr_attributes: ClassVar[tuple[str, ...]] = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
    )

    def _set_sizes(self, in_channels: int, out_channels: int, kernel_size: Size, groups: int) -> None:
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: {in_channels} and {out_channels} channels are not {groups} equal groups"
            )
        kernel = (kernel_size,) * self.ndim if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(kernel) != self.ndim:
            raise ValueError(f"{name}: kernel_size needs {self.ndim} sizes, got {kernel_size}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.groups = kernel, groups

    def _make(self, shape: Any, bias: bool, dtype: DType | str, device: Device | str | None) -> None:
        self.weight = parameter((*shape, *self.kernel_size), dtype, device)
        self.bias: Tensor | Any = parameter(self.out_channels, dtype, device) if bias else None
        self.reset()

    def reset(self) -> None:
        """Draw new initial values."""
        uniform_fan_in_(self.weight.shape[1] * math.prod(self.kernel_size), self.weight, self.bias)


class _Conv(_Channels):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        if padding_mode not in PADDING_MODES:
            accepted = ", ".join(map(repr, PADDING_MODES))
            raise ValueError(
                f"{type(self).__name__}: padding_mode must be one of {accepted}, got {padding_mode!r}"
            )
        self._set_sizes(in_channels, out_channels, kernel_size, groups)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.padding_mode = padding_mode
        self._make((out_channels, in_channels // groups), bias, dtype, device)

    def extra_repr(self) -> str:
        mode = "" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode!r}"
        return super().extra_repr() + mode

    def _borders(self) -> list[int]:
        """The padding as weft.functional.pad takes it: before and after each axis, from the last one on."""
        padding: Any = self.padding
        if padding == "same":
            dilation = self.dilation if isinstance(self.dilation, Sequence) else (self.dilation,) * self.ndim
            totals = [d * (k - 1) for d, k in zip(dilation, self.kernel_size, strict=True)]
            padding = [(total // 2, total - total // 2) for total in totals]
        elif padding == "valid":
            padding = 0
        sizes = padding if isinstance(padding, Sequence) else (padding,) * self.ndim
        pairs = [(size, size) if isinstance(size, int) else size for size in sizes]
        return [size for pair in reversed(pairs) for size in pair]

    def forward(self, x: Tensor) -> Tensor:
        function: Any = getattr(F, f"conv{self.ndim}d")
        padding = self.padding
        if self.padding_mode != "zeros":
            # The operator still checks what cannot be computed here: sizes, names, and "same" with a stride.
            if any(borders := self._borders()):
                x = F.pad(x, borders, self.padding_mode)
            padding = "valid"
        y = function(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
        if getattr(y, "dtype", None) is float64:
            hint_at_float64(self, x, self.weight)
        return y


class Conv1d(_Conv):
    """Convolution of sequences [n, c, l]; weight: [out, in / groups, k]. See Conv2d and weft.functional.conv1d.

    >>> import weft as wf
    >>> Conv1d(2, 4, 3, padding="same")(wf.zeros((1, 2, 10))).shape
    (1, 4, 10)
    """

    ndim = 1


class Conv2d(_Conv):
    """Convolution of images [n, c, h, w]; weight: [out, in / groups, kh, kw], bias: [out] or None.

    Sizes are one int for all dimensions or one for each; padding also "same" or "valid". padding_mode: what the padding
    consists of, "zeros", or the image's elements as weft.functional.pad takes them: "reflect", "replicate", "circular".
    Weight and bias are initialized uniformly within 1 / sqrt(in / groups kh kw). Raises ValueError if channels do not
    divide into groups, or for another padding_mode. See weft.functional.conv2d.

    >>> import weft as wf
    >>> layer = Conv2d(4, 8, 3, stride=2, padding=1, groups=2)
    >>> layer(wf.zeros((1, 4, 10, 10))).shape, layer.weight.shape
    ((1, 8, 5, 5), (8, 2, 3, 3))
    >>> Conv2d(4, 8, 3, padding="same", padding_mode="circular")(wf.zeros((1, 4, 10, 10))).shape
    (1, 8, 10, 10)
    """

    ndim = 2


class Conv3d(_Conv):
    """Convolution of volumes [n, c, d, h, w]; weight: [out, in / groups, kd, kh, kw]. See Conv2d."""

    ndim = 3


class _ConvTranspose(_Channels):
    repr_attributes = (*_Channels.repr_attributes, "output_padding")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self._set_sizes(in_channels, out_channels, kernel_size, groups)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.output_padding = output_padding
        self._make((in_channels, out_channels // groups), bias, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        function: Any = getattr(F, f"conv_transpose{self.ndim}d")
        sizes = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        return function(x, self.weight, self.bias, *sizes)


class ConvTranspose1d(_ConvTranspose):
    """The transpose of Conv1d, for upsampling sequences; weight: [in, out / groups, k]. See ConvTranspose2d."""

    ndim = 1


class ConvTranspose2d(_ConvTranspose):
    """The transpose of Conv2d, for upsampling images; weight: [in, out / groups, kh, kw], bias: [out] or None.

    Both are initialized uniformly within 1 / sqrt(out / groups kh kw). See weft.functional.conv_transpose2d.

    >>> import weft as wf
    >>> ConvTranspose2d(4, 2, 2, stride=2)(wf.zeros((1, 4, 5, 5))).shape
    (1, 2, 10, 10)
    """

    ndim = 2


class ConvTranspose3d(_ConvTranspose):
    """The transpose of Conv3d; weight: [in, out / groups, kd, kh, kw]. See ConvTranspose2d."""

    ndim = 3
