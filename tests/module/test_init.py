"""First values: their distribution, types, and seeds."""

import math

import numpy as np
import pytest

import weft as wf
from weft.base.errors import ShapeError
from weft.module import init


def made(name, *args, shape=(300, 200), dtype="float32", **attributes):
    x = wf.zeros(shape, dtype=dtype)
    wf.random.seed(5)
    getattr(init, name)(x, *args, **attributes)
    return x.astype("float64").numpy()


def test_constants():
    assert (made("zeros_") == 0).all()
    assert (made("ones_", dtype="float16") == 1).all()
    assert (made("constant_", 3) == 3).all()


@pytest.mark.parametrize(
    ("name", "args", "mean", "std", "bound"),
    [
        ("uniform_", (2.0, 4.0), 3, 2 / math.sqrt(12), 4),
        ("normal_", (1.0, 2.0), 1, 2, 12),
        ("xavier_uniform_", (), 0, math.sqrt(2 / 500), math.sqrt(6 / 500)),
        ("xavier_normal_", (2.0,), 0, 2 * math.sqrt(2 / 500), 1),
        ("kaiming_uniform_", (), 0, math.sqrt(2 / 200), math.sqrt(6 / 200)),
        ("kaiming_normal_", (0.0, "fan_out", "relu"), 0, math.sqrt(2 / 300), 1),
        ("trunc_normal_", (0.0, 1.0, -1.0, 1.0), 0, 0.5396, 1),
        ("trunc_normal_", (0.0, 1.0, 1.0, 3.0), 1.51005, 0.41648, 3),
    ],
)
def test_distributions(name, args, mean, std, bound):
    x = made(name, *args)
    assert abs(x.mean() - mean) < 4 * std / math.sqrt(x.size) + 1e-3
    np.testing.assert_allclose(x.std(), std, rtol=0.02)
    assert np.abs(x).max() <= bound
    np.testing.assert_array_equal(x, made(name, *args))  # the seed decides
    assert np.isfinite(made(name, *args, dtype="bfloat16")).all()


def test_truncated_normal_has_the_right_shares():
    x = made("trunc_normal_", 0.0, 1.0, -2.0, 0.5, shape=(100000,), dtype="float64")
    phi = [0.5 * (1 + math.erf(b / math.sqrt(2))) for b in (-2, -1, 0, 0.5)]
    for a, b, lo, hi in ((-2, -1, 0, 1), (-1, 0, 1, 2), (0, 0.5, 2, 3)):
        share = ((x >= a) & (x < b)).mean()
        assert abs(share - (phi[hi] - phi[lo]) / (phi[3] - phi[0])) < 0.01
    with pytest.raises(ValueError, match="needs low < high"):
        init.trunc_normal_(wf.zeros(2), low=1, high=1)


def test_orthogonal():
    for shape in ((3, 8), (8, 3), (4, 2, 2), (4, 4)):
        x = made("orthogonal_", shape=shape, dtype="float64").reshape(shape[0], -1)
        small = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
        np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-12)
    with pytest.raises(ShapeError, match="at least 2 dimensions"):
        init.orthogonal_(wf.zeros(3))


def test_fans_and_gains():
    assert init.fans(wf.zeros((5, 4))) == (4, 5)
    assert init.fans(wf.zeros((5, 4, 3, 2))) == (24, 30)
    with pytest.raises(ShapeError, match=r"got shape \(5,\)"):
        init.fans(wf.zeros(5))
    assert init.gain("relu") == math.sqrt(2)
    assert init.gain("leaky_relu", 0.5) == math.sqrt(2 / 1.25)
    with pytest.raises(ValueError, match="no nonlinearity 'x'; there are: leaky_relu, linear"):
        init.gain("x")
    with pytest.raises(ValueError, match="mode must be fan_in or fan_out"):
        init.kaiming_normal_(wf.zeros((2, 2)), mode="fan")


def test_writing_in_place_is_not_recorded():
    x = wf.zeros((2, 2))
    gm = wf.GradManager().attach([x])
    with gm:
        init.normal_(x)
        gm.backward((x * x).sum())
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy())


def test_without_draws():
    wf.random.seed(5)
    expected = wf.random.normal(shape=(4,)).tolist()
    wf.random.seed(5)
    with init.without_draws():
        net = wf.module.Linear(3, 2)
        x = wf.full((3, 3), 7.0)
        for draw in (init.uniform_, init.normal_, init.trunc_normal_, init.orthogonal_, init.xavier_normal_):
            draw(x)
        init.sparse_(x, 0.5)
        assert x.tolist() == [[7.0] * 3] * 3
    assert net.weight.shape == (2, 3)
    assert wf.random.normal(shape=(4,)).tolist() == expected
    init.normal_(x)
    assert (x != 7).all()
