"""Operations that run although what they use has failed, errors without a wait, and a bulk size for all threads."""

import threading
import time

import pytest

from weft.base.errors import EngineError
from weft.engine import Engine

from .support import LIMIT_S


def fail(rc):
    raise ValueError("on purpose")


@pytest.mark.parametrize("how", ["sync", "async", "operator", "async operator", "bulk"])
@pytest.mark.parametrize("kind", ["threaded", "naive", "explore"])
def test_runs_and_is_told(how, kind):
    seen = []
    options = {"schedule_seed": 3} if kind == "explore" else {"kind": kind}
    with Engine(workers=2, **options) as engine:
        bad, state, fresh = (engine.new_variable() for _ in range(3))
        engine.push(fail, mutate_vars=[bad], name="first")
        engine.push(fail, mutate_vars=[state], name="second")
        uses = {"const_vars": [bad], "mutate_vars": [state], "overwrite_vars": [fresh]}

        def run(rc, done=None):
            seen.append(rc.error)
            if done is not None:
                done()

        if how == "sync":
            engine.push(run, **uses, run_on_error=True)
        elif how == "async":
            engine.push_async(run, **uses, run_on_error=True)
        elif how == "bulk":
            with engine.bulk(4):
                engine.push(run, **uses, run_on_error=True)
        else:
            made = engine.new_operator(run, **uses, is_async=how != "operator", run_on_error=True)
            engine.push(made)
        engine.wait_for_var(fresh, timeout_s=LIMIT_S)  # good, as the function succeeded
        (error,) = seen
        assert isinstance(error, EngineError)
        assert (error.operation, str(error.__cause__)) == ("first", "on purpose")  # reads count first
        with pytest.raises(EngineError, match="on purpose") as caught:  # what it changes stays what it was
            engine.wait_for_var(state)
        assert caught.value.operation == "second"
        assert (fresh.version, state.version) == (1, 2)


def test_what_it_raises_itself():
    with Engine(workers=1) as engine:
        bad, out = engine.new_variable(), engine.new_variable()
        engine.push(fail, mutate_vars=[bad], name="first")

        def again(rc):
            raise KeyError(rc.error.operation)

        engine.push(again, const_vars=[bad], mutate_vars=[out], name="again", run_on_error=True)
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(out)
        assert (caught.value.operation, repr(caught.value.__cause__)) == ("again", "KeyError('first')")


def test_without_it_the_operation_is_skipped_and_others_have_no_error():
    seen = []
    with Engine(workers=1) as engine:
        bad, good, out = (engine.new_variable() for _ in range(3))
        engine.push(fail, mutate_vars=[bad])
        engine.push(lambda rc: seen.append("skipped?"), const_vars=[bad], mutate_vars=[out])
        engine.push(lambda rc: seen.append(rc.error), const_vars=[good], run_on_error=True)
        with pytest.raises(EngineError):
            engine.wait_for_var(out)
        engine.wait_for_var(good)
    assert seen == [None]


def test_an_operator_says_it_itself():
    with Engine(workers=1) as engine:
        made = engine.new_operator(lambda rc: None)
        with pytest.raises(TypeError, match="an Operator has its variables and name already"):
            engine.push(made, run_on_error=True)


def test_throw_if_failed_does_not_wait():
    gate, started = threading.Event(), threading.Event()

    def busy(rc):
        started.set()
        assert gate.wait(LIMIT_S)

    with Engine(workers=2) as engine, Engine(workers=1) as other:
        good, bad = engine.new_variable(), engine.new_variable()
        engine.throw_if_failed(good)
        engine.push(fail, mutate_vars=[bad], name="failing")
        with pytest.raises(EngineError):
            engine.wait_for_var(bad)
        engine.push(busy, mutate_vars=[good, bad], run_on_error=True)
        assert started.wait(LIMIT_S)
        engine.throw_if_failed(good)  # it is being written
        for _ in range(2):
            with pytest.raises(EngineError, match="on purpose") as caught:
                engine.throw_if_failed(bad)
            assert caught.value.operation == "failing"
        gate.set()
        with pytest.raises(EngineError, match="another engine"):
            other.throw_if_failed(good)
        found = []
        engine.push(lambda rc: found.append(engine.throw_if_failed(good)), mutate_vars=[good])
        engine.wait_for_var(good)
        assert found == [None]
        with pytest.raises(TypeError, match="throw_if_failed: expected a Variable"):
            engine.throw_if_failed(3)


def test_bulk_size_of_all_threads():
    with Engine(workers=1) as engine:
        assert engine.set_bulk_size(8) == 1
        log, variable = [], engine.new_variable()

        def push_some(count):
            for _ in range(count):
                engine.push(lambda rc: log.append(threading.get_ident()), mutate_vars=[variable])

        push_some(16)
        engine.wait_for_var(variable)
        assert (len(log), engine.stats()["pushed"]) == (16, 2)
        thread = threading.Thread(target=push_some, args=(11,))  # 8, and 3 when it ends
        thread.start()
        thread.join(LIMIT_S)
        end = time.monotonic() + LIMIT_S
        while len(log) < 27 and time.monotonic() < end:  # join returns before the system's thread has ended
            engine.wait_for_var(variable)
        assert (len(log), engine.stats()["pushed"]) == (27, 4)
        with engine.bulk(2):  # a block says otherwise
            push_some(4)
        engine.wait_for_var(variable)
        assert engine.stats()["pushed"] == 6
        push_some(3)  # collected until the size changes
        assert engine.set_bulk_size(1) == 8
        push_some(2)
        engine.wait_for_var(variable)
        assert (variable.version, engine.stats()["pushed"]) == (36, 9)
        for size in (0, -1, 2**40, "4"):
            with pytest.raises(ValueError, match="set_bulk_size: size must be an int of at least 1"):
                engine.set_bulk_size(size)


def test_bulk_size_of_two_engines_and_one_that_ends():
    with Engine(workers=1) as one:
        one.set_bulk_size(4)
        a = one.new_variable()
        one.push(lambda rc: None, mutate_vars=[a])
        with Engine(workers=1) as two:
            two.set_bulk_size(4)
            b = two.new_variable()
            two.push(lambda rc: None, mutate_vars=[b])  # submits what the other engine collected
            one.push(lambda rc: None, mutate_vars=[a])
            two.push(lambda rc: None, mutate_vars=[b])
            two.wait_for_var(b)
            assert b.version == 2
        del two, b
        one.wait_for_var(a)
        assert a.version == 2


def test_arrays_in_bulk(script):
    """The process's engine, whose pushes are those of arrays."""
    code = """
    import weft as wf
    from weft.engine import default_engine
    engine = default_engine()
    engine.set_bulk_size(16)
    x = wf.ones((64, 64))
    for _ in range(40):
        x = x * 1.5 - x.mean()
    value = float(x.sum())
    engine.set_bulk_size(1)
    y = wf.ones((64, 64))
    for _ in range(40):
        y = y * 1.5 - y.mean()
    assert value == float(y.sum()), (value, float(y.sum()))
    print("equal")
    """
    assert "equal" in script(code).stdout
