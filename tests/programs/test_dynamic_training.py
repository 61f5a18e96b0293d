"""Traced functions with dynamic axes that have effects: gradients, updates, writes, random numbers."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft import models
from weft.base.errors import GraphError


def traced(function):
    return wf.trace(function, dynamic={0: 0})


def both(make, *calls):
    """make(way) makes a function and the arrays that it changes; what calls of it give, and those, in both ways."""
    found = []
    for way in (lambda f: f, traced):
        wf.random.seed(0)
        function, arrays = make(way)
        results = [np.asarray(function(*given()).numpy()) for given in calls]
        found.append([*results, *(x.numpy() for x in arrays), *(x.grad.numpy() for x in arrays if x.grad)])
        assert way is not traced or len(function.programs) == 1
        found[-1].append(np.asarray(wf.random.get_state()["cpu:0"]))
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def trained(net, opt, loss_of, way, max_norm=None):
    params = list(net.parameters())
    gm = wf.GradManager().attach(params)

    def step(x, y):
        with gm:
            loss = loss_of(net(x), y)
            gm.backward(loss)
        if max_norm is not None:
            optim.clip_grad_norm(params, max_norm)
        opt.step().clear_grad()
        return loss

    # y is as long as x.
    return wf.trace(step, dynamic={"x": 0, "y": 0}) if way is traced else step, [*params, *net.buffers()]


def mlp(way):
    net = M.Sequential(M.Linear(48, 8), M.BatchNorm1d(8), M.GELU(), M.Dropout(0.3), M.Linear(8, 4))
    flat = M.Sequential(M.Flatten(), net)
    return trained(flat, optim.AdamW(net.parameters(), lr=0.01), F.cross_entropy, way, max_norm=1.0)


def convolutions(way):
    net = models.ResNet(models.ResNetConfig(blocks=(1, 1), width=8, classes=4))
    return trained(net, optim.SGD(net.parameters(), lr=0.05, momentum=0.9), F.cross_entropy, way)


@pytest.mark.parametrize("make", [mlp, convolutions])
def test_training(make):
    def batch(n):
        rng = np.random.default_rng(n)
        return wf.tensor(rng.standard_normal((n, 3, 4, 4), "float32")), wf.arange(n) % 4

    both(make, *(lambda n=n: batch(n) for n in (5, 7, 5, 3)))


X = [(lambda n=n: (wf.arange(2 * n, dtype="float32").reshape(n, 2),)) for n in (3, 4, 3)]


def with_manager(work):
    """A function of x that works with a manager of w."""

    def make(way):
        w = wf.tensor([1.0, 2.0])
        gm = wf.GradManager().attach([w])
        return way(lambda x: work(gm, w, x)), [w]

    return make


def adds_up(gm, w, x):
    with gm:
        loss = (w * w * x).sum()
        gm.backward(loss)
    return loss


def begins_late(gm, w, x):
    y = w * 2
    with gm:
        with wf.no_grad():
            z = w * 3
        gm.backward((y * w * x + z * w).sum())
    found, w.grad = w.grad, None
    return found


def in_two_orders(gm, w, x):
    outer = wf.GradManager().attach([w])
    with outer:
        with gm:
            gm.backward((w**3 * x).sum())
        slope, w.grad = w.grad, None
        outer.backward((slope * slope).sum())
    found, w.grad = w.grad, None
    return found


def writes_what_had_a_gradient(gm, w, x):
    with gm:
        gm.backward((w * w * x).sum())
        w[...] = w - 0.1 * w.grad
        w.grad = None
    return w


def draws(gm, w, x):
    wf.random.normal(shape=5)  # which nobody uses
    w[1] = wf.random.uniform(shape=())
    return F.dropout(x, 0.5, training=True) + wf.random.normal(shape=2)


def grads_of_functions(gm, w, x):
    return wf.grad(lambda y: (wf.grad(lambda z: (z**3 * w).sum())(y) ** 2)[1:].sum())(x)


def test_callbacks_and_counts():
    w, count = wf.ones(2), wf.zeros(())
    gm = wf.GradManager().attach([w], callbacks=lambda x, dx: dx * 10)

    @traced
    def step(x):
        nonlocal count
        count += x.sum()
        with gm:
            gm.backward((w * x).sum())

    for n in (2, 3):
        step(wf.ones((n, 2)))
    assert w.grad.numpy().tolist() == [50, 50]
    assert count.item() == 10
    assert len(step.programs) == 2  # w has no gradient before, and one


@pytest.mark.parametrize(
    "work", [begins_late, in_two_orders, writes_what_had_a_gradient, draws, grads_of_functions]
)
def test_what_functions_do(work):
    both(with_manager(work), *X)


def test_gradients_add_up():
    found = []
    for way in (lambda f: f, traced):
        function, (w,) = with_manager(adds_up)(way)
        w.grad = wf.tensor([100.0, 0.0])
        for given in X:
            function(*given())
        found.append(w.grad.numpy().tolist())
    assert found[0] == found[1]
    assert len(function.programs) == 1
    w.grad = None
    function(*X[0]())
    assert w.grad.numpy().tolist() == [12, 36]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_slices(n):
    x = wf.arange(3 * n, dtype="float32").reshape(n, 3)
    for function in (
        lambda x: x[1:] * 2 - x[:-1],
        lambda x: x[0] + x[-1],
        lambda x: x[::-1][:, 1:],
        lambda x: x[: x.shape[0] - 1].sum(axis=0) / (x.shape[0] - 1),
        lambda x: wf.grad(lambda y: (y[1:] ** 2).sum())(x),
    ):
        SLICES.setdefault(function.__code__.co_code, traced(function))
        made = SLICES[function.__code__.co_code]
        np.testing.assert_allclose(made(x).numpy(), function(x).numpy(), rtol=1e-5)
        assert len(made.programs) == 1


SLICES = {}


def test_errors():
    w = wf.ones(2)
    gm = wf.GradManager().attach([w])

    def outside(x):
        gm.backward((w * x).sum())

    def fails(x):
        with gm:
            gm.backward((w * x).sum())
            w[...] = w + 1
            raise KeyError("mine")

    x = wf.ones((3, 2))
    with gm, pytest.raises(GraphError, match="a recording that began outside"):
        traced(outside)(x)
    for _ in range(2):
        with pytest.raises(KeyError):
            traced(fails)(x)
    assert w.numpy().tolist() == [1, 1]
    with gm:
        gm.backward((w * w).sum())
    assert w.grad.numpy().tolist() == [2, 2]


def test_an_argument_in_memory_that_the_function_finds():
    """Such a call runs as Python, and those of other arrays as programs."""
    found = []
    for record in (lambda f: f, traced):
        w = wf.ones(2)
        function = record(lambda x, w=w: writes_all(w, x))
        for x in (wf.ones(2), w[:], wf.ones(2)):
            found.append([function(x).numpy().tolist(), x.numpy().tolist(), w.numpy().tolist()])
    assert found[:3] == found[3:]


def test_an_array_that_is_watched_is_written():
    def overwrites(w, gm, x):
        with gm:
            y = w + x
            w[...] = y.sum(axis=0)
            gm.backward((y * w).sum())

    found = []
    for record in (lambda f: f, traced):
        w = wf.ones(2)
        gm = wf.GradManager().attach([w])
        record(lambda x, w=w, gm=gm: overwrites(w, gm, x))(wf.ones((3, 2)))
        found.append([w.numpy().tolist(), w.grad.numpy().tolist()])
    assert found[0] == found[1]


def writes_all(w, x):
    w[...] = w + x.sum()
    return x * 2
