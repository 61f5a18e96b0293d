"""A transformer that predicts the next token, and its decoding with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from weft import functional as F
from weft.arrays.creation import arange, zeros
from weft.arrays.tensor import Tensor
from weft.module import Embedding, LayerNorm, Linear, Module, init

__all__ = ["GPT", "Cache", "GPTConfig"]

# What a block attends with: queries, keys and values, each [n, heads, t, width / heads], to the result of that shape.
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class GPTConfig:
    """How large a GPT is. context: the most positions; hidden: the inner width of blocks, 4 width by default.

    >>> GPTConfig(width=512).hidden_width
    2048
    """

    layers: int = 6
    width: int = 512
    heads: int = 8
    vocabulary: int = 8192
    context: int = 256
    hidden: int | None = None

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(f"GPTConfig: width={self.width} must be divisible by heads={self.heads}")

    @property
    def hidden_width(self) -> int:
        """The inner width of blocks."""
        return 4 * self.width if self.hidden is None else self.hidden


class Cache(NamedTuple):
    """Keys and values of every layer, each float[n, heads, context, width / heads], written in place.

    Made by GPT.cache; written by GPT.prefill and GPT.decode. Being a tuple, it is an argument of traced functions.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def prefill(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write positions 0 ... t - 1; each sees those up to its own."""
        self.keys[layer][:, :, : k.shape[2]] = k
        self.values[layer][:, :, : v.shape[2]] = v
        return causal(q, k, v)

    def decode(self, seen: Tensor, position: Tensor, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write one position, int[1]; it sees those where `seen` [context] is true."""
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, position] = k
        values[:, :, position] = v
        return F.scaled_dot_product_attention(q, keys, values, seen)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of every position to those up to its own."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(Module):
    """x += proj(attend(qkv(ln1(x)))), then x += down(gelu(up(ln2(x)))): normalization before each part."""

    def __init__(self, config: GPTConfig) -> None:
        width, hidden = config.width, config.hidden_width
        self.heads = config.heads
        self.ln1, self.ln2 = LayerNorm(width), LayerNorm(width)
        self.qkv, self.proj = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, hidden), Linear(hidden, width)

    def forward(self, x: Tensor, attend: Attend = causal) -> Tensor:
        n, t, width = x.shape
        split = F.reshape(self.qkv(self.ln1(x)), (n, t, 3, self.heads, width // self.heads))
        q, k, v = (F.permute_dims(split, (2, 0, 3, 1, 4))[part] for part in range(3))
        heads = F.reshape(F.permute_dims(attend(q, k, v), (0, 2, 1, 3)), (n, t, width))
        x = x + self.proj(heads)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(Module):
    """A decoder-only transformer: learned positions, blocks, a last normalization, the embedding again as output.

    forward(tokens): int[n, t], t up to config.context -> logits float[n, t, vocabulary], where position i has seen
    tokens 0 ... i. Weights of linear layers and embeddings begin normal(0, 0.02), biases with 0.
    Text is continued with a cache, whose memory is written in place: `prefill` reads the beginning, and every `decode`
    one token more. The position of that token is an array as well, so `wf.trace` makes one program of the step for all
    positions, and steps are queued without waiting for what the one before chose.
    Source: Radford et al. 2019, Language models are unsupervised multitask learners.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.GPT(models.GPTConfig(layers=2, width=16, heads=2, vocabulary=50, context=8))
    >>> @wf.trace
    ... def step(token, position, cache):
    ...     following = wf.argmax(net.decode(token, position, cache), axis=-1)
    ...     return following, position + 1
    >>> tokens = wf.tensor([[3, 1, 4]])
    >>> cache = net.cache(1)
    >>> token, position = wf.argmax(net.prefill(tokens, cache)[:, -1], axis=-1), wf.asarray(3)
    >>> text = []
    >>> for _ in range(5):
    ...     token, position = step(token, position, cache)
    ...     text.append(token)
    >>> len(step.programs), position.item()
    (1, 8)
    """

    repr_attributes = ("config",)

    def __init__(self, config: GPTConfig | None = None) -> None:
        self.config = config = config or GPTConfig()
        self.tokens = Embedding(config.vocabulary, config.width)
        self.positions = Embedding(config.context, config.width)
        self.blocks = [Block(config) for _ in range(config.layers)]
        self.ln = LayerNorm(config.width)
        self.apply(_begin)

    def forward(self, tokens: Tensor) -> Tensor:
        return self._logits(tokens, self.positions.weight[: tokens.shape[1]], [causal] * len(self.blocks))

    def cache(self, batch: int) -> Cache:
        """An empty cache for this many texts, of the type and on the device of the parameters.

        >>> from weft import models
        >>> models.GPT(models.GPTConfig(layers=2, width=16, heads=2, context=8)).cache(3).keys[0].shape
        (3, 2, 8, 8)
        """
        c, weight = self.config, self.tokens.weight
        shape = (batch, c.heads, c.context, c.width // c.heads)
        keys, values = (
            tuple(zeros(shape, dtype=weight.dtype, device=weight.device) for _ in self.blocks)
            for _ in range(2)
        )
        return Cache(keys, values)

    def prefill(self, tokens: Tensor, cache: Cache) -> Tensor:
        """What forward computes for the beginning of a text, int[n, t]; the cache then holds positions 0 ... t - 1."""
        attend = [partial(cache.prefill, layer) for layer in range(len(self.blocks))]
        return self._logits(tokens, self.positions.weight[: tokens.shape[1]], attend)

    def decode(self, token: Tensor, position: Tensor, cache: Cache) -> Tensor:
        """Logits float[n, vocabulary] after one token more: int[n], at a position below config.context, int[].

        The cache has to hold all positions before; this one is written. Attention reads the whole cache, and the part
        behind the position has no weight.
        """
        mask = arange(self.config.context, device=token.device) <= position
        attend = [partial(cache.decode, mask, position[None], layer) for layer in range(len(self.blocks))]
        return self._logits(token[:, None], self.positions(position), attend)[:, 0]

    def _logits(self, tokens: Tensor, positions: Tensor, attend: Sequence[Attend]) -> Tensor:
        x = self.tokens(tokens) + positions
        for block, block_attend in zip(self.blocks, attend, strict=True):
            x = block(x, block_attend)
        return F.linear(self.ln(x), self.tokens.weight)


def _begin(module: Module) -> None:
    if isinstance(module, (Linear, Embedding)):
        init.normal_(module.weight, std=0.02)
    if isinstance(module, Linear) and module.bias is not None:
        init.zeros_(module.bias)
