"""Nested transformations of random functions come to what NumPy and finite differences come to.

Everyday tests take a few programs, others every day. With --full, ten minutes of them; WEFT_TEST_SEED fixes which,
WEFT_TEST_SECONDS how long.
"""

import collections

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while, shrunk

import weft as wf
from weft import functional as F

from .nested import STEP, Hessian, Nested, jacobian_of
from .steps import STEPS

pytestmark = pytest.mark.filterwarnings("ignore::weft.traces.trace.TraceWarning", "ignore::RuntimeWarning")
TOLERANCE = {0: 1e-9, 1: 1e-7, 2: 1e-6, 3: 1e-5}
# Calls at once refuse writes that lose what a gradient needs; recorded functions know what was there before.
REFUSED = ("cannot be written in place", "which has been overwritten since")
FORMS = {"called": lambda f: f, "traced": wf.trace, "traced, strict": lambda f: wf.trace(f, strict=True)}


def wanted(program, number):
    """What a call should give; None where differences do not tell: at kinks, or for great numbers."""
    x, w, found = program.arguments(number)
    want, again = (program.numpy(found, h)(x, w) for h in (STEP, STEP / 3))
    bound = TOLERANCE[program.order] * max(1.0, np.abs(want).max(initial=0.0))
    if not np.isfinite(want).all() or np.abs(want).max(initial=0.0) > 1e5:
        return None
    return want if np.abs(want - again).max(initial=0.0) <= bound else None


def difference(program, form, wants):
    """What is wrong with two calls of a form, or None."""
    x, w, found = program.arguments(0)
    outside = wf.tensor(np.array(found))
    f = FORMS[form](program.weft(outside))
    for number, want in enumerate(wants):
        x, w, found = program.arguments(number)
        outside[...] = found
        got = f(wf.tensor(x), wf.tensor(w)).numpy()
        if got.shape != want.shape:
            return f"call {number} has the shape {got.shape}, not {want.shape}"
        error = np.abs(got - want).max(initial=0.0)
        if not error <= TOLERANCE[program.order] * max(1.0, np.abs(want).max(initial=0.0)):
            return f"call {number} differs by {error:.3g} of {np.abs(want).max(initial=0.0):.3g}"
    return None


def check(program, form):
    """What is wrong, None, "unknown" or "refused"."""
    wants = [wanted(program, number) for number in range(2)]
    if any(want is None for want in wants):
        return "unknown"
    try:
        return difference(program, form, wants)
    except Exception as error:
        if isinstance(error, ValueError) and any(text in str(error) for text in REFUSED):
            return "refused"
        return f"{type(error).__name__}: {error}"


def is_wrong(program, form):
    try:
        return check(program, form) not in (None, "unknown", "refused")
    except Exception:
        return False  # the oracle does not take it


def fuzz(seed, counts):
    program = Nested.drawn(seed)
    form = list(FORMS)[seed % len(FORMS)]
    fact = check(program, form)
    counts[fact or "same"] += 1
    if fact not in (None, "unknown", "refused"):
        small = shrunk(program, Nested.smaller, lambda p: is_wrong(p, form))
        raise AssertionError(f"seed {seed}, {form}: {check(small, form)}\n{small}\nat first: {fact}")


def test_random_functions_under_nested_transformations():
    counts = collections.Counter()
    for seed in seeds(0, 8):
        fuzz(seed, counts)
    assert counts["same"] > 2


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_nested_transformations_for_ten_minutes():
    counts = collections.Counter()
    for seed in seeds_for_a_while(1000):
        fuzz(seed, counts)
    print(dict(counts))
    assert counts["same"] > 0.6 * counts.total()


def test_the_generator_draws_every_step_and_transformation():
    programs = [Nested.drawn(seed) for seed in range(400)]
    assert {name for p in programs for name, *_ in p.steps} == set(STEPS)
    pairs = {
        (type(a).__name__, type(b).__name__)
        for p in programs
        for a, b in zip(p.transformations, p.transformations[1:], strict=False)
    }
    assert len(pairs) > 60


def test_writes_to_what_is_one_for_all_examples_of_a_batch():
    """The Hessian's batch writes parts of an array that has no axis for the examples."""

    def f(x):
        z = F.pow(F.tanh(x) + 2, F.sin(x)) * 2
        z[0] = z[-1] * 0.5
        return (z * z).sum()

    def of_numpy(x):
        z = (np.tanh(x) + 2) ** np.sin(x) * 2
        z[0] = z[-1] * 0.5
        return (z * z).sum()

    x = np.array([0.3, -0.7])
    want = jacobian_of(lambda x: jacobian_of(of_numpy, x, STEP), x, STEP)
    np.testing.assert_allclose(wf.hessian(f)(wf.tensor(x)).numpy(), want, rtol=1e-6, atol=1e-6)
    program = Nested(0, [("power", 1, 1, 1), ("written", 1, 5, 1)], [Hessian(None)], (2,), ())
    assert check(program, "called") is None
