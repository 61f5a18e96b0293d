"""Operators, programs and gradients on the stand-in for a GPU: the tests of tests/ops and others, run there."""

import datetime

import pytest

from .support import run, standin_path

SHARES = 6
DAYS = {"tests/executor": 1, "tests/programs": 2, "tests/imperative": 4}
DAY = datetime.date.today().toordinal()


def run_there(*arguments, seed):
    result = run("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *arguments, WEFT_TEST_DEVICE="gpu:0",
                 WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED=str(seed), timeout_s=1700)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


def test_a_share_of_the_operators():
    """A sixth of the value tests every day; the seed makes streams late and orders threads."""
    run_there("tests/ops/test_every_op.py", "-k", "test_value", "--part", f"{DAY % SHARES + 1}/{SHARES}",
              seed=DAY % 97 + 1)  # fmt: skip


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(1, 9))
def test_operators(part):
    """All generated tests, half of the parts every day; in sixteen days each part with each of eight seeds."""
    if (part + DAY) % 2:
        pytest.skip("the other parts' day")
    run_there("tests/ops/test_every_op.py", "--part", f"{part}/8", seed=(part + DAY // 2) % 8)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("folder", DAYS)
def test_programs_and_calls(folder):
    """The processor's tests but those that are marked as its own, in so many days all of them."""
    days = DAYS[folder]
    run_there(folder, "--part", f"{DAY % days + 1}/{days}", seed=DAY % 97 + 1)
