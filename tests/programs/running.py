"""Running a small program, and telling whether two runs came to the same."""

import contextlib
import sys

import numpy as np

import weft as wf
from weft.base.structure import flatten

from .programs import PROGRAMS, called

SIZE, OTHER_SIZE = 3, 5
TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "bfloat16": 2e-2, "float16": 2e-3}


@contextlib.contextmanager
def executions(code):
    """Counts the calls of a function of Python inside, by its code."""
    count = [0]

    def note(frame, event, _):
        count[0] += event == "call" and frame.f_code is code

    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(None)


class Run:
    """One way of running a case: what it was given last, and what came of it."""

    def __init__(self, name, way):
        wf.random.seed(1)
        self.case = PROGRAMS[name]()
        self.function = way(self.case.run)
        self.number = 0

    def __call__(self, size):
        self.number += 1
        wf.random.seed(self.number)
        self.call = called(self.case.arguments(size))
        with executions(self.case.code) as count:
            self.result = self.function(*self.call.args, **self.call.kwargs)
        self.executions = count[0]
        self.random_state = wf.random.get_state()
        return self.result

    def shown(self):
        """All leaves that the caller can see."""
        return flatten((self.call.args, self.call.kwargs, self.result, self.case.kept()))

    def disturb(self):
        """Write to every array in turn; gives which could be written."""
        return [written(x) for x in self.shown()[0] if isinstance(x, wf.Tensor)]


def written(x):
    try:
        x[...] = ~x if x.dtype == "bool" else x + 1
    except ValueError:  # of which one element is meant by several indices
        return False
    return True


def assert_same(run, eager):
    """The same values, gradients, identities and random state."""
    (found, structure), (wanted, wanted_structure) = run.shown(), eager.shown()
    assert structure == wanted_structure
    assert identities(found) == identities(wanted)
    for x, y in zip(found, wanted, strict=True):
        if isinstance(y, wf.Tensor):
            assert_same_array(x, y)
        else:
            assert type(x) is type(y)
            assert x == y
    assert run.random_state == eager.random_state


def assert_same_array(x, y):
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    tolerance = TOLERANCE.get(str(y.dtype), 0)
    a, b = (t.astype("float64").numpy() for t in (x, y))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10)
    assert (x.grad is None) == (y.grad is None)
    if y.grad is not None:
        assert_same_array(x.grad, y.grad)


def identities(leaves):
    """For each array, the first place where it is."""
    seen = {}
    return [seen.setdefault(id(x), k) for k, x in enumerate(leaves) if isinstance(x, wf.Tensor)]


def call_both(run, eager, size):
    """One call of each, compared; then all arrays written and compared again, which shows what shares memory."""
    eager(size), run(size)
    assert_same(run, eager)
    assert run.disturb() == eager.disturb()
    assert_same(run, eager)
