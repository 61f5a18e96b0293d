"""Networks of convolutions in each channel and across channels for images: MobileNet V1, V2 and V3.

Names of parameters and buffers of V2 and V3 are torchvision's, so its state dictionaries load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.models.blocks import Gate, Unit, begin_like_torchvision, rounded_channels
from weft.module import (
    BatchNorm2d,
    Conv2d,
    Dropout,
    HardSigmoid,
    HardSwish,
    Linear,
    Module,
    ReLU,
    ReLU6,
    Sequential,
)

__all__ = [
    "MobileNetV1",
    "MobileNetV2",
    "MobileNetV2Config",
    "MobileNetV3",
    "MobileNetV3Config",
    "MobileNetV3Stage",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
]

# Channels and stride of each pair of convolutions.
PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


class MobileNetV1(Module):
    """A 3x3 convolution, pairs of a 3x3 convolution in each channel and a 1x1 one, the mean, a linear layer.

    width: factor of all numbers of channels. forward(x): x float[n, channels, h, w] -> logits float[n, classes]; h and
    w are halved five times, rounding up. 4.2 million parameters with width 1.
    Source: Howard et al. 2017, MobileNets: Efficient convolutional neural networks for mobile vision applications.

    >>> import weft as wf
    >>> from weft import models
    >>> models.MobileNetV1(width=0.125, classes=10)(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("width",)

    def __init__(
        self, width: float = 1.0, classes: int = 1000, channels: int = 3, dropout: float = 0.001
    ) -> None:
        self.width = width
        inputs = rounded_channels(32 * width)
        layers: list[Module] = [Unit(channels, inputs, 3, 2)]
        for count, stride in PAIRS:
            outputs = rounded_channels(count * width)
            layers += [Unit(inputs, inputs, 3, stride, inputs), Unit(inputs, outputs, 1)]
            inputs = outputs
        self.features = Sequential(*layers)
        self.classifier = Sequential(Dropout(dropout), Linear(inputs, classes))
        self.apply(begin_like_torchvision())

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.mean(self.features(x), axis=(2, 3)))


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
        """This many channels times width, rounded."""
        return rounded_channels(channels * self.width)

    @property
    def features(self) -> int:
        """Channels before the classifier."""
        return self.scaled(1280) if self.width > 1 else 1280


unit = partial(Unit, activation=ReLU6)


class InvertedResidual(Module):
    """1x1 convolution to more channels, 3x3 in each channel, 1x1 to fewer; x is added if its shape is the result's."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        wide = inputs * expansion
        widening = [unit(inputs, wide, 1)] if expansion != 1 else []
        narrowing = Conv2d(wide, outputs, 1, bias=False)
        self.conv = Sequential(
            *widening, unit(wide, wide, 3, stride, groups=wide), narrowing, BatchNorm2d(outputs)
        )
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
        self.apply(begin_like_torchvision())

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.mean(self.features(x), axis=(2, 3)))


def mobilenet_v2(classes: int = 1000) -> MobileNetV2:
    """MobileNetV2 of width 1: 3.5 million parameters, 0.30 billion multiplications for an image of 224 x 224.

    >>> from weft import models
    >>> sum(p.size for p in models.mobilenet_v2().parameters())
    3504872
    """
    return MobileNetV2(MobileNetV2Config(classes=classes))


class MobileNetV3Stage(NamedTuple):
    """An inverted residual of MobileNetV3. kernel: size of the convolution in each channel; expanded: inner channels;
    is_gated: whether they are gated (Gate); is_hard_swish: else ReLU.
    """

    kernel: int
    expanded: int
    outputs: int
    is_gated: bool
    is_hard_swish: bool
    stride: int


LARGE = tuple(
    MobileNetV3Stage(*row)
    for row in (
        (3, 16, 16, False, False, 1),
        *((3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1)),
        *((5, 72, 40, True, False, 2), *((5, 120, 40, True, False, 1),) * 2),
        *((3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), *((3, 184, 80, False, True, 1),) * 2),
        *((3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1)),
        *((5, 672, 160, True, True, 2), *((5, 960, 160, True, True, 1),) * 2),
    )
)
SMALL = tuple(
    MobileNetV3Stage(*row)
    for row in (
        (3, 16, 16, True, False, 2),
        *((3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1)),
        *((5, 96, 40, True, True, 2), *((5, 240, 40, True, True, 1),) * 2),
        *((5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1)),
        *((5, 288, 96, True, True, 2), *((5, 576, 96, True, True, 1),) * 2),
    )
)


@dataclass(frozen=True)
class MobileNetV3Config:
    """Which MobileNetV3; by default the large one. hidden: the size of the classifier's inner layer.

    width: factor of the numbers of channels of stages, which are rounded to multiples of 8. channels: of images.

    >>> len(MobileNetV3Config().stages)
    15
    """

    stages: tuple[MobileNetV3Stage, ...] = LARGE
    hidden: int = 1280
    width: float = 1.0
    channels: int = 3
    classes: int = 1000
    dropout: float = 0.2


class GatedResidual(Module):
    """An inverted residual with a gate of the inner channels; x is added if its shape is the result's."""

    def __init__(self, inputs: int, stage: MobileNetV3Stage, width: float) -> None:
        wide, outputs = rounded_channels(stage.expanded * width), rounded_channels(stage.outputs * width)
        unit = partial(slow_unit, activation=HardSwish if stage.is_hard_swish else ReLU)
        widening = [unit(inputs, wide, 1)] if wide != inputs else []
        gate = [Gate(wide, rounded_channels(wide // 4), gate=HardSigmoid)] if stage.is_gated else []
        self.block = Sequential(
            *widening,
            unit(wide, wide, stage.kernel, stage.stride, groups=wide),
            *gate,
            slow_unit(wide, outputs, 1, activation=None),
        )
        self.is_residual = stage.stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.is_residual else self.block(x)


slow_unit = partial(Unit, norm={"eps": 1e-3, "momentum": 0.01})  # with slowly running statistics


class MobileNetV3(Module):
    """MobileNetV3: inverted residuals, some with gates and with x relu6(x + 3) / 6, the mean, two linear layers.

    forward(x): x float[n, channels, h, w] -> logits float[n, classes]; h and w are halved five times, rounding up.
    Source: Howard et al. 2019, Searching for MobileNetV3.

    >>> import weft as wf
    >>> from weft import models
    >>> config = models.MobileNetV3Config(LARGE[:4], hidden=16, classes=10)
    >>> models.MobileNetV3(config).eval()(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: MobileNetV3Config | None = None) -> None:
        self.config = config = config or MobileNetV3Config()
        inputs = rounded_channels(16 * config.width)
        layers: list[Module] = [slow_unit(config.channels, inputs, 3, 2, activation=HardSwish)]
        for stage in config.stages:
            layers.append(GatedResidual(inputs, stage, config.width))
            inputs = rounded_channels(stage.outputs * config.width)
        last = 6 * inputs
        self.features = Sequential(*layers, slow_unit(inputs, last, 1, activation=HardSwish))
        self.classifier = Sequential(
            *(Linear(last, config.hidden), HardSwish(), Dropout(config.dropout)),
            Linear(config.hidden, config.classes),
        )
        self.apply(begin_like_torchvision())

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.mean(self.features(x), axis=(2, 3)))


def mobilenet_v3_large(classes: int = 1000) -> MobileNetV3:
    """MobileNetV3-Large: 5.5 million parameters.

    >>> from weft import models
    >>> sum(p.size for p in models.mobilenet_v3_large().parameters())
    5483032
    """
    return MobileNetV3(MobileNetV3Config(LARGE, 1280, classes=classes))


def mobilenet_v3_small(classes: int = 1000) -> MobileNetV3:
    """MobileNetV3-Small: 2.5 million parameters.

    >>> from weft import models
    >>> sum(p.size for p in models.mobilenet_v3_small().parameters())
    2542856
    """
    return MobileNetV3(MobileNetV3Config(SMALL, 1024, classes=classes))
