"""What the models of text share: attention heads, causal attention with or without a cache, initial values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import functional as F
from weft.arrays.creation import arange
from weft.arrays.tensor import Tensor
from weft.module import Embedding, KeyValueCache, Linear, Module, init

__all__ = ["Caches", "causal_attention", "merge_heads", "normal_weights", "positions", "split_heads"]

Caches = Sequence[KeyValueCache]  # one for each layer


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[n, t, heads c] -> [n, heads, t, c].

    >>> import weft as wf
    >>> split_heads(wf.zeros((2, 5, 12)), 3).shape
    (2, 3, 5, 4)
    """
    n, t, width = x.shape
    return F.permute_dims(F.reshape(x, (n, t, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """[n, heads, t, c] -> [n, t, heads c]: the inverse of split_heads."""
    n, heads, t, width = x.shape
    return F.reshape(F.permute_dims(x, (0, 2, 1, 3)), (n, t, heads * width))


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, cache: KeyValueCache | None = None, dropout: dict[str, Any] | None = None
) -> Tensor:
    """Attention of each position to those up to its own; with a cache, to which k and v are appended, to its as well.

    >>> import weft as wf
    >>> x = wf.ones((1, 2, 3, 4))
    >>> causal_attention(x, x, x).shape
    (1, 2, 3, 4)
    """
    ranges = None
    if cache is not None:
        k, v, ranges = cache.append(k, v)
    y: Tensor = F.scaled_dot_product_attention(
        q, k, v, ranges=ranges, is_causal=cache is None, **(dropout or {})
    )
    return y


def positions(tokens: Tensor, caches: Caches | None) -> Tensor:
    """The positions of tokens int[n, t] in their texts, int64[t]: those behind what the caches hold.

    With caches that have starts int64[n, t]; padding has the position 0.

    >>> import weft as wf
    >>> positions(wf.zeros((2, 3), dtype="int64"), None)
    tensor([0, 1, 2], dtype=int64, device=cpu:0)
    """
    places = arange(tokens.shape[1], device=tokens.device)
    if caches is None:
        return places
    places, starts = places + caches[0].length, caches[0].starts
    return places if starts is None else F.maximum(places - starts[:, None], 0)


def normal_weights(std: float) -> Any:
    """A function for Module.apply: weights of Linear and Embedding become normal(0, std), biases 0."""

    def begin(module: Module) -> None:
        if isinstance(module, (Linear, Embedding)):
            init.normal_(module.weight, std=std)
        if isinstance(module, Linear) and module.bias is not None:
            init.zeros_(module.bias)

    return begin
