"""Beyond: pushing, waiting, creating and deleting are safe from any thread."""

import threading

import pytest

from weft.base.errors import EngineError

from .support import LIMIT_S, Signal


def test_beyond_pushing_from_many_threads_to_one_variable(engine, switch_often, in_threads):
    v, cell = engine.new_variable(), [0]

    def add(rc):
        before = cell[0]
        for _ in range(5):
            pass
        cell[0] = before + 1

    in_threads(lambda i: [engine.push(add, mutate_vars=[v]) for _ in range(500)], range(8))
    engine.wait_for_all()
    assert cell == [4000]
    assert v.version == 4000


def test_beyond_pushing_from_many_threads_keeps_the_order_of_each(engine, switch_often, in_threads):
    v, seen = engine.new_variable(), []
    in_threads(
        lambda t: [engine.push(lambda rc, i=i: seen.append((t, i)), mutate_vars=[v]) for i in range(300)],
        range(6),
    )
    engine.wait_for_var(v)
    assert len(seen) == 1800
    for t in range(6):
        assert [i for thread, i in seen if thread == t] == list(range(300))


def test_beyond_everything_from_many_threads(engine, switch_often, in_threads):
    """Each thread uses variables of its own, common ones, bulks, operators, waits, failures, deletions."""
    common, total = engine.new_variable(), [0]
    deleted = []

    def count(rc):
        total[0] += 1

    def work(t):
        own = engine.new_variable()
        op = engine.new_operator(count, mutate_vars=[common])
        for i in range(40):
            engine.push(count, const_vars=[own], mutate_vars=[common])
            engine.push(op)
            with engine.bulk(4):
                for _ in range(3):
                    engine.push(count, mutate_vars=[common, own])
            engine.push_async(lambda rc, on_complete: (count(rc), on_complete()), mutate_vars=[common])
            engine.push(lambda rc: 1 / 0, mutate_vars=[own])
            engine.clear_error(own)
            if i % 10 == 0:
                engine.wait_for_var(own)
                engine.wait_for_var(common, writes_only=True)
                engine.stats()
        engine.delete_operator(op)
        engine.delete_variable(own, lambda: deleted.append(t))

    in_threads(work, range(6))
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert total == [6 * 40 * 6]
    assert common.version == 6 * 40 * 6
    assert sorted(deleted) == list(range(6))


def test_beyond_creating_and_dropping_variables_from_many_threads(engine, switch_often, in_threads):
    def work(_):
        for _ in range(300):
            v = engine.new_variable()
            engine.push(lambda rc: None, mutate_vars=[v])
            del v

    in_threads(work, range(8))
    engine.wait_for_all(timeout_s=LIMIT_S)


def test_beyond_deleting_one_variable_from_many_threads_succeeds_once(engine, in_threads):
    for _ in range(50):
        v, outcomes = engine.new_variable(), []

        def work(_, v=v, outcomes=outcomes):
            try:
                engine.delete_variable(v, lambda: outcomes.append("deleted"))
            except EngineError:
                outcomes.append("refused")

        in_threads(work, range(4))
        engine.wait_for_all(timeout_s=LIMIT_S)
        assert sorted(outcomes) == ["deleted"] + ["refused"] * 3


def test_beyond_waiting_for_all_from_many_threads_reports_each_cause_once(engine, in_threads):
    reported = []

    def work(i):
        def fail(rc):
            raise ValueError(i)

        engine.push(fail)
        try:
            engine.wait_for_all(timeout_s=LIMIT_S)
        except EngineError as error:
            reported.extend(error.exceptions if isinstance(error, ExceptionGroup) else [error])

    in_threads(work, range(8))
    try:
        engine.wait_for_all(timeout_s=LIMIT_S)
    except EngineError as error:
        reported.extend(error.exceptions if isinstance(error, ExceptionGroup) else [error])
    assert sorted(e.__cause__.args[0] for e in reported) == list(range(8))


def test_beyond_completing_from_many_threads(engine, switch_often, in_threads):
    v, waiting, lock = engine.new_variable(), [], threading.Lock()

    def fn(rc, on_complete):
        with lock:
            waiting.append(on_complete)

    for _ in range(400):
        engine.push_async(fn, const_vars=[v])
    while len(waiting) < 400:
        threading.Event().wait(0.001)
    engine.push(lambda rc: None, mutate_vars=[v])

    def work(_):
        while True:
            with lock:
                if not waiting:
                    return
                on_complete = waiting.pop()
            on_complete()

    in_threads(work, range(6))
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert v.version == 1


def test_beyond_stopping_while_others_push(make_engine, switch_often, in_threads):
    """What was accepted is finished, the rest is refused."""
    engine = make_engine(workers=2)
    accepted, ran, refused = [], [], Signal()

    def push_for_ever():
        while True:
            engine.push(lambda rc: ran.append(1))
            accepted.append(1)

    def work(i):
        if i == 0:
            while len(accepted) < 200:
                threading.Event().wait(0.0005)
            engine.stop(timeout_s=LIMIT_S)
            return
        with pytest.raises(EngineError, match="stop"):
            push_for_ever()
        refused.set()

    in_threads(work, range(4))
    assert refused.is_set()
    assert len(ran) == len(accepted)


def test_beyond_starting_and_stopping_from_many_threads(make_engine, in_threads):
    engine = make_engine(workers=2)

    def work(i):
        for _ in range(20):
            engine.stop(timeout_s=LIMIT_S) if i % 2 else engine.start()

    in_threads(work, range(4))
    engine.start()
    v = engine.new_variable()
    engine.push(lambda rc: None, mutate_vars=[v])
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 1
