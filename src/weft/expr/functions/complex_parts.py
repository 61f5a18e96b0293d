"""Complex numbers as two real ones: expressions of them are written as their real and imaginary parts.

>>> from weft.expr.functions.complex_parts import in_parts
>>> from weft.expr.scalar import load
>>> in_parts(load(0, "complex64") * load(1, "float32"))
complex(mul(x1, real(x0)), mul(x1, imag(x0)))

A number that was real and was converted has no imaginary part here, not a 0: its product with a complex number is two
products, and an infinity in it does not make a NaN of the other part (array API 2024.12, multiply). Products and
quotients are the plain formulas (quotients: Smith 1962), without C99's recovery of infinities. Functions of complex64
are computed in float64 and rounded once, those of complex128 have errors of a few units in the last place of the
larger part. Values at infinities, NaN and signed zeros: array API 2024.12, which has them from C99, annex G. Inverse
functions: Kahan 1987, Branch cuts for complex elementary functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.base.typing import Any
from weft.expr.functions.pieces import either
from weft.expr.scalar import (
    COMPARISONS,
    COMPLEX,
    LEAVES,
    Scalar,
    call,
    cast,
    complex_number,
    constant,
    fma,
    imag,
    maximum,
    minimum,
    real,
    walk,
    where,
)

__all__ = ["in_parts"]

Pair = tuple[Scalar, Scalar | None]


def in_parts(root: Scalar, rewritten: dict[int, Any] | None = None) -> Scalar:
    """The expression with no operations on complex numbers but the parts of loads, and one number of two parts.

    rewritten: what the parts of expressions became, by id; it is added to.
    """
    rewritten = {} if rewritten is None else rewritten
    for node in walk(root, skipped=rewritten):
        args = [rewritten[id(arg)] for arg in node.args]
        if node.dtype in COMPLEX:
            rewritten[id(node)] = _pair(node, args)
        elif any(isinstance(arg, tuple) for arg in args):
            rewritten[id(node)] = _real_of_pairs(node, args)
        else:
            same = all(new is old for new, old in zip(args, node.args, strict=True))
            rewritten[id(node)] = node if same else Scalar(node.op, node.dtype, tuple(args), node.value)
    value = rewritten[id(root)]
    return complex_number(*_both(value)) if isinstance(value, tuple) else value


def _both(z: Pair) -> tuple[Scalar, Scalar]:
    return z[0], constant(0, z[0].dtype) if z[1] is None else z[1]


def _pair(node: Scalar, args: list[Any]) -> Pair:
    """The parts of a complex expression."""
    part = COMPLEX[node.dtype]
    match node.op:
        case "constant":
            re, im = node.value.real, node.value.imag
            is_real = im == 0 and math.copysign(1, im) > 0
            return constant(re, part), None if is_real else constant(im, part)
        case "load" | "load_at" | "result":
            leaf = Scalar(node.op, node.dtype, tuple(args), node.value)
            return real(leaf), imag(leaf)
        case "complex":
            return args[0], args[1]
        case "cast":
            if isinstance(args[0], tuple):
                re, im = args[0]
                return cast(re, part), None if im is None else cast(im, part)
            return cast(args[0], part), None
        case "where":
            condition, a, b = args
            re = where(condition, a[0], b[0])
            return re, None if a[1] is b[1] is None else where(condition, _both(a)[1], _both(b)[1])
    arithmetic = _ARITHMETIC.get(node.op)
    if arithmetic is not None:
        return arithmetic(*args)
    function = _FUNCTIONS.get(node.op)
    if function is None:
        raise TypeError(f"{node.op}: not defined for {node.dtype}")
    wide = [(cast(re, "float64"), None if im is None else cast(im, "float64")) for re, im in args]
    re, im = function(_both(wide[0]), wide[1]) if node.op == "pow" else function(*_both(wide[0]))
    return cast(re, part), cast(im, part)


def _real_of_pairs(node: Scalar, args: list[Any]) -> Scalar:
    """A real number or a bool that is made of complex ones."""
    a = args[0]
    match node.op:
        case "real":
            return a[0]
        case "imag":
            return _both(a)[1]
        case "abs":
            return _absolute(*_both(a))
        case "cast" if node.dtype == "bool":
            return cast(a[0], "bool") if a[1] is None else cast(a[0], "bool") | cast(a[1], "bool")
        case "cast":
            return cast(a[0], node.dtype)
        case "eq" | "ne":
            (re, im), (other_re, other_im) = _both(a), _both(args[1])
            return (
                (re == other_re) & (im == other_im)
                if node.op == "eq"
                else (re != other_re) | (im != other_im)
            )
    what = "complex numbers have no order" if node.op in (*COMPARISONS, *LEAVES) else "not defined for them"
    raise TypeError(f"{node.op} of {node.args[0].dtype}: {what}")


# Arithmetic, of pairs whose imaginary part may be missing.


def _negative(z: Pair) -> Pair:
    return -z[0], None if z[1] is None else -z[1]


def _conjugate(z: Pair) -> Pair:
    return z[0], None if z[1] is None else -z[1]


def _sum(a: Pair, b: Pair) -> Pair:
    im = b[1] if a[1] is None else a[1] if b[1] is None else a[1] + b[1]
    return a[0] + b[0], im


def _difference(a: Pair, b: Pair) -> Pair:
    im = a[1] if b[1] is None else -b[1] if a[1] is None else a[1] - b[1]
    return a[0] - b[0], im


def _product(a: Pair, b: Pair) -> Pair:
    if b[1] is None:
        a, b = b, a
    if a[1] is None:
        return a[0] * b[0], None if b[1] is None else a[0] * b[1]
    assert b[1] is not None
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _quotient(a: Pair, b: Pair) -> Pair:
    """By the ratio of the denominator's parts, the smaller one over the larger one (Smith 1962)."""
    if b[1] is None:
        return a[0] / b[0], None if a[1] is None else a[1] / b[0]
    (x, y), (u, v) = _both(a), _both(b)
    wide = abs(u) >= abs(v)
    larger, smaller = where(wide, u, v), where(wide, v, u)
    ratio = where(larger == 0, smaller, smaller / larger)
    denominator = larger + smaller * ratio
    re = where(wide, x, y) + where(wide, y, x) * ratio
    im = where(wide, y - x * ratio, y * ratio - x)
    return re / denominator, im / denominator


_ARITHMETIC: dict[str, Callable[..., Pair]] = {
    "neg": _negative,
    "conj": _conjugate,
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "product": _product,
    "div": _quotient,
}


# Functions, of two parts of float64.

INF, NAN = math.inf, math.nan
SCALE = (
    600  # the power of two that numbers beyond 2^500, or below 2^-500, are scaled by before they are squared
)


def _is_nan(x: Scalar) -> Scalar:
    return x != x


def _is_finite(x: Scalar) -> Scalar:
    return abs(x) < INF


def _signed(size: Scalar | float, sign: Scalar) -> Scalar:
    return call("copysign", size if isinstance(size, Scalar) else constant(size, sign.dtype), sign)


def _scaled(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """|x| and |y| by a power of two, so that the sum of their squares is exact in size; and minus its exponent."""
    x, y = abs(x), abs(y)
    most = where(x > y, x, y)
    power = where(
        most > 2.0**500, constant(-SCALE, "float64"), where(most < 2.0**-500, constant(SCALE, "float64"), 0)
    )
    scale = where(
        power < 0, constant(2.0**-SCALE, "float64"), where(power > 0, constant(2.0**SCALE, "float64"), 1)
    )
    return x * scale, y * scale, power


def _absolute(x: Scalar, y: Scalar) -> Scalar:
    """sqrt(x^2 + y^2), infinite if one part is, whatever the other one is."""
    infinite = (abs(x) == INF) | (abs(y) == INF)
    if x.dtype == "float32":
        a, b = cast(x, "float64"), cast(y, "float64")
        size = cast(call("sqrt", fma(a, a, b * b)), "float32")
    else:
        a, b, power = _scaled(x, y)
        back = where(
            power < 0, constant(2.0**SCALE, "float64"), where(power > 0, constant(2.0**-SCALE, "float64"), 1)
        )
        size = call("sqrt", fma(a, a, b * b)) * back
    return where(infinite, constant(INF, x.dtype), size)


def _log_absolute(x: Scalar, y: Scalar) -> Scalar:
    """log(sqrt(x^2 + y^2)); near 1 by log1p of what x^2 + y^2 is above 1, computed without that 1."""
    a, b, power = _scaled(x, y)
    most, least = where(a > b, a, b), where(a > b, b, a)
    squares = fma(most, most, least * least)
    above = fma(most - 1, most + 1, least * least)
    near = (squares > 0.5) & (squares < 3)
    size = 0.5 * where(near, call("log1p", above), call("log", squares)) - power * math.log(2)
    return where((abs(x) == INF) | (abs(y) == INF), constant(INF, "float64"), size)


def _cis(size: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    return size * call("cos", y), size * call("sin", y)


EXP_STEP = 700.0  # e^x is finite up to 709; beyond, cos(y) or sin(y) may still make the product finite


def exp(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """e^x (cos(y) + i sin(y)), in two factors where e^x alone is infinite."""
    large = x > EXP_STEP
    size = call("exp", where(large, x - EXP_STEP, x))
    more = either(large, math.exp(EXP_STEP), 1, "float64")
    re, im = _cis(size, y)
    vanishes = (x == -INF) & ~_is_finite(y)
    unknown = (x == INF) & ~_is_finite(y)  # infinite, of an unknown sign
    re = where(vanishes, constant(0, "float64"), where(unknown, x, re * more))
    im = where(vanishes, constant(0, "float64"), im * more)
    is_real = y == 0
    return where(is_real, size * more, re), where(is_real, y, im)


def expm1(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """Without cancellation: expm1(x) cos(y) - 2 sin(y/2)^2."""
    half = call("sin", y * 0.5)
    re, im = exp(x, y)
    near = fma(call("expm1", x), call("cos", y), -2 * half * half)
    return where((abs(x) < 1) & _is_finite(y), near, re - 1), im


def log(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    return _log_absolute(x, y), call("atan2", y, x)


def _log_to(base: float) -> Callable[[Scalar, Scalar], tuple[Scalar, Scalar]]:
    def function(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
        re, im = log(x, y)
        return re / math.log(base), im / math.log(base)

    return function


def log1p(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """log(1 + z): near 0 by what |1 + z|^2 is above 1, x (2 + x) + y^2."""
    above = fma(x, x + 2, y * y)
    near = (abs(x) < 0.5) & (abs(y) < 0.5)
    return where(near, 0.5 * call("log1p", above), _log_absolute(x + 1, y)), call("atan2", y, x + 1)


def sqrt(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """t = sqrt((|x| + |z|) / 2) and y / 2t, which is which by the sign of x."""
    _, _, power = _scaled(x, y)
    scale = where(
        power < 0, constant(2.0**-SCALE, "float64"), where(power > 0, constant(2.0**SCALE, "float64"), 1)
    )
    back = where(
        power < 0,
        constant(2.0 ** (SCALE // 2), "float64"),
        where(power > 0, constant(2.0 ** (-SCALE // 2), "float64"), 1),
    )
    a, b = abs(x) * scale, y * scale
    larger = call("sqrt", 0.5 * (a + call("sqrt", fma(a, a, b * b))))
    smaller = where(larger == 0, abs(b), abs(b) / (2 * larger))
    left = call("copysign", constant(1, "float64"), x) < 0
    re, im = where(left, smaller, larger) * back, where(left, larger, smaller) * back
    re = where(x == INF, x, where(x == -INF, where(_is_nan(y), y, constant(0, "float64")), re))
    im = where(
        x == -INF, constant(INF, "float64"), where((x == INF) & _is_finite(y), constant(0, "float64"), im)
    )
    tall = abs(y) == INF
    return where(tall, abs(y), re), where(tall, y, _signed(im, y))


def sinh(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    re, im = _hyperbolic(x, y, "sinh", "cosh")
    re = where((x == 0) & ~_is_finite(y), x, re)
    return where((abs(x) == INF) & ~_is_finite(y), x, re), where(y == 0, y, im)


def cosh(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    re, im = _hyperbolic(x, y, "cosh", "sinh")
    re = where((abs(x) == INF) & ~_is_finite(y), abs(x), re)
    # One part is 0: so is the product, whatever the other factor is; with its sign where it has one.
    signed = call("copysign", constant(0, "float64"), x) * _signed(1.0, call("sin", y))
    zero = where(_is_nan(x) | ~_is_finite(y), constant(0, "float64"), signed)
    return re, where((x == 0) | (y == 0), zero, im)


def _hyperbolic(x: Scalar, y: Scalar, first: str, second: str) -> tuple[Scalar, Scalar]:
    """first(x) cos(y) + i second(x) sin(y), in two factors where they alone are infinite."""
    large = abs(x) > EXP_STEP
    near = where(large, _signed(abs(x) - EXP_STEP, x), x)
    more = either(large, math.exp(EXP_STEP), 1, "float64")
    half_exp = 0.5 * call("exp", abs(near))
    sizes = {
        "sinh": where(large, _signed(half_exp, x), call("sinh", near)),
        "cosh": where(large, half_exp, call("cosh", near)),
    }
    return sizes[first] * call("cos", y) * more, sizes[second] * call("sin", y) * more


def tanh(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """By t = tan(y) and s = sinh(x): (s sqrt(1 + s^2) (1 + t^2) + i t) / (1 + s^2 (1 + t^2)); beyond 22 +-1."""
    t, s = call("tan", y), call("sinh", minimum(maximum(x, -30.0), 30.0))
    beta = fma(t, t, 1)
    denominator = fma(beta * s, s, 1)
    re = beta * call("sqrt", fma(s, s, 1)) * s / denominator
    im = t / denominator
    large = (abs(x) > 22) & (_is_finite(y) | (abs(x) == INF))
    decay = call("exp", -2 * minimum(abs(x), 400.0))
    far = where(_is_finite(y), 4 * call("sin", y) * call("cos", y) * decay, constant(0, "float64"))
    re, im = where(large, _signed(1.0, x), re), where(large, where(x * x == INF, _signed(0.0, far), far), im)
    return where((x == 0) & ~_is_finite(y), x, re), where((y == 0) & _is_nan(x), y, im)


LARGE = 2.0**50  # from here on 1 is nothing beside a square


def acos(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    below, above = sqrt(1 - x, -y), sqrt(1 + x, y)
    re = 2 * call("atan2", below[0], above[0])
    im = call("asinh", above[0] * below[1] - above[1] * below[0])
    large = (abs(x) > LARGE) | (abs(y) > LARGE)
    far = _signed(_log_absolute(x, y) + math.log(2), -y)
    re = where(large, call("atan2", abs(y), x), re)
    re = where((x == 0) & _is_nan(y), constant(math.pi / 2, "float64"), re)
    return re, where(large, far, im)


def asin(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    below, above = sqrt(1 - x, -y), sqrt(1 + x, y)
    re = call("atan2", x, below[0] * above[0] - below[1] * above[1])
    im = call("asinh", below[0] * above[1] - below[1] * above[0])
    large = (abs(x) > LARGE) | (abs(y) > LARGE)
    re = where(large, call("atan2", x, abs(y)), re)
    return where((x == 0) & _is_nan(y), x, re), where(
        large, _signed(_log_absolute(x, y) + math.log(2), y), im
    )


def acosh(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    re, im = acos(x, y)
    return abs(im), _signed(re, y)


def atanh(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    a = abs(x)
    re = 0.25 * call("log1p", 4 * a / fma(1 - a, 1 - a, y * y))
    im = 0.5 * call("atan2", 2 * y, fma(-y, y, (1 - a) * (1 + a)))
    large = (a > LARGE) | (abs(y) > LARGE)
    inverse = _quotient((constant(1, "float64"), None), (a, abs(y)))[0]
    infinite = (a == INF) | (abs(y) == INF)
    re = where(large, where(infinite, constant(0, "float64"), inverse), re)
    re = where((x == 0) & _is_nan(y), a, re)
    unknown = _is_nan(y) | (_is_nan(x) & _is_finite(y))
    im = where(large, where(unknown, constant(NAN, "float64"), _signed(math.pi / 2, y)), im)
    return _signed(re, x), im


def _turned(
    function: Callable[[Scalar, Scalar], tuple[Scalar, Scalar]],
) -> Callable[..., tuple[Scalar, Scalar]]:
    """-i f(i z), which is sin, tan, asin, ... for sinh, tanh, asinh, ... and the other way round."""

    def turned(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
        re, im = function(-y, x)
        return im, -re

    return turned


def rsqrt(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    return _both(_quotient((constant(1, "float64"), None), sqrt(x, y)))


MOST_FACTORS = 64


def pow(z: tuple[Scalar, Scalar], w: Pair) -> tuple[Scalar, Scalar]:
    """e^(w log(z)); small whole powers by products. z^0 is 1; 0^w is 0 where w has a positive real part, else NaN."""
    if w[1] is None and w[0].op == "cast" and w[0].args[0].op == "constant":
        w = constant(w[0].args[0].value, "float64"), None
    if w[1] is None and w[0].op == "constant" and w[0].value % 1 == 0 and abs(w[0].value) <= MOST_FACTORS:
        return _both(_whole_power(z, int(w[0].value)))
    re, im = exp(*_both(_product(w, log(*z))))
    zero, exponent = (z[0] == 0) & (z[1] == 0), _both(w)
    none = (exponent[0] == 0) & (exponent[1] == 0)
    at_zero = either(exponent[0] > 0, 0, NAN, "float64")
    return where(none, constant(1, "float64"), where(zero, at_zero, re)), where(
        none, constant(0, "float64"), where(zero, at_zero, im)
    )


def _whole_power(z: Pair, n: int) -> Pair:
    power: Pair = (constant(1, "float64"), None)
    square, left = z, abs(n)
    while left:
        if left & 1:
            power = square if power[1] is None else _product(power, square)
        square, left = _product(square, square), left >> 1
    return power if n >= 0 else _quotient((constant(1, "float64"), None), power)


_FUNCTIONS: dict[str, Callable[..., tuple[Scalar, Scalar]]] = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "log2": _log_to(2),
    "log10": _log_to(10),
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "pow": pow,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "sin": _turned(sinh),
    "cos": lambda x, y: cosh(-y, x),
    "tan": _turned(tanh),
    "asin": asin,
    "acos": acos,
    "atan": _turned(atanh),
    "asinh": _turned(asin),
    "acosh": acosh,
    "atanh": atanh,
}
