"""The gradients of outputs that are losses, which are those of the losses in NumPy and not what comes from above."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F

RNG = np.random.default_rng(3)


def slope(f, x):
    """The gradient under one that must not be read."""
    return wf.grad(lambda x: (f(x) * 7 + 1).sum())(wf.tensor(x)).numpy()


def test_regression():
    x, label = RNG.standard_normal((3, 2)), RNG.random((3, 2))
    t = wf.tensor(label)
    np.testing.assert_allclose(
        slope(lambda x: F.linear_regression_output(x, t, scale=3.0), x), (x - label) * 1.5
    )
    np.testing.assert_allclose(slope(lambda x: F.mae_regression_output(x, t), x), np.sign(x - label) / 2)
    logistic = 1 / (1 + np.exp(-x)) - label
    np.testing.assert_allclose(slope(lambda x: F.logistic_regression_output(x, t), x), logistic / 2)


@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
@pytest.mark.parametrize("ignored", [None, 2.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_softmax_output(normalization, ignored, smoothing):
    x, label = RNG.standard_normal((4, 3, 2)), np.array([[0, 2], [1, 1], [2, 2], [0, 1]])
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    onehot = np.moveaxis(np.eye(3)[label], -1, 1)
    target = np.where(onehot == 1, 1 - smoothing, smoothing / 2)
    counts = np.ones(label.shape) if ignored is None else label != ignored
    want = (p - target) * counts[:, None] / {"null": 1, "batch": 4, "valid": counts.sum()}[normalization]
    options = {"normalization": normalization, "ignore_label": ignored, "smoothing": smoothing}
    for kind in ("int64", "float32"):
        given = wf.tensor(label).astype(kind)
        found = slope(lambda x, given=given: F.softmax_output(x, given, scale=2.0, **options), x)
        np.testing.assert_allclose(found, want * 2, rtol=1e-12)


@pytest.mark.parametrize("linear", [False, True])
def test_svm_output(linear):
    x, label = RNG.standard_normal((4, 3)) * 2, np.array([0, 2, 1, 1])
    side = np.where(np.eye(3)[label] == 1, 1.0, -1.0)
    gap = np.maximum(1 - side * x, 0)
    want = -side * (gap > 0 if linear else 2 * gap)
    np.testing.assert_allclose(slope(lambda x: F.svm_output(x, wf.tensor(label), linear=linear), x), want)


def test_losses_and_multiplied_gradients():
    x = np.array([[3.0, -1.0], [0.5, 2.0]])
    assert slope(lambda x: F.make_loss(x, scale=2.0), x).tolist() == [[2, 2], [2, 2]]
    assert slope(lambda x: F.make_loss(x, normalization="batch"), x).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    by_valid = slope(lambda x: F.make_loss(x, normalization="valid", valid_threshold=1.0), x)
    assert by_valid.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert slope(lambda x: F.gradient_multiplier(x, -0.5), x).tolist() == [[-3.5, -3.5], [-3.5, -3.5]]


def test_an_executor_needs_no_gradient_from_above():
    x = wf.symbol.var("x")
    y = wf.symbol.softmax_output(x, wf.symbol.var("label"))
    executor = y.simple_bind(x=(2, 3), label=(2,)) if hasattr(y, "simple_bind") else None
    if executor is None:
        pytest.skip("symbols are bound otherwise")
    executor.forward(is_train=True, x=wf.zeros((2, 3)), label=wf.tensor([0.0, 2.0]))
    executor.backward()
    np.testing.assert_allclose(executor.grad_dict["x"].numpy()[0], [1 / 3 - 1, 1 / 3, 1 / 3], rtol=1e-6)


def test_kl_sparsity():
    """What is added is the gradient of the divergence of the running mean, per unit of that mean."""
    x, old = RNG.random((5, 2)) * 0.6 + 0.2, np.array([0.3, 0.6])
    mean = wf.tensor(old)
    options = {"target": 0.2, "penalty": 0.5, "momentum": 0.7}
    got = wf.grad(lambda x: (F.kl_sparsity(x, mean, **options) * 7).sum())(wf.tensor(x)).numpy()
    now = 0.7 * old + 0.3 * x.mean(axis=0)
    np.testing.assert_allclose(mean.numpy(), now)
    h = 1e-6

    def divergence(m):
        return 0.2 * np.log(0.2 / m) + 0.8 * np.log(0.8 / (1 - m))

    slope = (divergence(now + h) - divergence(now - h)) / (2 * h)
    np.testing.assert_allclose(got, np.broadcast_to(7 + 0.5 * slope, x.shape), rtol=1e-6)
    got = wf.grad(lambda x: (F.kl_sparsity(x, mean, training=False, **options) * 7).sum())(wf.tensor(x))
    assert (got.numpy() == 7).all()
    np.testing.assert_allclose(mean.numpy(), now)
