"""weft.expr.functions: accuracy, special values, half types, derivatives."""

import ctypes
import math

import numpy as np
import pytest

from weft.base.dtype import as_dtype
from weft.expr.compiler import compile_kernel
from weft.expr.derivative import derive
from weft.expr.evaluate import evaluate, to_bfloat16
from weft.expr.functions import expand
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.scalar import (
    BINARY,
    COMPARISONS,
    FUNCTIONS,
    LEAVES,
    UNARY,
    Scalar,
    bitcast,
    call,
    cast,
    constant,
    fma,
    index,
    load,
    load_at,
    maximum,
    minimum,
    parameter,
    walk,
    where,
)

from .support import computed

pytestmark = pytest.mark.daily(3)

L = np.longdouble
NAN, INF = math.nan, math.inf
# Of the processors we know only x86's has a type to compare float64 with.
needs_longdouble = pytest.mark.skipif(
    np.finfo(L).nmant < 60, reason="longdouble is not wider than float64 here"
)


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


# Name: the truth in a wider type, the most ulp in float32 and in float64.
ACCURACY = {
    "exp": (np.exp, 1.1, 1.1),
    "expm1": (np.expm1, 1.6, 1.8),
    "exp2": (np.exp2, 1.0, 1.0),
    "log": (np.log, 1.0, 1.0),
    "log1p": (np.log1p, 1.6, 1.6),
    "log2": (np.log2, 1.0, 1.0),
    "log10": (np.log10, 1.0, 1.0),
    "tanh": (np.tanh, 1.9, 1.9),
    "sigmoid": (sigmoid, 1.9, 1.9),
    "sin": (np.sin, 1.6, 0.8),
    "cos": (np.cos, 1.6, 0.8),
    "tan": (np.tan, 1.3, 2.5),
    "asin": (np.arcsin, 1.6, 1.6),
    "acos": (np.arccos, 1.5, 1.5),
    "atan": (np.arctan, 1.9, 1.9),
    "sinh": (np.sinh, 1.7, 1.7),
    "cosh": (np.cosh, 1.5, 1.5),
    "asinh": (np.arcsinh, 2.0, 2.0),
    "acosh": (np.arccosh, 2.5, 2.5),
    "atanh": (np.arctanh, 2.5, 2.5),
    "cbrt": (np.cbrt, 1.0, 1.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5, 1.5),
}
TWO_OPERANDS = ("atan2", "pow")
_compiled = {}


def run(name, *arrays):
    """A function of FUNCTIONS by compiled code."""
    dtype = arrays[0].dtype.name
    if (name, dtype) not in _compiled:
        count = len(arrays)
        value = expand(call(name, *(load(i, dtype) for i in range(count))))
        stages = (Each((Store(count, value),)),)
        kernel = Kernel(f"test_{name}_{dtype}", 1, (Operand(dtype),) * (count + 1), stages)
        _compiled[name, dtype] = compile_kernel(kernel)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(_compiled[name, dtype].address)
    arrays = [*map(np.ascontiguousarray, arrays), np.empty_like(arrays[0])]
    data = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    strides = (ctypes.c_int64 * len(arrays))(*(array.itemsize for array in arrays))
    function(data, (ctypes.c_int64 * 1)(arrays[0].size), strides, None)
    return arrays[-1]


def errors(got, truth):
    """In ulp of the truth, which has a wider type. Infinite where one is NaN or has another sign."""
    with np.errstate(all="ignore"):
        rounded = truth.astype(got.dtype)
        ulp = np.spacing(np.minimum(np.abs(rounded), np.finfo(got.dtype).max)).astype(truth.dtype)
        found = np.abs(got.astype(truth.dtype) - truth) / ulp
    found[(got == rounded) & ~np.isfinite(found)] = 0
    both = np.isnan(got) & np.isnan(rounded)
    found[~both & (np.isnan(found) | (np.signbit(got) != np.signbit(rounded)))] = np.inf
    found[both] = 0
    return found


def assert_accurate(most, got, truth, *arguments):
    found = errors(got, truth)
    worst = int(found.argmax())
    where_ = [array[worst] for array in arguments]
    assert found[worst] <= most, f"{found[worst]} ulp at {where_}: {got[worst]}, not {truth[worst]}"


def samples(dtype, count=1_000_000):
    """Any bits, and numbers of every size that a network holds."""
    rng = np.random.default_rng(7)
    word = np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    parts = [
        rng.integers(0, np.iinfo(word).max, count // 4, word, endpoint=True).view(dtype),
        rng.uniform(-100, 100, count // 4),
        rng.normal(size=count // 4),
        rng.uniform(-1, 1, count // 8) * 10.0 ** rng.uniform(-40, 6, count // 8),
        rng.uniform(-750, 750, count // 16),
        1 + rng.normal(size=count // 16) * 1e-4,
    ]
    return np.concatenate([part.astype(dtype) for part in parts])


def in_range(name, x):
    """sin, cos and tan lose their bits far out: see _quadrant."""
    if name in ("sin", "cos", "tan"):
        return x[~(np.abs(x) >= (2.0**45 if x.dtype == np.float32 else 2.0**30))]
    return x


def test_every_function_is_here():
    gamma_family = {"erfinv", "gamma", "lgamma", "digamma"}  # tests/ops/test_special.py
    assert set(ACCURACY) | {"erf", "erfc", *gamma_family, *TWO_OPERANDS} == set(FUNCTIONS)


@pytest.mark.parametrize("name", ACCURACY)
def test_float32(name):
    truth, most, _ = ACCURACY[name]
    x = in_range(name, samples(np.float32))
    with np.errstate(all="ignore"):
        assert_accurate(most, run(name, x), truth(x.astype(np.float64)), x)


@needs_longdouble
@pytest.mark.parametrize("name", ACCURACY)
def test_float64(name):
    truth, _, most = ACCURACY[name]
    x = in_range(name, samples(np.float64, 400_000))
    with np.errstate(all="ignore"):
        assert_accurate(most, run(name, x), truth(x.astype(L)), x)


@pytest.mark.parametrize(("name", "most"), [("erf", 1.6), ("erfc", 5.0)])
def test_error_function_float32(name, most):
    x = np.concatenate([samples(np.float32, 160_000), np.linspace(-11, 11, 160_000, dtype=np.float32)])
    truth = np.array([getattr(math, name)(v) for v in x.tolist()])
    assert_accurate(most, run(name, x), truth, x)


# By mpmath with 40 digits.
ERF64 = [
    (1e-300, 1.1283791670955126e-300, 1.0),
    (1e-10, 1.1283791670955126e-10, 0.999999999887162),
    (0.03, 0.03384122234173543, 0.9661587776582645),
    (0.2, 0.22270258921047847, 0.7772974107895215),
    (0.49, 0.511668261188523, 0.4883317388114769),
    (0.5, 0.5204998778130465, 0.4795001221869535),
    (0.84375, 0.7672256612323416, 0.23277433876765838),
    (0.97, 0.8298702930356671, 0.17012970696433294),
    (1.0, 0.8427007929497149, 0.15729920705028513),
    (1.01, 0.8468104962282768, 0.1531895037717233),
    (1.25, 0.9229001282564583, 0.07709987174354177),
    (1.9, 0.9927904292352575, 0.0072095707647425325),
    (2.5, 0.999593047982555, 0.0004069520174449589),
    (3.3, 0.9999969422902035, 3.0577097964381654e-06),
    (4.7, 0.9999999999700474, 2.9952597863796555e-11),
    (5.9, 0.9999999999999999, 7.190409783550478e-17),
    (8.1, 1.0, 2.216308572065754e-30),
    (15.3, 1.0, 7.9765601254207e-104),
    (26.2, 1.0, 1.643250792438946e-300),
    (-0.3, -0.3286267594591274, 1.3286267594591274),
    (-1.7, -0.9837904585907745, 1.9837904585907746),
    (-6.5, -1.0, 2.0),
]


@pytest.mark.parametrize(("x", "erf", "erfc"), ERF64)
def test_error_function_float64(x, erf, erfc):
    for name, value, most in (("erf", erf, 1), ("erfc", erfc, 4)):
        got = run(name, np.array([x]))[0]
        assert abs(got - value) <= most * np.spacing(abs(value))


def powers(dtype, wide):
    rng = np.random.default_rng(3)
    x, y = samples(dtype), np.roll(samples(dtype), 12345)
    most = math.log(float(np.finfo(dtype).max))
    half = x.size // 2
    x[:half] = np.exp(rng.uniform(-most, most, half))
    x[: half // 2] = rng.uniform(0.5, 2, half // 2)
    with np.errstate(all="ignore"):
        y[:half] = rng.uniform(-most * 1.05, most * 1.05, half) / np.log(x[:half].astype(np.float64))
        return x, y, np.power(x.astype(wide), y.astype(wide)), np.arctan2(x.astype(wide), y.astype(wide))


def test_two_operands_float32():
    x, y, power, angle = powers(np.float32, np.float64)
    assert_accurate(0.6, run("pow", x, y), power, x, y)
    assert_accurate(1.9, run("atan2", x, y), angle, x, y)


@needs_longdouble
def test_two_operands_float64():
    x, y, power, angle = powers(np.float64, L)
    assert_accurate(1.7, run("pow", x, y), power, x, y)
    assert_accurate(1.9, run("atan2", x, y), angle, x, y)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ACCURACY)
def test_every_float32(name):
    truth, most, _ = ACCURACY[name]
    for begin in range(0, 2**32, 2**20):
        x = in_range(
            name, np.arange(begin, begin + 2**20, dtype=np.uint64).astype(np.uint32).view(np.float32)
        )
        if x.size:
            with np.errstate(all="ignore"):
                assert_accurate(most, run(name, x), truth(x.astype(np.float64)), x)


SPECIAL = {
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN)],
    "gamma": [(0.0, INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-2.0, NAN), (1e4, INF)],
    "lgamma": [(0.0, INF), (1.0, 0.0), (2.0, 0.0), (-3.0, INF), (INF, INF), (-INF, INF)],
    "digamma": [(0.0, -INF), (-0.0, INF), (-1.0, NAN), (INF, INF)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (-1e4, -1.0)],
    "exp2": [(0.0, 1.0), (10.0, 1024.0), (-3.0, 0.125), (INF, INF), (-INF, 0.0), (127.0, 2.0**127)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-1.5, NAN), (INF, INF)],
    "log2": [(1.0, 0.0), (1024.0, 10.0), (0.125, -3.0), (0.0, -INF), (-1.0, NAN), (INF, INF)],
    "log10": [(1.0, 0.0), (0.0, -INF), (-1.0, NAN), (INF, INF)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e4, 1.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "cosh": [(0.0, 1.0), (INF, INF), (-INF, INF)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (27.0, 3.0), (-8.0, -2.0)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (4.0, 0.5), (-1.0, NAN)],
}


def same(a, b):
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype):
    for x, expected in [*SPECIAL[name], (NAN, NAN)]:
        got = run(name, np.array([x], dtype))
        assert same(got, np.array([expected])), (x, got, expected)


def test_every_function_has_special_values():
    assert set(SPECIAL) | set(TWO_OPERANDS) == set(FUNCTIONS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "truth"), [("pow", math.pow), ("atan2", math.atan2)])
def test_special_values_of_two(name, truth, dtype):
    numbers = [0.0, 1.0, 0.5, 2.0, 3.0, 2.5, INF, 1e30, 1e-30]
    numbers = [sign * number for number in numbers for sign in (1, -1)] + [NAN]
    for x in numbers:
        for y in numbers:
            try:
                expected = truth(x, y)
            except ValueError:  # a domain error, or 0 to a negative power
                odd = float(y).is_integer() and y % 2 == 1
                expected = (math.copysign(INF, x) if odd else INF) if x == 0 else NAN
            except OverflowError:
                expected = math.copysign(INF, x) if y % 2 == 1 else INF
            got = run(name, np.array([x], dtype), np.array([y], dtype))[0]
            with np.errstate(over="ignore", under="ignore"):
                expected = np.dtype(dtype).type(expected)
            near = same(got, expected) or abs(got - expected) <= 2 * np.spacing(abs(expected))
            assert near, (x, y, got, expected)
            assert np.isnan(expected) or np.signbit(got) == np.signbit(expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_basic_operations_and_the_slow_meaning_is_the_same(name, dtype):
    rng = np.random.default_rng(5)
    arrays = [rng.permutation(samples(dtype, 1600)) for _ in range(2 if name in TWO_OPERANDS else 1)]
    value = call(name, *(load(i, dtype) for i in range(len(arrays))))
    basic = {*UNARY, *BINARY, *COMPARISONS, *LEAVES, "where", "fma", "cast", "bitcast"}
    assert {node.op for node in walk(expand(value))} <= basic
    with np.errstate(all="ignore"):
        slow = evaluate(value, dict(enumerate(arrays)))
    # The emulated fma rounds subnormal numbers twice.
    fast = run(name, *arrays)
    tiny = (np.abs(slow) < np.finfo(dtype).tiny) & (np.abs(fast) < np.finfo(dtype).tiny)
    assert same(slow[~tiny], fast[~tiny])


# Half types.


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_halves_are_float32_rounded_once(name, dtype):
    kind = as_dtype(dtype).numpy
    x = np.arange(0, 2**16, 7, dtype=np.uint16).view(kind)
    arrays = [x, np.roll(x, 1234)][: 2 if name in TWO_OPERANDS else 1]
    with np.errstate(all="ignore"):
        got = evaluate(call(name, *(load(i, dtype) for i in range(len(arrays)))), dict(enumerate(arrays)))
        wide = run(name, *(array.astype(np.float32) for array in arrays))
        expected = to_bfloat16(wide) if dtype == "bfloat16" else wide.astype(kind)
    assert got.dtype == kind
    assert same(got.astype(np.float32), expected.astype(np.float32))


def test_halves_are_not_rounded_between():
    x = load(0, "float16")
    values = {0: np.array([1.0], np.float16)}
    assert evaluate((x + 2.0**-20) - 1, values) == np.float16(2.0**-20)
    rounded = cast(cast(x + 2.0**-20, "float32"), "float16")  # where it is written, it happens
    assert evaluate(rounded - 1, values) == 0
    assert evaluate(cast(x + 2.0**-20, "float32"), values) == np.float32(1 + 2.0**-20)


def test_leaves_of_half_types_are_not_touched():
    x = load(0, "bfloat16")
    assert expand(x) is x
    at = load_at(0, "float16", index(0))
    assert expand(at) is at
    assert repr(expand(where(x > 0, x, parameter(0, "bfloat16")))) == (
        "where(gt(cast[float32](x0), 0.0), x0, p0)"
    )
    assert repr(expand(bitcast(x, "int16"))) == "bitcast[int16](x0)"
    assert repr(expand(cast(load(0, "float64"), "float16"))) == "cast[float16](x0)"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_only_chosen_is_not_rounded(dtype):
    """Stored or read on in float32, subnormal numbers and NaN's bits included; what is computed is rounded."""

    def chosen(x, y):
        stored = where(x <= 0, constant(0, dtype), where(y <= 6, y, constant(6, dtype)))
        return [expand(stored), expand(cast(stored, "float32"))]

    x, y = load(0, dtype), load(1, dtype)
    assert not any(node.op == "cast" and node.dtype == dtype for node in walk(*chosen(x, y)))
    bits = np.arange(0, 2**16, 3, dtype=np.uint16)
    a, b = (each.view(as_dtype(dtype).numpy) for each in (bits, np.roll(bits, 999)))
    wide = [v.astype(np.float32) for v in (a, b)]
    expected = np.where(wide[0] <= 0, np.float32(0), np.where(wide[1] <= 6, wide[1], np.float32(6)))
    for got in computed(chosen, a, b):
        assert same(got.astype(np.float32), expected)
    for rounded in (where(x <= 0, x + y, y), where(x <= 0, constant(0.3, dtype), y)):
        assert any(node.op == "cast" and node.dtype == dtype for node in walk(expand(rounded)))


def test_functions_of_integers_are_refused():
    with pytest.raises(TypeError, match="exp: takes floating-point numbers, not int32; cast"):
        expand(Scalar("exp", "int32", (load(0, "int32"),)))


# Derivatives.

X, Y = load(0, "float64"), load(1, "float64")
DERIVED = [
    *(call(name, X) for name in FUNCTIONS if name not in (*TWO_OPERANDS, "acosh")),
    call("acosh", X + 1.5),
    *(call(name, X) for name in ("neg", "abs", "sqrt", "rint", "floor", "ceil", "trunc")),
    X + Y,
    X - Y,
    X * Y,
    X / Y,
    X % Y,
    Y % X,
    minimum(X, Y),
    maximum(X, Y),
    call("copysign", X, -Y),
    fma(X, Y, X),
    call("pow", X, Y),
    X**2,
    X**3.5,
    call("atan2", X, Y),
    where(X < Y, X * X, call("exp", X)),
    cast(cast(X, "float64") * 2, "float64"),
    call("tanh", X * Y) / (1 + call("exp", -X * Y)),
    0.5 * X * (1 + call("erf", X * math.sqrt(0.5))),
]


@pytest.mark.parametrize("wrt", [X, Y], ids=["x", "y"])
@pytest.mark.parametrize("root", DERIVED, ids=repr)
def test_derivatives_against_differences(root, wrt):
    x, y = np.array([0.13, 0.37, 0.61, 0.88]), np.array([0.71, 0.29, 0.52, 0.41])
    h = 1e-5
    up = evaluate(root, {0: x + h * (wrt is X), 1: y + h * (wrt is Y)})
    down = evaluate(root, {0: x - h * (wrt is X), 1: y - h * (wrt is Y)})
    got = np.broadcast_to(evaluate(derive(root, wrt), {0: x, 1: y}), x.shape)
    np.testing.assert_allclose(got, (up - down) / (2 * h), rtol=2e-8, atol=1e-9)


def test_derivatives_where_there_is_none():
    def at(root, wrt, x, y=0.0):
        return float(evaluate(derive(root, wrt), {0: np.float64(x), 1: np.float64(y)}))

    assert at(abs(X), X, 0.0) == 0
    assert at(maximum(X, Y), X, 1.0, 1.0) == at(minimum(X, Y), Y, 1.0, 1.0) == 0.5
    assert at(call("sqrt", X), X, 0.0) == INF
    assert at(call("pow", X, Y), X, 0.0, 0.0) == 0
    assert at(call("pow", X, Y), Y, 0.0, 2.0) == 0
    assert at(call("pow", X, Y), X, -2.0, 3.0) == 12
    assert math.isnan(at(call("pow", X, Y), Y, -2.0, 3.0))
    assert at(call("copysign", X, Y), X, 0.0, 1.0) == 0
    assert at(call("copysign", X, Y), X, -INF, 1.0) == -1
    assert math.isnan(at(abs(X), X, NAN))


def test_derivatives_are_tidy():
    x = load(0, "float32")
    assert repr(derive(x * 3 + 1, x)) == "3.0"
    assert repr(derive(cast(cast(x, "int32"), "float32"), x)) == "0.0"
    assert repr(derive(load(1, "float32"), x)) == "0.0"
    assert repr(derive(call("exp", x), x)) == "exp(x0)"
    assert repr(derive(call("log", x), x)) == "div(1.0, x0)"
    assert repr(derive(x * x / 3, x)) == "div(add(x0, x0), 3.0)"
    assert repr(derive(x**3.0, x)) == "mul(3.0, pow(x0, 2.0))"
    assert repr(derive(2 - x, x)) == "-1.0"
    assert derive(x, x) is constant(1, "float32")


def test_derivatives_of_bits_are_refused():
    x = load(0, "float32")
    with pytest.raises(TypeError, match="takes the bits"):
        derive(bitcast(bitcast(x, "int32") + 1, "float32"), x)
    with pytest.raises(TypeError, match="expected a leaf"):
        derive(x * 2, x * 2)
