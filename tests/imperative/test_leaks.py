"""Nothing grows with use: memory in use, memory taken from the system, and the process, over very many operations."""

import copy
import ctypes
import gc
import os
import pickle
import queue
import time

import numpy as np
import pytest
from tests.on_device import DEVICE

import weft as wf

pytestmark = pytest.mark.daily(2)

SLACK_BYTES = 512 << 10
ROUNDS = 10_000 if not DEVICE else 1_000  # the streams of the stand-in are late
"""Rounds of one measured batch; a round is several operations."""
FULL_ROUNDS = 100_000


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure():
    gc.collect()
    wf.waitall()
    totals = [wf.storage.stats(device) for device in {"cpu:0", "cpu:1", DEVICE or "cpu:0"}]
    in_use = sum(total["in_use_bytes"] for total in totals)
    reserved = sum(total["reserved_bytes"] for total in totals)
    return in_use, reserved, resident_bytes()


def eventually(condition, limit_s=2.0):
    """For what no event tells: a worker lets go of its last operands a moment after they can be waited for."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def does_not_grow(batch, rounds):
    """Runs batch(rounds) again and again; after a warm-up, four of them leave all three numbers as they were.

    Python takes memory by the MiB, so a small leak shows once what was free before has been filled. The process
    may also grow for reasons of its own, such as an arena of the allocator, so it gets three chances not to; a leak
    grows at each of them.
    """
    batch(rounds)
    batch(rounds)
    seen = [measure()]
    for _ in range(3):
        for _ in range(4):
            batch(rounds)
        seen.append(measure())
        in_use, reserved, resident = (now - before for now, before in zip(seen[-1], seen[-2], strict=True))
        assert in_use <= 0 or eventually(lambda: measure()[0] <= seen[-2][0]), seen
        if reserved <= 0 and resident <= SLACK_BYTES:
            return
    raise AssertionError(f"(in use, reserved, resident) bytes after each four batches: {seen}")


def views(rounds):
    x = wf.zeros((4, 6))
    for i in range(rounds):
        y = x[i % 4, ::-1]
        y = x.T[1:, None].reshape(-1)
        wf.permute_dims(x, (1, 0))
        wf.broadcast_to(y[:1], (3, 5))
        for row in x:
            row[2:]


def empties(rounds):
    for i in range(rounds):
        wf.empty((i % 50, 3))
        wf.empty(i % 3000, "int8", "cpu:1")
        wf.empty(())
        x = wf.empty(20_000)
    del x


def assignments(rounds):
    x, y = wf.zeros((10, 30)), wf.ones(30, "int16")
    large, other = wf.zeros(20_000), wf.ones(20_000, device="cpu:1")
    for i in range(rounds):
        x[i % 10] = i
        x[1:] = x[:-1]
        x[...] = y
        x[:, 3] = [1.0] * 10
        if i % 10 == 0:  # large enough for a worker
            large[...] = other
            other[::2] = large[1::2]


def conversions(rounds):
    x = wf.arange(40)
    for i in range(rounds):
        x.astype("bfloat16").astype("int8").copy()
        x[::-2].contiguous()
        x.to_device("cpu:1").to_device("cpu:0")
        x[i % 40].item()
        wf.tensor([[1, 2], [3, 4]])
        wf.full(3, 2.5)


def exchange(rounds):
    x, a = wf.zeros((10, 10)), np.zeros((3, 4))
    frozen = np.zeros(5)
    frozen.flags.writeable = False
    for i in range(rounds):
        x.numpy()[0, 0] = i
        np.asarray(x[1:])
        wf.asarray(a)[0] = i
        wf.asarray(a.T).numpy()
        wf.asarray(frozen)
        memoryview(x).release()
        wf.asarray(bytearray(16))
        wf.tensor(a)
        x.astype("bfloat16").numpy()


def dlpack(rounds):
    x, a = wf.zeros((10, 10)), np.zeros((3, 4))
    for _ in range(rounds):
        np.from_dlpack(x)[0, 0] = 1
        wf.from_dlpack(a)[...] = 2
        x.__dlpack__()
        x.__dlpack__(max_version=(1, 0))
        x.__dlpack__(max_version=(1, 0), copy=True)
        wf.from_dlpack(np.from_dlpack(x.T))


def pickles(rounds):
    x = wf.zeros((5, 7))
    for _ in range(rounds // 4):
        pickle.loads(pickle.dumps(x, 4))
        buffers = []
        data = pickle.dumps(x, 5, buffer_callback=buffers.append)
        pickle.loads(data, buffers=buffers)
        copy.deepcopy([x, x])


def operators(rounds):
    """Run on the pushing thread, and by workers."""
    x, large, leaf = wf.ones(30), wf.ones(20_000), wf.ones(20_000)
    manager = wf.GradManager().attach([leaf])
    for i in range(rounds // 10):
        x + x
        wf.sum(large * 2.0)
        large += 1.0
        if i % 10 == 0:
            leaf.grad = None
            with manager:
                manager.backward((leaf * large).sum())


def errors(rounds):
    """Refused operations keep nothing of their operands."""
    x = wf.zeros((5, 7))
    capsule = object()  # no capsule at all
    frozen = wf.asarray(b"abc")

    class Refused:
        def __dlpack__(self, **_):
            return capsule

    for _ in range(rounds // 4):
        for attempt in (
            lambda: x[9],
            lambda: x.reshape(4),
            lambda: x.__setitem__(0, wf.zeros(6)),
            lambda: x.__setitem__(0, [1, 2]),
            lambda: x.__setitem__(0, object()),
            lambda: wf.broadcast_to(x, (2, 2)),
            lambda: wf.tensor([1, [2]]),
            lambda: wf.tensor([2**70], "int8"),
            lambda: wf.empty(2**60),
            lambda: frozen.__setitem__(0, 1),
            lambda: wf.from_dlpack(Refused()),
            lambda: memoryview(x.astype("bfloat16")),
        ):
            try:
                attempt()
            except (ArithmeticError, BufferError, LookupError, MemoryError, TypeError, ValueError):
                pass
            else:
                raise AssertionError("this was to be refused")


BATCHES = [views, empties, assignments, conversions, exchange, dlpack, pickles, operators, errors]
HOST_MEMORY = pytest.mark.processor("shares the host's memory")
PARAMETERS = pytest.mark.parametrize(
    "batch",
    [
        pytest.param(batch, marks=[HOST_MEMORY] if batch in (exchange, dlpack, errors) else [])
        for batch in BATCHES
    ],
    ids=lambda batch: batch.__name__,
)


@PARAMETERS
def test_nothing_grows_with_operations(batch):
    does_not_grow(batch, ROUNDS)


@pytest.mark.full
@pytest.mark.timeout(1200)
@PARAMETERS
def test_nothing_grows_with_a_million_operations(batch):
    does_not_grow(batch, FULL_ROUNDS)


@HOST_MEMORY
def test_nothing_grows_with_operations_of_many_threads(in_threads):
    """Every batch in a thread of its own, all at once."""
    does_not_grow(lambda rounds: in_threads(lambda batch: batch(rounds // 10), BATCHES), ROUNDS)


@pytest.mark.full
@pytest.mark.timeout(1200)
@HOST_MEMORY
def test_nothing_grows_with_a_million_operations_of_many_threads(in_threads):
    does_not_grow(lambda rounds: in_threads(lambda batch: batch(rounds // 10), BATCHES), FULL_ROUNDS)


@HOST_MEMORY
def test_nothing_grows_when_threads_share_tensors(in_threads):
    """Made in one thread, exported in another, dropped in a third."""
    rounds = ROUNDS // 4

    def batch(rounds):
        # Short, so that no thread gets far ahead: what waits for the next one would count as growth.
        made, exported = queue.Queue(50), queue.Queue(50)
        x = wf.zeros(100)

        def run(step):
            for i in range(rounds):
                step(i)

        def make(i):
            made.put(wf.full(100 + i % 50, i, "float32"), timeout=60)
            x[i % 100] = i

        def export(i):
            y = made.get(timeout=60)
            exported.put((y.numpy(), np.from_dlpack(y)), timeout=60)
            x.copy()

        def drop(i):
            a, b = exported.get(timeout=60)
            assert a[0] == b[-1] == i
            x[i % 100].item()

        in_threads(run, (make, export, drop))

    does_not_grow(batch, rounds)


def test_a_leak_of_one_object_a_round_would_be_seen():
    kept = []

    def leak(rounds):
        kept.extend(bytearray(1000) for _ in range(rounds))

    def leak_tensors(rounds):
        kept.extend(wf.empty(()) for _ in range(rounds))

    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests have left free would hide the leak
    for leaking, text in ((leak, "bytes after each four batches"), (leak_tensors, "eventually")):
        with pytest.raises(AssertionError, match=text):
            does_not_grow(leaking, ROUNDS)
        kept.clear()


def test_memory_goes_back_to_the_system():
    before = measure()
    kept = [wf.zeros(100_000) for _ in range(50)]
    assert measure()[0] >= before[0] + 50 * 400_000
    del kept
    assert eventually(lambda: measure()[0] <= before[0])
    wf.storage.trim(DEVICE or "cpu:0")
    assert measure()[1] <= before[1]
