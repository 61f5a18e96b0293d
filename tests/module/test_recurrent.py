"""Recurrent layers of any length: one step planned once, whatever the length, forward and backward."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.base import events
from weft.expr import compiler

LAYERS = {"LSTM": M.LSTM, "GRU": M.GRU, "RNN": M.RNN}
LENGTHS = [5, 6, 9, 12, 17, 40, 41, 130]


def train(net, x):
    """One step without an update: the loss, and the gradients of x and of all parameters."""
    gm = wf.GradManager().attach([x, *net.parameters()])
    with gm:
        y = net(x)[0]
        loss = (y * y).sum()
        gm.backward(loss)
    found = [loss.item(), *(p.grad.numpy() for p in (x, *net.parameters()))]
    for p in (x, *net.parameters()):
        p.grad = None
    return found


class Counted:
    """What is planned, and how many loops are compiled, while it is entered."""

    def __enter__(self):
        self.planned, self.before = [], events.listen(self)
        self._compiled = dict(compiler.counters)
        return self

    def __exit__(self, *_):
        wf.waitall()
        events.listen(self.before)
        self.compiled = sum(compiler.counters.values()) - sum(self._compiled.values())

    def span(self, kind, name):
        if kind == "plan":
            self.planned.append(name)
        return contextlib.nullcontext()

    def note(self, *_):
        pass


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ["GRU", "RNN"])
def test_a_new_length_is_as_cheap_as_an_lstms(name, layers):
    """No loop is compiled, no step planned: as many plans as an LSTM's, which is one kernel."""
    width = 3 + ["GRU", "RNN"].index(name) + 2 * layers  # plans of the cases before are for others
    net, lstm = (kind(width, 4, layers) for kind in (LAYERS[name], M.LSTM))
    for n in (3, 4):  # of both, everything that any length needs
        train(net, wf.random.normal(shape=(n, 2, width)))
        train(lstm, wf.random.normal(shape=(n, 2, width)))
    counts = {}
    for which, each in (("own", net), ("lstm", lstm)):
        given = [wf.random.normal(shape=(n, 2, width)) for n in LENGTHS]
        with Counted() as counted:
            for x in given:
                train(each, x)
        assert counted.compiled == 0
        counts[which] = len(counted.planned)
    assert counts["own"] <= counts["lstm"], counts
    assert counts["own"] > 0  # lengths are part of plans


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_do_not_depend_on_the_length(dtype):
    """The first steps of a longer sequence are those of a shorter one."""
    net = M.GRU(3, 4, 2, dtype=dtype)
    x = wf.random.normal(shape=(130, 2, 3)).astype(dtype)
    whole = net(x)[0].numpy()
    for n in LENGTHS:
        np.testing.assert_allclose(net(x[:n])[0].numpy(), whole[:n], rtol=1e-5, atol=1e-6)


def test_memory_grows_by_a_step_as_an_lstms():
    """What a training step's program needs for one more time step: about what an LSTM's does, or less."""

    def bytes_for(kind, length):
        net = kind(16, 16, 4)
        gm = wf.GradManager().attach(net.parameters())

        @wf.trace
        def step(x):
            with gm:
                loss = net(x)[0].sum()
                gm.backward(loss)
            return loss

        x = wf.random.normal(shape=(length, 4, 16))
        step(x), step(x)
        return step.memory_report()[-1].arena_bytes

    per_step = {name: bytes_for(kind, 60) - bytes_for(kind, 30) for name, kind in LAYERS.items()}
    assert 0 < per_step["GRU"] <= per_step["LSTM"]
    assert 0 < per_step["RNN"] <= per_step["LSTM"]


def deep(name, **options):
    net = LAYERS[name](3, 4, 2, bidirectional=True, **options)
    rng = np.random.default_rng(1)
    for p in net.parameters():
        p[...] = wf.tensor(rng.uniform(-1, 1, p.shape))
    return net, rng


@pytest.mark.parametrize("name", LAYERS)
def test_eager_traced_and_dynamic_agree(name):
    net, rng = deep(name)
    gm = wf.GradManager().attach(net.parameters())

    def step(x):
        with gm:
            y, _ = net(x)
            loss = (y * y).sum()
            gm.backward(loss)
        return loss, [p.grad for p in net.parameters()]

    kinds = {"eager": step, "traced": wf.trace(step), "dynamic": wf.trace(step, dynamic={"x": (0, 1)})}
    for n in (5, 7, 7, 30):
        x = wf.tensor(rng.standard_normal((n, 3, 3), dtype="float32"))
        found = {}
        for kind, f in kinds.items():
            for p in net.parameters():
                p.grad = None
            loss, slopes = f(x)
            found[kind] = [loss.numpy(), *(dx.numpy() for dx in slopes)]
        for kind in ("traced", "dynamic"):
            for mine, want in zip(found[kind], found["eager"], strict=True):
                np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-5, err_msg=kind)
    assert len(kinds["dynamic"].programs) == 1


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_gradients(name):
    """Against differences of the first ones."""
    net, rng = deep(name, dtype="float64")
    x, dx = (rng.standard_normal((6, 2, 3)) for _ in range(2))

    def first(x):
        return wf.grad(lambda x: (net(x)[0] ** 2).sum())(x)

    second = wf.grad(lambda x: (first(x) ** 2).sum())(wf.tensor(x)).numpy()
    eps = 1e-6
    ends = [(first(wf.tensor(x + sign * eps * dx)).numpy() ** 2).sum() for sign in (1, -1)]
    np.testing.assert_allclose((second * dx).sum(), (ends[0] - ends[1]) / (2 * eps), rtol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_float16(name):
    """Products and sums in float32 where that is how the layer runs; close to float32's results."""
    net, rng = deep(name)
    half, _ = deep(name, dtype="float16")
    x = rng.standard_normal((7, 2, 3), dtype="float32")
    mine, want = train(half, wf.tensor(x.astype("float16"))), train(net, wf.tensor(x))
    assert all(p.dtype is wf.float16 for p in half.parameters())
    for a, b in zip(mine[1:], want[1:], strict=True):
        assert np.abs(a.astype("float32") - b).max() <= 0.02 * max(np.abs(b).max(), 1)


def test_a_float16_lstm_is_the_native_layer():
    types = [
        wf.random.normal(shape=shape).astype("float16")
        for shape in ((9, 2, 3), (1, 2, 4), (1, 2, 4), (16, 3), (16, 4))
    ]
    bias = wf.zeros(16, dtype="float16")
    traced = wf.trace(lambda *x: F.lstm(*x)[0])
    y = traced(*types, bias, bias)
    assert y.dtype is wf.float16
    steps = traced.programs[0].plan.info.steps
    assert any("Lstm(" in step for step in steps), steps
    assert not any("Foreach" in step for step in steps), steps


@pytest.mark.parametrize("reverse", [False, True])
def test_weights_of_a_users_recurrence_get_one_product(reverse):
    """The gradient of what a foreach multiplies by is a product of all steps, not a sum of products."""
    w = wf.random.normal(shape=(16, 16)) * 0.1
    x = wf.random.normal(shape=(12, 2, 16))
    h = wf.zeros((2, 16))

    def loss(w):
        data = x[::-1] if reverse else x
        y, last = wf.foreach(lambda x, h: (wf.tanh(x + h @ w),) * 2, data, h)
        return (y * y).sum() + last.sum()

    def by_hand(w):
        now, total = h, 0.0
        for t in range(12):
            now = wf.tanh(x[11 - t if reverse else t] + now @ w)
            total = total + (now * now).sum()
        return total + now.sum()

    traced = wf.trace(wf.value_and_grad(loss))
    for _ in range(2):
        value, slope = traced(w)
    want_value, want = wf.value_and_grad(by_hand)(w)
    assert value.item() == pytest.approx(want_value.item(), rel=1e-5)
    np.testing.assert_allclose(slope.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    backward = next(node.op for node in traced.programs[0].graph.nodes if getattr(node.op, "reverse", False))
    assert backward.states == 1  # the gradient of h; nothing is added up


NAIVE = """
import weft as wf, weft.functional as F
h = wf.zeros((1, 2, 4))
x = [wf.ones((5, 2, 3)), h, h, wf.ones((16, 3)) * .1, wf.ones((16, 4)) * .1, wf.ones(16), wf.ones(16)]
value, slopes = wf.value_and_grad(lambda *x: F.lstm(*x)[0].sum(), argnums=tuple(range(7)))(*x)
print(round(value.item(), 3), round(slopes[3].sum().item(), 3))
"""


def test_the_naive_engine():
    """F.lstm's gradient where everything runs on the calling thread, and code is compiled again."""
    found = {}
    for engine in ("naive", "threaded"):
        environment = {**os.environ, "WEFT_ENGINE": engine}
        ran = subprocess.run(
            [sys.executable, "-c", NAIVE], env=environment, capture_output=True, text=True, timeout=300
        )
        assert ran.returncode == 0, ran.stderr
        found[engine] = ran.stdout
    assert found["naive"] == found["threaded"]


def test_a_dynamic_axis_of_foreach():
    w = wf.random.normal(shape=(4, 4)) * 0.3

    def f(x, w):
        def step(x, h):
            h = wf.tanh(x + h @ w)
            return h + wf.random.uniform(shape=(2, 4)) * 0, h

        return wf.value_and_grad(lambda w: wf.foreach(step, x, wf.zeros((2, 4)))[0].sum())(w)

    traced = wf.trace(f, dynamic={"x": 0})
    for n in (5, 3, 9):
        x = wf.random.normal(shape=(n, 2, 4))
        (value, slope), (want_value, want) = traced(x, w), f(x, w)
        assert value.item() == pytest.approx(want_value.item(), rel=1e-5, abs=1e-6)
        np.testing.assert_allclose(slope.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    assert len(traced.programs) == 1


def test_branches_inside_of_dynamic_sizes():
    """Graphs inside of graphs get the sizes of a call, too."""
    traced = wf.trace(
        lambda x: wf.cond(x.sum() > 0, lambda x: x * x.shape[0], lambda x: x + wf.zeros(x.shape), x),
        dynamic={"x": 0},
    )
    for n in (4, 7):
        np.testing.assert_array_equal(traced(wf.ones((n, 2))).numpy(), np.full((n, 2), n, "float32"))
        np.testing.assert_array_equal(traced(-wf.ones((n, 2))).numpy(), -np.ones((n, 2), "float32"))


def test_long_sequences_need_no_recursion():
    for name in ("GRU", "RNN"):
        net = LAYERS[name](2, 3)
        found = train(net, wf.random.normal(shape=(3000, 1, 2)))
        assert all(np.isfinite(x).all() for x in found)


def test_steps_of_one_are_gradients_of_one():
    """A sequence of one step, whose states before are the first ones only."""
    net, rng = deep("GRU", dtype="float64")
    x = rng.standard_normal((1, 2, 3))
    slope = wf.grad(lambda x: (net(x)[0] ** 2).sum())(wf.tensor(x)).numpy()
    dx, eps = rng.standard_normal((1, 2, 3)), 1e-6
    ends = [(net(wf.tensor(x + s * eps * dx))[0].numpy() ** 2).sum() for s in (1, -1)]
    np.testing.assert_allclose((slope * dx).sum(), (ends[0] - ends[1]) / (2 * eps), rtol=1e-5)
