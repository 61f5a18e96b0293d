"""Kernels of weft.ops.families.attention on processors."""

from __future__ import annotations

from collections.abc import Iterator

from weft import _core
from weft.kernels import kernel
from weft.kernels.offers import is_offered
from weft.ops.families.attention import ScaledDotProductAttention, ScaledDotProductAttentionGradient
from weft.ops.families.matrix import is_matrix_float
from weft.ops.kernels import Native
from weft.ops.types import TensorType


@kernel(ScaledDotProductAttention)
def attention(
    op: ScaledDotProductAttention, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
) -> Iterator[Native]:
    # The kernel takes queries by tiles: of a single one, as in decoding, nearly all of its work would be wasted.
    suits = is_matrix_float(q, k, v) and op.is_plain(q, k, v, mask) and q.shape[-2] != 1
    if suits and is_offered("attention"):
        causal, masked = op.is_causal, mask is not None
        yield Native(lambda _, __: _core.kernel_attention(causal, masked), exact=False, numbers=op.numbers(q))


@kernel(ScaledDotProductAttentionGradient)
def attention_gradient(op: ScaledDotProductAttentionGradient, *inputs: TensorType | None) -> Iterator[Native]:
    dy, q, k, v, _, _, mask = inputs
    assert q is not None
    if is_matrix_float(dy, q, k, v) and op.is_plain(q, k, v, mask) and is_offered("attention_backward"):
        causal, masked = op.is_causal, mask is not None
        yield Native(
            lambda _, __: _core.kernel_attention_backward(causal, masked),
            exact=False,
            order=(0, 1, 2, 3, *((6,) if masked else ()), 4, 5, 7, 8, 9),
            numbers=op.numbers(q),
        )
