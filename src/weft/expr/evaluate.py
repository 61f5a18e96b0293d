"""Evaluates expressions in NumPy: slow, one operation after the other, each in its own type. For tests and constants.

>>> import numpy as np
>>> from weft.expr.evaluate import evaluate
>>> from weft.expr.scalar import load
>>> x = load(0, "float32")
>>> evaluate(x * x + 1, {0: np.array([1, 2, 3], np.float32)})
array([ 2.,  5., 10.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtype import as_dtype
from weft.expr.functions import expand
from weft.expr.scalar import BITS, FLOATS, Scalar, walk

__all__ = ["evaluate", "to_bfloat16"]


def evaluate(
    root: Scalar,
    loads: Mapping[int, Any],
    parameters: Sequence[Any] = (),
    results: Sequence[Any] = (),
) -> Any:
    """The array of an expression's values, expanded first (functions, half types; see weft.expr.functions).

    loads: for every operand its array; load reads all of it, load_at at positions in its last dimensions, and in the
    others where the loops are. Arrays broadcast, as results do.
    index(d) counts along dimension d of the first loaded array of the largest rank.
    Integers wrap; div of integers truncates towards zero and rem has the sign of its first operand, as in C, but a zero
    divisor gives 0. A shift by the width or more is undefined. shr of signed integers is
    arithmetic. minimum and maximum of floats are NaN if an operand is, and take -0 as less than 0. fma is rounded once
    (results below the least normal float64 twice). cast: as native/tensor/convert.h.

    >>> from weft.expr.scalar import load
    >>> evaluate(load(0, "int8") / 2, {0: np.array([-3, 3], np.int8)})
    array([-1,  1], dtype=int8)
    """
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in walk(expand(root)):
            args = [values[id(arg)] for arg in node.args]
            value = _compute(node, args, loads, parameters, results)
            values[id(node)] = np.asarray(value, as_dtype(node.dtype).numpy)
        return values[id(node)]


def _compute(
    node: Scalar, args: list[Any], loads: Mapping[int, Any], parameters: Sequence[Any], results: Sequence[Any]
) -> Any:
    match node.op:
        case "constant":
            return node.value
        case "load":
            return loads[node.value]
        case "load_at":
            return _gather(np.asarray(loads[node.value]), args)
        case "parameter":
            return parameters[node.value]
        case "result":
            return results[node.value]
        case "index":
            shape = max((np.shape(array) for array in loads.values()), key=len)
            return np.arange(shape[node.value]).reshape([-1] + [1] * (len(shape) - 1 - node.value))
        case "where":
            return np.where(*args)
        case "fma":
            return _fma32(*args) if node.dtype == "float32" else _fma64(*args)
        case "real" | "imag":
            return getattr(args[0], node.op)
        case "complex":
            pair = np.empty(np.broadcast_shapes(*map(np.shape, args)), as_dtype(node.dtype).numpy)
            pair.real, pair.imag = args
            return pair
        case "cast":
            return _cast(args[0], node.args[0].dtype, node.dtype)
        case "bitcast":
            return args[0].view(as_dtype(node.dtype).numpy)
    floating = node.args[0].dtype in FLOATS
    special = (_FLOAT if floating else _INTEGER).get(node.op)
    if special is None and node.op not in _COMMON:
        raise NotImplementedError(f"evaluate: {node.op} of {node.dtype}")
    return special(*args) if special else _COMMON[node.op](*args)


def _gather(array: Any, positions: list[Any]) -> Any:
    """The elements at the positions in the last dimensions, and in the others where the loops are."""
    loops = array.shape[: array.ndim - len(positions)]
    shape = np.broadcast_shapes(loops, *map(np.shape, positions))
    grids: Any = np.indices(shape, sparse=True)[len(shape) - len(loops) :]
    outer = [grid if size > 1 else grid * 0 for grid, size in zip(grids, loops, strict=True)]
    return np.broadcast_to(array[(*outer, *positions)], shape)


def _extreme(choose: Callable[[Any, Any], Any], negative_first: bool) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        zeros = (a == 0) & (b == 0)
        first = np.signbit(a) if negative_first else ~np.signbit(a)
        return np.where(zeros, np.where(first, a, b), choose(a, b))

    return compute


def _divide(a: Any, b: Any) -> Any:
    """Towards zero, exactly: from the floor, one up where it is below the quotient."""
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    below = ((a < 0) != (b < 0)) & (quotient * b != a) & (b != 0)
    return quotient + below.astype(a.dtype)


_COMMON: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "product": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_FLOAT: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt,
    "rint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "div": np.divide,
    "rem": np.fmod,
    "copysign": np.copysign,
    "minimum": _extreme(np.minimum, True),
    "maximum": _extreme(np.maximum, False),
}
_INTEGER: dict[str, Callable[..., Any]] = {
    "div": _divide,
    "rem": np.fmod,
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b rounded, and what that leaves out (Knuth)."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def _two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b rounded, and what that leaves out (Dekker); operands of moderate size."""
    product = a * b

    def halves(x: Any) -> tuple[Any, Any]:
        shifted = x * 134217729.0
        upper = shifted - (shifted - x)
        return upper, x - upper

    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def _to_odd(total: Any, rest: Any) -> Any:
    """The sum total + rest rounded to odd: then another rounding to fewer bits is as if it were the only one.

    Source: Boldo, Melquiond 2008, Emulation of FMA and correctly rounded sums, IEEE Trans. Comput. 57(4).
    """
    total, rest = np.asarray(total), np.asarray(rest)
    inexact = np.isfinite(rest) & (rest != 0) & (total.view(np.int64) & 1 == 0)
    towards = np.where(rest > 0, np.inf, -np.inf)
    return np.where(inexact, np.nextafter(total, towards), total)


def _fma32(a: Any, b: Any, c: Any) -> Any:
    product = a.astype(np.float64) * b.astype(np.float64)  # exact
    return _to_odd(*_two_sum(product, c.astype(np.float64))).astype(np.float32)


def _fma64(a: Any, b: Any, c: Any) -> Any:
    plain = a * b + c
    (fa, ea), (fb, eb), (fc, ec) = np.frexp(a), np.frexp(b), np.frexp(c)
    exponent = np.where(fa * fb == 0, -4000, ea + eb)
    top = np.where(fc == 0, exponent, np.maximum(exponent, ec))  # all of it near 1
    # Parts 2^250 below the largest only say on which side of a tie it is.
    fa = np.ldexp(fa, np.maximum(exponent - top, -250))
    fc = np.ldexp(fc, np.maximum(ec - top, -250))
    product, product_rest = _two_product(fa, fb)
    upper, lower = _two_sum(fc, product_rest)
    total, total_rest = _two_sum(product, upper)
    exact = np.ldexp(total + _to_odd(*_two_sum(total_rest, lower)), top)
    usable = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    return np.where(usable & (exact != 0), exact, plain)


def _cast(a: Any, of: str, to: str) -> Any:
    if to == "bool":
        return a != 0
    if of in FLOATS and to not in FLOATS:
        return _truncate(a.astype(np.float64), to)
    if to == "bfloat16" and of != "bfloat16":
        return to_bfloat16(a)
    if to == "float16" and of not in FLOATS:
        a = a.astype(np.float32)
    return a.astype(as_dtype(to).numpy)


def to_bfloat16(a: Any) -> Any:
    """Through float32, whose subnormal numbers become zeros, as in processors' instructions.

    >>> to_bfloat16(np.array([1.003, -1e-39])).tolist()
    [1.0, -0.0]
    """
    a = np.asarray(a).astype(np.float32)
    subnormal = np.abs(a) < np.finfo(np.float32).tiny
    return np.where(subnormal, np.copysign(np.float32(0), a), a).astype(as_dtype("bfloat16").numpy)


def _truncate(a: Any, to: str) -> Any:
    whole = np.trunc(a)

    def within(bits: int) -> Any:
        low = -(2.0 ** (bits - 1))
        return np.where((whole >= low) & (whole < -low), whole, low).astype(np.int64)

    if to == "uint64":
        upper = whole >= 2.0**63
        shifted = np.where(upper, whole - 2.0**63, whole)
        fits = (shifted >= -(2.0**63)) & (shifted < 2.0**63)
        lower = np.where(fits, shifted, -(2.0**63)).astype(np.int64).view(np.uint64)
        return np.where(upper, lower ^ np.uint64(2**63), lower)
    wide = 64 if to in ("int64", "uint32") else 32
    return within(wide).astype(f"int{BITS[to]}").view(as_dtype(to).numpy)
