"""Kernels of weft.ops.families.quantization on processors: oneDNN's products of bytes, our own with 4 bits.

Without instructions that add such products in 32 bits, the native core computes them in float32 as long as that is
exact, and refuses longer sums, which the operators then take apart.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.base.dtype import float32
from weft.kernels import kernel
from weft.kernels.cpu.convolution import native_windows
from weft.kernels.cpu.matrix import is_empty, make_linear, make_matmul
from weft.kernels.cpu.pooling import dense
from weft.ops.families.quantization import (
    IntegerConvolution,
    IntegerLinear,
    IntegerMatmul,
    QuantizedLinear,
)
from weft.ops.kernels import CHANNELS_LAST, Native
from weft.ops.types import TensorType

OPTIONS = ("accumulate", "post_ops")


@kernel(IntegerMatmul, provider="onednn")
def integer_matmul(op: IntegerMatmul, a: TensorType, b: TensorType) -> Iterator[Native]:
    if not is_empty(a, b):
        make = functools.partial(make_matmul, narrow=op.narrow)
        yield Native(make, options=OPTIONS, packed=((1, (0, 1)),) if b.ndim == 2 else ())


@kernel(IntegerLinear, provider="onednn")
def integer_linear(op: IntegerLinear, x: TensorType, weight: TensorType) -> Iterator[Native]:
    if not is_empty(x, weight):
        make = functools.partial(make_linear, narrow=op.narrow)
        yield Native(make, options=OPTIONS, packed=((1, (1, 0)),))


@kernel(IntegerConvolution, provider="onednn")
def integer_convolution(op: IntegerConvolution, x: TensorType, weight: TensorType) -> Iterator[Native]:
    if is_empty(x, weight):
        return
    keywords = native_windows(op.windows(weight), op.groups) | {"narrow": op.narrow}

    def make(inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
        return _core.onednn_convolution(inputs[0], inputs[1], outputs[0], **keywords, **options)

    yield Native(make, layouts=(CHANNELS_LAST,), options=OPTIONS, packed=((1, tuple(range(weight.ndim))),))


FEW_ROWS = 8  # of x, up to which each byte of a weight is cheaper read for every four than made a matrix


@kernel(QuantizedLinear)
def quantized_linear(
    op: QuantizedLinear, x: TensorType, weight: TensorType, *floats: TensorType | None
) -> Iterator[Native]:
    """Weights of 4 bits; those of 8 bits are a loop for one row of x, which what follows joins."""
    types = (x, *(t for t in floats if t is not None))
    if not op.is_packed(weight) or any(t.dtype is not float32 for t in types) or is_empty(x, weight):
        return
    rows = math.prod(x.shape[:-1])
    if not isinstance(rows, int) or rows > FEW_ROWS:
        return

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        _, shape, strides = outputs[0]
        steps = zip(shape, strides, dense(shape, channels_last=False), strict=True)
        if any(n != 1 and stride != expected for n, stride, expected in steps):
            return None
        return _core.kernel_grouped_linear((*inputs, None)[3] is not None)

    yield Native(make, contiguous=tuple(range(2 + len(floats))))
