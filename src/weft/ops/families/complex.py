"""Complex numbers: their parts, what they are made of, their conjugates and angles.

Gradients of real functions of complex numbers are dL/dRe(z) + i dL/dIm(z), the direction of steepest ascent
(docs/design/complex.md).
"""

from __future__ import annotations

from typing import Any

from weft.base.dtype import DType, complex64, complex128, float64
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.op import Op, op
from weft.ops.pointwise import Pointwise, unbroadcast
from weft.ops.types import TensorType

Scalar = e.Scalar
NUMBERS = ("int", "uint", "float", "complex")


class ComplexPart(Pointwise, family="complex", result="real", takes=NUMBERS):
    """Base: a real number of a complex one."""


@op
class Real(ComplexPart):
    """The real parts.

    x: numbers [...], no booleans. Returns x's shape, complex64 as float32 and complex128 as float64; real numbers as
    they are.
    Source: array API 2024.12, real.

    >>> import weft as wf
    >>> wf.real(wf.tensor([1 + 2j, 3 - 4j]))
    tensor([1., 3.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.real(x)


@op
class Imag(ComplexPart):
    """The imaginary parts.

    x: numbers [...], no booleans. Returns x's shape, complex64 as float32 and complex128 as float64; 0 for real
    numbers.
    Source: array API 2024.12, imag.

    >>> import weft as wf
    >>> wf.imag(wf.tensor([1 + 2j, 3 - 4j]))
    tensor([ 2., -4.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.imag(x)


@op
class Conj(Pointwise, family="complex", takes=NUMBERS):
    """The complex conjugates: imaginary parts with the other sign.

    x: numbers [...], no booleans. Returns x's shape and dtype; real numbers as they are.
    Source: array API 2024.12, conj.

    >>> import weft as wf
    >>> wf.conj(wf.tensor([1 + 2j]))
    tensor([1.-2.j], dtype=complex64, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.conj(x)


@op
class Angle(ComplexPart, takes=("float", "complex")):
    """The angles of the points in the plane of complex numbers, in radians, from -pi to pi.

    x: float[...] or complex[...]. Returns x's shape and the dtype of its parts; of a real number 0 or pi. The gradient
    at 0 is NaN.
    Source: NumPy's angle.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.angle(wf.tensor([1j, -1 + 0j]))
    tensor([1.5707964, 3.1415927], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        if x.dtype in e.COMPLEX:
            return e.call("atan2", e.imag(x), e.real(x))
        return e.where(x < 0, e.constant(3.141592653589793, x.dtype), e.where(x != x, x, 0))


@op
class Complex(Pointwise, family="complex", result="float", takes=("float",)):
    """The complex numbers of real and imaginary parts: re + 1j * im, where infinities and NaN stay in their part.

    re, im: float[...], integers and half types as float32; shapes fit by broadcasting. Returns complex64, for float64
    complex128.
    Source: PyTorch's complex.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.complex(wf.tensor([1., 2.]), wf.tensor([0., -1.]))
    tensor([1.+0.j, 2.-1.j], dtype=complex64, device=cpu:0)
    """

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        return super().compute_dtype(*inputs).accumulation

    def infer(self, *inputs: TensorType | None) -> TensorType:
        parts = super().infer(*inputs)
        return parts.like(dtype=complex128 if parts.dtype is float64 else complex64)

    def scalar(self, re: Scalar, im: Scalar) -> Scalar:
        return e.complex_number(re, im)

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        re, im, _, dy = values
        return tuple(
            F.cast(unbroadcast(part(dy), x), dtype=x.dtype)
            if x.dtype.is_differentiable and not x.type.weak
            else None
            for x, part in ((re, F.real), (im, F.imag))
        )


@op
class Polar(Op, family="complex", rule="magnitude, angle -> y: complex_of_parts()"):
    """The complex numbers of magnitudes and angles: magnitude * (cos(angle) + 1j * sin(angle)).

    magnitude, angle: float[...], integers and half types as float32; shapes fit by broadcasting. Returns complex64, for
    float64 complex128.
    Source: PyTorch's polar.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.polar(wf.tensor([2.]), wf.tensor([0.]))
    tensor([2.+0.j], dtype=complex64, device=cpu:0)
    """

    def complex_of_parts(self, magnitude: TensorType, angle: TensorType) -> DType:
        """The output's dtype."""
        return Complex().infer(magnitude, angle).dtype

    def infer(self, magnitude: TensorType, angle: TensorType) -> TensorType:
        return Complex().infer(magnitude, angle)

    def decompose(self, magnitude: Any, angle: Any) -> Any:
        part = self.complex_of_parts(magnitude.type, angle.type).real
        magnitude, angle = (F.cast(x, dtype=part) for x in (magnitude, angle))
        return F.complex(magnitude * F.cos(angle), magnitude * F.sin(angle))


@op
class ViewAsReal(Op, family="complex", rule="x[*s]: complex -> y[*s,2]: parts()"):
    """The parts of complex numbers along a new last axis of size 2: a copy.

    x: complex[...]. Returns [..., 2] of float32 for complex64, float64 for complex128. Raises DTypeError for real
    numbers.
    Source: PyTorch's view_as_real, which gives a view.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.view_as_real(wf.tensor([1 + 2j]))
    tensor([[1., 2.]], dtype=float32, device=cpu:0)
    """

    def parts(self, x: TensorType) -> DType:
        """The output's dtype."""
        return x.dtype.real

    def decompose(self, x: Any) -> Any:
        return F.stack([F.real(x), F.imag(x)], axis=-1)


@op
class ViewAsComplex(Op, family="complex", rule="x[*s,2]: float32|float64 -> y[*s]: numbers()"):
    """The complex numbers whose parts lie along the last axis: a copy.

    x: float32[..., 2] or float64[..., 2]. Returns complex64[...] or complex128[...]. Raises DTypeError for other types,
    ShapeError if the last size is not 2.
    Source: PyTorch's view_as_complex, which gives a view.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.view_as_complex(wf.tensor([[1., 2.]]))
    tensor([1.+2.j], dtype=complex64, device=cpu:0)
    """

    def numbers(self, x: TensorType) -> DType:
        """The output's dtype."""
        return complex128 if x.dtype is float64 else complex64

    def decompose(self, x: Any) -> Any:
        re, im = (F.squeeze(F.slice(x, starts=(k,), stops=(k + 1,), axes=(-1,)), axis=-1) for k in (0, 1))
        return F.complex(re, im)
