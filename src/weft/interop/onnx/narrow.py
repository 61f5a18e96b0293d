"""Element types of 2 to 8 bits that weft does not have: their values are held in a type that has them all.

Floats are held as float32, integers of 2 and 4 bits as int8 or uint8. Arithmetic is that of the type that holds them; a
Cast or QuantizeLinear rounds to the values of the narrow type.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from weft import functional as F
from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.interop.onnx.calls import Narrow, tensor

__all__ = ["INTEGERS", "NARROW", "narrowed", "read", "wrapped"]

# By number of TensorProto.DataType.
NARROW: dict[int, Any] = {
    17: ml_dtypes.float8_e4m3fn,
    18: ml_dtypes.float8_e4m3fnuz,
    19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e5m2fnuz,
    21: ml_dtypes.uint4,
    22: ml_dtypes.int4,
    23: ml_dtypes.float4_e2m1fn,
    25: ml_dtypes.uint2,
    26: ml_dtypes.int2,
    27: ml_dtypes.float6_e2m3fn,
    28: ml_dtypes.float6_e3m2fn,
}
# What holds them, least and greatest.
INTEGERS = {21: ("uint8", 0, 15), 22: ("int8", -8, 7), 25: ("uint8", 0, 3), 26: ("int8", -2, 1)}
FINITE = {
    23: 8,
    27: 32,
    28: 32,
}  # floats without infinity and NaN, and how many of their codes are not negative


def read(array: Any, code: int) -> Narrow:
    """The value of an array of such elements, each in a byte, or of one of their values; or of a tensor of those."""
    if isinstance(array, Tensor):
        return Narrow(array, code)
    array = np.asarray(array)
    if code in INTEGERS:
        return Narrow(asarray(array.astype(INTEGERS[code][0])), code)
    if array.dtype.kind == "f":  # ml_dtypes' are of another kind
        return Narrow(asarray(array.astype(np.float32)), code)
    return Narrow(asarray(array.view(np.uint8).view(NARROW[code]).astype(np.float32)), code)


def narrowed(x: Any, code: int, saturate: bool = True) -> Narrow:
    """The nearest values, halves to those of even codes; beyond the greatest that or, unsaturated, infinity or NaN."""
    x = tensor(x)
    if code in INTEGERS:
        dtype, least, most = INTEGERS[code]
        return Narrow(F.clip(F.round(x), least, most).astype(dtype), code)
    kind, wide = NARROW[code], x.astype("float32")
    codes = np.arange(FINITE.get(code, 128), dtype=np.uint8).view(kind).astype(np.float64)
    values = codes[np.isfinite(codes)]
    following = 2 * values[-1] - values[-2]  # what the next code would be, if there were one
    halves = asarray(((values + np.append(values[1:], following)) / 2).astype(np.float32))
    size = F.abs(wide)
    below, above = (F.searchsorted(halves, size, side=side) for side in ("left", "right"))
    index = F.where(F.equal(F.remainder(below, 2), 0), below, above)
    has_infinity = bool(np.isinf(codes).any())
    beyond = values[-1] if saturate or code in FINITE else np.inf if has_infinity else np.nan
    y = F.take(asarray(np.array([*values, beyond], np.float32)), index.reshape((-1,)), axis=0).reshape(
        wide.shape
    )
    y = F.copysign(y, wide)
    if kind in (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz):
        y = F.where(F.equal(y, 0), 0.0, y)
    nothing = float(np.array(np.nan, np.float32).astype(kind))
    return Narrow(F.where(F.isnan(wide), nothing, y).astype("float32"), code)


def wrapped(x: Any, code: int) -> Narrow:
    """The integers of x without their upper bits; fractions are cut off."""
    dtype, least, most = INTEGERS[code]
    whole = tensor(x).astype("int64")
    return Narrow((F.remainder(whole - least, most - least + 1) + least).astype(dtype), code)
