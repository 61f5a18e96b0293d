"""Quantization as QuantizeLinear and DequantizeLinear, and products of bytes.

A network with simulated rounding (prepare_qat, calibrated) becomes pairs of the two around each product, the form that
runtimes compile to integers. A converted one has its integers, in products that ONNX defines on them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.interop.onnx.export_rules import add_conv
from weft.interop.onnx.narrow import INTEGERS
from weft.interop.onnx.writer import CODES, Writer, exports
from weft.ops.families.quantization import LIMITS, has_blocks
from weft.ops.node import Node, Value

__all__: list[str] = []


def _zero(writer: Writer, value: Value | None, dtype: str) -> tuple[bool, str | None]:
    """Whether a zero point is whole for sure, and its name in the type of the integers."""
    if value is None:
        return True, None
    name = writer.read(value)
    assert name is not None
    if value.dtype.kind == "float":
        array = writer.constant_of(name)
        if array is None or not np.array_equal(array, np.rint(array)):
            return False, None
        least, most = LIMITS[dtype]
        if array.min(initial=0) < least or array.max(initial=0) > most:
            return False, None
        return True, writer.constant(array.astype(dtype), "zero_point")
    return value.dtype.name == dtype, name


def _rounded(writer: Writer, node: Node, dtype: str) -> tuple[Any, ...] | None:
    """(integers, scale, zero point) of quantize and fake_quantize; None where ONNX has no such rounding."""
    op: Any = node.op
    x, scale, zero_point = ([*node.inputs, None, None])[:3]
    assert x is not None
    if dtype == "int16" and writer.opset < 21:
        return None
    if "float64" in (x.dtype.name, getattr(scale, "dtype", x.dtype).name):
        return None
    is_whole, zero = _zero(writer, zero_point, dtype)
    if not is_whole:
        return None
    limits, axis = op.limits, 1 if op.axis is None else op.axis
    step = writer.read_as(scale, "float32") if scale is not None else writer.constant(np.float32(1))
    wide = writer.read_as(x, "float32")
    if zero is None and writer.opset >= 21:
        for code, (_, *narrow) in INTEGERS.items():
            if limits == tuple(narrow):
                return writer.add("QuantizeLinear", wide, step, axis=axis, output_dtype=code), step, None
    if limits != LIMITS[dtype] and dtype == "int16":
        return None
    if zero is None:
        shape = () if scale is None else tuple(scale.shape)
        if not all(isinstance(n, int) for n in shape):
            return None
        zero = writer.constant(np.zeros(shape, dtype), "zero_point")
    q = writer.add("QuantizeLinear", wide, step, zero, axis=axis)
    if limits != LIMITS[dtype]:
        q = writer.add("Clip", q, *(writer.constant(np.array(n, dtype)) for n in limits))
    return q, step, zero


@exports("quantize")
def quantize(writer: Writer, node: Node, *names: str) -> Any:
    """An int4 QuantizeLinear gives another type than the operator, which a Cast mends."""
    op: Any = node.op
    parts = _rounded(writer, node, op.dtype.name)
    if parts is None:
        return None
    return writer.add("Cast", parts[0], to=CODES[op.dtype.name]) if parts[2] is None else parts[0]


@exports("fake_quantize")
def fake_quantize(writer: Writer, node: Node, *names: str) -> Any:
    op: Any = node.op
    if op.estimator == "threshold":
        return None
    parts = _rounded(writer, node, op.dtype.name)
    if parts is None:
        return None
    y = writer.add("DequantizeLinear", *parts, axis=1 if op.axis is None else op.axis)
    return writer.cast(y, "float32", node.outputs[0].type.dtype.name)


@exports("dequantize")
def dequantize(writer: Writer, node: Node, *names: str) -> Any:
    op: Any = node.op
    q, scale, zero_point = ([*node.inputs, None])[:3]
    assert q is not None
    assert scale is not None
    dtype = q.dtype.name
    allowed = (
        ("int8", "uint8", "int32") if writer.opset < 21 else ("int8", "uint8", "int16", "uint16", "int32")
    )
    if scale.dtype.name != "float32" or dtype not in allowed or (dtype == "int32" and zero_point is not None):
        return None
    is_whole, zero = _zero(writer, zero_point, dtype) if dtype in LIMITS else (zero_point is None, None)
    if not is_whole:
        return None
    return writer.add("DequantizeLinear", names[0], names[1], zero, axis=1 if op.axis is None else op.axis)


@exports("integer_matmul", "integer_linear")
def integer_matmul(writer: Writer, node: Node, a: str, b: str) -> str | None:
    op: Any = node.op
    x: Any = node.inputs[0]
    if x.shape[-1] == 0:  # ONNX Runtime 1.32 leaves the result as the memory was
        return None
    return writer.add(
        "MatMulInteger", a, writer.add("Transpose", b, perm=[1, 0]) if op.name == "integer_linear" else b
    )


@exports("integer_conv1d", "integer_conv2d", "integer_conv3d")
def integer_conv(writer: Writer, node: Node, *names: str) -> Any:
    """Conv of the integers as floats, which is exact for sums of so few products; others are taken apart."""
    op: Any = node.op
    weight: Any = node.inputs[1]
    if has_blocks(weight.shape[1], math.prod(weight.shape[2:])):
        return None
    windows = op.windows(weight)
    wide = [writer.read_as(v, "float32") for v in node.inputs if v is not None]
    return writer.cast(add_conv(writer, op, windows, wide), "float32", "int32")
