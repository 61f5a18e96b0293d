"""Floats of 8 bits, stored as bytes: the formats of the OCP's 8-bit floating point specification."""

from __future__ import annotations

from typing import Any, Literal

from weft.base.dtype import DType, float32, float64, uint8
from weft.base.errors import DTypeError
from weft.expr import scalar as e
from weft.expr.functions.pieces import LAYOUTS
from weft.ops.op import op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType

Scalar = e.Scalar

FRACTION = {"e4m3": 3, "e5m2": 2}  # bits
BIAS = {"e4m3": 7, "e5m2": 15}
LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B}  # 448 and 57344
NAN = {"e4m3": 0x7F, "e5m2": 0x7E}


@op
class ToFloat8(
    Pointwise, family="quantization", rule="x: float -> y: uint8", smooth=False, positional=("format",)
):
    """The nearest numbers of 8 bits, as bytes; halves to the even one.

    x: float[...], in any of the types. format: "e4m3" (4 bits of exponent, up to 448, no infinity) or "e5m2" (up to
    57344). saturate: what is beyond the largest number, infinity too, becomes the largest; else e5m2's infinity, and
    e4m3's NaN. NaN stays NaN. Returns uint8 of x's shape, whose bits are sign, exponent, fraction; from_float8 reads
    them. The gradient is zero. Raises DTypeError for integers, TypeError for another format.
    Source: Micikevicius et al. 2022, FP8 formats for deep learning; ONNX 1.16, QuantizeLinear (saturate).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.to_float8(wf.tensor([1., -0.3, 1e6]))
    tensor([ 56, 170, 126], dtype=uint8, device=cpu:0)
    """

    format: Literal["e4m3", "e5m2"] = "e4m3"
    saturate: bool = True

    def infer(self, *inputs: TensorType | None) -> TensorType:
        (x,) = inputs
        assert x is not None
        self.require_floats(x=x)
        return x.like(dtype=uint8)

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        return float64 if inputs[0] is not None and inputs[0].dtype is float64 else float32

    def scalar(self, x: Scalar) -> Scalar:
        layout = LAYOUTS[x.dtype]
        fraction, bias = FRACTION[self.format], BIAS[self.format]
        shift = layout.fraction - fraction
        size = abs(x)
        bits = e.bitcast(size, layout.integer)
        # Half of the last place, less one where it is even, carries into the exponent, as it should.
        odd = (bits >> shift) & 1
        normal = ((bits + (odd + ((1 << (shift - 1)) - 1))) >> shift) - ((layout.bias - bias) << fraction)
        small = e.cast(e.call("rint", size * 2.0 ** (bias - 1 + fraction)), layout.integer)
        code = e.where(size < 2.0 ** (1 - bias), small, normal)
        largest = LARGEST[self.format]
        code = e.where(code > largest, largest if self.saturate else largest + 1, code)
        code = e.where(x == x, code, NAN[self.format])
        sign = e.where(e.bitcast(x, layout.integer) < 0, e.constant(128, layout.integer), 0)
        return e.cast(code | sign, "uint8")

    def vjp(self, x: Any, dy: Any) -> Any:
        return None


@op
class FromFloat8(Pointwise, family="quantization", rule="q: int -> y: dtype", positional=("format", "dtype")):
    """What bytes of to_float8 stand for.

    q: uint8[...]; format: "e4m3" or "e5m2". Returns q's shape in dtype, float32 by default; every number of either
    format is one of float16, too. Raises DTypeError unless q is uint8 and dtype floating-point.
    Source: Micikevicius et al. 2022, FP8 formats for deep learning.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.from_float8(wf.tensor([56, 170, 126], dtype="uint8"))
    tensor([  1.    ,  -0.3125, 448.    ], dtype=float32, device=cpu:0)
    """

    format: Literal["e4m3", "e5m2"] = "e4m3"
    dtype: DType = float32

    def check(self) -> None:
        if not self.dtype.is_floating:
            raise DTypeError(f"{self.name}: dtype must be of floats, got {self.dtype}")

    def infer(self, *inputs: TensorType | None) -> TensorType:
        (q,) = inputs
        assert q is not None
        if q.dtype is not uint8:
            raise self.fail(DTypeError, "takes uint8", q=q)
        return q.like(dtype=self.dtype)

    def operand_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...]:
        return (uint8,)

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        return float32

    def scalar(self, q: Scalar) -> Scalar:
        fraction, bias = FRACTION[self.format], BIAS[self.format]
        byte = e.cast(q, "int32")
        code = byte & 127
        shift = LAYOUTS["float32"].fraction - fraction
        normal = e.bitcast((code + ((127 - bias) << fraction)) << shift, "float32")
        small = e.cast(code, "float32") * 2.0 ** (1 - bias - fraction)
        size = e.where(code < 1 << fraction, small, normal)
        if self.format == "e5m2":
            size = e.where(code == LARGEST["e5m2"] + 1, float("inf"), size)
        size = e.where(code > LARGEST[self.format] + (self.format == "e5m2"), float("nan"), size)
        return e.cast(e.where(byte > 127, -size, size), self.dtype.name)

    def vjp(self, q: Any, dy: Any) -> Any:
        return None


__all__ = ["FromFloat8", "ToFloat8"]
