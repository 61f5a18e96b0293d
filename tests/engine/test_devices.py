"""Devices have workers and queues of their own; copy, I/O and priority work never waits behind compute;
priorities hold.
"""

import contextlib
import itertools
import threading

import pytest

import weft
from weft.base.errors import DeviceError

from .support import LIMIT_S, SOON_S, Gate, Signal

QUEUES = ["compute", "wide", "copy", "io", "priority"]


def test_devices_work_side_by_side(make_engine):
    engine = make_engine(workers=1)
    together = threading.Barrier(4)
    for i in range(4):
        engine.push(lambda rc: together.wait(LIMIT_S), weft.cpu(i))
    engine.wait_for_all()
    assert not together.broken


@pytest.mark.parametrize("queue", QUEUES)
def test_devices_have_threads_of_their_own(make_engine, queue):
    engine = make_engine(workers=2)
    threads = {0: set(), 1: set()}
    for i in range(200):
        engine.push(
            lambda rc: threads[rc.device.index].add(threading.get_ident()), f"cpu:{i % 2}", queue=queue
        )
    engine.wait_for_all()
    assert threads[0]
    assert threads[1]
    assert not threads[0] & threads[1]


def test_devices_queues_have_threads_of_their_own(make_engine):
    engine = make_engine(workers=2)
    threads = {queue: set() for queue in QUEUES}
    for i in range(500):
        engine.push(lambda rc: threads[rc.queue].add(threading.get_ident()), queue=QUEUES[i % 5])
    engine.wait_for_all()
    for one, other in itertools.combinations(QUEUES, 2):
        assert not threads[one] & threads[other], (one, other)


@pytest.mark.parametrize("queue", ["copy", "io", "priority"])
@pytest.mark.parametrize("busy", ["compute", "wide"])
def test_devices_copy_io_and_priority_work_never_waits_behind_compute(make_engine, gate, queue, busy):
    engine = make_engine(workers=2)
    for _ in range(20):
        engine.push(gate.wait, queue=busy, priority=100)
    gate.wait_until_entered()
    done = Signal()
    engine.push(done, queue=queue)
    done.wait_or_fail()


@pytest.mark.parametrize("busy", ["copy", "io", "priority"])
def test_devices_compute_work_does_not_wait_behind_the_other_queues(make_engine, gate, busy):
    engine = make_engine(workers=1, io_workers=1)
    for _ in range(20):
        engine.push(gate.wait, queue=busy)
    gate.wait_until_entered()
    for queue in [q for q in QUEUES if q != busy]:
        done = Signal()
        engine.push(done, queue=queue)
        done.wait_or_fail()


def test_devices_asynchronous_work_never_waits_behind_compute(make_engine, gate):
    engine = make_engine(workers=1)
    engine.push(gate.wait)
    gate.wait_until_entered()
    done = Signal()
    engine.push_async(lambda rc, on_complete: on_complete(), on_done=done)
    done.wait_or_fail()


@contextlib.contextmanager
def one_thread_left(engine, queue, device):
    """All threads of a queue are held at gates; on leaving, one of them is let go and finds what was pushed
    meanwhile.
    """
    gates = []
    while True:
        gate = Gate()
        gates.append(gate)
        engine.push(gate.wait, device, queue=queue, priority=1 << 20)
        try:
            gate.wait_until_entered(0.3)
        except AssertionError:
            break
    assert len(gates) > 1, "no thread came"
    gates[-1].open()
    try:
        yield
        gates[0].open()
        probe = Signal()
        engine.push(probe, device, queue=queue, priority=-(1 << 20))
        probe.wait_or_fail()
    finally:
        for gate in gates:
            gate.open()


@pytest.mark.parametrize("device", ["cpu:0", "cpu:1"])
@pytest.mark.parametrize("queue", QUEUES)
def test_devices_priorities_are_honoured_in_every_queue(make_engine, queue, device):
    engine = make_engine(workers=1, io_workers=1)
    order = []
    priorities = [0, 5, -3, 5, 0, 7, -3, 2, 0, 1 << 15, -(1 << 15), 7]
    with one_thread_left(engine, queue, device):
        for i, priority in enumerate(priorities):
            engine.push(lambda rc, i=i: order.append(i), device, queue=queue, priority=priority)
    assert order == sorted(range(len(priorities)), key=lambda i: -priorities[i])


@pytest.mark.parametrize("queue", ["compute", "io", "copy"])
def test_devices_priorities_with_several_threads(make_engine, queue):
    engine = make_engine(workers=3, io_workers=3)
    order = []
    with one_thread_left(engine, queue, "cpu:0"):
        for i in range(50):
            engine.push(lambda rc, i=i: order.append(i), queue=queue, priority=i * 17 % 5)
    assert order == sorted(range(50), key=lambda i: -(i * 17 % 5))


def test_devices_equal_priorities_run_in_push_order(make_engine):
    engine = make_engine(workers=1)
    order = []
    with one_thread_left(engine, "compute", "cpu:0"):
        for i in range(500):
            engine.push(lambda rc, i=i: order.append(i))
    assert order == list(range(500))


def test_devices_priorities_of_asynchronous_functions(make_engine):
    engine = make_engine(workers=1, io_workers=1)
    order = []

    def fn(i):
        def run(rc, on_complete):
            order.append(i)
            on_complete()

        return run

    with one_thread_left(engine, "io", "cpu:0"):
        for i in range(20):
            engine.push_async(fn(i), priority=i % 3)
    assert order == sorted(range(20), key=lambda i: -(i % 3))


def test_devices_priorities_of_operators(make_engine):
    engine = make_engine(workers=1)
    order = []
    ops = [engine.new_operator(lambda rc, i=i: order.append(i)) for i in range(10)]
    with one_thread_left(engine, "compute", "cpu:0"):
        for i, op in enumerate(ops):
            engine.push(op, priority=i)
    assert order == list(reversed(range(10)))


def test_devices_priorities_hold_for_what_becomes_ready_later(make_engine, gate):
    """Operations that wait for a variable enter the queue by priority when it is free."""
    engine = make_engine(workers=1)
    v, order = engine.new_variable(), []
    engine.push(gate.wait, mutate_vars=[v])
    for i in range(30):
        engine.push(lambda rc, i=i: order.append(i), const_vars=[v], priority=i % 4)
    gate.open()
    engine.wait_for_all()
    assert order == sorted(range(30), key=lambda i: -(i % 4))


def test_devices_a_wide_function_has_the_device_to_itself(make_engine, gate):
    engine = make_engine(workers=2)
    narrow = Signal()
    engine.push(gate.wait, queue="wide")
    gate.wait_until_entered()
    engine.push(narrow)
    assert not narrow.wait(SOON_S)
    gate.open()
    narrow.wait_or_fail()


def test_devices_a_compute_function_that_blocks_does_not_hold_up_wide_work(make_engine, make_gate):
    engine, gates, wide = make_engine(workers=2), [make_gate(), make_gate()], Signal()
    for gate in gates:
        engine.push(gate.wait)
    for gate in gates:
        gate.wait_until_entered()
    engine.push(wide, queue="wide")
    wide.wait_or_fail()
    assert not any(gate.is_open for gate in gates)
    for gate in gates:
        gate.open()


def test_devices_wide_functions_have_the_device_to_themselves(make_engine):
    """But for the rare narrow function that the system holds up for longer than wide work waits: without the rule,
    nearly all of the 58 wide functions would meet narrow ones."""
    engine = make_engine(workers=4)
    inside, clashes, lock = {"wide": 0, "compute": 0}, [], threading.Lock()

    def fn(rc):
        with lock:
            inside[rc.queue] += 1
            if inside["wide"] > 1 or (inside["wide"] and inside["compute"]):
                clashes.append(dict(inside))
        threading.Event().wait(0.0002)
        with lock:
            inside[rc.queue] -= 1

    for i in range(400):
        engine.push(fn, queue="wide" if i % 7 == 0 else "compute")
    engine.wait_for_all()
    assert len(clashes) < 15


def test_devices_wide_functions_of_one_device_run_on_one_thread(make_engine):
    engine = make_engine(workers=4)
    threads = set()
    for _ in range(100):
        engine.push(lambda rc: threads.add(threading.get_ident()), queue="wide")
    engine.wait_for_all()
    assert len(threads) == 1


def test_devices_a_stream_of_compute_does_not_starve_wide_work(make_engine):
    engine = make_engine(workers=2)
    stop, wide = threading.Event(), Signal()

    def again(rc):
        if not stop.is_set():
            engine.push(again)

    for _ in range(4):
        engine.push(again)
    engine.push(wide, queue="wide")
    wide.wait_or_fail()
    stop.set()
    engine.wait_for_all()


def test_devices_a_stream_of_wide_work_does_not_starve_compute(make_engine):
    engine = make_engine(workers=2)
    stop, narrow = threading.Event(), Signal()

    def again(rc):
        if not stop.is_set():
            engine.push(again, queue="wide")

    for _ in range(4):
        engine.push(again)
    engine.push(narrow)
    narrow.wait_or_fail()
    stop.set()
    engine.wait_for_all()


def test_devices_wide_work_leaves_other_devices_alone(make_engine, gate):
    engine = make_engine(workers=1)
    engine.push(gate.wait, "cpu:0", queue="wide")
    gate.wait_until_entered()
    done = Signal()
    engine.push(done, "cpu:1")
    done.wait_or_fail()


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_devices_workers_is_how_many_functions_run_at_once(make_engine, make_gate, workers):
    engine, gate = make_engine(workers=workers), make_gate()
    assert engine.workers == workers
    for _ in range(workers + 1):
        engine.push(gate.wait)
    for _ in range(workers):
        gate.wait_until_entered()
    assert not gate.entered_soon()
    gate.open()
    gate.wait_until_entered()


@pytest.mark.parametrize("io_workers", [1, 3])
def test_devices_io_workers_is_how_many_io_functions_run_at_once(make_engine, make_gate, io_workers):
    engine, gate = make_engine(workers=1, io_workers=io_workers), make_gate()
    for _ in range(io_workers + 1):
        engine.push(gate.wait, queue="io")
    for _ in range(io_workers):
        gate.wait_until_entered()
    assert not gate.entered_soon()


@pytest.mark.parametrize("device", ["gpu", "gpu:0", weft.gpu(0)], ids=str)
def test_devices_that_are_not_there_are_refused(engine, device):
    v = engine.new_variable()
    with pytest.raises(DeviceError, match="gpu"):
        engine.push(lambda rc: None, device, mutate_vars=[v])
    engine.push(lambda rc: None, mutate_vars=[v])
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 1


def test_devices_operators_and_asynchronous_functions_refuse_a_missing_device_too(engine):
    op = engine.new_operator(lambda rc: None)
    with pytest.raises(DeviceError):
        engine.push(op, "gpu:0")
    with pytest.raises(DeviceError):
        engine.push_async(lambda rc, on_complete: on_complete(), "gpu:0")
    engine.wait_for_all()
