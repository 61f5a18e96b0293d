"""U-Net: segmentation of images by a network that halves them and doubles them again."""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.models.blocks import Unit, begin_like_torchvision
from weft.module import Conv2d, ConvTranspose2d, Module, Sequential

__all__ = ["UNet"]


def pair(inputs: int, outputs: int) -> Sequential:
    """Two 3x3 convolutions with normalization and ReLU."""
    return Sequential(Unit(inputs, outputs), Unit(outputs, outputs))


class UNet(Module):
    """Pairs of 3x3 convolutions at levels of half the size each, down and up again with what was there on the way down.

    widths: channels at each level. Padding keeps the sizes, and each convolution is normalized, as is usual today.
    forward(x): x float[n, channels, h, w] of any size from 2^(levels - 1) on -> logits float[n, classes, h, w].
    Source: Ronneberger, Fischer, Brox 2015, U-Net: Convolutional networks for biomedical image segmentation.

    >>> import weft as wf
    >>> from weft import models
    >>> models.UNet(channels=1, classes=2, widths=(4, 8, 16))(wf.zeros((2, 1, 30, 21))).shape
    (2, 2, 30, 21)
    """

    repr_attributes = ("widths",)

    def __init__(
        self, channels: int = 3, classes: int = 2, widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    ) -> None:
        self.widths = widths
        inputs = (channels, *widths[:-1])
        self.down = [pair(n, m) for n, m in zip(inputs, widths, strict=True)]
        levels = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.grow = [ConvTranspose2d(n, m, 2, 2) for n, m in levels]
        self.up = [pair(2 * m, m) for _, m in levels]
        self.head = Conv2d(widths[0], classes, 1)
        self.apply(begin_like_torchvision())

    def forward(self, x: Tensor) -> Tensor:
        before: list[Tensor] = []
        for k, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if k else x)
            before.append(x)
        for grow, level, skipped in zip(self.grow, self.up, before[-2::-1], strict=True):
            y = grow(x)
            rows, columns = (n - m for n, m in zip(skipped.shape[2:], y.shape[2:], strict=True))
            x = level(F.concat([skipped, F.pad(y, (0, columns, 0, rows))], axis=1))
        return self.head(x)
