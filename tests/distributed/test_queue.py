"""The order of collectives, and which thread runs them: the queue with another rank that is played."""

import random
import threading

import numpy as np
import pytest

import weft as wf
from weft.distributed import queue as queues
from weft.distributed import transport, world
from weft.distributed.queue import NOT_READY, Job, Places, Queue


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
    count, ranks = 40, [Places() for _ in range(3)]
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
    one, two = Places(), Places()
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
    places = Places()
    places.fences.add(2)
    for place in (1, 2, 3):
        places.jobs[place] = job(place, 9 if place > 1 else 0)
    assert places.best(places.words()) == 1
    places.take(1)
    assert places.best(places.words()) is None


class Request:
    def __init__(self, looks):
        self.looks = looks

    def Test(self):
        self.looks -= 1
        return self.looks < 0

    def Wait(self):
        pass


class Mirror:
    """A communicator of two ranks, of which the other does what this one does, `looks` questions later."""

    rank, size, looks = 0, 2, 0

    def __init__(self):
        self.threads = []

    def Iallreduce(self, x, y, op):
        y[...] = 2 * x if op == "sum" else x
        self.threads.append(threading.current_thread().name)
        return Request(self.looks)


@pytest.fixture
def mirror(monkeypatch):
    """The communicator of this process's world; without MPI."""
    comm = Mirror()
    monkeypatch.setattr(queues, "_specs", lambda words: (list(words), "max"))
    monkeypatch.setattr(transport, "_mpi_op", lambda name: name)
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
    monkeypatch.setattr(queues, "NOW_S", 0.0)
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
    monkeypatch.setattr(transport, "_mpi_op", lambda name: 1 / 0)
    y = wf.distributed.all_reduce(wf.tensor([1.0]))
    with pytest.raises(wf.EngineError, match="all_reduce: ZeroDivisionError: division by zero"):
        y.numpy()
    monkeypatch.setattr(transport, "_mpi_op", lambda name: name)
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


def test_an_agreement_that_is_given_up_leaves_its_memory_to_mpi(mirror, monkeypatch):
    monkeypatch.setattr(queues, "NOW_S", 0.0)
    monkeypatch.setenv("WEFT_COLLECTIVE_TIMEOUT_S", "0.1")
    mirror.looks = 10**9
    words = mirror.queue._words
    with pytest.raises(wf.EngineError, match="not all ranks came within"):
        wf.distributed.all_reduce(wf.tensor([1.0])).numpy()
    assert mirror.queue._words is not words
    mirror.looks = 0
    assert wf.distributed.all_reduce(wf.tensor([1.0])).item() == 2
