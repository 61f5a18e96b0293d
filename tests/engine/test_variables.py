"""Variables: versions count finished writes; deletion takes effect after everything pushed; handles may be
dropped.
"""

import gc
import threading

import pytest

from weft.base.errors import EngineError
from weft.engine import Variable

from .support import SOON_S, Signal


def nothing(rc):
    pass


def fail(rc):
    raise ValueError("planned")


def test_variables_ten_reads_leave_version_0(engine):
    v = engine.new_variable()
    for _ in range(10):
        engine.push(nothing, const_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 0


def test_variables_ten_writes_make_version_10(engine):
    v = engine.new_variable()
    for _ in range(10):
        engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 10


def test_variables_version_counts_overwriting(engine):
    v = engine.new_variable()
    for _ in range(10):
        engine.push(nothing, overwrite_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 10


def test_variables_version_counts_failed_writes_and_no_skipped_ones(engine):
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v])
    engine.push(fail, mutate_vars=[v])
    for _ in range(5):
        engine.push(nothing, mutate_vars=[v])
    with pytest.raises(EngineError):
        engine.wait_for_var(v)
    assert v.version == 2
    engine.clear_error(v)
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 3


def test_variables_version_inside_a_function_is_that_of_the_writes_before(engine):
    v = engine.new_variable()
    seen = []
    for _ in range(20):
        engine.push(lambda rc: seen.append(v.version), mutate_vars=[v])
    engine.wait_for_var(v)
    assert seen == list(range(20))


def test_variables_version_cannot_be_set(engine):
    v = engine.new_variable()
    with pytest.raises(AttributeError):
        v.version = 3
    assert v.version == 0


def test_variables_waiting_does_not_change_the_version(engine):
    v = engine.new_variable()
    for _ in range(3):
        engine.wait_for_var(v)
        engine.wait_for_var(v, writes_only=True)
        engine.clear_error(v)
    engine.wait_for_all()
    assert v.version == 0


def test_variables_are_compared_and_hashed_by_identity(engine):
    a, b = engine.new_variable(), engine.new_variable()
    assert isinstance(a, Variable)
    assert a == a
    assert a != b
    assert len({a, b, a}) == 2


def test_variables_delete_takes_effect_after_everything_pushed(make_engine, make_gate):
    engine = make_engine(workers=2)
    v = engine.new_variable()
    reading, writing, deleted = make_gate(), make_gate(), Signal()
    engine.push(reading.wait, const_vars=[v])
    engine.push(writing.wait, mutate_vars=[v])
    engine.delete_variable(v, lambda: deleted.set())
    reading.wait_until_entered()
    assert not deleted.wait(SOON_S)
    reading.open()
    writing.wait_until_entered()
    assert not deleted.wait(SOON_S)
    writing.open()
    deleted.wait_or_fail()


def test_variables_delete_waits_for_asynchronous_work(engine):
    v = engine.new_variable()
    started, deleted, callbacks = Signal(), Signal(), []

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        started.set()

    engine.push_async(fn, mutate_vars=[v])
    engine.delete_variable(v, lambda: deleted.set())
    started.wait_or_fail()
    assert not deleted.wait(SOON_S)
    callbacks.pop()()
    deleted.wait_or_fail()


def test_variables_on_deleted_is_called_once(engine):
    calls = []
    for i in range(100):
        v = engine.new_variable()
        engine.push(nothing, mutate_vars=[v])
        engine.delete_variable(v, lambda i=i: calls.append(i))
        del v
    engine.wait_for_all()
    gc.collect()
    engine.stop()
    assert sorted(calls) == list(range(100))


def test_variables_on_deleted_runs_on_a_worker(threaded):
    seen = []
    for busy in (False, True):
        v = threaded.new_variable()
        if busy:
            threaded.push(nothing, mutate_vars=[v])
        threaded.delete_variable(v, lambda: seen.append(threading.get_ident()))
    threaded.stop()
    assert len(seen) == 2
    assert threading.get_ident() not in seen


def test_variables_on_deleted_is_waited_for_by_wait_for_all(engine, gate):
    """This is how memory returns: once all is waited for, it has returned."""
    calls = []
    for i in range(50):
        v = engine.new_variable()
        engine.push(nothing, mutate_vars=[v])
        engine.delete_variable(v, lambda i=i: calls.append(i))
    engine.wait_for_all()
    assert sorted(calls) == list(range(50))


def test_variables_on_deleted_is_called_for_a_poisoned_variable_too(engine):
    v = engine.new_variable()
    deleted = Signal()
    engine.push(fail, mutate_vars=[v])
    engine.push(nothing, mutate_vars=[v])
    engine.delete_variable(v, lambda: deleted.set())
    deleted.wait_or_fail()


def test_variables_on_deleted_may_push(engine):
    v, w = engine.new_variable(), engine.new_variable()
    done = Signal()
    engine.delete_variable(v, lambda: engine.push(done, mutate_vars=[w]))
    done.wait_or_fail()


def test_variables_on_deleted_that_raises_does_no_harm(engine):
    """It has nothing to poison; wait_for_all tells."""
    v, w = engine.new_variable(), engine.new_variable()
    error = ValueError("from on_deleted")

    def on_deleted():
        raise error

    engine.delete_variable(v, on_deleted)
    engine.push(nothing, mutate_vars=[w])
    engine.wait_for_var(w)
    assert w.version == 1
    with pytest.raises(EngineError) as caught:
        engine.wait_for_all()
    assert caught.value.__cause__ is error
    engine.wait_for_all()


def test_variables_delete_without_a_callback(engine):
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v])
    engine.delete_variable(v)
    engine.wait_for_all()


@pytest.mark.parametrize(
    "use",
    [
        lambda e, v: e.push(nothing, const_vars=[v]),
        lambda e, v: e.push(nothing, mutate_vars=[v]),
        lambda e, v: e.push(nothing, overwrite_vars=[v]),
        lambda e, v: e.push_async(lambda rc, on_complete: on_complete(), mutate_vars=[v]),
        lambda e, v: e.new_operator(nothing, mutate_vars=[v]),
        lambda e, v: e.delete_variable(v),
    ],
    ids=["const", "mutate", "overwrite", "push_async", "new_operator", "delete again"],
)
def test_variables_once_deleted_are_refused_at_the_call(engine, use):
    v, w = engine.new_variable(), engine.new_variable()
    engine.delete_variable(v)
    with pytest.raises(EngineError, match="delete"):
        use(engine, v)
    engine.push(nothing, mutate_vars=[w])
    engine.wait_for_all()
    assert w.version == 1


def test_variables_a_refused_push_touches_nothing(engine):
    """The good variables of a push that is refused are not held."""
    good, deleted = engine.new_variable(), engine.new_variable()
    engine.delete_variable(deleted)
    for _ in range(3):
        with pytest.raises(EngineError):
            engine.push(nothing, const_vars=[good], mutate_vars=[good, deleted])
    engine.push(nothing, mutate_vars=[good])
    engine.wait_for_var(good, timeout_s=10)
    assert good.version == 1


def test_variables_handles_may_be_dropped_while_work_is_pending(threaded, gate):
    kept = threaded.new_variable()
    seen = []
    threaded.push(gate.wait, mutate_vars=[kept], queue="io")
    for i in range(100):
        v = threaded.new_variable()
        threaded.push(lambda rc: None, const_vars=[kept], mutate_vars=[v])
        threaded.push(lambda rc, i=i: seen.append(i), const_vars=[v], mutate_vars=[kept])
        del v
    gc.collect()
    gate.open()
    threaded.wait_for_all()
    assert seen == list(range(100))


def test_variables_handles_may_be_dropped_by_functions_and_other_threads(engine):
    holder = {i: engine.new_variable() for i in range(100)}
    for i in range(100):
        engine.push(lambda rc, i=i: holder.pop(i) and None, mutate_vars=[holder[i]])
    engine.wait_for_all()
    assert not holder
    many = [engine.new_variable() for _ in range(1000)]
    for v in many:
        engine.push(nothing, mutate_vars=[v])
    thread = threading.Thread(target=many.clear)
    del v
    thread.start()
    thread.join()
    engine.wait_for_all()


def test_variables_outlive_the_name_of_their_engine(engine, make_engine):
    """A handle may be dropped after its engine has been stopped."""
    other = make_engine(workers=1)
    v = other.new_variable()
    other.push(nothing, mutate_vars=[v])
    other.stop()
    assert v.version == 1
    del other
    gc.collect()
    assert v.version == 1
    del v
    gc.collect()
