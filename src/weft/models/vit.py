"""ViT: a transformer over the patches of an image.

Names of the configuration and of the parameters are those of ViTForImageClassification in transformers, so its weights
load.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.models.bert import Dense, SelfAttention
from weft.models.text import normal_weights
from weft.module import Conv2d, Dropout, LayerNorm, Linear, Module, Parameter, init

__all__ = ["ViT", "ViTConfig"]


@dataclass(frozen=True)
class ViTConfig:
    """How large a ViT is; by default the base one, with patches of 16 x 16: 86.6 million parameters.

    num_labels: the number of classes. Raises ValueError if patch_size does not divide image_size, or
    num_attention_heads not hidden_size.

    >>> ViTConfig().patches
    196
    """

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    num_labels: int = 1000
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    qkv_bias: bool = True
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for whole, part in (("hidden_size", "num_attention_heads"), ("image_size", "patch_size")):
            n, m = getattr(self, whole), getattr(self, part)
            if m < 1 or n % m:
                raise ValueError(f"ViTConfig: {whole}={n} must be divisible by {part}={m}")

    @property
    def patches(self) -> int:
        """The number of patches of an image."""
        return (self.image_size // self.patch_size) ** 2


class PatchEmbeddings(Module):
    """A linear layer of each patch, float[n, c, h, w] -> float[n, patches, hidden_size]."""

    def __init__(self, config: ViTConfig) -> None:
        self.config = config
        self.projection = Conv2d(
            config.num_channels, config.hidden_size, config.patch_size, config.patch_size
        )

    def forward(self, x: Tensor) -> Tensor:
        size = self.config.image_size
        if x.shape[2:] != (size, size):
            raise ShapeError(
                f"ViT: images are {size} x {size} for its positions, x is {x.shape[2]} x {x.shape[3]}"
            )
        return F.matrix_transpose(F.flatten(self.projection(x), 2))


class Embeddings(Module):
    """Patches behind a first place of its own, and learned positions."""

    def __init__(self, config: ViTConfig) -> None:
        init.count_elements((config.patches + 1, config.hidden_size))
        self.cls_token = Parameter(zeros((1, 1, config.hidden_size)))
        self.position_embeddings = Parameter(zeros((1, config.patches + 1, config.hidden_size)))
        self.patch_embeddings = PatchEmbeddings(config)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch_embeddings(x)
        first = F.broadcast_to(self.cls_token, (patches.shape[0], 1, patches.shape[2]))
        return self.dropout(F.concat([first, patches], axis=1) + self.position_embeddings)


class Attention(Module):
    """Attention and its linear layer."""

    def __init__(self, config: ViTConfig) -> None:
        width, heads = config.hidden_size, config.num_attention_heads
        self.attention = SelfAttention(width, heads, config.attention_probs_dropout_prob, config.qkv_bias)
        self.output = Output(width, config)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.attention(x))


class Output(Module):
    """A linear layer and dropout."""

    def __init__(self, inputs: int, config: ViTConfig) -> None:
        self.dense, self.dropout = Linear(inputs, config.hidden_size), Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.dense(x))


class Block(Module):
    """x += attention(normalized x), then x += layers(normalized x)."""

    def __init__(self, config: ViTConfig) -> None:
        width, inner = config.hidden_size, config.intermediate_size
        self.layernorm_before, self.layernorm_after = (
            LayerNorm(width, config.layer_norm_eps) for _ in range(2)
        )
        self.attention, self.intermediate = Attention(config), Dense(width, inner, F.gelu)
        self.output = Output(inner, config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        return x + self.output(self.intermediate(self.layernorm_after(x)))


class Encoder(Module):
    """Blocks, one after the other."""

    def __init__(self, config: ViTConfig) -> None:
        self.layer = [Block(config) for _ in range(config.num_hidden_layers)]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layer:
            x = block(x)
        return x


class Body(Module):
    """Embeddings, blocks and the last normalization."""

    def __init__(self, config: ViTConfig) -> None:
        self.embeddings, self.encoder = Embeddings(config), Encoder(config)
        self.layernorm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.layernorm(self.encoder(self.embeddings(x)))


class ViT(Module):
    """A classifier of images: a transformer over their patches, and a linear layer of its first place.

    forward(x): x float[n, num_channels, image_size, image_size] -> logits float[n, num_labels]. Raises ShapeError for
    images of another size.
    Source: Dosovitskiy et al. 2020, An image is worth 16 x 16 words: Transformers for image recognition at scale.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.ViT(models.ViTConfig(16, 2, 2, 32, image_size=8, patch_size=4, num_labels=10))
    >>> net(wf.zeros((2, 3, 8, 8))).shape
    (2, 10)
    """

    repr_attributes = ("config",)

    def __init__(self, config: ViTConfig | None = None) -> None:
        self.config = config = config or ViTConfig()
        self.vit = Body(config)
        self.classifier = Linear(config.hidden_size, config.num_labels)
        self.apply(normal_weights(config.initializer_range))
        embeddings = self.vit.embeddings
        patches = embeddings.patch_embeddings.projection.weight
        for x in (embeddings.cls_token, embeddings.position_embeddings, patches):
            init.normal_(x, std=config.initializer_range)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.vit(x)[:, 0])
