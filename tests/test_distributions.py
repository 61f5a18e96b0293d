"""Distributions: their distribution functions, gradients in parameters, keys, generators; and where they may be
drawn."""

import numpy as np
import pytest
from scipy import special, stats

import weft as wf
from weft import random

COUNT = 20000
KEY = 5

CONTINUOUS = {
    "exponential": ((2.0,), stats.expon(scale=0.5)),
    "laplace": ((1.0, 2.0), stats.laplace(1, 2)),
    "cauchy": ((1.0, 2.0), stats.cauchy(1, 2)),
    "gumbel": ((1.0, 2.0), stats.gumbel_r(1, 2)),
    "logistic": ((1.0, 2.0), stats.logistic(1, 2)),
    "lognormal": ((1.0, 0.5), stats.lognorm(0.5, scale=np.e)),
    "weibull": ((1.5, 2.0), stats.weibull_min(1.5, scale=2)),
    "pareto": ((2.5, 2.0), stats.pareto(2.5, scale=2)),
    "truncated_normal": ((-1.0, 4.0, 1.0, 2.0), stats.truncnorm(-1, 1.5, 1, 2)),
    "gamma": ((3.0, 2.0), stats.gamma(3, scale=0.5)),
    "chisquare": ((5.0,), stats.chi2(5)),
    "beta": ((0.5, 2.0), stats.beta(0.5, 2)),
    "student_t": ((3.0,), stats.t(3)),
    "normal": ((1.0, 2.0), stats.norm(1, 2)),
    "uniform": ((1.0, 3.0), stats.uniform(1, 2)),
}
COUNTS = {
    "geometric": ((0.3,), stats.geom(0.3)),
    "poisson": ((3.0,), stats.poisson(3)),
    "binomial": ((10, 0.7), stats.binom(10, 0.7)),
    "negative_binomial": ((3.0, 0.4), stats.nbinom(3, 0.4)),
}
LARGE_COUNTS = {
    "poisson": [((45.0,), stats.poisson(45)), ((1e9,), stats.poisson(1e9))],
    "binomial": [((100, 0.3), stats.binom(100, 0.3)), ((10**9, 0.9), stats.binom(10**9, 0.9))],
}


def drawn(name, parameters, count=COUNT, **options):
    y = getattr(random, name)(*parameters, shape=count, key=random.key(KEY), **options)
    return y.astype("float64").numpy()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_distribution_functions(name):
    parameters, right = CONTINUOUS[name]
    for dtype in ("float32", "float64"):
        assert stats.kstest(drawn(name, parameters, dtype=dtype), right.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (3.9, np.inf),
        (4.1, np.inf),
        (8.0, 9.0),
        (-9.0, -8.0),
        (8.0, 8.0 + 2**-10),
        (-np.inf, -12.0),
        (30.0, 31.0),
    ],
)
def test_truncated_normal_in_the_tails(lower, upper):
    """By the distribution function of the tail, in logarithms, since it is 1 there."""
    x = drawn("truncated_normal", (lower, upper), dtype="float64")
    assert lower <= x.min()
    assert x.max() <= upper
    if upper < 0:
        x, lower, upper = -x, -upper, -lower
    ends = stats.norm.logsf([lower, upper])
    beyond = np.exp(stats.norm.logsf(x) - ends[0])
    shares = (1 - beyond) / (1 - np.exp(ends[1] - ends[0]))
    assert stats.kstest(shares, stats.uniform.cdf).pvalue > 1e-3
    single = drawn("truncated_normal", (lower, upper), dtype="float32")
    np.testing.assert_allclose(
        single, np.abs(drawn("truncated_normal", (lower, upper), dtype="float64")), rtol=1e-5
    )


@pytest.mark.parametrize("ends", [(8.0, 9.0), (-9.0, -8.0), (-1.0, 1.5)])
def test_gradients_of_truncated_normal(ends):
    def total(*parameters):
        return random.truncated_normal(*parameters, shape=(5,), key=random.key(KEY)).sum()

    at = [*ends, 0.1, 1.2]
    slopes = wf.grad(total, argnums=(0, 1, 2, 3))(*(wf.tensor(v, dtype="float64") for v in at))
    for k, slope in enumerate(slopes):
        near = [[v + step * (i == k) for i, v in enumerate(at)] for step in (-1e-6, 1e-6)]
        low, high = (total(*(wf.tensor(v, dtype="float64") for v in values)).item() for values in near)
        np.testing.assert_allclose(slope.item(), (high - low) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype):
    for name, (parameters, right) in CONTINUOUS.items():
        x = getattr(random, name)(*parameters, shape=500, dtype=dtype, key=random.key(KEY))
        assert x.dtype.name == dtype
        assert abs(np.median(x.astype("float64").numpy()) - right.median()) < 0.3 * (
            right.ppf(0.7) - right.ppf(0.3)
        )


@pytest.mark.parametrize("alpha", [1e-2, 0.1, 0.99, 1.0, 30.0, 1e6])
def test_gamma_of_all_shapes(alpha):
    assert stats.kstest(drawn("gamma", (alpha,), dtype="float64"), stats.gamma(alpha).cdf).pvalue > 1e-3


def test_beta_and_dirichlet_of_tiny_shapes_are_finite():
    x = random.dirichlet(wf.full((100, 4), 1e-3), key=random.key(KEY)).numpy()
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-6)
    assert stats.kstest(drawn("beta", (0.2, 1.0), dtype="float64"), stats.beta(0.2, 1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", COUNTS)
def test_probabilities_of_counts(name):
    parameters, right = COUNTS[name]
    y = drawn(name, parameters)
    values = np.arange(y.max() + 1)
    expected = right.pmf(values) * COUNT
    often = expected > 5
    observed = np.array([(y == v).sum() for v in values])
    rest = [COUNT - observed[often].sum()], [COUNT - expected[often].sum()]
    observed, expected = (np.append(x[often], r) for x, r in zip((observed, expected), rest, strict=True))
    kept = expected > 0
    assert stats.chisquare(observed[kept], expected[kept] * COUNT / expected[kept].sum()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "parameters", "right"), [(n, *case) for n, cases in LARGE_COUNTS.items() for case in cases]
)
def test_large_counts(name, parameters, right):
    """Made continuous by a number in (-1/2, 1/2) each."""

    def share_below(v):
        count = np.floor(v + 0.5)
        return right.cdf(count) - right.pmf(count) * (count + 0.5 - v)

    y = drawn(name, parameters) + np.random.default_rng(0).uniform(-0.5, 0.5, COUNT)
    assert stats.kstest(y, share_below).pvalue > 1e-3


def test_limits_of_counts():
    key = random.key(1)
    assert random.poisson(0.0, 4, key=key).tolist() == [0] * 4
    assert random.binomial(7, wf.tensor([0.0, 1.0]), key=key).tolist() == [0, 7]
    assert random.binomial(0, 0.5, 2, key=key).tolist() == [0, 0]
    assert random.geometric(1.0, 3, key=key).tolist() == [1, 1, 1]
    assert random.gamma(0.0, shape=2, key=key).tolist() == [0, 0]
    assert np.isnan(random.gamma(-1.0, shape=2, key=key).numpy()).all()
    assert random.poisson(3.0, (0, 2), key=key).shape == (0, 2)


def test_multinomial():
    p = np.array([[0.2, 0.5, 0.0, 0.3], [0, 0, 1, 0]])
    y = random.multinomial(50, wf.tensor(p), (4000, 2, 4), key=random.key(KEY)).numpy()
    assert (y.sum(-1) == 50).all()
    assert (y[:, 1] == [0, 0, 50, 0]).all()
    np.testing.assert_allclose(y[:, 0].mean(0), 50 * p[0], atol=0.2)
    covariance = 50 * (np.diag(p[0]) - np.outer(p[0], p[0]))
    np.testing.assert_allclose(np.cov(y[:, 0].T), covariance, atol=0.6)


def test_categorical_and_choice():
    logits = wf.log(wf.tensor([[0.1, 0.0, 0.6, 0.3], [0.0, 1.0, 0.0, 0.0]]))
    y = random.categorical(logits, 20000, key=random.key(KEY)).numpy()
    np.testing.assert_allclose(np.bincount(y[0], minlength=4) / 20000, [0.1, 0, 0.6, 0.3], atol=0.01)
    assert (y[1] == 1).all()
    assert random.categorical(logits, key=random.key(KEY)).shape == (2,)
    drawn_twice = random.choice(6, 4, replace=False, p=wf.tensor([1.0, 1, 0, 1, 1, 0]), key=random.key(KEY))
    assert sorted(drawn_twice.tolist()) == [0, 1, 3, 4]
    assert random.choice(wf.zeros((5, 2)), (3, 2), key=random.key(KEY)).shape == (3, 2, 2)
    with pytest.raises(ValueError, match="choice: 3 of 2 cannot be drawn without replacing"):
        random.choice(2, 3, replace=False)


def test_shuffle_and_permutation_by_key():
    x = wf.arange(50)
    random.shuffle(x, key=random.key(1))
    assert sorted(x.tolist()) == list(range(50)) != x.tolist()
    assert x.tolist() == random.permutation(50, key=random.key(1)).tolist()


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 3.0, 40.0, 3e3, 2e5])
def test_gradient_of_gamma(alpha):
    """At the same value of the distribution function."""
    a = wf.full((200,), alpha, dtype="float64")
    x = random.gamma(a, key=random.key(KEY)).numpy()
    slopes = wf.grad(lambda a: random.gamma(a, key=random.key(KEY)).sum())(a).numpy()
    share = special.gammainc(alpha, x)
    middle = (share > 1e-3) & (share < 0.999)
    h = alpha * 1e-5
    right = (special.gammaincinv(alpha + h, share) - special.gammaincinv(alpha - h, share)) / (2 * h)
    np.testing.assert_allclose(slopes[middle], right[middle], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("name", sorted({*CONTINUOUS} - {"gamma", "chisquare"}))
def test_gradients_of_parameters(name):
    """Against differences; those of rejection at the same bits jump where a candidate is rejected."""
    parameters = [wf.full((8,), p, dtype="float64") for p in CONTINUOUS[name][0]]
    key = random.key(KEY)

    def draw(*values):
        return getattr(random, name)(*values, key=key, dtype="float64")

    gradients = wf.grad(lambda *v: draw(*v).sum(), tuple(range(len(parameters))))(*parameters)
    if name in ("beta", "student_t"):
        assert all(np.isfinite(g.numpy()).all() for g in gradients)
        return
    for k, gradient in enumerate(gradients):
        moved = [[p + s * 1e-6 if j == k else p for j, p in enumerate(parameters)] for s in (1, -1)]
        difference = (draw(*moved[0]) - draw(*moved[1])).numpy() / 2e-6
        np.testing.assert_allclose(gradient.numpy(), difference, rtol=1e-5, atol=1e-7)


def test_mean_gradient_of_beta():
    """d E[x] / da of beta(a, b), by its formula."""
    a = wf.full((COUNT,), 2.0, dtype="float64")
    slopes = wf.grad(lambda a: random.beta(a, 3.0, key=random.key(KEY)).sum())(a).numpy()
    assert abs(slopes.mean() - 3 / 25) < 4 * slopes.std() / COUNT**0.5


@pytest.mark.parametrize("name", [*CONTINUOUS, *COUNTS])
def test_traces_symbols_and_examples_draw_what_calls_draw(name):
    parameters = (CONTINUOUS | COUNTS)[name][0]
    key, first = random.key(3), wf.full((4,), parameters[0])

    def draw(key, x):
        return getattr(random, name)(x, *parameters[1:], key=key)

    right = draw(key, first).numpy()
    np.testing.assert_array_equal(wf.trace(draw)(key, first).numpy(), right)
    symbol = draw(wf.symbol.var("key", dtype="uint64"), wf.symbol.var("x"))
    np.testing.assert_allclose(symbol.eval(key=key, x=first)[0].numpy(), right, rtol=1e-6)
    keys = random.split(key, 3)
    rows = wf.vmap(draw, (0, None))(keys, first)
    for k in range(3):
        np.testing.assert_allclose(rows[k].numpy(), draw(keys[k], first).numpy(), rtol=1e-6)


def test_examples_draw_from_the_stream():
    rate = wf.ones(4)
    different = wf.vmap(lambda x: random.exponential(x))(rate).numpy()
    assert len(set(different.tolist())) == 4
    same = wf.vmap(lambda x: random.gamma(x), randomness="same")(rate).numpy()
    assert len(set(same.tolist())) == 1
    with pytest.raises(NotImplementedError, match="draws random numbers"):
        wf.vmap(lambda x: random.poisson(x), randomness="error")(rate)


def test_the_stream_decides():
    before = random.get_state()
    try:
        random.seed(1)
        a, b = random.gamma(2.0, shape=3), random.gamma(wf.tensor(2.0), shape=3)
        random.seed(1)
        np.testing.assert_array_equal(random.gamma(2.0, shape=3).numpy(), a.numpy())
        assert (a.numpy() != b.numpy()).all()
    finally:
        random.set_state(before)


def test_keys():
    key = random.key(3)
    keys = np.concatenate([random.split(key, 1000).numpy(), random.fold_in(key, 0).numpy()[None]])
    assert len({tuple(k) for k in keys}) == 1001
    many = random.normal(shape=(2, 300), key=key).numpy()
    np.testing.assert_array_equal(random.normal(shape=600, key=key).numpy(), many.ravel())
    with pytest.raises(wf.DTypeError, match=r"a key is uint64\[2\]"):
        random.normal(key=wf.zeros(2))
    with pytest.raises(wf.ShapeError, match=r"a key is uint64\[2\]"):
        random.normal(key=random.split(key))
    with pytest.raises(ValueError, match="key: seed must be"):
        random.key(-1)


def test_generators():
    a, b = random.Generator(3), random.Generator(3)
    step = wf.trace(lambda: random.normal(shape=2, key=a))
    for _ in range(3):
        np.testing.assert_array_equal(step().numpy(), random.normal(shape=2, key=b).numpy())
    assert a.state[2].item() == 3
    assert random.Generator().state.tolist() != random.Generator().state.tolist()


def test_errors():
    with pytest.raises(wf.ShapeError, match="sizes 3 and 2 in dimension -1 do not fit"):
        random.exponential(wf.ones(3), (3, 2))
    with pytest.raises(wf.DTypeError, match="dtype must be a float, got int64"):
        random.gamma(1.0, dtype="int64")
    for call, message in (
        (lambda: random.poisson(-1.0), "rate must be in"),
        (lambda: random.binomial(2.5, 0.5), "trials must be an integer"),
        (lambda: random.binomial(2, 1.5), "p must be in"),
        (lambda: random.multinomial(2, wf.tensor([0.5, -0.1])), "at least 0"),
        (lambda: random.multinomial(2, wf.zeros(2)), "all chances of a row are 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call().item() if call().ndim == 0 else call().tolist()
    wf.clear_errors()
