"""Everything is released: functions, arguments, callbacks, exceptions, variables, engines; nothing grows
with use.
"""

import contextlib
import gc
import threading
import tracemalloc
import weakref

import pytest

from weft import _core
from weft.base.errors import EngineError
from weft.engine import Engine, NativeFunction

from .support import LIMIT_S, eventually, resident_bytes, thread_count

pytestmark = pytest.mark.daily(2)

MIB = 1 << 20


class Thing:
    """Something whose end can be seen."""


def nothing(rc):
    pass


def dies(reference):
    return eventually(lambda: reference() is None, LIMIT_S)


def function_with(thing, what="ok"):
    def fn(rc, on_complete=None):
        assert thing
        if what == "raises":
            raise ValueError("planned")
        if on_complete:
            on_complete()

    return fn


@pytest.mark.parametrize("how", ["push", "push_async", "bulk", "operator", "async operator"])
@pytest.mark.parametrize("what", ["ok", "raises"])
def test_lifetimes_functions_are_released_when_they_have_run(engine, how, what):
    thing = Thing()
    alive, v = weakref.ref(thing), engine.new_variable()
    fn = function_with(thing, what)
    del thing
    if how == "push":
        engine.push(fn, mutate_vars=[v])
    elif how == "push_async":
        engine.push_async(fn, mutate_vars=[v])
    elif how == "bulk":
        with engine.bulk(4):
            engine.push(fn, mutate_vars=[v])
            engine.push(nothing)
    else:
        engine.push(engine.new_operator(fn, mutate_vars=[v], is_async=how.startswith("async")))
    del fn
    if what == "raises":
        with pytest.raises(EngineError):
            engine.wait_for_all()
        engine.clear_error(v)
    engine.wait_for_var(v)
    assert dies(alive)


def test_lifetimes_functions_are_released_when_they_are_skipped(engine):
    v, thing = engine.new_variable(), Thing()
    alive = weakref.ref(thing)
    engine.push(lambda rc: 1 / 0, mutate_vars=[v])
    engine.push(function_with(thing), mutate_vars=[v])
    engine.push_async(function_with(thing), mutate_vars=[v])
    with engine.bulk(4):
        engine.push(function_with(thing), mutate_vars=[v])
        engine.push(function_with(thing), mutate_vars=[v])
    del thing
    assert dies(alive)


def test_lifetimes_functions_are_released_when_the_push_is_refused(engine, make_engine):
    deleted, other = engine.new_variable(), make_engine(workers=1).new_variable()
    engine.delete_variable(deleted)
    thing = Thing()
    alive = weakref.ref(thing)
    for bad in (
        {"mutate_vars": [deleted]},
        {"const_vars": [other]},
        {"mutate_vars": [3]},
        {"queue": "none"},
        {"device": "gpu"},
        {"size_bytes": -1},
        {"on_done": 3},
    ):
        with pytest.raises((EngineError, TypeError, ValueError, RuntimeError)):
            engine.push(function_with(thing), **bad)
        with pytest.raises((EngineError, TypeError, ValueError, RuntimeError)):
            engine.push_async(function_with(thing), **bad)
    with pytest.raises(TypeError):
        engine.new_operator(function_with(thing), mutate_vars=3)
    del thing
    assert dies(alive)


def test_lifetimes_on_done_is_released(engine):
    thing = Thing()
    alive = weakref.ref(thing)
    engine.push(nothing, on_done=lambda error, thing=thing: None)
    engine.push(lambda rc: 1 / 0, on_done=lambda error, thing=thing: None)
    engine.push_async(lambda rc, on_complete: on_complete(), on_done=lambda error, thing=thing: None)
    del thing
    assert dies(alive)


def test_lifetimes_on_deleted_is_released(engine):
    thing, v = Thing(), engine.new_variable()
    alive = weakref.ref(thing)
    engine.delete_variable(v, lambda thing=thing: None)
    del thing
    assert dies(alive)


def test_lifetimes_names_and_what_is_kept_of_the_pushing_line_are_released(engine):
    """The code object of a function made at run time, which is what a pushing line is remembered by."""
    scope = {"engine": engine, "nothing": nothing}
    exec("def push():\n    engine.push(nothing, name='a name')\n", scope)
    alive = weakref.ref(scope["push"].__code__)
    scope.pop("push")()
    engine.wait_for_all()
    assert dies(alive)


def test_lifetimes_run_contexts_and_callbacks_may_be_kept(engine):
    kept = []
    v = engine.new_variable()
    engine.push(kept.append, mutate_vars=[v], name="kept")
    engine.push_async(lambda rc, on_complete: (kept.append(on_complete), on_complete()), mutate_vars=[v])
    engine.wait_for_all()
    engine.stop()
    assert kept[0].operation == "kept"
    assert kept[0].queue == "compute"
    with pytest.raises(EngineError):
        kept[1]()


def test_lifetimes_exceptions_are_released_when_handled(engine):
    """Cleared and reported, or overwritten and reported, or gone with the variable."""

    def failing(thing):
        def fail(rc):
            error = ValueError("planned")
            error.thing = thing
            raise error

        return fail

    for end in ("clear", "overwrite", "delete", "drop"):
        v, thing = engine.new_variable(), Thing()
        alive = weakref.ref(thing)
        engine.push(failing(thing), mutate_vars=[v])
        del thing
        with pytest.raises(EngineError) as caught:
            engine.wait_for_all()
        assert caught.value.__cause__.thing is alive()
        del caught
        gc.collect()
        assert alive() is not None, "the variable still holds it"
        if end == "clear":
            engine.clear_error(v)
        elif end == "overwrite":
            engine.push(nothing, overwrite_vars=[v])
        elif end == "delete":
            engine.delete_variable(v)
        if end in ("delete", "drop"):
            del v
        engine.wait_for_all()
        assert dies(alive), end


def test_lifetimes_exceptions_nobody_waits_for_go_with_the_engine():
    engine = Engine(workers=1)
    thing = Thing()
    alive = weakref.ref(thing)

    def fail(rc, thing=thing):
        raise ValueError(thing)

    v = engine.new_variable()
    engine.push(fail, mutate_vars=[v])
    del fail, thing
    engine.stop()
    del engine, v
    assert dies(alive)


def test_lifetimes_many_unreported_failures_do_not_grow_without_end(make_engine):
    """Nobody ever calls wait_for_all; the causes that it would report are bounded."""
    engine = make_engine(workers=1)
    blocks = []

    class Large(Exception):
        def __init__(self):
            self.block = bytearray(100_000)
            blocks.append(weakref.ref(self))

    def fail(rc):
        raise Large

    for _ in range(5000):
        v = engine.new_variable()
        engine.push(fail, mutate_vars=[v])
        del v
    engine.stop()
    assert len(blocks) == 5000
    assert sum(ref() is not None for ref in blocks) <= 2000


def test_lifetimes_variables_are_released(engine):
    v = engine.new_variable()
    alive = weakref.ref(v)
    op = engine.new_operator(nothing, mutate_vars=[v])
    engine.push(op)
    engine.push(nothing, const_vars=[v])
    del v, op
    engine.wait_for_all()
    assert dies(alive)


@pytest.mark.parametrize("kind", ["threaded", "naive"])
@pytest.mark.parametrize(
    "cycle", ["none", "closure", "operator", "observer", "attribute", "on_complete", "variable"]
)
def test_lifetimes_engines_are_released_with_their_threads(kind, cycle):
    """Also when a function, an operator or an observer of theirs holds them."""
    gc.collect()
    before = thread_count()
    references = []
    for _ in range(5):
        engine = Engine(kind=kind, workers=2)
        references.append(weakref.ref(engine))
        v = engine.new_variable()
        engine.push(nothing, mutate_vars=[v])
        holder = Thing()
        holder.engine, holder.v = engine, v
        if cycle == "closure":
            engine.push(lambda rc, engine=engine, v=v: engine.push(nothing, mutate_vars=[v]), mutate_vars=[v])
        elif cycle == "operator":
            holder.op = engine.new_operator(lambda rc, holder=holder: None, mutate_vars=[v])
            engine.push(holder.op)
        elif cycle == "observer":
            holder.on_end = lambda record, holder=holder: None
            engine.add_observer(holder)
        elif cycle == "attribute":
            engine.holder = holder
        elif cycle == "on_complete":
            engine.push_async(
                lambda rc, on_complete, holder=holder: (
                    setattr(holder, "on_complete", on_complete),
                    on_complete(),
                )
            )
        elif cycle == "variable":
            holder.me = holder
        engine.wait_for_all()
        del engine, v, holder
    assert eventually(lambda: not any(ref() for ref in references))
    assert eventually(lambda: thread_count() <= before)


def test_lifetimes_a_variable_may_outlive_its_engine():
    engine = Engine(workers=1)
    v = engine.new_variable()
    op = engine.new_operator(nothing, mutate_vars=[v])
    engine.push(op)
    engine.wait_for_all()
    del engine
    gc.collect()
    assert v.version == 1
    del v
    gc.collect()
    del op
    gc.collect()


def grows(rounds, work, limit_bytes, measure=resident_bytes):
    """True if the memory of the process goes on growing by more than the limit while work is repeated."""
    for _ in range(2):
        work()
    gc.collect()
    before = measure()
    for _ in range(rounds):
        work()
    gc.collect()
    grown = measure() - before
    return grown if grown > limit_bytes else 0


WORKLOADS = {
    "push": lambda e, v: [e.push(nothing, const_vars=[v[0]], mutate_vars=[v[1]]) for _ in range(5000)],
    "closures": lambda e, v: [
        e.push(lambda rc, i=i, x="x" * i: None, mutate_vars=[v[1]], name=f"n{i}") for i in range(5000)
    ],
    "async": lambda e, v: [
        e.push_async(lambda rc, on_complete: on_complete(), mutate_vars=[v[1]]) for _ in range(3000)
    ],
    "on_done": lambda e, v: [
        e.push(nothing, mutate_vars=[v[1]], on_done=lambda error: None) for _ in range(3000)
    ],
    "variables": lambda e, v: [e.push(nothing, mutate_vars=[e.new_variable()]) for _ in range(3000)],
    "idle variables": lambda e, v: [e.new_variable() for _ in range(10000)] and None,
    "deletions": lambda e, v: [e.delete_variable(e.new_variable(), lambda: None) for _ in range(3000)],
    "operators": lambda e, v: [e.push(e.new_operator(nothing, mutate_vars=[v[1]])) for _ in range(3000)],
    "operator": lambda e, v: [e.push(v[2]) for _ in range(5000)],
    "waits": lambda e, v: [(e.wait_for_var(v[0]), e.wait_for_all()) for _ in range(5000)] and None,
    "waits that expire": lambda e, v: expire(e),
    "errors": lambda e, v: [fail_and_clear(e, v[1]) for _ in range(1000)] and None,
    "poison": lambda e, v: [wait_for_poison(e, v[3]) for _ in range(2000)] and None,
    "native": lambda e, v: [
        e.push(NativeFunction(_core.testing.noop, keep=bytearray(100), name="x" * 50), mutate_vars=[v[1]])
        for _ in range(3000)
    ],
    "cheap": lambda e, v: [
        e.push(NativeFunction(_core.testing.noop, cheap=True), mutate_vars=[v[1]]) for _ in range(3000)
    ],
    "refused": lambda e, v: [refuse(e) for _ in range(2000)] and None,
    "stats": lambda e, v: [e.stats() for _ in range(3000)] and None,
    "large": lambda e, v: [e.push(nothing, const_vars=[v[0]] * 500, mutate_vars=[v[1]]) for _ in range(300)],
}


def fail_and_clear(engine, v):
    engine.push(lambda rc: 1 / 0, mutate_vars=[v])
    engine.clear_error(v)


def wait_for_poison(engine, v):
    with pytest.raises(EngineError):
        engine.wait_for_var(v)


def refuse(engine):
    with pytest.raises(TypeError):
        engine.push(nothing, mutate_vars=[bytearray(100)])


def expire(engine):
    callbacks, v = [], engine.new_variable()
    engine.push_async(lambda rc, on_complete: callbacks.append(on_complete), mutate_vars=[v])
    for _ in range(1000):
        with pytest.raises(TimeoutError):
            engine.wait_for_var(v, timeout_s=0)
        with pytest.raises(TimeoutError):
            engine.wait_for_all(timeout_s=0)
    while not callbacks:
        threading.Event().wait(0.001)
    callbacks.pop()()


def prepared(engine):
    v = [engine.new_variable(), engine.new_variable(), engine.new_operator(nothing), engine.new_variable()]
    engine.push(lambda rc: 1 / 0, mutate_vars=[v[3]])
    with pytest.raises(EngineError):
        engine.wait_for_all()
    return v


def settle(engine):
    with contextlib.suppress(EngineError):
        engine.wait_for_all(timeout_s=LIMIT_S)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_lifetimes_nothing_grows_with_use(make_engine, kind, name):
    """The process does not grow while a workload is repeated, tens of thousands of operations in all."""
    engine = make_engine(kind=kind, workers=2)
    variables = prepared(engine)

    def work():
        WORKLOADS[name](engine, variables)
        settle(engine)

    assert not grows(8, work, 3 * MIB)
    assert engine.stats()["pending"] == 0


@pytest.mark.parametrize("name", WORKLOADS)
def test_lifetimes_no_python_objects_are_left(make_engine, name):
    """The same, counted by the interpreter: not even a few hundred small objects stay."""
    engine = make_engine(workers=1)
    variables = prepared(engine)

    def work():
        WORKLOADS[name](engine, variables)
        settle(engine)
        engine.stop()
        engine.start()

    work()
    tracemalloc.start()
    try:
        assert not grows(2, work, 64 * 1024, lambda: tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", WORKLOADS)
def test_lifetimes_nothing_grows_with_a_million_uses(make_engine, name):
    engine = make_engine(workers=2)
    variables = prepared(engine)

    def work():
        WORKLOADS[name](engine, variables)
        settle(engine)

    assert not grows(300, work, 8 * MIB)


def test_lifetimes_engines_do_not_pile_up():
    """Engines, their threads and their queues."""

    def work():
        for kind in ("threaded", "naive"):
            engine = Engine(kind=kind, workers=2)
            v = engine.new_variable()
            for queue in ("compute", "wide", "copy", "io", "priority"):
                engine.push(nothing, mutate_vars=[v], queue=queue)
            engine.push(nothing, "cpu:3", mutate_vars=[v])
            engine.wait_for_all()
            engine.stop()

    before = thread_count()
    assert not grows(60, work, 4 * MIB)
    assert eventually(lambda: thread_count() <= before)


def test_lifetimes_stop_and_start_do_not_pile_up(make_engine):
    engine = make_engine(workers=2)
    v = engine.new_variable()

    def work():
        for _ in range(10):
            engine.push(nothing, mutate_vars=[v])
            engine.stop()
            engine.start()

    assert not grows(20, work, 2 * MIB)
