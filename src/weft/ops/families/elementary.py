"""Elementary functions of one variable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from weft.base.dtype import DType
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.op import Op, op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType

Scalar = e.Scalar


class Elementary(Pointwise, family="elementary", result="float", takes=("float",)):
    """Base: the function of weft.expr.scalar and of NumPy that has the operator's name.

    Integers and booleans are computed as float32.
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.call(self.name, x)


class Analytic(Elementary, takes=("float", "complex")):
    """Base: a function of real and of complex numbers."""


@op
class Exp(Analytic, aot_dtypes=("float32",)):
    """e to the power of x.

    x: float[...], integers as float32. Returns x's shape. At most 2 ulp from the exact value in float32.
    Source: array API 2024.12, exp.

    >>> import weft as wf
    >>> wf.exp(wf.tensor(0.)).item()
    1.0
    """


@op
class Expm1(Analytic):
    """exp(x) - 1, exact to the last digits near 0.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, expm1.

    >>> import weft as wf
    >>> wf.expm1(wf.tensor(0.)).item()
    0.0
    """


@op
class Exp2(Elementary):
    """2 to the power of x.

    x: float[...], integers as float32. Returns x's shape.
    Source: IEEE 754-2019, exp2.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.exp2(wf.tensor([3., -1.]))
    tensor([8. , 0.5], dtype=float32, device=cpu:0)
    """


@op
class Log(Analytic, aot_dtypes=("float32",)):
    """The natural logarithm of x: -inf for 0, NaN for negative numbers.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, log.

    >>> import weft as wf
    >>> wf.log(wf.tensor(1.)).item()
    0.0
    """


@op
class Log1p(Analytic):
    """log(1 + x), exact to the last digits near 0: -inf for -1, NaN below.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, log1p.

    >>> import weft as wf
    >>> wf.log1p(wf.tensor(0.)).item()
    0.0
    """


@op
class Log2(Analytic):
    """The logarithm of x to the base 2: -inf for 0, NaN for negative numbers.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, log2.

    >>> import weft as wf
    >>> wf.log2(wf.tensor([8., 0.5]))
    tensor([ 3., -1.], dtype=float32, device=cpu:0)
    """


@op
class Log10(Analytic):
    """The logarithm of x to the base 10: -inf for 0, NaN for negative numbers.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, log10.

    >>> import weft as wf
    >>> wf.log10(wf.tensor([1., 100.]))
    tensor([0., 2.], dtype=float32, device=cpu:0)
    """


@op
class Sqrt(Analytic, aot_dtypes=("float32",)):
    """The square root of x: NaN for negative numbers.

    x: float[...], integers as float32. Returns x's shape. Correctly rounded. The gradient at 0 is infinite.
    Source: array API 2024.12, sqrt.

    >>> import weft as wf
    >>> wf.sqrt(wf.tensor([4., 9.]))
    tensor([2., 3.], dtype=float32, device=cpu:0)
    """


@op
class Rsqrt(Analytic):
    """1 / sqrt(x): inf for 0, NaN for negative numbers.

    x: float[...], integers as float32. Returns x's shape.
    Source: IEEE 754-2019, rSqrt.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.rsqrt(wf.tensor([4., 0.25]))
    tensor([0.5, 2. ], dtype=float32, device=cpu:0)
    """


@op
class Cbrt(Elementary):
    """The cube root of x, negative for negative numbers.

    x: float[...], integers as float32. Returns x's shape.
    Source: IEEE C99, cbrt.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cbrt(wf.tensor([8., -1.]))
    tensor([ 2., -1.], dtype=float32, device=cpu:0)
    """


@op
class Sin(Analytic):
    """The sine of x radians: NaN for infinities.

    x: float[...], integers as float32. Returns x's shape. Exact to the last digits for large x, too.
    Source: array API 2024.12, sin.

    >>> import weft as wf
    >>> wf.sin(wf.tensor(0.)).item()
    0.0
    """


@op
class Cos(Analytic):
    """The cosine of x radians: NaN for infinities.

    x: float[...], integers as float32. Returns x's shape. Exact to the last digits for large x, too.
    Source: array API 2024.12, cos.

    >>> import weft as wf
    >>> wf.cos(wf.tensor(0.)).item()
    1.0
    """


@op
class Tan(Analytic):
    """The tangent of x radians: NaN for infinities.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, tan.

    >>> import weft as wf
    >>> wf.tan(wf.tensor(0.)).item()
    0.0
    """


@op
class Asin(Analytic):
    """The angle in radians, from -pi/2 to pi/2, whose sine is x: NaN outside of -1..1.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, asin.

    >>> import weft as wf
    >>> wf.asin(wf.tensor(0.)).item()
    0.0
    """


@op
class Acos(Analytic):
    """The angle in radians, from 0 to pi, whose cosine is x: NaN outside of -1..1.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, acos.

    >>> import weft as wf
    >>> wf.acos(wf.tensor(1.)).item()
    0.0
    """


@op
class Atan(Analytic):
    """The angle in radians, from -pi/2 to pi/2, whose tangent is x.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, atan.

    >>> import weft as wf
    >>> wf.atan(wf.tensor(0.)).item()
    0.0
    """


@op
class Sinh(Analytic):
    """The hyperbolic sine of x.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, sinh.

    >>> import weft as wf
    >>> wf.sinh(wf.tensor(0.)).item()
    0.0
    """


@op
class Cosh(Analytic):
    """The hyperbolic cosine of x.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, cosh.

    >>> import weft as wf
    >>> wf.cosh(wf.tensor(0.)).item()
    1.0
    """


@op
class Tanh(Analytic, aot_dtypes=("float32",)):
    """The hyperbolic tangent of x.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, tanh.

    >>> import weft as wf
    >>> wf.tanh(wf.tensor([0., 100.]))
    tensor([0., 1.], dtype=float32, device=cpu:0)
    """


@op
class Asinh(Analytic):
    """The inverse of the hyperbolic sine.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, asinh.

    >>> import weft as wf
    >>> wf.asinh(wf.tensor(0.)).item()
    0.0
    """


@op
class Acosh(Analytic):
    """The inverse of the hyperbolic cosine: NaN below 1.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, acosh.

    >>> import weft as wf
    >>> wf.acosh(wf.tensor(1.)).item()
    0.0
    """


@op
class Atanh(Analytic):
    """The inverse of the hyperbolic tangent: infinities for -1 and 1, NaN outside.

    x: float[...], integers as float32. Returns x's shape.
    Source: array API 2024.12, atanh.

    >>> import weft as wf
    >>> wf.atanh(wf.tensor(0.)).item()
    0.0
    """


@op
class Erf(Elementary):
    """The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.

    x: float[...], integers as float32. Returns x's shape.
    Source: IEEE C99, erf.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.erf(wf.tensor([0., 10.]))
    tensor([0., 1.], dtype=float32, device=cpu:0)
    """


@op
class Erfc(Elementary):
    """1 - erf(x), exact to the last digits where that is small.

    x: float[...], integers as float32. Returns x's shape.
    Source: IEEE C99, erfc.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.erfc(wf.tensor([0., -10.]))
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """


@op
class Sigmoid(Elementary, aot_dtypes=("float32",)):
    """1 / (1 + exp(-x)), exact to the last digits on both sides.

    x: float[...], integers as float32. Returns x's shape.
    Source: Verhulst 1838, Notice sur la loi que la population poursuit dans son accroissement.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.sigmoid(wf.tensor(0.)).item()
    0.5
    """


class Rounding(Elementary, result="same", takes=("int", "uint", "float"), smooth=False):
    """Base: whole numbers near x. Integers stay as they are; the gradient is 0."""

    def scalar(self, x: Scalar) -> Scalar:
        return e.call(self.name, x) if x.dtype in e.FLOATS else x


@op
class Floor(Rounding):
    """The greatest whole number that is at most x.

    x: numbers [...], no booleans. Returns x's shape and dtype.
    Source: array API 2024.12, floor.

    >>> import weft as wf
    >>> wf.floor(wf.tensor([1.5, -1.5]))
    tensor([ 1., -2.], dtype=float32, device=cpu:0)
    """


@op
class Ceil(Rounding):
    """The least whole number that is at least x.

    x: numbers [...], no booleans. Returns x's shape and dtype.
    Source: array API 2024.12, ceil.

    >>> import weft as wf
    >>> wf.ceil(wf.tensor([1.5, -1.5]))
    tensor([ 2., -1.], dtype=float32, device=cpu:0)
    """


@op
class Trunc(Rounding):
    """The whole number nearest to x that is not farther from 0.

    x: numbers [...], no booleans. Returns x's shape and dtype.
    Source: array API 2024.12, trunc.

    >>> import weft as wf
    >>> wf.trunc(wf.tensor([1.5, -1.5]))
    tensor([ 1., -1.], dtype=float32, device=cpu:0)
    """


@op
class Round(Rounding, takes=("int", "uint", "float", "complex")):
    """The whole number nearest to x; of two equally near ones the even one.

    x: numbers [...], no booleans; of complex ones each part by itself. Returns x's shape and dtype.
    Source: array API 2024.12, round.

    >>> import weft as wf
    >>> wf.round(wf.tensor([0.5, 1.5, 2.5]))
    tensor([0., 2., 2.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        if x.dtype in e.COMPLEX:
            return e.complex_number(e.call("rint", e.real(x)), e.call("rint", e.imag(x)))
        return e.call("rint", x) if x.dtype in e.FLOATS else x


class Property(
    Pointwise, family="elementary", result="bool", takes=("bool", "int", "uint", "float", "complex")
):
    """Base: true or false of one number; of a complex one whether it is so of `both` parts, or of either."""

    both: ClassVar[bool] = False

    integers: ClassVar[bool] = False  # what integers and booleans give

    def of_float(self, x: Scalar) -> Scalar:
        """For floating-point types."""
        raise NotImplementedError

    def scalar(self, x: Scalar) -> Scalar:
        if x.dtype in e.COMPLEX:
            re, im = self.of_float(e.real(x)), self.of_float(e.imag(x))
            return re & im if self.both else re | im
        return self.of_float(x) if x.dtype in e.FLOATS else e.constant(self.integers, "bool")


@op
class Isnan(Property):
    """Whether x is NaN.

    x: any dtype [...]. Returns bool of x's shape; false for integers.
    Source: array API 2024.12, isnan.

    >>> import weft as wf
    >>> wf.isnan(wf.tensor([1., float("nan")]))
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def of_float(self, x: Scalar) -> Scalar:
        return x != x


@op
class Isinf(Property):
    """Whether x is infinite.

    x: any dtype [...]. Returns bool of x's shape; false for integers.
    Source: array API 2024.12, isinf.

    >>> import weft as wf
    >>> wf.isinf(wf.tensor([1., float("-inf")]))
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def of_float(self, x: Scalar) -> Scalar:
        return abs(x) == float("inf")


@op
class Isfinite(Property, integers=True, both=True):
    """Whether x is neither infinite nor NaN.

    x: any dtype [...]. Returns bool of x's shape; true for integers.
    Source: array API 2024.12, isfinite.

    >>> import weft as wf
    >>> wf.isfinite(wf.tensor([1., float("nan")]))
    tensor([ True, False], dtype=bool, device=cpu:0)
    """

    def of_float(self, x: Scalar) -> Scalar:
        return abs(x) < float("inf")


@op
class Signbit(Property, takes=("bool", "int", "uint", "float")):
    """Whether x has a minus sign, as -0.0 has and as NaN may have.

    x: any dtype [...]. Returns bool of x's shape; of integers whether they are negative.
    Source: array API 2024.12, signbit.

    >>> import weft as wf
    >>> wf.signbit(wf.tensor([1., -0.]))
    tensor([False,  True], dtype=bool, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        if x.dtype in e.FLOATS:
            return e.call("copysign", e.constant(1, x.dtype), x) < 0
        return x < 0 if x.dtype in e.SIGNED else e.constant(False, "bool")


@op
class Cast(Pointwise, family="elementary", positional=("dtype",)):
    """The elements as another type, converted as NumPy's astype does.

    x: any dtype [...]; dtype: the new type. Returns x's shape. Floats become integers towards zero, complex numbers
    their real parts, or true where a part is not 0.
    Source: array API 2024.12, astype.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cast(wf.tensor([1.7]), dtype="int32")
    tensor([1], dtype=int32, device=cpu:0)
    """

    dtype: DType

    def infer(self, *inputs: TensorType | None) -> TensorType:
        (x,) = inputs
        assert x is not None
        return x.like(dtype=self.dtype)

    def scalar(self, x: Scalar) -> Scalar:
        return e.cast(x, self.dtype.name)

    def vjp(self, *values: Any) -> Any:
        x, _, dy = values
        both = x.dtype.is_differentiable and dy.dtype.is_differentiable
        return (F.cast(dy, dtype=x.dtype) if both else None,)


@op
class FilledLike(Op, primitive=True, public=False):
    """A tensor like x that is filled with value. Only the type of x is used."""

    value: float = 0.0

    def infer(self, x: TensorType) -> TensorType:
        return x.like()

    def kernels(self, x: TensorType) -> Iterator[Any]:
        from weft.ops.kernels import pointwise_loop

        yield pointwise_loop((x,), [e.constant(self.value, x.dtype.name)])

    def vjp(self, x: Any) -> Any:
        return None
