"""ShuffleNet V2, with torchvision's names of parameters, so its state dictionaries load."""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.models.blocks import Unit
from weft.module import BatchNorm2d, Conv2d, Linear, Module, ReLU, Sequential

__all__ = [
    "ShuffleNetV2",
    "shufflenet_v2_x0_5",
    "shufflenet_v2_x1_0",
    "shufflenet_v2_x1_5",
    "shufflenet_v2_x2_0",
]


def depthwise(channels: int, stride: int) -> list[Module]:
    """A 3x3 convolution in each channel, and batch normalization."""
    return [Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False), BatchNorm2d(channels)]


def pointwise(inputs: int, outputs: int) -> list[Module]:
    """A 1x1 convolution, batch normalization, ReLU."""
    return [Conv2d(inputs, outputs, 1, bias=False), BatchNorm2d(outputs), ReLU()]


class Shuffled(Module):
    """Two branches of outputs / 2 channels, whose channels are interleaved.

    stride 1: one branch is half of x, the other works on the other half; stride 2: both work on all of x.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        half = outputs // 2
        self.stride = stride
        self.branch1 = (
            Sequential(*depthwise(inputs, stride), *pointwise(inputs, half)) if stride > 1 else None
        )
        self.branch2 = Sequential(
            *pointwise(inputs if stride > 1 else half, half), *depthwise(half, stride), *pointwise(half, half)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.branch1 is None:
            first, second = F.chunk(x, 2, axis=1)
        else:
            first, second = self.branch1(x), x
        return F.channel_shuffle(F.concat([first, self.branch2(second)], axis=1), 2)


class ShuffleNetV2(Module):
    """ShuffleNet V2: stages of halved and shuffled channels.

    blocks: of each stage; channels: of the first convolution, of each stage, and of the last convolution.
    forward(x): x float[n, 3, h, w] -> logits float[n, classes]; h and w are halved five times, rounding up.
    Source: Ma, Zhang, Zheng, Sun 2018, ShuffleNet V2: Practical guidelines for efficient CNN architecture design.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.ShuffleNetV2((2, 2), (8, 16, 32, 64), classes=10).eval()
    >>> net(wf.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """

    repr_attributes = ("blocks", "channels")

    def __init__(
        self,
        blocks: tuple[int, ...] = (4, 8, 4),
        channels: tuple[int, ...] = (24, 116, 232, 464, 1024),
        classes: int = 1000,
    ) -> None:
        if len(channels) != len(blocks) + 2:
            raise ValueError(
                f"ShuffleNetV2: needs {len(blocks) + 2} numbers of channels, got {len(channels)}"
            )
        self.blocks, self.channels = blocks, channels
        inputs, *stages, last = channels
        self.conv1 = Unit(3, inputs, 3, 2)
        for k, (count, outputs) in enumerate(zip(blocks, stages, strict=True), 2):
            rest = [Shuffled(outputs, outputs, 1) for _ in range(count - 1)]
            setattr(self, f"stage{k}", Sequential(Shuffled(inputs, outputs, 2), *rest))
            inputs = outputs
        self.conv5, self.fc = Unit(inputs, last, 1), Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x), kernel_size=3, stride=2, padding=1)
        for k in range(len(self.blocks)):
            x = getattr(self, f"stage{k + 2}")(x)
        return self.fc(F.mean(self.conv5(x), axis=(2, 3)))


def shufflenet_v2_x0_5(classes: int = 1000) -> ShuffleNetV2:
    """ShuffleNet V2 of half the channels: 1.4 million parameters."""
    return ShuffleNetV2(channels=(24, 48, 96, 192, 1024), classes=classes)


def shufflenet_v2_x1_0(classes: int = 1000) -> ShuffleNetV2:
    """ShuffleNet V2: 2.3 million parameters.

    >>> from weft import models
    >>> sum(p.size for p in models.shufflenet_v2_x1_0().parameters())
    2278604
    """
    return ShuffleNetV2(classes=classes)


def shufflenet_v2_x1_5(classes: int = 1000) -> ShuffleNetV2:
    """ShuffleNet V2 of 1.5 times the channels: 3.5 million parameters."""
    return ShuffleNetV2(channels=(24, 176, 352, 704, 1024), classes=classes)


def shufflenet_v2_x2_0(classes: int = 1000) -> ShuffleNetV2:
    """ShuffleNet V2 of twice the channels: 7.4 million parameters."""
    return ShuffleNetV2(channels=(24, 244, 488, 976, 2048), classes=classes)
