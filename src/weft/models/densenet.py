"""Densely connected networks, with torchvision's names of parameters, so its state dictionaries load."""

from __future__ import annotations

from dataclasses import dataclass

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import AvgPool2d, BatchNorm2d, Conv2d, Linear, MaxPool2d, Module, ReLU, Sequential, init

__all__ = ["DenseNet", "DenseNetConfig", "densenet121", "densenet161", "densenet169", "densenet201"]


@dataclass(frozen=True)
class DenseNetConfig:
    """Which densely connected network: layers of each block, and how many channels each layer adds (growth).

    width: channels of the first convolution; bottleneck: times growth, the inner channels of a layer.

    >>> DenseNetConfig().blocks
    (6, 12, 24, 16)
    """

    growth: int = 32
    blocks: tuple[int, ...] = (6, 12, 24, 16)
    width: int = 64
    bottleneck: int = 4
    channels: int = 3
    classes: int = 1000
    dropout: float = 0.0


class Layer(Module):
    """x and, behind its channels, growth ones more: 1x1 and 3x3 convolutions, each after normalization and ReLU."""

    def __init__(self, inputs: int, config: DenseNetConfig) -> None:
        inner, self.dropout = config.bottleneck * config.growth, config.dropout
        self.norm1, self.conv1 = BatchNorm2d(inputs), Conv2d(inputs, inner, 1, bias=False)
        self.norm2, self.conv2 = BatchNorm2d(inner), Conv2d(inner, config.growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        y = F.dropout(self.conv2(F.relu(self.norm2(y))), self.dropout, training=self.training)
        return F.concat([x, y], axis=1)


class DenseNet(Module):
    """Blocks of layers that each read all before it, halved in between in channels and in size.

    forward(x): x float[n, channels, h, w] -> logits float[n, classes].
    Source: Huang, Liu, van der Maaten, Weinberger 2016, Densely connected convolutional networks.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.DenseNet(models.DenseNetConfig(growth=4, blocks=(2, 2), width=8, classes=10)).eval()
    >>> net(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: DenseNetConfig | None = None) -> None:
        self.config = config = config or DenseNetConfig()
        channels = config.width
        layers: dict[str, Module] = {
            "conv0": Conv2d(config.channels, channels, 7, 2, 3, bias=False),
            "norm0": BatchNorm2d(channels),
            "relu0": ReLU(),
            "pool0": MaxPool2d(3, 2, padding=1),
        }
        for k, count in enumerate(config.blocks, 1):
            block = {f"denselayer{i + 1}": Layer(channels + i * config.growth, config) for i in range(count)}
            layers[f"denseblock{k}"] = Sequential(block)
            channels += count * config.growth
            if k < len(config.blocks):
                layers[f"transition{k}"] = transition(channels, channels // 2)
                channels //= 2
        layers["norm5"] = BatchNorm2d(channels)
        self.features, self.classifier = Sequential(layers), Linear(channels, config.classes)
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.mean(F.relu(self.features(x)), axis=(2, 3)))


def transition(inputs: int, outputs: int) -> Sequential:
    """Normalization, ReLU, a 1x1 convolution, and the mean of 2 x 2 places."""
    return Sequential(
        {
            "norm": BatchNorm2d(inputs),
            "relu": ReLU(),
            "conv": Conv2d(inputs, outputs, 1, bias=False),
            "pool": AvgPool2d(2, 2),
        }
    )


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d):
        init.kaiming_normal_(module.weight)
    elif isinstance(module, Linear) and module.bias is not None:
        init.zeros_(module.bias)


def densenet121(classes: int = 1000) -> DenseNet:
    """DenseNet-121: 8.0 million parameters."""
    return DenseNet(DenseNetConfig(classes=classes))


def densenet161(classes: int = 1000) -> DenseNet:
    """DenseNet-161: 28.7 million parameters."""
    return DenseNet(DenseNetConfig(48, (6, 12, 36, 24), 96, classes=classes))


def densenet169(classes: int = 1000) -> DenseNet:
    """DenseNet-169: 14.1 million parameters."""
    return DenseNet(DenseNetConfig(32, (6, 12, 32, 32), 64, classes=classes))


def densenet201(classes: int = 1000) -> DenseNet:
    """DenseNet-201: 20.0 million parameters."""
    return DenseNet(DenseNetConfig(32, (6, 12, 48, 32), 64, classes=classes))
