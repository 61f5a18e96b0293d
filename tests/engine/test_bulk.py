"""bulk: many small operations pushed as one, with the poison, versions and results of separate ones."""

import threading

import pytest

from weft.base.errors import EngineError

from .support import LIMIT_S, SOON_S, Signal, line_here


def nothing(rc):
    pass


def test_bulk_results_and_versions_are_those_of_separate_pushes(engine):
    variables = [engine.new_variable() for _ in range(5)]
    cells = [0] * 5

    def add(i):
        def run(rc):
            cells[i] += cells[i - 1] + 1

        return run

    with engine.bulk(16):
        for n in range(100):
            i = n % 5
            engine.push(add(i), const_vars=[variables[i - 1]], mutate_vars=[variables[i]])
    engine.wait_for_all()
    expected = [0] * 5
    for n in range(100):
        expected[n % 5] += expected[n % 5 - 1] + 1
    assert cells == expected
    assert [v.version for v in variables] == [20] * 5


@pytest.mark.parametrize("size", [1, 2, 16, 1000])
def test_bulk_keeps_push_order_with_what_comes_before_and_after(engine, size):
    v, seen = engine.new_variable(), []
    for i in range(50):
        engine.push(lambda rc, i=i: seen.append(i), mutate_vars=[v])
    with engine.bulk(size):
        for i in range(50, 150):
            engine.push(lambda rc, i=i: seen.append(i), mutate_vars=[v])
    for i in range(150, 200):
        engine.push(lambda rc, i=i: seen.append(i), mutate_vars=[v])
    engine.wait_for_var(v)
    assert seen == list(range(200))
    assert v.version == 200


def test_bulk_pushes_many_as_one(make_engine):
    """Nothing runs before the bulk is full; then all of it, on one thread."""
    engine = make_engine(workers=4)
    threads, started = [], Signal()

    def fn(rc):
        started.set()
        threads.append(threading.get_ident())

    with engine.bulk(16):
        for _ in range(15):
            engine.push(fn)
        assert not started.wait(SOON_S)
        engine.push(fn)
        started.wait_or_fail()
        engine.wait_for_all()
        assert len(threads) == 16
        assert len(set(threads)) == 1


def test_bulk_is_pushed_at_its_end(threaded):
    done = Signal()
    with threaded.bulk(1000):
        threaded.push(done)
    done.wait_or_fail()


def test_bulk_is_pushed_at_its_end_even_if_the_block_raises(engine):
    v = engine.new_variable()

    def block():
        with engine.bulk(1000):
            engine.push(nothing, mutate_vars=[v])
            raise KeyError

    with pytest.raises(KeyError):
        block()
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 1


@pytest.mark.parametrize("wait", ["wait_for_var", "writes_only", "wait_for_all", "stop"])
def test_bulk_is_pushed_before_a_wait(engine, wait):
    v, w = engine.new_variable(), engine.new_variable()
    with engine.bulk(1000):
        for _ in range(3):
            engine.push(nothing, mutate_vars=[v])
            engine.push(nothing, const_vars=[v], mutate_vars=[w])
        if wait == "wait_for_var":
            engine.wait_for_var(w, timeout_s=LIMIT_S)
        elif wait == "writes_only":
            engine.wait_for_var(w, writes_only=True, timeout_s=LIMIT_S)
        elif wait == "wait_for_all":
            engine.wait_for_all(timeout_s=LIMIT_S)
        else:
            engine.stop(timeout_s=LIMIT_S)
        assert (v.version, w.version) == (3, 3)


def test_bulk_is_pushed_before_an_asynchronous_function(threaded):
    v, seen, done = threaded.new_variable(), [], Signal()

    def fn(rc, on_complete):
        seen.append("async")
        on_complete()
        done.set()

    with threaded.bulk(1000):
        threaded.push(lambda rc: seen.append("bulk"), mutate_vars=[v])
        threaded.push_async(fn, mutate_vars=[v])
        done.wait_or_fail()
        assert seen == ["bulk", "async"]


@pytest.mark.parametrize("change", [{"queue": "io"}, {"device": "cpu:1"}, {"priority": 3}], ids=str)
def test_bulk_is_pushed_when_the_place_changes(engine, change):
    v, seen = engine.new_variable(), []
    with engine.bulk(1000):
        for i in range(20):
            options = change if i % 4 == 3 else {}
            engine.push(
                lambda rc, i=i: seen.append((i, rc.queue, rc.device.index)), mutate_vars=[v], **options
            )
    engine.wait_for_var(v)
    queue, device = change.get("queue", "compute"), 1 if "device" in change else 0
    assert seen == [(i, *((queue, device) if i % 4 == 3 else ("compute", 0))) for i in range(20)]


def test_bulk_belongs_to_its_thread(threaded):
    """Another thread's pushes are not collected meanwhile."""
    done = Signal()
    with threaded.bulk(1000):
        thread = threading.Thread(target=threaded.push, args=(done,))
        thread.start()
        thread.join(LIMIT_S)
        done.wait_or_fail()


def test_bulk_belongs_to_its_engine(make_engine):
    one, other, done = make_engine(), make_engine(), Signal()
    with one.bulk(1000):
        other.push(done)
        done.wait_or_fail()


def test_bulk_inside_a_function(engine):
    v, seen = engine.new_variable(), []

    def fn(rc):
        with engine.bulk(8):
            for i in range(20):
                engine.push(lambda rc, i=i: seen.append(i), mutate_vars=[v])

    engine.push(fn, on_done=(pushed := Signal()))
    pushed.wait_or_fail()
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert seen == list(range(20))


def test_bulk_in_a_bulk(engine):
    v, seen = engine.new_variable(), []
    with engine.bulk(100):
        engine.push(lambda rc: seen.append(0), mutate_vars=[v])
        with engine.bulk(2):
            for i in range(1, 6):
                engine.push(lambda rc, i=i: seen.append(i), mutate_vars=[v])
        engine.push(lambda rc: seen.append(6), mutate_vars=[v])
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert seen == list(range(7))


def test_bulk_on_done_of_each_function(engine):
    seen, done = [], Signal()
    v = engine.new_variable()
    with engine.bulk(16):
        for i in range(10):
            engine.push(
                nothing,
                mutate_vars=[v],
                on_done=lambda error, i=i: (seen.append((i, error)), i == 9 and done.set()),
            )
    done.wait_or_fail()
    assert seen == [(i, None) for i in range(10)]


def test_bulk_a_failure_poisons_only_what_it_would_have_written(engine):
    a, b, c, d = (engine.new_variable() for _ in range(4))
    error = ValueError("planned")

    def fail(rc):
        raise error

    with engine.bulk(16):
        engine.push(nothing, mutate_vars=[a])
        expected = line_here(+1)
        engine.push(fail, mutate_vars=[b], name="second")
        engine.push(nothing, const_vars=[b], mutate_vars=[c])
        engine.push(nothing, const_vars=[a], mutate_vars=[d])
        engine.push(nothing, mutate_vars=[b])
    engine.wait_for_var(a)
    engine.wait_for_var(d)
    for v in (b, c):
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(v)
        assert caught.value.__cause__ is error
        assert caught.value.operation == "second"
        assert caught.value.where.endswith(expected)
    assert [v.version for v in (a, b, c, d)] == [1, 1, 0, 1]
    with pytest.raises(EngineError):
        engine.wait_for_all()
    engine.wait_for_all()


def test_bulk_overwriting_inside_heals(engine):
    v, w = engine.new_variable(), engine.new_variable()
    with engine.bulk(16):
        engine.push(lambda rc: 1 / 0, mutate_vars=[v])
        engine.push(nothing, mutate_vars=[v])
        engine.push(nothing, overwrite_vars=[v])
        engine.push(nothing, const_vars=[v], mutate_vars=[w])
    engine.wait_for_var(v)
    engine.wait_for_var(w)
    assert (v.version, w.version) == (2, 1)


def test_bulk_poison_comes_in_and_goes_out(engine):
    """From an operation before the bulk, through it, to one after it."""
    a, b, c = (engine.new_variable() for _ in range(3))
    error = ValueError("planned")

    def fail(rc):
        raise error

    engine.push(fail, mutate_vars=[a])
    with engine.bulk(16):
        engine.push(nothing, const_vars=[a], mutate_vars=[b])
        engine.push(nothing, mutate_vars=[a])
    engine.push(nothing, const_vars=[b], mutate_vars=[c])
    for v in (a, b, c):
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(v)
        assert caught.value.__cause__ is error
    assert [v.version for v in (a, b, c)] == [1, 0, 0]


def test_bulk_clear_error_and_deletion_keep_their_place(engine):
    v, w, deleted = engine.new_variable(), engine.new_variable(), []
    with engine.bulk(16):
        engine.push(lambda rc: 1 / 0, mutate_vars=[v])
        engine.clear_error(v)
        engine.push(nothing, mutate_vars=[v])
        engine.push(lambda rc: deleted.append(w.version), mutate_vars=[w])
        engine.delete_variable(w, lambda: deleted.append("deleted"))
        engine.push(nothing, mutate_vars=[v])
    engine.wait_for_all()
    assert v.version == 3
    assert deleted == [0, "deleted"]


def test_bulk_functions_push_more(engine):
    v, seen = engine.new_variable(), []
    with engine.bulk(4):
        for i in range(8):
            engine.push(lambda rc, i=i: engine.push(lambda rc: seen.append(i), mutate_vars=[v]))
    engine.wait_for_all()
    engine.wait_for_all()
    assert sorted(seen) == list(range(8))


@pytest.mark.parametrize("size", [0, -1, 1.5, "16", None])
def test_bulk_refuses_a_size_that_is_none(engine, size):
    with pytest.raises((ValueError, TypeError), match="size"), engine.bulk(size):
        pytest.fail("entered")
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 1
