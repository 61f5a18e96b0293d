"""Writes through views come to what they do in NumPy: at once, traced, lazily, transformed, and their derivatives.

Everyday tests take a few programs, others every day. With --full, ten minutes of them; WEFT_TEST_SEED fixes which,
WEFT_TEST_SECONDS how long.
"""

import collections
import itertools

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while, shrunk

import weft as wf
from weft.ops.families.strided import AsStrided

from .nested import STEP, jacobian_of, slope
from .steps import OURS, REFERENCE
from .written import NOT_BATCHED, STATEMENTS, Written

pytestmark = pytest.mark.filterwarnings("ignore::weft.traces.trace.TraceWarning", "ignore::RuntimeWarning")
# Calls at once refuse writes that lose what a gradient needs, and how many elements a mask chooses is not known before.
REFUSED = (
    "cannot be written in place",
    "which has been overwritten since",
    "depends on what the elements are",
    "shares its memory",
)
COUNT = 3  # examples of vmap
FOUND = (0.75, 1.25)  # what the array outside holds at the first and the second call


def lazily(f):
    def run(x):
        with wf.lazy():
            y, base = f(x)
            return y * 1, base * 1

    return run


def of_rows(f):
    return lambda x: wf.foreach(lambda row, state: (f(row), state), x, ())[0]


# Forms of f(x) -> (y, base): of one example, and of several.
SINGLE = {"called": lambda f: f, "traced": wf.trace, "lazy": lazily}
BATCHED = {
    "vmap": wf.vmap,
    "vmap of the last axis": lambda f: (
        lambda x: wf.vmap(f, in_axes=-1, out_axes=0)(wf.moveaxis(x, 0, -1) * 1)
    ),
    "foreach": of_rows,
    "traced vmap": lambda f: wf.trace(wf.vmap(f)),
    "vmap of a trace": lambda f: wf.vmap(wf.trace(f)),
}


def first(f):
    return lambda x: f(x)[0]


def pulled(f):
    def run(x):
        _, pull = wf.vjp(f, x)
        return pull(wf.ones((), dtype="float64"))[0]

    return run


DERIVED = {  # of f(x) -> y: its gradient
    "grad": wf.grad,
    "traced grad": lambda f: wf.trace(wf.grad(f)),
    "grad of a trace": lambda f: wf.grad(wf.trace(f)),
    "vjp": pulled,
    "jacobian": wf.jacobian,
    "grad of vmap": lambda f: lambda x: wf.grad(lambda x: wf.vmap(f)(x[None]).sum())(x),
}


def tangent(f):
    return lambda x: wf.jvp(f, (x,), (wf.cos(x),))[1]


def one(f):
    """f of a copy: the argument of a derivative is not written."""
    return lambda x: f(x * 1)


def same(got, want, bound, what):
    got = got.numpy()
    if got.shape != want.shape:
        return f"{what} has the shape {got.shape}, not {want.shape}"
    error = np.abs(got - want).max(initial=0.0)
    ok = error <= bound * max(1.0, np.abs(want).max(initial=0.0))
    return None if ok else f"{what} differs by {error:.3g}: {got.tolist()}, not {want.tolist()}"


def checks(program):
    """(form, a function that says what is wrong with it, or None)."""
    rows = program.arguments(COUNT)
    outside = wf.tensor(np.array(FOUND[0]))

    def f(x):
        return program.run(OURS, x, outside)

    def values(make, arrays, wants_of):
        def run():
            g = make(f)
            for found in FOUND:
                outside[...] = found
                x = wf.tensor(arrays)
                y, base = g(x)
                want_y, want_base, want_x = wants_of(found)
                for got, want, what in ((y, want_y, "y"), (base, want_base, "base"), (x, want_x, "x")):
                    if fact := same(got, want, 1e-9, what):
                        return fact
            return None

        return run

    def single(found):
        x = rows[0].copy()
        return *program.run(REFERENCE, x, found), x

    def several(found):
        xs = rows.copy()
        found_rows = [program.run(REFERENCE, x, found) for x in xs]
        return *(np.stack(part) for part in zip(*found_rows, strict=True)), xs

    for name, make in SINGLE.items():
        yield name, values(make, rows[0], single)
    if not NOT_BATCHED.isdisjoint(name for name, *_ in program.steps):
        return
    for name, make in BATCHED.items():
        if not (program.to_argument and name in ("vmap of the last axis", "foreach")):
            yield name, values(make, rows, several)

    def scalar(x, found):
        return program.run(REFERENCE, x.copy(), found)[0]

    def derivative(make, of_numpy):
        def run():
            g = make(one(first(f)))
            for found in FOUND:
                want, again = (of_numpy(rows[0], found, h) for h in (STEP, STEP / 3))
                if not np.abs(want - again).max(initial=0.0) <= 1e-8 * max(1.0, np.abs(want).max()):
                    return "unknown"
                outside[...] = found
                if fact := same(g(wf.tensor(rows[0])), want, 1e-7, "the derivative"):
                    return fact
            return None

        return run

    for name, make in DERIVED.items():
        yield name, derivative(make, lambda x, found, h: jacobian_of(lambda x: scalar(x, found), x, h))
    yield (
        "jvp",
        derivative(tangent, lambda x, found, h: slope(lambda t: scalar(x + t * np.cos(x), found), 0.0, h)),
    )


def outcome(check):
    try:
        return check() or "same"
    except Exception as error:
        if isinstance(error, ValueError | TypeError) and any(text in str(error) for text in REFUSED):
            return "refused"
        return f"{type(error).__name__}: {error}"


def is_wrong(program, form):
    try:
        return outcome(dict(checks(program)).get(form, lambda: None)) not in ("same", "unknown", "refused")
    except Exception:
        return False


def fuzz(seed, counts):
    """A third of the forms, others for the next seed."""
    program = Written.drawn(seed)
    for form, check in [*checks(program)][seed % 3 :: 3]:
        fact = outcome(check)
        if fact not in ("same", "unknown", "refused"):
            small = shrunk(program, Written.smaller, lambda p, form=form: is_wrong(p, form))
            raise AssertionError(
                f"seed {seed}, {form}: {outcome(dict(checks(small))[form])}\n{small}\nat first: {fact}"
            )
        counts[fact] += 1


def test_random_writes_through_views():
    counts = collections.Counter()
    for seed in seeds(0, 6):
        fuzz(seed, counts)
    assert counts["same"] > 6


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_writes_through_views_for_ten_minutes():
    counts = collections.Counter()
    for seed in seeds_for_a_while(1000):
        fuzz(seed, counts)
    print(dict(counts))
    assert counts["same"] > 0.6 * counts.total()


def test_the_generator_draws_every_statement():
    programs = [Written.drawn(seed) for seed in range(200)]
    assert {name for p in programs for name, *_ in p.steps} == set(STATEMENTS)


def test_windows_of_what_is_sliced_and_permuted_are_distinct():
    """put_strided refused to derive writes to x.T[::2]."""
    steps = [slice(None), slice(None, None, 2), slice(1, None), slice(None, None, -1), slice(0, 1)]
    x = np.arange(3 * 5 * 4).reshape(3, 5, 4)
    for keys in itertools.product(steps, repeat=3):
        for axes in itertools.permutations(range(3)):
            view = x.transpose(axes)[keys]
            strides = tuple(s // x.itemsize for s in view.strides)
            assert AsStrided(shape=view.shape, strides=strides).distinct(), (axes, keys)
    for shape, strides in (((3, 2), (1, 2)), ((2, 2), (0, 1)), ((2, 3, 2), (2, 1, 7))):
        assert not AsStrided(shape=shape, strides=strides).distinct()


def test_the_gradient_of_a_write_to_steps_of_a_permuted_array():
    def f(x):
        y = x * 1.5
        y.T[::2][1] *= 2.0
        return (y * y).sum()

    x = wf.tensor(np.arange(6.0).reshape(2, 3))
    (dx,) = wf.vjp(f, x)[1](wf.tensor(1.0, dtype="float64"))
    np.testing.assert_allclose(dx.numpy(), x.numpy() * [4.5, 4.5, 18.0])
