"""Powers and roots: pow, rsqrt, cbrt."""

from __future__ import annotations

import math

from weft.expr.functions.exponential import EXP2
from weft.expr.functions.logarithm import split, split_any
from weft.expr.functions.pieces import (
    LAYOUTS,
    LOG2_E,
    at_least,
    at_most,
    bits_of,
    factors,
    nearest,
    polynomial,
)
from weft.expr.scalar import Scalar, bitcast, call, cast, fma, where

# log2(1 + f) / f for f of split, to 2^-40; (2^r - 1) / r to 2^-34.
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


def pow(x: Scalar, y: Scalar) -> Scalar:
    """2^(y log2|x|), then the sign and the special cases of C99, F.9.4.4.

    float32: in float64, at most 0.6 ulp. float64: the logarithm and the product in two parts, at most 1.7 ulp.
    """
    a = abs(x)
    size = pow_float32(a, y) if x.dtype == "float32" else pow_float64(a, y)
    whole = call("rint", y) == y
    half = 0.5 * y
    odd = whole & (call("rint", half) != half)
    size = where(odd, call("copysign", size, x), size)
    size = where((x < 0) & (a < math.inf) & ~whole, math.nan, size)
    unit = (a == 1) & (abs(y) == math.inf)
    return where((y == 0) | (x == 1) | unit, 1, size)


def pow_float32(a: Scalar, y: Scalar) -> Scalar:
    wide = cast(a, "float64")
    f, e, _ = split(wide)
    log2 = fma(f, polynomial(f, LOG2_SHORT), e)
    t = cast(y, "float64") * where(a == 0, -math.inf, where(a < math.inf, log2, wide))
    t = at_most(at_least(t, -200.0), 200.0)
    k, shifted = nearest(t, 1.0)
    r = t - k
    scale = bitcast((shifted << 52) + LAYOUTS["float64"].bits(1.0), "float64")
    return cast(fma(r, polynomial(r, EXP2_SHORT), 1) * scale, "float32")


def pow_float64(a: Scalar, y: Scalar) -> Scalar:
    f, e = split_any(a)
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
    rest = z * z * polynomial(z, LOG_LONG)
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
    t = at_most(at_least(t, -1076.0), 1025.0)
    k, shifted = nearest(t, 1.0)
    r = (t - k) + t_low
    n = shifted - LAYOUTS["float64"].bits(LAYOUTS["float64"].magic)
    first, second = factors(n, t < 0, "float64")
    return fma(r * first, polynomial(r, EXP2["float64"]), first) * second


def rsqrt(x: Scalar) -> Scalar:
    """1 / sqrt(x), rounded twice: at most 1.5 ulp. rsqrt(-0) is -inf."""
    return 1 / call("sqrt", x)


def cbrt(x: Scalar) -> Scalar:
    """x y^2 for y = |x|^(-1/3): the exponent divided by -3, Householder's steps, then one of Newton's for the cube.

    At most 1 ulp.
    """
    layout = LAYOUTS[x.dtype]
    up = layout.fraction // 3 * 3 + 3  # 24, 54: of this many powers of two the cube root is one, too
    a = abs(x)
    small = a < 2.0 ** (1 - layout.bias)
    a = where(small, a * 2.0**up, a)
    if x.dtype == "float32":
        guess = cast(fma(cast(bits_of(a), "float32"), -1 / 3, 1419967232.0), "int32")
        y = bitcast(guess, "float32")
    else:
        upper = cast(cast(bits_of(a) >> 32, "int32"), "float64")
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
