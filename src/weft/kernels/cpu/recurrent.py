"""Kernels of weft.ops.families.recurrent on processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.base.dtype import bfloat16, float32, uint8
from weft.kernels import kernel, residuals
from weft.kernels.offers import is_offered
from weft.ops.families.recurrent import Lstm, LstmGradient, work_dtype
from weft.ops.kernels import Native
from weft.ops.sizes import Size
from weft.ops.types import TensorType, promote

Geometry = tuple[str, tuple[int, ...], tuple[int, ...]]


def is_native(*types: TensorType) -> bool:
    """Whether there are layers of these, at this level: all float32 or bfloat16, and nothing empty."""
    kind = types[0].dtype
    return (
        is_offered("lstm")
        and hasattr(_core, "onednn_lstm")
        and kind in (float32, bfloat16)
        and all(t.dtype is kind for t in types)
        and all(n for t in types for n in t.shape)
    )


def row_major(t: TensorType) -> Geometry:
    """As the native core takes it: without gaps.

    >>> row_major(TensorType((2, 3), float32))
    ('float32', (2, 3), (3, 1))
    """
    strides: list[int] = []
    step = 1
    for n in reversed(t.shape):
        strides.insert(0, step)
        step *= int(n)
    return t.dtype.name, tuple(int(n) for n in t.shape), tuple(strides)


@residuals(Lstm)
def workspace(
    op: Lstm,
    standard: Sequence[TensorType],
    x: TensorType,
    h0: TensorType,
    c0: TensorType,
    *parameters: TensorType,
) -> Sequence[TensorType]:
    """What the gradient's kernel reads: gates, cells, outputs of layers; of dynamic sizes a stand-in.

    Its size follows from the sizes alone, so that a call whose types are another kernel's finds the same.
    """
    work = work_dtype(promote(x, h0, c0, *parameters))
    x = x.like(dtype=work)
    y = x.like((*x.shape[:2], parameters[1].shape[-1] * op.directions))
    if not is_native(x, y):
        return standard
    if any(isinstance(n, Size) and n.is_dynamic for n in y.shape):
        return (x.like((y.size,), uint8),)  # where sizes are known, types are inferred again
    size = _core.onednn_lstm_workspace(
        row_major(x), row_major(y), layers=op.layers(parameters), bidirectional=op.bidirectional
    )
    return (x.like((size,), uint8),)


@kernel(Lstm, provider="onednn")
def lstm(
    op: Lstm, x: TensorType, h0: TensorType, c0: TensorType, *parameters: TensorType
) -> Iterator[Native]:
    if not is_native(x, h0, c0, *parameters):
        return
    layers = op.layers(parameters)

    def make(inputs: Sequence[Geometry], outputs: Sequence[Any]) -> Any:
        training = outputs[3] is not None
        return _core.onednn_lstm(
            inputs[0], outputs[0], layers=layers, bidirectional=op.bidirectional, training=training
        )

    yield Native(make, contiguous=tuple(range(3 + len(parameters))), optional=(3,))


@kernel(LstmGradient, provider="onednn", when=lambda *_: is_offered("lstm_backward"))
def lstm_gradient(op: LstmGradient, *inputs: TensorType | None) -> Iterator[Native]:
    parameters = len(inputs) - 10
    layers = parameters // (4 * op.directions)

    def make(operands: Sequence[Geometry], outputs: Sequence[Geometry]) -> Any:
        return _core.onednn_lstm_backward(
            operands[0], operands[3], layers=layers, bidirectional=op.bidirectional
        )

    count = len(inputs)
    order = (0, 1, 2, *range(10, count), *range(3, 10), *range(count, count + 3 + parameters))
    yield Native(make, order=order, contiguous=tuple(range(count)))
