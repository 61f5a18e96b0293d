"""Residual networks, version 2: normalization and ReLU come before each convolution, and nothing after the sum."""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.models.blocks import begin_like_torchvision
from weft.models.resnet import ResNetConfig, convolution
from weft.module import BatchNorm2d, Linear, Module, Sequential

__all__ = ["ResNetV2"]


class Block(Module):
    """x + convolutions, each of the normalized ReLU of what comes before; sizes: outputs, kernel and stride of each."""

    def __init__(self, inputs: int, sizes: list[tuple[int, int, int]]) -> None:
        channels, stride = inputs, 1
        self.count = len(sizes)
        for k, (outputs, size, step) in enumerate(sizes, 1):
            setattr(self, f"bn{k}", BatchNorm2d(channels))
            setattr(self, f"conv{k}", convolution(channels, outputs, size, step))
            channels, stride = outputs, stride * step
        is_like = inputs == channels and stride == 1
        self.downsample = None if is_like else convolution(inputs, channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = shortcut = x
        for k in range(1, self.count + 1):
            y = F.relu(getattr(self, f"bn{k}")(y))
            if k == 1 and self.downsample is not None:
                shortcut = self.downsample(y)
            y = getattr(self, f"conv{k}")(y)
        return y + shortcut


class ResNetV2(Module):
    """A residual network whose identity path has nothing but sums. Its configuration is ResNet's.

    forward(x): x float[n, channels, h, w] -> logits float[n, classes]; h and w are halved five times, rounding up.
    Parameters have the names of ResNet's where there is the like of them.
    Source: He, Zhang, Ren, Sun 2016, Identity mappings in deep residual networks.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.ResNetV2(models.ResNetConfig(blocks=(1, 1), width=8, classes=10)).eval()
    >>> net(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: ResNetConfig | None = None) -> None:
        self.config = config = config or ResNetConfig()
        self.conv1 = convolution(config.channels, config.width, 7, 2)
        inputs = config.width
        for stage, count in enumerate(config.blocks):
            width, blocks = config.width * 2**stage, []
            for k in range(count):
                stride = 2 if stage and k == 0 else 1
                if config.bottleneck:
                    sizes = [(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)]
                else:
                    sizes = [(width, 3, stride), (width, 3, 1)]
                blocks.append(Block(inputs, sizes))
                inputs = sizes[-1][0]
            setattr(self, f"layer{stage + 1}", Sequential(*blocks))
        self.bn, self.fc = BatchNorm2d(inputs), Linear(inputs, config.classes)
        self.apply(begin_like_torchvision())

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x), kernel_size=3, stride=2, padding=1)
        for stage in range(len(self.config.blocks)):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(F.mean(F.relu(self.bn(x)), axis=(2, 3)))
