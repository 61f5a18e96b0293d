"""push: asynchronous, returns at once; what only run time knows comes in the run context."""

import functools

import pytest

import weft
from weft.engine import RunContext

from .support import Signal

QUEUES = ["compute", "wide", "copy", "io", "priority"]


def test_push_runs_the_function(engine):
    ran = []
    assert engine.push(lambda rc: ran.append(1)) is None
    engine.wait_for_all()
    assert ran == [1]


def test_push_returns_at_once(threaded, gate):
    done = Signal()
    threaded.push(gate.wait)
    threaded.push(done, mutate_vars=[threaded.new_variable()])
    assert not gate.is_open
    gate.wait_until_entered()
    gate.open()
    done.wait_or_fail()


@pytest.mark.parametrize("queue", QUEUES)
def test_push_run_context_holds_what_only_run_time_knows(engine, queue):
    seen = []

    def look(rc):
        seen.append((type(rc), rc.device, rc.stream, rc.queue, rc.operation, rc.worker))

    engine.push(look, weft.cpu(1), name="look", queue=queue)
    engine.wait_for_all()
    [(kind, device, stream, in_queue, operation, worker)] = seen
    assert kind is RunContext
    assert device == weft.cpu(1)
    assert stream is None
    assert (in_queue, operation) == (queue, "look")
    assert isinstance(worker, int)
    assert (worker < 0) == (engine.kind == "naive")


def test_push_worker_numbers_are_those_of_the_queue(make_engine, gate):
    engine = make_engine(workers=3)
    seen = []

    def look(rc):
        seen.append(rc.worker)
        gate.wait()

    for _ in range(3):
        engine.push(look)
    for _ in range(3):
        gate.wait_until_entered()
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("device", [None, "cpu", "cpu:0", weft.cpu(0)], ids=str)
def test_push_device_may_be_none_a_name_or_a_device(engine, device):
    seen = []
    engine.push(lambda rc: seen.append(rc.device), device)
    engine.wait_for_all()
    assert seen == [weft.cpu(0)]


def test_push_takes_its_arguments_in_the_documented_order(engine):
    read, mutated, overwritten = (engine.new_variable() for _ in range(3))
    seen = []
    engine.push(
        lambda rc: seen.append((rc.operation, rc.device)),
        "cpu:1",
        [read],
        [mutated],
        [overwritten],
        3,
        "name",
    )
    engine.wait_for_all()
    assert seen == [("name", weft.cpu(1))]
    assert [v.version for v in (read, mutated, overwritten)] == [0, 1, 1]


@pytest.mark.parametrize("collection", [tuple, list], ids=lambda c: c.__name__)
def test_push_takes_lists_and_tuples_of_variables(engine, collection):
    a, b = engine.new_variable(), engine.new_variable()
    engine.push(lambda rc: None, const_vars=collection([a]), mutate_vars=collection([b]))
    engine.wait_for_all()
    assert (a.version, b.version) == (0, 1)


def test_push_takes_anything_that_can_be_called(engine):
    class Thing:
        calls = 0

        def method(self, rc):
            self.calls += 1

        __call__ = method

    thing = Thing()
    seen = []
    order = engine.new_variable()
    for fn in (thing, thing.method, functools.partial(Thing.method, thing), seen.append):
        engine.push(fn, mutate_vars=[order])
    engine.wait_for_all()
    assert thing.calls == 3
    assert len(seen) == 1


def test_push_ignores_what_the_function_returns(engine):
    v = engine.new_variable()
    engine.push(lambda rc: object(), mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 1


def test_push_from_inside_a_function(engine):
    """Pushing while running is ordinary, on variables that the running function holds too."""
    v = engine.new_variable()
    seen = []
    done = Signal()

    def outer(rc):
        engine.push(lambda rc: seen.append("inner"), mutate_vars=[v], on_done=done)
        seen.append("outer")

    engine.push(outer, mutate_vars=[v])
    done.wait_or_fail()
    assert seen == ["outer", "inner"]
    engine.wait_for_all()
    assert v.version == 2


def test_push_deeply_from_inside_functions(engine):
    """A function pushes the next, thousands deep: no stack grows."""
    left = [5000]
    done = Signal()
    v = engine.new_variable()

    def again(rc):
        left[0] -= 1
        if left[0]:
            engine.push(again, mutate_vars=[v])
        else:
            done.set()

    engine.push(again, mutate_vars=[v])
    done.wait_or_fail()
    engine.wait_for_all()
    assert v.version == 5000
