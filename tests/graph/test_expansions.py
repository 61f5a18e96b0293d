"""What broadcasting makes large is computed for each loop that reads it; values are the reference's."""

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.executor.planner import make_plan
from weft.graph.graph import graph_of, interpret
from weft.graph.passes import optimize
from weft.ops import functions as F
from weft.ops.types import TensorType

from .test_passes import alone, kept, t

POINTS = [t(700, 5), t(600, 5)]


def apart(x, y):
    return F.expand_dims(x, axis=1) - F.expand_dims(y, axis=0)


def subtractions(function, types=POINTS):
    return str(alone("expansions", graph_of(function, types))).count("Subtract")


def test_each_set_of_axes_has_a_copy():
    assert subtractions(lambda x, y: [F.sum(apart(x, y), axis=a) for a in (0, 1, 2)]) == 3

    def of_squares(x, y):
        d = apart(x, y)
        return F.sum(d * d, axis=0), F.sum(abs(d), axis=0), F.max(d * d, axis=1)

    assert subtractions(of_squares) == 2  # those of one set share theirs


@pytest.mark.parametrize(
    ("function", "points"),
    [
        (lambda d: [F.sum(d, axis=0), F.max(d, axis=0)], 600),  # along the same axes
        (lambda d: [d, F.sum(d, axis=1)], 600),  # a caller gets it
        (lambda d: [F.sum(d, axis=0), F.max(d, axis=1), F.sort(d)], 600),  # a kernel reads it
        (lambda d: [F.sum(d, axis=a) for a in (0, 1)], 60),  # it stays in the cache
    ],
)
def test_others_are_kept(function, points):
    kept("expansions", lambda x, y: function(apart(x, y)), [t(points, 5), POINTS[1]])


def test_functions_are_not_computed_again():
    def f(x, y):
        weights = F.exp(apart(x, y))
        return F.sum(weights, axis=0), F.sum(weights, axis=1)

    kept("expansions", f, POINTS)


@pytest.mark.parametrize("ord", [1.0, 2.0, 3.0])
def test_gradients_of_distances(ord):
    rng = np.random.default_rng(int(ord))
    x, y, dy = (rng.normal(size=s) for s in ((130, 33), (70, 33), (130, 70)))
    y[:5] = x[:5]  # distances of 0 have no derivative, and 0 stands for it

    @wf.trace(lazy=True)
    def gradients(dy, x, y):
        _, pull = wf.vjp(lambda x, y: F.vector_norm(apart(x, y), axis=-1, ord=ord), x, y)
        return pull(dy)

    found = [g.numpy() for g in gradients(*map(wf.tensor, (dy, x, y)))]
    d = x[:, None] - y[None]
    norm = (abs(d) ** ord).sum(-1, keepdims=True) ** (1 / ord)
    with np.errstate(all="ignore"):
        slopes = np.where(norm == 0, 0, np.sign(d) * abs(d) ** (ord - 1) / norm ** (ord - 1)) * dy[..., None]
    np.testing.assert_allclose(found[0], slopes.sum(1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[1], -slopes.sum(0), rtol=1e-9, atol=1e-9)
    if ord == 2:  # other orders need functions
        report = gradients.programs[0].plan.info.memory_report()
        assert report.arena_bytes < d.nbytes / 10


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_bits_are_the_same(dtype):
    types = [TensorType((300, 1, 40), t(1, dtype=dtype).dtype), TensorType((50, 40), t(1, dtype=dtype).dtype)]
    rng = np.random.default_rng(0)
    arrays = [wf.tensor(rng.normal(size=each.shape).astype("float32")).astype(dtype) for each in types]

    def sums(x, y):
        d = (x - y) * 2 + y
        return [F.sum(d, axis=0), F.max(d * x, axis=1), F.sum(abs(d), axis=(0, 2))]

    graph = graph_of(sums, types)
    plans = [make_plan(optimize(graph, skip), "test", exact=True) for skip in ((), ("expansions",))]
    first, second = ([y.numpy() for y in _core.run_plan(plan, arrays)] for plan in plans)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    if dtype == "bfloat16":
        return  # NumPy adds it up in bfloat16
    for a, b in zip(first, interpret(graph, [x.numpy() for x in arrays]), strict=True):
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=2e-2, atol=2e-1)
