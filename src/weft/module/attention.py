"""Attention with several heads, and the memory of what it has read."""

from __future__ import annotations

from typing import Any

from weft import functional as F
from weft import random
from weft.arrays.creation import arange, tensor, zeros
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.module import init
from weft.module.linear import Linear, parameter
from weft.module.module import Module

SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")  # where features of keys or values differ

__all__ = ["KeyValueCache", "MultiheadAttention", "alibi_slopes"]


def alibi_slopes(num_heads: int, device: Device | str | None = None) -> Tensor:
    """The slopes of ALiBi for so many heads, float32[num_heads]: 2^(-8 i / n) for i = 1 ... n, n a power of two.

    For another number n is the power of two below it, and every other slope of 2 n follows. Raises ValueError for less
    than 1 head. For `slopes` of F.scaled_dot_product_attention.
    Source: Press, Smith, Lewis 2022, Train short, test long: attention with linear biases enables input length
    extrapolation.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    if num_heads < 1:
        raise ValueError(f"alibi_slopes: num_heads must be at least 1, got {num_heads}")
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    slopes += [2 ** (-4 * i / power) for i in range(1, 2 * power, 2)][: num_heads - power]
    return tensor(slopes, dtype="float32", device=device)


class KeyValueCache:
    """Keys and values that were read so far, for attention to go on from: what a decoder needs of its past.

    keys, values: [n, num_heads, capacity, features], of which the first `length` places are used; length: int64[], an
    array, so that a traced step, which writes it, holds for every length. One cache for each attention layer; not for
    gradients. reset() begins again. starts: None, or int64[n], the first place of each text, where texts of different
    lengths end at the same place; those before it are padding, which no place sees.
    Raises IndexError, when it runs, for more than capacity places.
    Source: Shazeer 2019, Fast transformer decoding: one write-head is all you need.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> cache = KeyValueCache(1, 2, 16, 4)
    >>> for _ in range(3):
    ...     k, v, ranges = cache.append(wf.ones((1, 2, 1, 4)), wf.ones((1, 2, 1, 4)))
    >>> cache.length.item(), ranges.tolist()
    (3, [[0, 3]])
    >>> F.scaled_dot_product_attention(wf.ones((1, 2, 1, 4)), k, v, ranges=ranges).shape
    (1, 2, 1, 4)
    """

    def __init__(
        self,
        batch: int,
        num_heads: int,
        capacity: int,
        features: int,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self.keys = zeros((batch, num_heads, capacity, features), dtype=dtype, device=device)
        self.values = zeros((batch, num_heads, capacity, features), dtype=dtype, device=device)
        self.length = zeros((), dtype="int64", device=device)
        self.starts: Tensor | None = None

    def append(self, k: Tensor, v: Tensor, before: int = -1) -> tuple[Tensor, Tensor, Tensor]:
        """Write k and v [n, num_heads, t, features] behind what is there.

        Returns all keys and values, and ranges int64[t, 2] for attention, with starts int64[n, 1, t, 2]: place i of t
        sees itself and `before` places before it, -1: all.

        >>> import weft as wf
        >>> KeyValueCache(1, 1, 8, 2).append(wf.ones((1, 1, 2, 2)), wf.ones((1, 1, 2, 2)))[2].tolist()
        [[0, 1], [0, 2]]
        """
        places = arange(k.shape[2], device=k.device) + self.length
        self.keys[:, :, places] = k
        self.values[:, :, places] = v
        self.length += k.shape[2]
        first = places * 0 if before == -1 else F.maximum(places - before, 0)
        if self.starts is not None:
            first, places = F.broadcast_arrays(F.maximum(first, self.starts[:, None, None]), places)
        return self.keys, self.values, F.stack([first, places + 1], axis=-1)

    def reset(self) -> None:
        """Forget all.

        >>> cache = KeyValueCache(1, 1, 8, 2)
        >>> cache.reset()
        >>> cache.length.item()
        0
        """
        self.length[...] = 0


class MultiheadAttention(Module):
    """Attention of num_heads heads, each on its share of embed_dim channels.

    forward(q, k=None, v=None, mask=None, is_causal=False, *, ranges=None, cache=None): q [n, t, embed_dim], k [n, s,
    kdim], v [n, s, vdim], both embed_dim by default; without k it is q, without v it is k. mask: fits [n, num_heads, t,
    s] by broadcasting, true for what is seen, or numbers that are added. is_causal: place i sees places 0 ... i.
    ranges: as in F.scaled_dot_product_attention, such as F.packed_ranges. cache: a KeyValueCache, to which this call's
    keys and values are added first; each place then sees all up to itself. Returns [n, t, embed_dim].
    num_kv_heads: heads of keys and values, which divide num_heads and are shared by neighbours (grouped queries).
    dropout: of the attention weights, in training. rotary: "halves" or "interleaved", how queries and keys are rotated
    by their places (F.rotary_embedding), with rotary_base; None: not at all. slopes: whether scores fall with the
    distance, by alibi_slopes. window: (before, after), how far a place sees, -1: any distance. soft_cap: limit of
    scores. in_proj_weight [embed_dim + 2 num_kv_heads head_dim, embed_dim] and in_proj_bias make queries, keys and
    values, in this order; where kdim or vdim differs from embed_dim, in_proj_weight is None, and q_proj_weight,
    k_proj_weight and v_proj_weight, [sizes, features], take its place. out_proj is a Linear. Weights are initialized
    with Glorot and Bengio's uniform distribution, biases with 0. Raises ValueError if the heads do not divide
    embed_dim, or num_kv_heads not num_heads.
    Source: Vaswani et al. 2017, Attention is all you need; Ainslie et al. 2023, GQA; Su et al. 2021, RoFormer.

    >>> import weft as wf
    >>> MultiheadAttention(8, 2)(wf.zeros((3, 5, 8)), is_causal=True).shape
    (3, 5, 8)
    >>> grouped = MultiheadAttention(16, 4, num_kv_heads=2, rotary="halves")
    >>> cache = KeyValueCache(3, 2, 32, 4)
    >>> grouped(wf.zeros((3, 5, 16)), cache=cache).shape, cache.length.item()
    ((3, 5, 16), 5)
    """

    repr_attributes = ("embed_dim", "num_heads")

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        *,
        num_kv_heads: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        dropout: float = 0.0,
        rotary: str | None = None,
        rotary_base: float = 10000.0,
        slopes: bool = False,
        window: tuple[int, int] | None = None,
        soft_cap: float | None = None,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        shared = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim={embed_dim} must be divisible by num_heads={num_heads}"
            )
        if shared < 1 or num_heads % shared:
            raise ValueError(
                f"MultiheadAttention: num_heads={num_heads} must be divisible by num_kv_heads={num_kv_heads}"
            )
        if not 0 <= dropout <= 1:
            raise ValueError(f"MultiheadAttention: dropout must be in 0..1, got {dropout}")
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, shared
        self.dropout, self.rotary, self.rotary_base = dropout, rotary, rotary_base
        self.window, self.soft_cap = window, soft_cap
        if slopes:
            self.register_buffer("slopes", alibi_slopes(num_heads, device), persistent=False)
        else:
            self.slopes = None
        self.sizes = (embed_dim, *(embed_dim // num_heads * shared,) * 2)
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        inputs = (embed_dim, self.kdim, self.vdim)
        if inputs == (embed_dim,) * 3:
            self.in_proj_weight: Tensor | Any = parameter((sum(self.sizes), embed_dim), dtype, device)
        else:
            self.in_proj_weight = None
            for name, size, features in zip(SEPARATE, self.sizes, inputs, strict=True):
                setattr(self, name, parameter((size, features), dtype, device))
        self.in_proj_bias = parameter(sum(self.sizes), dtype, device) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, device=device)
        self.reset()

    def reset(self) -> None:
        """Draw new initial values."""
        separate = [getattr(self, name) for name in SEPARATE] if self.in_proj_weight is None else []
        for weight in (*separate, self.in_proj_weight, self.out_proj.weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def forward(
        self,
        q: Tensor,
        k: Tensor | None = None,
        v: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        ranges: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        projected = self._projected(q, k, v)
        heads = (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        queries, keys, values = (self._heads(x, count) for x, count in zip(projected, heads, strict=True))
        options: dict[str, Any] = {"window": self.window, "soft_cap": self.soft_cap}
        start = None if cache is None else cache.length
        if self.rotary is not None:
            queries, keys = (self._rotated(x, start, self.rotary) for x in (queries, keys))
        if cache is not None:
            if ranges is not None:
                raise ValueError("MultiheadAttention: a cache says which keys are seen; ranges does, too")
            keys, values, ranges = cache.append(keys, values, -1 if self.window is None else self.window[0])
            # Slopes take off the distance from behind the last key, which is the same for all keys of a place: a
            # constant of its row, which the softmax does not see. The own place is known as an array only.
            options |= {"window": None, "offset": cache.keys.shape[2]}
        if self.dropout and self.training:
            options |= {"dropout": self.dropout, "key": random.key(device=q.device)}
        y = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask,
            is_causal=is_causal and cache is None,
            ranges=ranges,
            slopes=self.slopes,
            **options,
        )
        y = F.permute_dims(y, (0, 2, 1, 3))
        return self.out_proj(y.reshape(*y.shape[:2], self.embed_dim))

    def _rotated(self, x: Tensor, start: Tensor | None, layout: str) -> Tensor:
        """x [n, heads, t, c] by its places, from `start` on."""
        places = None if start is None else arange(x.shape[2], device=x.device) + start
        y: Tensor = F.rotary_embedding(x, places, base=self.rotary_base, layout=layout)
        return y

    def _projected(self, q: Tensor, k: Tensor | None, v: Tensor | None) -> list[Tensor]:
        """Queries, keys and values; by one product where all come from q."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        first, second, _ = self.sizes
        if k is None and v is None and weight is not None:
            return list(F.split(F.linear(q, weight, bias), self.sizes, axis=-1))
        k = q if k is None else k
        parts = [slice(0, first), slice(first, first + second), slice(first + second, None)]
        weights = (
            [getattr(self, name) for name in SEPARATE] if weight is None else [weight[part] for part in parts]
        )
        return [
            F.linear(x, w, None if bias is None else bias[part])
            for x, w, part in zip((q, k, k if v is None else v), weights, parts, strict=True)
        ]

    def _heads(self, x: Tensor, count: int) -> Tensor:
        """[n, t, c] -> [n, heads, t, c / heads]."""
        return F.permute_dims(x.reshape(*x.shape[:2], count, -1), (0, 2, 1, 3))
