"""Elementary functions in basic operations, and derivatives: expressions to expressions, without branches or tables.

>>> from weft.expr.functions import derive, expand
>>> from weft.expr.scalar import call, load
>>> x = load(0, "float32")
>>> expand(call("rsqrt", x))
div(1.0, sqrt(x0))
>>> derive(call("exp", x) * 2, x)
mul(exp(x0), 2.0)

The errors in the docstrings are bounds on the largest found, in units in the last place (ulp) of the exact result. In
float32 over every number for exp, expm1, log, log1p, tanh, sigmoid, sin, cos; over 3e7 or more for other functions of
one number, 2e6 for those of two. In float64 over some 1e6. tests/expr/test_functions.py checks them. Results that
are less than the least normal number keep what bits they can. Coefficients: Remez's algorithm in 40 digits, those
of float32 rounded one after the other (exp in float64: interpolation at Chebyshev's points).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from weft.base.record import Record
from weft.base.typing import Any
from weft.expr.scalar import (
    FLOATS,
    FUNCTIONS,
    HALVES,
    LEAVES,
    Number,
    Scalar,
    bitcast,
    call,
    cast,
    constant,
    fma,
    substitute,
    walk,
    where,
)

__all__ = ["derive", "expand"]


class _Layout(Record):
    """The bits of a float type, as the integer type of its size sees them."""

    integer: str
    fraction: int
    bias: int

    @property
    def magic(self) -> float:
        """Adding it rounds to an integer, which then stands in the lowest bits: 1.5 times the number whose ulp is 1."""
        return 1.5 * 2.0**self.fraction

    def bits(self, value: float) -> int:
        code = "<f" if self.fraction == 23 else "<d"
        return int.from_bytes(struct.pack(code, value), "little")


LAYOUTS = {"float32": _Layout("int32", 23, 127), "float64": _Layout("int64", 52, 1023)}

# Constants in parts that add up to them, each the nearest number to what is left.
LN2 = {
    "float32": (0.6931471824645996, -1.9046542121259336e-09),
    "float64": (0.6931471805599453, 2.3190468138462996e-17),
}
LOG2_E = {
    "float32": (1.4426950216293335, 1.925963033500011e-08),
    "float64": (1.4426950408889634, 2.0355273740931033e-17),
}
LOG10_E = {
    "float32": (0.4342944920063019, -1.0103049952192578e-08),
    "float64": (0.4342944819032518, 1.098319650216765e-17),
}
LOG10_2 = {
    "float32": (0.3010300099849701, -1.432098883924482e-08),
    "float64": (0.3010299956639812, -2.8037281277851704e-18),
}
PI = {
    "float32": (3.1415927410125732, -8.742277657347586e-08),
    "float64": (3.141592653589793, 1.2246467991473532e-16),
}
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)


def expand(root: Scalar) -> Scalar:
    """The expression in basic operations only; arithmetic of half types goes on in float32.

    Loads, parameters and results of half types are cast to float32 once, and what is of a half type at the root is cast
    back: between, nothing is rounded to a half type but where the expression itself casts to one. Numbers in half-typed
    arithmetic are float32's, too. Raises TypeError for a function of integers.

    >>> from weft.expr.scalar import load
    >>> x = load(0, "bfloat16")
    >>> expand(x * x + 1)
    cast[bfloat16](add(mul(cast[float32](x0), cast[float32](x0)), 1.0))
    """
    return substitute(_widen(root), _expand_function)


def _expand_function(node: Scalar) -> Scalar:
    if node.op not in FUNCTIONS:
        return node
    if node.dtype not in LAYOUTS:
        raise TypeError(f"{node.op}: takes floating-point numbers, not {node.dtype}; cast to float32 first")
    return _MEANINGS[node.op](*node.args)


def _widen(root: Scalar) -> Scalar:
    made: dict[int, Scalar] = {}
    for node in walk(root):
        args = [made[id(arg)] for arg in node.args]
        made[id(node)] = _widened(node, args)
    return _narrowed(made[id(root)], root.dtype)


def _narrowed(wide: Scalar, dtype: str) -> Scalar:
    if wide.op == "cast" and wide.args[0].dtype == dtype:
        return wide.args[0] if dtype in HALVES else wide
    return cast(wide, dtype)


def _widened(node: Scalar, args: list[Scalar]) -> Scalar:
    """The node with wide arguments; wide itself, if it is of a half type."""
    half = node.dtype in HALVES
    if node.op == "constant":
        return constant(node.value, "float32") if half else node
    if node.op == "bitcast":
        source = _narrowed(args[0], node.args[0].dtype)
        return cast(bitcast(source, node.dtype), "float32") if half else bitcast(source, node.dtype)
    if node.op == "cast":
        return cast(_narrowed(args[0], node.dtype), "float32") if half else cast(args[0], node.dtype)
    same = all(new is old for new, old in zip(args, node.args, strict=True))
    if node.op in LEAVES and half:
        leaf = node if same else Scalar(node.op, node.dtype, tuple(args), node.value)
        return cast(leaf, "float32")
    return node if same else Scalar(node.op, "float32" if half else node.dtype, tuple(args), node.value)


# Pieces.


def _polynomial(x: Scalar, coefficients: tuple[float, ...]) -> Scalar:
    """coefficients[0] + coefficients[1] x + ..., Horner's way."""
    total = constant(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def _bits(x: Scalar) -> Scalar:
    return bitcast(x, LAYOUTS[x.dtype].integer)


def _either(condition: Scalar, a: float, b: float, dtype: str) -> Scalar:
    return where(condition, constant(a, dtype), b)


def _at_most(x: Scalar, limit: float) -> Scalar:
    """NaN stays, and on x86 it is one instruction, which minimum is not."""
    return where(x > limit, limit, x)


def _at_least(x: Scalar, limit: float) -> Scalar:
    return where(x < limit, limit, x)


def _nearest(x: Scalar, factor: float) -> tuple[Scalar, Scalar]:
    """rint(factor x) as a number, and as an integer with other upper bits. It must be below 2^22, 2^51."""
    layout = LAYOUTS[x.dtype]
    shifted = fma(x, factor, layout.magic)
    return shifted - layout.magic, bitcast(shifted, layout.integer)


def _power_of_two(n: Scalar, dtype: str) -> Scalar:
    """2^n for an integer n of the type's normal range."""
    layout = LAYOUTS[dtype]
    return bitcast((n + layout.bias) << layout.fraction, dtype)


def _factors(n: Scalar, below: Scalar | bool, dtype: str) -> tuple[Scalar, Scalar]:
    """Two numbers of the type whose product is 2^n, which may be none; below: n <= 0, else n >= 0.

    The first is one of two constants, so (1 + p) times it is a number near 1 with another exponent: exact.
    """
    layout = LAYOUTS[dtype]
    up = layout.fraction + 2
    if isinstance(below, bool):
        below = constant(below, "bool")
    first = where(below, constant(2.0**-up, dtype), 2.0)
    bias = where(
        below, constant((layout.bias + up) << layout.fraction, n.dtype), (layout.bias - 1) << layout.fraction
    )
    return first, bitcast((n << layout.fraction) + bias, dtype)


def _quotient(a: Scalar, b: Scalar, b_low: Scalar) -> Scalar:
    """a / (b + b_low), rounded nearly once, where b_low is what the rounding of b left out."""
    inverse = 1 / b
    y = a * inverse
    return fma(fma(-y, b_low, fma(-y, b, a)), inverse, y)


# Exponentials.

# (e^r - 1 - r) / r^2 for |r| <= log(2) / 2.
EXP = {
    "float32": (
        0.4999999701976776,
        0.16666534543037415,
        0.041667595505714417,
        0.008367558941245079,
        0.001385885989293456,
    ),
    "float64": (
        0.5,
        0.1666666666666667,
        0.04166666666666667,
        0.008333333333326025,
        0.001388888888888367,
        0.00019841269875205077,
        2.4801587325822283e-05,
        2.75572549134867e-06,
        2.7557273295539724e-07,
        2.5105419192016337e-08,
        2.091483135138041e-09,
    ),
}
# (2^r - 1) / r for |r| <= 1/2.
EXP2 = {
    "float32": (
        0.6931472065106677,
        0.24022651303400802,
        0.055503272436950184,
        0.009618010633578037,
        0.001340048501392994,
        0.00015474003739328291,
    ),
    "float64": (
        0.6931471805599453,
        0.24022650695910072,
        0.0555041086648217,
        0.009618129107628496,
        0.001333355814638987,
        0.0001540353039334052,
        1.5252733856821684e-05,
        1.3215486833533735e-06,
        1.0178050949953945e-07,
        7.054888073674991e-09,
        4.456715091766863e-10,
        2.5742052660403025e-11,
    ),
}
# Beyond these e^x is infinite, or 0.
EXP_MOST = {"float32": 89.0, "float64": 710.0}
EXP_LEAST = {"float32": -104.0, "float64": -746.0}


def _exp_parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """p and an integer n with e^x = (1 + p) 2^n, |p| < 0.42; Cody and Waite's reduction."""
    high, low = LN2[x.dtype]
    k, shifted = _nearest(x, LOG2_E[x.dtype][0])
    n = shifted - LAYOUTS[x.dtype].bits(LAYOUTS[x.dtype].magic)
    r = fma(-k, low, fma(-k, high, x))
    return fma(r * r, _polynomial(r, EXP[x.dtype]), r), n


def _exp_of(x: Scalar, below: Scalar | bool, *, more: int = 0) -> Scalar:
    """e^x 2^more for x within EXP_LEAST and EXP_MOST; below: x < 0, else x >= 0."""
    p, n = _exp_parts(x)
    first, second = _factors(n + more if more else n, below, x.dtype)
    return fma(p, first, first) * second


def _exp(x: Scalar) -> Scalar:
    """e^x = 2^n e^r, |r| <= log(2) / 2, by a polynomial of degree 6 (12). At most 1.1 ulp."""
    return _exp_of(_at_most(_at_least(x, EXP_LEAST[x.dtype]), EXP_MOST[x.dtype]), x < 0)


def _expm1(x: Scalar) -> Scalar:
    """e^x - 1 = 2^n (e^r - 1) + (2^n - 1). At most 1.6 ulp, float64 1.8.

    Half of it is computed, as 2^n may be too large; a tiny x is the result, and its half might lose its last bit.
    """
    p, n = _exp_parts(_at_most(_at_least(x, -40.0), EXP_MOST[x.dtype]))
    scale = _power_of_two(n - 1, x.dtype)
    y = 2 * fma(scale, p, scale - 0.5)
    return where(abs(x) < 2.0 ** -(LAYOUTS[x.dtype].fraction + 2), x, y)


def _exp2(x: Scalar) -> Scalar:
    """2^x = 2^n 2^r, |r| <= 1/2, by a polynomial of degree 6 (12). At most 1 ulp."""
    least, most = {"float32": (-151.0, 129.0), "float64": (-1076.0, 1025.0)}[x.dtype]
    x = _at_most(_at_least(x, least), most)
    k, shifted = _nearest(x, 1.0)
    r = x - k
    n = shifted - LAYOUTS[x.dtype].bits(LAYOUTS[x.dtype].magic)
    first, second = _factors(n, x < 0, x.dtype)
    return fma(r * first, _polynomial(r, EXP2[x.dtype]), first) * second


def _tanh(x: Scalar) -> Scalar:
    """t / (t + 2) for t = e^(2|x|) - 1, which is exact near 0; a division with a correction. At most 1.9 ulp."""
    p, n = _exp_parts(_at_most(2 * abs(x), 40.0))
    scale = _power_of_two(n, x.dtype)
    t = fma(scale, p, scale - 1)
    d = t + 2
    return call("copysign", _quotient(t, d, t - (d - 2)), x)


def _sigmoid(x: Scalar) -> Scalar:
    """c / (c + c e^-x), with c so small that c e^-x is finite wherever the result is not 0. At most 1.9 ulp.

    c e^-x = s + p s is not rounded before c is added: s + c first, which is exact but where 2^n is about as large as
    c has bits. 1.75 is what keeps the error least there; with 1 it is 2.4 ulp.
    """
    layout = LAYOUTS[x.dtype]
    c = 1.75 * 2.0**-64
    p, n = _exp_parts(_at_most(_at_least(-x, -40.0), -EXP_LEAST[x.dtype]))
    s = bitcast((n << layout.fraction) + layout.bits(c), x.dtype)  # c 2^n
    return c / fma(p, s, s + c)


# (sinh(x) / x - 1) / x^2 in x^2 for |x| <= 1.
SINH = {
    "float32": (0.1666666716337204, 0.008333311416208744, 0.00019842635083477944, 2.7839248559757834e-06),
    "float64": (
        0.16666666666666669,
        0.008333333333333139,
        0.0001984126984143768,
        2.7557319155337176e-06,
        2.5052123398492514e-08,
        1.6057240347064637e-10,
        7.759312003509636e-13,
    ),
}


def _half_exp(a: Scalar) -> Scalar:
    """e^a / 2 for a >= 0, finite wherever it is."""
    return _exp_of(_at_most(a, {"float32": 90.0, "float64": 711.0}[a.dtype]), False, more=-1)


def _sinh(x: Scalar) -> Scalar:
    """x + x^3 P(x^2) below 1, else h - 1 / (4 h) for h = e^|x| / 2. At most 1.7 ulp."""
    a = abs(x)
    z = x * x
    h = _half_exp(a)
    near = fma(a * z, _polynomial(z, SINH[x.dtype]), a)
    return call("copysign", where(a < 1, near, h - 0.25 / h), x)


def _cosh(x: Scalar) -> Scalar:
    """h + 1 / (4 h) for h = e^|x| / 2. At most 1.5 ulp."""
    h = _half_exp(abs(x))
    return h + 0.25 / h


# Logarithms.

# (log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
LOG32 = (
    0.3333333134651184,
    -0.250008225440979,
    0.20001265406608582,
    -0.16623365879058838,
    0.14200922846794128,
    -0.13159193098545074,
    0.1276688277721405,
    -0.07643726468086243,
)
# (log((1 + s) / (1 - s)) / s - 2) / s^2 in s^2 for |s| <= 0.1716.
LOG64 = (
    0.6666666666666735,
    0.3999999999941314,
    0.28571428742763655,
    0.2222219853140502,
    0.18183566654023928,
    0.15313987184261027,
    0.14796620195647073,
)


def _split(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """f, e as a number and as an integer, with x = (1 + f) 2^e and sqrt(1/2) <= 1 + f < sqrt(2); x normal, positive."""
    layout = LAYOUTS[x.dtype]
    bits = _bits(x)
    e = (bits - layout.bits(math.sqrt(0.5))) >> layout.fraction
    m = bitcast(bits - (e << layout.fraction), x.dtype)
    # Not a cast: processors without AVX-512 have none from int64.
    number = bitcast(e + layout.bits(layout.magic), x.dtype) - layout.magic
    return m - 1, number, e


def _split_any(x: Scalar) -> tuple[Scalar, Scalar]:
    """f and e of _split; x may be subnormal."""
    layout = LAYOUTS[x.dtype]
    small = x < 2.0 ** (1 - layout.bias)
    f, e, _ = _split(where(small, x * 2.0 ** (layout.fraction + 1), x))
    return f, where(small, e - (layout.fraction + 1), e)


def _log1p_rest(f: Scalar) -> Scalar:
    """log(1 + f) - f for f of _split, with an error that is small beside f's ulp.

    float64: s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)); source: FreeBSD's e_log.c.
    """
    if f.dtype == "float32":
        return f * f * fma(f, _polynomial(f, LOG32), -0.5)
    s = f / (f + 2)
    z = s * s
    h = 0.5 * f * f
    return fma(s, fma(z, _polynomial(z, LOG64), h), -h)


def _log_special(x: Scalar, y: Scalar) -> Scalar:
    """y for finite x > 0; log's values at 0, infinity, NaN and below 0."""
    return where(x > 0, where(x < math.inf, y, x), _either(x == 0, -math.inf, math.nan, x.dtype))


def _log_from(f: Scalar, e: Scalar, rest: Scalar) -> Scalar:
    high, low = LN2[f.dtype]
    return fma(e, high, f + fma(e, low, rest))


def _log(x: Scalar) -> Scalar:
    """e log(2) + log(1 + f) for x = (1 + f) 2^e; a polynomial; float64: and a division. At most 1 ulp."""
    f, e = _split_any(x)
    return _log_special(x, _log_from(f, e, _log1p_rest(f)))


def _log2(x: Scalar) -> Scalar:
    """e + log(1 + f) / log(2), the quotient's constant in two parts. At most 1.5 ulp."""
    f, e = _split_any(x)
    high, low = LOG2_E[x.dtype]
    y = fma(f, high, fma(_log1p_rest(f), high, f * low))
    return _log_special(x, e + y)


def _log10(x: Scalar) -> Scalar:
    """e log10(2) + log(1 + f) / log(10), both constants in two parts. At most 1.5 ulp."""
    f, e = _split_any(x)
    (high, low), (two_high, two_low) = LOG10_E[x.dtype], LOG10_2[x.dtype]
    rest = fma(_log1p_rest(f), high, fma(f, low, e * two_low))
    return _log_special(x, fma(e, two_high, fma(f, high, rest)))


def _log1p_of(x: Scalar) -> Scalar:
    """log(1 + x) for finite x > -1, perhaps without the sign of a 0.

    u = 1 + x is rounded; what that leaves out joins f, in u's scale (Knuth's TwoSum).
    """
    layout = LAYOUTS[x.dtype]
    u = 1 + x
    x_part = u - 1
    left = (1 - (u - x_part)) + (x - x_part)
    f, e, n = _split(u)
    scale = bitcast((layout.bias - n) << layout.fraction, x.dtype)
    f = fma(left, where(n > layout.bias, 0, scale), f)
    return _log_from(f, e, _log1p_rest(f))


def _log1p(x: Scalar) -> Scalar:
    """log(1 + x), where 1 + x is kept in two parts. At most 1.6 ulp."""
    y = call("copysign", _log1p_of(x), x)
    return where(x > -1, where(x < math.inf, y, x), _either(x == -1, -math.inf, math.nan, x.dtype))


def _in_float64(function: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """float32 through float64, for functions too rare to have their own: at most 0.51 ulp, at twice the work."""

    def through(*args: Scalar) -> Scalar:
        return cast(function(*(cast(arg, "float64") for arg in args)), args[0].dtype)

    return through


def _asinh(x: Scalar) -> Scalar:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))) for a = |x|; log(a) + log(2) from 2^28 on. float64: 2 ulp."""
    a = abs(x)
    large = a > 2.0**28
    t = a + a * a / (1 + call("sqrt", fma(a, a, 1)))
    y = _log1p_of(where(large, a - 1, t)) + _either(large, math.log(2), 0, x.dtype)
    return call("copysign", where(a < math.inf, y, a), x)


def _acosh(x: Scalar) -> Scalar:
    """log1p(d + sqrt(d (d + 2))) for d = x - 1; log(x) + log(2) from 2^28 on. float64: 2.5 ulp."""
    large = x > 2.0**28
    d = x - 1
    y = _log1p_of(where(large, d, d + call("sqrt", d * (d + 2)))) + _either(large, math.log(2), 0, x.dtype)
    return where(x >= 1, where(x < math.inf, y, x), math.nan)


def _atanh(x: Scalar) -> Scalar:
    """log1p(2a / (1 - a)) / 2 for a = |x|. float64: at most 2.5 ulp."""
    a = abs(x)
    y = 0.5 * _log1p_of((a + a) / (1 - a))
    y = where(a < 2.0**-30, a, y)  # half of a subnormal number would lose its last bit
    return call("copysign", where(a < 1, y, _either(a == 1, math.inf, math.nan, x.dtype)), x)


# Powers.

# log2(1 + f) / f for f of _split, to 2^-40; (2^r - 1) / r to 2^-34.
LOG2_SHORT = (
    1.442695040889433,
    -0.7213475204277785,
    0.48089834652324265,
    -0.3606737651165197,
    0.28853907839471093,
    -0.2404487929896808,
    0.20609493436312679,
    -0.18034793961768458,
    0.16043105596258492,
    -0.14417247643931838,
    0.12911301545119352,
    -0.11919996728784524,
    0.1259379889900642,
    -0.12504316714985209,
    0.06497639644531378,
)
EXP2_SHORT = (
    0.6931471805413434,
    0.24022651080424495,
    0.055504109638160014,
    0.009618036172560646,
    0.001333342968317463,
    0.00015467364599067702,
    1.5315216179536276e-05,
)
# (log((1 + s) / (1 - s)) / s - 2 - 2 s^2 / 3) / s^4 in s^2 for |s| <= 0.1716.
LOG_LONG = (
    0.4000000000000061,
    0.28571428570902824,
    0.22222222375708114,
    0.18181796960204194,
    0.15386181500806492,
    0.13270078922132447,
    0.1307491200008607,
)


def _pow(x: Scalar, y: Scalar) -> Scalar:
    """2^(y log2|x|), then the sign and the special cases of C99, F.9.4.4.

    float32: in float64, at most 0.6 ulp. float64: the logarithm and the product in two parts, at most 1.7 ulp.
    """
    a = abs(x)
    size = _pow_float32(a, y) if x.dtype == "float32" else _pow_float64(a, y)
    whole = call("rint", y) == y
    half = 0.5 * y
    odd = whole & (call("rint", half) != half)
    size = where(odd, call("copysign", size, x), size)
    size = where((x < 0) & (a < math.inf) & ~whole, math.nan, size)
    unit = (a == 1) & (abs(y) == math.inf)
    return where((y == 0) | (x == 1) | unit, 1, size)


def _pow_float32(a: Scalar, y: Scalar) -> Scalar:
    wide = cast(a, "float64")
    f, e, _ = _split(wide)
    log2 = fma(f, _polynomial(f, LOG2_SHORT), e)
    t = cast(y, "float64") * where(a == 0, -math.inf, where(a < math.inf, log2, wide))
    t = _at_most(_at_least(t, -200.0), 200.0)
    k, shifted = _nearest(t, 1.0)
    r = t - k
    scale = bitcast((shifted << 52) + LAYOUTS["float64"].bits(1.0), "float64")
    return cast(fma(r, _polynomial(r, EXP2_SHORT), 1) * scale, "float32")


def _pow_float64(a: Scalar, y: Scalar) -> Scalar:
    f, e = _split_any(a)
    # log(1 + f) = 2s + s (2/3 z + z^2 W(z)), z = s^2, s = f / d, each as the sum of two numbers.
    d = f + 2
    d_low = f - (d - 2)
    inverse = 1 / d
    s = f * inverse
    s_low = fma(-s, d_low, fma(-s, d, f)) * inverse
    z = s * s
    z_low = fma(s, s, -z) + 2 * s * s_low
    third, third_low = 0.6666666666666666, 3.700743415417188e-17
    p = z * third
    p_low = fma(z, third, -p) + fma(z_low, third, z * third_low)
    rest = z * z * _polynomial(z, LOG_LONG)
    u = p + rest
    u_low = ((p - u) + rest) + p_low
    v = s * u
    v_low = fma(s, u, -v) + fma(s, u_low, s_low * u)
    two_s = s + s
    log = two_s + v
    log_low = ((two_s - log) + v) + (v_low + 2 * s_low)
    # Times log2(e), plus e.
    high, low = LOG2_E["float64"]
    q = log * high
    q_low = fma(log, high, -q) + fma(log, low, log_low * high)
    log2 = e + q
    log2_low = ((e - log2) + q) + q_low
    log2 = where(a == 0, -math.inf, where(a < math.inf, log2, a))
    t = y * log2
    t_low = fma(y, log2, -t) + y * log2_low
    t_low = where(abs(t) < 1080, t_low, 0)
    t = _at_most(_at_least(t, -1076.0), 1025.0)
    k, shifted = _nearest(t, 1.0)
    r = (t - k) + t_low
    n = shifted - LAYOUTS["float64"].bits(LAYOUTS["float64"].magic)
    first, second = _factors(n, t < 0, "float64")
    return fma(r * first, _polynomial(r, EXP2["float64"]), first) * second


def _rsqrt(x: Scalar) -> Scalar:
    """1 / sqrt(x), rounded twice: at most 1.5 ulp. rsqrt(-0) is -inf."""
    return 1 / call("sqrt", x)


def _cbrt(x: Scalar) -> Scalar:
    """x y^2 for y = |x|^(-1/3): the exponent divided by -3, Householder's steps, then one of Newton's for the cube.

    At most 1 ulp.
    """
    layout = LAYOUTS[x.dtype]
    up = layout.fraction // 3 * 3 + 3  # 24, 54: of this many powers of two the cube root is one, too
    a = abs(x)
    small = a < 2.0 ** (1 - layout.bias)
    a = where(small, a * 2.0**up, a)
    if x.dtype == "float32":
        guess = cast(fma(cast(_bits(a), "float32"), -1 / 3, 1419967232.0), "int32")
        y = bitcast(guess, "float32")
    else:
        upper = cast(cast(_bits(a) >> 32, "int32"), "float64")
        guess = cast(fma(upper, -1 / 3, 1430224896.0), "int32")
        y = bitcast(cast(guess, "int64") << 32, "float64")
    for _ in range(2 if x.dtype == "float32" else 3):
        h = fma(-(a * y * y), y, 1)
        y = fma(y * h, fma(h, 2 / 9, 1 / 3), y)
    y2 = y * y
    c = a * y2
    c = fma(fma(-(c * c), c, a), y2 * (1 / 3), c)
    c = where(small, c * 2.0 ** -(up // 3), c)
    c = where((x == 0) | ~(abs(x) < math.inf), abs(x), c)
    return call("copysign", c, x)


# The error function.

# erf(x) / x - 1 in x^2 for |x| <= 1.
ERF = {
    "float32": (
        0.12837916612625122,
        -0.3761262893676758,
        0.11283618211746216,
        -0.02685512602329254,
        0.005190733820199966,
        -0.0008030761382542551,
        7.920368807390332e-05,
    ),
    "float64": (
        0.12837916709551256,
        -0.3761263890318355,
        0.11283791670945248,
        -0.026866170643275494,
        0.005223977607418162,
        -0.0008548325989466099,
        0.00012055295314159326,
        -1.4924744550515005e-05,
        1.6447516378601043e-06,
        -1.6209166580376314e-07,
        1.3722938289082693e-08,
        -7.801122020614332e-10,
    ),
}
# erfc(t + 2.45) for |t| <= 1.45, to 2^-24.7.
ERFC_MIDDLE = (
    0.0005305522354319692,
    -0.002789898309856653,
    0.0068367659114301205,
    -0.010236046276986599,
    0.010249161161482334,
    -0.006976415868848562,
    0.002994755282998085,
    -0.0004297696868889034,
    -0.0004185163415968418,
    0.0003066850476898253,
    -4.88126534037292e-05,
    -2.6510990210226737e-05,
    9.126117220148444e-06,
)
# (1 + 2a) e^(a^2) erfc(a) in t = (a - 4) / (a + 4) for 0 <= a <= 27.3.
ERFCX = (
    1.2329951186255526,
    -0.13962111684056322,
    0.015379652102607503,
    0.06809705425476788,
    -0.10103906603562633,
    0.09373283499605808,
    -0.06633036582705433,
    0.037167515568184775,
    -0.016197733889785577,
    0.0050319697655428364,
    -0.0007577744027690598,
    -0.00019925590545202755,
    0.00015062626969563023,
    -2.4400594982141643e-05,
    -1.1234060560441566e-05,
    5.709632872987544e-06,
    3.135924170483824e-07,
    -8.205489837500318e-07,
    5.5267578207539947e-08,
    1.0168830774383878e-07,
    -8.020090964598623e-09,
    -8.393788981537737e-09,
)


def _erf(x: Scalar) -> Scalar:
    """x P(x^2) below 1, else 1 - erfc(|x|), which is a polynomial, too, in float32. At most 1.6 ulp."""
    a = abs(x)
    z = x * x
    near = fma(a, _polynomial(z, ERF[x.dtype]), a)
    if x.dtype == "float32":
        far = 1 - _polynomial(_at_most(a, 3.9) - 2.45, ERFC_MIDDLE)
    else:
        far = 1 - _erfc_positive(_at_most(a, 7.0))
    return call("copysign", where(a < 1, near, far), x)


def _erfc_positive(a: Scalar) -> Scalar:
    """e^(-a^2) P(t) / (1 + 2a) for 0 <= a <= 27.3, a^2 in two parts. float64.

    Source: Shepherd, Laframboise 1981, Chebyshev approximation of (1+2x)exp(x^2)erfc x, Math. Comp. 36(153).
    """
    h = a * a
    low = fma(a, a, -h)
    e = _exp_of(_at_least(-h, EXP_LEAST["float64"]), True)
    p = _polynomial((a - 4) / (a + 4), ERFCX) / fma(a, 2, 1)
    return e * fma(-low, p, p)


def _erfc(x: Scalar) -> Scalar:
    """See _erfc_positive; below 0 it is 2 - erfc(-x). float64: at most 4 ulp, next to 0."""
    y = _erfc_positive(_at_most(abs(x), 27.3))
    return where(x < 0, 2 - y, y)


# Trigonometric functions.

# (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2 for |r| <= pi/4.
SIN = {
    "float32": (-0.16666655242443085, 0.008332189172506332, -0.0001951820304384455),
    "float64": (
        -0.16666666666666632,
        0.008333333333322233,
        -0.00019841269829656873,
        2.7557313637407647e-06,
        -2.5050749267501518e-08,
        1.589626581014724e-10,
    ),
}
COS = {
    "float32": (0.04166664555668831, -0.00138873013202101, 2.4430670237052254e-05),
    "float64": (
        0.041666666666666595,
        -0.0013888888888873884,
        2.480158728932509e-05,
        -2.755731430485879e-07,
        2.087571655699176e-09,
        -1.1359287349538683e-11,
    ),
}


def _quadrant(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """r, what its rounding left out, and q: x = q pi/2 + r, |r| <= pi/4; q's upper bits are others.

    float32: the reduction is float64's, pi/2 in two parts (Cody and Waite): two operations more than four parts in
    float32 would need, but good for |x| < 2^45 instead of 2^20. float64: three parts, for |x| < 2^30. Beyond, r loses
    its bits, and is only kept within bounds.
    """
    first, second, third = HALF_PI
    wide = cast(x, "float64")
    k, shifted = _nearest(wide, 2 / math.pi)
    bound = 0.79
    if x.dtype == "float32":
        r = cast(fma(-k, second, fma(-k, first, wide)), "float32")
        r = _at_most(_at_least(r, -bound), bound)
        return r, constant(0.0, "float32"), cast(shifted, "int32")
    part = fma(-k, first, x)
    w = k * second
    r = part - w
    low = ((part - r) - w) - fma(k, third, fma(k, second, -w))
    within = abs(r) <= bound
    r = _at_most(_at_least(r, -bound), bound)
    return r, where(within, low, 0), shifted


def _sin_cos_near(r: Scalar, low: Scalar) -> tuple[Scalar, Scalar]:
    """sin and cos of r + low, |r| <= pi/4."""
    z = r * r
    sin_tail, cos_tail = _polynomial(z, SIN[r.dtype]), _polynomial(z, COS[r.dtype])
    if r.dtype == "float32":
        return fma(r * z, sin_tail, r), fma(z * z, cos_tail, fma(z, -0.5, 1))
    h = 0.5 * z
    sin = r + fma(r * z, sin_tail, fma(-h, low, low))
    w = 1 - h
    cos = w + (((1 - w) - h) + fma(z * z, cos_tail, -(r * low)))
    return sin, cos


def _sine_at(x: Scalar, turned: int) -> Scalar:
    """sin(x + turned pi/2)."""
    layout = LAYOUTS[x.dtype]
    r, low, q = _quadrant(x)
    q = q + turned if turned else q
    sin, cos = _sin_cos_near(r, low)
    y = where((q & 1) == 1, cos, sin)
    sign = (q & 2) << (30 if layout.fraction == 23 else 62)
    return bitcast(_bits(y) ^ sign, x.dtype)


def _sin(x: Scalar) -> Scalar:
    """sin(r) or cos(r) by polynomials, x = q pi/2 + r. At most 1.6 ulp for |x| < 2^45 (float64: 0.8, 2^30)."""
    return where(x == 0, x, _sine_at(x, 0))


def _cos(x: Scalar) -> Scalar:
    """sin(x + pi/2); see sin."""
    return _sine_at(x, 1)


def _tan(x: Scalar) -> Scalar:
    """sin(r) / cos(r) or -cos(r) / sin(r). float64: at most 2.5 ulp, x as for sin."""
    r, low, q = _quadrant(x)
    turned = (q & 1) == 1
    sin, cos = _sin_cos_near(r, low)
    y = where(turned, -cos, sin) / where(turned, sin, cos)
    return where(x == 0, x, y)


# (atan(z) / z - 1) / z^2 in z^2, for z <= 1 in float32, z <= tan(pi/8) in float64.
ATAN = {
    "float32": (
        -0.3333316743373871,
        0.1999414712190628,
        -0.14214284718036652,
        0.10679223388433456,
        -0.07581159472465515,
        0.0435602143406868,
        -0.016585204750299454,
        0.0029755798168480396,
    ),
    "float64": (
        -0.333333333333332,
        0.1999999999995353,
        -0.14285714280189885,
        0.11111110783079609,
        -0.09090897745218211,
        0.07692059961032706,
        -0.06663100775172942,
        0.05847862485741937,
        -0.050391699468350905,
        0.03806078097723789,
        -0.017902683096029687,
    ),
}
# (asin(s) / s - 1) / s^2 in s^2 for s <= 1/2.
ASIN = {
    "float32": (
        0.16666753590106964,
        0.07495249062776566,
        0.045476652681827545,
        0.024148205295205116,
        0.04221963509917259,
    ),
    "float64": (
        0.16666666666665375,
        0.07500000000344799,
        0.04464285682197076,
        0.030381959395828644,
        0.022371751928158795,
        0.017359795792563477,
        0.013884348948504842,
        0.012174952372861075,
        0.006503476095747889,
        0.019594462152428077,
        -0.016326880060705908,
        0.03198181456451724,
    ),
}


def _atan_ratio(y: Scalar, x: Scalar) -> Scalar:
    """atan(y / x) for 0 <= y <= x, y finite, x > 0; with one division.

    float64 takes pi/4 off above tan(pi/8): atan(z) = pi/4 + atan((z - 1) / (z + 1)).
    """
    if x.dtype == "float32":
        z = y / x
        return fma(z * z * z, _polynomial(z * z, ATAN["float32"]), z)
    upper = y > x * math.tan(math.pi / 8)
    z = where(upper, y - x, y) / where(upper, y + x, x)
    square = z * z
    tail = z * square * _polynomial(square, ATAN["float64"])
    quarter, quarter_low = PI["float64"][0] / 4, PI["float64"][1] / 4
    return _either(upper, quarter, 0, x.dtype) + (z + (tail + _either(upper, quarter_low, 0, x.dtype)))


def _atan(x: Scalar) -> Scalar:
    """atan of min(|x|, 1) / max(|x|, 1) by a polynomial; above 1 pi/2 less that. At most 1.9 ulp."""
    high, low = (part / 2 for part in PI[x.dtype])
    a = abs(x)
    beyond = a > 1
    y = _atan_ratio(where(beyond, 1, a), where(beyond, a, 1))
    return call("copysign", where(beyond, high - (y - low), y), x)


def _atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y), from -pi to pi: atan of the smaller over the larger, turned. At most 2 ulp.

    Zeros and infinities as in C99, F.9.1.4: atan2(+-0, -0) is +-pi, atan2(inf, inf) pi/4.
    """
    layout = LAYOUTS[x.dtype]
    high, low = PI[x.dtype]
    a, b = abs(x), abs(y)
    steep = b > a
    big, small = where(steep, b, a), where(steep, a, b)
    small = where((big == math.inf) & (small == math.inf), 1, small)
    both = (a == b) & (a == math.inf)
    big = where(both, 1, where(big == 0, 1, big))
    huge = big > 2.0 ** (layout.bias - 4)  # whose sum would overflow
    if x.dtype == "float64":
        big, small = where(huge, big * 0.0625, big), where(huge, small * 0.0625, small)
    angle = _atan_ratio(small, big)
    angle = where(steep, high / 2 - (angle - low / 2), angle)
    left = _bits(x) < 0
    angle = where(left, high - (angle - low), angle)
    nan = ~((x == x) & (y == y))
    return where(nan, math.nan, call("copysign", angle, y))


def _asin_parts(x: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """s, tail, z, upper: asin(s) = s + tail. upper: |x| > 1/2, and s = sqrt(z), z = (1 - |x|) / 2; else s = |x|.

    NaN where |x| > 1.
    """
    a = abs(x)
    upper = a > 0.5
    z = where(upper, fma(a, -0.5, 0.5), a * a)
    s = where(upper, call("sqrt", z), a)
    return s, s * z * _polynomial(z, ASIN[x.dtype]), z, upper


def _asin(x: Scalar) -> Scalar:
    """A polynomial below 1/2, else pi/2 - 2 asin(sqrt((1 - |x|) / 2)). At most 1.6 ulp."""
    s, tail, z, upper = _asin_parts(x)
    high, low = (part / 2 for part in PI[x.dtype])
    rest = where(s > 0, fma(-s, s, z) / s, 0)  # twice what s lacks
    y = (high - 2 * s) - (fma(tail, 2, rest) - low)
    return call("copysign", where(upper, y, s + tail), x)


def _acos(x: Scalar) -> Scalar:
    """pi/2 - asin(x) below 1/2, else 2 asin(sqrt((1 - |x|) / 2)), or pi less that. At most 1.5 ulp."""
    s, tail, _, upper = _asin_parts(x)
    high, low = PI[x.dtype]
    p = s + tail
    p = where(upper, 2 * p, call("copysign", p, x))
    negative = x < 0
    base = where(upper, _either(negative, high, 0, x.dtype), high / 2)
    base_low = where(upper, _either(negative, low, 0, x.dtype), low / 2)
    return base - (where(upper & ~negative, -p, p) - base_low)


def _rare(function: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """The function itself for float64, through float64 for float32."""
    through = _in_float64(function)
    return lambda *args: (through if args[0].dtype == "float32" else function)(*args)


_MEANINGS: dict[str, Callable[..., Scalar]] = {
    "exp": _exp,
    "expm1": _expm1,
    "exp2": _exp2,
    "log": _log,
    "log1p": _log1p,
    "log2": _log2,
    "log10": _log10,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "erfc": _rare(_erfc),
    "sin": _sin,
    "cos": _cos,
    "tan": _rare(_tan),
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "atan2": _atan2,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _rare(_asinh),
    "acosh": _rare(_acosh),
    "atanh": _rare(_atanh),
    "pow": _pow,
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
}


# Derivatives.


def derive(root: Scalar, wrt: Scalar) -> Scalar:
    """The derivative of an expression with respect to one of its leaves, of the expression's type.

    Where there is none it is as PyTorch has it: abs has 0 at 0; minimum and maximum share equally between equal
    operands; copysign has 0 where its first operand is 0; sqrt has infinity at 0; pow has 0 for y where x is 0 and
    y >= 0, and for x where y is 0. Comparisons, rounding and integers have 0; where chooses between the derivatives of
    its branches. Raises TypeError where wrt's bits are taken, or it is not a leaf of a floating-point type.

    >>> from weft.expr.scalar import load
    >>> x = load(0, "float32")
    >>> derive(x * x, x), derive(call("tanh", x), x)
    (add(x0, x0), sub(1.0, mul(tanh(x0), tanh(x0))))
    """
    if wrt.op not in LEAVES or wrt.dtype not in FLOATS:
        raise TypeError(f"derive: expected a leaf of a floating-point type, got {wrt!r} of {wrt.dtype}")
    known: dict[int, Scalar | None] = {}  # None: exactly 0, whatever the values are
    for node in walk(root):
        slopes = [known[id(arg)] for arg in node.args]
        if node is wrt:
            known[id(node)] = constant(1, node.dtype)
        elif node.op == "bitcast" and slopes[0] is not None:
            raise TypeError(f"derive: {node!r} takes the bits of {wrt!r}")
        elif node.dtype not in FLOATS or all(slope is None for slope in slopes):
            known[id(node)] = None
        else:
            known[id(node)] = _slope(node, slopes)
    found = known[id(root)]
    return constant(0, root.dtype) if found is None else found


def _slope(node: Scalar, slopes: list[Scalar | None]) -> Scalar | None:
    def zero_or(slope: Scalar | None) -> Scalar:
        return constant(0, node.dtype) if slope is None else slope

    if node.op == "cast":
        return None if slopes[0] is None else cast(slopes[0], node.dtype)
    if node.op == "where":
        a, b = slopes[1:]
        return None if a is None and b is None else where(node.args[0], zero_or(a), zero_or(b))
    rules = _DERIVATIVES.get(node.op)
    if rules is None:
        raise TypeError(f"derive: no derivative of {node.op}")
    total: Scalar | None = None
    for slope, rule in zip(slopes, rules, strict=True):
        if slope is None or rule is None:
            continue
        total = _plus(total, _times(slope, rule(node, *node.args)))
    return total


def _is(node: Scalar, value: float) -> bool:
    return node.op == "constant" and node.value == value


def _times(slope: Scalar, factor: Number) -> Scalar:
    """slope * factor; 1 and -1 vanish, and 1 / x divides, which is rounded once less."""
    if not isinstance(factor, Scalar):
        factor = constant(factor, slope.dtype)
    if factor.op == "neg":
        return -_times(slope, factor.args[0])
    if factor.op == "div" and _is(factor.args[0], 1):
        return slope / factor.args[1]
    for one, other in ((slope, factor), (factor, slope)):
        if _is(one, 1):
            return other
        if _is(one, -1):
            return -other
    return slope * factor


def _plus(a: Scalar | None, b: Scalar) -> Scalar:
    if a is None:
        return b
    return a - b.args[0] if b.op == "neg" else a + b


def _share(smaller: bool) -> list[Callable[..., Scalar]]:
    """minimum and maximum: 1 to the operand taken, 1/2 to each of equal ones, NaN's to both as PyTorch."""

    def rule(mine: Scalar, other: Scalar) -> Scalar:
        lost = mine > other if smaller else mine < other
        return where(mine == other, constant(0.5, mine.dtype), where(lost, constant(0, mine.dtype), 1))

    return [lambda y, a, b: rule(a, b), lambda y, a, b: rule(b, a)]


def _sign(x: Scalar) -> Scalar:
    """1, -1, 0 or NaN."""
    return where(x > 0, constant(1, x.dtype), where(x < 0, constant(-1, x.dtype), x))


def _pow_by_base(z: Scalar, x: Scalar, y: Scalar) -> Scalar:
    if y.op != "constant":
        return where(y == 0, constant(0, y.dtype), y * call("pow", x, y - 1))
    match y.value:
        case 0 | 1:
            return y
        case 2:
            return x * 2
    return y * call("pow", x, y.value - 1)


def _pow_by_exponent(z: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return where((x == 0) & (y >= 0), constant(0, y.dtype), z * call("log", x))


# For each operand: what its slope is multiplied with, from the result and the operands; None: it has no part in it.
_Rule = Callable[..., Any] | None
_DERIVATIVES: dict[str, list[_Rule]] = {
    "neg": [lambda y, x: -1],
    "abs": [lambda y, x: _sign(x)],
    "sqrt": [lambda y, x: 0.5 / y],
    "rint": [None],
    "floor": [None],
    "ceil": [None],
    "trunc": [None],
    "add": [lambda y, a, b: 1, lambda y, a, b: 1],
    "sub": [lambda y, a, b: 1, lambda y, a, b: -1],
    "mul": [lambda y, a, b: b, lambda y, a, b: a],
    "div": [lambda y, a, b: 1 / b, lambda y, a, b: -(y / b)],
    "rem": [lambda y, a, b: 1, lambda y, a, b: -call("trunc", a / b)],
    "minimum": [*_share(True)],
    "maximum": [*_share(False)],
    "copysign": [lambda y, a, b: _sign(a) * call("copysign", constant(1, a.dtype), y), None],
    "fma": [lambda y, a, b, c: b, lambda y, a, b, c: a, lambda y, a, b, c: 1],
    "exp": [lambda y, x: y],
    "expm1": [lambda y, x: y + 1],
    "exp2": [lambda y, x: y * math.log(2)],
    "log": [lambda y, x: 1 / x],
    "log1p": [lambda y, x: 1 / (1 + x)],
    "log2": [lambda y, x: 1 / (x * math.log(2))],
    "log10": [lambda y, x: 1 / (x * math.log(10))],
    "tanh": [lambda y, x: 1 - y * y],
    "sigmoid": [lambda y, x: y * (1 - y)],
    "erf": [lambda y, x: call("exp", -(x * x)) * (2 / math.sqrt(math.pi))],
    "erfc": [lambda y, x: call("exp", -(x * x)) * (-2 / math.sqrt(math.pi))],
    "sin": [lambda y, x: call("cos", x)],
    "cos": [lambda y, x: -call("sin", x)],
    "tan": [lambda y, x: fma(y, y, 1)],
    "asin": [lambda y, x: call("rsqrt", (1 - x) * (1 + x))],
    "acos": [lambda y, x: -call("rsqrt", (1 - x) * (1 + x))],
    "atan": [lambda y, x: 1 / fma(x, x, 1)],
    "atan2": [lambda z, y, x: x / fma(x, x, y * y), lambda z, y, x: -(y / fma(x, x, y * y))],
    "sinh": [lambda y, x: call("cosh", x)],
    "cosh": [lambda y, x: call("sinh", x)],
    "asinh": [lambda y, x: call("rsqrt", fma(x, x, 1))],
    "acosh": [lambda y, x: call("rsqrt", (x - 1) * (x + 1))],
    "atanh": [lambda y, x: 1 / ((1 - x) * (1 + x))],
    "pow": [_pow_by_base, _pow_by_exponent],
    "rsqrt": [lambda y, x: y / x * -0.5],
    "cbrt": [lambda y, x: y / x * (1 / 3)],
}
