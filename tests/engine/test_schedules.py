"""Exploration: from a seed the engine picks among the legal orders and worker threads; a failing seed
replays.
"""

import itertools
import threading
from dataclasses import replace

import pytest

from weft.base.errors import EngineError

from .programs import EVERYTHING, PLAIN, QUEUES, Oracle, random_program
from .runner import Completer, Runner, run_and_check
from .support import LIMIT_S, Signal

pytestmark = pytest.mark.daily(2)

NO_ASYNC = replace(EVERYTHING, asynchronous=0.0)


def explored(make_engine, seed, program, workers=3):
    """Runs a program under a seed, checks it, returns the order in which functions started and on which
    workers.
    """
    engine = make_engine(workers=workers, schedule_seed=seed)
    runner = run_and_check(engine, program)
    engine.stop()
    return runner.log


@pytest.mark.parametrize("features", [PLAIN, NO_ASYNC, EVERYTHING], ids=["plain", "no async", "everything"])
def test_schedules_200_seeds_equal_the_oracle(make_engine, features):
    program = random_program(11, 60, 12, features)
    for seed in range(200):
        explored(make_engine, seed, program)


@pytest.mark.parametrize("seed", range(12))
def test_schedules_of_larger_programs_equal_the_oracle(make_engine, seed):
    explored(make_engine, seed, random_program(seed, 1000, features=EVERYTHING))


@pytest.mark.full
@pytest.mark.timeout(600)
def test_schedules_many_programs_and_seeds_equal_the_oracle(make_engine):
    for seed in range(3000):
        explored(make_engine, seed, random_program(seed, 60, 8, EVERYTHING), 1 + seed % 4)


@pytest.mark.parametrize(
    "features", [PLAIN, NO_ASYNC, replace(NO_ASYNC, bulk=0.0, queues=QUEUES)], ids=["plain", "all", "queues"]
)
def test_schedules_the_same_seed_gives_the_same_order(make_engine, features):
    program = random_program(12, 150, 20, features)
    for seed in range(20):
        first = explored(make_engine, seed, program)
        assert len(first) > 50
        assert explored(make_engine, seed, program) == first
        assert explored(make_engine, seed, program) == first


def test_schedules_another_seed_gives_another_order(make_engine):
    program = random_program(13, 100, 300)
    logs = [tuple(explored(make_engine, seed, program)) for seed in range(30)]
    assert len(set(logs)) == 30
    assert len({tuple(number for number, _ in log) for log in logs}) == 30
    assert {worker for log in logs for _, worker in log} == {0, 1, 2}


def test_schedules_reach_every_legal_order(make_engine):
    """Four functions, one of which needs two of the others: 4! / 3 = 8 legal orders, all of them found, and
    no other.
    """
    orders = itertools.permutations(["a", "b", "ab", "free"])
    legal = {order for order in orders if order.index("ab") > max(order.index("a"), order.index("b"))}
    found = set()
    for seed in range(3000):
        if seed > 300 and found == legal:
            break
        engine = make_engine(workers=2, schedule_seed=seed)
        a, b, order = engine.new_variable(), engine.new_variable(), []
        engine.push(lambda rc, order=order: order.append("a"), mutate_vars=[a])
        engine.push(lambda rc, order=order: order.append("b"), mutate_vars=[b])
        engine.push(lambda rc, order=order: order.append("ab"), const_vars=[a, b])
        engine.push(lambda rc, order=order: order.append("free"))
        engine.stop()
        found.add(tuple(order))
    assert found == legal


def test_schedules_decide_at_each_push_how_far_the_engine_has_come(make_engine):
    """Under some seeds a function has run before the next one is pushed, under others nothing has run yet."""
    seen = set()
    for seed in range(100):
        engine = make_engine(workers=1, schedule_seed=seed)
        ran = []
        engine.push(ran.append)
        seen.add(len(ran))
        engine.push(ran.append)
        seen.add(("second", len(ran)))
        engine.wait_for_all()
        assert len(ran) == 2
        engine.stop()
    assert seen == {0, 1, ("second", 0), ("second", 1), ("second", 2)}


def test_schedules_run_one_function_at_a_time_on_worker_threads(make_engine):
    inside, threads = [], set()
    engine = make_engine(workers=3, schedule_seed=1)

    def fn(rc):
        inside.append(1)
        assert len(inside) == 1
        threads.add(threading.get_ident())
        threading.Event().wait(0.0005)
        inside.pop()

    for i in range(100):
        engine.push(fn, f"cpu:{i % 2}", queue=QUEUES[i % len(QUEUES)])
    engine.wait_for_all()
    assert threading.get_ident() not in threads
    assert len(threads) == 3


def buggy_sum(engine):
    """Adds two numbers, having forgotten to declare that it reads the second: right in the order of the
    pushes.
    """
    cells, total = {}, []
    a, b, t = (engine.new_variable() for _ in range(3))
    engine.push(lambda rc: cells.update(a=1), mutate_vars=[a])
    engine.push(lambda rc: cells.update(b=2), mutate_vars=[b])
    engine.push(lambda rc: total.append(cells["a"] + cells.get("b", 0)), const_vars=[a], mutate_vars=[t])
    engine.wait_for_all()
    engine.stop()
    return total[0]


def test_schedules_find_an_undeclared_dependency_and_replay_it(make_engine):
    outcomes = {seed: buggy_sum(make_engine(workers=2, schedule_seed=seed)) for seed in range(50)}
    assert set(outcomes.values()) == {1, 3}
    for seed, outcome in outcomes.items():
        for _ in range(2):
            assert buggy_sum(make_engine(workers=2, schedule_seed=seed)) == outcome


@pytest.mark.parametrize("seed", range(10))
def test_schedules_naive_threaded_and_explored_engines_agree(make_engine, seed):
    program = random_program(seed, 300, 30, EVERYTHING)
    results = []
    for options in ({"kind": "naive"}, {"workers": 3}, {"workers": 2, "schedule_seed": seed}):
        runner = run_and_check(make_engine(**options), program)
        results.append((runner.values, runner.oracle.versions, runner.oracle.poison, runner.deleted))
    assert results[0] == results[1] == results[2]
    assert results[0][0] == Oracle(program).run(program).values


@pytest.mark.parametrize("seed", range(5))
def test_schedules_with_asynchronous_functions_and_several_threads(make_engine, in_threads, seed):
    """Then the order does not repeat, but the result is right all the same."""
    program = random_program(seed, 300, 30, EVERYTHING)
    engine = make_engine(workers=2, schedule_seed=seed)
    with Completer(seed) as completer:
        runner = Runner(engine, program, completer)
        in_threads(runner.units_in_turn(), range(3))
        runner.check(runner.raised_by_all())


def test_schedules_functions_may_push_and_must_not_wait(make_engine):
    for seed in range(20):
        engine = make_engine(workers=2, schedule_seed=seed)
        v, other, seen = engine.new_variable(), engine.new_variable(), []

        def fn(rc, engine=engine, v=v, other=other, seen=seen):
            engine.push(lambda rc: seen.append("inner"), mutate_vars=[v])
            with pytest.raises(EngineError):
                engine.wait_for_var(other)
            engine.wait_for_var(v)
            seen.append("outer")

        engine.push(fn, mutate_vars=[v])
        engine.wait_for_all(timeout_s=LIMIT_S)
        engine.wait_for_all(timeout_s=LIMIT_S)
        assert seen == ["outer", "inner"]


def test_schedules_an_engine_that_is_explored_stops_and_starts(make_engine):
    engine = make_engine(workers=2, schedule_seed=5)
    v = engine.new_variable()
    for i in range(5):
        for _ in range(10):
            engine.push(lambda rc: None, mutate_vars=[v])
        engine.stop(timeout_s=LIMIT_S)
        assert v.version == 10 * (i + 1)
        engine.start()


def test_schedules_waits_have_a_time_limit(make_engine):
    engine = make_engine(workers=2, schedule_seed=5)
    v, callbacks = engine.new_variable(), []
    engine.push_async(lambda rc, on_complete: callbacks.append(on_complete), mutate_vars=[v])
    with pytest.raises(TimeoutError):
        engine.wait_for_var(v, timeout_s=0.05)
    callbacks.pop()()
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 1


def test_schedules_completion_comes_from_another_thread_during_a_wait(make_engine):
    for seed in range(10):
        engine = make_engine(workers=2, schedule_seed=seed)
        v, after = engine.new_variable(), Signal()
        engine.push_async(lambda rc, on_complete: threading.Timer(0.01, on_complete).start(), mutate_vars=[v])
        engine.push(after, const_vars=[v])
        engine.wait_for_all(timeout_s=LIMIT_S)
        assert after.is_set()


@pytest.mark.parametrize("seed", [0, 1, -1, 1 << 63, (1 << 64) - 1])
def test_schedules_any_integer_is_a_seed(make_engine, seed):
    program = random_program(14, 60, 10)
    assert explored(make_engine, seed, program) == explored(make_engine, seed, program)


ORDER = """
    from weft.engine import default_engine
    engine, order = default_engine(), []
    for i in range(20):
        engine.push(lambda rc, i=i: order.append((i, rc.worker)))
    engine.wait_for_all()
    print(order)
"""


def test_schedules_of_the_default_engine_follow_the_environment(script):
    """The seed replays in another process."""
    environment = {"WEFT_NUM_THREADS": "3"}
    orders = [
        script(ORDER, env={**environment, "WEFT_SCHEDULE_SEED": seed}).stdout for seed in ("1", "1", "2", "2")
    ]
    assert orders[0] == orders[1] != orders[2] == orders[3]
