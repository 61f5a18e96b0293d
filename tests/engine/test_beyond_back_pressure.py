"""Beyond: a user thread that runs far ahead is held back, in count and in bytes, without the GIL; engine
threads never.
"""

import threading

import pytest

from .support import LIMIT_S, SOON_S, Signal, eventually


def nothing(rc):
    pass


def pusher(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_beyond_back_pressure_in_count(make_engine, gate):
    engine = make_engine(workers=1, max_pending=10)
    pushed = []

    def work():
        for i in range(100):
            engine.push(nothing)
            pushed.append(i)

    engine.push(gate.wait)
    thread = pusher(work)
    assert eventually(lambda: engine.stats()["stalls"] >= 1), "other Python threads, such as this one, go on"
    assert len(pushed) <= 10
    thread.join(SOON_S)
    assert thread.is_alive()
    gate.open()
    thread.join(LIMIT_S)
    assert len(pushed) == 100
    engine.wait_for_all(timeout_s=LIMIT_S)


def test_beyond_back_pressure_in_bytes(make_engine, gate):
    engine = make_engine(workers=1, max_pending_bytes=1000)
    pushed = []

    def work():
        for i in range(20):
            engine.push(nothing, size_bytes=300)
            pushed.append(i)

    engine.push(gate.wait)
    thread = pusher(work)
    assert eventually(lambda: engine.stats()["stalls"] >= 1)
    assert 1 <= len(pushed) <= 4
    gate.open()
    thread.join(LIMIT_S)
    assert len(pushed) == 20
    engine.wait_for_all(timeout_s=LIMIT_S)


def test_beyond_back_pressure_lets_one_operation_through_that_is_larger_than_the_limit(make_engine):
    engine = make_engine(workers=1, max_pending_bytes=1000)
    v = engine.new_variable()
    for _ in range(10):
        engine.push(nothing, mutate_vars=[v], size_bytes=1_000_000)
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 10


@pytest.mark.parametrize("how", ["push", "push_async", "operator", "bulk", "many threads"])
def test_beyond_back_pressure_with_a_limit_of_one(make_engine, in_threads, how):
    engine = make_engine(workers=2, max_pending=1, max_pending_bytes=1)
    v = engine.new_variable()
    op = engine.new_operator(nothing, mutate_vars=[v])

    def work(_=None):
        for _ in range(50):
            if how == "push_async":
                engine.push_async(lambda rc, on_complete: on_complete(), mutate_vars=[v], size_bytes=8)
            elif how == "operator":
                engine.push(op)
            else:
                engine.push(nothing, mutate_vars=[v], size_bytes=8)

    if how == "many threads":
        in_threads(work, range(4))
    elif how == "bulk":
        with engine.bulk(16):
            work()
    else:
        work()
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert v.version == (200 if how == "many threads" else 50)


def test_beyond_back_pressure_never_holds_functions_of_the_engine(make_engine):
    """A function may push as much as it likes; held back it would wait for itself."""
    engine = make_engine(workers=1, io_workers=1, max_pending=5, max_pending_bytes=5)
    ran, pushed = [], Signal()

    def fn(rc):
        for i in range(500):
            engine.push(lambda rc, i=i: ran.append(i), size_bytes=100)
        pushed.set()

    engine.push(fn)
    pushed.wait_or_fail()
    engine.wait_for_all(timeout_s=LIMIT_S)
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert ran == list(range(500))


@pytest.mark.parametrize("where", ["push_async", "on_done", "on_deleted"])
def test_beyond_back_pressure_never_holds_other_code_on_engine_threads(make_engine, where):
    engine = make_engine(workers=1, io_workers=1, max_pending=5)
    ran, pushed = [], Signal()

    def push_many():
        for i in range(200):
            engine.push(lambda rc, i=i: ran.append(i))
        pushed.set()

    if where == "push_async":
        engine.push_async(lambda rc, on_complete: (push_many(), on_complete()))
    elif where == "on_done":
        engine.push(nothing, on_done=lambda error: push_many())
    else:
        engine.delete_variable(engine.new_variable(), push_many)
    pushed.wait_or_fail()
    engine.wait_for_all(timeout_s=LIMIT_S)
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert sorted(ran) == list(range(200))


def test_beyond_back_pressure_never_holds_a_naive_engine(make_engine):
    engine = make_engine(kind="naive", max_pending=5, max_pending_bytes=5)
    v, callbacks = engine.new_variable(), []
    engine.push_async(lambda rc, on_complete: callbacks.append(on_complete), mutate_vars=[v])
    for _ in range(100):
        engine.push(nothing, mutate_vars=[v], size_bytes=100)
    callbacks.pop()()
    assert v.version == 101


def test_beyond_back_pressure_does_not_hold_who_alone_can_complete(make_engine):
    """Everything waits for an asynchronous function that the pushing thread completes later: the engine can
    make no progress of its own, so holding the thread back would be a deadlock.
    """
    engine = make_engine(workers=1, max_pending=10, max_pending_bytes=100)
    v, callbacks, started, pushed = engine.new_variable(), [], Signal(), Signal()

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        started.set()

    def work():
        engine.push_async(fn, mutate_vars=[v])
        started.wait_or_fail()
        for _ in range(100):
            engine.push(nothing, mutate_vars=[v], size_bytes=50)
        pushed.set()
        callbacks.pop()()

    thread = pusher(work)
    pushed.wait_or_fail()
    thread.join(LIMIT_S)
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 101


def test_beyond_back_pressure_lets_go_when_the_engine_comes_to_rest(make_engine, gate):
    """Held back while a function runs; that ends, and all the rest waits for an asynchronous function."""
    engine = make_engine(workers=1, max_pending=10)
    v, callbacks, started = engine.new_variable(), [], Signal()

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        started.set()

    engine.push_async(fn, mutate_vars=[v])
    started.wait_or_fail()
    engine.push(gate.wait)
    thread = pusher(lambda: [engine.push(nothing, mutate_vars=[v]) for _ in range(50)])
    assert eventually(lambda: engine.stats()["stalls"] >= 1)
    gate.open()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    callbacks.pop()()
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert v.version == 51


def test_beyond_back_pressure_is_released_by_failing_and_skipped_work_too(make_engine, gate):
    engine = make_engine(workers=1, max_pending=10)
    v = engine.new_variable()

    def fail(rc):
        gate.wait()
        raise ValueError

    engine.push(fail, mutate_vars=[v])
    thread = pusher(lambda: [engine.push(nothing, mutate_vars=[v], size_bytes=10) for _ in range(100)])
    assert eventually(lambda: engine.stats()["stalls"] >= 1)
    gate.open()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert eventually(lambda: engine.stats()["pending"] == 0)


def test_beyond_back_pressure_bounds_how_far_ahead_a_thread_is(make_engine):
    """However fast it pushes: never many more than the limit are pending."""
    engine = make_engine(workers=1, max_pending=50)
    most, done, v = [0], [0], engine.new_variable()

    def count(rc):
        done[0] += 1

    for i in range(3000):
        engine.push(count, mutate_vars=[v])
        most[0] = max(most[0], i + 1 - done[0])
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert v.version == 3000
    assert most[0] <= 52


def test_beyond_back_pressure_waits_and_deletions_are_not_held(make_engine, gate):
    """Only operations are; what makes room never waits for room."""
    engine = make_engine(workers=1, max_pending=3)
    variables = [engine.new_variable() for _ in range(20)]
    engine.push(gate.wait, mutate_vars=variables[:1])
    for _ in range(2):
        engine.push(nothing, mutate_vars=variables[:1])
    for v in variables:
        engine.clear_error(v)
    for v in variables[1:]:
        engine.wait_for_var(v, timeout_s=LIMIT_S)
    del v
    variables.clear()
    gate.open()
    engine.wait_for_all(timeout_s=LIMIT_S)
