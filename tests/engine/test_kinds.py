"""Kinds: threaded and naive, chosen at run time; several engines side by side; stop and start."""

import os
import threading

import pytest

from weft.base.errors import EngineError
from weft.engine import Engine, default_engine

from .support import LIMIT_S, Signal, eventually, thread_count


def nothing(rc):
    pass


def test_kinds_threaded_is_the_default():
    engine = Engine()
    try:
        assert engine.kind == "threaded"
        assert engine.running
        assert engine.workers >= 1
    finally:
        engine.stop()


def test_kinds_naive_runs_at_the_call_on_the_calling_thread(make_engine):
    engine = make_engine(kind="naive")
    assert engine.kind == "naive"
    v, seen = engine.new_variable(), []
    for i in range(10):
        engine.push(lambda rc: seen.append(threading.get_ident()), mutate_vars=[v])
        assert seen == [threading.get_ident()] * (i + 1)
        assert v.version == i + 1


def test_kinds_naive_runs_reads_operators_and_asynchronous_functions_at_the_call(make_engine):
    engine = make_engine(kind="naive")
    v, seen = engine.new_variable(), []
    op = engine.new_operator(lambda rc: seen.append("operator"), mutate_vars=[v])
    engine.push(op)
    engine.push(lambda rc: seen.append("read"), const_vars=[v], queue="io", priority=-1)
    engine.push_async(lambda rc, on_complete: (seen.append("async"), on_complete()), mutate_vars=[v])
    assert seen == ["operator", "read", "async"]
    assert v.version == 2


def test_kinds_naive_runs_what_waits_for_an_asynchronous_function_where_that_completes(make_engine):
    engine = make_engine(kind="naive")
    v, seen, callbacks = engine.new_variable(), [], []
    engine.push_async(lambda rc, on_complete: callbacks.append(on_complete), mutate_vars=[v])
    for i in range(3):
        engine.push(lambda rc, i=i: seen.append((i, threading.get_ident())), mutate_vars=[v])
    assert not seen
    thread = threading.Thread(target=callbacks.pop())
    thread.start()
    ident = thread.ident
    thread.join(LIMIT_S)
    assert seen == [(i, ident) for i in range(3)]


def test_kinds_naive_does_not_raise_at_push(make_engine):
    engine = make_engine(kind="naive")
    v = engine.new_variable()
    engine.push(lambda rc: 1 / 0, mutate_vars=[v])
    with pytest.raises(EngineError):
        engine.wait_for_var(v)


def test_kinds_naive_has_no_threads():
    before = thread_count()
    engine = Engine(kind="naive")
    v = engine.new_variable()
    for queue in ("compute", "wide", "copy", "io", "priority"):
        engine.push(nothing, mutate_vars=[v], queue=queue)
    engine.push_async(lambda rc, on_complete: on_complete(), mutate_vars=[v])
    assert thread_count() <= before
    engine.stop()


def test_kinds_naive_from_many_threads_keeps_the_one_rule(make_engine, switch_often, in_threads):
    engine = make_engine(kind="naive")
    v, cell = engine.new_variable(), [0]

    def add(rc):
        before = cell[0]
        for _ in range(10):
            pass
        cell[0] = before + 1

    def work(_):
        for _ in range(500):
            engine.push(add, mutate_vars=[v])
        engine.wait_for_var(v)

    in_threads(work, range(4))
    engine.wait_for_all()
    assert cell == [2000]
    assert v.version == 2000


def test_kinds_side_by_side(make_engine):
    engines = [make_engine(workers=1), make_engine(workers=2), make_engine(kind="naive")]
    variables = [e.new_variable() for e in engines]
    for _ in range(300):
        for e, v in zip(engines, variables, strict=True):
            e.push(nothing, mutate_vars=[v])
    for e in engines:
        e.wait_for_all()
    assert [v.version for v in variables] == [300] * 3


def test_kinds_side_by_side_engines_do_not_wait_for_each_other(make_engine, gate):
    busy, free = make_engine(workers=1), make_engine(workers=1)
    busy.push(gate.wait)
    gate.wait_until_entered()
    v = free.new_variable()
    free.push(nothing, mutate_vars=[v])
    free.wait_for_all(timeout_s=LIMIT_S)
    free.stop(timeout_s=LIMIT_S)
    assert not gate.is_open


def test_kinds_a_variable_of_another_engine_is_refused(engine, make_engine):
    v, own = make_engine(workers=1).new_variable(), engine.new_variable()
    for use in (
        lambda: engine.push(nothing, const_vars=[own, v]),
        lambda: engine.push(nothing, mutate_vars=[v]),
        lambda: engine.push(nothing, overwrite_vars=[v]),
        lambda: engine.push_async(lambda rc, on_complete: on_complete(), const_vars=[v]),
        lambda: engine.new_operator(nothing, mutate_vars=[v]),
        lambda: engine.wait_for_var(v),
        lambda: engine.clear_error(v),
        lambda: engine.delete_variable(v),
    ):
        with pytest.raises(EngineError, match="engine"):
            use()
    engine.push(nothing, mutate_vars=[own])
    engine.wait_for_all()
    assert (own.version, v.version) == (1, 0)


def test_kinds_stop_finishes_pending_work(engine):
    v = engine.new_variable()
    for _ in range(1000):
        engine.push(nothing, mutate_vars=[v])
    engine.stop()
    assert v.version == 1000
    assert not engine.running


def test_kinds_stop_finishes_asynchronous_work(engine):
    v = engine.new_variable()
    engine.push_async(lambda rc, on_complete: threading.Timer(0.05, on_complete).start(), mutate_vars=[v])
    engine.push(nothing, mutate_vars=[v])
    engine.stop()
    assert v.version == 2


def test_kinds_stop_finishes_what_running_functions_push(threaded):
    v, left = threaded.new_variable(), [50]

    def again(rc):
        left[0] -= 1
        if left[0]:
            threaded.push(again, mutate_vars=[v])

    threaded.push(again, mutate_vars=[v])
    threaded.stop()
    assert v.version == 50


def test_kinds_stop_joins_the_threads():
    before = thread_count()
    engine = Engine(workers=3)
    for queue in ("compute", "wide", "copy", "io", "priority"):
        for device in ("cpu:0", "cpu:1"):
            engine.push(nothing, device, queue=queue)
    engine.wait_for_all()
    assert thread_count() > before
    engine.stop()
    assert eventually(lambda: thread_count() <= before)


def test_kinds_stop_has_a_time_limit(threaded, gate):
    v = threaded.new_variable()
    threaded.push(gate.wait, mutate_vars=[v])
    gate.wait_until_entered()
    with pytest.raises(TimeoutError):
        threaded.stop(timeout_s=0.05)
    gate.open()
    threaded.stop(timeout_s=LIMIT_S)
    assert v.version == 1


def test_kinds_stop_twice_and_start_twice_are_harmless(engine):
    v = engine.new_variable()
    engine.start()
    engine.stop()
    engine.stop()
    engine.start()
    engine.start()
    assert engine.running
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 1


def test_kinds_a_stopped_engine_refuses_work(engine):
    v = engine.new_variable()
    op = engine.new_operator(nothing, mutate_vars=[v])
    engine.push(op)
    engine.stop()
    for use in (
        lambda: engine.push(nothing),
        lambda: engine.push(op),
        lambda: engine.push_async(lambda rc, on_complete: on_complete()),
    ):
        with pytest.raises(EngineError, match="stop"):
            use()
    engine.wait_for_var(v)
    engine.wait_for_all()
    assert v.version == 1


def test_kinds_start_after_stop(engine):
    """Variables keep their state: versions, poison; operators stay usable."""
    good, bad = engine.new_variable(), engine.new_variable()
    op = engine.new_operator(nothing, mutate_vars=[good])
    error = ValueError("planned")

    def fail(rc):
        raise error

    engine.push(fail, mutate_vars=[bad])
    for i in range(5):
        engine.push(op)
        engine.stop()
        assert good.version == i + 1
        engine.start()
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(bad)
        assert caught.value.__cause__ is error
    engine.push(nothing, overwrite_vars=[bad])
    engine.wait_for_var(bad)
    assert bad.version == 2


def test_kinds_stop_does_not_raise_what_has_failed(engine):
    v = engine.new_variable()
    engine.push(lambda rc: 1 / 0, mutate_vars=[v])
    engine.stop()
    engine.start()
    with pytest.raises(EngineError):
        engine.wait_for_all()


def test_kinds_stop_inside_a_function_is_refused(threaded):
    seen, done = [], Signal()

    def fn(rc):
        try:
            threaded.stop()
        except EngineError:
            seen.append(1)
        done.set()

    threaded.push(fn)
    done.wait_or_fail()
    assert seen == [1]
    assert threaded.running


def test_kinds_stop_and_start_many_times(make_engine):
    engine = make_engine(workers=2)
    v = engine.new_variable()
    before = thread_count()
    for _ in range(30):
        for _ in range(20):
            engine.push(nothing, mutate_vars=[v])
        engine.stop()
        engine.start()
    assert v.version == 600
    assert thread_count() <= before + 1


def test_kinds_default_engine_is_one():
    assert default_engine() is default_engine()
    v = default_engine().new_variable()
    default_engine().push(nothing, mutate_vars=[v])
    default_engine().wait_for_var(v)
    assert v.version == 1


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_kinds_default_engine_follows_the_environment(script, kind):
    script(
        """
        from weft.engine import default_engine
        e = default_engine()
        print(e.kind, e.workers)
        """,
        env={"WEFT_ENGINE": kind, "WEFT_NUM_THREADS": "3"},
        expect_stdout=f"{kind} 3" if kind == "threaded" else None,
    )


def test_kinds_default_engine_refuses_a_kind_that_is_none(script):
    ended = script(
        "from weft.engine import default_engine; default_engine()",
        env={"WEFT_ENGINE": "magic"},
        expect_status=1,
    )
    assert "threaded" in ended.stderr
    assert "naive" in ended.stderr


def test_kinds_workers_default_to_the_cores(script):
    ended = script("from weft.engine import Engine; print(Engine().workers)", env={"WEFT_NUM_THREADS": None})
    assert int(ended.stdout) in (os.cpu_count(), len(os.sched_getaffinity(0)))


def test_kinds_workers_of_an_engine_go_before_the_environment(script):
    script(
        "from weft.engine import Engine; print(Engine(workers=5).workers)",
        expect_stdout="5",
        env={"WEFT_NUM_THREADS": "2"},
    )
