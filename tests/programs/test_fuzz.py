"""Random programs come to the same eagerly, traced, lazily, through the gradient of a trace, and loaded from a file.

Everyday tests take a few programs, always the same. With --full, ten minutes of them, other ones every day;
WEFT_TEST_SEED fixes which, WEFT_TEST_SECONDS how long.
"""

import collections
import datetime
import os
import time

import pytest

from .agreement import FORMS, Different, check, shrunk
from .drawn import SIZES, drawn

pytestmark = pytest.mark.filterwarnings("ignore::weft.traces.trace.TraceWarning")
SEED = int(os.environ.get("WEFT_TEST_SEED", datetime.date.today().toordinal())) * 100_000
KINDS = {
    "no_grad",
    "detach",
    "Function",
    "random",
    "recompute",
    "in place",
    "surroundings",
    "cond",
    "foreach",
}
KINDS |= {"while_loop", "nested", "grad", "view", "product"}


def fuzz(seed, counts):
    program = drawn(seed)
    try:
        outcome = check(program)
    except Different as error:
        form = next(form for form in sorted(FORMS, key=len, reverse=True) if str(error).startswith(form))
        small = shrunk(program, form)
        raise AssertionError(f"seed {seed}: {error}\n{small.source}") from error
    for form, what in outcome.items():
        counts[form, what] += 1
    return outcome


def compared(counts):
    """The share of eager programs that each form could be compared with."""
    return sum(count for (form, what), count in counts.items() if form != "eager" and what == "same") / max(
        1, sum(count for (form, _), count in counts.items() if form != "eager")
    )


@pytest.mark.timeout(600)
def test_random_programs():
    counts = collections.Counter()
    for seed in (2, 6, 9, 2003):
        fuzz(seed, counts)
    assert counts["eager", "same"] == 4


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_random_programs_for_ten_minutes():
    seconds = float(os.environ.get("WEFT_TEST_SECONDS", 600))
    counts, end, seed = collections.Counter(), time.monotonic() + seconds, SEED + 50_000
    while time.monotonic() < end:
        fuzz(seed, counts)
        seed += 1
    print(seed - SEED - 50_000, "programs", dict(counts))
    assert compared(counts) > 0.8, counts


def test_the_generator_draws_every_ingredient():
    programs = [drawn(seed) for seed in range(200)]
    kinds = set().union(*(program.kinds for program in programs))
    assert kinds >= KINDS
    assert {(p.n, p.m) for p in programs} == set(SIZES)
