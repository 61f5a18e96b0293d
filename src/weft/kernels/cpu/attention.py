"""Kernels of weft.ops.families.attention on processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.kernels.offers import is_offered
from weft.ops.families.attention import (
    Attention,
    ScaledDotProductAttention,
    ScaledDotProductAttentionGradient,
)
from weft.ops.families.matrix import is_matrix_float
from weft.ops.kernels import Native
from weft.ops.types import TensorType


def _native(
    function: Callable[..., Any], op: Attention, q: TensorType, first: int, optional: Sequence[Any]
) -> Native:
    """The kernel for the optional operands that are there; first: the operand number of their first one."""
    names = ("mask", "ranges", "slopes", "dropout")
    form = {name: x is not None for name, x in zip(names, optional, strict=True)}
    present = [first + k for k, x in enumerate(optional) if x is not None]
    end = first + len(optional)
    order = (
        (0, 1, 2, *present, end, end + 1)
        if first == 3
        else (0, 1, 2, 3, *present, 4, 5, end, end + 1, end + 2)
    )
    return Native(lambda _, __: function(**form), exact=False, order=order, numbers=op.numbers(q))


@kernel(ScaledDotProductAttention)
def attention(op: ScaledDotProductAttention, *inputs: TensorType | None) -> Iterator[Native]:
    padded: list[Any] = [*inputs, *[None] * (7 - len(inputs))]
    q, k, v, *optional = padded
    # The kernel takes queries by tiles: of a single one, as in decoding, nearly all of its work would be wasted.
    suits = is_matrix_float(q, k, v) and op.is_plain(q, k, v, *optional[:3]) and q.shape[-2] != 1
    if suits and is_offered("attention"):
        yield _native(_core.kernel_attention, op, q, 3, optional)


@kernel(ScaledDotProductAttentionGradient)
def attention_gradient(op: ScaledDotProductAttentionGradient, *inputs: TensorType | None) -> Iterator[Native]:
    padded: list[Any] = [*inputs, *[None] * (10 - len(inputs))]
    dy, q, k, v, _, _, *optional = padded
    if (
        is_matrix_float(dy, q, k, v)
        and op.is_plain(q, k, v, *optional[:3])
        and is_offered("attention_backward")
    ):
        yield _native(_core.kernel_attention_backward, op, q, 6, optional)
