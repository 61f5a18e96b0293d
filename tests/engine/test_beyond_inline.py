"""Beyond: a ready native kernel marked cheap runs on the pushing thread; user functions never do; nobody
can tell.
"""

import threading

import pytest

from weft import _core
from weft.base.errors import EngineError
from weft.engine import NativeFunction

from .support import LIMIT_S, Signal

testing = _core.testing


def cheap(name="noop", **options):
    return NativeFunction(getattr(testing, name), cheap=True, **options)


def test_beyond_inline_cheap_native_functions_run_on_the_pushing_thread(threaded):
    v = threaded.new_variable()
    for i in range(100):
        threaded.push(cheap(), mutate_vars=[v])
        assert v.version == i + 1, "it has run before push returned"
    stats = threaded.stats()
    assert stats["inlined"] == 100
    assert stats["pushed"] == 100
    assert stats["pending"] == 0


def test_beyond_inline_native_functions_that_are_not_cheap_do_not(threaded):
    v = threaded.new_variable()
    for _ in range(100):
        threaded.push(NativeFunction(testing.noop), mutate_vars=[v])
    threaded.wait_for_var(v)
    assert v.version == 100
    assert threaded.stats()["inlined"] == 0


def test_beyond_inline_is_for_what_is_ready(threaded, gate):
    v = threaded.new_variable()
    threaded.push(gate.wait, mutate_vars=[v])
    for _ in range(10):
        threaded.push(cheap(), mutate_vars=[v])
        threaded.push(cheap(), const_vars=[v])
    assert threaded.stats()["inlined"] == 0
    gate.open()
    threaded.wait_for_all()
    assert v.version == 11


def test_beyond_inline_waits_for_readers(threaded, gate):
    v = threaded.new_variable()
    threaded.push(gate.wait, const_vars=[v])
    gate.wait_until_entered()
    threaded.push(cheap(), const_vars=[v])
    threaded.push(cheap(), mutate_vars=[v])
    assert v.version == 0
    gate.open()
    threaded.wait_for_var(v)
    assert v.version == 1


def test_beyond_inline_keeps_push_order(threaded):
    """Cheap native functions and Python functions on one variable."""
    v, seen = threaded.new_variable(), []
    for i in range(300):
        threaded.push(lambda rc: seen.append(v.version), mutate_vars=[v])
        for _ in range(i % 4):
            threaded.push(cheap(), mutate_vars=[v])
    threaded.wait_for_var(v)
    expected, version = [], 0
    for i in range(300):
        expected.append(version)
        version += 1 + i % 4
    assert seen == expected
    assert v.version == version


def test_beyond_inline_cannot_be_observed(make_engine):
    """Same records, errors and versions as when it is queued."""
    stories = []
    for is_cheap in (True, False):
        engine = make_engine(workers=1)
        v, w = engine.new_variable(), engine.new_variable()
        records, done = [], Signal()

        class Observer:
            def on_push(self, record):
                self.seen.append(("push", record.operation, record.error))

            def on_start(self, record):
                self.seen.append(("start", record.operation, record.error))

            def on_end(self, record):
                self.seen.append(("end", record.operation, type(record.error)))

        Observer.seen = records
        engine.add_observer(Observer())
        for name in ("noop", "throw_std", "noop"):
            assert (
                engine.push(
                    NativeFunction(getattr(testing, name), cheap=is_cheap),
                    const_vars=[v],
                    mutate_vars=[w],
                    name=name,
                )
                is None
            )
            threading.Event().wait(0.01)
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(w)
        engine.push(NativeFunction(testing.noop, cheap=is_cheap), overwrite_vars=[w], on_done=done)
        done.wait_or_fail()
        engine.wait_for_var(w)
        per_operation = sorted(records, key=lambda r: (r[1], r[0]))
        stories.append(
            (
                v.version,
                w.version,
                caught.value.operation,
                str(caught.value),
                caught.value.where,
                str(per_operation),
            )
        )
    assert stories[0] == stories[1]


def test_beyond_inline_on_done_never_runs_on_the_pushing_thread(threaded):
    """on_done is a user's function."""
    seen, done = [], Signal()

    def on_done(error):
        seen.append(threading.get_ident())
        done.set()

    threaded.push(cheap(), on_done=on_done)
    done.wait_or_fail()
    assert seen != [threading.get_ident()]


def test_beyond_inline_on_deleted_never_runs_on_the_pushing_thread(threaded):
    seen = []
    for _ in range(20):
        v = threaded.new_variable()
        threaded.push(cheap(), mutate_vars=[v])
        threaded.delete_variable(v, lambda: seen.append(threading.get_ident()))
    threaded.wait_for_all(timeout_s=LIMIT_S)
    assert len(seen) == 20
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("queue", ["compute", "wide", "copy", "io", "priority"])
def test_beyond_user_functions_never_run_on_the_pushing_thread(threaded, queue):
    seen = []

    def fn(rc, on_complete=None):
        seen.append(threading.get_ident())
        if on_complete:
            on_complete()

    ops = [threaded.new_operator(fn, queue=queue), threaded.new_operator(fn, queue=queue, is_async=True)]
    for _ in range(20):
        threaded.push(fn, queue=queue)
        threaded.push_async(fn, queue=queue)
        with threaded.bulk(2):
            threaded.push(fn, queue=queue)
            threaded.push(fn, queue=queue)
        for op in ops:
            threaded.push(op)
        threaded.wait_for_all(timeout_s=LIMIT_S)
    assert len(seen) == 120
    assert threading.get_ident() not in seen


def test_beyond_user_functions_never_run_on_the_thread_that_completes_or_waits(threaded):
    """A thread of the user's that completes an asynchronous function does not run what that made ready."""
    v, seen, callbacks, started = threaded.new_variable(), [], [], Signal()

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        started.set()

    threaded.push_async(fn, mutate_vars=[v])
    for _ in range(20):
        threaded.push(lambda rc: seen.append(threading.get_ident()), const_vars=[v])
    started.wait_or_fail()
    callbacks.pop()()
    threaded.wait_for_all(timeout_s=LIMIT_S)
    assert len(seen) == 20
    assert threading.get_ident() not in seen


def test_beyond_inline_cheap_native_functions_in_a_naive_engine(make_engine):
    engine = make_engine(kind="naive")
    v = engine.new_variable()
    engine.push(cheap(), mutate_vars=[v])
    assert v.version == 1


def test_beyond_inline_from_inside_a_function(threaded):
    v, w, seen = threaded.new_variable(), threaded.new_variable(), []

    def fn(rc):
        threaded.push(cheap(), mutate_vars=[v])
        threaded.push(cheap(), mutate_vars=[w])
        seen.append(v.version)

    threaded.push(fn, mutate_vars=[v])
    threaded.wait_for_all(timeout_s=LIMIT_S)
    threaded.wait_for_all(timeout_s=LIMIT_S)
    assert seen == [0]
    assert (v.version, w.version) == (2, 1)
