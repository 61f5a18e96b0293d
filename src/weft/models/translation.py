"""A transformer that translates: an encoder of one text, and a decoder that continues the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft import functional as F
from weft.arrays.creation import arange
from weft.arrays.tensor import Tensor
from weft.module import Dropout, Embedding, Linear, Module, Parameter, Transformer, init

__all__ = ["TranslationConfig", "TranslationTransformer", "sinusoids"]


def sinusoids(count: int, width: int, like: Tensor) -> Tensor:
    """Encodings of positions, [count, width]: sin and cos of position / 10000^(2 i / width), in turn; like: for dtype.

    >>> import weft as wf
    >>> sinusoids(2, 4, wf.zeros(1))
    tensor([[0.        , 1.        , 0.        , 1.        ],
            [0.84147096, 0.5403023 , 0.00999983, 0.99995   ]], dtype=float32, device=cpu:0)
    """
    pairs = arange(0, width, 2, dtype="float64", device=like.device)
    rates = F.exp(pairs * (-math.log(10000.0) / width))
    angles = arange(count, dtype="float64", device=like.device)[:, None] * rates
    both = F.stack([F.sin(angles), F.cos(angles)], axis=-1)
    return F.reshape(both, (count, -1))[:, :width].astype(like.dtype)


@dataclass(frozen=True)
class TranslationConfig:
    """How large the transformer is; by default the base one of the paper, with one vocabulary for both texts.


    >>> TranslationConfig().target_size
    32000
    """

    source_vocabulary: int = 32000
    target_vocabulary: int | None = None
    width: int = 512
    heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    hidden: int = 2048
    dropout: float = 0.1

    @property
    def target_size(self) -> int:
        """The number of tokens of the target; without a vocabulary of its own it is the source's."""
        return self.source_vocabulary if self.target_vocabulary is None else self.target_vocabulary


class TranslationTransformer(Module):
    """The transformer of the paper: embeddings with sinusoidal positions, encoder and decoder, logits of next tokens.

    forward(source, target, source_mask=None): source int[n, s], target int[n, t] -> logits float[n, t, target tokens],
    where position i has seen all of the source and the target's tokens 0 ... i. source_mask: bool[n, s], false for
    padding. Without target_vocabulary both texts share one embedding; the output has the weight of the target's.
    encode and decode are its halves.
    Source: Vaswani et al. 2017, Attention is all you need.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.TranslationTransformer(models.TranslationConfig(50, 60, 16, 2, 1, 1, 32))
    >>> source, target = wf.zeros((2, 7), dtype="int64"), wf.zeros((2, 5), dtype="int64")
    >>> net(source, target).shape
    (2, 5, 60)
    """

    repr_attributes = ("config",)

    def __init__(self, config: TranslationConfig | None = None) -> None:
        self.config = c = config or TranslationConfig()
        self.source = Embedding(c.source_vocabulary, c.width)
        self.target = self.source if c.target_vocabulary is None else Embedding(c.target_size, c.width)
        self.transformer = Transformer(
            c.width, c.heads, c.encoder_layers, c.decoder_layers, c.hidden, c.dropout
        )
        self.dropout, self.head = Dropout(c.dropout), Linear(c.width, c.target_size, bias=False)
        self.head.weight = Parameter(self.target.weight)
        for x in {id(x): x for x in (self.source.weight, self.target.weight)}.values():
            init.normal_(x, std=c.width**-0.5)

    def _embedded(self, table: Embedding, tokens: Tensor) -> Tensor:
        x = table(tokens) * math.sqrt(self.config.width)
        return self.dropout(x + sinusoids(tokens.shape[1], self.config.width, x))

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """What the decoder reads of the source, float[n, s, width]."""
        return self.transformer.encoder(self._embedded(self.source, source), attended(source_mask))

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Logits float[n, t, target tokens] from encode's result."""
        x = self._embedded(self.target, target)
        y = self.transformer.decoder(x, memory, memory_mask=attended(source_mask), is_causal=True)
        return self.head(y)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return self.decode(target, self.encode(source, source_mask), source_mask)


def attended(mask: Tensor | None) -> Tensor | None:
    """A mask bool[n, s] of keys as attention takes it."""
    return None if mask is None else mask[:, None, None, :]
