"""Complex numbers where the generated tests do not look: special values, types that meet, exchange, refusals."""

import cmath
import itertools
import math
import platform

import numpy as np
import pytest
from tests.expr.support import vectors

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.errors import DTypeError
from weft.executor.loop_code import LoopCode
from weft.expr import scalar as e
from weft.expr.compiler import _toolchain
from weft.expr.kernel import Each, Fold, Once, Reduction, Store
from weft.expr.llvm import print_kernel

pytestmark = pytest.mark.daily(2)

FUNCTIONS = (
    *("exp", "log", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 30.0, -30.0, math.inf, -math.inf, math.nan)
GRID = [complex(a, b) for a, b in itertools.product(PARTS, repeat=2)]


def by_library(name, z):
    try:
        return getattr(cmath, name)(z)
    except (ValueError, OverflowError):
        return None


def same(got, want, signs):
    if math.isnan(got) or math.isnan(want):
        return math.isnan(got) and math.isnan(want)
    if signs and got == want == 0:
        return math.copysign(1, got) == math.copysign(1, want)
    if not signs and abs(got) == abs(want):
        return True
    return math.isclose(got, want, rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    """As C99, annex G, which the array API repeats; NaN with a 0 beside it as the array API has it."""
    results = getattr(F, name)(wf.asarray(np.array(GRID))).numpy()
    for z, got in zip(GRID, results.tolist(), strict=True):
        want = by_library(name, z)
        turned = complex(-z.imag, z.real) if name == "tan" else z
        has_nan = math.isnan(z.real) or math.isnan(z.imag)
        if name in ("tan", "tanh", "acosh") and has_nan and turned.real == 0:
            want = None if name != "acosh" else complex(math.nan, math.pi / 2)
            assert name == "acosh" or turned.real in (got.real, got.imag), (z, got)
        if want is None:
            continue
        signs = not has_nan
        assert same(got.real, want.real, signs), (z, got, want)
        assert same(got.imag, want.imag, signs), (z, got, want)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name, dtype):
    """A few units in the last place of the magnitude, over eleven orders of it."""
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-9, 1.5, 4000)
    z = ((rng.standard_normal(4000) + 1j * rng.standard_normal(4000)) * size).astype(dtype)
    numpy_name = name.replace("a", "arc", 1) if name[0] == "a" else name
    want = getattr(np, numpy_name)(z.astype("complex128"))
    got = getattr(F, name)(wf.asarray(z)).numpy()
    unit = 2.0**-24 if dtype == "complex64" else 2.0**-53
    usual = (np.abs(want) > 1e-30) & (np.abs(want) < 1e30)
    assert usual.sum() > 3000
    error = np.abs(got - want)[usual] / np.abs(want)[usual] / unit
    assert error.max() < (1.5 if dtype == "complex64" else 8), error.max()


def test_large_and_small_magnitudes():
    """Squares of the parts are neither infinite nor 0 on the way."""
    z = np.array([1e300 + 1e300j, 1e-300 + 1e-300j, 3e200 - 4e200j, 5e-324 + 0j])
    x = wf.asarray(z)
    np.testing.assert_allclose(F.abs(x).numpy(), np.abs(z), rtol=1e-15)
    np.testing.assert_allclose(F.sqrt(x).numpy(), np.sqrt(z), rtol=1e-15)
    np.testing.assert_allclose(F.log(x).numpy(), np.log(z), rtol=1e-15)
    np.testing.assert_allclose((x / x).numpy()[:3], 1, rtol=1e-15)
    y = F.exp(
        wf.asarray(np.array([709.9 + 1.57j]))
    ).item()  # e^709.9 is infinite, its product with cos(1.57) is not
    assert math.isclose(y.real, math.exp(700) * math.cos(1.57) * math.exp(9.9), rel_tol=1e-10)


def test_a_real_operand_has_no_imaginary_part():
    """inf * (1 + 1j) is infinite in both parts; with 0j it would have NaN (array API, multiply)."""
    z = wf.tensor([1 + 1j])
    for real in (wf.tensor([math.inf]), math.inf):
        y = (z * real).item()
        assert (y.real, y.imag) == (math.inf, math.inf)
    y = (z / wf.tensor([0.0])).item()
    assert (y.real, y.imag) == (math.inf, math.inf)


def meets(a, b):
    return (wf.zeros(1, dtype=a) + wf.zeros(1, dtype=b)).dtype


def test_types_that_meet():
    for narrow in ("bool", "int8", "uint64", "int64", "float16", "bfloat16", "float32"):
        assert meets(narrow, "complex64") is wf.complex64
        x, z = wf.ones((1, 2), dtype=narrow), wf.tensor([[1j], [2.0]])
        assert (x @ z).tolist() == (z.T @ x.T).tolist() == [[2 + 1j]]
    assert meets("float64", "complex64") is wf.complex128
    assert meets("complex64", "complex128") is wf.complex128
    assert wf.result_type(wf.float64, 1j) is wf.complex128
    assert wf.result_type(wf.int8, 1j) is wf.complex64
    for dtype, want in (("float32", "complex64"), ("int64", "complex64"), ("float64", "complex128")):
        x = wf.ones(2, dtype=dtype)
        for y in (x * 1j, 1j * x, x + np.complex64(1j), x - 1j, 1j / x):
            assert y.dtype == want
    assert (wf.ones(2, dtype="complex64") * 2.5).dtype is wf.complex64
    assert wf.tensor([1j, 2.0]).dtype is wf.tensor([[1, 2j]]).dtype is wf.tensor(1j).dtype is wf.complex64


def test_exchange():
    for dtype in ("complex64", "complex128"):
        a = (np.arange(6) + 1j * np.arange(6)[::-1]).astype(dtype).reshape(2, 3)
        for lent in (a, a.T, a[:, ::2], a[::-1], a[:0], a[0, 0]):
            x = wf.asarray(lent)
            assert x.dtype == dtype
            np.testing.assert_array_equal(x.numpy(), lent)
            np.testing.assert_array_equal(np.from_dlpack(x), lent)
            np.testing.assert_array_equal(wf.from_dlpack(np.asarray(lent)).numpy(), lent)
            np.testing.assert_array_equal(x.copy().numpy(), lent)
            assert x.tolist() == lent.tolist()
        x = wf.asarray(a)
        assert memoryview(x).format == memoryview(a).format
        assert complex(x[1, 1]) == x[1, 1].item() == complex(a[1, 1])
        assert eval(repr(x).partition(", dtype")[0].replace("tensor(", "")) == a.tolist()


def test_conversions():
    """Between all types as NumPy has them."""
    numbers = np.array([0, 1, -3, 2.5, 0.1])
    for a, b in itertools.product(
        ("complex64", "complex128"), ("bool", "int16", "float16", "float64", "complex64")
    ):
        x = numbers.astype(b)
        np.testing.assert_array_equal(wf.asarray(x).astype(a).numpy(), x.astype(a))
    z = np.array([0, 1j, 2, np.nan, 1 + 2j])
    np.testing.assert_array_equal(wf.asarray(z).astype("bool").numpy(), z.astype("bool"))
    np.testing.assert_array_equal(F.cast(wf.asarray(z), dtype="float32").numpy(), z.real.astype("float32"))


def test_numbers_keep_their_digits():
    """A Python number is written in the array's precision, not by way of complex64."""
    z = complex(1 / 3, -2 / 3)
    x = wf.zeros(3, dtype="complex128")
    x[0] = z
    x[1:] = [z, 2 * z]
    assert x.tolist() == [z, z, 2 * z]
    assert (
        wf.full((2,), z, dtype="complex128").tolist()
        == wf.tensor([z, z], dtype="complex128").tolist()
        == [z, z]
    )
    with pytest.raises(DTypeError, match="no imaginary parts"):
        wf.full((2,), z, dtype="float32")
    with pytest.raises(DTypeError, match="no imaginary parts"):
        wf.tensor([z], dtype="float32")
    truths = wf.zeros(2, dtype="bool")
    truths[...] = wf.tensor([1j, 0])
    assert truths.tolist() == [True, False]


def test_files(tmp_path):
    x = wf.tensor([1 + 2j, 3j])
    wf.save(tmp_path / "x.safetensors", {"x": x})
    y = wf.load(tmp_path / "x.safetensors")["x"]
    assert y.dtype is wf.complex64
    assert y.tolist() == x.tolist()


REFUSED = {
    "asarray": lambda z: wf.asarray(z, dtype="float64"),
    "full": lambda z: wf.full((2,), z[0], dtype="float64"),
    "astype": lambda z: z.astype("float32"),
    "assignment": lambda z: wf.zeros(2).__setitem__(0, z[0]),
    "index_put": lambda z: wf.zeros(2).__setitem__([0, 1], z),
    "add": lambda z: wf.zeros(2).__iadd__(z),
    "sum": lambda z: wf.sum(z, dtype="float64"),
    "prod": lambda z: wf.prod(z, dtype="int64"),
    "cumulative_sum": lambda z: wf.cumulative_sum(z, dtype="float32"),
    "cumulative_prod": lambda z: wf.cumulative_prod(z, dtype="bool"),
    "less": lambda z: z < z,
    "max": wf.max,
    "argmin": wf.argmin,
    "maximum": lambda z: wf.maximum(z, z),
    "sort": wf.sort,
    "searchsorted": lambda z: wf.searchsorted(z, z),
    "topk": lambda z: F.topk(z, 1),
    "floor": wf.floor,
    "relu": F.relu,
    "softmax": F.softmax,
    "remainder": lambda z: z % z,
    "var": wf.var,
    "atan2": lambda z: wf.atan2(z, z),
    "clip": lambda z: wf.clip(z, 0, 1),
    "view_as_real": lambda z: F.view_as_real(wf.real(z)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    """With the operation and the operands; what needs an order, or would lose imaginary parts."""
    z = wf.tensor([1 + 2j, 3j])
    with pytest.raises(DTypeError, match=name) as caught:
        REFUSED[name](z)
    assert "@cpu:0" in str(caught.value) or name == "asarray"
    with pytest.raises(TypeError):
        float(z[0])


def test_gradients_are_those_of_both_parts():
    """dL/dRe(z) + i dL/dIm(z): against the direction in which L rises, as PyTorch's; JAX's is its conjugate."""
    z = wf.tensor([1 + 2j, -3 + 0.5j])
    np.testing.assert_allclose(wf.grad(lambda z: (abs(z) ** 2).sum())(z).numpy(), 2 * z.numpy())
    np.testing.assert_allclose(wf.grad(lambda z: wf.real(z * z).sum())(z).numpy(), np.conj(2 * z.numpy()))
    np.testing.assert_allclose(wf.grad(lambda z: wf.imag(z).sum())(z).numpy(), [1j, 1j])
    x = wf.tensor([0.5, 2.0])
    dx = wf.grad(lambda x: wf.imag(x * z).sum())(x)
    assert dx.dtype is wf.float32
    assert dx.tolist() == [2.0, 0.5]
    assert wf.grad(lambda z: abs(z).sum())(wf.zeros(2, dtype="complex64")).tolist() == [0, 0]


# From complex or real numbers to either; each is smooth where it is tried.
FORWARD = {
    "mul": lambda z: z * (1 + 2j) * z,
    "div": lambda z: (1 - 1j) / z,
    "pow": lambda z: z**3 + z ** (0.5 + 1j),
    "conj": lambda z: wf.conj(z) * (1 + 2j),
    "imag": lambda z: wf.imag(z * 3j),
    "real": lambda z: wf.real(z * (2 - 1j)) ** 2,
    "abs": abs,
    "angle": lambda z: F.angle(z * 1j),
    "exp": wf.exp,
    "log": wf.log,
    "sqrt": wf.sqrt,
    "sin": lambda z: wf.sin(z) * wf.cosh(z),
    "tanh": wf.tanh,
    "where": lambda z: wf.where(wf.real(z) > 0, z * 1j, wf.conj(z)),
    "matmul": lambda z: z @ wf.conj(z.T) * 1j,
    "prod": lambda z: wf.prod(z * 1j, axis=1),
    "cumulative_sum": lambda z: wf.cumulative_sum(z * 1j, axis=0),
    "fft": lambda z: wf.imag(wf.fft.fft(z)) + wf.real(wf.fft.fft(z)),
    "parts": lambda z: F.view_as_real(z * 1j),
    "foreach": lambda z: wf.foreach(lambda row, state: (row * state, state * 1j), z, wf.tensor(1 + 0j))[0],
}


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
@pytest.mark.parametrize("name", FORWARD)
def test_tangents_are_derivatives_along_a_direction(name, dtype):
    """jvp, linearize and jvp of jvp against differences: a vjp multiplies by the conjugate, and they do not."""
    rng = np.random.default_rng(3)
    a, da = rng.uniform(0.5, 1.5, (2, 2, 3)) + (
        1j * rng.uniform(0.2, 0.9, (2, 2, 3)) if dtype == "complex128" else 0
    )
    f, x, dx = FORWARD[name], wf.tensor(a), wf.tensor(da)

    def along(t):
        return f(wf.tensor(a + t * da)).numpy()

    h = 1e-3
    first = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
    second = (16 * (along(h) + along(-h)) - (along(2 * h) + along(-2 * h)) - 30 * along(0)) / (12 * h * h)
    y, dy = wf.jvp(f, (x,), (dx,))
    np.testing.assert_allclose(y.numpy(), along(0), rtol=1e-12)
    assert dy.dtype is y.dtype
    np.testing.assert_allclose(dy.numpy(), first, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(wf.linearize(f, x)[1](dx).numpy(), first, rtol=1e-8, atol=1e-8)
    twice = wf.jvp(lambda x: wf.jvp(f, (x,), (dx,))[1], (x,), (dx,))[1]
    np.testing.assert_allclose(twice.numpy(), second, rtol=1e-5, atol=1e-5)


def test_traces_and_programs_give_what_calls_give():
    z = wf.asarray(np.random.default_rng(0).standard_normal((6, 5, 2)) @ np.array([1, 1j]))

    def step(z):
        y = wf.exp(z * 0.5j) @ wf.conj(z.T) + z[:, :1]
        return y / wf.sum(y, axis=0), wf.cumulative_prod(wf.mean(abs(y), axis=1) * z[:, 0])

    traced = wf.trace(step)
    for _ in range(3):
        for a, b in zip(traced(z), step(z), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    dz = wf.grad(lambda z: wf.real(traced(z)[1]).sum())(z)
    np.testing.assert_allclose(
        dz.numpy(), wf.grad(lambda z: wf.real(step(z)[1]).sum())(z).numpy(), rtol=1e-10
    )
    batched = wf.vmap(lambda row: wf.sum(row * row))(z)
    np.testing.assert_allclose(batched.numpy(), (z.numpy() ** 2).sum(1), rtol=1e-12)


def test_long_rows_and_columns():
    """Sums and products in pieces, by several threads and side by side."""
    rng = np.random.default_rng(1)
    a = (rng.standard_normal((300, 4000)) + 1j * rng.standard_normal((300, 4000))).astype("complex64")
    x, wide = wf.asarray(a), a.astype("complex128")
    for axis in (None, 0, 1):
        np.testing.assert_allclose(wf.sum(x, axis=axis).numpy(), wide.sum(axis), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(
            F.vector_norm(x, axis=axis).numpy(), np.sqrt((abs(wide) ** 2).sum(axis)), rtol=1e-6
        )
    unit = np.exp(1j * rng.standard_normal((300, 4000)))
    for axis in (None, 0, 1):
        np.testing.assert_allclose(wf.prod(wf.asarray(unit), axis=axis).numpy(), unit.prod(axis), rtol=1e-9)
    np.testing.assert_array_equal(x.T.contiguous().numpy(), a.T)
    np.testing.assert_allclose((x.T + x.T.contiguous() * 2).numpy(), a.T * 3, rtol=1e-6)
    np.testing.assert_allclose(wf.cumulative_sum(x, axis=1).numpy(), wide.cumsum(1), rtol=1e-3, atol=1e-2)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="counts registers of x86")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_loops_are_vectors(dtype):
    """Parts are taken apart and put together by shuffles of whole registers, not loaded one by one."""
    z = e.load(0, dtype)
    stages = {
        "each": (Each((Store(0, z * z + z),)),),
        "sum": (Fold((Reduction(0, "sum", z * z),)), Once((Store(0, e.result(0, dtype)),))),
    }
    for name, each in stages.items():
        code = LoopCode(name, 1, (dtype, dtype), each, 1, 1, False)
        kernel = code.kernel(1, 1, False, -1, "uu" if name == "each" else "uz")
        listing = _toolchain().assembly(print_kernel(kernel))
        assert vectors(listing, _core.isa()[1]) >= 8, name
        assert "gather" not in listing


def test_a_gradient_is_that_of_a_real_number():
    with pytest.raises(DTypeError, match=r"start from real numbers, got complex64\n  hint: real"):
        wf.grad(lambda z: z.sum())(wf.tensor([1j]))
    manager = wf.GradManager().attach(z := wf.tensor([1j]))
    with manager:
        manager.backward(z * z, dy=wf.tensor([1j]))
    assert z.grad.tolist() == [2.0]


def test_vectors_in_batches_are_not_conjugated():
    a = wf.tensor([[1j, 2.0], [3.0, 1j]])
    np.testing.assert_array_equal(wf.vmap(wf.matmul)(a, a).numpy(), (a.numpy() ** 2).sum(1))
    np.testing.assert_array_equal(wf.vmap(wf.vecdot)(a, a).numpy(), (abs(a.numpy()) ** 2).sum(1))


def test_passes_keep_imaginary_parts():
    """Constants of graphs are real; zeros keep their signs; casts through complex types lose nothing."""

    @wf.trace
    def f(x):
        z = F.cast(x, dtype="complex64") * wf.full((2,), 2j)
        return z + 0, F.cast(F.cast(x, dtype="complex64"), dtype="float32"), z * wf.ones(2, dtype="complex64")

    x = wf.tensor([-0.0, 3.0])
    for _ in range(2):
        added, back, same = f(x)
        assert added.tolist() == same.tolist() == [0, 6j]
        assert back.dtype is wf.float32
        assert math.copysign(1, back[0].item()) == -1
    assert math.copysign(1, wf.trace(lambda z: z + 0)(wf.tensor([complex(-0.0, -0.0)])).item().real) == 1


def test_normal_numbers():
    wf.random.seed(0)
    z = wf.random.normal(1.0, 2.0, (20000,), dtype="complex128")
    assert z.dtype is wf.complex128
    parts = z.numpy().view("float64").reshape(-1, 2) - [1, 0]
    np.testing.assert_allclose(parts.std(0), math.sqrt(2), rtol=0.03)
    assert abs((parts[:, 0] * parts[:, 1]).mean()) < 0.05
