"""SqueezeNet, with torchvision's names of parameters, so its state dictionaries load."""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import Conv2d, Dropout, MaxPool2d, Module, ReLU, Sequential, init

__all__ = ["SqueezeNet", "squeezenet1_0", "squeezenet1_1"]


class Fire(Module):
    """1x1 convolution to fewer channels, then 1x1 and 3x3 ones beside each other."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        self.squeeze = Conv2d(inputs, squeezed, 1)
        self.expand1x1 = Conv2d(squeezed, expanded, 1)
        self.expand3x3 = Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return F.concat([F.relu(self.expand1x1(x)), F.relu(self.expand3x3(x))], axis=1)


# (squeezed, expanded) channels of fire modules; None halves the image. The same in both versions but for the places.
FIRES = {
    "1.0": ((16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256)),
    "1.1": ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256)),
}


class SqueezeNet(Module):
    """SqueezeNet: fire modules, and a 1x1 convolution to classes whose image is averaged. version: "1.0" or "1.1".

    forward(x): x float[n, 3, h, w], from 21 x 21 on -> logits float[n, classes]. Raises ValueError for other versions.
    Source: Iandola et al. 2016, SqueezeNet: AlexNet-level accuracy with 50x fewer parameters.

    >>> import weft as wf
    >>> from weft import models
    >>> models.SqueezeNet("1.1", classes=10)(wf.zeros((2, 3, 33, 33))).shape
    (2, 10)
    """

    repr_attributes = ("version",)

    def __init__(self, version: str = "1.1", classes: int = 1000, dropout: float = 0.5) -> None:
        if version not in FIRES:
            raise ValueError(f"SqueezeNet: version must be '1.0' or '1.1', got {version!r}")
        self.version = version
        channels = 96 if version == "1.0" else 64
        first = Conv2d(3, channels, 7 if version == "1.0" else 3, 2)
        layers: list[Module] = [first, ReLU(), MaxPool2d(3, 2, ceil_mode=True)]
        for fire in FIRES[version]:
            if fire is None:
                layers.append(MaxPool2d(3, 2, ceil_mode=True))
            else:
                layers.append(Fire(channels, *fire))
                channels = 2 * fire[1]
        last = Conv2d(channels, classes, 1)
        self.features = Sequential(*layers)
        self.classifier = Sequential(Dropout(dropout), last, ReLU())
        self.apply(_begin)
        init.normal_(last.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        return F.mean(self.classifier(self.features(x)), axis=(2, 3))


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d):
        init.kaiming_uniform_(module.weight)
        if module.bias is not None:
            init.zeros_(module.bias)


def squeezenet1_0(classes: int = 1000) -> SqueezeNet:
    """SqueezeNet 1.0: 1.25 million parameters."""
    return SqueezeNet("1.0", classes)


def squeezenet1_1(classes: int = 1000) -> SqueezeNet:
    """SqueezeNet 1.1: 1.24 million parameters, 2.4 times less computation than 1.0."""
    return SqueezeNet("1.1", classes)
