"""Logarithms: log, log1p, log2, log10, asinh, acosh, atanh."""

from __future__ import annotations

import math

from weft.expr.functions.pieces import LAYOUTS, LN2, LOG2_E, LOG10_2, LOG10_E, bits_of, either, polynomial
from weft.expr.scalar import Scalar, bitcast, call, fma, where

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
# From here on 1 is nothing beside x^2.
FAR = {"float32": 2.0**13, "float64": 2.0**28}


def split(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """f, e as a number and as an integer, with x = (1 + f) 2^e and sqrt(1/2) <= 1 + f < sqrt(2); x normal, positive."""
    layout = LAYOUTS[x.dtype]
    bits = bits_of(x)
    e = (bits - layout.bits(math.sqrt(0.5))) >> layout.fraction
    m = bitcast(bits - (e << layout.fraction), x.dtype)
    # Not a cast: processors without AVX-512 have none from int64.
    number = bitcast(e + layout.bits(layout.magic), x.dtype) - layout.magic
    return m - 1, number, e


def split_any(x: Scalar) -> tuple[Scalar, Scalar]:
    """f and e of split; x may be subnormal."""
    layout = LAYOUTS[x.dtype]
    small = x < 2.0 ** (1 - layout.bias)
    f, e, _ = split(where(small, x * 2.0 ** (layout.fraction + 1), x))
    return f, where(small, e - (layout.fraction + 1), e)


def log1p_rest(f: Scalar) -> Scalar:
    """log(1 + f) - f for f of split, with an error that is small beside f's ulp.

    float64: s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)); source: FreeBSD's e_log.c.
    """
    if f.dtype == "float32":
        return f * f * fma(f, polynomial(f, LOG32), -0.5)
    s = f / (f + 2)
    z = s * s
    h = 0.5 * f * f
    return fma(s, fma(z, polynomial(z, LOG64), h), -h)


def log_special(x: Scalar, y: Scalar) -> Scalar:
    """y for finite x > 0; log's values at 0, infinity, NaN and below 0."""
    return where(x > 0, where(x < math.inf, y, x), either(x == 0, -math.inf, math.nan, x.dtype))


def log_from(f: Scalar, e: Scalar, rest: Scalar) -> Scalar:
    high, low = LN2[f.dtype]
    return fma(e, high, f + fma(e, low, rest))


def log(x: Scalar) -> Scalar:
    """e log(2) + log(1 + f) for x = (1 + f) 2^e; a polynomial; float64: and a division. At most 1 ulp."""
    f, e = split_any(x)
    return log_special(x, log_from(f, e, log1p_rest(f)))


def log2(x: Scalar) -> Scalar:
    """e + log(1 + f) / log(2), the quotient's constant in two parts. At most 1.5 ulp."""
    f, e = split_any(x)
    high, low = LOG2_E[x.dtype]
    y = fma(f, high, fma(log1p_rest(f), high, f * low))
    return log_special(x, e + y)


def log10(x: Scalar) -> Scalar:
    """e log10(2) + log(1 + f) / log(10), both constants in two parts. At most 1.5 ulp."""
    f, e = split_any(x)
    (high, low), (two_high, two_low) = LOG10_E[x.dtype], LOG10_2[x.dtype]
    rest = fma(log1p_rest(f), high, fma(f, low, e * two_low))
    return log_special(x, fma(e, two_high, fma(f, high, rest)))


def log1p_of(x: Scalar) -> Scalar:
    """log(1 + x) for finite x > -1, perhaps without the sign of a 0.

    u = 1 + x is rounded; what that leaves out joins f, in u's scale (Knuth's TwoSum).
    """
    layout = LAYOUTS[x.dtype]
    u = 1 + x
    x_part = u - 1
    left = (1 - (u - x_part)) + (x - x_part)
    f, e, n = split(u)
    scale = bitcast((layout.bias - n) << layout.fraction, x.dtype)
    f = fma(left, where(n > layout.bias, 0, scale), f)
    return log_from(f, e, log1p_rest(f))


def log1p(x: Scalar) -> Scalar:
    """log(1 + x), where 1 + x is kept in two parts. At most 1.6 ulp."""
    y = call("copysign", log1p_of(x), x)
    return where(x > -1, where(x < math.inf, y, x), either(x == -1, -math.inf, math.nan, x.dtype))


def asinh(x: Scalar) -> Scalar:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))) for a = |x|; log(a) + log(2) far out. At most 2 ulp."""
    a = abs(x)
    large = a > FAR[x.dtype]
    t = a + a * a / (1 + call("sqrt", fma(a, a, 1)))
    y = log1p_of(where(large, a - 1, t)) + either(large, math.log(2), 0, x.dtype)
    return call("copysign", where(a < math.inf, y, a), x)


def acosh(x: Scalar) -> Scalar:
    """log1p(d + sqrt(d (d + 2))) for d = x - 1; log(x) + log(2) far out. At most 2.5 ulp."""
    large = x > FAR[x.dtype]
    d = x - 1
    y = log1p_of(where(large, d, d + call("sqrt", d * (d + 2)))) + either(large, math.log(2), 0, x.dtype)
    return where(x >= 1, where(x < math.inf, y, x), math.nan)


def atanh(x: Scalar) -> Scalar:
    """log1p(2a / (1 - a)) / 2 for a = |x|. At most 2.5 ulp."""
    a = abs(x)
    y = 0.5 * log1p_of((a + a) / (1 - a))
    y = where(a < 2.0**-30, a, y)  # half of a subnormal number would lose its last bit
    return call("copysign", where(a < 1, y, either(a == 1, math.inf, math.nan, x.dtype)), x)
