"""Waiting: for a variable, for what produces its value, for everything, for one function; never blocking a
worker.
"""

import contextlib
import threading

import pytest

from weft.base.errors import EngineError

from .support import LIMIT_S, SOON_S, Signal


def nothing(rc):
    pass


def test_waiting_for_a_fresh_variable_returns(engine):
    v = engine.new_variable()
    assert engine.wait_for_var(v) is None
    assert engine.wait_for_var(v, writes_only=True) is None
    assert engine.wait_for_all() is None


def test_waiting_for_a_variable_waits_for_writes(threaded):
    v, cell = threaded.new_variable(), [0]

    def write(rc):
        cell[0] += 1

    for i in range(300):
        threaded.push(write, mutate_vars=[v])
        threaded.wait_for_var(v)
        assert cell == [i + 1]
        assert v.version == i + 1


def test_waiting_for_a_variable_waits_for_reads(threaded, gate):
    v = threaded.new_variable()
    threaded.push(gate.wait, const_vars=[v])
    gate.wait_until_entered()
    with pytest.raises(TimeoutError):
        threaded.wait_for_var(v, timeout_s=SOON_S)
    gate.open()
    threaded.wait_for_var(v, timeout_s=LIMIT_S)


def test_waiting_for_writes_only_does_not_wait_for_reads(threaded, gate):
    v = threaded.new_variable()
    threaded.push(nothing, mutate_vars=[v])
    threaded.push(gate.wait, const_vars=[v])
    threaded.wait_for_var(v, writes_only=True, timeout_s=LIMIT_S)
    assert v.version == 1
    gate.wait_until_entered()
    threaded.wait_for_var(v, writes_only=True, timeout_s=LIMIT_S)


def test_waiting_for_writes_only_waits_for_writes_behind_reads(threaded, gate):
    v = threaded.new_variable()
    threaded.push(gate.wait, const_vars=[v])
    threaded.push(nothing, mutate_vars=[v])
    with pytest.raises(TimeoutError):
        threaded.wait_for_var(v, writes_only=True, timeout_s=SOON_S)
    gate.open()
    threaded.wait_for_var(v, writes_only=True, timeout_s=LIMIT_S)
    assert v.version == 1


def test_waiting_for_a_variable_does_not_wait_for_others(make_engine, gate):
    engine = make_engine(workers=2)
    v, w = engine.new_variable(), engine.new_variable()
    engine.push(gate.wait, mutate_vars=[v])
    engine.push(nothing, mutate_vars=[w])
    engine.wait_for_var(w, timeout_s=LIMIT_S)
    assert w.version == 1


def test_waiting_for_a_variable_waits_only_for_what_was_pushed_before(threaded):
    """The variable never becomes idle, since each function pushes the next one; waiting ends all the same."""
    v, stop = threaded.new_variable(), threading.Event()

    def again(rc):
        if not stop.is_set():
            threaded.push(again, mutate_vars=[v])

    threaded.push(again, mutate_vars=[v])
    for _ in range(20):
        before = v.version
        threaded.wait_for_var(v, timeout_s=LIMIT_S)
        threaded.wait_for_var(v, writes_only=True, timeout_s=LIMIT_S)
        assert v.version > before
    stop.set()
    threaded.wait_for_all(timeout_s=LIMIT_S)


def test_waiting_for_all_waits_only_for_what_was_pushed_before(threaded):
    """The engine never becomes idle; waiting ends all the same."""
    stop = threading.Event()
    runs = []

    def again(rc):
        runs.append(1)
        if not stop.is_set():
            threaded.push(again)

    for _ in range(3):
        threaded.push(again)
    for _ in range(20):
        threaded.wait_for_all(timeout_s=LIMIT_S)
    stop.set()
    threaded.wait_for_all(timeout_s=LIMIT_S)
    assert len(runs) > 3


def test_waiting_for_all_does_not_wait_for_what_is_pushed_after_it_has_begun(make_engine, make_gate):
    """Two gates: the second was pushed while the wait was under way, by the first."""
    engine, later = make_engine(workers=2), make_gate()
    first = make_gate()

    def push_later(rc):
        first.wait()
        engine.push(later.wait)

    engine.push(push_later)
    first.wait_until_entered()
    threading.Timer(SOON_S, first.open).start()
    engine.wait_for_all(timeout_s=LIMIT_S)
    later.wait_until_entered()
    assert not later.is_open


def test_waiting_for_all_waits_for_every_queue_and_device(threaded):
    seen = []
    for queue in ("compute", "wide", "copy", "io", "priority"):
        for device in ("cpu:0", "cpu:1"):
            threaded.push(lambda rc: seen.append(1), device, queue=queue)
            threaded.push_async(
                lambda rc, on_complete: threading.Timer(0.01, finish, (on_complete,)).start(),
                device,
                queue=queue,
            )

    def finish(on_complete):
        seen.append(1)
        on_complete()

    threaded.wait_for_all()
    assert len(seen) == 20


def test_waiting_from_many_threads(threaded, gate):
    v = threaded.new_variable()
    threaded.push(gate.wait, mutate_vars=[v])
    woken = []

    def wait():
        threaded.wait_for_var(v)
        threaded.wait_for_all()
        woken.append(v.version)

    threads = [threading.Thread(target=wait) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert not woken
    gate.open()
    for thread in threads:
        thread.join(LIMIT_S)
    assert woken == [1] * 10


def test_waiting_releases_the_gil(threaded):
    """The function that is waited for needs the interpreter, and so does another thread."""
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            stop.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    threaded.push(lambda rc: [stop.wait(0.001) for _ in range(20)])
    threaded.wait_for_all()
    assert ticks
    stop.set()
    thread.join()


@pytest.mark.parametrize("timeout_s", [0, 0.0, 1e-9, SOON_S])
def test_waiting_has_a_time_limit(engine, timeout_s):
    v, callbacks = engine.new_variable(), []
    engine.push_async(lambda rc, on_complete: callbacks.append(on_complete), mutate_vars=[v])
    for wait in (
        lambda: engine.wait_for_var(v, timeout_s=timeout_s),
        lambda: engine.wait_for_var(v, True, timeout_s),
        lambda: engine.wait_for_all(timeout_s=timeout_s),
        lambda: engine.wait_for_all(timeout_s),
    ):
        with pytest.raises(TimeoutError):
            wait()
    engine.push(nothing, const_vars=[v])
    while not callbacks:
        threading.Event().wait(0.001)
    callbacks.pop()()
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 1


def test_waiting_with_time_to_spare_returns_early(engine):
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v, timeout_s=1e9)
    engine.wait_for_all(timeout_s=1e9)
    engine.wait_for_var(v, timeout_s=0)


def test_waiting_on_done_is_called_when_the_function_has_finished(engine):
    v, seen, done = engine.new_variable(), [], Signal()

    def on_done(error):
        seen.append(error)
        done.set()

    engine.push(lambda rc: seen.append("ran"), mutate_vars=[v], on_done=on_done)
    done.wait_or_fail()
    assert seen == ["ran", None]


def test_waiting_on_done_of_an_asynchronous_function(engine):
    seen, done, callbacks = [], Signal(), []

    def on_done(error):
        seen.append(error)
        done.set()

    engine.push_async(lambda rc, on_complete: callbacks.append(on_complete), on_done=on_done)
    while not callbacks:
        threading.Event().wait(0.001)
    assert not seen
    callbacks.pop()()
    done.wait_or_fail()
    assert seen == [None]


@pytest.mark.parametrize("how", ["failed", "skipped", "async"])
def test_waiting_on_done_gets_the_error(engine, how):
    v, w, seen, done = engine.new_variable(), engine.new_variable(), [], Signal()
    error = ValueError("planned")

    def on_done(error):
        seen.append(error)
        done.set()

    def fail(rc):
        raise error

    if how == "failed":
        engine.push(fail, mutate_vars=[v], on_done=on_done)
    elif how == "async":
        engine.push_async(lambda rc, on_complete: on_complete(error), mutate_vars=[v], on_done=on_done)
    else:
        engine.push(fail, mutate_vars=[v])
        engine.push(nothing, const_vars=[v], mutate_vars=[w], on_done=on_done)
    done.wait_or_fail()
    assert len(seen) == 1
    assert error in (seen[0], seen[0].__cause__)


def test_waiting_on_done_that_raises_does_no_harm(engine, unraisable):
    v, error = engine.new_variable(), ValueError("from on_done")

    def on_done(_):
        raise error

    engine.push(nothing, mutate_vars=[v], on_done=on_done)
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v)
    engine.stop()
    assert v.version == 2
    assert unraisable == [error]


def test_waiting_on_done_may_push(engine):
    v, done = engine.new_variable(), Signal()
    engine.push(nothing, mutate_vars=[v], on_done=lambda _: engine.push(done, mutate_vars=[v]))
    done.wait_or_fail()


def test_waiting_on_done_runs_on_an_engine_thread(threaded):
    seen, done = [], Signal()

    def on_done(_):
        seen.append(threading.get_ident())
        done.set()

    threaded.push(nothing, on_done=on_done)
    done.wait_or_fail()
    assert seen != [threading.get_ident()]


@pytest.mark.parametrize("access", ["const_vars", "mutate_vars", "overwrite_vars"])
@pytest.mark.parametrize("writes_only", [False, True])
def test_waiting_inside_a_function_for_what_it_declared_returns_at_once(engine, access, writes_only):
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v])
    engine.push(lambda rc: engine.wait_for_var(v, writes_only), **{access: [v]})
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_all(timeout_s=LIMIT_S)


def test_waiting_inside_a_function_for_anything_else_raises(engine):
    v, other = engine.new_variable(), engine.new_variable()
    seen = []

    def fn(rc):
        for wait in (
            lambda: engine.wait_for_var(other),
            lambda: engine.wait_for_var(other, writes_only=True),
            lambda: engine.wait_for_var(other, timeout_s=0.1),
            engine.wait_for_all,
        ):
            try:
                wait()
            except EngineError as error:
                seen.append(str(error))

    engine.push(fn, mutate_vars=[v])
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert len(seen) == 4


def test_waiting_inside_a_function_uncaught_makes_it_fail(engine):
    v = engine.new_variable()
    engine.push(lambda rc: engine.wait_for_all(), mutate_vars=[v], name="waits")
    with pytest.raises(EngineError) as caught:
        engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert caught.value.operation == "waits"
    assert isinstance(caught.value.__cause__, EngineError)


def test_waiting_inside_an_asynchronous_function(engine):
    v, other = engine.new_variable(), engine.new_variable()
    seen = []

    def fn(rc, on_complete):
        engine.wait_for_var(v)
        try:
            engine.wait_for_var(other)
        except EngineError:
            seen.append(1)
        on_complete()

    engine.push_async(fn, mutate_vars=[v])
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert seen == [1]


def test_waiting_inside_every_function_leaves_the_workers_free(make_engine):
    """With one worker, functions that wait for later work would deadlock if they blocked it."""
    engine = make_engine(workers=1, io_workers=1)
    v, refused = engine.new_variable(), []

    def fn(rc):
        try:
            engine.wait_for_var(v)
        except EngineError:
            refused.append(1)

    for _ in range(20):
        for queue in ("compute", "wide", "copy", "io", "priority"):
            engine.push(fn, queue=queue)
        engine.push(nothing, mutate_vars=[v])
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert len(refused) == 100


@pytest.mark.parametrize("what", ["on_done", "on_deleted"])
def test_waiting_inside_a_callback_never_hangs(engine, what):
    """It returns or raises EngineError."""
    v, other, done = engine.new_variable(), engine.new_variable(), Signal()

    def callback(*_):
        for wait in (lambda: engine.wait_for_var(other), engine.wait_for_all):
            with contextlib.suppress(EngineError):
                wait()
        done.set()

    if what == "on_done":
        engine.push(nothing, mutate_vars=[v], on_done=callback)
    else:
        engine.delete_variable(v, callback)
    done.wait_or_fail()
    engine.wait_for_all(timeout_s=LIMIT_S)


def test_waiting_in_another_engine_is_ordinary(make_engine, engine):
    """The variable of another engine is nobody's declaration here, but that engine may be waited for."""
    other = make_engine(workers=1)
    v, w = engine.new_variable(), other.new_variable()
    seen = []

    def fn(rc):
        other.push(lambda rc: seen.append(1), mutate_vars=[w])
        try:
            other.wait_for_var(w, timeout_s=LIMIT_S)
        except EngineError:
            seen.append("refused")

    engine.push(fn, mutate_vars=[v])
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert 1 in seen or "refused" in seen
