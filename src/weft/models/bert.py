"""BERT: an encoder of text, and its head that predicts masked tokens.

Names of the configuration and of the parameters are those of BertModel and BertForMaskedLM in transformers, so their
weights load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft import functional as F
from weft import random
from weft.arrays.creation import arange, zeros_like
from weft.arrays.tensor import Tensor
from weft.models.text import merge_heads, normal_weights, split_heads
from weft.module import Dropout, Embedding, LayerNorm, Linear, Module, Parameter
from weft.module.linear import parameter

__all__ = ["Bert", "BertConfig", "BertForMaskedLM"]


@dataclass(frozen=True)
class BertConfig:
    """How large a BERT is; by default the base one, with 110 million parameters.

    max_position_embeddings: the most tokens of a text; type_vocab_size: of its parts, such as question and answer.
    Raises ValueError if num_attention_heads does not divide hidden_size.

    >>> BertConfig().intermediate_size
    3072
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    pad_token_id: int | None = 0
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.num_attention_heads < 1 or self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"BertConfig: hidden_size={self.hidden_size} must be divisible by "
                f"num_attention_heads={self.num_attention_heads}"
            )


class Embeddings(Module):
    """Tokens, positions and parts, each embedded, summed and normalized."""

    ignored_state = ("position_ids", "token_type_ids")  # that older versions of transformers saved

    def __init__(self, config: BertConfig) -> None:
        width = config.hidden_size
        self.word_embeddings = Embedding(config.vocab_size, width, config.pad_token_id)
        self.position_embeddings = Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = Embedding(config.type_vocab_size, width)
        self.LayerNorm = LayerNorm(width, config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, tokens: Tensor, parts: Tensor | None) -> Tensor:
        parts = zeros_like(tokens) if parts is None else parts
        places = arange(tokens.shape[1], device=tokens.device)
        x = (
            self.word_embeddings(tokens)
            + self.token_type_embeddings(parts)
            + self.position_embeddings(places)
        )
        return self.dropout(self.LayerNorm(x))


class SelfAttention(Module):
    """softmax(q k^T) v of all positions; mask: fits [n, heads, t, t]."""

    def __init__(self, hidden_size: int, heads: int, dropout: float, bias: bool = True) -> None:
        self.heads, self.attention_dropout = heads, dropout
        self.query, self.key, self.value = (Linear(hidden_size, hidden_size, bias) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (split_heads(layer(x), self.heads) for layer in (self.query, self.key, self.value))
        options: dict[str, Any] = {}
        if self.training and self.attention_dropout:
            options = {"dropout": self.attention_dropout, "key": random.key(device=x.device)}
        return merge_heads(F.scaled_dot_product_attention(q, k, v, mask, **options))


class Output(Module):
    """normalized(residual + dense(x))."""

    def __init__(self, inputs: int, config: BertConfig) -> None:
        self.dense = Linear(inputs, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(residual + self.dropout(self.dense(x)))


class Attention(Module):
    """Attention and its output."""

    def __init__(self, config: BertConfig) -> None:
        width, heads, dropout = (
            config.hidden_size,
            config.num_attention_heads,
            config.attention_probs_dropout_prob,
        )
        self.self = SelfAttention(width, heads, dropout)
        self.output = Output(width, config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.output(self.self(x, mask), x)


class Dense(Module):
    """activation(dense(x))."""

    def __init__(self, inputs: int, outputs: int, activation: Any) -> None:
        self.dense, self.activation = Linear(inputs, outputs), activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(self.dense(x))
        return y


class Block(Module):
    """Attention, then two linear layers at each position, each with its residual."""

    def __init__(self, config: BertConfig) -> None:
        self.attention = Attention(config)
        self.intermediate = Dense(config.hidden_size, config.intermediate_size, F.gelu)
        self.output = Output(config.intermediate_size, config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(Module):
    """Blocks, one after the other."""

    def __init__(self, config: BertConfig) -> None:
        self.layer = [Block(config) for _ in range(config.num_hidden_layers)]

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        for block in self.layer:
            x = block(x, mask)
        return x


class Bert(Module):
    """BERT without a head.

    forward(tokens, mask=None, parts=None): tokens int[n, t]; mask: bool[n, t], true for tokens and false for padding;
    parts: int[n, t], which part of its text a token belongs to, by default 0. Returns float[n, t, hidden_size], and of
    the first position tanh(linear(y)), float[n, hidden_size], or None with pooler=False.
    Source: Devlin et al. 2018, BERT: Pre-training of deep bidirectional transformers for language understanding.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.Bert(models.BertConfig(50, 16, 2, 2, 32, 8)).eval()
    >>> y, pooled = net(wf.tensor([[3, 1, 4, 0]]), wf.tensor([[True, True, True, False]]))
    >>> y.shape, pooled.shape
    ((1, 4, 16), (1, 16))
    """

    repr_attributes = ("config",)

    def __init__(self, config: BertConfig | None = None, pooler: bool = True) -> None:
        self.config = config = config or BertConfig()
        self.embeddings, self.encoder = Embeddings(config), Encoder(config)
        self.pooler = Dense(config.hidden_size, config.hidden_size, F.tanh) if pooler else None
        self.apply(normal_weights(config.initializer_range))

    def forward(
        self, tokens: Tensor, mask: Tensor | None = None, parts: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        seen = None if mask is None else mask[:, None, None, :]
        x = self.encoder(self.embeddings(tokens, parts), seen)
        return x, None if self.pooler is None else self.pooler(x[:, 0])


class Transform(Dense):
    """normalized(gelu(dense(x)))."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config.hidden_size, config.hidden_size, F.gelu)
        self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.LayerNorm(super().forward(x))


class Predictions(Module):
    """Logits of tokens: the embedding's weight again, and a bias."""

    def __init__(self, config: BertConfig, embedding: Embedding) -> None:
        self.bias = parameter(config.vocab_size, "float32", None)
        self.transform = Transform(config)
        self.decoder = Linear(config.hidden_size, config.vocab_size)
        self.decoder.weight, self.decoder.bias = Parameter(embedding.weight), Parameter(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.transform(x))


class Head(Module):
    """The part that transformers calls cls."""

    def __init__(self, config: BertConfig, embedding: Embedding) -> None:
        self.predictions = Predictions(config, embedding)

    def forward(self, x: Tensor) -> Tensor:
        return self.predictions(x)


class BertForMaskedLM(Module):
    """BERT that predicts the tokens behind masks: logits float[n, t, vocab_size]. Called as Bert is.

    >>> import weft as wf
    >>> from weft import models
    >>> models.BertForMaskedLM(models.BertConfig(50, 16, 2, 2, 32, 8))(wf.tensor([[3, 1, 4]])).shape
    (1, 3, 50)
    """

    repr_attributes = ("config",)

    def __init__(self, config: BertConfig | None = None) -> None:
        self.config = config = config or BertConfig()
        self.bert = Bert(config, pooler=False)
        self.cls = Head(config, self.bert.embeddings.word_embeddings)
        self.cls.apply(normal_weights(config.initializer_range))

    def forward(self, tokens: Tensor, mask: Tensor | None = None, parts: Tensor | None = None) -> Tensor:
        return self.cls(self.bert(tokens, mask, parts)[0])
