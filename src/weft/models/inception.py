"""Inception v3, with torchvision's names of parameters, so its state dictionaries load."""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import BatchNorm2d, Conv2d, Dropout, Linear, Module, init

__all__ = ["InceptionV3"]

Size = int | tuple[int, int]


class Unit(Module):
    """Convolution without bias, batch normalization, ReLU."""

    def __init__(self, inputs: int, outputs: int, size: Size, stride: int = 1, padding: Size = 0) -> None:
        self.conv = Conv2d(inputs, outputs, size, stride, padding, bias=False)
        self.bn = BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


# A unit of a branch by its name: outputs, size, stride, and padding, which keeps the image's size without a stride.
Units = dict[str, tuple[int, Size, int]]


class Branches(Module):
    """Branches of units that read x, whose results are joined by channels; one of them begins with a pooling.

    chains: the units of each branch. A tuple of names in a chain are units beside each other, joined by channels.
    pool: "mean" (3x3, of the same size), or "max" (3x3, half the size), of the last branch.
    """

    def __init__(
        self, inputs: int, units: Units, *chains: tuple[str | tuple[str, ...], ...], pool: str
    ) -> None:
        self.chains, self.pool = chains, pool
        self.outputs = 0 if pool == "mean" else inputs
        for chain in chains:
            channels = inputs
            for step in chain:
                names = step if isinstance(step, tuple) else (step,)
                for name in names:
                    outputs, size, stride = units[name]
                    height, width = (size, size) if isinstance(size, int) else size
                    padding = (height // 2, width // 2) if stride == 1 else 0
                    setattr(self, name, Unit(channels, outputs, size, stride, padding))
                channels = sum(units[name][0] for name in names)
            self.outputs += channels

    def forward(self, x: Tensor) -> Tensor:
        if self.pool == "mean":
            *others, last = self.chains
            pooled = self._run(F.avg_pool2d(x, 3, 1, 1), last)
        else:
            others, pooled = list(self.chains), F.max_pool2d(x, 3, 2)
        return F.concat([*(self._run(x, chain) for chain in others), pooled], axis=1)

    def _run(self, x: Tensor, chain: tuple[str | tuple[str, ...], ...]) -> Tensor:
        for step in chain:
            if isinstance(step, tuple):
                x = F.concat([getattr(self, name)(x) for name in step], axis=1)
            else:
                x = getattr(self, step)(x)
        return x


def small(inputs: int, pooled: int) -> Branches:
    """1x1, 5x5, and two 3x3 convolutions, for images of 35 x 35."""
    units: Units = {
        "branch1x1": (64, 1, 1),
        "branch5x5_1": (48, 1, 1),
        "branch5x5_2": (64, 5, 1),
        "branch3x3dbl_1": (64, 1, 1),
        "branch3x3dbl_2": (96, 3, 1),
        "branch3x3dbl_3": (96, 3, 1),
        "branch_pool": (pooled, 1, 1),
    }
    double = ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3")
    chains = (("branch1x1",), ("branch5x5_1", "branch5x5_2"), double, ("branch_pool",))
    return Branches(inputs, units, *chains, pool="mean")


def halving(inputs: int) -> Branches:
    """From 35 x 35 to 17 x 17."""
    units: Units = {
        "branch3x3": (384, 3, 2),
        "branch3x3dbl_1": (64, 1, 1),
        "branch3x3dbl_2": (96, 3, 1),
        "branch3x3dbl_3": (96, 3, 2),
    }
    chains = (("branch3x3",), ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"))
    return Branches(inputs, units, *chains, pool="max")


def wide(inputs: int, inner: int) -> Branches:
    """Convolutions of 1 x 7 and 7 x 1 in the place of 7 x 7, for images of 17 x 17."""
    row, column = (1, 7), (7, 1)
    units: Units = {
        "branch1x1": (192, 1, 1),
        "branch7x7_1": (inner, 1, 1),
        "branch7x7_2": (inner, row, 1),
        "branch7x7_3": (192, column, 1),
        "branch7x7dbl_1": (inner, 1, 1),
        "branch7x7dbl_2": (inner, column, 1),
        "branch7x7dbl_3": (inner, row, 1),
        "branch7x7dbl_4": (inner, column, 1),
        "branch7x7dbl_5": (192, row, 1),
        "branch_pool": (192, 1, 1),
    }
    single = tuple(f"branch7x7_{k}" for k in range(1, 4))
    double = tuple(f"branch7x7dbl_{k}" for k in range(1, 6))
    return Branches(inputs, units, ("branch1x1",), single, double, ("branch_pool",), pool="mean")


def halving_again(inputs: int) -> Branches:
    """From 17 x 17 to 8 x 8."""
    units: Units = {
        "branch3x3_1": (192, 1, 1),
        "branch3x3_2": (320, 3, 2),
        "branch7x7x3_1": (192, 1, 1),
        "branch7x7x3_2": (192, (1, 7), 1),
        "branch7x7x3_3": (192, (7, 1), 1),
        "branch7x7x3_4": (192, 3, 2),
    }
    chains = (("branch3x3_1", "branch3x3_2"), tuple(f"branch7x7x3_{k}" for k in range(1, 5)))
    return Branches(inputs, units, *chains, pool="max")


def split(inputs: int) -> Branches:
    """1 x 3 and 3 x 1 convolutions beside each other, for images of 8 x 8."""
    units: Units = {
        "branch1x1": (320, 1, 1),
        "branch3x3_1": (384, 1, 1),
        "branch3x3_2a": (384, (1, 3), 1),
        "branch3x3_2b": (384, (3, 1), 1),
        "branch3x3dbl_1": (448, 1, 1),
        "branch3x3dbl_2": (384, 3, 1),
        "branch3x3dbl_3a": (384, (1, 3), 1),
        "branch3x3dbl_3b": (384, (3, 1), 1),
        "branch_pool": (192, 1, 1),
    }
    single = ("branch3x3_1", ("branch3x3_2a", "branch3x3_2b"))
    double = ("branch3x3dbl_1", "branch3x3dbl_2", ("branch3x3dbl_3a", "branch3x3dbl_3b"))
    return Branches(inputs, units, ("branch1x1",), single, double, ("branch_pool",), pool="mean")


class Auxiliary(Module):
    """A classifier of the images of 17 x 17, whose loss helps the layers before it in training."""

    def __init__(self, inputs: int, classes: int) -> None:
        self.conv0, self.conv1 = Unit(inputs, 128, 1), Unit(128, 768, 5)
        self.fc = Linear(768, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.mean(self.conv1(self.conv0(F.avg_pool2d(x, 5, 3))), axis=(2, 3)))


class InceptionV3(Module):
    """Inception v3: modules of convolutions of several sizes beside each other.

    forward(x): x float[n, 3, h, w], of 299 x 299 as published, from 75 x 75 on -> logits float[n, classes]. With
    auxiliary=True it has a second classifier, and in training returns (logits, logits of that one). 27.2 million
    parameters with it, 23.8 million without.
    Source: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna 2015, Rethinking the Inception architecture for computer vision.

    >>> import weft as wf
    >>> from weft import models
    >>> models.InceptionV3(classes=10, auxiliary=False).eval()(wf.zeros((1, 3, 75, 75))).shape
    (1, 10)
    """

    def __init__(self, classes: int = 1000, auxiliary: bool = True, dropout: float = 0.5) -> None:
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = Unit(3, 32, 3, 2), Unit(32, 32, 3)
        self.Conv2d_2b_3x3 = Unit(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = Unit(64, 80, 1), Unit(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = small(192, 32), small(256, 64), small(288, 64)
        self.Mixed_6a = halving(288)
        self.Mixed_6b, self.Mixed_6c = wide(768, 128), wide(768, 160)
        self.Mixed_6d, self.Mixed_6e = wide(768, 160), wide(768, 192)
        self.AuxLogits = Auxiliary(768, classes) if auxiliary else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = halving_again(768), split(1280), split(2048)
        self.dropout, self.fc = Dropout(dropout), Linear(2048, classes)
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, 2))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        y = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        logits = self.fc(self.dropout(F.mean(y, axis=(2, 3))))
        if self.AuxLogits is None or not self.training:
            return logits
        return logits, self.AuxLogits(x)


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d | Linear):
        init.trunc_normal_(module.weight, std=0.1)
