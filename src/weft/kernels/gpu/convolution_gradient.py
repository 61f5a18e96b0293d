"""Kernels of weft.ops.families.convolution_gradient on GPUs: as those of convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from weft.kernels import kernel
from weft.ops.families.convolution_gradient import ConvolutionInputGradient, ConvolutionWeightGradient
from weft.ops.families.matrix import are_halves
from weft.ops.kernels import Decomposed
from weft.ops.types import TensorType


@kernel(ConvolutionInputGradient, device="gpu", when=lambda op, *types: are_halves(*types))
def input_gradient(op: ConvolutionInputGradient, *types: TensorType) -> Iterator[Decomposed]:
    yield Decomposed(op.of_windows)


@kernel(ConvolutionWeightGradient, device="gpu", when=lambda op, *types: are_halves(*types))
def weight_gradient(op: ConvolutionWeightGradient, *types: TensorType) -> Iterator[Decomposed]:
    yield Decomposed(op.of_windows)
