"""Memory of training steps: what is computed again, budgets, first calls that keep nothing, temporary space."""

import re
import threading
import time

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft import _core, amp, storage
from weft.base import flags
from weft.base.errors import GraphError
from weft.engine import default_engine
from weft.traces.trace import TraceWarning

pytestmark = pytest.mark.daily(2)


class Block(M.Module):
    """Convolutions with normalization and relu, a residual connection, a feed-forward network over the last axis."""

    def __init__(self):
        super().__init__()
        self.first, self.norm1 = M.Conv2d(8, 8, 3, padding=1, bias=False), M.BatchNorm2d(8)
        self.second, self.norm2 = M.Conv2d(8, 8, 3, padding=1, bias=False), M.BatchNorm2d(8)
        self.norm3, self.up, self.down = M.LayerNorm(16), M.Linear(16, 32), M.Linear(32, 16)

    def forward(self, x):
        y = F.relu(self.norm1(self.first(x)))
        y = F.relu(self.norm2(self.second(y)) + x)
        return y + self.down(F.gelu(self.up(self.norm3(y))))


def training_step(**options):
    wf.random.seed(3)
    net = M.Sequential(*(Block() for _ in range(3)))
    x, y = wf.random.normal(0, 1, (4, 8, 16, 16)), wf.random.normal(0, 1, (4, 8, 16, 16))
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    manager = wf.GradManager().attach(list(net.parameters()))

    def step():
        with manager as g:
            loss = F.mean((net(x) - y) ** 2)
            g.backward(loss)
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return wf.trace(step, **options), net


def run(count=3, **options):
    step, net = training_step(**{"lazy": True, **options})
    losses = [step().item() for _ in range(count)]
    return losses, [p.numpy() for p in net.parameters()], step.programs[0].memory_report().arena_bytes


@pytest.fixture(scope="module")
def plain():
    return run()


@pytest.mark.processor("the bytes and bits of its plans")
@pytest.mark.parametrize("budget", [0.9, 0.75])
def test_less_memory_and_the_same_bits(plain, budget):
    losses, parameters, arena = run(memory_budget=budget)
    assert arena <= budget * plain[2]
    assert losses == plain[0]
    for a, b in zip(parameters, plain[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.processor("the bytes and bits of its plans")
def test_nothing_is_kept_that_loops_can_compute(plain, monkeypatch):
    monkeypatch.setenv("WEFT_SKIP_PASSES", "recompute")
    losses, parameters, arena = run()
    assert arena > plain[2]
    assert losses == plain[0]
    for a, b in zip(parameters, plain[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.processor("the bytes and bits of its plans")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("again", [True, False])
def test_what_takes_long_is_kept(precision, again, monkeypatch):
    """Normalization and relu are computed again, in the loop of their gradient; tanh is not."""
    weight, x = wf.random.normal(0, 1, (8, 8, 3, 3)), wf.random.normal(0, 1, (2, 8, 16, 16))
    ones = wf.ones((8,))

    def activation(y):
        return F.relu(F.batch_norm(y, None, None, ones, ones, training=True)) if again else F.tanh(y)

    manager = wf.GradManager().attach([x, weight])

    def step():
        with manager, amp.autocast("bfloat16", enabled=precision == "bfloat16"):
            y = x
            for _ in range(6):
                y = F.conv2d(y, weight, padding=1)
                y = activation(y)
            manager.backward(F.mean(y.astype("float32") ** 2))
        return y

    counts, arenas = [], []
    for skipped in ("", "recompute"):
        monkeypatch.setenv("WEFT_SKIP_PASSES", skipped)
        traced = wf.trace(step, lazy=True)
        traced()
        counts.append(len(traced.programs[0].plan.info.steps))
        arenas.append(traced.memory_report()[0].arena_bytes)
    assert counts[0] <= counts[1]
    assert (arenas[0] < arenas[1]) == again, arenas


def test_a_budget_in_bytes_that_is_met_anyway(plain):
    assert run(1, memory_budget=1 << 30)[2] == plain[2]


def test_a_budget_that_cannot_be_met():
    step, _ = training_step(memory_budget=1000)
    with pytest.raises(
        GraphError,
        match=r"step needs at least \d+ bytes .* \(\d+ when it keeps everything\), but the budget is 1000",
    ):
        step()


def test_the_bytes_that_a_refusal_names_are_enough(plain):
    step, _ = training_step(memory_budget=1000)
    with pytest.raises(GraphError) as caught:
        step()
    least, everything = map(int, re.search(r"at least (\d+) .*\((\d+) when", str(caught.value)).groups())
    assert least < 0.7 * everything
    assert everything == plain[2]
    assert run(1, memory_budget=least)[2] <= least


@pytest.mark.parametrize(
    ("budget", "error"), [("1", TypeError), (True, TypeError), (-1, ValueError), (1.5, ValueError)]
)
def test_budgets_that_are_none(budget, error):
    with pytest.raises(error, match="memory_budget"):
        wf.trace(lambda x: x, memory_budget=budget)


def test_no_gradients():
    f = wf.trace(lambda x: wf.exp(x), memory_budget=1 << 20)
    assert f(wf.zeros(2)).numpy().tolist() == [1.0, 1.0]


@pytest.mark.processor("the bytes and bits of its plans")
def test_checked(monkeypatch, plain):
    """No byte of the arena is read before or after its time."""
    monkeypatch.setenv("WEFT_CHECK", "1")
    assert run(2, memory_budget=0.8)[0] == plain[0][:2]


# First calls.


def test_a_lazy_first_call_is_the_program(plain):
    step, _ = training_step(lazy=True)
    before = _core.program_counters()["launches"]
    assert step().item() == plain[0][0]
    assert _core.program_counters()["launches"] == before + 1
    assert [step().item() for _ in range(2)] == plain[0][1:]


def test_results_of_a_lazy_first_call_are_those_that_are_kept_elsewhere():
    kept = []

    @wf.trace(lazy=True)
    def f(x):
        y = x + 1
        kept.append(y)
        return y, y[1:], wf.permute_dims(x * 2, (1, 0))

    y, part, turned = f(wf.ones((2, 3)))
    assert kept[0] is y
    assert y.numpy().tolist() == [[2.0] * 3] * 2
    assert part.numpy().tolist() == [[2.0] * 3]
    assert turned.numpy().tolist() == [[2.0] * 2] * 3
    y[1, 0] = 7
    assert part.numpy().tolist() == [[7.0, 2.0, 2.0]]


def test_what_a_lazy_first_call_keeps_elsewhere_is_computed():
    kept = []

    @wf.trace(lazy=True)
    def f(x):
        y = x * 3
        kept.append(y + 1)
        return y

    for _ in range(2):
        assert f(wf.ones(2)).numpy().tolist() == [3.0, 3.0]
    with pytest.warns(TraceWarning, match="arrays that are kept"):
        f(wf.ones(2))
    assert kept[0].numpy().tolist() == [4.0, 4.0]


def test_memory_of_what_is_dropped_is_used_again():
    """While it is written down, a program has the memory of what is alive, not of everything."""
    size = 1 << 20

    @wf.trace(lazy=True)
    def f(x):
        for _ in range(20):
            x = wf.exp(x)
        return x

    x = wf.zeros(size)
    x.wait()
    storage.reset_peaks("cpu:0")
    before = storage.stats()["in_use_bytes"]
    f(x).wait()
    assert storage.stats()["peak_in_use_bytes"] - before < 6 * 4 * size


# Temporary space.


@pytest.mark.processor("the bytes and bits of its plans")
def test_trim_gives_back_temporary_space():
    """Whatever thread used it."""
    f = wf.trace(lambda x: wf.matmul(wf.matmul(x, x), x))
    x = wf.ones((1024, 1024))
    for _ in range(3):
        f(x).wait()
    storage.trim()
    with_none = storage.stats()["in_use_bytes"]
    f(x).wait()
    assert storage.stats()["in_use_bytes"] >= with_none + 4 * 1024 * 1024
    storage.trim()
    assert storage.stats()["in_use_bytes"] == with_none


def test_programs_in_turn_share_temporary_space():
    fs = [wf.trace(lambda x, n=n: wf.matmul(wf.matmul(x, x) + n, x)) for n in range(4)]
    x = wf.ones((1024, 1024))
    for f in fs:
        f(x).wait()
    storage.trim()
    before = storage.stats()["in_use_bytes"]
    for f in fs:
        f(x).wait()
    assert storage.stats()["in_use_bytes"] - before < 2 * 4 * 1024 * 1024


# Segments.


class Deep(M.Module):
    """Layers of which nothing is cheap to compute again."""

    def __init__(self, layers, dropout=0.0):
        super().__init__()
        self.layers, self.dropout = M.Sequential(*(M.Linear(32, 32) for _ in range(layers))), dropout

    def forward(self, x):
        for layer in self.layers:
            x = F.tanh(layer(x))
            if self.dropout:
                x = F.dropout(x, p=self.dropout, training=True)
        return x


def deep_step(count=2, layers=24, dropout=0.0, **options):
    wf.random.seed(5)
    net = Deep(layers, dropout)
    x = wf.random.normal(0, 1, (256, 32))
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    manager = wf.GradManager().attach(list(net.parameters()))

    @wf.trace(lazy=True, **options)
    def step():
        with manager:
            loss = F.mean(net(x) ** 2)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    losses = [step().item() for _ in range(count)]
    return losses, [p.numpy() for p in net.parameters()], step.programs[0].memory_report().arena_bytes


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_segments_for_what_is_not_cheap(dropout):
    """Products and dropout run again: the same bits, what is drawn included."""
    losses, parameters, arena = deep_step(dropout=dropout)
    for budget in (0.7, 0.45):
        again = deep_step(dropout=dropout, memory_budget=budget)
        assert again[2] <= budget * arena
        assert again[0] == losses
        for a, b in zip(again[1], parameters, strict=True):
            np.testing.assert_array_equal(a, b)


def test_convolutions_run_again(plain):
    """Below what elementwise results save."""
    losses, _, arena = run(2, memory_budget=0.5)
    assert arena <= 0.5 * plain[2]
    np.testing.assert_allclose(losses, plain[0][:2], rtol=1e-5)


def residual_network(layers):
    import weft.symbol as sym

    x = sym.var("x")
    for k in range(layers):
        x = x + F.tanh(F.linear(x, out_features=32, name=f"fc{k}"))
    return F.sum(x * x)


def executor(budget=None, request="write"):
    wf.random.seed(1)
    exe = residual_network(24).simple_bind(x=(256, 32), memory_budget=budget, grad_req=request)
    draw = np.random.default_rng(0)
    for x in exe.arg_arrays:
        x[...] = draw.standard_normal(x.shape, dtype="float32") * 0.1
    return exe


@pytest.mark.parametrize("request_", ["write", "add"])
def test_executors_have_budgets(request_):
    plain, tight = executor(request=request_), executor(0.5, request_)
    for exe in (plain, tight):
        for _ in range(2):
            exe.forward(is_train=True)
            exe.backward()
    needs = [
        report["kept for backward"] + report["temporary"]
        for report in (plain.memory_report(), tight.memory_report())
    ]
    assert needs[1] <= 0.5 * needs[0]
    np.testing.assert_array_equal(plain.outputs[0].numpy(), tight.outputs[0].numpy())
    for name, dx in plain.grad_dict.items():
        np.testing.assert_array_equal(dx.numpy(), tight.grad_dict[name].numpy())
    same = tight.reshape(x=(128, 32))
    same.forward(is_train=True)
    same.backward()
    assert same.memory_report()["kept for backward"] < plain.memory_report()["kept for backward"] / 2


def test_an_executor_whose_budget_cannot_be_met():
    with pytest.raises(GraphError, match=r"memory_budget: .*, but the budget is 10$"):
        executor(10).forward(is_train=True)
    assert executor(10).forward()[0].shape == ()  # prediction keeps nothing


def test_bad_budgets_of_executors():
    with pytest.raises(ValueError, match="memory_budget"):
        executor(-1)


# Running ahead.


@pytest.mark.skipif(flags.get("WEFT_ENGINE") == "naive", reason="nothing is in flight")
def test_results_in_flight_are_bounded():
    """A thread that pushes while nothing can run is held back, long before its results take a gigabyte."""
    x, gate = wf.ones((1 << 20,)), threading.Event()
    x.wait()
    engine = default_engine()
    before, stalls = storage.stats()["in_use_bytes"], engine.stats()["stalls"]
    engine.push(lambda rc: gate.wait(60), mutate_vars=[x], queue="io")
    results = []
    pushing = threading.Thread(target=lambda: results.extend(x + k for k in range(100)))
    pushing.start()
    try:
        while engine.stats()["stalls"] == stalls and pushing.is_alive():
            time.sleep(0.001)
        held = storage.stats()["in_use_bytes"] - before
    finally:
        gate.set()
        pushing.join()
    assert engine.stats()["stalls"] > stalls
    assert held <= 72 << 20
    assert [y[0].item() for y in results] == [1.0 + k for k in range(100)]
