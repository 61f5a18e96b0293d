"""Scans by associative functions: against a loop, with structures, gradients, traces and vmap."""

import numpy as np
import pytest

import weft as wf


def compose(first, second):
    """Affine maps x -> a x + b, one after the other."""
    return first[0] * second[0], first[1] * second[0] + second[1]


def by_loop(a, b, reverse):
    order = range(len(a))[::-1] if reverse else range(len(a))
    results, last = np.zeros((2, *a.shape)), None
    for k in order:
        last = (a[k], b[k]) if last is None else compose(last, (a[k], b[k]))
        results[:, k] = last
    return results


@pytest.mark.parametrize("reverse", [False, True])
def test_values_of_every_length(reverse):
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 3, 4, 5, 8, 13, 31):
        a, b = rng.uniform(0.5, 1.5, (2, n, 2))
        got = wf.associative_scan(compose, (wf.tensor(a), wf.tensor(b)), reverse=reverse)
        want = by_loop(a, b, reverse)
        for y, w in zip(got, want, strict=True):
            np.testing.assert_allclose(y.numpy(), w, rtol=1e-12)
        got = wf.associative_scan(compose, (wf.tensor(a.T), wf.tensor(b.T)), reverse=reverse, axis=-1)
        np.testing.assert_allclose(got[1].numpy(), want[1].T, rtol=1e-12)


def test_gradient_trace_and_vmap():
    x = wf.tensor(np.random.default_rng(1).uniform(0.5, 1.5, (3, 7)))

    def total(row):
        return (wf.associative_scan(lambda p, q: p * q, row) ** 2).sum()

    want = wf.grad(lambda row: (wf.cumulative_prod(row) ** 2).sum())(x[0]).numpy()
    np.testing.assert_allclose(wf.grad(total)(x[0]).numpy(), want)
    traced = wf.trace(wf.grad(total))
    for _ in range(2):
        np.testing.assert_allclose(traced(x[0]).numpy(), want)
    np.testing.assert_allclose(wf.vmap(wf.grad(total))(x).numpy()[0], want)


def test_errors_say_what_differs():
    with pytest.raises(wf.ShapeError, match=r"same size along axis 0: shapes are \(2,\), \(3,\)"):
        wf.associative_scan(compose, (wf.ones(2), wf.ones(3)))
    with pytest.raises(ValueError, match="elems has no arrays"):
        wf.associative_scan(compose, ())
