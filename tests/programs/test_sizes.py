"""Functions traced with dynamic axes come to what NumPy comes to, for all sizes; their gradients to the eager ones.

Everyday tests take a few programs, others every day. With --full, ten minutes of them; WEFT_TEST_SEED fixes which,
WEFT_TEST_SECONDS how long.
"""

import collections
import dataclasses
import tempfile

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while, shrunk

import weft as wf
from weft.base.errors import GraphError

from .steps import OURS, REFERENCE, STEPS, applied, axis_of, drawn_steps

pytestmark = pytest.mark.filterwarnings("ignore::weft.traces.trace.TraceWarning", "ignore::RuntimeWarning")
SIZES = (0, 1, 2, 2, 3, 5)
CALLS = 6
TABLE = np.cos(np.arange(40.0))


TABLES = {id(REFERENCE): TABLE, id(OURS): wf.tensor(TABLE)}


def sliced(xp, x, y, k):
    """A part whose length depends on the size, of x or of a table."""
    n = x.shape[0]
    return x[: n // 2 + 1] if k % 2 else x + TABLES[id(xp)][:n].reshape((n,) + (1,) * (x.ndim - 1))


def counted(xp, x, y, k):
    """Numbers made of the size."""
    n = x.shape[axis_of(x, k)]
    return x / (n + 1) if k % 2 else x + xp.astype(xp.arange(n), xp.float64).sum() * 0.1


def divided(xp, x, y, k):
    """Joined in another order; reshaped to what the size gives."""
    n = x.shape[0]
    if k % 2:
        return xp.concat([x[n // 2 :], x[: n // 2]], axis=0)
    return x.reshape((n, -1)) if n else x


OF_SIZES = {"sliced": sliced, "counted": counted, "divided": divided}
NAMES = (*STEPS, *OF_SIZES)


@dataclasses.dataclass
class Sized:
    """A function of x and w by its steps, the axes of x that are dynamic, and the arrays of its calls."""

    seed: int
    steps: list
    axes: tuple[int, ...]
    shapes: list[tuple[int, ...]]
    is_derived: bool

    @classmethod
    def drawn(cls, seed):
        rng = np.random.default_rng(seed)
        ndim = int(rng.integers(1, 4))
        axes = tuple(k for k in range(ndim) if k == 0 or rng.random() < 0.5)
        fixed = [int(n) for n in rng.integers(1, 4, ndim)]
        shapes = [
            tuple(int(rng.choice(SIZES)) if k in axes else fixed[k] for k in range(ndim))
            for _ in range(CALLS)
        ]
        steps = drawn_steps(rng, int(rng.integers(1, 5)), NAMES)
        return cls(seed, steps, axes, shapes, bool(rng.random() < 0.4))

    def value(self, xp, x, w):
        return applied(xp, self.steps, [x, w], OF_SIZES)[-1]

    def ours(self):
        def f(x, w):
            return self.value(OURS, x, w)

        if self.is_derived:
            return wf.grad(lambda x, w: (wf.sin(y := f(x, w)) * 1.3 + y * y).sum())
        return f

    def differences(self, x, w):
        """The gradient with respect to x by central differences."""

        def loss(x):
            y = self.value(REFERENCE, x, w)
            return (np.sin(y) * 1.3 + y * y).sum()

        result = np.empty_like(x)
        for place in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[place] = 1e-6
            result[place] = (loss(x + step) - loss(x - step)) / 2e-6
        return result

    def arguments(self, number):
        rng = np.random.default_rng((self.seed, number))
        return rng.uniform(-1.2, 1.2, self.shapes[number]), rng.uniform(-1.2, 1.2, 2)

    def smaller(self):
        for k in range(len(self.steps)):
            yield dataclasses.replace(self, steps=self.steps[:k] + self.steps[k + 1 :])
        for k in range(len(self.shapes)):
            yield dataclasses.replace(self, shapes=self.shapes[:k] + self.shapes[k + 1 :])
        if len(self.axes) > 1:
            yield dataclasses.replace(self, axes=self.axes[:1])
        if self.is_derived:
            yield dataclasses.replace(self, is_derived=False)


def outcome(f, *arrays):
    """What a call gives, or the error."""
    try:
        return f(*map(wf.tensor, arrays)).numpy()
    except Exception as error:
        return error


def compared(program, traced, number):
    """What is wrong with a call, or "same", "raised"; "refused" where one program for all sizes cannot be."""
    x, w = program.arguments(number)
    want, got, tolerance = outcome(program.ours(), x, w), outcome(traced, x, w), 1e-9
    if isinstance(got, GraphError) and "cannot be recorded" in str(got):
        return "refused"
    if isinstance(want, ValueError) and "shares its memory with others" in str(want):
        want, tolerance = (
            program.differences(x, w),
            1e-5,
        )  # eager calls refuse gradients of views that are written
    if isinstance(want, Exception) or isinstance(got, Exception):
        if isinstance(want, Exception) and isinstance(got, Exception):
            return "raised"
        return f"call {number} of {x.shape}: {got!r} instead of {want!r}"
    try:
        oracle = want if program.is_derived else np.asarray(program.value(REFERENCE, x, w))
    except (ValueError, IndexError):
        return "raised"  # in a step whose result does not count
    if not (got.shape == want.shape == oracle.shape):
        return (
            f"call {number} of {x.shape} has the shape {got.shape}, eagerly {want.shape}, not {oracle.shape}"
        )
    for name, made in (("traced", got), ("eager", want)):
        if not np.allclose(made, oracle, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"{name} call {number} of {x.shape} is {made.tolist()}, not {oracle.tolist()}"
    return "same"


def outcomes(program):
    """What became of each call, up to the first that differs."""
    traced = wf.trace(program.ours(), dynamic={0: program.axes})
    found = []
    for number in range(len(program.shapes)):
        found.append(compared(program, traced, number))
        if found[-1] not in ("same", "raised"):
            return found
    return [*found, *compared_with_file(program, traced)]


def compared_with_file(program, traced):
    """What the calls come to of the program that was written to a file and read again: to the last bit the same."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            traced.export(f"{folder}/program")
        except GraphError:  # no program was made, or one that looks at Python's objects
            return
        loaded = wf.load_program(f"{folder}/program")
    for number, shape in enumerate(program.shapes):
        arrays = program.arguments(number)
        want, got = outcome(traced, *arrays), outcome(loaded, *arrays)
        if isinstance(want, Exception) or (isinstance(got, TypeError) and "no program for" in str(got)):
            continue  # a size that the trace had no program for yet, as of 0 and 1
        if isinstance(got, Exception) or not np.array_equal(want, got, equal_nan=True):
            yield f"call {number} of {shape} of the file is {got!r}, not {want!r}"
            return
        yield "loaded"


def is_wrong(program):
    try:
        return outcomes(program)[-1] not in ("same", "raised", "refused", "loaded")
    except Exception:
        return False


def fuzz(seed, counts):
    program = Sized.drawn(seed)
    found = outcomes(program)
    if found[-1] not in ("same", "raised", "refused", "loaded"):
        small = shrunk(program, Sized.smaller, is_wrong)
        raise AssertionError(f"seed {seed}: {outcomes(small)[-1:]}\n{small}\nat first: {found[-1]}")
    counts.update(found)


def test_random_functions_of_dynamic_sizes():
    counts = collections.Counter()
    for seed in seeds(0, 4):
        fuzz(seed, counts)
    assert counts["same"] > 3
    assert counts["loaded"] > 3


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_dynamic_sizes_for_ten_minutes():
    counts = collections.Counter()
    for seed in seeds_for_a_while(1000):
        fuzz(seed, counts)
    print(dict(counts))
    assert counts["same"] > 0.6 * (counts.total() - counts["loaded"])
    assert counts["loaded"] > 0.5 * counts["same"]


def test_the_generator_draws_every_step():
    assert {name for seed in range(400) for name, *_ in Sized.drawn(seed).steps} == set(NAMES)


def test_the_gradient_of_a_custom_function_of_an_array_whose_size_is_computed():
    """Its backward is written down for sizes that stay symbols."""
    steps = [("hypot", 1, 2, 3), ("divided", 0, 0, 14), ("sine", 0, 5, 9)]
    assert outcomes(Sized(0, steps, (0,), [(3,), (2,), (5,)], True)) == ["same"] * 3 + ["loaded"] * 3


def test_a_rule_that_compares_sizes_is_asked_for_each_call():
    """roll by 2 of a part that has one element is the part; of more elements it is not."""
    steps = [("subtract", 1, 0, 5), ("mean", 1, 6, 10), ("part", 2, 7, 9), ("roll", 2, 7, 11)]
    assert outcomes(Sized(73994403160, steps, (0,), [(2,), (5,), (3,)], True)) == ["same", "refused"]


def test_the_gradient_through_a_written_part_of_repeated_elements():
    """Which eager calls refuse: the program computes it, as differences say."""
    steps = [("repeated", 0, 2, 7), ("written", 0, 7, 13)]
    assert outcomes(Sized(73994504201, steps, (0,), [(5,)], True))[0] == "same"
