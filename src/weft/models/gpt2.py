"""GPT-2: a decoder-only transformer with learned positions.

Names of the configuration and of the parameters are those of GPT2LMHeadModel in transformers, so its weights load. The
weights of its linear layers are [in, out].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft import functional as F
from weft import random
from weft.arrays.tensor import Tensor
from weft.models.text import Caches, causal_attention, merge_heads, normal_weights, positions, split_heads
from weft.module import Dropout, Embedding, KeyValueCache, LayerNorm, Linear, Module, Parameter, init
from weft.module.linear import parameter

__all__ = ["GPT2", "GPT2Config"]


@dataclass(frozen=True)
class GPT2Config:
    """How large a GPT-2 is; by default the smallest one, with 124 million parameters.

    n_positions: the most tokens of a text; n_inner: the inner width of blocks, 4 n_embd by default; embd_pdrop,
    resid_pdrop, attn_pdrop: dropout of embeddings, of the parts' results and of attention weights. Raises ValueError if
    n_head does not divide n_embd.

    >>> GPT2Config().inner
    3072
    """

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    layer_norm_epsilon: float = 1e-5
    embd_pdrop: float = 0.1
    resid_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.n_head < 1 or self.n_embd % self.n_head:
            raise ValueError(f"GPT2Config: n_embd={self.n_embd} must be divisible by n_head={self.n_head}")

    @property
    def inner(self) -> int:
        """The inner width of blocks."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner


class Conv1D(Module):
    """x weight + bias, weight [inputs, outputs]: a linear layer with its weight turned, as GPT-2 has been published."""

    repr_attributes = ("inputs", "outputs")

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.weight = parameter((inputs, outputs), "float32", None)
        self.bias = parameter(outputs, "float32", None)
        init.normal_(self.weight, std=std)
        init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.matmul(x, self.weight) + self.bias


class Attention(Module):
    """Causal attention; queries, keys and values by one product."""

    ignored_state = ("bias", "masked_bias")  # masks that older versions of transformers saved

    def __init__(self, config: GPT2Config) -> None:
        width, std = config.n_embd, config.initializer_range
        self.heads, self.attention_dropout = config.n_head, config.attn_pdrop
        self.c_attn = Conv1D(width, 3 * width, std)
        self.c_proj = Conv1D(width, width, std / math.sqrt(2 * config.n_layer))
        self.dropout = Dropout(config.resid_pdrop)

    def forward(self, x: Tensor, cache: KeyValueCache | None) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in F.chunk(self.c_attn(x), 3, axis=-1))
        drawn = None
        if self.training and self.attention_dropout:
            drawn = {"dropout": self.attention_dropout, "key": random.key(device=x.device)}
        return self.dropout(self.c_proj(merge_heads(causal_attention(q, k, v, cache, drawn))))


class Layers(Module):
    """proj(gelu(fc(x))), with the approximation of gelu by tanh."""

    def __init__(self, config: GPT2Config) -> None:
        width, inner, std = config.n_embd, config.inner, config.initializer_range
        self.c_fc = Conv1D(width, inner, std)
        self.c_proj = Conv1D(inner, width, std / math.sqrt(2 * config.n_layer))
        self.dropout = Dropout(config.resid_pdrop)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


class Block(Module):
    """x += attention(normalized x), then x += layers(normalized x)."""

    def __init__(self, config: GPT2Config) -> None:
        self.ln_1, self.ln_2 = (LayerNorm(config.n_embd, config.layer_norm_epsilon) for _ in range(2))
        self.attn, self.mlp = Attention(config), Layers(config)

    def forward(self, x: Tensor, cache: KeyValueCache | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class Decoder(Module):
    """Embeddings of tokens and positions, blocks and the last normalization: int[n, t] -> float[n, t, n_embd]."""

    def __init__(self, config: GPT2Config) -> None:
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_positions, config.n_embd)
        self.drop = Dropout(config.embd_pdrop)
        self.h = [Block(config) for _ in range(config.n_layer)]
        self.ln_f = LayerNorm(config.n_embd, config.layer_norm_epsilon)

    def forward(self, tokens: Tensor, caches: Caches | None = None) -> Tensor:
        x = self.drop(self.wte(tokens) + self.wpe(positions(tokens, caches)))
        for k, block in enumerate(self.h):
            x = block(x, None if caches is None else caches[k])
        return self.ln_f(x)


class GPT2(Module):
    """GPT-2 as a language model; the output has the weight of the embedding.

    forward(tokens, caches=None, last=False): int[n, t], t up to n_positions -> logits float[n, t, vocab_size], where
    position i has seen tokens 0 ... i. With the caches that `cache` makes, tokens are the next ones of their texts;
    see Llama.
    Raises IndexError, when it runs, for more than n_positions tokens.
    last: logits of the last position alone, [n, 1, vocab_size]; the others are not computed.
    Source: Radford et al. 2019, Language models are unsupervised multitask learners.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.GPT2(models.GPT2Config(50, 8, n_embd=16, n_layer=2, n_head=2)).eval()
    >>> tokens, caches = wf.tensor([[3, 1, 4, 1, 5]]), net.cache(1)
    >>> parts = [net(tokens[:, :3], caches), net(tokens[:, 3:], caches)]
    >>> bool((abs(wf.concat(parts, axis=1) - net(tokens)) < 1e-5).all())
    True
    """

    repr_attributes = ("config",)

    def __init__(self, config: GPT2Config | None = None) -> None:
        self.config = config = config or GPT2Config()
        self.transformer = Decoder(config)
        self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = Parameter(self.transformer.wte.weight)
        self.apply(normal_weights(config.initializer_range))

    def forward(self, tokens: Tensor, caches: Caches | None = None, last: bool = False) -> Tensor:
        x = self.transformer(tokens, caches)
        return self.lm_head(x[:, -1][:, None] if last else x)

    def cache(self, batch: int, capacity: int | None = None) -> list[KeyValueCache]:
        """Empty caches for so many texts, one for each layer, of the type and on the device of the parameters.

        capacity: the most tokens of a text, by default n_positions.

        >>> from weft import models
        >>> net = models.GPT2(models.GPT2Config(50, 8, n_embd=16, n_layer=2, n_head=2))
        >>> [cache.keys.shape for cache in net.cache(3)]
        [(3, 2, 8, 8), (3, 2, 8, 8)]
        """
        c, weight = self.config, self.transformer.wte.weight
        capacity = c.n_positions if capacity is None else capacity
        sizes = (batch, c.n_head, capacity, c.n_embd // c.n_head)
        return [KeyValueCache(*sizes, dtype=weight.dtype, device=weight.device) for _ in self.transformer.h]
