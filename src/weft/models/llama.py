"""Llama: a decoder-only transformer with rotary positions, grouped heads and gated layers.

Names of the configuration and of the parameters are those of LlamaForCausalLM in transformers, so its weights load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft import functional as F
from weft.arrays.creation import arange
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.models.text import Caches, causal_attention, merge_heads, normal_weights, positions, split_heads
from weft.module import Embedding, KeyValueCache, Linear, Module, Parameter, RMSNorm

__all__ = ["Llama", "LlamaConfig", "RopeScaling"]


@dataclass(frozen=True)
class RopeScaling:
    """How Llama 3.1 stretches rotary positions to longer texts than the original_max_position_embeddings.

    Pairs that turn fewer than low_freq_factor times within the original length become `factor` times slower, those that
    turn more than high_freq_factor times stay as they are; between them the share is linear.
    Source: Grattafiori et al. 2024, The Llama 3 herd of models, and its published code.
    """

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclass(frozen=True)
class LlamaConfig:
    """How large a Llama is; by default Llama 2 with 7 billion parameters.

    num_key_value_heads: by default num_attention_heads, each shared by neighbouring heads otherwise; head_dim: by
    default hidden_size / num_attention_heads. max_position_embeddings: the capacity of caches. Raises ValueError if
    heads do not divide.

    >>> LlamaConfig(hidden_size=64, num_attention_heads=4).head_size
    16
    """

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        heads, shared = self.num_attention_heads, self.key_value_heads
        if heads < 1 or (self.head_dim is None and self.hidden_size % heads):
            raise ValueError(
                f"LlamaConfig: hidden_size={self.hidden_size} must be divisible by num_attention_heads={heads}"
            )
        if shared < 1 or heads % shared:
            raise ValueError(
                f"LlamaConfig: num_attention_heads={heads} must be divisible by num_key_value_heads={shared}"
            )

    @property
    def key_value_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def head_size(self) -> int:
        """Features of a head."""
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    def frequencies(self, device: Device | str | None = None) -> Tensor | None:
        """The angle that each pair of a head turns in one position, float64[head_size / 2]; None: rope_theta says it.

        >>> scaling = RopeScaling(original_max_position_embeddings=64)
        >>> LlamaConfig(hidden_size=8, num_attention_heads=2, rope_scaling=scaling).frequencies()
        tensor([1.     , 0.00125], dtype=float64, device=cpu:0)
        """
        scaling = self.rope_scaling
        if scaling is None:
            return None
        pairs = self.head_size // 2
        rates = F.exp(
            arange(pairs, dtype="float64", device=device) * (-math.log(self.rope_theta) / max(pairs, 1))
        )
        turns = rates * (scaling.original_max_position_embeddings / (2 * math.pi))
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        unchanged = F.clip((turns - low) / (high - low), 0.0, 1.0)
        return rates * (unchanged + (1 - unchanged) / scaling.factor)


class Attention(Module):
    """Causal attention whose queries and keys are rotated by their positions; keys and values have fewer heads."""

    def __init__(self, config: LlamaConfig) -> None:
        width, head, bias = config.hidden_size, config.head_size, config.attention_bias
        self.heads, self.shared, self.base = (
            config.num_attention_heads,
            config.key_value_heads,
            config.rope_theta,
        )
        self.q_proj = Linear(width, self.heads * head, bias)
        self.k_proj, self.v_proj = (Linear(width, self.shared * head, bias) for _ in range(2))
        self.o_proj = Linear(self.heads * head, width, bias)

    def forward(
        self, x: Tensor, places: Tensor, frequencies: Tensor | None, cache: KeyValueCache | None
    ) -> Tensor:
        q = split_heads(self.q_proj(x), self.heads)
        k, v = (split_heads(layer(x), self.shared) for layer in (self.k_proj, self.v_proj))
        q, k = (F.rotary_embedding(y, places, frequencies, base=self.base) for y in (q, k))
        return self.o_proj(merge_heads(causal_attention(q, k, v, cache)))


class GatedLayers(Module):
    """down(silu(gate(x)) up(x)): SwiGLU."""

    def __init__(self, config: LlamaConfig) -> None:
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj, self.up_proj = (Linear(width, inner, bias) for _ in range(2))
        self.down_proj = Linear(inner, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(Module):
    """x += attention(normalized x), then x += gated layers(normalized x)."""

    def __init__(self, config: LlamaConfig) -> None:
        self.self_attn, self.mlp = Attention(config), GatedLayers(config)
        self.input_layernorm, self.post_attention_layernorm = (
            RMSNorm(config.hidden_size, config.rms_norm_eps) for _ in range(2)
        )

    def forward(
        self, x: Tensor, places: Tensor, frequencies: Tensor | None, cache: KeyValueCache | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), places, frequencies, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(Module):
    """Embedding, blocks and the last normalization: int[n, t] -> float[n, t, hidden_size]."""

    def __init__(self, config: LlamaConfig) -> None:
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config) for _ in range(config.num_hidden_layers)]
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, tokens: Tensor, caches: Caches | None = None) -> Tensor:
        places, frequencies = positions(tokens, caches), self.config.frequencies(tokens.device)
        if places.ndim == 2:
            places = places[:, None]  # the same for all heads
        x = self.embed_tokens(tokens)
        for k, layer in enumerate(self.layers):
            x = layer(x, places, frequencies, None if caches is None else caches[k])
        return self.norm(x)


class Llama(Module):
    """A language model with rotary positions, RMS normalization before each part, grouped heads, and SwiGLU.

    forward(tokens, caches=None, last=False): int[n, t] -> logits float[n, t, vocab_size], where position i has seen
    tokens 0 ... i.
    With the caches that `cache` makes, tokens are the next ones of their texts: the caches say how many came before,
    and get those of the call. The length is an array, so that a traced step is one program for every length.
    last: logits of the last position alone, [n, 1, vocab_size]; the others are not computed.
    tie_word_embeddings: the output has the weight of the embedding.
    Source: Touvron et al. 2023, Llama 2: Open foundation and fine-tuned chat models.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.Llama(models.LlamaConfig(50, 16, 32, 2, 4, num_key_value_heads=2, max_position_embeddings=12))
    >>> caches = net.cache(1)
    >>> step = wf.trace(lambda tokens: wf.argmax(net(tokens, caches)[:, -1:], axis=-1))
    >>> token = step(wf.tensor([[3, 1, 4]]))
    >>> for _ in range(5):
    ...     token = step(token)
    >>> token.shape, caches[0].length.item()
    ((1, 1), 8)
    """

    repr_attributes = ("config",)

    def __init__(self, config: LlamaConfig | None = None) -> None:
        self.config = config = config or LlamaConfig()
        self.model = Decoder(config)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = Parameter(self.model.embed_tokens.weight)
        self.apply(normal_weights(config.initializer_range))

    def forward(self, tokens: Tensor, caches: Caches | None = None, last: bool = False) -> Tensor:
        x = self.model(tokens, caches)
        return self.lm_head(x[:, -1][:, None] if last else x)

    def cache(self, batch: int, capacity: int | None = None) -> list[KeyValueCache]:
        """Empty caches for so many texts, one for each layer, of the type and on the device of the parameters.

        capacity: the most tokens of a text, by default max_position_embeddings.

        >>> from weft import models
        >>> net = models.Llama(models.LlamaConfig(50, 16, 32, 2, 4))
        >>> [cache.keys.shape for cache in net.cache(3, 10)]
        [(3, 4, 10, 4), (3, 4, 10, 4)]
        """
        c, weight = self.config, self.model.embed_tokens.weight
        capacity = c.max_position_embeddings if capacity is None else capacity
        sizes = (batch, c.key_value_heads, capacity, c.head_size)
        return [KeyValueCache(*sizes, dtype=weight.dtype, device=weight.device) for _ in self.model.layers]
