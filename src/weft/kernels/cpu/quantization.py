"""Kernels of weft.ops.families.quantization on processors: oneDNN's products of bytes.

Without instructions that add such products in 32 bits, the native core computes them in float32 as long as that is
exact, and refuses longer sums, which the operators then take apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.kernels.cpu.convolution import native_windows
from weft.kernels.cpu.matrix import is_empty, make_linear, make_matmul
from weft.ops.families.quantization import IntegerConvolution, IntegerLinear, IntegerMatmul
from weft.ops.kernels import CHANNELS_LAST, Native
from weft.ops.types import TensorType

OPTIONS = ("accumulate", "post_ops")


@kernel(IntegerMatmul, provider="onednn")
def integer_matmul(op: IntegerMatmul, a: TensorType, b: TensorType) -> Iterator[Native]:
    if not is_empty(a, b):
        yield Native(make_matmul, options=OPTIONS, packed=((1, (0, 1)),) if b.ndim == 2 else ())


@kernel(IntegerLinear, provider="onednn")
def integer_linear(op: IntegerLinear, x: TensorType, weight: TensorType) -> Iterator[Native]:
    if not is_empty(x, weight):
        yield Native(make_linear, options=OPTIONS, packed=((1, (1, 0)),))


@kernel(IntegerConvolution, provider="onednn")
def integer_convolution(op: IntegerConvolution, x: TensorType, weight: TensorType) -> Iterator[Native]:
    if is_empty(x, weight):
        return
    keywords = native_windows(op.windows(weight), op.groups)

    def make(inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
        return _core.onednn_convolution(inputs[0], inputs[1], outputs[0], **keywords, **options)

    yield Native(make, layouts=(CHANNELS_LAST,), options=OPTIONS, packed=((1, tuple(range(weight.ndim))),))
