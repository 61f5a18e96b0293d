"""Order between streams, where operations are finished when enqueued. test_gpu_streams.py runs it where GPUs are."""

import ctypes
import gc
import json
import os
import time

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft import _core
from weft.engine import default_engine
from weft.tools.profiling import Profile

SEED = int(os.environ.get("WEFT_TEST_SEED", "0"))
rng = np.random.default_rng(SEED)
DEVICES = ["gpu:0", "gpu:1", "cpu:0"]
LATE = SEED > 0


def counts(name):
    return _core.device_kind_counters("gpu")[name]


def numbers(*shape):
    return rng.integers(-9, 9, shape).astype("float32")


def test_a_call_is_enqueued_and_nothing_waits():
    x = wf.tensor(numbers(100, 7), device="gpu:0")
    for call in (
        lambda: x + x,
        lambda: F.softmax(x),
        lambda: x.sum(),
        lambda: (x @ x.T).mean(),
        lambda: x.T * 2,
    ):
        call().wait()
        before = counts("waits")
        for _ in range(5):
            result = call()
        assert counts("waits") == before
        result.wait()
        assert counts("waits") == before + 1


def test_a_traced_step_waits_for_nothing():
    with wf.device("gpu:0"):
        net = M.Sequential(M.Linear(7, 9), M.ReLU(), M.Linear(9, 3))
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        manager = wf.GradManager().attach(net.parameters())

        @wf.trace
        def step(x, y):
            with manager:
                loss = ((net(x) - y) ** 2).mean()
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        x, y = wf.tensor(numbers(5, 7) / 9), wf.tensor(numbers(5, 3) / 9)
        first = step(x, y).item()
        step(x, y).wait()
        before = {name: counts(name) for name in ("waits", "staged", "orders")}
        for _ in range(5):
            loss = step(x, y)
        assert {name: counts(name) for name in before} == before
        assert loss.item() < first


class Words(M.Module):
    """Checks indices forwards and backwards, and labels; running statistics are updated before the labels are seen."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = M.Embedding(11, 6), M.BatchNorm1d(6), M.Linear(6, 4)

    def forward(self, words):
        return self.out(F.tanh(self.norm(self.table(words).sum(axis=1))))


@pytest.mark.parametrize("method", [optim.SGD, optim.Adam])
def test_a_traced_step_that_checks_indices_and_labels_waits_for_nothing(method):
    """Updates in place look at what the checks found where they run."""
    with wf.device("gpu:0"):
        net = Words()
        optimizer = method(net.parameters(), lr=0.02)
        manager = wf.GradManager().attach(net.parameters())

        @wf.trace
        def step(words, labels):
            with manager:
                loss = F.cross_entropy(net(words), labels)
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        words, labels = wf.tensor(rng.integers(-11, 11, (8, 3))), wf.tensor(rng.integers(0, 4, 8))
        first = step(words, labels).item()
        step(words, labels).wait()
        before = {name: counts(name) for name in ("waits", "staged", "orders")}
        for _ in range(5):
            loss = step(words, labels)
        assert {name: counts(name) for name in before} == before
        assert loss.item() < first


@pytest.mark.parametrize("method", [optim.SGD, optim.Adam])
def test_a_step_outside_of_traces_waits_for_nothing(method):
    """Its updates look at what the checks of the loss, and of what the network has read, have found."""
    with wf.device("gpu:0"):
        net = Words()
        optimizer = method(net.parameters(), lr=0.02)
        manager = wf.GradManager().attach(net.parameters())
        words, labels = wf.tensor(rng.integers(-11, 11, (8, 3))), wf.tensor(rng.integers(0, 4, 8))

        def step(labels):
            with manager:
                loss = F.cross_entropy(net(words), labels)
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        first = step(labels).item()
        step(labels).wait()
        block = busy(wf.zeros((2, 2)))  # so that no check is known before the steps are enqueued
        before = {name: counts(name) for name in ("waits", "staged", "orders")}
        for _ in range(5):
            loss = step(labels)
        assert {name: counts(name) for name in before} == before
        block.wait()
        assert loss.item() < first

        weights = [p.numpy() for p in net.parameters()]
        refused = step(wf.tensor([0, 1, 2, 3, 4, 0, 1, 2]))
        for p, before_step in zip(net.parameters(), weights, strict=True):
            np.testing.assert_array_equal(p.numpy(), before_step)
        with pytest.raises(IndexError, match="target 4 is none of the 4 classes"):
            refused.item()


def test_checks_that_nobody_asks_for_give_their_places_back():
    """A stream that is far enough has passed them; there is room for 512."""
    x, index = wf.tensor(numbers(5), device="gpu:0"), wf.tensor([1, 0], device="gpu:0")
    other = wf.zeros(1, device="gpu:0")
    wf.take(x, index, axis=0).wait()
    before = counts("waits")
    for _ in range(5):
        for _ in range(150):
            wf.take(x, index, axis=0)
        (other + 1).wait()
    assert counts("waits") <= before + 5


def test_more_is_enqueued_than_a_stream_may_be_ahead():
    x = wf.zeros(5, device="gpu:0")
    for _ in range(1500):
        x += 1
    assert x.tolist() == [1500] * 5


def test_memory_is_given_again_when_its_streams_have_passed():
    """Arrays that go while a late stream uses them, and others that take memory meanwhile."""
    wf.waitall()
    _core.memory_stats("gpu:0")
    a = numbers(3000)
    for _ in range(20):
        x = wf.tensor(a, device="gpu:0")
        y = x * 2
        del x
        z = wf.full((3000,), 7.0, device="gpu:0")
        w = y.to_device("gpu:1")
        del y
        v = wf.tensor(a + 1, device="gpu:0")
        np.testing.assert_array_equal(w.numpy(), a * 2)
        np.testing.assert_array_equal(z.numpy(), 7)
        np.testing.assert_array_equal(v.numpy(), a + 1)
    del w, z, v
    gc.collect()
    wf.waitall()
    before = _core.memory_stats("gpu:0")["in_use_bytes"]
    x = wf.zeros(1 << 20, device="gpu:0")
    del x
    wf.waitall()
    assert _core.memory_stats("gpu:0")["in_use_bytes"] == before


class Pair:
    """An array and what it has to hold."""

    def __init__(self, x, a):
        self.x, self.a = x, a


def random_step(pairs):
    """One operation on random ones of the pairs."""
    p, q = (pairs[int(k)] for k in rng.integers(0, len(pairs), 2))
    kind = int(rng.integers(0, 8))
    if kind == 0:
        q = next((r for r in pairs if r.x.device is p.x.device and r is not p), p)
        pairs.append(Pair(p.x - q.x, p.a - q.a))
    elif kind == 1:
        device = DEVICES[int(rng.integers(0, 3))]
        pairs.append(Pair(p.x.to_device(device).copy(), p.a.copy()))
    elif kind == 2:
        p.x[...] = q.x.copy() if q is p else q.x
        p.a[...] = q.a
    elif kind == 3:
        first, last = sorted(rng.integers(0, len(p.a) + 1, 2).tolist())
        p.x[first:last] = q.x[first:last] if q is not p else 3
        p.a[first:last] = q.a[first:last] if q is not p else 3
    elif kind == 4:
        p.x += 1
        p.a += 1
    elif kind == 5:
        value = int(rng.integers(0, 9))
        p.x[...] = value
        p.a[...] = value
    elif kind == 6:
        p.x[::2] = q.x.T[::2] if q is not p else 1
        p.a[::2] = q.a.T[::2] if q is not p else 1
    else:
        host = numbers(*p.a.shape)
        p.x[...] = wf.tensor(host)
        p.a[...] = host
    while len(pairs) > 7:
        pairs.pop(int(rng.integers(0, len(pairs))))


@pytest.mark.parametrize("graph", range(12))
def test_random_graphs_over_two_devices(graph):
    """Against NumPy, which does one thing after the other."""
    pairs = []
    for device in DEVICES:
        a = numbers(24, 24)
        pairs.append(Pair(wf.tensor(a, device=device), a.copy()))
    for _ in range(40):
        random_step(pairs)
    for p in pairs:
        np.testing.assert_array_equal(p.x.numpy(), p.a)


HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def test_the_timeline_has_a_lane_for_each_stream(tmp_path):
    """By the device's clock: an operation is on its stream for as long as it runs there, not as it is enqueued."""
    driver = ctypes.CDLL(os.environ["WEFT_GPU_DRIVER"])
    driver.cuLaunchHostFunc.argtypes = [ctypes.c_void_p, HostFunction, ctypes.c_void_p]
    sleep = HostFunction(lambda _: time.sleep(0.1))
    engine = default_engine()

    def enqueue(context):
        assert driver.cuLaunchHostFunc(context.stream, sleep, None) == 0

    x, host = wf.tensor(numbers(30, 30), device="gpu:0"), wf.tensor(numbers(30, 30))
    (x @ x).to_device("gpu:1").numpy()
    with wf.tools.profile() as p:
        engine.push(enqueue, mutate_vars=[x], device=wf.as_device("gpu:0"), name="sleeping")
        y = x @ x
        x[...] = host
        y.to_device("gpu:1").numpy()
    streams = {}
    for lane in p.events.lanes:
        if lane.kind == "stream":
            rows = range(lane.first, lane.last)
            streams[lane.thread] = {p.events.details[p.events.detail[k]].name: k for k in rows}
            starts = p.events.start[lane.first : lane.last]
            assert (np.diff(starts) >= 0).all()
    assert {name: set(rows) for name, rows in streams.items()} == {
        "gpu:0 compute": {"sleeping", "matmul"},
        "gpu:0 copies in": {"copy"},
        "gpu:1 copies in": {"to_device"},
        "gpu:1 copies out": {"copy"},
    }
    sleeping, product = (streams["gpu:0 compute"][name] for name in ("sleeping", "matmul"))
    assert p.events.seconds[sleeping] >= 0.1
    pushed = int(p.events.parent[sleeping])
    assert p.events.details[p.events.detail[pushed]].kind == "operation"
    assert p.events.seconds[pushed] < 0.1
    assert p.events.start[product] >= p.events.start[sleeping] + p.events.seconds[sleeping]
    other = streams["gpu:1 copies in"]["to_device"]  # of another clock, which is read to some milliseconds
    assert p.events.start[other] + p.events.seconds[other] > p.events.start[sleeping] + 0.05
    assert p.recording.dropped == 0

    p.to_chrome(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {f"{name} stream" for name in streams} <= names
    durations = {e["name"]: e["dur"] for e in events if e["ph"] == "X" and e["cat"] == "stream"}
    assert durations["sleeping"] >= 1e5
    p.dump(tmp_path / "r.raw")
    assert Profile.load(tmp_path / "r.raw").recording.stream_names == p.recording.stream_names


@wf.trace
def busy(x):
    """Launches of one push: the stream is behind the host for some milliseconds, however slow that is."""
    for _ in range(30):
        x = x @ x
    return x


def chain():
    """Each kind of order between streams: after a copy, before one, between devices; whether all is right."""
    a, b = numbers(40, 40), numbers(40, 40)
    work = busy(wf.zeros((2, 2), device="gpu:0"))
    x = wf.tensor(a, device="gpu:0")
    y = x + 1  # reads what was copied
    x[...] = wf.tensor(b)  # after it was read
    z = y.to_device("gpu:1")  # reads what another device computed
    y[...] = 5  # after the other device has read it
    w = z * 2
    v = x + y
    got = [t.numpy() for t in (w, v, y, x)]
    work.wait()
    return all((g == want).all() for g, want in zip(got, (2 * (a + 1), b + 5, 0 * a + 5, b), strict=True))


def loop_over(there):
    """A loop whose body copies to another device, computes there, and copies back, beside work on its own."""

    def body(item, total):
        away = (total + item).to_device(there) * 2
        return away.to_device(total.device) - total, (away - 1).to_device(total.device)

    return wf.trace(lambda x, start: wf.foreach(body, x, start))


LOOP = loop_over("gpu:1")


def looped():
    """Two turns of a loop over two devices, behind work on both; whether all is right."""
    a, start = numbers(2, 40, 40), numbers(40, 40)
    work = [busy(wf.zeros((2, 2), device=device)) for device in ("gpu:0", "gpu:1")]
    items, last = LOOP(wf.tensor(a, device="gpu:0") * 1, wf.tensor(start, device="gpu:0") * 1)
    got = [t.numpy() for t in (items, last)]
    for w in work:
        w.wait()
    total, want = start, []
    for item in a:
        away = (total + item) * 2
        want.append(away - total)
        total = away - 1
    return (got[0] == np.stack(want)).all() and (got[1] == total).all()


@pytest.mark.parametrize("there", ["gpu:1", "cpu:0", "cpu:1"])
@pytest.mark.parametrize("here", ["gpu:0", "cpu:0"])
def test_loops_over_several_devices(here, there):
    traced = loop_over(there)
    for n in (1, 5, 5):
        a, total = numbers(n, 33, 7), numbers(33, 7)
        items, last = traced(wf.tensor(a, device=here), wf.tensor(total, device=here))
        for k, item in enumerate(a):
            away = (total + item) * 2
            np.testing.assert_array_equal(items[k].numpy(), away - total)
            total = away - 1
        np.testing.assert_array_equal(last.numpy(), total)
    assert str(last.device) == here


def test_loops_and_branches_that_decide_on_another_device():
    def double(x, n):
        return (x.to_device("gpu:1") * 2).to_device("gpu:0"), n + 1

    @wf.trace
    def run(x):
        y, n = wf.while_loop(lambda x, n: x.to_device("gpu:1").sum() < 100, double, x, wf.tensor(0))
        there = lambda y: (y.to_device("gpu:1") - 1).to_device("gpu:0")  # noqa: E731
        return y, n, wf.cond(y.sum() > 130, there, lambda y: y + 1, y)

    with wf.device("gpu:0"):
        for start in (1.0, 3.0, 1.0):
            y, n, z = run(wf.full((2,), start))
            value, turns = start, 0
            while 2 * value < 100:
                value, turns = value * 2, turns + 1
            assert (y.tolist(), n.item()) == ([value] * 2, turns)
            assert z.tolist() == [value - 1 if 2 * value > 130 else value + 1] * 2


def test_gradients_of_loops_over_several_devices():
    a, s = numbers(4, 5, 6) / 9, numbers(5, 6) / 9

    def loss(there):
        def body(item, total):
            away = F.tanh((total * item).to_device(there))
            return away.to_device(total.device) * total, (away * away).to_device(total.device) + item

        def run(x, start):
            items, last = wf.foreach(body, x, start)
            return (items * items).sum() + last.sum()

        return wf.trace(wf.grad(run, argnums=(0, 1)))

    want = [t.numpy() for t in loss("cpu:0")(wf.tensor(a, device="cpu:0"), wf.tensor(s, device="cpu:0"))]
    slopes = loss("gpu:1")
    for _ in range(3):
        got = slopes(wf.tensor(a, device="gpu:0"), wf.tensor(s, device="gpu:0"))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not LATE, reason="streams that are never late show nothing")
@pytest.mark.parametrize(("chain", "least"), [(chain, 4), (looped, 4)])
def test_each_wait_between_streams_is_needed(chain, least):
    driver = ctypes.CDLL(os.environ["WEFT_GPU_DRIVER"])
    driver.weft_standin_skip_wait.argtypes = [ctypes.c_uint64]
    waits = [ctypes.c_uint64() for _ in range(3)]

    def number_of_waits():
        driver.weft_standin_counts(*map(ctypes.byref, waits))
        return waits[2].value

    assert chain()
    wf.waitall()
    before = number_of_waits()
    assert chain()
    wf.waitall()
    per_run = number_of_waits() - before
    assert per_run >= least
    for k in range(1, per_run + 1):
        left_out = 0
        for _ in range(600):
            wf.waitall()
            number = number_of_waits() + k
            driver.weft_standin_skip_wait(number)
            if not chain():
                break
            left_out += number_of_waits() >= number  # where a stream was quick, there are fewer waits
        else:
            raise AssertionError(f"wait {k} of {per_run} can be left out, {left_out} times")
    driver.weft_standin_skip_wait(0)
    wf.waitall()
    assert all(chain() for _ in range(5))
