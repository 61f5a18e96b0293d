"""Derivatives of expressions, which are expressions again.

>>> from weft.expr.derivative import derive
>>> from weft.expr.scalar import call, load
>>> x = load(0, "float32")
>>> derive(call("exp", x) * 2, x)
mul(exp(x0), 2.0)

Of functions of complex numbers there are two: `conjugate_derivatives` has the one with respect to z and the one with
respect to conj(z), as if these were two variables (Wirtinger 1927). That of a holomorphic function with respect to
conj(z) is 0, and its rule is the real function's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container

from weft.base.typing import Any
from weft.expr.functions.special import zeta
from weft.expr.scalar import (
    COMPLEX,
    FLOATS,
    LEAVES,
    Number,
    Scalar,
    call,
    cast,
    conj,
    constant,
    fma,
    load,
    real,
    substitute,
    walk,
    where,
)

__all__ = ["conjugate_derivatives", "derive", "trigamma"]


def derive(root: Scalar, wrt: Scalar) -> Scalar:
    """The derivative of an expression with respect to one of its leaves, of the expression's type.

    Where there is none it is as PyTorch has it: abs has 0 at 0; minimum and maximum share equally between equal
    operands; copysign has 0 where its first operand is 0; sqrt has infinity at 0; pow has 0 for y where x is 0 and
    y >= 0, and for x where both are 0. The derivatives of these numbers are 0. Comparisons, rounding and integers have
    0; where chooses between the derivatives of its branches, so a function that is smooth where its branches meet has
    the right derivatives of every order there if one comparison chooses all of its parts. Raises TypeError where wrt's
    bits are taken, or it is not a leaf of a floating-point type.

    >>> from weft.expr.scalar import load
    >>> x = load(0, "float32")
    >>> derive(x * x, x), derive(call("tanh", x), x)
    (add(x0, x0), sub(1.0, mul(tanh(x0), tanh(x0))))
    """
    _check_leaf(wrt, FLOATS)
    if any(node.dtype in COMPLEX for node in walk(root)):
        return _through_complex(root, wrt)
    derivatives: dict[int, Scalar | None] = {}  # None: exactly 0, whatever the values are
    for node in walk(root):
        of_args = [derivatives[id(arg)] for arg in node.args]
        derivative = None
        if node is wrt:
            derivative = constant(1, node.dtype)
        elif node.op == "bitcast" and of_args[0] is not None:
            raise TypeError(f"derive: {node!r} takes the bits of {wrt!r}")
        elif node.dtype in FLOATS and any(d is not None for d in of_args):
            derivative = _chain_rule(node, of_args)
        derivatives[id(node)] = derivative
    return constant(0, root.dtype) if derivative is None else derivative


def _through_complex(root: Scalar, wrt: Scalar) -> Scalar:
    """The derivative with respect to a real leaf x of what complex numbers compute: x as the real part of z."""
    part = real(load(1 << 20, _complex_type(wrt.dtype)))
    x = cast(part, wrt.dtype)
    both = conjugate_derivatives(substitute(root, lambda node: x if node is wrt else node), part.args[0])
    total = _sum_of((both[0], None), (both[1], None), 1, 1)[0]
    if total is None:
        return constant(0, root.dtype)
    total = substitute(total, lambda node: cast(wrt, part.dtype) if node is part else node)
    return total if root.dtype in COMPLEX else cast(total, root.dtype)


def _check_leaf(wrt: Scalar, kinds: Container[str]) -> None:
    if wrt.op not in LEAVES or wrt.dtype not in kinds:
        raise TypeError(f"derive: expected a leaf of a floating-point type, got {wrt!r} of {wrt.dtype}")


Both = tuple[Scalar | None, Scalar | None]


def conjugate_derivatives(root: Scalar, wrt: Scalar) -> Both:
    """The derivatives of an expression with respect to a complex leaf z and to conj(z); None: exactly 0.

    Both are complex, also those of real expressions, where one is the conjugate of the other. |z| has 0 at 0.

    >>> from weft.expr.scalar import load
    >>> z = load(0, "complex64")
    >>> conjugate_derivatives(z * z, z), conjugate_derivatives(conj(z), z)
    ((add(x0, x0), None), (None, (1-0j)))
    """
    _check_leaf(wrt, COMPLEX)
    derivatives: dict[int, Both] = {}
    for node in walk(root):
        both: Both = (None, None)
        of_args = [derivatives[id(arg)] for arg in node.args]
        if node is wrt:
            both = constant(1, node.dtype), None
        elif node.dtype in FLOATS or node.dtype in COMPLEX:
            both = _conjugate_rule(node, of_args)
        derivatives[id(node)] = both
    return both


def _conjugate_rule(node: Scalar, of_args: list[Both]) -> Both:
    """The two derivatives of a node, complex numbers, from those of its operands."""
    if all(d is None for both in of_args for d in both):
        return None, None
    first, second = of_args[0]
    kind = _complex_type(node.dtype)

    def turned() -> Both:  # of the operand's conjugate
        return None if second is None else conj(second), None if first is None else conj(first)

    match node.op:
        case "conj":
            return turned()
        case "real":
            return _sum_of(of_args[0], turned(), 0.5, 0.5)
        case "cast":
            loses = node.args[0].dtype in COMPLEX and node.dtype in FLOATS
            both = _sum_of(of_args[0], turned(), 0.5, 0.5) if loses else of_args[0]
            return None if both[0] is None else cast(both[0], kind), None if both[1] is None else cast(
                both[1], kind
            )
        case "imag":
            return _sum_of(of_args[0], turned(), -0.5j, 0.5j)
        case "complex":
            return _sum_of(of_args[0], of_args[1], 1, 1j)
        case "abs" if node.args[0].dtype in COMPLEX:
            z, size = node.args[0], node
            half = where(size == 0, constant(0, z.dtype), z / (2 * size))
            return _sum_of(
                _scaled(of_args[0], cast(conj(half), kind)), _scaled(turned(), cast(half, kind)), 1, 1
            )
    by_first, by_second = (
        _chain_rule(node, list(ds)) if any(d is not None for d in ds) else None
        for ds in zip(*of_args, strict=True)
    )
    return by_first, by_second


def _complex_type(dtype: str) -> str:
    return (
        dtype if dtype in COMPLEX else next((z for z, part in COMPLEX.items() if part == dtype), "complex64")
    )


def _scaled(both: Both, factor: Scalar) -> Both:
    first, second = both
    return None if first is None else _times(first, factor), None if second is None else _times(
        second, factor
    )


def _sum_of(a: Both, b: Both, of_a: complex, of_b: complex) -> Both:
    """of_a * a + of_b * b."""

    def total(x: Scalar | None, y: Scalar | None) -> Scalar | None:
        terms = [d if k == 1 else d * k for d, k in ((x, of_a), (y, of_b)) if d is not None]
        return terms[0] + terms[1] if len(terms) == 2 else terms[0] if terms else None

    return total(a[0], b[0]), total(a[1], b[1])


def _chain_rule(node: Scalar, of_args: list[Scalar | None]) -> Scalar | None:
    """The derivative of a node, from those of its operands, of which one is not None."""
    if node.op == "cast":
        return None if of_args[0] is None else cast(of_args[0], node.dtype)
    if node.op == "where":
        kind = next(d.dtype for d in of_args[1:] if d is not None)
        a, b = (constant(0, kind) if d is None else d for d in of_args[1:])
        return where(node.args[0], a, b)
    rules = _DERIVATIVES.get(node.op)
    if rules is None:
        raise TypeError(f"derive: no derivative of {node.op}")
    total: Scalar | None = None
    for derivative, rule in zip(of_args, rules, strict=True):
        if derivative is not None and rule is not None:
            total = _plus(total, _times(derivative, rule(node, *node.args)))
    return total


def _is(node: Scalar, value: float) -> bool:
    return node.op == "constant" and node.value == value


def _times(derivative: Scalar, factor: Number) -> Scalar:
    """derivative * factor; 1 and -1 vanish, and 1 / x divides, which is rounded once less."""
    if not isinstance(factor, Scalar):
        factor = constant(factor, derivative.dtype)
    if derivative.dtype in COMPLEX:
        factor = cast(factor, derivative.dtype)
    if factor.op == "neg":
        return -_times(derivative, factor.args[0])
    if factor.op == "div" and _is(factor.args[0], 1):
        return derivative / factor.args[1]
    for one, other in ((derivative, factor), (factor, derivative)):
        if _is(one, 1):
            return other
        if _is(one, -1):
            return -other
    return derivative * factor


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
    """1, -1, 0 or NaN: constants all, so that its own derivative is 0 everywhere."""
    at_zero = where(x == 0, constant(0, x.dtype), constant(math.nan, x.dtype))
    return where(x > 0, constant(1, x.dtype), where(x < 0, constant(-1, x.dtype), at_zero))


def _pow_by_base(z: Scalar, x: Scalar, y: Scalar) -> Scalar:
    if y.op != "constant":
        # 0 times an infinity, or NaN, where x ** 0 is 1 for any x; elsewhere the formula, whose derivative by y counts.
        is_undefined = (y == 0) & ~(abs(x) > 0)
        return where(is_undefined, constant(0, y.dtype), y * call("pow", x, y - 1))
    match y.value:
        case 0 | 1:
            return y
        case 2:
            return x * 2
    return y * call("pow", x, y.value - 1)


def trigamma(x: Scalar) -> Scalar:
    """The derivative of digamma, in basic operations and the sine, so that it has derivatives again."""
    wide = cast(x, "float64")
    y = zeta(2, where(wide < 0, 1 - wide, wide))
    sine = call("sin", math.pi * (wide - call("rint", wide)))
    return cast(where(wide < 0, math.pi / sine * (math.pi / sine) - y, y), x.dtype)


def _pow_by_exponent(z: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return where((x == 0) & (real(y) >= 0), constant(0, y.dtype), z * call("log", x))


def _of_acosh(y: Scalar, x: Scalar) -> Scalar:
    if x.dtype in COMPLEX:  # of the product of two roots, which the root of the product is not everywhere
        return call("rsqrt", x - 1) * call("rsqrt", x + 1)
    return call("rsqrt", (x - 1) * (x + 1))


# For each operand the partial derivative, from the result and the operands; None: 0.
_DERIVATIVES: dict[str, list[Callable[..., Any] | None]] = {
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
    "product": [lambda y, a, b: b, lambda y, a, b: a],
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
    "erfinv": [lambda y, x: call("exp", y * y) * (math.sqrt(math.pi) / 2)],
    "gamma": [lambda y, x: y * call("digamma", x)],
    "lgamma": [lambda y, x: call("digamma", x)],
    "digamma": [lambda y, x: trigamma(x)],
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
    "acosh": [_of_acosh],
    "atanh": [lambda y, x: 1 / ((1 - x) * (1 + x))],
    "pow": [_pow_by_base, _pow_by_exponent],
    "rsqrt": [lambda y, x: y / x * -0.5],
    "cbrt": [lambda y, x: y / x * (1 / 3)],
}
