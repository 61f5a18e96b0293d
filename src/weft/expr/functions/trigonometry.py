"""Trigonometric functions and their inverses: sin, cos, tan, asin, acos, atan, atan2."""

from __future__ import annotations

import math

from weft.expr.functions.pieces import (
    HALF_PI,
    LAYOUTS,
    PI,
    at_least,
    at_most,
    bits_of,
    either,
    nearest,
    polynomial,
    quotient,
)
from weft.expr.scalar import Scalar, bitcast, call, cast, constant, fma, where

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


def quadrant(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """r, what its rounding left out, and q: x = q pi/2 + r, |r| <= pi/4; q's upper bits are others.

    float32: the reduction is float64's, pi/2 in two parts (Cody and Waite): two operations more than four parts in
    float32 would need, but good for |x| < 2^45 instead of 2^20. float64: three parts, for |x| < 2^30. Beyond, r loses
    its bits, and is only kept within bounds.
    """
    first, second, third = HALF_PI
    wide = cast(x, "float64")
    k, shifted = nearest(wide, 2 / math.pi)
    bound = 0.79
    if x.dtype == "float32":
        part = fma(-k, second, fma(-k, first, wide))
        r = at_most(at_least(cast(part, "float32"), -bound), bound)
        return r, cast(part - cast(r, "float64"), "float32"), cast(shifted, "int32")
    part = fma(-k, first, x)
    w = k * second
    r = part - w
    low = ((part - r) - w) - fma(k, third, fma(k, second, -w))
    within = abs(r) <= bound
    r = at_most(at_least(r, -bound), bound)
    return r, where(within, low, 0), shifted


def sin_cos_near(r: Scalar, low: Scalar) -> tuple[Scalar, Scalar]:
    """sin and cos of r + low, |r| <= pi/4."""
    z = r * r
    sin_tail, cos_tail = polynomial(z, SIN[r.dtype]), polynomial(z, COS[r.dtype])
    if r.dtype == "float32":
        return fma(r * z, sin_tail, r), fma(z * z, cos_tail, fma(z, -0.5, 1))
    h = 0.5 * z
    sin = r + fma(r * z, sin_tail, fma(-h, low, low))
    w = 1 - h
    cos = w + (((1 - w) - h) + fma(z * z, cos_tail, -(r * low)))
    return sin, cos


def sine_at(x: Scalar, turned: int) -> Scalar:
    """sin(x + turned pi/2)."""
    layout = LAYOUTS[x.dtype]
    r, low, q = quadrant(x)
    q = q + turned if turned else q
    sin, cos = sin_cos_near(r, low)
    y = where((q & 1) == 1, cos, sin)
    sign = (q & 2) << (30 if layout.fraction == 23 else 62)
    return bitcast(bits_of(y) ^ sign, x.dtype)


def sin(x: Scalar) -> Scalar:
    """sin(r) or cos(r) by polynomials, x = q pi/2 + r. At most 1.6 ulp for |x| < 2^45 (float64: 0.8, 2^30)."""
    return where(x == 0, x, sine_at(x, 0))


def cos(x: Scalar) -> Scalar:
    """sin(x + pi/2); see sin."""
    return sine_at(x, 1)


# (tan(r) / r - 1) / r^2 in r^2 for |r| <= pi/4.
TAN32 = (
    0.3333333432674408,
    0.13333213329315186,
    0.05399760231375694,
    0.021597562357783318,
    0.010043722577393055,
    0.0010560391237959266,
    0.0039191050454974174,
)


def tan(x: Scalar) -> Scalar:
    """sin(r) / cos(r) or -cos(r) / sin(r); float32: a polynomial, or -1 by it. At most 2.5 ulp, x as for sin."""
    r, low, q = quadrant(x)
    turned = (q & 1) == 1
    if x.dtype == "float32":
        z = r * r
        tail = fma(r * z, polynomial(z, TAN32), fma(low, z, low))
        y = r + tail
        y = where(turned, quotient(constant(-1, x.dtype), y, (r - y) + tail), y)
    else:
        sin, cos = sin_cos_near(r, low)
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


def atan_ratio(y: Scalar, x: Scalar) -> Scalar:
    """atan(y / x) for 0 <= y <= x, y finite, x > 0; with one division.

    float64 takes pi/4 off above tan(pi/8): atan(z) = pi/4 + atan((z - 1) / (z + 1)).
    """
    if x.dtype == "float32":
        z = y / x
        return fma(z * z * z, polynomial(z * z, ATAN["float32"]), z)
    upper = y > x * math.tan(math.pi / 8)
    z = where(upper, y - x, y) / where(upper, y + x, x)
    square = z * z
    tail = z * square * polynomial(square, ATAN["float64"])
    quarter, quarter_low = PI["float64"][0] / 4, PI["float64"][1] / 4
    return either(upper, quarter, 0, x.dtype) + (z + (tail + either(upper, quarter_low, 0, x.dtype)))


def atan(x: Scalar) -> Scalar:
    """atan of min(|x|, 1) / max(|x|, 1) by a polynomial; above 1 pi/2 less that. At most 1.9 ulp."""
    high, low = (part / 2 for part in PI[x.dtype])
    a = abs(x)
    beyond = a > 1
    y = atan_ratio(where(beyond, 1, a), where(beyond, a, 1))
    return call("copysign", where(beyond, high - (y - low), y), x)


def atan2(y: Scalar, x: Scalar) -> Scalar:
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
    angle = atan_ratio(small, big)
    angle = where(steep, high / 2 - (angle - low / 2), angle)
    left = bits_of(x) < 0
    angle = where(left, high - (angle - low), angle)
    nan = ~((x == x) & (y == y))
    return where(nan, math.nan, call("copysign", angle, y))


def asin_parts(x: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """s, tail, z, upper: asin(s) = s + tail. upper: |x| > 1/2, and s = sqrt(z), z = (1 - |x|) / 2; else s = |x|.

    NaN where |x| > 1.
    """
    a = abs(x)
    upper = a > 0.5
    z = where(upper, fma(a, -0.5, 0.5), a * a)
    s = where(upper, call("sqrt", z), a)
    return s, s * z * polynomial(z, ASIN[x.dtype]), z, upper


def asin(x: Scalar) -> Scalar:
    """A polynomial below 1/2, else pi/2 - 2 asin(sqrt((1 - |x|) / 2)). At most 1.6 ulp."""
    s, tail, z, upper = asin_parts(x)
    high, low = (part / 2 for part in PI[x.dtype])
    rest = where(s > 0, fma(-s, s, z) / s, 0)  # twice what s lacks
    y = (high - 2 * s) - (fma(tail, 2, rest) - low)
    return call("copysign", where(upper, y, s + tail), x)


def acos(x: Scalar) -> Scalar:
    """pi/2 - asin(x) below 1/2, else 2 asin(sqrt((1 - |x|) / 2)), or pi less that. At most 1.5 ulp."""
    s, tail, _, upper = asin_parts(x)
    high, low = PI[x.dtype]
    p = s + tail
    p = where(upper, 2 * p, call("copysign", p, x))
    negative = x < 0
    base = where(upper, either(negative, high, 0, x.dtype), high / 2)
    base_low = where(upper, either(negative, low, 0, x.dtype), low / 2)
    return base - (where(upper & ~negative, -p, p) - base_low)
