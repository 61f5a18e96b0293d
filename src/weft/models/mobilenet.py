"""Networks of inverted residuals for images: MobileNetV2.

Names of parameters and buffers are torchvision's, so its state dictionaries load (as NumPy arrays, without
num_batches_tracked).
"""

from __future__ import annotations

from dataclasses import dataclass

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import BatchNorm2d, Conv2d, Dropout, Linear, Module, ReLU6, Sequential, init

__all__ = ["MobileNetV2", "MobileNetV2Config", "mobilenet_v2"]


@dataclass(frozen=True)
class MobileNetV2Config:
    """Which MobileNetV2. stages: (expansion, channels, blocks, stride of the first block) of each.

    width: factor of all numbers of channels, which are rounded to multiples of 8. channels: of images.

    >>> MobileNetV2Config(width=0.5).features
    1280
    """

    stages: tuple[tuple[int, int, int, int], ...] = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    width: float = 1.0
    channels: int = 3
    classes: int = 1000
    dropout: float = 0.2

    def scaled(self, channels: int) -> int:
        """This many channels times width, to a multiple of 8 that is at most a tenth less."""
        wanted = channels * self.width
        nearest = max(8, int(wanted + 4) // 8 * 8)
        return nearest + 8 if nearest < 0.9 * wanted else nearest

    @property
    def features(self) -> int:
        """Channels before the classifier."""
        return self.scaled(1280) if self.width > 1 else 1280


def unit(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> Sequential:
    """Convolution, batch normalization, ReLU6."""
    convolution = Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
    return Sequential(convolution, BatchNorm2d(outputs), ReLU6())


class InvertedResidual(Module):
    """1x1 convolution to more channels, 3x3 in each channel, 1x1 to fewer; x is added if its shape is the result's."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        wide = inputs * expansion
        widening = [unit(inputs, wide, 1)] if expansion != 1 else []
        narrowing = Conv2d(wide, outputs, 1, bias=False)
        self.conv = Sequential(*widening, unit(wide, wide, 3, stride, wide), narrowing, BatchNorm2d(outputs))
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.is_residual else self.conv(x)


class MobileNetV2(Module):
    """MobileNetV2: inverted residuals with linear bottlenecks, the mean of the image, a linear layer.

    forward(x): x float[n, channels, h, w] -> logits float[n, classes]; h and w are halved five times, rounding up.
    Source: Sandler, Howard, Zhu, Zhmoginov, Chen 2018, MobileNetV2: Inverted residuals and linear bottlenecks.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.MobileNetV2(models.MobileNetV2Config(width=0.25, classes=10)).eval()
    >>> net(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: MobileNetV2Config | None = None) -> None:
        self.config = config = config or MobileNetV2Config()
        inputs = config.scaled(32)
        layers: list[Module] = [unit(config.channels, inputs, 3, 2)]
        for expansion, channels, count, stride in config.stages:
            outputs = config.scaled(channels)
            for k in range(count):
                layers.append(InvertedResidual(inputs, outputs, stride if k == 0 else 1, expansion))
                inputs = outputs
        self.features = Sequential(*layers, unit(inputs, config.features, 1))
        self.classifier = Sequential(Dropout(config.dropout), Linear(config.features, config.classes))
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.mean(self.features(x), axis=(2, 3)))


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d):
        init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, Linear):
        init.normal_(module.weight, std=0.01)
        if module.bias is not None:
            init.zeros_(module.bias)


def mobilenet_v2(classes: int = 1000) -> MobileNetV2:
    """MobileNetV2 of width 1: 3.5 million parameters, 0.30 billion multiplications for an image of 224 x 224.

    >>> from weft import models
    >>> sum(p.size for p in models.mobilenet_v2().parameters())
    3504872
    """
    return MobileNetV2(MobileNetV2Config(classes=classes))
