"""weft.expr.evaluate: each basic operation against Python's numbers, and fma and casts against exact arithmetic."""

import math
import operator
from fractions import Fraction

import numpy as np
import pytest

from weft.base.dtype import as_dtype
from weft.expr.evaluate import evaluate
from weft.expr.scalar import (
    BINARY,
    BITS,
    COMPARISONS,
    FLOATS,
    SIGNED,
    UNARY,
    UNSIGNED,
    Scalar,
    bitcast,
    call,
    cast,
    constant,
    fma,
    index,
    load,
    load_at,
    parameter,
    result,
    where,
)

WIDE = ("float32", "float64")
NAN, INF = math.nan, math.inf


def numbers(dtype, count=200):
    rng = np.random.default_rng(11)
    if dtype in SIGNED + UNSIGNED:
        info = np.iinfo(dtype)
        edges = np.array([info.min, info.max, 0, 1, 2, 3, info.max - 1], dtype)
        return rng.permutation(
            np.concatenate([edges, edges, rng.integers(info.min, info.max, count, dtype, endpoint=True)])
        )
    return rng.permutation(
        np.concatenate([[0.0, -0.0, INF, -INF, NAN, 1, -1], rng.normal(size=count) * 9])
    ).astype(dtype)


def both(dtype):
    x = numbers(dtype)
    return x, np.random.default_rng(12).permutation(x)


def wrapped(value, dtype):
    bits = BITS[dtype]
    value %= 2**bits
    return value - 2**bits if dtype in SIGNED and value >= 2 ** (bits - 1) else value


def quotient(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    return 0 if b == 0 else a - b * quotient(a, b)


INTEGER = {
    "neg": operator.neg,
    "abs": abs,
    "not": operator.invert,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": quotient,
    "rem": remainder,
    "minimum": min,
    "maximum": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("op", INTEGER)
def test_integers(op, dtype):
    x, y = both(dtype)
    if op in ("shl", "shr"):
        y = (y.view(f"uint{BITS[dtype]}") % BITS[dtype]).astype(dtype)
    arrays = [x] if op in UNARY else [x, y]
    got = evaluate(call(op, *(load(i, dtype) for i in range(len(arrays)))), dict(enumerate(arrays)))
    assert got.dtype == dtype
    expected = [
        wrapped(INTEGER[op](*values), dtype) for values in zip(*(a.tolist() for a in arrays), strict=True)
    ]
    assert got.tolist() == expected


def extreme(choose):
    def compute(a, b):
        if math.isnan(a) or math.isnan(b):
            return NAN
        return choose((a, b), key=lambda v: (v, math.copysign(1, v)))

    return compute


def total(function):
    """NaN where Python raises."""

    def compute(*args):
        try:
            return function(*args)
        except (ValueError, OverflowError):
            return NAN

    return compute


def division(a, b):
    if b != 0:
        return a / b
    return NAN if a == 0 or math.isnan(a) else math.copysign(INF, a) * math.copysign(1, b)


def rounded(function):
    return lambda a: math.copysign(function(a), a) if math.isfinite(a) else a


FLOATING = {
    "neg": operator.neg,
    "abs": abs,
    "sqrt": total(math.sqrt),
    "rint": rounded(round),
    "floor": rounded(math.floor),
    "ceil": rounded(math.ceil),
    "trunc": rounded(math.trunc),
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "product": operator.mul,
    "div": division,
    "rem": total(math.fmod),
    "minimum": extreme(min),
    "maximum": extreme(max),
    "copysign": math.copysign,
}


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("op", FLOATING)
def test_floats(op, dtype):
    x, y = both(dtype)
    arrays = [x] if op in UNARY else [x, y]
    got = evaluate(call(op, *(load(i, dtype) for i in range(len(arrays)))), dict(enumerate(arrays)))
    assert got.dtype == dtype
    expected = [FLOATING[op](*values) for values in zip(*(a.tolist() for a in arrays), strict=True)]
    assert same(got, np.array(expected).astype(dtype))  # float64 rounded once more is right for these


def test_every_operation_is_tested():
    assert set(INTEGER) | set(FLOATING) == {*UNARY, *BINARY}


def test_ties_go_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5])
    assert same(evaluate(call("rint", load(0, "float64")), {0: x}), [0.0, 2.0, 2.0, -0.0, -2.0])


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op, dtype):
    kind = as_dtype(dtype).numpy
    x, y = (a.astype(kind) for a in both(dtype if dtype not in ("float16", "bfloat16") else "float32"))
    y[::3] = x[::3]
    got = evaluate(Scalar(op, "bool", (load(0, dtype), load(1, dtype))), {0: x, 1: y})
    assert got.dtype == bool
    assert got.tolist() == [getattr(operator, op)(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def test_booleans():
    a, b = load(0, "bool"), load(1, "bool")
    arrays = {0: np.array([False, False, True, True]), 1: np.array([False, True, False, True])}
    assert evaluate(a & b, arrays).tolist() == [False, False, False, True]
    assert evaluate(a | b, arrays).tolist() == [False, True, True, True]
    assert evaluate(a ^ b, arrays).tolist() == [False, True, True, False]
    assert evaluate(~a, arrays).tolist() == [True, True, False, False]


def exactly_rounded(a, b, c, dtype):
    """a * b + c through fractions; float(Fraction) rounds once, so float32 takes its own way."""
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if dtype == "float64":
        return float(value)
    near = np.float32(float(value))
    around = [np.nextafter(near, np.float32(side)) for side in (-INF, INF)] + [near]
    return min(around, key=lambda v: (abs(Fraction(float(v)) - value), int(v.view(np.uint32)) & 1))


@pytest.mark.parametrize("dtype", WIDE)
def test_fma_is_rounded_once(dtype):
    rng = np.random.default_rng(13)
    a, b = (rng.normal(size=900).astype(dtype) for _ in range(2))
    scale = np.repeat(2.0 ** np.array([-200 if dtype == "float64" else -60, -30, 0]), 300)
    c = (-(a * b) * (1 + rng.normal(size=900) * scale)).astype(dtype)
    c[::5] = (a * b * 2.0 ** rng.integers(20, 60, 900)).astype(dtype)[::5]
    if (
        dtype == "float32"
    ):  # halfway in float32 but for the last bit of float64: rounding twice would go wrong
        a[:3], b[:3], c[:3] = 1 + 2.0**-12, 1 + 2.0**-12, [2.0**-60, -(2.0**-60), 0]
    got = evaluate(fma(load(0, dtype), load(1, dtype), load(2, dtype)), {0: a, 1: b, 2: c})
    assert got.dtype == dtype
    expected = [exactly_rounded(*v, dtype) for v in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    assert same(got, expected)


@pytest.mark.parametrize("dtype", WIDE)
def test_fma_at_the_ends(dtype):
    most, least = float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal)
    table = [
        (INF, 1, 1, INF),
        (INF, 0, 1, NAN),
        (INF, 1, -INF, NAN),
        (NAN, 1, 1, NAN),
        (most, 2, -most, most),
        (most, most, 1, INF),
        (least, 1, least, 2 * least),
        (least, least, 1, 1),
        (0.0, 5, -0.0, 0.0),
        (-0.0, 5, -0.0, -0.0),
        (3, 4, -12, 0.0),
        (2, 3, 0.0, 6),
    ]
    a, b, c, expected = (np.array(column, dtype) for column in zip(*table, strict=True))
    got = evaluate(fma(load(0, dtype), load(1, dtype), load(2, dtype)), {0: a, 1: b, 2: c})
    assert same(got, expected)


def converted(value, to):
    """One finite float to an integer, by native/tensor/convert.h's words."""
    whole = None if math.isnan(value) or math.isinf(value) else math.trunc(value)
    if to == "uint64" and whole is not None and whole >= 2**63:
        return whole if whole < 2**64 else 0
    if to == "uint64" and value == INF:
        return 0
    bits = 64 if to in ("int64", "uint32", "uint64") else 32
    if whole is None or not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
        whole = -(2 ** (bits - 1))
    return wrapped(whole, to)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", SIGNED + UNSIGNED)
def test_casts_of_floats_to_integers(source, to):
    x = [
        0.0,
        -0.0,
        0.9,
        -0.9,
        1.5,
        -1.5,
        127,
        128,
        255,
        256,
        -129,
        40000,
        2.0**31,
        -(2.0**31),
        2.0**32,
        2.0**33,
    ]
    x += [2.0**62, 2.0**63, -(2.0**63), 2.0**63 + 2.0**50, 2.0**64, 1e30, -1e30, INF, -INF, NAN]
    with np.errstate(over="ignore"):
        array = np.array(x).astype(as_dtype(source).numpy)
    got = evaluate(cast(load(0, source), to), {0: array})
    assert got.dtype == to
    assert got.tolist() == [converted(v, to) for v in array.astype(np.float64).tolist()]


@pytest.mark.parametrize("source", SIGNED + UNSIGNED)
@pytest.mark.parametrize("to", SIGNED + UNSIGNED)
def test_casts_of_integers_wrap(source, to):
    x = numbers(source)
    got = evaluate(cast(load(0, source), to), {0: x})
    assert got.dtype == to
    assert got.tolist() == [wrapped(v, to) for v in x.tolist()]


@pytest.mark.parametrize("source", FLOATS + SIGNED + UNSIGNED)
def test_casts_to_bool_and_floats(source):
    kind = as_dtype(source).numpy
    x = numbers(source) if source in SIGNED + UNSIGNED else numbers("float64").astype(kind)
    assert evaluate(cast(load(0, source), "bool"), {0: x}).tolist() == [v != 0 for v in x.tolist()]
    for to in FLOATS:
        got = evaluate(cast(load(0, source), to), {0: x})
        through = x.astype(np.float32) if to in ("bfloat16", "float16") and source != "float64" else x
        if to == "bfloat16":
            through = x.astype(np.float32)
        with np.errstate(over="ignore"):
            expected = through.astype(as_dtype(to).numpy)
        assert got.dtype == expected.dtype
        assert same(got.astype(np.float64), expected.astype(np.float64))


def test_float64_to_float16_is_rounded_once():
    x = np.array([1 + 2.0**-11 + 2.0**-40])  # float32 would make it a tie
    assert evaluate(cast(load(0, "float64"), "float16"), {0: x})[0] == np.float16(1 + 2.0**-10)


def test_bits():
    x = np.array([1.0, -2.5], np.float32)
    assert evaluate(bitcast(load(0, "float32"), "int32"), {0: x}).tolist() == [0x3F800000, 0xC0200000 - 2**32]
    halves = np.array([1.0], np.float16)
    assert evaluate(bitcast(load(0, "float16"), "uint16"), {0: halves}).tolist() == [0x3C00]


def test_leaves():
    x = np.arange(6, dtype=np.int64).reshape(2, 3)
    arrays = {0: x, 1: np.array([1.5, 2.5], np.float32)}
    assert evaluate(index(0) * 10 + index(1) + load(0, "int64"), arrays).tolist() == [[0, 2, 4], [13, 15, 17]]
    assert evaluate(load_at(1, "float32", index(0)), arrays).tolist() == [[1.5], [2.5]]
    got = evaluate(parameter(1, "float32") * 2 + result(0, "float32"), {}, (0, 3), (np.array([1, 2]),))
    assert got.tolist() == [7.0, 8.0]
    assert got.dtype == np.float32
    assert evaluate(constant(0.1, "float32"), {}) == np.float32(0.1)
    assert evaluate(where(load(0, "int64") > 2, 1, load(0, "int64")), arrays).tolist() == [
        [0, 1, 2],
        [1, 1, 1],
    ]
