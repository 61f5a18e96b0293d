"""The first convolutional networks: LeNet, AlexNet, VGG.

Names of parameters of AlexNet and VGG are torchvision's, so its state dictionaries load.
"""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.models.blocks import begin_like_torchvision
from weft.module import (
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Linear,
    MaxPool2d,
    Module,
    ReLU,
    Sequential,
    Tanh,
)

__all__ = ["VGG", "AlexNet", "LeNet", "vgg11", "vgg13", "vgg16", "vgg19"]


class LeNet(Module):
    """LeNet-5: two convolutions and three linear layers with tanh, images averaged by 2 x 2 between them.

    forward(x): x float[n, channels, 28, 28] -> logits float[n, classes].
    Source: LeCun, Bottou, Bengio, Haffner 1998, Gradient-based learning applied to document recognition; with all
    connections between its planes, and a linear layer at the end.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.LeNet()
    >>> net(wf.zeros((2, 1, 28, 28))).shape, sum(p.size for p in net.parameters())
    ((2, 10), 61706)
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        self.conv1, self.conv2 = Conv2d(channels, 6, 5, padding=2), Conv2d(6, 16, 5)
        self.classifier = Sequential(Linear(400, 120), Tanh(), Linear(120, 84), Tanh(), Linear(84, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(F.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(F.tanh(self.conv2(x)), 2)
        return self.classifier(F.flatten(x, 1))


class AlexNet(Module):
    """AlexNet, in the form of its author's second paper: one column of five convolutions, three linear layers.

    forward(x): x float[n, 3, h, w], from 63 x 63 on -> logits float[n, classes]. 61.1 million parameters.
    Source: Krizhevsky 2014, One weird trick for parallelizing convolutional neural networks.

    >>> from weft import models
    >>> [layer.out_channels for layer in models.AlexNet(10).features if hasattr(layer, "out_channels")]
    [64, 192, 384, 256, 256]
    """

    def __init__(self, classes: int = 1000, dropout: float = 0.5) -> None:
        self.features = Sequential(
            *(Conv2d(3, 64, 11, 4, 2), ReLU(), MaxPool2d(3, 2)),
            *(Conv2d(64, 192, 5, padding=2), ReLU(), MaxPool2d(3, 2)),
            *(Conv2d(192, 384, 3, padding=1), ReLU()),
            *(Conv2d(384, 256, 3, padding=1), ReLU()),
            *(Conv2d(256, 256, 3, padding=1), ReLU(), MaxPool2d(3, 2)),
        )
        self.avgpool = AdaptiveAvgPool2d(6)
        self.classifier = Sequential(
            *(Dropout(dropout), Linear(256 * 6 * 6, 4096), ReLU()),
            *(Dropout(dropout), Linear(4096, 4096), ReLU()),
            Linear(4096, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.flatten(self.avgpool(self.features(x)), 1))


class VGG(Module):
    """Stages of 3x3 convolutions, each halved at its end by a maximum; three linear layers.

    stages: convolutions of each stage, whose channels are 64, 128, 256, 512, 512, times width / 64. norm: whether they
    are normalized. hidden: the size of the inner linear layers.
    forward(x): x float[n, 3, h, w], from 32 x 32 on -> logits float[n, classes].
    Source: Simonyan, Zisserman 2014, Very deep convolutional networks for large-scale image recognition.

    >>> import weft as wf
    >>> from weft import models
    >>> models.VGG((1, 1), classes=10, width=4, hidden=16)(wf.zeros((2, 3, 8, 8))).shape
    (2, 10)
    """

    repr_attributes = ("stages",)

    def __init__(
        self,
        stages: tuple[int, ...],
        classes: int = 1000,
        norm: bool = False,
        dropout: float = 0.5,
        width: int = 64,
        hidden: int = 4096,
    ) -> None:
        self.stages = stages
        inputs, layers = 3, list[Module]()
        for stage, count in enumerate(stages):
            outputs = width * min(2**stage, 8)
            for _ in range(count):
                layers.append(Conv2d(inputs, outputs, 3, padding=1))
                layers += [BatchNorm2d(outputs), ReLU()] if norm else [ReLU()]
                inputs = outputs
            layers.append(MaxPool2d(2, 2))
        self.features, self.avgpool = Sequential(*layers), AdaptiveAvgPool2d(7)
        self.classifier = Sequential(
            *(Linear(inputs * 7 * 7, hidden), ReLU(), Dropout(dropout)),
            *(Linear(hidden, hidden), ReLU(), Dropout(dropout)),
            Linear(hidden, classes),
        )
        self.apply(begin_like_torchvision())

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.flatten(self.avgpool(self.features(x)), 1))


def vgg11(classes: int = 1000, norm: bool = False) -> VGG:
    """VGG-11: 132.9 million parameters."""
    return VGG((1, 1, 2, 2, 2), classes, norm)


def vgg13(classes: int = 1000, norm: bool = False) -> VGG:
    """VGG-13: 133.0 million parameters."""
    return VGG((2, 2, 2, 2, 2), classes, norm)


def vgg16(classes: int = 1000, norm: bool = False) -> VGG:
    """VGG-16: 138.4 million parameters."""
    return VGG((2, 2, 3, 3, 3), classes, norm)


def vgg19(classes: int = 1000, norm: bool = False) -> VGG:
    """VGG-19: 143.7 million parameters."""
    return VGG((2, 2, 4, 4, 4), classes, norm)
