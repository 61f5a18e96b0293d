"""Exponentials: exp, expm1, exp2, tanh, sigmoid, sinh, cosh."""

from __future__ import annotations

from weft.expr.functions.pieces import (
    LAYOUTS,
    LN2,
    LOG2_E,
    at_least,
    at_most,
    factors,
    nearest,
    polynomial,
    power_of_two,
    quotient,
)
from weft.expr.scalar import Scalar, bitcast, call, fma, where

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


def exp_parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """p and an integer n with e^x = (1 + p) 2^n, |p| < 0.42; Cody and Waite's reduction."""
    high, low = LN2[x.dtype]
    k, shifted = nearest(x, LOG2_E[x.dtype][0])
    n = shifted - LAYOUTS[x.dtype].bits(LAYOUTS[x.dtype].magic)
    r = fma(-k, low, fma(-k, high, x))
    return fma(r * r, polynomial(r, EXP[x.dtype]), r), n


def exp_of(x: Scalar, below: Scalar | bool, *, more: int = 0) -> Scalar:
    """e^x 2^more for x within EXP_LEAST and EXP_MOST; below: x < 0, else x >= 0."""
    p, n = exp_parts(x)
    first, second = factors(n + more if more else n, below, x.dtype)
    return fma(p, first, first) * second


def exp(x: Scalar) -> Scalar:
    """e^x = 2^n e^r, |r| <= log(2) / 2, by a polynomial of degree 6 (12). At most 1.1 ulp."""
    return exp_of(at_most(at_least(x, EXP_LEAST[x.dtype]), EXP_MOST[x.dtype]), x < 0)


def expm1(x: Scalar) -> Scalar:
    """e^x - 1 = 2^n (e^r - 1) + (2^n - 1). At most 1.6 ulp, float64 1.8.

    Half of it is computed, as 2^n may be too large; a tiny x is the result, and its half might lose its last bit.
    """
    p, n = exp_parts(at_most(at_least(x, -40.0), EXP_MOST[x.dtype]))
    scale = power_of_two(n - 1, x.dtype)
    y = 2 * fma(scale, p, scale - 0.5)
    return where(abs(x) < 2.0 ** -(LAYOUTS[x.dtype].fraction + 2), x, y)


def exp2(x: Scalar) -> Scalar:
    """2^x = 2^n 2^r, |r| <= 1/2, by a polynomial of degree 6 (12). At most 1 ulp."""
    least, most = {"float32": (-151.0, 129.0), "float64": (-1076.0, 1025.0)}[x.dtype]
    x = at_most(at_least(x, least), most)
    k, shifted = nearest(x, 1.0)
    r = x - k
    n = shifted - LAYOUTS[x.dtype].bits(LAYOUTS[x.dtype].magic)
    first, second = factors(n, x < 0, x.dtype)
    return fma(r * first, polynomial(r, EXP2[x.dtype]), first) * second


def tanh(x: Scalar) -> Scalar:
    """t / (t + 2) for t = e^(2|x|) - 1, which is exact near 0; a division with a correction. At most 1.9 ulp."""
    p, n = exp_parts(at_most(2 * abs(x), 40.0))
    scale = power_of_two(n, x.dtype)
    t = fma(scale, p, scale - 1)
    d = t + 2
    return call("copysign", quotient(t, d, t - (d - 2)), x)


def sigmoid(x: Scalar) -> Scalar:
    """c / (c + c e^-x), with c so small that c e^-x is finite wherever the result is not 0. At most 1.9 ulp.

    c e^-x = s + p s is not rounded before c is added: s + c first, which is exact but where 2^n is about as large as
    c has bits. 1.75 is what keeps the error least there; with 1 it is 2.4 ulp.
    """
    layout = LAYOUTS[x.dtype]
    c = 1.75 * 2.0**-64
    p, n = exp_parts(at_most(at_least(-x, -40.0), -EXP_LEAST[x.dtype]))
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


def half_exp(a: Scalar) -> Scalar:
    """e^a / 2 for a >= 0, finite wherever it is."""
    return exp_of(at_most(a, {"float32": 90.0, "float64": 711.0}[a.dtype]), False, more=-1)


def sinh(x: Scalar) -> Scalar:
    """x + x^3 P(x^2) below 1, else h - 1 / (4 h) for h = e^|x| / 2. At most 1.7 ulp."""
    a = abs(x)
    z = x * x
    h = half_exp(a)
    near = fma(a * z, polynomial(z, SINH[x.dtype]), a)
    return call("copysign", where(a < 1, near, h - 0.25 / h), x)


def cosh(x: Scalar) -> Scalar:
    """h + 1 / (4 h) for h = e^|x| / 2. At most 1.5 ulp."""
    h = half_exp(abs(x))
    return h + 0.25 / h
