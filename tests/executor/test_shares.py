"""Loops that several threads share out come to the same bits as on one."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core

ROWS, COLUMNS = 260, 1030

FUNCTIONS = {
    "elements": lambda x, labels: wf.exp(x) * x,
    "rows that ask where in them they are": lambda x, labels: F.cross_entropy(x, labels, reduction="none"),
    "elements that ask for their row and column": lambda x, labels: wf.tril(x),
    "few rows": lambda x, labels: F.softmax(x.reshape((2, -1)), axis=1),
    "rows side by side": lambda x, labels: wf.sum(x, axis=0),
    "long rows side by side": lambda x, labels: wf.sum(x.reshape((-1, 10)), axis=0),
    "long rows side by side, in stages": lambda x, labels: F.batch_norm(
        x.reshape((-1, 10)), None, None, training=True
    ),
    "across": lambda x, labels: x[:, :ROWS].T + x[:, :ROWS],
    "numbers of rows": lambda x, labels: x - wf.max(x, axis=1, keepdims=True),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_the_same_bits_for_any_number_of_threads(case):
    rng = np.random.default_rng(5)
    x = wf.asarray(rng.standard_normal((ROWS, COLUMNS)).astype("float32"))
    labels = wf.asarray(rng.integers(0, COLUMNS, (ROWS,)))
    before, found = _core.set_team_size(1), []
    try:
        for threads in (1, 2, 5):
            _core.set_team_size(threads)
            found.append(FUNCTIONS[case](x, labels).numpy())
    finally:
        _core.set_team_size(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_gradient_that_asks_where_it_is():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((ROWS, COLUMNS)).astype("float32")
    labels = rng.integers(0, COLUMNS, (ROWS,))
    logits, manager = wf.asarray(x), wf.GradManager()
    manager.attach([logits])
    with manager:
        manager.backward(F.cross_entropy(logits, wf.asarray(labels)))
    shares = np.exp(x.astype("float64") - x.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(ROWS), labels] -= 1
    np.testing.assert_allclose(logits.grad.numpy(), shares / ROWS, atol=1e-8)
