"""The order of collectives, and which thread runs them: the queue with another rank that is played."""

import random
import threading

import numpy as np
import pytest

import weft as wf
from weft.distributed import queue as queues
from weft.distributed import transport, world
from weft.distributed.queue import NOT_READY, Job, Queue, Schedule
from weft.kvstore import synchronous


def job(place, priority):
    return Job(f"job {place}", "", None, print, priority=priority)


def take_next(ranks, chosen):
    """One collective of all ranks: (its place, what comes next), as agreements find it."""
    place = ranks[0].base if chosen is None else chosen
    assert {p.base for p in ranks} == {ranks[0].base}
    assert all(p.take(place) is not None for p in ranks)
    words = np.max([p.words() for p in ranks], axis=0)
    (best,) = {p.best(words) for p in ranks}
    return place, best


@pytest.mark.parametrize("seed", range(20))
def test_ranks_take_the_same_order_whatever_is_ready_when(seed):
    """Jobs become ready in another order on each rank; each is taken once, in one order."""
    chance = random.Random(seed)
    count, ranks = 40, [Schedule() for _ in range(3)]
    priorities = [chance.randrange(-3, 4) for _ in range(count)]
    fences = {k for k in range(count) if chance.random() < 0.05}
    coming = []
    for places in ranks:
        places.fences = set(fences)
        order = list(range(count))
        for k in range(count):  # a job may be late by a few places
            other = min(count - 1, k + chance.randrange(6))
            order[k], order[other] = order[other], order[k]
        coming.append(order)
    taken, chosen = [], None
    while len(taken) < count:
        for places, order in zip(ranks, coming, strict=True):
            for _ in range(chance.randrange(4)):
                if order:
                    place = order.pop(0)
                    places.jobs[place] = job(place, priorities[place])
        first = ranks[0].base if chosen is None else chosen
        if not all(first in places.jobs for places in ranks):
            continue
        place, chosen = take_next(ranks, chosen)
        taken.append(place)
    assert sorted(taken) == list(range(count))
    for fence in fences:
        assert set(taken[: taken.index(fence)]) == set(range(fence))


def test_the_highest_priority_that_is_ready_on_all_ranks_is_next():
    one, two = Schedule(), Schedule()
    for place in range(5):
        one.jobs[place] = job(place, place)
    for place in (0, 1, 3):
        two.jobs[place] = job(place, place)
    place, best = take_next([one, two], None)
    assert (place, best) == (0, 3)  # 4 is not ready on one of them
    two.jobs[4] = job(4, -1)  # ranks differ: the least counts
    place, best = take_next([one, two], best)
    assert (place, best) == (3, 1)
    two.jobs[2] = job(2, 2)
    assert [one.jobs[2].priority, (order := take_next([one, two], best))] == [2, (1, 2)]
    assert take_next([one, two], order[1]) == (2, 4)
    assert take_next([one, two], 4) == (4, None)
    assert one.base == two.base == 5
    assert set(one.words()) == {NOT_READY}


def test_nothing_overtakes_a_fence():
    places = Schedule()
    places.fences.add(2)
    for place in (1, 2, 3):
        places.jobs[place] = job(place, 9 if place > 1 else 0)
    assert places.best(places.words()) == 1
    places.take(1)
    assert places.best(places.words()) is None


class Request:
    """What it does is done when it has ended, not before."""

    def __init__(self, looks, end=lambda: None):
        self.looks, self.end = looks, end

    def Test(self):
        self.looks -= 1
        if self.looks == -1:
            self.end()
        return self.looks < 0

    def Wait(self):
        while not self.Test():
            pass


class Mirror:
    """A communicator of two ranks, of which the other does what this one does, `looks` questions later."""

    rank, size, looks = 0, 2, 0

    def __init__(self):
        self.threads = []
        self.sizes = []  # of what is added up

    def Iallreduce(self, x, y, op):
        if op != "max":
            self.sizes.append(y.size)
        self.threads.append(threading.current_thread().name)
        return Request(self.looks, lambda: self.reduce(x, y, op))

    def Ibcast(self, x, root):
        return Request(self.looks)

    def reduce(self, x, y, op):
        y[...] = x if op == "max" else 2 * (x if isinstance(x, np.ndarray) else y)  # else MPI.IN_PLACE


@pytest.fixture
def mirror(monkeypatch):
    """The communicator of this process's world; without MPI."""
    comm = Mirror()
    monkeypatch.setattr(queues, "_specs", lambda words: (list(words), "max"))
    monkeypatch.setattr(transport, "_mpi_op", lambda name, *_: name)
    queue = Queue(comm, None, ["here"])
    monkeypatch.setattr(world, "_world", world.World(0, 2, queue))
    comm.queue = queue
    yield comm
    assert queue.stop(10)


def test_a_small_exchange_of_arrays_that_are_ready_needs_no_other_thread(mirror):
    x = wf.tensor([1.0, 2.0])
    x.wait()
    before = wf.engine.default_engine().stats()["pushed"]
    y = wf.distributed.all_reduce(x)
    assert wf.engine.default_engine().stats()["pushed"] == before
    assert y.numpy().tolist() == [2, 4]
    assert set(mirror.threads) == {threading.current_thread().name}
    assert mirror.queue.count == 1


def test_an_exchange_that_others_are_late_for_goes_on_elsewhere(mirror, monkeypatch):
    monkeypatch.setattr(queues, "INLINE_WAIT_S", 0.0)
    mirror.looks = 3
    x = wf.tensor([1.0, 2.0])
    x.wait()
    y = wf.distributed.all_reduce(x)
    x[...] = 7  # comes behind the exchange, which reads it
    assert (y + 1).numpy().tolist() == [3, 5]
    assert mirror.threads == [threading.current_thread().name, "weft-communication"]
    found = [wf.distributed.all_reduce(wf.tensor([float(k)])) for k in range(20)]  # some are not tried here
    assert [f.item() for f in found] == [2.0 * k for k in range(20)]
    assert mirror.queue.count == 21


def test_an_exchange_that_fails_here_poisons_its_result(mirror, monkeypatch):
    monkeypatch.setattr(transport, "_mpi_op", lambda *_: 1 / 0)
    y = wf.distributed.all_reduce(wf.tensor([1.0]))
    with pytest.raises(wf.EngineError, match="all_reduce: ZeroDivisionError: division by zero"):
        y.numpy()
    monkeypatch.setattr(transport, "_mpi_op", lambda name, *_: name)
    assert wf.distributed.all_reduce(wf.tensor([1.0])).item() == 2


@pytest.mark.skipif(wf.engine.default_engine().kind == "naive", reason="every array is ready")
def test_arrays_that_are_not_ready_are_waited_for_by_the_engine(mirror):
    x, gate = wf.zeros(2), threading.Event()
    wf.engine.default_engine().push(lambda _: gate.wait(), mutate_vars=[x], name="fill", queue="io")
    y = wf.distributed.all_reduce(x)  # returns although x is not there
    assert mirror.queue.count == 0
    gate.set()
    assert y.numpy().tolist() == [0, 0]
    assert mirror.queue.count == 1


def test_large_arrays_are_reduced_in_pieces_of_which_two_are_under_way(mirror, monkeypatch):
    monkeypatch.setattr(transport, "PART_BYTES", 20)  # of each of two ranks: pieces of ten floats
    x = wf.arange(25).astype("float32")
    x.wait()
    same = np.testing.assert_array_equal
    same(wf.distributed.all_reduce(x, "mean").numpy(), np.arange(25))
    assert mirror.sizes == [10, 10, 5]
    half = x.astype("float16")
    half.wait()
    same(wf.distributed.all_reduce(half).numpy(), 2 * np.arange(25))
    assert mirror.sizes[3:] == [20, 5]
    log = []
    steps = transport.run_in_pieces(
        (log.append(f"begin {k}") or f"request {k}", lambda k=k: log.append(f"end {k}")) for k in range(4)
    )
    for request in steps:
        log.append(request)
    waits = [["request 0", "end 0", "begin 2"], ["request 1", "end 1", "begin 3"]]
    assert log == ["begin 0", "begin 1", *waits[0], *waits[1], "request 2", "end 2", "request 3", "end 3"]


def test_a_copy_over_what_is_still_to_be_reduced_waits(mirror, monkeypatch):
    monkeypatch.setattr(transport, "PART_BYTES", 20)
    memory = np.arange(26.0, dtype="float32")
    x, out, y = memory[:-1], memory[1:], np.empty(25, "float32")
    expected = 2 * x
    for request in transport.AllReduce(op="sum").run(mirror, [x], [y, out], 2):
        request.Wait()
    assert y.tolist() == out.tolist() == expected.tolist()


@pytest.fixture
def direct(mirror, monkeypatch):
    """make(first): a store with this value as "a", which receives all sums where they stay, in pieces of ten floats."""
    monkeypatch.setattr(transport, "PART_BYTES", 20)
    monkeypatch.setattr(synchronous, "DIRECT_BYTES", 0)

    def make(first):
        kv = wf.kvstore.create("dist_sync")
        kv.init("a", first)
        wf.waitall()
        return kv

    return make


def test_a_sum_is_received_where_it_is_stored_and_where_it_is_pulled_to(direct, mirror):
    kv, x, out = direct(wf.zeros(25)), wf.arange(25).astype("float32"), wf.zeros(25)
    wf.waitall()
    before = wf.engine.default_engine().stats()["pushed"]
    assert kv.pushpull("a", x, out=out) is out
    assert wf.engine.default_engine().stats()["pushed"] == before  # nothing is copied by itself
    assert out.numpy().tolist() == [2.0 * k for k in range(25)]
    out[...] = 7
    assert kv.pull("a").numpy().tolist() == [2.0 * k for k in range(25)]
    kv.push("a", x + x)
    assert kv.pull("a").numpy().tolist() == [4.0 * k for k in range(25)]


@pytest.mark.parametrize("case", ["itself", "part", "columns", "shifted", "two", "stored columns", "half"])
def test_whatever_is_pulled_to(direct, case):
    """What a push and a pull of it come to, by themselves and as one."""
    found = []
    for together in (True, False):
        memory = wf.arange(60).astype("float16" if case == "half" else "float32")
        x = memory[:24].reshape(4, 6)
        outs = {
            "itself": x,
            "part": memory[30:54].reshape(4, 6),
            "columns": wf.zeros((6, 4)).T,
            "shifted": memory[3:27].reshape(4, 6),
            "two": [wf.zeros((4, 6)), wf.zeros((4, 6))],
            "stored columns": wf.zeros((4, 6)),
            "half": wf.zeros((4, 6), dtype="float16"),
        }[case]
        kv = direct(wf.zeros((6, 4)).T if case == "stored columns" else wf.zeros((4, 6), dtype=x.dtype))
        for _ in range(2):
            if together:
                kv.pushpull("a", x, out=outs)
            else:
                kv.push("a", x)
                kv.pull("a", outs)
        every = outs if isinstance(outs, list) else [outs]
        found.append([y.numpy().tolist() for y in (*every, memory, kv.pull("a"))])
    assert found[0] == found[1]


def test_keys_whose_values_lie_where_others_are_pulled_to(direct):
    kv, a, b = direct(wf.zeros(20)), wf.full(20, 1.0), wf.full(20, 2.0)
    kv._bucket_bytes = 80
    kv.init("b", wf.zeros(20))
    kv.pushpull(["a", "b"], [a, b], out=[b, a])
    assert b.numpy().tolist() == [2.0] * 20
    assert a.numpy().tolist() == [4.0] * 20


def test_what_gradients_need_is_found_overwritten(direct):
    kv, w = direct(wf.zeros(25)), wf.ones(25)
    gm = wf.GradManager().attach([w])
    with gm:
        loss = (w * w).sum()
        kv.pushpull("a", wf.ones(25), out=w)
        with pytest.raises(ValueError, match="overwritten since"):
            gm.backward(loss)


def test_a_sum_that_fails_poisons_both(direct, monkeypatch):
    kv, x, out = direct(wf.zeros(25)), wf.ones(25), wf.zeros(25)
    monkeypatch.setattr(transport, "_mpi_op", lambda *_: 1 / 0)
    kv.pushpull("a", x, out=out)
    for y in (out, kv.pull("a")):
        with pytest.raises(wf.EngineError, match="division by zero"):
            y.numpy()
    monkeypatch.setattr(transport, "_mpi_op", lambda name, *_: name)
    assert kv.pushpull("a", x, out=out).numpy().tolist() == kv.pull("a").numpy().tolist() == [2.0] * 25


def test_an_interrupt_leaves_an_exchange_to_the_other_thread(direct, mirror, monkeypatch):
    kv, x, out = direct(wf.zeros(25)), wf.ones(25), wf.zeros(25)
    mirror.looks = 2
    whole = Request.Test

    def test(self):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return whole(self)

    monkeypatch.setattr(Request, "Test", test)
    with pytest.raises(KeyboardInterrupt):
        kv.pushpull("a", x, out=out)
    assert out.numpy().tolist() == kv.pull("a").numpy().tolist() == [2.0] * 25


def test_an_interrupt_between_requests_is_the_end_of_exchanges(direct, mirror, monkeypatch):
    kv, x, out = direct(wf.zeros(25)), wf.ones(25), wf.zeros(25)
    begin = mirror.Iallreduce

    def interrupted(x, y, op):
        if op != "max":
            raise KeyboardInterrupt
        return begin(x, y, op)

    monkeypatch.setattr(mirror, "Iallreduce", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kv.pushpull("a", x, out=out)
    with pytest.raises(wf.EngineError, match="interrupted while data was moved"):
        out.numpy()
    monkeypatch.setattr(mirror, "Iallreduce", begin)
    with pytest.raises(wf.EngineError, match="interrupted in the middle of an exchange"):
        wf.distributed.all_reduce(x).numpy()


def test_an_agreement_that_is_given_up_leaves_its_memory_to_mpi(mirror, monkeypatch):
    monkeypatch.setattr(queues, "INLINE_WAIT_S", 0.0)
    monkeypatch.setenv("WEFT_COLLECTIVE_TIMEOUT_S", "0.1")
    mirror.looks = 10**9
    words = mirror.queue._words
    with pytest.raises(wf.EngineError, match="not all ranks came within"):
        wf.distributed.all_reduce(wf.tensor([1.0])).numpy()
    assert mirror.queue._words is not words
    mirror.looks = 0
    assert wf.distributed.all_reduce(wf.tensor([1.0])).item() == 2
