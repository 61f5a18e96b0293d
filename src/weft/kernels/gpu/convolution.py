"""Kernels of weft.ops.families.convolution on GPUs: those of 16-bit floats as they are, for tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.kernels import kernel
from weft.ops.families.convolution import Convolution
from weft.ops.families.matrix import are_halves
from weft.ops.kernels import Decomposed
from weft.ops.types import TensorType


@kernel(Convolution, device="gpu", when=lambda op, *types: are_halves(*types))
def convolution(op: Convolution, *types: TensorType | None) -> Iterator[Decomposed]:
    def decompose(x: Any, weight: Any, bias: Any = None) -> Any:
        return op.of_windows(x, weight, bias)

    yield Decomposed(decompose)
