"""Special functions: the gamma family, the inverse error function, products and quotients with defined limits."""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import DType
from weft.expr import scalar as e
from weft.expr.derivative import trigamma
from weft.expr.functions.special import zeta
from weft.ops import functions as F
from weft.ops.families.arithmetic import FloatPair
from weft.ops.families.elementary import Elementary
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import Pointwise, cast_to, unbroadcast

Scalar = e.Scalar

WORDS = {"float32": "int32", "float64": "int64", "float16": "int16", "bfloat16": "int16"}


@op
class Erfinv(Elementary, family="special"):
    """The number whose error function is x: infinite for -1 and 1, NaN beyond.

    x: float[...], integers as float32. Returns x's shape. At most 4 ulp from the exact value.
    Source: Giles 2012, Approximating the erfinv function.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.erf(F.erfinv(wf.tensor([0.5, -0.25])))
    tensor([ 0.5 , -0.25], dtype=float32, device=cpu:0)
    """


@op
class Gamma(Elementary, family="special"):
    """The gamma function, (x - 1)! of whole numbers: NaN for whole numbers below 0, infinite for 0 with its sign.

    x: float[...], integers as float32. Returns x's shape. In float64 at most 12 ulp from the exact value for positive
    numbers, 64 below 0. wf.random.gamma draws from the distribution of this name.
    Source: IEEE C99, tgamma.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.gamma(wf.tensor([5., 0.5]))
    tensor([24.       ,  1.7724539], dtype=float32, device=cpu:0)
    """


@op
class Lgamma(Elementary, family="special"):
    """log(|gamma(x)|): infinite for 0 and whole numbers below.

    x: float[...], integers as float32. Returns x's shape. The gradient is digamma.
    Source: IEEE C99, lgamma.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.lgamma(wf.tensor([1., 101.]))
    tensor([  0.     , 363.73938], dtype=float32, device=cpu:0)
    """


@op
class Digamma(Elementary, family="special"):
    """The derivative of lgamma: NaN for whole numbers below 0, infinite for 0 with the other sign.

    x: float[...], integers as float32. Returns x's shape. The gradient is polygamma(x, 1).
    Source: Abramowitz, Stegun 1964, 6.3.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.digamma(wf.tensor(1.))                           # minus Euler's constant
    tensor(-0.5772157, dtype=float32, device=cpu:0)
    """


@op
class Polygamma(Elementary, family="special", positional=("n",)):
    """The n-th derivative of digamma.

    x: float[...], integers as float32; n: from 0. Returns x's shape. Below 0 it is NaN for n above 1.
    Raises ValueError for a negative n.
    Source: Abramowitz, Stegun 1964, 6.4.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.polygamma(wf.tensor(1.), 1)                      # pi^2 / 6
    tensor(1.644934, dtype=float32, device=cpu:0)
    """

    n: int

    def check(self) -> None:
        if self.n < 0:
            raise ValueError(f"{self.name}: n must be at least 0, got {self.n}")

    def scalar(self, x: Scalar) -> Scalar:
        if self.n == 0:
            return e.call("digamma", x)
        if self.n == 1:
            return trigamma(x)
        wide = e.cast(x, "float64")
        y = zeta(self.n + 1, wide) * ((-1.0) ** (self.n + 1) * math.factorial(self.n))
        return e.cast(e.where(wide < 0, e.constant(math.nan, "float64"), y), x.dtype)


@op
class Sinc(Elementary, family="special"):
    """sin(pi x) / (pi x), 1 at 0, where it has derivatives of every order.

    x: float[...], integers as float32. Returns x's shape.
    Source: NumPy's sinc.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.sinc(wf.tensor([0., 0.5]))
    tensor([1.        , 0.63661975], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        is_near = abs(x) < 0.0625
        z = x * x * math.pi**2
        series = e.constant(1, x.dtype)
        for k in range(9, 0, -1):
            series = 1 - z * (1 / (2 * k * (2 * k + 1))) * series
        far = e.where(is_near, e.constant(1, x.dtype), x)
        whole = e.call("rint", far)
        sine = e.call("sin", math.pi * (far - whole))
        is_odd = whole != 2 * e.call("rint", whole * 0.5)
        return e.where(is_near, series, e.where(is_odd, -sine, sine) / (math.pi * far))


@op
class Logit(Elementary, family="special"):
    """log(x / (1 - x)), the inverse of sigmoid: infinite at 0 and 1, NaN beyond.

    x: float[...], integers as float32; eps: a number given when it runs; x is then kept within eps ... 1 - eps. Returns
    x's shape.
    Source: Berkson 1944.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.logit(wf.tensor([0.5, 0.75]))
    tensor([0.       , 1.0986123], dtype=float32, device=cpu:0)
    """

    eps: Runtime[float] = 0.0

    def scalar(self, x: Scalar) -> Scalar:
        low = self.eps + 0 * x
        is_kept = low > 0
        kept = e.where(is_kept & (x < low), low, e.where(is_kept & (x > 1 - low), 1 - low, x))
        return e.call("log", kept) - e.call("log1p", -kept)


class DegreesAndRadians(Elementary, family="special"):
    """Base: x times a constant."""

    factor = 1.0

    def scalar(self, x: Scalar) -> Scalar:
        return x * self.factor


@op
class Deg2rad(DegreesAndRadians):
    """Degrees in radians: x pi / 180.

    x: float[...], integers as float32. Returns x's shape.
    Source: NumPy's deg2rad.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.deg2rad(wf.tensor(180.))
    tensor(3.1415927, dtype=float32, device=cpu:0)
    """

    factor = math.pi / 180


@op
class Rad2deg(DegreesAndRadians):
    """Radians in degrees: x 180 / pi.

    x: float[...], integers as float32. Returns x's shape.
    Source: NumPy's rad2deg.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.rad2deg(wf.tensor(1.))
    tensor(57.29578, dtype=float32, device=cpu:0)
    """

    factor = 180 / math.pi


@op
class Xlogy(FloatPair, family="special"):
    """a log(b), 0 where a is 0 and b is not NaN.

    a, b: float[...], integers as float32; shapes fit by broadcasting. Returns the promoted type. The gradients are 0
    where a is 0 and b at most 0.
    Source: SciPy's xlogy.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.xlogy(wf.tensor([0., 2.]), wf.tensor([0., 1.]))
    tensor([0., 0.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        is_zero = (a == 0) & (b == b)
        inner = e.where(is_zero, e.constant(1, b.dtype), b)
        return e.where(is_zero, a, a * e.call("log", inner))

    def vjp(self, a: Any, b: Any, dy: Any) -> Any:
        is_corner = F.logical_and(F.equal(a, 0), b <= 0)
        inner = F.where(is_corner, 1.0, b)
        slopes = (cast_to(slope, dy.dtype) for slope in (F.log(inner), a / inner))  # a and b may be numbers
        da, db = (F.where(is_corner, 0.0, slope) for slope in slopes)
        return unbroadcast(dy * da, a), unbroadcast(dy * db, b)


@op
class Heaviside(Pointwise, family="special", smooth=False):
    """0 where a is negative, 1 where it is positive, b where it is 0; NaN stays.

    a, b: numbers [...]; shapes fit by broadcasting. Returns the promoted type. The gradients are 0.
    Source: NumPy's heaviside.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.heaviside(wf.tensor([-2., 0., 3.]), 0.5)
    tensor([0. , 0.5, 1. ], dtype=float32, device=cpu:0)
    """

    takes = ("int", "uint", "float")

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        zero, one = e.constant(0, a.dtype), e.constant(1, a.dtype)
        return e.where(a < zero, zero, e.where(a > zero, one, e.where(a == zero, b, a)))


@op
class Nextafter(FloatPair, family="special", smooth=False):
    """The number next to a in the direction of b; b where both are equal, NaN where one is.

    a, b: float[...], integers as float32; shapes fit by broadcasting. Returns the promoted type. The gradients are 0.
    Source: array API 2024.12, nextafter; IEEE 754-2019, nextUp.

    >>> import weft as wf
    >>> wf.nextafter(wf.tensor(1., dtype="float64"), 2.).item() - 1
    2.220446049250313e-16
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        word = WORDS[a.dtype]
        bits = e.bitcast(a, word)
        one = e.constant(1, word)
        is_away = (a < b) == (a > 0)  # from 0
        stepped = e.bitcast(e.where(is_away, bits + one, bits - one), a.dtype)
        least = e.call("copysign", e.bitcast(one, a.dtype), b)
        moved = e.where(a == 0, least, stepped)
        return e.where(a == b, b, e.where((a == a) & (b == b), moved, a + b))


@op
class NanToNum(Op, family="special", rule="x[*s]: number|bool -> y[*s]: x"):
    """x with numbers in the place of NaN and infinities.

    x: numbers [...]; nan: in the place of NaN; posinf, neginf: of the infinities, None for the greatest and the least
    finite number of the type. Returns x's shape and dtype; integers as they are. The gradient is 0 where it replaced.
    Source: NumPy's nan_to_num.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.nan_to_num(wf.tensor([float("nan"), float("inf"), 1.]), posinf=9.)
    tensor([0., 9., 1.], dtype=float32, device=cpu:0)
    """

    nan: float = 0.0
    posinf: float | None = None
    neginf: float | None = None

    def decompose(self, x: Any) -> Any:
        if not x.dtype.is_floating:
            return x
        low, high = _limits(x.dtype)
        high = high if self.posinf is None else self.posinf
        low = low if self.neginf is None else self.neginf
        x = F.where(F.isnan(x), self.nan, x)
        return F.where(F.equal(x, math.inf), high, F.where(F.equal(x, -math.inf), low, x))


def _limits(dtype: DType) -> tuple[float, float]:
    """The least and the greatest finite number of a floating-point type."""
    greatest = {
        "float16": 65504.0,
        "bfloat16": float.fromhex("0x1.fep127"),
        "float32": float.fromhex("0x1.fffffep127"),
    }
    high = greatest.get(dtype.name, float.fromhex("0x1.fffffffffffffp1023"))
    return -high, high


__all__ = [
    "Deg2rad",
    "Digamma",
    "Erfinv",
    "Gamma",
    "Heaviside",
    "Lgamma",
    "Logit",
    "NanToNum",
    "Nextafter",
    "Polygamma",
    "Rad2deg",
    "Sinc",
    "Xlogy",
]
