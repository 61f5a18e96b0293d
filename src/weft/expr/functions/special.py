"""The inverse error function; the gamma function, its logarithm and that one's derivative, all three in float64.

Errors near the zeros of lgamma below 0 and of digamma are in ulp of 1, since terms of that size are subtracted there.
"""

from __future__ import annotations

import math

from weft.expr.functions.exponential import exp
from weft.expr.functions.logarithm import log
from weft.expr.functions.pieces import at_least, at_most, polynomial
from weft.expr.functions.power import pow
from weft.expr.functions.trigonometry import sin, tan
from weft.expr.scalar import Number, Scalar, call, constant, fma, where

# erfinv(x) / x in w - 3.125 for w = -log(1 - x^2) <= 6.25, and in sqrt(w) - 3.25 and - 5 up to 4 and beyond.
ERFINV_NEAR = (
    1.6536545626831027,
    0.2401581824255883,
    -0.00603367087142785,
    -0.000740702534154477,
    0.00018673420802464837,
    -1.3882523394405316e-05,
    -1.3654691850603575e-06,
    4.234788173782339e-07,
    -2.9070382262927266e-08,
    -4.11266082002324e-09,
    1.0512181539804126e-09,
    -5.414287198084716e-11,
    -1.2976885526532075e-11,
    2.6304834740560442e-12,
    -8.118399443074353e-14,
    -4.001237735091896e-14,
    6.596407712420834e-15,
    -4.0282154327661744e-17,
    -1.3016928016796445e-16,
    1.557432024623325e-17,
    1.150022252066253e-18,
    -3.4996044354754177e-19,
    -1.113483769832702e-21,
    3.240704459379902e-21,
)
ERFINV_FAR = (
    3.0838856104922208,
    1.0052589676941592,
    0.0053709145535581985,
    -0.0037512085075638536,
    0.0024914420976198813,
    -0.0016882755561681802,
    0.0009532893521118177,
    -0.00035503751863069763,
    2.4031363245440546e-05,
    6.828484052292924e-05,
    -4.731952918337189e-05,
    1.2475343474376931e-05,
    2.9273722115986924e-06,
    -4.013946398190292e-06,
    1.4958263152984917e-06,
    1.832399988132858e-08,
    -2.6860975725571463e-07,
    9.071950571029922e-08,
    -3.831039946072411e-10,
)
ERFINV_FURTHEST = (
    4.849906401408584,
    1.0103004648645413,
    -0.00013871931835112341,
    -0.00021503011962944126,
    7.599527735160192e-05,
    -1.968177348376382e-05,
    4.5260599477720725e-06,
    -9.930119183482954e-07,
    2.2901554497563463e-07,
    -6.761414811460412e-08,
    2.9124399186491765e-08,
    -1.5146221782627176e-08,
    7.644335983557396e-09,
    -3.5875995609819957e-09,
    1.4895546197648135e-09,
    -3.7171553416167447e-10,
    -2.2467591693364936e-11,
    2.752083669120488e-11,
)
# In float32: erfinv(x) / x in w - 2.5 for w <= 5, and in sqrt(w) - 3 beyond.
ERFINV32_NEAR = (
    1.5014094114303589,
    0.24664029479026794,
    -0.004177500959485769,
    -0.0012527601793408394,
    0.00021841157285962254,
    -4.9528171075508e-06,
    -3.4772649541991996e-06,
    4.6392096919589676e-07,
    2.428215850613924e-08,
    -8.63065974243682e-09,
)
ERFINV32_FAR = (
    2.832977056503296,
    1.001673698425293,
    0.009436078369617462,
    -0.007617964409291744,
    0.00575156370177865,
    -0.0036871670745313168,
    0.0013345961924642324,
    0.00011370571155566722,
    -0.0001978081709239632,
)
# lgamma(z) / ((z - 1) (z - 2)) in z - 1.75 for 1 <= z <= 2.5.
LGAMMA = (
    0.4501393121092563,
    -0.11948158662524275,
    0.044520447198509686,
    -0.019053957830246777,
    0.00877637042524953,
    -0.004226194125963237,
    0.0020955338803511515,
    -0.0010605660740508067,
    0.0005448969798010082,
    -0.000283190642428413,
    0.0001485169172330309,
    -7.84615612837167e-05,
    4.170409808958023e-05,
    -2.2282559008298975e-05,
    1.195718295249812e-05,
    -6.432318239552401e-06,
    3.4764841281870834e-06,
    -1.9132461879841067e-06,
    1.0402308562055134e-06,
    -5.013249838452059e-07,
    2.7329252368665147e-07,
    -2.514796629915524e-07,
    1.3833778748324786e-07,
    2.71885747144867e-08,
    -1.5258602053637756e-08,
    -5.271069691352568e-08,
    2.915020840600158e-08,
)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B2, B4, ... B16
SHIFT = 10  # Stirling's series are used from here
HALF_LOG_2PI = 0.9189385332046727
TINY = 1e-30  # sin(pi x) / pi is x here, and lgamma(1 + x) is 0 beside log x


def erfinv(x: Scalar) -> Scalar:
    """x times a polynomial in -log(1 - x^2), or in its root. At most 4 ulp.

    Source: Giles 2012, Approximating the erfinv function, GPU computing gems.
    """
    a = abs(x)
    product = (1 - a) * (1 + a)
    if x.dtype == "float32":
        w = -log(at_least(product, 2.0**-24))
        near = polynomial(at_most(w, 5.0) - 2.5, ERFINV32_NEAR)
        far = polynomial(call("sqrt", at_least(w, 5.0)) - 3, ERFINV32_FAR)
        y = x * where(w <= 5, near, far)
    else:
        w = -log(at_least(product, 2.0**-54))
        root = call("sqrt", at_least(w, 1.0))
        near = polynomial(at_most(w, 6.25) - 3.125, ERFINV_NEAR)
        far = polynomial(at_most(root, 4.0) - 3.25, ERFINV_FAR)
        furthest = polynomial(root - 5, ERFINV_FURTHEST)
        y = x * where(w <= 6.25, near, where(root <= 4, far, furthest))
    edge = where(a == 1, constant(math.inf, x.dtype), math.nan)
    return where(a < 1, y, call("copysign", where(a >= 1, edge, a), x))


def stirling(z: Scalar) -> Scalar:
    """What is left of lgamma(z) behind (z - 1/2) log z - z + log(2 pi) / 2, for z >= SHIFT."""
    coefficients = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1))
    inverse = 1 / z
    return inverse * polynomial(inverse * inverse, coefficients)


def sine_of_pi(x: Scalar) -> tuple[Scalar, Scalar]:
    """|sin(pi x)|, and whether the sine is negative."""
    whole = call("rint", x)
    part = x - whole
    is_odd = whole != 2 * call("rint", whole * 0.5)
    return abs(sin(math.pi * part)), is_odd ^ (part < 0)


def lgamma(x: Scalar) -> Scalar:
    """Near 1 and 2 (z - 1) (z - 2) P(z), to which other small numbers are brought by the logarithm of a product.

    From SHIFT on Stirling's series, below 0 Euler's reflection. At most 4 ulp for positive numbers, infinite for
    0 and below for integers.
    """
    z = where(x < 0, 1 - x, x)
    is_less = z < 1
    steps = at_least(call("floor", at_most(z, float(SHIFT)) - 0.5) - 1, 0.0)
    r = where(is_less, z + 1, at_most(z, float(SHIFT)) - steps)  # 1 ... 2.5
    product = where(is_less, z, 1.0)
    for k in range(SHIFT - 2):
        product = where(steps > k, product * (r + k), product)
    log_product = log(product)
    ends = where(is_less, z * (z - 1), (r - 1) * (r - 2))  # z + 1 has lost bits of z
    small = fma(ends, polynomial(r - 1.75, LGAMMA), where(is_less, -log_product, log_product))
    large = at_least(z, float(SHIFT))
    far = fma(large - 0.5, log(large) - 1, HALF_LOG_2PI - 0.5 + stirling(large))
    y = where(z < SHIFT, small, far)
    sine, _ = sine_of_pi(x)
    share = where(x > -TINY, -x, sine * (1 / math.pi))  # the sine of a subnormal number has lost bits of it
    y = where(x < 0, -log(share) - y, y)
    is_pole = (x <= 0) & (x == call("floor", x))
    return where(is_pole | (abs(x) == math.inf), constant(math.inf, x.dtype), y)


def digamma(x: Scalar) -> Scalar:
    """The series of log z - 1 / (2z) - ... from SHIFT on; before, 1 / z of the next numbers is subtracted.

    NaN for integers below 0, infinite for 0 with the other sign, as in C's libraries.
    """
    z = where(x < 0, 1 - x, x)
    total = constant(0, x.dtype)
    for k in range(SHIFT):
        total = total + 1 / (z + k)
    large = where(z < SHIFT, z + SHIFT, z)
    inverse = 1 / large
    square = inverse * inverse
    series = square * polynomial(square, tuple(b / (2 * k) for k, b in enumerate(BERNOULLI, 1)))
    y = log(large) - 0.5 * inverse - series
    y = where(z < SHIFT, y - total, y)
    f = x - call("rint", x)
    y = where(x < 0, y - math.pi / tan(math.pi * f), y)
    y = where((x < 0) & (f == 0), constant(math.nan, x.dtype), y)
    return where(x == 0, -call("copysign", constant(math.inf, x.dtype), x), y)


def gamma(x: Scalar) -> Scalar:
    """Stirling's formula from SHIFT on, before it a quotient, below 0 Euler's reflection. At most 12 ulp.

    NaN for integers below 0, infinite for 0 with its sign, as in C.
    """
    z = where(x < 0, 1 - x, x)
    product = constant(1, x.dtype)
    for k in range(SHIFT):
        product = product * (z + k)
    large = at_most(where(z < SHIFT, z + SHIFT, z), 180.0)
    rest = where(z < SHIFT, z - (large - SHIFT), 0.0)  # what the sum's rounding has left out
    half = pow(large, large * 0.5 - 0.25)
    y = half * (exp(HALF_LOG_2PI + stirling(large)) * exp(-large)) * half
    y = where(z < SHIFT, fma(y, rest * log(large), y) / product, y)
    sine, is_negative = sine_of_pi(x)
    reflected = math.pi / (sine * y)
    y = where(x < 0, where(is_negative, -reflected, reflected), y)
    is_undefined = ((x < 0) & (x == call("floor", x))) | (x == -math.inf)
    y = where(is_undefined, constant(math.nan, x.dtype), y)
    return where(x == 0, call("copysign", constant(math.inf, x.dtype), x), y)


def zeta(order: int, x: Number) -> Scalar:
    """The sum of 1 / (x + k)^order over k >= 0, for x > 0: some terms, then Euler and Maclaurin's series."""
    assert isinstance(x, Scalar)
    total = constant(0, x.dtype)
    for k in range(SHIFT):
        total = total + _power(1 / (x + k), order)
    large = x + SHIFT
    inverse = 1 / large
    tail = large * _power(inverse, order) * (1 / (order - 1)) + 0.5 * _power(inverse, order)
    term = order * _power(inverse, order + 1)
    for k, bernoulli in enumerate(BERNOULLI, 1):
        tail = tail + bernoulli / math.factorial(2 * k) * term
        term = term * ((order + 2 * k - 1) * (order + 2 * k)) * (inverse * inverse)
    return total + tail


def _power(x: Scalar, n: int) -> Scalar:
    """x^n for n >= 1, by squaring."""
    if n == 1:
        return x
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half
