"""Metrics against NumPy, over several batches."""

import math

import numpy as np
import pytest

import weft as wf
from weft import metrics
from weft.base.errors import DTypeError, ShapeError

rng = np.random.default_rng(0)
SCORES = rng.standard_normal((3, 8, 5)).astype("float32")
TARGETS = rng.integers(0, 5, (3, 8))
CLASSES = SCORES.argmax(-1)


def over_batches(metric, xs, targets):
    for x, t in zip(xs, targets, strict=True):
        metric.update(wf.tensor(x), wf.tensor(t))
    return metric.compute()


def matrix():
    want = np.zeros((5, 5), int)
    np.add.at(want, (TARGETS.ravel(), CLASSES.ravel()), 1)
    return want


def test_accuracy():
    want = (CLASSES == TARGETS).mean()
    assert over_batches(metrics.Accuracy(), SCORES, TARGETS) == pytest.approx(want)
    assert over_batches(metrics.Accuracy(), CLASSES, TARGETS) == pytest.approx(want)
    assert over_batches(metrics.Accuracy(), [SCORES], [TARGETS]) == pytest.approx(want)  # [3, 8, 5]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k(k):
    best = np.argsort(-SCORES, axis=-1)[..., :k]
    want = (best == TARGETS[..., None]).any(-1).mean()
    assert over_batches(metrics.TopKAccuracy(k), SCORES, TARGETS) == pytest.approx(want)


def test_confusion():
    np.testing.assert_array_equal(over_batches(metrics.ConfusionMatrix(5), SCORES, TARGETS).numpy(), matrix())


@pytest.mark.parametrize("average", ["macro", "micro", "none"])
def test_f1(average):
    m = matrix()
    scores = [2 * m[c, c] / (m[c].sum() + m[:, c].sum()) for c in range(5)]
    want = {"macro": np.mean(scores), "micro": np.trace(m) / m.sum(), "none": scores}[average]
    np.testing.assert_allclose(over_batches(metrics.F1Score(5, average), SCORES, TARGETS), want)
    assert metrics.F1Score(2).compute() == 0


def test_means():
    losses = metrics.Mean()
    losses.update(wf.tensor([1.0, 2.0]))
    losses.update(6.0, 2)
    assert losses.compute() == pytest.approx((1 + 2 + 12) / 4)
    losses.reset()
    assert math.isnan(losses.compute())
    x, t = SCORES, SCORES[::-1]
    assert over_batches(metrics.MeanSquaredError(), x, t) == pytest.approx(((x - t) ** 2).mean())


def test_large_counts_are_exact():
    mean = metrics.Mean()
    for _ in range(3):
        mean.update(wf.tensor(2.0**24), 1)
        mean.update(wf.tensor(1.0), 1)
    assert mean.compute() == (2**24 + 1) / 2


def test_nothing_yet():
    for metric in (metrics.Accuracy(), metrics.TopKAccuracy(1), metrics.MeanSquaredError()):
        assert math.isnan(metric.compute())


def test_reset():
    metric = metrics.Accuracy()
    metric.update(wf.tensor([1]), wf.tensor([0]))
    metric.reset()
    metric.update(wf.tensor([1]), wf.tensor([1]))
    assert metric.compute() == 1


def test_updates_are_not_recorded():
    w = wf.tensor([1.0, 2.0])
    gm, mean = wf.GradManager().attach([w]), metrics.Mean()
    with gm:
        loss = (w * w).sum()
        mean.update(loss)
        gm.backward(loss)
    np.testing.assert_array_equal(w.grad.numpy(), [2, 4])
    assert mean.compute() == 5


@pytest.mark.parametrize(
    ("metric", "x", "t", "error"),
    [
        (metrics.Accuracy, wf.zeros((2, 3)), wf.tensor([0, 1, 2]), ShapeError),
        (metrics.Accuracy, wf.zeros((2, 3)), wf.tensor([0.0, 1.0]), DTypeError),
        (lambda: metrics.TopKAccuracy(4), wf.zeros((2, 3)), wf.tensor([0, 1]), ShapeError),
        (metrics.MeanSquaredError, wf.zeros(2), wf.zeros((2, 1)), ShapeError),
    ],
)
def test_errors(metric, x, t, error):
    with pytest.raises(error, match=r"target is|classes"):
        metric().update(x, t)


def test_arguments():
    for make in (
        lambda: metrics.TopKAccuracy(0),
        lambda: metrics.ConfusionMatrix(0),
        lambda: metrics.F1Score(2, "mean"),
    ):
        with pytest.raises(ValueError, match=r"at least 1|average must be"):
            make()
