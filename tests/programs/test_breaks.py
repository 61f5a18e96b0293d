"""Traced functions that look at values: what lies before, between and after is programs."""

import warnings

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft import _core

from .running import executions


def counted(call):
    """What a call adds to the counters of puttings-off, and the launches it makes."""
    before = _core.log_counters() | _core.program_counters()
    call()
    after = _core.log_counters() | _core.program_counters()
    return {name: after[name] - before[name] for name in (*_core.log_counters(), "launches")}


def with_breaks(x):
    y = F.exp(x) * 2 - 1
    if y.sum() > 3:
        y = y * y + 1
    s = float(y.mean())
    return F.tanh(y) * s - 1


def silently(traced, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wf.TraceWarning)
        return traced(*args)


@pytest.fixture(autouse=True)
def every_segment_gains(request, monkeypatch):
    """Arrays are small here; else calls would soon run operation by operation."""
    if "small_pieces" not in request.node.name:
        monkeypatch.setattr("weft.traces.lazy.GAIN_BYTES", 0)


def calls(traced, count):
    for _ in range(count):
        traced(wf.ones(2))


@pytest.mark.parametrize("lazy", [False, True])
def test_segments_are_programs(lazy):
    traced = wf.trace(with_breaks, lazy=lazy)
    arrays = [wf.full((4,), float(k)) for k in range(3)]
    silently(traced, arrays[1])
    for x in arrays * 2:
        np.testing.assert_allclose(traced(x).numpy(), with_breaks(x).numpy(), rtol=1e-6)
    lines = [with_breaks.__code__.co_firstlineno + k for k in (2, 4)]
    assert [int(where.rpartition(":")[2]) for where in traced.breaks] == lines
    assert not traced.programs
    x = arrays[2]
    assert counted(lambda: traced(x)) == {
        "put_off": 11,
        "segments": 3,
        "segment_misses": 0,
        "launches": 3,
    }
    assert counted(lambda: with_breaks(x))["launches"] == 11


def test_small_pieces_run_operation_by_operation():
    """By kind of arguments: where what need not be written is less than a segment costs."""
    traced = wf.trace(with_breaks)
    small, large = wf.ones(4), wf.ones(1 << 17)
    silently(traced, small)
    for x in (small, large) * 5:
        silently(traced, x)
    assert counted(lambda: traced(large)) == {
        "put_off": 11,
        "segments": 3,
        "segment_misses": 0,
        "launches": 3,
    }
    assert counted(lambda: traced(small)) == {
        "put_off": 0,
        "segments": 0,
        "segment_misses": 0,
        "launches": 11,
    }
    assert len(traced.breaks) == 2
    np.testing.assert_allclose(traced(small).numpy(), with_breaks(small).numpy(), rtol=1e-6)


def test_small_pieces_run_in_one_call_of_python():
    traced = wf.trace(lambda x: float(x.sum()))
    for _ in range(6):
        silently(traced, wf.ones(4))
    x = wf.ones(4)
    with executions(traced.function.__code__) as count:
        assert traced(x) == 4
    assert count == [1]


def test_the_warning_names_the_line_once_and_what_was_looked_at():
    traced = wf.trace(with_breaks)
    with pytest.warns(
        wf.TraceWarning, match=r"with_breaks: cannot be recorded: the values of bool\[\]@.pu:0 were looked at"
    ) as caught:
        calls(traced, 3)
    assert [w.lineno for w in caught] == [with_breaks.__code__.co_firstlineno + 2]


def test_a_step_of_training_that_reads_its_loss():
    """Gradients, updates, running statistics and random numbers are those of the function."""

    def make(way):
        wf.random.seed(0)
        net = M.Sequential(
            M.Linear(4, 8, bias=False), M.BatchNorm1d(8), M.ReLU(), M.Dropout(0.5), M.Linear(8, 2)
        )
        opt = optim.Adam(net.parameters(), lr=0.05)
        gm = wf.GradManager().attach(net.parameters())

        def step(x, labels):
            with gm:
                loss = F.cross_entropy(net(x), labels)
                gm.backward(loss)
            if loss.item() > 0.1:
                opt.step()
            opt.clear_grad()
            order = wf.random.permutation(len(labels))
            return loss.item(), order

        return way(step), net

    (step, net), (eager, other) = make(wf.trace), make(lambda f: f)
    x = wf.random.normal(0, 1, (16, 4))
    labels = (x[:, 0] > 0).astype("int64")
    for k in range(6):
        wf.random.seed(k)
        loss, order = silently(step, x, labels)
        state = wf.random.get_state()
        wf.random.seed(k)
        wanted, wanted_order = eager(x, labels)
        assert loss == pytest.approx(wanted, rel=1e-4)
        assert order.numpy().tolist() == wanted_order.numpy().tolist()
        assert state == wf.random.get_state()
    for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-5)
    assert counted(lambda: step(x, labels))["segment_misses"] == 0
    assert counted(lambda: step(x, labels))["launches"] < counted(lambda: eager(x, labels))["launches"] / 5


def test_exceptions_leave_what_was_done_before():
    total = wf.zeros(())

    def run(x):
        total[...] = total + x.sum()
        if x[0] > 0:
            total[...] = total * 2
            raise ValueError("positive")

    traced = wf.trace(run)
    silently(traced, wf.zeros(2))
    for _ in range(2):
        with pytest.raises(ValueError, match="positive"):
            traced(wf.ones(2))
    assert total.item() == 12.0


def test_new_memory_of_others_is_looked_at_in_time():
    """An operation on memory that NumPy shares is done when it is asked for."""

    def run(x, seen):
        y = x * 2
        seen[0] = 5
        return y, float(y[0])

    traced = wf.trace(run)
    for _ in range(3):
        seen = np.ones(2, np.float32)
        y, first = silently(traced, wf.from_dlpack(seen), seen)
        assert (y.numpy().tolist(), first) == ([2.0, 2.0], 2.0)


@pytest.mark.parametrize("lazy", [True, False])
def test_arguments_that_overlap_in_part(lazy):
    """Neither contains the other: the function's Python runs at each call, and writes are seen through both."""

    def function(a, b):
        a += 1
        return (a * b).sum()

    traced = wf.trace(function, lazy=lazy)
    mine, theirs = wf.arange(6).astype("float32"), wf.arange(6).astype("float32")
    with pytest.warns(wf.TraceWarning, match="share memory in part"):
        assert traced(mine[:4], mine[2:]).item() == function(theirs[:4], theirs[2:]).item()
    assert traced(mine[:4], mine[2:]).item() == function(theirs[:4], theirs[2:]).item()
    assert mine.tolist() == theirs.tolist()


def test_windows_that_overlap_in_part():
    def run(x):
        y = x + 0
        y[1:] += y[:-1]
        y[:-1] *= y[1:]
        return y, float(y[0])

    traced = wf.trace(run)
    for _ in range(3):
        x = wf.arange(4).astype("float32")
        assert silently(traced, x)[0].numpy().tolist() == run(x)[0].numpy().tolist()


def test_segments_that_are_always_new_are_given_up():
    steps = iter(range(2, 1000))

    def run(x):
        y = x * next(steps)
        return y * int(y.sum())

    traced = wf.trace(run)
    with pytest.warns(wf.TraceWarning) as caught:
        calls(traced, 25)
    assert [w for w in caught if "operation by operation" in str(w.message)]
    assert len(caught) == 2
    assert counted(lambda: traced(wf.ones(2)))["put_off"] == 0


def test_the_state_of_random_numbers_inside():
    def run(x):
        a = wf.random.normal(shape=2)
        state = wf.random.get_state()
        b = wf.random.uniform(shape=2)
        wf.random.set_state(state)
        return a, b, wf.random.uniform(shape=2), float(x.sum())

    traced = wf.trace(run)
    for _ in range(3):
        wf.random.seed(0)
        a, b, c, _ = silently(traced, wf.ones(2))
        wf.random.seed(0)
        wanted = run(wf.ones(2))
        assert b.numpy().tolist() == c.numpy().tolist()
        assert a.numpy().tolist() == wanted[0].numpy().tolist()


def test_eight_threads_use_one_function_with_breaks(in_threads):
    total = wf.zeros(())

    def run(x, k):
        total[...] = total + 1
        y = with_breaks(x)
        return y * float(y.sum()) + k

    traced = wf.trace(run)
    arrays = [wf.full((3 + k % 2,), k / 4) for k in range(8)]
    wanted = [run(x, k).numpy() for k, x in enumerate(arrays)]
    for k, x in enumerate(arrays):
        silently(traced, x, k)
    total[...] = 0

    def work(k):
        for _ in range(20):
            np.testing.assert_allclose(traced(arrays[k], k).numpy(), wanted[k], rtol=1e-5)

    in_threads(work, range(8))
    assert total.item() == 160
