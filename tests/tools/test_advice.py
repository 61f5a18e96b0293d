"""Every warning has a program that provokes it and one, nearly the same, that does not."""

import threading
import warnings

import numpy as np
import pytest

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
from weft.engine import Engine
from weft.tools.advice import RULES, advice_on
from weft.tools.recording import MEMORY, OPERATION, STEP, WAIT, ProcessRecording, ProgramFacts, StepWork


def kinds(p):
    return {w.kind for w in p.warnings()}


def only(p, kind):
    [found] = [w for w in p.warnings() if w.kind == kind]
    assert found.text
    assert found.advice
    return found


def record(run):
    with wf.tools.profile() as p:
        run()
    return p


def test_retracing():
    def run(values):
        f = wf.trace(lambda x, n: x * n)
        x = wf.ones(3)
        return lambda: [f(x, n) for n in values]

    found = only(record(run([1, 2, 3, 4])), "retracing")
    assert found.times == 4
    assert "test_advice.py" in found.where
    assert "retracing" not in kinds(record(run([1.0, 2.0, 3.0, 4.0])))  # floats may vary


def test_graph_breaks():
    def looks(x):
        return x * 2 if float(x.sum()) > 0 else x

    def selects(x):
        return F.where(x.sum() > 0, x * 2, x)

    def run(f):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wf.trace(f)(wf.ones(3))

    found = only(record(lambda: run(looks)), "graph break")
    assert "test_advice.py" in found.where
    assert "looked at" in found.text or "looks" in found.text
    assert "graph break" not in kinds(record(lambda: run(selects)))


def test_planning():
    x = wf.ones(40)

    def run(shifts):
        return lambda: [F.roll(x, shift=n) for n in shifts]

    found = only(record(run(range(1, 15))), "planning")
    assert "roll" in found.text
    assert "test_advice.py" in found.where
    assert "planning" not in kinds(record(run(14 * [3])))


def test_layers_of_a_first_step_are_no_planning_again():
    """Each layer has a size of its own, so each is planned once, by one line; sizes that change are planned again."""
    shifts = iter(range(200, 400))

    class Rolled(M.Module):
        def forward(self, x, n):
            return F.roll(x, shift=n)

    class Net(M.Module):
        def __init__(self):
            self.layers = [Rolled() for _ in range(12)]

        def forward(self, x, own):
            for layer, n in zip(self.layers, own, strict=True):
                x = layer(x, n)
            return x

    net, x = Net(), wf.ones(41)

    def run(steps, changing, layers):
        own = [next(shifts) for _ in range(12)]
        with wf.tools.profile() as p:
            for _ in range(steps):
                if changing:
                    own[0] = next(shifts)
                y = net(x, own) if layers else [net.layers[0](x, n) for n in own][-1]
                y.wait()
                p.step()
        return p

    assert "planning" not in kinds(run(3, False, True))
    assert "planning" not in kinds(run(3, False, False))  # one line of one module, all in the first step
    assert only(run(10, True, True), "planning").times == 10


class Slow(data.Dataset):
    """Samples that take a while, until `ready` is set."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 6

    def __getitem__(self, k):
        if self.seconds:
            threading.Event().wait(self.seconds)
        return np.ones(4, np.float32)


def test_waiting_for_data():
    def run(seconds, work):
        loader = data.DataLoader(Slow(seconds), batch_size=2)

        def epoch():
            for batch in loader:
                batch + 1
                threading.Event().wait(work)

        return epoch

    found = only(record(run(0.02, 0)), "waiting for data")
    assert found.times == 3
    assert "test_advice.py" in found.where
    assert "waiting for data" not in kinds(record(run(0, 0.1)))


def test_waiting_for_results():
    # An operation that lasts until it is told to end makes the wait certain.
    with Engine(workers=1) as engine:

        def waits():
            for _ in range(4):
                v, go = engine.new_variable(), threading.Event()
                engine.push(lambda run_context, go=go: go.wait(), mutate_vars=[v], name="slow")
                threading.Timer(0.02, go.set).start()
                engine.wait_for_var(v)

        with wf.tools.profile([engine]) as p:
            waits()
        found = only(p, "waiting for results")
        assert found.times == 4
        assert "test_advice.py" in found.where
    r = ProcessRecording()  # two calls of one line
    r.sites, r.waits = ["", "net.py:3", "net.py:3"], np.zeros(4, WAIT)
    r.waits["site"] = [1, 2, 1, 2]
    [found] = [w for w in advice_on(r) if w.kind == "waiting for results"]
    assert (found.where, found.times) == ("net.py:3", 4)
    a = wf.ones((64, 64))

    def later():
        y = a
        for _ in range(8):
            y = (y @ a) * 1e-3
        y.wait()

    assert "waiting for results" not in kinds(record(later))


def test_small_kernels():
    x = wf.ones(8)

    def many():
        y = x
        for _ in range(300):
            y = y + 1

    def one():
        (x + 300).wait()

    many()
    found = only(record(many), "small kernels")
    assert found.times >= 200
    assert "test_advice.py" in found.where
    assert "small kernels" not in kinds(record(one))


def test_reorders():
    def program(reorders):
        r = ProcessRecording(1.0)
        r.steps = np.zeros(2, STEP)
        r.step_work = np.zeros(2, np.int64)
        r.work = [StepWork("conv2d", "net.py:3", "", "", 0, "f", 5, 0)]
        r.programs = {5: ProgramFacts("f", ("a",), reorders, None)}
        return r

    [found] = advice_on(program(3))
    assert (found.kind, found.where, found.times) == ("reorders", "net.py:3", 6)
    assert advice_on(program(0)) == []


def test_reorders_of_a_real_program():
    """A weight that comes with each call is put into the convolution's layout each time; a module's is once."""
    w = wf.ones((16, 16, 3, 3))
    conv = M.Conv2d(16, 16, 3, padding=1)
    x = wf.asarray(
        np.ones((2, 12, 12, 16), np.float32).transpose(0, 3, 1, 2)
    )  # channels last, as it computes

    def run(f, *arrays):
        f(*arrays)
        return record(lambda: f(*arrays).wait())

    given = wf.trace(lambda x, w: F.conv2d(x, w, padding=1))
    found = only(run(given, x, w), "reorders")
    assert found.times == given.programs[0].plan.info.reorders > 0
    assert "test_advice.py" in found.where
    assert "reorders" not in kinds(run(wf.trace(lambda x: conv(x)), x))


def test_reference_code(capfd, monkeypatch):
    """Maxima of windows with gaps are oneDNN's reference code: named in tables, warned of, printed when planned."""
    monkeypatch.setenv("WEFT_DEBUG", "1")
    x = wf.ones((2, 3, 16, 16))
    slow = wf.trace(lambda x: F.max_pool2d(x, 3, dilation=2) + 1)
    fast = wf.trace(lambda x: F.max_pool2d(x, 3) + 1)
    for f in (slow, fast):
        f(x).wait()
    said = [line for line in capfd.readouterr().err.splitlines() if "slow reference code" in line]
    assert said
    assert all("MaxPool2d" in line and "dilation=(2, 2)" in line for line in said)
    p = record(lambda: [slow(x) for _ in range(3)])
    found = only(p, "reference code")
    assert found.times == 3
    assert "max_pool2d" in found.text
    assert "test_advice.py" in found.where
    assert any("max_pool2d (reference code)" in row["operator"] for row in p.table())
    assert "reference code" not in kinds(record(lambda: fast(x)))


def test_oversubscription():
    def run(workers, together):
        """`together` functions, each of which waits for all others."""
        barrier = threading.Barrier(together)
        with Engine(workers=workers) as engine, wf.tools.profile([engine]) as p:
            for _ in range(together):
                engine.push(
                    lambda run_context: barrier.wait(60), mutate_vars=[engine.new_variable()], name="meets"
                )
        return p

    import os

    cores = len(os.sched_getaffinity(0))
    found = only(run(cores + 2, cores + 2), "oversubscription")
    assert found.times == cores + 2
    assert "WEFT_NUM_THREADS" in found.advice
    assert "oversubscription" not in kinds(run(cores, cores))


def test_gaps_and_errors_and_nothing():
    r = ProcessRecording(1.0)
    assert advice_on(r) == []
    r.dropped = 3
    assert [w.kind for w in advice_on(r)] == ["gaps"]
    assert {MEMORY.itemsize, OPERATION.itemsize, STEP.itemsize, WAIT.itemsize} == {56, 64, 32}
    with wf.tools.profile() as p, pytest.raises(ValueError, match="inside"):
        raise ValueError("inside")
    assert kinds(p) == set()


def test_rules_are_functions_with_a_sentence():
    assert all((rule.__doc__ or "").strip().endswith(".") for rule in RULES)
