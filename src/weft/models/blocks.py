"""What the networks for images share: convolutions with their normalization, gates of channels, skipped residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import functional as F
from weft import random
from weft.arrays.tensor import Tensor
from weft.module import BatchNorm2d, Conv2d, Linear, Module, ReLU, Sequential, Sigmoid, init

__all__ = ["Gate", "SkippedResidual", "Unit", "begin_like_torchvision", "rounded_channels"]

Size = int | tuple[int, int]


def rounded_channels(channels: float, multiple: int = 8) -> int:
    """The nearest multiple, and the next one if that were more than a tenth less; at least one multiple.

    Source: Sandler et al. 2018, MobileNetV2, and its published code.

    >>> rounded_channels(16.8), rounded_channels(12)
    (16, 16)
    """
    nearest = max(multiple, int(channels + multiple / 2) // multiple * multiple)
    return nearest + multiple if nearest < 0.9 * channels else nearest


class Unit(Sequential):
    """Convolution without bias, batch normalization, activation (None: none). It keeps the image's size but for stride.

    norm: options of the normalization.

    >>> import weft as wf
    >>> Unit(3, 8, 3, 2)(wf.zeros((1, 3, 9, 9))).shape
    (1, 8, 5, 5)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 3,
        stride: int = 1,
        groups: int = 1,
        activation: Callable[[], Module] | None = ReLU,
        norm: dict[str, Any] | None = None,
    ) -> None:
        convolution = Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
        last = [] if activation is None else [activation()]
        super().__init__(convolution, BatchNorm2d(outputs, **(norm or {})), *last)


class Gate(Module):
    """x times gate(fc2(activation(fc1(mean of the image)))), one number for each channel: squeeze and excitation.

    Source: Hu, Shen, Sun 2017, Squeeze-and-excitation networks.

    >>> import weft as wf
    >>> Gate(8, 2)(wf.zeros((1, 8, 5, 5))).shape
    (1, 8, 5, 5)
    """

    def __init__(
        self,
        channels: int,
        inner: int,
        activation: Callable[[], Module] = ReLU,
        gate: Callable[[], Module] = Sigmoid,
    ) -> None:
        self.fc1, self.fc2 = Conv2d(channels, inner, 1), Conv2d(inner, channels, 1)
        self.activation, self.gate = activation(), gate()

    def forward(self, x: Tensor) -> Tensor:
        mean = F.mean(x, axis=(2, 3), keepdims=True)
        return x * self.gate(self.fc2(self.activation(self.fc1(mean))))


class SkippedResidual(Module):
    """x + y, where in training y is 0 for each image with probability p, else y / (1 - p): stochastic depth.

    Source: Huang et al. 2016, Deep networks with stochastic depth.

    >>> import weft as wf
    >>> SkippedResidual(0.5).eval()(wf.ones((2, 3)), wf.ones((2, 3))).sum().item()
    12.0
    """

    repr_attributes = ("p",)

    def __init__(self, p: float = 0.0) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"SkippedResidual: p must be in 0..1, without 1, got {p}")
        self.p = p

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.p == 0 or not self.training:
            return x + y
        shape = (y.shape[0], *(1,) * (y.ndim - 1))
        is_kept = random.uniform(0.0, 1.0, shape, "float32", y.device) >= self.p
        return x + y * (is_kept.astype(y.dtype) / (1 - self.p))


def begin_like_torchvision(linear_std: float = 0.01) -> Callable[[Module], None]:
    """A function for Module.apply: convolutions normal (He, by their outputs), linear layers normal, biases 0."""

    def begin(module: Module) -> None:
        if isinstance(module, Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, Linear):
            init.normal_(module.weight, std=linear_std)
        else:
            return
        if module.bias is not None:
            init.zeros_(module.bias)

    return begin
