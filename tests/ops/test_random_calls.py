"""Random programs of calls: each call gives what its reference says, and the program the same traced and as a symbol.

Gradients agree with tangents, and traced ones with eager ones. On other devices: WEFT_TEST_DEVICE=gpu:0. Everyday tests
take a few programs, others every day. With --full, ten minutes of them; WEFT_TEST_SEED fixes which, WEFT_TEST_SECONDS
how long.
"""

import collections
import functools
import re

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while, shrunk
from tests.on_device import gap_of

import weft as wf
import weft.symbol as sym
from weft.base.dtype import as_dtype
from weft.base.errors import GraphError
from weft.ops.op import differentiable

from .random_calls import DRAWN, Drawing, finite
from .support import TOLERANCE, case_of, normal, total

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::weft.traces.trace.TraceWarning")
BLURS = 8  # how often a program is computed with other roundings, to see how far its numbers can move


def plain(x):
    """A tensor's or an array's elements in NumPy's widest type of the kind."""
    a = x.numpy() if isinstance(x, wf.Tensor) else np.asarray(x)
    kind = as_dtype(a.dtype)
    return a.astype("complex128" if kind.is_complex else "float64") if kind.is_inexact else a


def blurred(a, rng):
    """An array with other numbers in their last digits."""
    kind = as_dtype(a.dtype)
    if not kind.is_inexact:
        return a
    noise = 2.0 ** (2 - kind.digits)
    with np.errstate(all="ignore"):
        return (plain(a) * (1 + noise * rng.uniform(-1, 1, a.shape))).astype(a.dtype)


def difference(got, want, bound, others):
    """What differs by more than the bound and by more than rounding explains, or None.

    others(): wants of other roundings.
    """
    got, want = plain(got), plain(want)
    if got.shape != want.shape:
        return f"the shape is {got.shape}, not {want.shape}"
    if got.dtype != want.dtype:
        return f"the dtype is {got.dtype}, not {want.dtype}"

    def differs(a, b, factor):
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind in "fc" else a == b
            return (
                ~same if a.dtype.kind not in "fc" else ~(same | (abs(a - b) <= factor * bound * (1 + abs(b))))
            )

    wrong = differs(got, want, 1)
    if not wrong.any():
        return None
    reach = np.zeros(want.shape)
    for other in map(plain, others()):
        with np.errstate(all="ignore"):
            reach = np.fmax(
                reach,
                np.where(
                    differs(other, want, 0),
                    np.where(np.isfinite(other) & np.isfinite(want), abs(other * 1.0 - want), np.inf),
                    0,
                ),
            )
    with np.errstate(all="ignore"):
        apart = np.where(np.isfinite(got) & np.isfinite(want), abs(got * 1.0 - want), np.inf)
    wrong &= ~((reach == np.inf) | (apart <= 8 * reach) | ((reach > 0) & (got.dtype.kind not in "fc")))
    if not wrong.any():
        return None
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"{got[place]} instead of {want[place]} at {place}, {int(wrong.sum())} of {wrong.size}"


def bound_of(*dtypes):
    return 4 * max(TOLERANCE.get(name, 0.0) for name in (*dtypes, "float64"))


def wrong_value(program):
    """The first call whose results are not those of its reference, or None."""
    rng = np.random.default_rng(1)
    for step, operands, results in program.calls(program.tensors()):
        arrays = [x.numpy() for x in operands]
        case = case_of(step.cls, step.sample, arrays, step.dtype)
        if case is None:
            return f"{step!r}: inference refuses what ran"
        try:
            want = case.want()
        except (ValueError, np.linalg.LinAlgError):
            continue  # NumPy has no value, as of the greatest of no elements
        if len(want) != len(results):
            return f"{step!r}: {len(results)} results, the reference has {len(want)}"
        got = case.node.op.in_reference_form(
            [y.numpy() for y in results], want
        )  # signs that rounding decides
        for k, (y, w) in enumerate(zip(got, want, strict=True)):
            with np.errstate(all="ignore"):
                w = np.asarray(w).astype(y.dtype)
            bound = bound_of(as_dtype(y.dtype).name, step.dtype) * step.sample.tolerance

            def others(k=k, y=y, case=case, arrays=arrays):
                for _ in range(BLURS):
                    with np.errstate(all="ignore"):
                        yield np.asarray(case.want([blurred(a, rng) for a in arrays])[k]).astype(y.dtype)

            if fact := difference(y, w, bound, others):
                return f"{step!r}: result {k}: {fact}"
    return None


def blurred_values(program, f=None):
    """Results of the program where each one on the way was rounded otherwise."""
    rng = np.random.default_rng(2)

    def blur(y):
        return wf.tensor(blurred(y.numpy(), rng)) if y.dtype.is_inexact else y

    for _ in range(BLURS):
        yield program.value(*(blur(x) for x in program.tensors()), blur=blur)


def unequal(program, got, want, what):
    """The first of `got` that is not as in `want`, the program's eager results; or None."""
    if len(got) != len(want):
        return f"{what}: {len(got)} results instead of {len(want)}"
    coarse = bound_of(*(y.dtype.name for y in want), *(step.dtype for step in program.steps))
    for k, (y, w) in enumerate(zip(got, want, strict=True)):
        if y.dtype is not w.dtype:
            return f"{what}, result {k}: the dtype is {y.dtype}, not {w.dtype}"
        if fact := difference(y, w, coarse, lambda k=k: (v[k] for v in blurred_values(program))):
            return f"{what}, result {k}: {fact}"
    return None


def wrong_trace(program):
    want, traced = program.value(*program.tensors()), wf.trace(program.value)
    for call in range(3):
        if fact := unequal(program, traced(*program.tensors()), want, f"traced call {call}"):
            return fact
    return None


def wrong_symbol(program):
    names = [f"x{k}" for k in range(len(program.inputs))]
    try:
        group = sym.from_json(sym.group(program.value(*map(sym.var, names))).to_json())
        if set(group.list_arguments() + group.list_auxiliary_states()) - set(names):
            return None  # makes parameters that the sample does without
        got = group.eval(**dict(zip(names, program.tensors(), strict=True)))
    except GraphError as error:
        if not re.search(r"depends on sizes|not the \d+ of its symbol|must be a variable", str(error)):
            raise  # else it cannot be one, by its number of outputs, or since it writes what is computed here
        return None
    return unequal(program, got, program.value(*program.tensors()), "as a symbol")


def has_gradient(step):
    """Whether its gradient is meant to be that of its values."""
    return differentiable(step.cls) and step.sample.gradient


def wrong_gradient(program):
    """Gradients of a weighted sum of all results: times tangents they are its slope; traced they are the same."""
    x = program.tensors()
    wanted = [k for k, (a, _) in enumerate(program.inputs) if as_dtype(a.dtype).is_inexact]
    results = program.value(*x)
    if len({y.device for y in results}) > 1:
        return None  # they have no sum
    rng = np.random.default_rng(3)
    weights = [
        wf.tensor(normal(rng, y.shape, y.dtype), device=y.device).astype(y.dtype)
        if y.dtype.is_inexact and finite(y)
        else None
        for y in results
    ]
    if not wanted or all(w is None for w in weights) or not all(map(has_gradient, program.steps)):
        return None

    def loss(*given):
        every = list(x)
        for k, value in zip(wanted, given, strict=True):
            every[k] = value
        return total(program.value(*every), weights)

    given = [x[k] for k in wanted]
    derive = wf.grad(loss, tuple(range(len(given))))
    try:
        gradients = derive(*given)
    except NotImplementedError as error:
        if "no gradient" in str(error):
            return None
        raise
    steps = [wf.tensor(normal(rng, v.shape, v.dtype)).astype(v.dtype) for v in given]
    slope = plain(wf.jvp(loss, tuple(given), tuple(steps))[1])
    products = [(plain(g) * plain(s).conj()).real for g, s in zip(gradients, steps, strict=True)]
    size = sum(abs(p).sum() for p in products)
    if np.isfinite(size) and np.isfinite(slope):
        bound = bound_of(*(y.dtype.name for y in (*results, *given)), *(s.dtype for s in program.steps))
        if not abs(sum(p.sum() for p in products) - slope) <= 10 * bound * (1 + size):
            return f"gradients times tangents are {sum(p.sum() for p in products)}, the tangent is {slope}"
    return None


CHECKS = (wrong_value, wrong_trace, wrong_symbol, wrong_gradient)


def outcome(check, program):
    """None, what is wrong, or "gap" where a kernel is missing on the device."""
    try:
        return check(program)
    except Exception as error:
        return "gap" if gap_of(error) else f"{type(error).__name__}: {error}"


def fuzz(seed, counts):
    program = Drawing(seed).program()
    if not program.steps:
        return
    counts.update(step.cls.name for step in program.steps)
    for check in CHECKS:
        fact = outcome(check, program)
        if fact not in (None, "gap"):
            wrong = functools.partial(outcome, check)
            small = shrunk(
                program, lambda p: p.smaller(), lambda p, wrong=wrong: wrong(p) not in (None, "gap"), 60
            )
            raise AssertionError(f"seed {seed}, {check.__name__}: {wrong(small)}\n{small}\nat first: {fact}")


def test_random_programs_of_calls():
    counts = collections.Counter()
    for seed in seeds(0, 12):
        fuzz(seed, counts)
    assert counts.total() > 12


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_random_programs_of_calls_for_ten_minutes():
    counts = collections.Counter()
    for seed in seeds_for_a_while(1000):
        fuzz(seed, counts)
    missing = {cls.name for cls in DRAWN} - counts.keys()
    print(counts.total(), "calls; never drawn:", sorted(missing))
