"""Kernels of weft.ops.families.matrix on GPUs: products of 16-bit floats as they are, for tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.dtype import float32
from weft.kernels import kernel
from weft.ops import functions as F
from weft.ops.families.matrix import Linear, Matmul, are_halves, is_one_row
from weft.ops.kernels import Decomposed
from weft.ops.types import TensorType


def product(a: Any, b: Any) -> Any:
    """a b in float32; b has at least 2 dimensions."""
    columns = F.expand_dims(F.matrix_transpose(b), axis=-3)
    return F.sum_of_products(F.expand_dims(a, axis=-2), columns, axis=(-1,), is_wide=True)


@kernel(Matmul, device="gpu", when=lambda op, a, b: are_halves(a, b) and min(a.ndim, b.ndim) > 1)
def matmul(op: Matmul, a: TensorType, b: TensorType) -> Iterator[Decomposed]:
    yield Decomposed(lambda a, b: F.cast(product(a, b), dtype=a.dtype))


@kernel(Linear, device="gpu", when=lambda op, *types: are_halves(*types) and not is_one_row(types[0]))
def linear(op: Linear, *types: TensorType | None) -> Iterator[Decomposed]:
    def decompose(x: Any, weight: Any, bias: Any = None) -> Any:
        y = product(x, F.matrix_transpose(weight))
        return F.cast(y if bias is None else y + F.cast(bias, dtype=float32), dtype=x.dtype)

    yield Decomposed(decompose)
