"""Native code is interrupted by Python at every place where it may be: the garbage collector as a scheduler.

Up to Python 3.11 a collection begins where an object is allocated, so inside of native code, and calls
`gc.callbacks`: arbitrary Python, as finalizers are. With a threshold of one allocation, collections are all the
places where native code makes an object of Python's. At the n-th of them a program is interfered with, for every
n: the pair of n and the interference is a whole schedule, which repeats. With the sanitizers (`./dev test --ci
address threads`) borrowed references and views of containers that change are found, too.
"""

import gc
import sys
import threading

import numpy as np
import pytest
from tests.on_device import on_the_device

import weft as wf
import weft.functional as F

pytestmark = [
    pytest.mark.daily(4),
    pytest.mark.skipif(
        sys.version_info >= (3, 12), reason="from 3.12 on collections wait until Python code runs"
    ),
]

ACCEPTED = (IndexError, KeyError, RuntimeError, TypeError, ValueError)  # where a container changes


@pytest.fixture(autouse=True)
def few_objects():
    """A collection before each place is quick: what other tests have left is not walked through."""
    gc.collect()
    gc.freeze()


class At:
    """Calls `interfere` at the n-th collection within the block; counts them all."""

    def __init__(self, n, interfere=None):
        self.n, self.interfere, self.count = n, interfere, 0

    def __call__(self, phase, info):
        if phase != "start" or threading.get_ident() != self.thread:
            return
        self.count += 1
        if self.count - 1 == self.n:
            self.interfere()

    def __enter__(self):
        self.thread = threading.get_ident()
        self.before = gc.get_threshold()
        gc.collect()
        self.callbacks, gc.callbacks[:] = gc.callbacks[:], [self]  # without those of testing tools
        gc.set_threshold(1, 1 << 30, 1 << 30)
        return self

    def __exit__(self, *error):
        gc.set_threshold(*self.before)
        gc.callbacks[:] = self.callbacks


class Program:
    """What a call computes, a number, from containers that an interference may change."""

    def __init__(self):
        self.x, self.y = wf.tensor([1.0, 2.0, 3.0]), wf.tensor([4.0, 5.0, 6.0])
        self.refill()

    def refill(self):
        self.items = [self.x, self.y, self.x]
        self.named = {"x": self.x, "y": [self.y]}
        self.nested = [[1.0, 2.0], [3.0, 4.0]]
        self.positions = [0, 2]

    def clear(self):
        for inner in (self.named.get("y", []), *self.nested):
            inner.clear()
        for container in (self.items, self.named, self.nested, self.positions):
            container.clear()


def traced(function):
    """The method as a traced function of the program's, so that each program has its own."""

    def run(program):
        if "trace" not in vars(program):
            program.trace = wf.trace(lambda *args, **named: function(*args, **named))
        return program.trace

    return run


TRACED_LIST = traced(lambda items: sum(items[1:], items[0]).sum())
TRACED_NAMES = traced(lambda named, *, scale=1.0: (named["x"] * named["y"][0] * scale).sum())
TRACED_BRANCH = traced(lambda x, t: (x + 1 if t < 2 else x + 3).sum())


def gradient(program):
    x = program.x.copy()
    with wf.GradManager().attach([x]) as gm:
        gm.backward((x * program.y * x).sum())
    return x.grad.sum()


class Twice(wf.Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * 2


def own_gradient(program):
    x = program.x.copy()
    with wf.GradManager().attach([x]) as gm:
        gm.backward(Twice()(x).sum())
    return x.grad.sum()


def lazily(program):
    with wf.lazy():
        return (program.x * 2 + program.y).sum()


def assigned(program):
    z = program.x.copy()
    z[program.positions] = program.y[program.positions]
    return z.sum()


PROGRAMS = {
    "add": (lambda p: (p.x + p.y).sum(), 21.0),
    "concat": (lambda p: F.concat(p.items).sum(), 27.0),
    "stack": (lambda p: F.stack(p.items, axis=1).sum(), 27.0),
    "nested": (lambda p: wf.tensor(p.nested).sum(), 10.0),
    "numpy": (lambda p: wf.asarray(np.asarray(p.x) + p.y.numpy()).sum(), 21.0),
    "indices": (lambda p: p.x[p.positions].sum(), 4.0),
    "assigned": (assigned, 12.0),
    "sizes": (lambda p: F.sum(p.x.reshape(p.positions[1] + 1, 1), axis=[0, 1]), 6.0),
    "gradient": (gradient, 2 * (4 + 10 + 18)),
    "own gradient": (own_gradient, 6.0),
    "lazy": (lazily, 27.0),
    "traced list": (lambda p: TRACED_LIST(p)(p.items), 27.0),
    "traced names": (lambda p: TRACED_NAMES(p)(p.named, scale=2.0), 64.0),
    "traced branch": (lambda p: TRACED_BRANCH(p)(p.x, 1.0) + TRACED_BRANCH(p)(p.x, 3.0), 24.0),
    "vmap": (lambda p: wf.vmap(lambda a: a * 2)(p.x).sum(), 12.0),
    "grad": (lambda p: wf.grad(lambda a: (a * a).sum())(p.x).sum(), 12.0),
}
PLACES = 40  # of a program in which there are more, so many, spread evenly


def interferences(program, compute):
    def other_thread():
        # Not the program's containers: another call of the same function meanwhile.
        thread = threading.Thread(target=on_the_device(compute), args=(program,))
        thread.start()
        thread.join()

    def write():
        program.x += 0
        program.y += 0

    return {"clear": program.clear, "write": write, "other thread": other_thread}


@pytest.mark.parametrize("interference", ["clear", "write", "other thread"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_interfered_with_at_every_collection(name, interference):
    compute, expected = PROGRAMS[name]
    program = Program()
    for _ in range(4):  # until everything is planned and in the caches
        assert compute(program).item() == expected
    with At(-1) as counted:
        compute(program).item()
    interfere = interferences(program, compute)[interference]
    places = counted.count
    for n in range(0, places, max(1, places // PLACES)):
        try:
            with At(n, interfere):
                value = compute(program).item()
        except ACCEPTED:
            assert interference != "other thread", n
        else:
            assert value == expected or interference == "clear", n
        program.refill()
        assert compute(program).item() == expected, n
