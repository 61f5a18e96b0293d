"""ONNX's random operators: numbers are drawn from weft's streams, which wf.random.seed sets; `seed` is not used."""

from __future__ import annotations

from typing import Any

from weft.interop.onnx.calls import Call, converts, tensor
from weft.interop.onnx.elementwise import dtype_of
from weft.interop.onnx.shapes import shape_of
from weft.random import categorical, normal, uniform

DRAWN = (
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


@converts("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def drawn(call: Call, like: Any = None) -> Any:
    """Of the shape that the node says, or of another array's, and of its type if that is a float."""
    shape = tuple(call.get("shape")) if like is None else shape_of(like)
    if "dtype" in call.attributes:
        dtype = dtype_of(call, call.get("dtype"))
    else:
        dtype = dtype_of(call, 1) if like is None else tensor(like).dtype
    if "Normal" in call.operator:
        return normal(call.get("mean", 0.0), call.get("scale", 1.0), shape=shape, dtype=dtype)
    return uniform(call.get("low", 0.0), call.get("high", 1.0), shape=shape, dtype=dtype)


@converts("Multinomial")
def multinomial(call: Call, x: Any) -> Any:
    """x: logarithms of probabilities, not normalized, [n, classes]."""
    dtype = dtype_of(call, call.get("dtype", 6))
    return categorical(tensor(x), call.get("sample_size", 1)).astype(dtype)


@converts("Bernoulli")
def bernoulli(call: Call, p: Any) -> Any:
    """1 with probability p; the function in ONNX's definition has 1 - p, ONNX Runtime has p, as the text says."""
    p = tensor(p)
    dtype = dtype_of(call, call.get("dtype")) if "dtype" in call.attributes else p.dtype
    return (uniform(shape=tuple(p.shape), dtype=p.dtype) < p).astype(dtype)
