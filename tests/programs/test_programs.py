"""Every small program comes to the same eagerly, traced, lazily, and as a symbol where it can be one."""

import functools

import pytest

import weft as wf

from .programs import PROGRAMS
from .running import OTHER_SIZE, SIZE, Run, call_both

pytestmark = pytest.mark.daily(2)


def test_there_are_a_hundred():
    assert len(PROGRAMS) >= 100


def lazily(function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        with wf.lazy():
            return function(*args, **kwargs)

    return run


TRACES = {"trace": wf.trace(strict=True), "lazy trace": wf.trace(strict=True, lazy=True)}


@pytest.mark.parametrize("way", TRACES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_traced(name, way):
    """Values, side effects, sharing and random state; once there is a program, no Python of the function runs."""
    run, eager = Run(name, TRACES[way]), Run(name, lambda function: function)
    case = run.case
    for size, new in ((SIZE, case.executions), (OTHER_SIZE, case.executions_for_others), (SIZE, 0)):
        executions = []
        for _ in range(new + 2):
            call_both(run, eager, size)
            executions.append(run.executions)
        assert executions == [1] * new + [0, 0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_lazy(name):
    run, eager = Run(name, lazily), Run(name, lambda function: function)
    for size in (SIZE, SIZE, OTHER_SIZE):
        call_both(run, eager, size)
