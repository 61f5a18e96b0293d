"""Elementary functions in basic operations, without branches or tables; half types in float32, complex ones as pairs.

>>> from weft.expr.functions import expand
>>> from weft.expr.scalar import call, load
>>> x = load(0, "float32")
>>> expand(call("rsqrt", x))
div(1.0, sqrt(x0))

The errors in the docstrings are bounds on the largest found, in units in the last place (ulp) of the exact result. In
float32 over every number for exp, expm1, log, log1p, tanh, sigmoid, sin, cos; over 3e7 or more for other functions of
one number, 2e6 for those of two. In float64 over some 1e6. tests/expr/test_functions.py checks them. Results that
are less than the least normal number keep what bits they can. Coefficients: Remez's algorithm in 40 digits, those
of float32 rounded one after the other (exp in float64: interpolation at Chebyshev's points).
"""

from __future__ import annotations

from collections.abc import Callable

from weft.expr.functions import error, exponential, logarithm, power, special, trigonometry
from weft.expr.functions.pieces import LAYOUTS
from weft.expr.scalar import (
    COMPLEX,
    FUNCTIONS,
    HALVES,
    LEAVES,
    Scalar,
    bitcast,
    cast,
    constant,
    substitute,
    walk,
)

__all__ = ["expand"]

EXACT = 256  # whole numbers up to this one are numbers of all half types


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
    if any(node.dtype in COMPLEX for node in walk(root)):
        from weft.expr.functions.complex_parts import in_parts  # few programs have complex numbers

        root = in_parts(root)
    return substitute(_widen(root), _expand_function)


def _expand_function(node: Scalar) -> Scalar:
    if node.op not in FUNCTIONS:
        return node
    if node.dtype not in LAYOUTS:
        raise TypeError(f"{node.op}: takes floating-point numbers, not {node.dtype}; cast to float32 first")
    return _MEANINGS[node.op](*node.args)


def _widen(root: Scalar) -> Scalar:
    wide: dict[int, Scalar] = {}
    for node in walk(root):
        wide[id(node)] = _widened(node, [wide[id(arg)] for arg in node.args])
    return _narrowed(wide[id(root)], root.dtype)


def _narrowed(wide: Scalar, dtype: str) -> Scalar:
    """The value in its own type."""
    if dtype in HALVES:
        narrow = _exact(wide, dtype, {})
        return cast(wide, dtype) if narrow is None else narrow
    return wide if wide.op == "cast" and wide.args[0].dtype == dtype else cast(wide, dtype)


def _exact(wide: Scalar, dtype: str, narrowed: dict[int, Scalar | None]) -> Scalar | None:
    """The value in a half type without rounding, if it only chooses among numbers of that type; else None."""
    if id(wide) not in narrowed:
        narrow = None
        if wide.op == "cast" and wide.args[0].dtype == dtype:
            narrow = wide.args[0]
        elif wide.op == "constant" and abs(wide.value) <= EXACT and wide.value % 1 == 0:
            narrow = constant(wide.value, dtype)
        elif wide.op == "where":
            a, b = (_exact(arg, dtype, narrowed) for arg in wide.args[1:])
            narrow = None if a is None or b is None else Scalar("where", dtype, (wide.args[0], a, b))
        narrowed[id(wide)] = narrow
    return narrowed[id(wide)]


def _widened(node: Scalar, args: list[Scalar]) -> Scalar:
    """The node with wide arguments; wide itself, if it is of a half type."""
    half = node.dtype in HALVES
    if node.op == "constant":
        return constant(node.value, "float32") if half else node
    if node.op == "bitcast":
        source = _narrowed(args[0], node.args[0].dtype)
        return cast(bitcast(source, node.dtype), "float32") if half else bitcast(source, node.dtype)
    if node.op == "cast":
        if not half:
            return cast(args[0], node.dtype)
        narrow = _exact(args[0], node.dtype, {})
        return cast(cast(args[0], node.dtype), "float32") if narrow is None else args[0]
    same = all(new is old for new, old in zip(args, node.args, strict=True))
    if node.op in LEAVES and half:
        leaf = node if same else Scalar(node.op, node.dtype, tuple(args), node.value)
        return cast(leaf, "float32")
    return node if same else Scalar(node.op, "float32" if half else node.dtype, tuple(args), node.value)


def _rare(function: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """float32 through float64, for functions too rare to have their own: at most 0.51 ulp, at twice the work."""

    def meaning(*args: Scalar) -> Scalar:
        if args[0].dtype == "float64":
            return function(*args)
        return cast(function(*(cast(arg, "float64") for arg in args)), "float32")

    return meaning


_RARE = ("gamma", "lgamma", "digamma")
_MODULES = (error, exponential, logarithm, power, special, trigonometry)
_MEANINGS: dict[str, Callable[..., Scalar]] = {
    name: _rare(getattr(module, name)) if name in _RARE else getattr(module, name)
    for name in FUNCTIONS
    for module in _MODULES
    if hasattr(module, name)
}
