"""EfficientNet, with torchvision's names of parameters, so its state dictionaries load."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.models.blocks import Gate, SkippedResidual, Unit, rounded_channels
from weft.module import Conv2d, Dropout, Linear, Module, Sequential, SiLU, init

__all__ = ["EfficientNet", "EfficientNetConfig", "efficientnet_b"]


class Stage(NamedTuple):
    """Blocks of equal shape but for the first one's stride. expansion: inner channels for each input."""

    expansion: int
    kernel: int
    stride: int
    outputs: int
    blocks: int


STAGES = (
    Stage(1, 3, 1, 16, 1),
    Stage(6, 3, 2, 24, 2),
    Stage(6, 5, 2, 40, 2),
    Stage(6, 3, 2, 80, 3),
    Stage(6, 5, 1, 112, 3),
    Stage(6, 5, 2, 192, 4),
    Stage(6, 3, 1, 320, 1),
)
# Factors of channels and of blocks, dropout, of B0 ... B7.
SCALES = (
    *((1.0, 1.0, 0.2), (1.0, 1.1, 0.2), (1.1, 1.2, 0.3), (1.2, 1.4, 0.3)),
    *((1.4, 1.8, 0.4), (1.6, 2.2, 0.4), (1.8, 2.6, 0.5), (2.0, 3.1, 0.5)),
)


@dataclass(frozen=True)
class EfficientNetConfig:
    """Which EfficientNet: stages, whose channels and blocks are multiplied by width and depth; by default B0.

    skip: the probability with which the last block's residual is left out in training; it grows linearly from 0.
    norm_eps, norm_momentum: of batch normalization.

    >>> EfficientNetConfig(depth=1.4).blocks(3)
    5
    """

    stages: tuple[Stage, ...] = STAGES
    width: float = 1.0
    depth: float = 1.0
    channels: int = 3
    classes: int = 1000
    dropout: float = 0.2
    skip: float = 0.2
    norm_eps: float = 1e-5
    norm_momentum: float = 0.1

    def scaled(self, channels: int) -> int:
        """This many channels times width, rounded."""
        return rounded_channels(channels * self.width)

    def blocks(self, count: int) -> int:
        """So many blocks times depth, rounded up."""
        return math.ceil(count * self.depth)


class GatedResidual(Module):
    """An inverted residual with a gate of the inner channels; x is added if its shape is the result's."""

    def __init__(self, inputs: int, stage: Stage, stride: int, unit: Any, skip: float) -> None:
        wide = rounded_channels(inputs * stage.expansion)
        widening = [unit(inputs, wide, 1)] if wide != inputs else []
        self.block = Sequential(
            *widening,
            unit(wide, wide, stage.kernel, stride, groups=wide),
            Gate(wide, max(1, inputs // 4), SiLU),
            unit(wide, stage.outputs, 1, activation=None),
        )
        is_residual = stride == 1 and inputs == stage.outputs
        self.residual = SkippedResidual(skip) if is_residual else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(x)
        return y if self.residual is None else self.residual(x, y)


class EfficientNet(Module):
    """EfficientNet: stages of gated inverted residuals, the mean of the image, a linear layer.

    forward(x): x float[n, channels, h, w] -> logits float[n, classes]; h and w are halved five times, rounding up.
    Source: Tan, Le 2019, EfficientNet: Rethinking model scaling for convolutional neural networks.

    >>> import weft as wf
    >>> from weft import models
    >>> config = models.EfficientNetConfig(STAGES[:3], width=0.25, classes=10)
    >>> models.EfficientNet(config).eval()(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: EfficientNetConfig | None = None) -> None:
        self.config = config = config or EfficientNetConfig()
        norm = {"eps": config.norm_eps, "momentum": config.norm_momentum}
        unit = partial(Unit, activation=SiLU, norm=norm)
        counts = [config.blocks(stage.blocks) for stage in config.stages]
        inputs, done, total = config.scaled(32), 0, sum(counts)
        layers: list[Module] = [unit(config.channels, inputs, 3, 2)]
        for stage, count in zip(config.stages, counts, strict=True):
            blocks, stage = [], stage._replace(outputs=config.scaled(stage.outputs))
            for k in range(count):
                skip = config.skip * done / total
                blocks.append(GatedResidual(inputs, stage, stage.stride if k == 0 else 1, unit, skip))
                inputs, done = stage.outputs, done + 1
            layers.append(Sequential(*blocks))
        self.features = Sequential(*layers, unit(inputs, 4 * inputs, 1))
        self.classifier = Sequential(Dropout(config.dropout), Linear(4 * inputs, config.classes))
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.mean(self.features(x), axis=(2, 3)))


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d):
        init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, Linear):
        bound = 1 / math.sqrt(module.out_features)
        init.uniform_(module.weight, -bound, bound)
    else:
        return
    if module.bias is not None:
        init.zeros_(module.bias)


def efficientnet_b(size: int = 0, classes: int = 1000) -> EfficientNet:
    """EfficientNet-B0 to B7. Raises ValueError for another size.

    >>> from weft import models
    >>> sum(p.size for p in models.efficientnet_b(0).parameters())
    5288548
    """
    if not 0 <= size < len(SCALES):
        raise ValueError(f"efficientnet_b: size must be 0 to {len(SCALES) - 1}, got {size}")
    width, depth, dropout = SCALES[size]
    config = EfficientNetConfig(width=width, depth=depth, dropout=dropout, classes=classes)
    if size >= 5:
        config = replace(config, norm_eps=1e-3, norm_momentum=0.01)
    return EfficientNet(config)
