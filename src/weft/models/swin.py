"""Swin, a transformer of windows of an image, with torchvision's names of parameters, so its states load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft import functional as F
from weft.arrays.creation import asarray, zeros
from weft.arrays.tensor import Tensor
from weft.models.blocks import SkippedResidual
from weft.models.convnext import ChannelsLast
from weft.models.text import merge_heads, split_heads
from weft.module import GELU, Conv2d, Dropout, LayerNorm, Linear, Module, Parameter, Sequential, init

__all__ = ["Swin", "SwinConfig", "swin_b", "swin_s", "swin_t"]


@dataclass(frozen=True)
class SwinConfig:
    """Which Swin: blocks and heads of each stage, width of the first, whose channels double; by default the tiny one.

    window: the sides of a window in patches. ratio: inner width of a block's linear layers for each channel. skip: the
    probability with which the last block's residuals are left out in training; it grows linearly from 0.

    >>> SwinConfig().features
    768
    """

    blocks: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (3, 6, 12, 24)
    width: int = 96
    patch: int = 4
    window: int = 7
    ratio: float = 4.0
    classes: int = 1000
    dropout: float = 0.0
    skip: float = 0.2

    @property
    def features(self) -> int:
        """Channels after the last stage."""
        return self.width * 2 ** (len(self.blocks) - 1)


def windows(x: Tensor, side: int) -> Tensor:
    """Windows of an image whose sides divide it: [n, h, w, c] -> [n h/side w/side, side side, c].

    >>> import weft as wf
    >>> windows(wf.zeros((2, 6, 9, 4)), 3).shape
    (12, 9, 4)
    """
    n, h, w, c = x.shape
    x = F.reshape(x, (n, h // side, side, w // side, side, c))
    return F.reshape(F.permute_dims(x, (0, 1, 3, 2, 4, 5)), (-1, side * side, c))


def image_of(x: Tensor, side: int, shape: tuple[int, int, int, int]) -> Tensor:
    """The inverse of `windows`: the image of this shape."""
    n, h, w, c = shape
    x = F.reshape(x, (n, h // side, w // side, side, side, c))
    return F.reshape(F.permute_dims(x, (0, 1, 3, 2, 4, 5)), shape)


def seen(height: int, width: int, side: int, shift: tuple[int, int]) -> np.ndarray:
    """Which places of a window see each other in an image that was rolled by shift: bool[windows, side^2, side^2].

    Those that the roll brought in from the other end see each other alone.
    """
    parts = np.zeros((height, width), "int64")
    for axis, (size, step) in enumerate(zip((height, width), shift, strict=True)):
        place = np.arange(size)
        part = (place >= size - side).astype("int64") + (place >= size - step) if step else place * 0
        parts += part.reshape(-1, 1) * 3 if axis == 0 else part
    parts = parts.reshape(height // side, side, width // side, side).swapaxes(1, 2).reshape(-1, side * side)
    return parts[:, :, None] == parts[:, None, :]


class WindowAttention(Module):
    """Attention within windows of side x side patches, with a learned bias for each difference of places and head.

    shift: how far the windows are moved against the image. An image is padded to whole windows.
    """

    relative_position_index: Tensor

    def __init__(self, width: int, heads: int, side: int, shift: int, dropout: float) -> None:
        self.heads, self.side, self.shift = heads, side, shift
        self.qkv, self.proj = Linear(width, 3 * width), Linear(width, width)
        self.dropout = Dropout(dropout)
        self.relative_position_bias_table = Parameter(zeros(((2 * side - 1) ** 2, heads)))
        place = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij")).reshape(2, -1)
        row, column = place[:, :, None] - place[:, None, :] + side - 1
        index = (row * (2 * side - 1) + column).reshape(-1)
        self.register_buffer("relative_position_index", asarray(index))
        init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """x: [n, h, w, c], channels last."""
        n, h, w, c = x.shape
        side = self.side
        whole = (-(-h // side) * side, -(-w // side) * side)
        padded = F.pad(x, (0, 0, 0, whole[1] - w, 0, whole[0] - h)) if whole != (h, w) else x
        down, right = (0 if size <= side else self.shift for size in whole)
        shift = (down, right)
        if any(shift):
            padded = F.roll(padded, (-down, -right), (1, 2))
        y = self._attend(windows(padded, side), (*whole, shift))
        y = image_of(y, side, (n, *whole, c))
        if any(shift):
            y = F.roll(y, shift, (1, 2))
        return y[:, :h, :w]

    def _attend(self, x: Tensor, where: tuple[int, int, tuple[int, int]]) -> Tensor:
        height, width, shift = where
        count, places, _ = x.shape
        q, k, v = (split_heads(part, self.heads) for part in F.chunk(self.qkv(x), 3, axis=-1))
        bias = F.take(self.relative_position_bias_table, self.relative_position_index, axis=0)
        bias = F.permute_dims(F.reshape(bias, (places, places, self.heads)), (2, 0, 1))
        if any(shift):
            mask = np.where(seen(height, width, self.side, shift), 0.0, -100.0).astype("float32")
            each = asarray(mask, device=x.device).astype(bias.dtype)
            bias = bias + each[:, None]
            bias = F.tile(bias, (count // len(mask), 1, 1, 1))
        y = merge_heads(F.scaled_dot_product_attention(q, k, v, bias))
        return self.dropout(self.proj(y))


class Block(Module):
    """x += attention in windows of normalized x, then x += two linear layers of normalized x."""

    def __init__(self, width: int, heads: int, shift: int, skip: float, config: SwinConfig) -> None:
        inner = int(width * config.ratio)
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        self.attn = WindowAttention(width, heads, config.window, shift, config.dropout)
        first, second = Linear(width, inner), Linear(inner, width)
        self.mlp = Sequential(first, GELU(), Dropout(config.dropout), second, Dropout(config.dropout))
        self.residual = SkippedResidual(skip)

    def forward(self, x: Tensor) -> Tensor:
        x = self.residual(x, self.attn(self.norm1(x)))
        return self.residual(x, self.mlp(self.norm2(x)))


class Merging(Module):
    """Patches of 2 x 2 as one, [n, h, w, c] -> [n, h/2, w/2, 2 c], rounding up."""

    def __init__(self, width: int) -> None:
        self.reduction, self.norm = Linear(4 * width, 2 * width, bias=False), LayerNorm(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        _, h, w, _ = x.shape
        if h % 2 or w % 2:
            x = F.pad(x, (0, 0, 0, w % 2, 0, h % 2))
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduction(self.norm(F.concat(parts, axis=-1)))


class Swin(Module):
    """Swin: blocks of attention within windows, which every other block moves by half a window.

    forward(x): x float[n, 3, h, w] -> logits float[n, classes].
    Source: Liu, Lin, Cao, Hu, Wei, Zhang, Lin, Guo 2021, Swin transformer: Hierarchical vision transformer using
    shifted windows.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.Swin(models.SwinConfig((1, 2), (2, 4), 8, window=3, classes=10))
    >>> net(wf.zeros((2, 3, 40, 32))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: SwinConfig | None = None) -> None:
        self.config = config = config or SwinConfig()
        width, done, total = config.width, 0, sum(config.blocks)
        layers: list[Module] = [
            Sequential(Conv2d(3, width, config.patch, config.patch), ChannelsLast(), LayerNorm(width))
        ]
        for count, heads in zip(config.blocks, config.heads, strict=True):
            if done:
                layers.append(Merging(width))
                width *= 2
            stage = []
            for k in range(count):
                shift = config.window // 2 if k % 2 else 0
                skip = config.skip * done / max(total - 1, 1)
                stage.append(Block(width, heads, shift, skip, config))
                done += 1
            layers.append(Sequential(*stage))
        self.features, self.norm = Sequential(*layers), LayerNorm(width)
        self.head = Linear(width, config.classes)
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.mean(self.norm(self.features(x)), axis=(1, 2)))


def _begin(module: Module) -> None:
    if isinstance(module, Linear):
        init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            init.zeros_(module.bias)


def swin_t(classes: int = 1000) -> Swin:
    """Swin-T: 28.3 million parameters."""
    return Swin(SwinConfig(classes=classes))


def swin_s(classes: int = 1000) -> Swin:
    """Swin-S: 49.6 million parameters."""
    return Swin(SwinConfig((2, 2, 18, 2), classes=classes, skip=0.3))


def swin_b(classes: int = 1000) -> Swin:
    """Swin-B: 87.8 million parameters."""
    return Swin(SwinConfig((2, 2, 18, 2), (4, 8, 16, 32), 128, classes=classes, skip=0.5))
