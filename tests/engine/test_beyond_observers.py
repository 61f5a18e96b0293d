"""Beyond: observers for profiling (on_push, on_start, on_end), and stats()."""

import threading

import pytest

import weft
from weft.base.errors import EngineError

from .support import LIMIT_S, Signal, eventually

COUNTERS = {"pushed", "finished", "failed", "skipped", "inlined", "pending", "running", "threads", "stalls"}


def nothing(rc):
    pass


class Log:
    """Keeps what it is told."""

    def __init__(self):
        self.seen = []

    def on_push(self, record):
        self.seen.append(("push", record))

    def on_start(self, record):
        self.seen.append(("start", record))

    def on_end(self, record):
        self.seen.append(("end", record))

    def events(self, operation):
        return [event for event, record in self.seen if record.operation == operation]

    def records(self, event):
        return [record for seen, record in self.seen if seen == event]


def test_beyond_observers_see_push_start_and_end(engine):
    log = Log()
    engine.add_observer(log)
    engine.push(nothing, "cpu:1", name="watched", queue="copy")
    engine.wait_for_all()
    engine.stop()
    assert log.events("watched") == ["push", "start", "end"]
    for event, record in log.seen:
        assert record.operation == "watched"
        assert record.device == weft.cpu(1)
        assert record.queue == "copy"
        assert record.error is None
        assert isinstance(record.worker, int)
        assert (record.worker < 0) == (event == "push" or engine.kind == "naive")
    assert len({record.id for _, record in log.seen}) == 1


def test_beyond_observers_ids_tell_operations_apart(engine):
    log = Log()
    engine.add_observer(log)
    v = engine.new_variable()
    for i in range(50):
        engine.push(nothing, mutate_vars=[v], name=f"op{i}")
    engine.wait_for_all()
    engine.stop()
    assert len({record.id for record in log.records("push")}) == 50
    for event in ("start", "end"):
        assert {r.id: r.operation for r in log.records(event)} == {
            r.id: r.operation for r in log.records("push")
        }


def test_beyond_observers_see_errors(engine):
    log, v, error = Log(), engine.new_variable(), ValueError("planned")
    engine.add_observer(log)

    def fail(rc):
        raise error

    engine.push(fail, mutate_vars=[v], name="failing")
    engine.push(nothing, mutate_vars=[v], name="skipped")
    engine.push_async(lambda rc, on_complete: on_complete(error), name="async")
    with pytest.raises(EngineError):
        engine.wait_for_all()
    engine.stop()
    assert log.events("failing") == ["push", "start", "end"]
    assert log.events("async") == ["push", "start", "end"]
    assert "start" not in log.events("skipped")
    for record in log.records("end"):
        assert error in (record.error, record.error.__cause__)


def test_beyond_observers_see_asynchronous_functions_end_when_they_are_completed(engine):
    log, callbacks, started = Log(), [], Signal()
    engine.add_observer(log)

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        started.set()

    engine.push_async(fn, name="slow")
    started.wait_or_fail()
    assert log.events("slow") == ["push", "start"]
    callbacks.pop()()
    engine.wait_for_all()
    engine.stop()
    assert log.events("slow") == ["push", "start", "end"]


def test_beyond_observers_see_operators_and_each_function_of_a_bulk(engine):
    log, v = Log(), engine.new_variable()
    engine.add_observer(log)
    op = engine.new_operator(nothing, mutate_vars=[v], name="op")
    engine.push(op)
    with engine.bulk(8):
        for i in range(3):
            engine.push(nothing, mutate_vars=[v], name=f"part{i}")
    engine.wait_for_all()
    engine.stop()
    assert log.events("op") == ["push", "start", "end"]
    for i in range(3):
        assert [e for e in log.events(f"part{i}") if e != "push"] == ["start", "end"]


def test_beyond_observers_may_have_some_of_the_methods(engine):
    names = []

    class OnlyEnd:
        def on_end(self, record):
            names.append(record.operation)

    engine.add_observer(OnlyEnd())
    engine.add_observer(object())
    engine.push(nothing, name="a")
    engine.wait_for_all()
    engine.stop()
    assert names == ["a"]


def test_beyond_observers_several_and_removed(engine):
    one, other = Log(), Log()
    engine.add_observer(one)
    engine.add_observer(other)
    engine.push(nothing, name="both")
    engine.wait_for_all()
    assert eventually(lambda: one.events("both") == other.events("both") == ["push", "start", "end"])
    engine.remove_observer(one)
    engine.push(nothing, name="other only")
    engine.wait_for_all()
    engine.stop()
    assert one.events("other only") == []
    assert other.events("other only") == ["push", "start", "end"]


def test_beyond_observers_remove_who_is_not_there(engine):
    with pytest.raises((ValueError, EngineError)):
        engine.remove_observer(Log())


def test_beyond_observers_that_raise_do_no_harm(engine, unraisable):
    class Broken:
        def fail(self, record):
            raise ValueError(record.operation)

        on_push = on_start = on_end = fail

    engine.add_observer(Broken())
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v], name="watched")
    engine.wait_for_var(v)
    engine.stop()
    assert v.version == 1
    assert [str(e) for e in unraisable] == ["watched"] * 3


def test_beyond_observers_may_use_the_engine(engine):
    """An observer that pushes an operation of its own for one that it saw."""
    seen, done = [], Signal()

    class Pushes:
        def on_end(self, record):
            if record.operation == "first":
                engine.push(done, name="second")
            seen.append(record.operation)

    engine.add_observer(Pushes())
    engine.push(nothing, name="first")
    done.wait_or_fail()
    engine.wait_for_all()
    assert eventually(lambda: sorted(seen) == ["first", "second"])


def test_beyond_observers_come_and_go_while_work_is_running(threaded):
    stop = threading.Event()

    def come_and_go():
        while not stop.is_set():
            log = Log()
            threaded.add_observer(log)
            stop.wait(0.0005)
            threaded.remove_observer(log)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    v = threaded.new_variable()
    for _ in range(2000):
        threaded.push(nothing, mutate_vars=[v])
    threaded.wait_for_all(timeout_s=LIMIT_S)
    stop.set()
    thread.join(LIMIT_S)
    assert v.version == 2000


def test_beyond_stats_count(engine):
    v = engine.new_variable()
    before = engine.stats()
    assert set(before) >= COUNTERS
    assert all(isinstance(value, int) for value in before.values())
    for _ in range(10):
        engine.push(nothing)
    for _ in range(2):
        engine.push(lambda rc: 1 / 0)
    engine.push(lambda rc: 1 / 0, mutate_vars=[v])
    for _ in range(3):
        engine.push(nothing, mutate_vars=[v])
    with pytest.raises(EngineError):
        engine.wait_for_all()
    after = engine.stats()
    changed = {
        name: after[name] - before[name]
        for name in ("pushed", "failed", "skipped", "pending", "running", "inlined")
    }
    assert changed == {"pushed": 16, "failed": 3, "skipped": 3, "pending": 0, "running": 0, "inlined": 0}


def test_beyond_stats_pending_and_running(make_engine, gate):
    engine = make_engine(workers=2)
    v = engine.new_variable()
    for _ in range(5):
        engine.push(gate.wait, mutate_vars=[v])
    gate.wait_until_entered()
    stats = engine.stats()
    assert stats["pending"] == 5
    assert stats["running"] == 1
    assert stats["threads"] >= 1
    gate.open()
    engine.wait_for_all()
    assert engine.stats()["pending"] == 0
    engine.stop()
    assert engine.stats()["threads"] == 0
    assert engine.stats()["pushed"] == 5


def test_beyond_stats_of_a_bulk_count_operations(engine):
    """A hundred functions, sixteen at a time, are seven operations."""
    v = engine.new_variable()
    with engine.bulk(16):
        for _ in range(100):
            engine.push(nothing, mutate_vars=[v])
    engine.wait_for_all()
    assert engine.stats()["pushed"] == 7
    assert v.version == 100
