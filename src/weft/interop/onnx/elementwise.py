"""ONNX's operators element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import functional as F
from weft.base.dtype import as_dtype
from weft.interop.onnx.calls import CONVERSIONS, Call, Known, Narrow, converts, tensor
from weft.interop.onnx.narrow import INTEGERS, NARROW, narrowed, wrapped

UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
    "Identity": None,
    "IsNaN": "isnan",
    "Log": "log",
    "Mish": "mish",
    "Neg": "negative",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
    "BitwiseNot": "bitwise_invert",
    "Det": "det",
}
BINARY = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Equal": "equal",
    "Greater": "greater",
    "Less": "less",
    "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}


def _unary(operator: str | None) -> Any:
    return lambda call, x: (x,) if operator is None else getattr(F, operator)(tensor(x))


def _binary(operator: str) -> Any:
    return lambda call, a, b: getattr(F, operator)(tensor(a), tensor(b))


CONVERSIONS.update({name: _unary(operator) for name, operator in UNARY.items()})
CONVERSIONS.update({name: _binary(operator) for name, operator in BINARY.items()})


@converts("Div")
def divide(call: Call, a: Any, b: Any) -> Any:
    a, b = tensor(a), tensor(b)
    if a.dtype.is_integer:  # towards zero
        quotient = (
            F.floor_divide(F.abs(a), F.abs(b)) if not a.dtype.name.startswith("u") else F.floor_divide(a, b)
        )
        return (
            quotient
            if a.dtype.name.startswith("u")
            else F.multiply(quotient, F.multiply(F.sign(a), F.sign(b)))
        )
    return F.divide(a, b)


@converts("Pow")
def power(call: Call, a: Any, b: Any) -> Any:
    a, b = tensor(a), tensor(b)
    y = (
        F.pow(a.astype("float64"), b.astype("float64"))
        if a.dtype.is_integer and not b.dtype.is_integer
        else F.pow(a, b.astype(a.dtype))
    )
    return y.astype(a.dtype)


@converts("Mod")
def mod(call: Call, a: Any, b: Any) -> Any:
    return (F.fmod if call.get("fmod", 0) else F.remainder)(tensor(a), tensor(b))


@converts("BitShift")
def bit_shift(call: Call, a: Any, b: Any) -> Any:
    function = F.bitwise_left_shift if call.get("direction") in ("LEFT", b"LEFT") else F.bitwise_right_shift
    return function(tensor(a), tensor(b))


@converts("Sum", "Max", "Min", "Mean")
def of_several(call: Call, x: Any, *more: Any) -> Any:
    function = {"Sum": F.add, "Mean": F.add, "Max": F.maximum, "Min": F.minimum}[call.operator]
    y = tensor(x)
    for other in more:
        y = function(y, tensor(other))
    return y / float(1 + len(more)) if call.operator == "Mean" else y


@converts("Where")
def where(call: Call, condition: Any, x: Any, y: Any) -> Any:
    return F.where(tensor(condition), tensor(x), tensor(y))


@converts("Clip")
def clip(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    x = tensor(x)
    low = call.get("min") if low is None else tensor(low)
    high = call.get("max") if high is None else tensor(high)
    if low is not None:
        x = F.maximum(x, low)
    return x if high is None else F.minimum(x, high)


@converts("Cast")
def cast(call: Call, x: Any) -> Any:
    if call.get("to") in INTEGERS:
        return wrapped(x, call.get("to"))
    if call.get("to") in NARROW:
        return narrowed(x, call.get("to"), bool(call.get("saturate", 1)))
    return tensor(x).astype(dtype_of(call, call.get("to")))


@converts("CastLike")
def cast_like(call: Call, x: Any, like: Any) -> Any:
    if isinstance(like, Narrow) and like.code in INTEGERS:
        return wrapped(x, like.code)
    if isinstance(like, Narrow):
        return narrowed(x, like.code, bool(call.get("saturate", 1)))
    return tensor(x).astype(tensor(like).dtype)


@converts("BitCast")
def bit_cast(call: Call, x: Any) -> Any:
    """The same bits as another type; waits for the operand."""
    dtype = dtype_of(call, call.get("to")).numpy
    return Known(np.array(tensor(x).numpy()).view(dtype))


DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
}


def dtype_of(call: Call, code: Any) -> Any:
    """The dtype of a number of TensorProto.DataType."""
    if code not in DTYPES:
        raise call.fail(f"data type {code} is not supported")
    return as_dtype(DTYPES[code])


@converts("Elu")
def elu(call: Call, x: Any) -> Any:
    return F.elu(tensor(x), alpha=call.get("alpha", 1.0))


@converts("Celu")
def celu(call: Call, x: Any) -> Any:
    return F.celu(tensor(x), alpha=call.get("alpha", 1.0))


@converts("Selu")
def selu(call: Call, x: Any) -> Any:
    x = tensor(x)
    alpha, gamma = call.get("alpha", 1.67326319217681884765625), call.get("gamma", 1.05070102214813232421875)
    return gamma * F.where(x > 0, x, alpha * F.expm1(F.minimum(x, 0.0)))


@converts("LeakyRelu")
def leaky_relu(call: Call, x: Any) -> Any:
    return F.leaky_relu(tensor(x), negative_slope=call.get("alpha", 0.01))


@converts("PRelu")
def prelu(call: Call, x: Any, slope: Any) -> Any:
    x = tensor(x)
    return F.where(x < 0, F.multiply(x, tensor(slope)), x)


@converts("ThresholdedRelu")
def thresholded_relu(call: Call, x: Any) -> Any:
    x = tensor(x)
    return F.where(x > call.get("alpha", 1.0), x, 0.0).astype(x.dtype)


@converts("HardSigmoid")
def hard_sigmoid(call: Call, x: Any) -> Any:
    return F.clip(tensor(x) * call.get("alpha", 0.2) + call.get("beta", 0.5), 0.0, 1.0)


@converts("Shrink")
def shrink(call: Call, x: Any) -> Any:
    x, bias, limit = tensor(x), call.get("bias", 0.0), call.get("lambd", 0.5)
    y = F.where(x < -limit, x + bias, F.where(x > limit, x - bias, 0.0))
    return y.astype(x.dtype)


@converts("Gelu")
def gelu(call: Call, x: Any) -> Any:
    return F.gelu(tensor(x), approximate=text(call.get("approximate", "none")))


@converts("Swish")
def swish(call: Call, x: Any) -> Any:
    x, alpha = tensor(x), call.get("alpha", 1.0)
    return x * F.sigmoid(x * alpha)


@converts("IsInf")
def is_inf(call: Call, x: Any) -> Any:
    x = tensor(x)
    y = F.isinf(x)
    if not call.get("detect_positive", 1):
        y = F.logical_and(y, x < 0)
    return y if call.get("detect_negative", 1) else F.logical_and(y, x > 0)


def text(value: Any) -> str:
    """A text attribute, which may be bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
