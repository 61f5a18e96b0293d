"""Special functions at their edges, and what NumPy has beside them."""

import math

import numpy as np
import pytest

import weft as wf
import weft.functional as F

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "gamma": [
            (0.0, INF),
            (-0.0, -INF),
            (-1.0, NAN),
            (INF, INF),
            (-INF, NAN),
            (180.0, INF),
            (NAN, NAN),
            (5.0, 24.0),
        ],
        "lgamma": [
            (0.0, INF),
            (-0.0, INF),
            (-3.0, INF),
            (INF, INF),
            (-INF, INF),
            (1.0, 0.0),
            (2.0, 0.0),
            (NAN, NAN),
        ],
        "digamma": [(0.0, -INF), (-0.0, INF), (-1.0, NAN), (INF, INF), (NAN, NAN)],
        "erfinv": [(1.0, INF), (-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-2.0, NAN), (NAN, NAN)],
        "sinc": [(0.0, 1.0), (-0.0, 1.0), (1.0, -0.0), (INF, NAN)],
        "logit": [(0.0, -INF), (1.0, INF), (-0.5, NAN), (1.5, NAN)],
    }.items(),
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_edges(name, values, dtype):
    x, want = map(np.array, zip(*values, strict=True))
    got = getattr(F, name)(wf.tensor(x, dtype=dtype)).astype("float64").numpy()
    np.testing.assert_allclose(got, want, atol=1e-6)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("name", ["gamma", "lgamma"])
def test_against_c(name):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 3, 300), rng.uniform(0, 170, 300), 10.0 ** rng.uniform(-300, 1, 100)])
    x = np.concatenate([x, -rng.uniform(0, 20, 300), -(10.0 ** rng.uniform(-307.5, 1, 100))])
    if name == "lgamma":
        x = np.concatenate([x, [-5e-324, -3e-320, -1e-308, 5e-324]])
    want = np.array([getattr(math, name)(v) for v in x])
    got = getattr(F, name)(wf.tensor(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-14, atol=2e-15)


def test_digamma_and_its_derivatives_by_recurrence():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(0.01, 30, 500), -rng.uniform(0.05, 0.95, 50) - rng.integers(0, 5, 50)])
    a, b = wf.tensor(x), wf.tensor(x + 1)
    np.testing.assert_allclose((F.digamma(b) - F.digamma(a)).numpy(), 1 / x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose((F.polygamma(a, 1) - F.polygamma(b, 1)).numpy(), x**-2, rtol=1e-11, atol=1e-11)
    positive = wf.tensor(x[x > 0])
    for n in (1, 2, 3):
        slopes = wf.grad(lambda v, n=n: F.polygamma(v, n - 1).sum())(positive)
        np.testing.assert_allclose(slopes.numpy(), F.polygamma(positive, n).numpy(), rtol=1e-9)


def test_erfinv_in_the_tails():
    x = np.concatenate([1 - 10.0 ** -np.arange(1, 16.0), 10.0 ** -np.arange(1, 300, 20.0)])
    y = F.erfinv(wf.tensor(x))
    np.testing.assert_allclose(F.erfc(y).numpy()[:15], (1 - x)[:15], rtol=5e-14)
    np.testing.assert_allclose(y.numpy()[15:], x[15:] * math.sqrt(math.pi) / 2, rtol=1e-2)
    np.testing.assert_array_equal(F.erfinv(wf.tensor(-x)).numpy(), -y.numpy())


@pytest.mark.parametrize("order", range(1, 5))
def test_derivatives_of_sinc_at_zero(order):
    f = F.sinc
    for _ in range(order):
        f = wf.grad(f)
    want = {1: 0.0, 2: -(math.pi**2) / 3, 3: 0.0, 4: math.pi**4 / 5}[order]
    assert f(wf.tensor(0.0, dtype="float64")).item() == pytest.approx(want, abs=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_next_numbers(dtype):
    values = np.array(
        [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, np.finfo(dtype).max, np.finfo(dtype).tiny, 1e-7], dtype
    )
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        got, want = wf.nextafter(wf.tensor(a), wf.tensor(b)).numpy(), np.nextafter(a, b)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.where(a == b, b, want)))


def test_the_next_bfloat16():
    one = wf.tensor(1.0, dtype="bfloat16")
    assert (wf.nextafter(one, 2.0) - one).item() == 2.0**-7
    assert (one - wf.nextafter(one, 0.0)).item() == 2.0**-8


def test_gradients_of_xlogy_at_zero():
    da, db = wf.grad(lambda a, b: F.xlogy(a, b), argnums=(0, 1))(wf.tensor(0.0), wf.tensor(2.0))
    assert (da.item(), db.item()) == (pytest.approx(math.log(2)), 0.0)
    da, db = wf.grad(lambda a, b: F.xlogy(a, b), argnums=(0, 1))(wf.tensor(0.0), wf.tensor(0.0))
    assert (da.item(), db.item()) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["atan2", "copysign", "hypot", "logaddexp", "pow", "remainder", "xlogy"])
def test_gradients_beside_numbers_are_of_the_operands_type(name):
    function, x = getattr(F, name), wf.tensor([1.0, 2.0], dtype="bfloat16")
    for call in (lambda x: F.sum(function(x, 3)), lambda x: F.sum(function(3, x))):
        assert wf.grad(call)(x).dtype == wf.bfloat16
