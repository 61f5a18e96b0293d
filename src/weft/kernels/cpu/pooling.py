"""Kernels of weft.ops.families.pooling on processors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.base.dtype import int32, uint8
from weft.kernels import kernel, residuals
from weft.ops.families.matrix import is_matrix_float
from weft.ops.families.pooling import AveragePooling, AvgPoolGradient, Geometry, MaxPoolGradient, MaxPooling
from weft.ops.families.window import Windows
from weft.ops.kernels import CHANNELS_LAST, LIKE_INPUT, ROW_MAJOR, Native
from weft.ops.types import TensorType


def dense(shape: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """The strides of an image [n, c, *spatial] without gaps.

    >>> dense((2, 3, 4, 5), False), dense((2, 3, 4, 5), True)
    ((60, 20, 5, 1), (60, 1, 15, 3))
    """
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    strides = [0] * len(shape)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def has_layout(x: Geometry, channels_last: bool) -> bool:
    """Whether x has no gaps and this order of dimensions."""
    return all(n == 1 or s == t for n, s, t in zip(x[1], x[2], dense(x[1], channels_last), strict=True))


def is_in(layout: Any, x: Geometry) -> bool:
    """Whether x's elements are in the order of a layout of oneDNN's."""
    strides = layout.strides
    return strides is not None and all(n == 1 or s == t for n, s, t in zip(x[1], x[2], strides, strict=True))


@residuals(MaxPooling)
def indices(op: MaxPooling, standard: Sequence[TensorType], x: TensorType) -> Sequence[TensorType]:
    """oneDNN's choice: bytes for windows of up to 255 elements. It writes them in the order that it works in."""
    size: Any = op.kernel_size
    return (standard[0].like(dtype=uint8 if math.prod(size) <= 255 else int32),)


@kernel(MaxPooling, provider="onednn")
def max_pooling(op: MaxPooling, x: TensorType) -> Iterator[Native]:
    is_byte = x.dtype.name in ("int8", "uint8")
    if not is_matrix_float(x) and not is_byte:
        return
    windows = op.windows(x.shape[2:])

    def make(inputs: Sequence[Geometry], outputs: Sequence[Geometry | None]) -> Any:
        y, indices = outputs
        if is_byte and indices:
            return None
        made = _core.onednn_pooling(
            inputs[0], y, training=indices is not None, **native_attributes("max", windows)
        )
        return None if indices and not is_in(made.layout(2), indices) else made

    yield Native(make, layouts=(LIKE_INPUT, LIKE_INPUT), optional=(1,))
    # Plain images that oneDNN works on in the other order, in which the indices stay.
    yield Native(make, layouts=(ROW_MAJOR, CHANNELS_LAST), optional=(1,))
    yield Native(make, contiguous=(0,), optional=(1,))


def native_attributes(kind: str, windows: Windows) -> dict[str, Any]:
    """Keywords of the native core."""
    return {
        "kind": kind,
        "window": list(windows.size),
        "stride": list(windows.stride),
        "padding": windows.padding,
        "dilation": list(windows.dilation),
    }


@kernel(MaxPoolGradient, provider="onednn")
def max_pool_gradient(op: MaxPoolGradient, dy: TensorType, indices: TensorType) -> Iterator[Native]:
    if not is_matrix_float(dy):
        return
    windows = op.windows()

    def make(inputs: Sequence[Geometry], outputs: Sequence[Geometry]) -> Any:
        cotangent, indices = inputs
        order = next((k for k in (True, False) if has_layout(indices, k)), None)
        if order is None:
            return None
        shape = outputs[0][1]
        made = _core.onednn_pooling_backward(
            (cotangent[0], shape, dense(shape, order)),
            (cotangent[0], indices[1], indices[2]),
            cotangent,
            outputs[0],
            **native_attributes("max", windows),
        )
        return made if is_in(made.layout(1), indices) else None

    yield Native(make, layouts=(LIKE_INPUT,))


@kernel(AveragePooling, provider="onednn")
def average_pooling(op: AveragePooling, x: TensorType) -> Iterator[Native]:
    kind = NATIVE_AVERAGE.get(op.divisor(x.shape[2:]))
    if not is_matrix_float(x) or kind is None:
        return
    keywords = native_attributes(kind, op.windows(x.shape[2:]))

    def make(inputs: Sequence[Geometry], outputs: Sequence[Geometry]) -> Any:
        return _core.onednn_pooling(inputs[0], outputs[0], **keywords)

    yield Native(make, layouts=(LIKE_INPUT,))


NATIVE_AVERAGE = {"window": "average_with_padding", "inside": "average"}


@kernel(AvgPoolGradient, provider="onednn")
def avg_pool_gradient(op: AvgPoolGradient, dy: TensorType) -> Iterator[Native]:
    kind = NATIVE_AVERAGE.get(op.divisor)
    if not is_matrix_float(dy) or kind is None:
        return
    keywords = native_attributes(kind, op.windows())

    def make(inputs: Sequence[Geometry], outputs: Sequence[Geometry]) -> Any:
        return _core.onednn_pooling_backward(outputs[0], inputs[0], inputs[0], outputs[0], **keywords)

    yield Native(make, layouts=(LIKE_INPUT,))
