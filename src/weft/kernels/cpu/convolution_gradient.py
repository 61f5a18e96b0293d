"""Kernels of weft.ops.families.convolution_gradient on processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.kernels.cpu.convolution import native_windows, of_any_size
from weft.ops.families.convolution_gradient import ConvolutionInputGradient, ConvolutionWeightGradient
from weft.ops.families.matrix import has_sizes, is_matrix_float
from weft.ops.kernels import CHANNELS_LAST, ROW_MAJOR, Native
from weft.ops.types import TensorType


@kernel(ConvolutionInputGradient, provider="onednn")
def convolution_input_gradient(
    op: ConvolutionInputGradient, dy: TensorType, weight: TensorType
) -> Iterator[Native]:
    if not is_matrix_float(dy, weight):
        return
    keywords = native_windows(op.windows_of_size(weight.shape[2:]), op.groups)
    if has_sizes(dy, weight):
        yield of_any_size("src", dy.dtype, keywords, CHANNELS_LAST)
        return

    def make(inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
        return _core.onednn_convolution_backward_data(*inputs, *outputs, **keywords, **options)

    packed = ((1, tuple(range(weight.ndim))),)
    yield Native(make, layouts=(CHANNELS_LAST,), options=("accumulate",), packed=packed)


@kernel(ConvolutionWeightGradient, provider="onednn")
def convolution_weight_gradient(
    op: ConvolutionWeightGradient, x: TensorType, dy: TensorType
) -> Iterator[Native]:
    if not is_matrix_float(x, dy):
        return
    keywords = native_windows(op.windows_of_size(op.kernel_size), op.groups)
    if has_sizes(x, dy):
        yield of_any_size("weights", x.dtype, keywords, ROW_MAJOR)
        return
    if op.unfolds(x, dy):
        return

    def make(inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
        return _core.onednn_convolution_backward_weights(*inputs, *outputs, **keywords, **options)

    yield Native(make, layouts=(ROW_MAJOR,), options=("accumulate",))
