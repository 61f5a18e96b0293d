"""Attention with several heads."""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.module import init
from weft.module.linear import Linear, parameter
from weft.module.module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of num_heads heads, each on its share of embed_dim channels.

    forward(q, k=None, v=None, mask=None, is_causal=False): q [n, t, embed_dim], k and v [n, s, embed_dim]; without k it
    is q, without v it is k. mask: fits [n, num_heads, t, s] by broadcasting, true for what is seen, or numbers that are
    added. is_causal: place i sees places 0 ... i. Returns [n, t, embed_dim].
    in_proj_weight [3 embed_dim, embed_dim] and in_proj_bias make queries, keys and values, in this order; out_proj is a
    Linear. Weights are initialized with Glorot and Bengio's uniform distribution, biases with 0.
    Raises ValueError if the heads do not divide embed_dim. Attention weights have no dropout.
    Source: Vaswani et al. 2017, Attention is all you need.

    >>> import weft as wf
    >>> MultiheadAttention(8, 2)(wf.zeros((3, 5, 8)), is_causal=True).shape
    (3, 5, 8)
    """

    repr_attributes = ("embed_dim", "num_heads")

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim={embed_dim} must be divisible by num_heads={num_heads}"
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.in_proj_weight = parameter((3 * embed_dim, embed_dim), dtype, device)
        self.in_proj_bias = parameter(3 * embed_dim, dtype, device) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, device=device)
        self.reset()

    def reset(self) -> None:
        """Draw new initial values."""
        init.xavier_uniform_(self.in_proj_weight)
        init.xavier_uniform_(self.out_proj.weight)
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
    ) -> Tensor:
        queries, keys, values = (self._heads(x) for x in self._projected(q, k, v))
        y = F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=is_causal)
        y = F.permute_dims(y, (0, 2, 1, 3))
        return self.out_proj(y.reshape(*y.shape[:2], self.embed_dim))

    def _projected(self, q: Tensor, k: Tensor | None, v: Tensor | None) -> list[Tensor]:
        """Queries, keys and values; by one product where all come from q."""
        weight, bias, size = self.in_proj_weight, self.in_proj_bias, self.embed_dim
        if k is None and v is None:
            return list(F.split(F.linear(q, weight, bias), size, axis=-1))
        k = q if k is None else k
        parts = [slice(j * size, (j + 1) * size) for j in range(3)]
        return [
            F.linear(x, weight[part], None if bias is None else bias[part])
            for x, part in zip((q, k, k if v is None else v), parts, strict=True)
        ]

    def _heads(self, x: Tensor) -> Tensor:
        """[n, t, c] -> [n, heads, t, c / heads]."""
        return F.permute_dims(x.reshape(*x.shape[:2], self.num_heads, -1), (0, 2, 1, 3))
