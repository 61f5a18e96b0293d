"""push_async: fn(run_context, on_complete); finished when on_complete is called, from any thread, with or
without an error.
"""

import asyncio
import gc
import threading

import pytest

from weft.base.errors import EngineError

from .support import LIMIT_S, SOON_S, Signal


class Kept:
    """An asynchronous function that keeps its on_complete for later."""

    def __init__(self):
        self._started = threading.Event()

    def __call__(self, rc, on_complete):
        self.on_complete = on_complete
        self._started.set()

    def take(self):
        assert self._started.wait(LIMIT_S), "it never started"
        on_complete = self.on_complete
        del self.on_complete
        return on_complete


def test_async_functions_finish_when_on_complete_is_called(engine):
    v = engine.new_variable()
    kept, after = Kept(), Signal()
    engine.push_async(kept, mutate_vars=[v])
    engine.push(after, const_vars=[v])
    on_complete = kept.take()
    assert not after.wait(SOON_S)
    assert v.version == 0
    with pytest.raises(TimeoutError):
        engine.wait_for_var(v, timeout_s=SOON_S)
    on_complete()
    engine.wait_for_all()
    assert after.is_set()
    assert v.version == 1


def test_async_functions_may_complete_at_once(engine):
    v = engine.new_variable()
    for _ in range(100):
        engine.push_async(lambda rc, on_complete: on_complete(), mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 100


def test_async_functions_complete_from_a_thread_of_the_user(engine):
    v = engine.new_variable()
    threads = []

    def fn(rc, on_complete):
        threads.append(threading.Thread(target=on_complete))
        threads[-1].start()

    for _ in range(50):
        engine.push_async(fn, mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 50
    for thread in threads:
        thread.join()


def test_async_functions_complete_from_another_operation(engine):
    v, w = engine.new_variable(), engine.new_variable()
    kept = Kept()
    engine.push_async(kept, mutate_vars=[v])
    engine.push(lambda rc: kept.take()(), mutate_vars=[w])
    engine.wait_for_all()
    assert (v.version, w.version) == (1, 1)


def test_async_functions_complete_from_an_event_loop(engine):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    order = []
    v = engine.new_variable()

    def fetch(i):
        async def task(on_complete):
            await asyncio.sleep(0.001)
            order.append(i)
            on_complete()

        return lambda rc, on_complete: asyncio.run_coroutine_threadsafe(task(on_complete), loop)

    for i in range(20):
        engine.push_async(fetch(i), mutate_vars=[v])
    engine.wait_for_var(v)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert order == list(range(20))


def test_async_functions_get_a_run_context_of_the_io_queue_unless_told(engine):
    seen = []

    def look(rc, on_complete):
        seen.append((rc.queue, rc.operation, str(rc.device)))
        on_complete()

    v = engine.new_variable()
    engine.push_async(look, mutate_vars=[v], name="a")
    engine.push_async(look, "cpu:1", mutate_vars=[v], name="b", queue="copy")
    engine.wait_for_all()
    assert [(queue, name) for queue, name, _ in seen] == [("io", "a"), ("copy", "b")]
    assert "1" in seen[1][2]


@pytest.mark.parametrize("queue", ["io", "compute", "copy", "priority"])
def test_async_functions_hold_no_thread_while_they_wait(make_engine, queue):
    """Far more of them are under way at the same time than there are threads."""
    engine = make_engine(workers=1, io_workers=1)
    pending = [Kept() for _ in range(50)]
    for kept in pending:
        engine.push_async(kept, queue=queue)
    callbacks = [kept.take() for kept in pending]
    done = Signal()
    engine.push(done, queue=queue)
    done.wait_or_fail()
    for on_complete in callbacks:
        on_complete()
    engine.wait_for_all(timeout_s=LIMIT_S)


def test_async_functions_read_together_and_write_alone(make_engine):
    engine = make_engine(workers=1, io_workers=1)
    v = engine.new_variable()
    readers, writer = [Kept(), Kept()], Kept()
    for kept in (*readers, writer):
        engine.push_async(kept, **{"const_vars" if kept in readers else "mutate_vars": [v]})
    callbacks = [kept.take() for kept in readers]
    assert not writer._started.wait(SOON_S)
    for on_complete in callbacks:
        on_complete()
    writer.take()()
    engine.wait_for_all()
    assert v.version == 1


@pytest.mark.parametrize(
    "error", [ValueError("broken"), KeyboardInterrupt(), "words"], ids=["Exception", "BaseException", "str"]
)
def test_async_functions_fail_with_the_error_given(engine, error):
    v = engine.new_variable()
    engine.push_async(lambda rc, on_complete: on_complete(error), mutate_vars=[v], name="fetch")
    with pytest.raises(EngineError) as caught:
        engine.wait_for_var(v)
    assert caught.value.operation == "fetch"
    if isinstance(error, str):
        assert "words" in str(caught.value)
    else:
        assert caught.value.__cause__ is error


def test_async_functions_fail_from_a_thread_of_the_user(engine):
    v = engine.new_variable()
    kept, error = Kept(), OSError("disk")
    engine.push_async(kept, mutate_vars=[v])
    thread = threading.Thread(target=kept.take(), args=(error,))
    thread.start()
    with pytest.raises(EngineError, match="disk") as caught:
        engine.wait_for_var(v)
    assert caught.value.__cause__ is error
    thread.join()


def test_async_functions_accept_the_error_by_its_name_or_none(engine):
    v, w = engine.new_variable(), engine.new_variable()
    engine.push_async(lambda rc, on_complete: on_complete(None), mutate_vars=[v])
    engine.push_async(lambda rc, on_complete: on_complete(error=KeyError("k")), mutate_vars=[w])
    engine.wait_for_var(v)
    with pytest.raises(EngineError):
        engine.wait_for_var(w)


def test_async_functions_complete_once(engine):
    v = engine.new_variable()
    kept = Kept()
    engine.push_async(kept, mutate_vars=[v])
    on_complete = kept.take()
    on_complete()
    for again in ((), (None,), (ValueError(),)):
        with pytest.raises(EngineError):
            on_complete(*again)
    engine.wait_for_all()
    assert v.version == 1


def test_async_functions_complete_once_when_many_threads_try(engine, in_threads):
    v = engine.new_variable()
    refused = []
    for i in range(50):
        kept = Kept()
        engine.push_async(kept, mutate_vars=[v])
        on_complete = kept.take()

        def race(i, on_complete=on_complete):
            try:
                on_complete()
            except EngineError:
                refused.append(i)

        in_threads(race, [i] * 3)
    engine.wait_for_all()
    assert v.version == 50
    assert sorted(refused) == [i for i in range(50) for _ in range(2)]


def test_async_functions_that_raise_first_have_failed(engine):
    v = engine.new_variable()
    callbacks, error = [], ValueError("at the start")

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        raise error

    engine.push_async(fn, mutate_vars=[v])
    with pytest.raises(EngineError) as caught:
        engine.wait_for_var(v)
    assert caught.value.__cause__ is error
    with pytest.raises(EngineError):
        callbacks[0]()
    assert v.version == 1


def test_async_functions_that_raise_after_completion_have_succeeded(engine):
    """What they raised then poisons nothing, and is told by wait_for_all."""
    v = engine.new_variable()
    late = ValueError("too late")

    def fn(rc, on_complete):
        on_complete()
        raise late

    engine.push_async(fn, mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 1
    engine.stop()
    with pytest.raises(EngineError) as caught:
        engine.wait_for_all()
    assert caught.value.__cause__ is late


def test_async_functions_whose_callback_is_lost_have_failed(engine):
    """Nobody can ever complete it, so nothing may wait for it for ever."""
    v = engine.new_variable()
    engine.push_async(lambda rc, on_complete: None, mutate_vars=[v], name="forgetful")
    with pytest.raises(EngineError, match="on_complete") as caught:
        engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert caught.value.operation == "forgetful"


def test_async_functions_whose_callback_is_lost_in_a_cycle_have_failed(engine):
    v = engine.new_variable()

    def fn(rc, on_complete):
        cycle = [on_complete]
        cycle.append(cycle)

    engine.push_async(fn, mutate_vars=[v])
    done = Signal()
    engine.push(lambda rc: None, const_vars=[v], on_done=done)
    for _ in range(1000):
        gc.collect()
        if done.wait(0.01):
            break
    with pytest.raises(EngineError):
        engine.wait_for_var(v, timeout_s=LIMIT_S)


def test_async_functions_accept_an_exception_class_as_raise_does(engine):
    v = engine.new_variable()
    engine.push_async(lambda rc, on_complete: on_complete(KeyError), mutate_vars=[v])
    with pytest.raises(EngineError) as caught:
        engine.wait_for_var(v)
    assert type(caught.value.__cause__) is KeyError


@pytest.mark.parametrize("error", [3, [], object(), int], ids=["int", "list", "object", "class"])
def test_async_functions_refuse_errors_that_are_none(engine, error):
    """A wrong error is refused to the caller, and the operation can still be completed."""
    v = engine.new_variable()
    kept = Kept()
    engine.push_async(kept, mutate_vars=[v])
    on_complete = kept.take()
    with pytest.raises(TypeError, match=r"str|exception"):
        on_complete(error)
    on_complete()
    engine.wait_for_var(v)
    assert v.version == 1
