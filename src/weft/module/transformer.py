"""Layers of transformers: attention and a network of two layers at each place, with normalized residuals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.module.attention import KeyValueCache, MultiheadAttention
from weft.module.container import Dropout
from weft.module.linear import Linear
from weft.module.module import Module
from weft.module.normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


ACTIVATIONS = ("relu", "gelu")  # by name


class _Layer(Module):
    """Base: the network at each place, and how residuals are added."""

    repr_attributes = ("norm_first",)

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Callable[[Tensor], Tensor] | str = F.relu,
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        made: dict[str, Any] = {"dtype": dtype, "device": device}
        if isinstance(activation, str):
            if activation not in ACTIVATIONS:
                accepted = ", ".join(map(repr, ACTIVATIONS))
                raise ValueError(
                    f"{type(self).__name__}: activation must be a function or one of {accepted}, got {activation!r}"
                )
            activation = getattr(F, activation)
        self.activation: Callable[[Tensor], Tensor] = activation  # type: ignore[assignment]
        self.norm_first = norm_first
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, **made)
        self.linear1 = Linear(d_model, dim_feedforward, **made)
        self.linear2 = Linear(dim_feedforward, d_model, **made)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, **made)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, **made)
        self.dropout = Dropout(dropout)

    def _added(self, x: Tensor, part: Callable[[Tensor], Tensor], norm: LayerNorm) -> Tensor:
        """x with what a part makes of it, normalized before or after."""
        if self.norm_first:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself and a network at each place: x [n, t, d_model] -> the same shape.

    forward(x, mask=None, is_causal=False, *, ranges=None, cache=None): as MultiheadAttention's; mask fits [n, nhead, t,
    t]. dim_feedforward: the network's inner size; activation: a function, F.relu by default, or "relu" or "gelu";
    norm_first: normalization before each part instead of after the sum. Dropout is that of the parts' results, of the
    inner layer and of the attention weights. Batches come first, as batch_first=True of PyTorch's, whose parameters
    have the same names.
    Source: Vaswani et al. 2017, Attention is all you need; Xiong et al. 2020 (norm_first).

    >>> import weft as wf
    >>> TransformerEncoderLayer(8, 2, 16)(wf.zeros((3, 5, 8)), is_causal=True).shape
    (3, 5, 8)
    """

    def forward(
        self, x: Tensor, mask: Tensor | None = None, is_causal: bool = False, **options: Any
    ) -> Tensor:
        x = self._added(x, lambda v: self.self_attn(v, None, None, mask, is_causal, **options), self.norm1)
        return self._added(x, self._feed_forward, self.norm2)


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself and to a memory, and a network at each place: x [n, t, d_model] -> the same.

    forward(x, memory, mask=None, memory_mask=None, is_causal=False, *, ranges=None, cache=None, memory_ranges=None):
    memory [n, s, d_model]; memory_mask fits [n, nhead, t, s], memory_ranges are those of the memory. See
    TransformerEncoderLayer.

    >>> import weft as wf
    >>> TransformerDecoderLayer(8, 2, 16)(wf.zeros((3, 5, 8)), wf.zeros((3, 7, 8))).shape
    (3, 5, 8)
    """

    def __init__(self, d_model: int, nhead: int, *args: Any, **keywords: Any) -> None:
        super().__init__(d_model, nhead, *args, **keywords)
        made: dict[str, Any] = {"dtype": self.linear1.weight.dtype, "device": self.linear1.weight.device}
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=self.dropout.p, **made)
        self.norm3 = LayerNorm(d_model, self.norm1.eps, **made)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        memory_ranges: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        def seen(v: Tensor) -> Tensor:
            return self.multihead_attn(v, memory, mask=memory_mask, ranges=memory_ranges)

        x = self._added(x, lambda v: self.self_attn(v, None, None, mask, is_causal, **options), self.norm1)
        x = self._added(x, seen, self.norm2)
        return self._added(x, self._feed_forward, self.norm3)


class _Stack(Module):
    """Base: copies of a layer, each with the result of the one before, and a normalization at the end or None."""

    def __init__(self, layer: _Layer, num_layers: int, norm: Module | None = None) -> None:
        if num_layers < 1:
            raise ValueError(f"{type(self).__name__}: needs at least 1 layer, got {num_layers}")
        self.layers = [copy.deepcopy(layer) for _ in range(num_layers)]
        self.norm = norm

    def forward(self, x: Tensor, *others: Any, caches: Any = None, **options: Any) -> Tensor:
        for k, layer in enumerate(self.layers):
            own = {} if caches is None else {"cache": caches[k]}
            x = layer(x, *others, **options, **own)
        return x if self.norm is None else self.norm(x)

    def cache(self, batch: int, capacity: int) -> list[KeyValueCache]:
        """Empty caches for `caches`, one for each layer: of so many sequences, and places of each.

        >>> import weft as wf
        >>> net = TransformerEncoder(TransformerEncoderLayer(8, 2, 16), 2).eval()
        >>> caches = net.cache(3, 10)
        >>> net(wf.zeros((3, 1, 8)), caches=caches).shape, caches[1].length.item()
        ((3, 1, 8), 1)
        """
        attention = self.layers[0].self_attn
        weight = attention.out_proj.weight
        sizes = (batch, attention.num_kv_heads, capacity, attention.embed_dim // attention.num_heads)
        return [KeyValueCache(*sizes, dtype=weight.dtype, device=weight.device) for _ in self.layers]


class TransformerEncoder(_Stack):
    """num_layers copies of an encoder layer, and a normalization at the end or None.

    forward(x, mask=None, is_causal=False, *, ranges=None, caches=None): with the caches of `cache` it goes on from what
    it has read. The copies begin with the layer's values, as in PyTorch.

    >>> import weft as wf
    >>> TransformerEncoder(TransformerEncoderLayer(8, 2, 16), 2)(wf.zeros((3, 5, 8))).shape
    (3, 5, 8)
    """


class TransformerDecoder(_Stack):
    """num_layers copies of a decoder layer, and a normalization at the end or None.

    forward(x, memory, mask=None, memory_mask=None, is_causal=False, *, ranges=None, memory_ranges=None, caches=None).
    The copies begin with the layer's values. See TransformerEncoder.

    >>> import weft as wf
    >>> net = TransformerDecoder(TransformerDecoderLayer(8, 2, 16), 2)
    >>> net(wf.zeros((3, 5, 8)), wf.zeros((3, 7, 8))).shape
    (3, 5, 8)
    """


class Transformer(Module):
    """An encoder and a decoder, both with a normalization at the end.

    forward(source, target, source_mask=None, target_mask=None, memory_mask=None, is_causal=False): source
    [n, s, d_model], target [n, t, d_model]; is_causal: of the target. Returns [n, t, d_model].
    Source: Vaswani et al. 2017, Attention is all you need.

    >>> import weft as wf
    >>> net = Transformer(8, 2, 1, 1, 16)
    >>> net(wf.zeros((3, 7, 8)), wf.zeros((3, 5, 8)), is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        **keywords: Any,
    ) -> None:
        layer = (d_model, nhead, dim_feedforward, dropout)
        made = {name: keywords[name] for name in ("dtype", "device") if name in keywords}
        encoder, decoder = (
            TransformerEncoderLayer(*layer, **keywords),
            TransformerDecoderLayer(*layer, **keywords),
        )
        self.encoder = TransformerEncoder(encoder, num_encoder_layers, LayerNorm(d_model, **made))
        self.decoder = TransformerDecoder(decoder, num_decoder_layers, LayerNorm(d_model, **made))

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(source, source_mask)
        y: Tensor = self.decoder(target, memory, target_mask, memory_mask, is_causal=is_causal)
        return y
