"""What a small program is, and how one is written down."""

import dataclasses
from collections.abc import Callable
from typing import Any

import weft as wf

PROGRAMS = {}


@dataclasses.dataclass
class Case:
    """One program, with arrays of its own if it has any.

    arguments: a size -> positional arguments, or a Call. kept: what it may read and write besides. executions: of its
    Python code, before calls with arguments of the first size find a program; executions_for_others: of other ones.
    pure: nothing but functions of weft on array arguments.
    """

    run: Callable[..., Any]
    arguments: Callable[[int], Any]
    kept: Callable[[], list[Any]] = list
    executions: int = 1
    executions_for_others: int = 1
    pure: bool = False

    @property
    def code(self):
        """Of the function that tells how often it ran."""
        function = self.run
        if not hasattr(function, "__code__"):  # a bound method has its function's
            function = type(function).forward
        return function.__code__


@dataclasses.dataclass
class Call:
    """Arguments by position and by name."""

    args: tuple
    kwargs: dict


def called(arguments):
    return arguments if isinstance(arguments, Call) else Call(arguments, {})


def keep(build, name):
    assert name not in PROGRAMS, name
    PROGRAMS[name] = build


def program(arguments, **options):
    """The function decorated is a program."""

    def decorate(function):
        keep(lambda: Case(function, arguments, **options), function.__name__)
        return function

    return decorate


def expression(arguments):
    """The function decorated is a program of functions of weft only."""
    return program(arguments, pure=True)


def with_state(build):
    """The function decorated makes a Case, with new arrays each time."""
    keep(build, build.__name__)
    return build


# Arguments.


def normal(*shape, dtype="float32"):
    return wf.random.normal(0, 1, shape, dtype=dtype)


def positive(*shape):
    return wf.random.uniform(0.5, 2, shape)


def labels(n, classes):
    return wf.random.randint(0, classes, (n,))


def vector(n):
    return (normal(n),)


def matrix(n):
    return (normal(n, 4),)


def counted(n):
    return (wf.arange(n).astype("float32"),)
