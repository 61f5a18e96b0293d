"""ConvNeXt, with torchvision's names of parameters, so its state dictionaries load."""

from __future__ import annotations

from dataclasses import dataclass

from weft import functional as F
from weft.arrays.creation import full
from weft.arrays.tensor import Tensor
from weft.models.blocks import SkippedResidual
from weft.module import GELU, Conv2d, Flatten, LayerNorm, Linear, Module, Parameter, Sequential, init

__all__ = ["ConvNeXt", "ConvNeXtConfig", "convnext_base", "convnext_large", "convnext_small", "convnext_tiny"]


@dataclass(frozen=True)
class ConvNeXtConfig:
    """Which ConvNeXt: blocks and channels of each stage; by default the tiny one.

    layer_scale: first values of the factors of residuals. skip: the probability with which the last block's residual is
    left out in training; it grows linearly from 0.

    >>> ConvNeXtConfig().channels
    (96, 192, 384, 768)
    """

    blocks: tuple[int, ...] = (3, 3, 9, 3)
    channels: tuple[int, ...] = (96, 192, 384, 768)
    classes: int = 1000
    layer_scale: float = 1e-6
    skip: float = 0.1


class ChannelsLast(Module):
    """The axes of an image in the order n h w c, or with back=True n c h w again."""

    def __init__(self, back: bool = False) -> None:
        self.axes = (0, 3, 1, 2) if back else (0, 2, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.permute_dims(x, self.axes)


class LayerNorm2d(LayerNorm):
    """Layer normalization over the channels of each place of images [n, c, h, w]."""

    def forward(self, x: Tensor) -> Tensor:
        return F.permute_dims(super().forward(F.permute_dims(x, (0, 2, 3, 1))), (0, 3, 1, 2))


class Block(Module):
    """x + scale times: a 7x7 convolution in each channel, normalization, two linear layers of each place."""

    def __init__(self, channels: int, layer_scale: float, skip: float) -> None:
        self.block = Sequential(
            Conv2d(channels, channels, 7, padding=3, groups=channels),
            ChannelsLast(),
            LayerNorm(channels, 1e-6),
            *(Linear(channels, 4 * channels), GELU(), Linear(4 * channels, channels)),
            ChannelsLast(back=True),
        )
        self.layer_scale = Parameter(full((channels, 1, 1), layer_scale, dtype="float32"))
        self.residual = SkippedResidual(skip)

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x, self.layer_scale * self.block(x))


class ConvNeXt(Module):
    """ConvNeXt: a convolutional network with the order of parts of a transformer.

    forward(x): x float[n, 3, h, w], from 32 x 32 on -> logits float[n, classes].
    Source: Liu, Mao, Wu, Feichtenhofer, Darrell, Xie 2022, A ConvNet for the 2020s.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.ConvNeXt(models.ConvNeXtConfig((1, 1), (8, 16), classes=10))
    >>> net(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: ConvNeXtConfig | None = None) -> None:
        self.config = config = config or ConvNeXtConfig()
        inputs, done, total = config.channels[0], 0, sum(config.blocks)
        layers: list[Module] = [Sequential(Conv2d(3, inputs, 4, 4), LayerNorm2d(inputs, 1e-6))]
        for count, channels in zip(config.blocks, config.channels, strict=True):
            if done:
                layers.append(Sequential(LayerNorm2d(inputs, 1e-6), Conv2d(inputs, channels, 2, 2)))
            skips = [config.skip * (done + k) / max(total - 1, 1) for k in range(count)]
            layers.append(Sequential(*(Block(channels, config.layer_scale, skip) for skip in skips)))
            inputs, done = channels, done + count
        self.features = Sequential(*layers)
        self.classifier = Sequential(LayerNorm2d(inputs, 1e-6), Flatten(), Linear(inputs, config.classes))
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.mean(self.features(x), axis=(2, 3), keepdims=True))


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d | Linear):
        init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            init.zeros_(module.bias)


def convnext_tiny(classes: int = 1000) -> ConvNeXt:
    """ConvNeXt-T: 28.6 million parameters."""
    return ConvNeXt(ConvNeXtConfig(classes=classes))


def convnext_small(classes: int = 1000) -> ConvNeXt:
    """ConvNeXt-S: 50.2 million parameters."""
    return ConvNeXt(ConvNeXtConfig((3, 3, 27, 3), classes=classes, skip=0.4))


def convnext_base(classes: int = 1000) -> ConvNeXt:
    """ConvNeXt-B: 88.6 million parameters."""
    return ConvNeXt(ConvNeXtConfig((3, 3, 27, 3), (128, 256, 512, 1024), classes, skip=0.5))


def convnext_large(classes: int = 1000) -> ConvNeXt:
    """ConvNeXt-L: 197.8 million parameters."""
    return ConvNeXt(ConvNeXtConfig((3, 3, 27, 3), (192, 384, 768, 1536), classes, skip=0.5))
