"""Residual networks for images, version 1.5: a bottleneck halves the image in its 3x3 convolution.

Names of parameters and buffers are torchvision's, so its state dictionaries load (as NumPy arrays, without
num_batches_tracked).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import BatchNorm2d, Conv2d, Linear, Module, Sequential, init

__all__ = ["ResNet", "ResNetConfig", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


@dataclass(frozen=True)
class ResNetConfig:
    """Which residual network: blocks in each stage, of three convolutions (a bottleneck) or of two.

    width: channels of the first stage's 3x3 convolutions, twice as many in each later stage. channels: of images.

    >>> ResNetConfig(blocks=(2, 2, 2, 2), bottleneck=False).features
    512
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    bottleneck: bool = True
    width: int = 64
    channels: int = 3
    classes: int = 1000

    @property
    def features(self) -> int:
        """Channels after the last stage."""
        last = self.width * 2 ** (len(self.blocks) - 1)
        return last * (Bottleneck if self.bottleneck else Basic).expansion


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> Conv2d:
    """A square convolution that keeps the image's size but for its stride; batch norm has the bias."""
    return Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Residual(Module):
    """Base of blocks: relu(path(x) + shortcut(x)); the shortcut is x itself where its shape is that of the path."""

    expansion: ClassVar[int]  # channels of the result for each of the 3x3 convolution

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        outputs = width * self.expansion
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = Sequential(convolution(inputs, outputs, 1, stride), BatchNorm2d(outputs))

    def path(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.path(x) + shortcut)


class Basic(Residual):
    """Two 3x3 convolutions: blocks of ResNet-18 and 34."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        self.conv1, self.bn1 = convolution(inputs, width, 3, stride), BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3), BatchNorm2d(width)
        super().__init__(inputs, width, stride)

    def path(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))


class Bottleneck(Residual):
    """1x1, 3x3 and 1x1 convolutions, the outer ones with four times the channels: blocks of ResNet-50 and deeper."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        outputs = width * self.expansion
        self.conv1, self.bn1 = convolution(inputs, width, 1), BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, outputs, 1), BatchNorm2d(outputs)
        super().__init__(inputs, width, stride)

    def path(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))


class ResNet(Module):
    """A residual network: a 7x7 convolution, stages of residual blocks, the mean of the image, a linear layer.

    forward(x): x float[n, channels, h, w] -> logits float[n, classes]; h and w are halved five times, rounding up.
    Convolutions begin normally distributed (He, by their outputs).
    Source: He, Zhang, Ren, Sun 2015, Deep residual learning for image recognition, with the stride of the 3x3
    convolution (Goyal et al. 2017), which is known as version 1.5.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.ResNet(models.ResNetConfig(blocks=(1, 1), width=8, classes=10)).eval()
    >>> net(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: ResNetConfig | None = None) -> None:
        self.config = config = config or ResNetConfig()
        block = Bottleneck if config.bottleneck else Basic
        self.conv1 = convolution(config.channels, config.width, 7, 2)
        self.bn1 = BatchNorm2d(config.width)
        inputs = config.width
        for stage, count in enumerate(config.blocks):
            width = config.width * 2**stage
            strides = [1 if stage == 0 else 2] + [1] * (count - 1)
            blocks = []
            for stride in strides:
                blocks.append(block(inputs, width, stride))
                inputs = width * block.expansion
            setattr(self, f"layer{stage + 1}", Sequential(*blocks))
        self.fc = Linear(inputs, config.classes)
        self.apply(_begin)

    @property
    def stages(self) -> list[Module]:
        """The stages, layer1 and so on."""
        return [getattr(self, f"layer{stage + 1}") for stage in range(len(self.config.blocks))]

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        for stage in self.stages:
            x = stage(x)
        return self.fc(F.mean(x, axis=(2, 3)))


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d):
        init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet18(classes: int = 1000) -> ResNet:
    """ResNet-18: 11.7 million parameters.

    >>> from weft import models
    >>> models.resnet18().config.blocks
    (2, 2, 2, 2)
    """
    return ResNet(ResNetConfig((2, 2, 2, 2), bottleneck=False, classes=classes))


def resnet34(classes: int = 1000) -> ResNet:
    """ResNet-34: 21.8 million parameters."""
    return ResNet(ResNetConfig((3, 4, 6, 3), bottleneck=False, classes=classes))


def resnet50(classes: int = 1000) -> ResNet:
    """ResNet-50: 25.6 million parameters, 4.09 billion multiplications for an image of 224 x 224."""
    return ResNet(ResNetConfig((3, 4, 6, 3), classes=classes))


def resnet101(classes: int = 1000) -> ResNet:
    """ResNet-101: 44.5 million parameters."""
    return ResNet(ResNetConfig((3, 4, 23, 3), classes=classes))


def resnet152(classes: int = 1000) -> ResNet:
    """ResNet-152: 60.2 million parameters."""
    return ResNet(ResNetConfig((3, 8, 36, 3), classes=classes))
