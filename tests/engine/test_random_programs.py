"""Random programs equal a serial run exactly: values, versions, poison and its causes, deletions."""

from dataclasses import replace

import pytest

from .programs import EVERYTHING, PLAIN, QUEUES, random_program
from .runner import Completer, Runner, reported_by, run_and_check

pytestmark = [pytest.mark.daily(3), pytest.mark.usefixtures("switch_often")]

SIZE = 10_000
SEEDS = (1, 2, 3)

VARIANTS = {
    "bulk": replace(PLAIN, bulk=0.2),
    "async": replace(PLAIN, asynchronous=0.3),
    "errors": replace(PLAIN, errors=0.02, overwrite=0.3, clear=0.02),
    "deletions": replace(PLAIN, delete=0.1, asynchronous=0.05),
    "operators": replace(PLAIN, operators=0.5),
    "queues": replace(PLAIN, queues=QUEUES, devices=2, priorities=5),
    "waits": replace(PLAIN, waits=0.1, errors=0.05, overwrite=0.3),
    "bulk errors": replace(PLAIN, bulk=0.3, errors=0.03, overwrite=0.4, clear=0.03, operators=0.2),
    "async errors": replace(PLAIN, asynchronous=0.5, errors=0.05, overwrite=0.5, clear=0.02, waits=0.01),
    "everything": EVERYTHING,
}


@pytest.fixture(scope="module")
def programs():
    """The large programs, made once."""
    made = {}

    def get(seed, size, features):
        key = (seed, size, features)
        if key not in made:
            made[key] = random_program(seed, size, features=features)
        return made[key]

    return get


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "kind",
    [
        "naive",
        "threaded-1",
        "threaded-2",
        "threaded-4",
        *(pytest.param(f"threaded-{n}", marks=pytest.mark.full) for n in (3, 5, 6, 7)),
        "threaded-8",
    ],
)
@pytest.mark.parametrize("features", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_random_programs_equal_a_serial_run(make_engine, programs, features, kind, seed):
    name, _, workers = kind.partition("-")
    engine = make_engine(kind=name, workers=int(workers or 1))
    run_and_check(engine, programs(seed, SIZE, features), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_random_programs_with(engine, variant, seed):
    run_and_check(engine, random_program(seed, 1000, features=VARIANTS[variant]), seed)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS)
def test_random_programs_with_many_seeds(engine, variant):
    for seed in range(100, 200):
        run_and_check(engine, random_program(seed, 1000, features=VARIANTS[variant]), seed)


@pytest.mark.parametrize("variables", [3, 6, 12])
@pytest.mark.parametrize("variant", VARIANTS)
def test_random_programs_crowded_on_few_variables(engine, variant, variables):
    run_and_check(engine, random_program(variables, 1000, variables, VARIANTS[variant]))


@pytest.mark.parametrize("variant", ["errors", "bulk errors", "everything"])
def test_random_programs_many_small_ones(engine, variant):
    """Small programs reach the corners that large ones pass by, where a wrong cause is soon overwritten."""
    for seed in range(60):
        run_and_check(engine, random_program(seed, 40, 8, VARIANTS[variant]), seed)


@pytest.mark.parametrize("variant", ["bulk", "async errors", "everything"])
def test_random_programs_held_back(make_engine, variant):
    """The pushing thread runs into back-pressure all the time."""
    engine = make_engine(workers=2, max_pending=7)
    run_and_check(engine, random_program(5, 2000, features=VARIANTS[variant]))


@pytest.mark.parametrize("variant", ["errors", "operators", "everything"])
def test_random_programs_checked(make_engine, variant):
    """The checking mode changes nothing for a program that declares what it uses."""
    run_and_check(make_engine(workers=2, check=True), random_program(6, 1000, features=VARIANTS[variant]))


@pytest.mark.parametrize("variant", ["errors", "everything"])
def test_random_programs_watched(make_engine, variant):
    class Observer:
        def on_push(self, record):
            pass

        on_start = on_end = on_push

    engine = make_engine(workers=2)
    engine.add_observer(Observer())
    run_and_check(engine, random_program(7, 1000, features=VARIANTS[variant]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", ["errors", "bulk errors", "everything"])
def test_random_programs_pushed_by_threads_in_turn(engine, in_threads, variant, seed):
    program = random_program(seed, 3000, features=VARIANTS[variant])
    with Completer(seed) as completer:
        runner = Runner(engine, program, completer)
        in_threads(runner.units_in_turn(), range(4))
        runner.check(runner.raised_by_all())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", ["errors", "bulk errors", "everything"])
def test_random_programs_pushed_by_threads_at_once(engine, in_threads, variant, seed):
    """Each thread pushes a program over variables of its own; all read some common ones, which are written
    between.
    """
    features = replace(VARIANTS[variant], waits=0.0)
    shared = [engine.new_variable() for _ in range(5)]
    with Completer(seed) as completer:
        runners = [
            Runner(engine, random_program(seed * 100 + i, 1000, 40, features), completer, shared)
            for i in range(4)
        ]

        def work(runner):
            for i, unit in enumerate(runner.program.units):
                runner.unit(unit)
                if i % 50 == 0:
                    engine.push(lambda rc: None, mutate_vars=[shared[i % 5]])

        in_threads(work, runners)
        causes = reported_by(engine)
        for runner in runners:
            runner.check(runner.names(causes))
    expected = [
        sum(i % 50 == 0 and i % 5 == k for r in runners for i in range(len(r.program.units)))
        for k in range(5)
    ]
    assert [v.version for v in shared] == expected
