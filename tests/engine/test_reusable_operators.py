"""new_operator once, push(operator, device) many times; delete_operator takes effect after its runs have
finished.
"""

import gc
import weakref

import pytest

import weft
from weft.base.errors import EngineError
from weft.engine import Operator

from .support import LIMIT_S, Signal, causes_of, eventually, line_here


def test_reusable_operators_run_many_times(engine):
    source, total = engine.new_variable(), engine.new_variable()
    seen = []
    op = engine.new_operator(lambda rc: seen.append(rc.operation), [source], [total], "add")
    assert isinstance(op, Operator)
    for _ in range(1000):
        assert engine.push(op) is None
    engine.wait_for_var(total)
    assert seen == ["add"] * 1000
    assert (source.version, total.version) == (0, 1000)


def test_reusable_operators_go_to_the_device_of_each_push(engine):
    v = engine.new_variable()
    seen = []
    op = engine.new_operator(lambda rc: seen.append(rc.device), mutate_vars=[v])
    engine.push(op)
    engine.push(op, "cpu:1")
    engine.push(op, device=weft.cpu(2), priority=5)
    engine.wait_for_all()
    assert seen == [weft.cpu(0), weft.cpu(1), weft.cpu(2)]


@pytest.mark.parametrize("queue", ["compute", "wide", "copy", "io", "priority"])
def test_reusable_operators_have_a_queue(engine, queue):
    seen = []
    op = engine.new_operator(lambda rc: seen.append(rc.queue), queue=queue)
    engine.push(op)
    engine.wait_for_all()
    assert seen == [queue]


def test_reusable_operators_queue_unless_told(engine):
    seen = []

    def fn(rc, on_complete=lambda: None):
        seen.append(rc.queue)
        on_complete()

    v = engine.new_variable()
    engine.push(engine.new_operator(fn, mutate_vars=[v]))
    engine.push(engine.new_operator(fn, mutate_vars=[v], is_async=True))
    engine.wait_for_all()
    assert seen == ["compute", "io"]


def test_reusable_operators_without_variables_run_at_the_same_time(make_engine, make_gate):
    engine, gate = make_engine(workers=2), make_gate()
    op = engine.new_operator(gate.wait)
    engine.push(op)
    engine.push(op)
    gate.wait_until_entered()
    gate.wait_until_entered()


def test_reusable_operators_may_be_asynchronous(engine):
    v = engine.new_variable()
    seen = []

    def fn(rc, on_complete):
        seen.append(rc.operation)
        on_complete()

    op = engine.new_operator(fn, mutate_vars=[v], name="fetch", is_async=True)
    for _ in range(50):
        engine.push(op)
    engine.wait_for_var(v)
    assert seen == ["fetch"] * 50
    assert v.version == 50


def test_reusable_operators_keep_order_with_other_operations(engine):
    v = engine.new_variable()
    seen = []
    ops = [engine.new_operator(lambda rc, i=i: seen.append(i), mutate_vars=[v]) for i in range(3)]
    for i in range(300):
        engine.push(ops[i % 3])
        engine.push(lambda rc: seen.append("other"), mutate_vars=[v])
    engine.wait_for_var(v)
    assert seen == [x for i in range(300) for x in (i % 3, "other")]


def test_reusable_operators_fail_like_any_operation(engine):
    """Failing poisons, an overwriting operator that succeeds heals."""
    v, w = engine.new_variable(), engine.new_variable()
    error, runs = ValueError("planned"), []

    def sometimes(rc):
        runs.append(1)
        if len(runs) == 2:
            raise error

    op = engine.new_operator(sometimes, mutate_vars=[v], name="sometimes")
    heal = engine.new_operator(lambda rc: None, overwrite_vars=[v], name="heal")
    for _ in range(5):
        engine.push(op)
    engine.push(lambda rc: None, const_vars=[v], mutate_vars=[w])
    for _ in range(2):
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(w)
        assert caught.value.operation == "sometimes"
        assert causes_of(caught.value) == [error]
    assert (len(runs), v.version) == (2, 2)
    engine.push(heal)
    engine.push(op)
    engine.wait_for_var(v)
    assert (len(runs), v.version) == (3, 4)


def test_reusable_operators_errors_name_the_line_of_the_push(engine):
    v = engine.new_variable()

    def fail(rc):
        raise ValueError("planned")

    op = engine.new_operator(fail, mutate_vars=[v])
    expected = line_here(+1)
    engine.push(op)
    with pytest.raises(EngineError) as caught:
        engine.wait_for_var(v)
    assert caught.value.where.endswith(expected)


def test_reusable_operators_delete_takes_effect_after_the_runs(threaded, gate):
    seen = []
    v = threaded.new_variable()

    def fn(rc):
        gate.wait()
        seen.append(1)

    op = threaded.new_operator(fn, mutate_vars=[v])
    for _ in range(10):
        threaded.push(op)
    threaded.delete_operator(op)
    assert not seen
    gate.open()
    threaded.wait_for_all()
    assert len(seen) == 10


def test_reusable_operators_once_deleted_are_refused_at_the_call(engine):
    op = engine.new_operator(lambda rc: None)
    engine.push(op)
    engine.delete_operator(op)
    for _ in range(2):
        with pytest.raises(EngineError, match="delete"):
            engine.push(op)
    engine.wait_for_all()


def test_reusable_operators_of_another_engine_are_refused(engine, make_engine):
    op = make_engine(workers=1).new_operator(lambda rc: None)
    with pytest.raises(EngineError, match="engine"):
        engine.push(op)


def test_reusable_operators_on_a_deleted_variable_are_refused(engine):
    v = engine.new_variable()
    op = engine.new_operator(lambda rc: None, mutate_vars=[v])
    engine.push(op)
    engine.delete_variable(v)
    with pytest.raises(EngineError, match="delete"):
        engine.push(op)
    engine.wait_for_all()


def test_reusable_operators_may_be_dropped_while_runs_are_pending(threaded, gate):
    seen = []
    v = threaded.new_variable()
    threaded.push(gate.wait, mutate_vars=[v])
    op = threaded.new_operator(lambda rc: seen.append(1), mutate_vars=[v])
    for _ in range(10):
        threaded.push(op)
    del op
    gc.collect()
    gate.open()
    threaded.wait_for_all()
    assert len(seen) == 10


def test_reusable_operators_release_their_function(engine):
    class Function:
        def __call__(self, rc):
            pass

    fn = Function()
    op = engine.new_operator(fn)
    alive = weakref.ref(fn)
    del fn
    engine.push(op)
    engine.wait_for_all()
    assert alive() is not None
    engine.delete_operator(op)
    del op
    assert eventually(lambda: alive() is None, LIMIT_S)


def test_reusable_operators_push_themselves(engine):
    """An operator that pushes itself from inside its own function."""
    v, left, done = engine.new_variable(), [100], Signal()

    def fn(rc):
        left[0] -= 1
        if left[0]:
            engine.push(op)
        else:
            done.set()

    op = engine.new_operator(fn, mutate_vars=[v])
    engine.push(op)
    done.wait_or_fail()
    engine.wait_for_all()
    assert v.version == 100


def test_reusable_operators_in_a_bulk(engine):
    v, seen = engine.new_variable(), []
    op = engine.new_operator(lambda rc: seen.append("op"), mutate_vars=[v])
    with engine.bulk(8):
        for _ in range(10):
            engine.push(op)
            engine.push(lambda rc: seen.append("fn"), mutate_vars=[v])
    engine.wait_for_all()
    assert seen == ["op", "fn"] * 10
    assert v.version == 20
