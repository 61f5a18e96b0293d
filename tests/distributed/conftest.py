"""A fixture that runs a program of the folder `programs` on several ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]


def environment(**more):
    """One thread each, and no folder of the tests in the way."""
    return (
        os.environ
        | {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "WEFT_COLLECTIVE_TIMEOUT_S": "60"}
        | more
    )


def run_ranks(program, n, *args, timeout_s=110, fails=False, **more):
    """What `python -m weft.launch -n N program args` wrote; raises AssertionError if it did not end as it should."""
    command = [sys.executable, "-m", "weft.launch", "-n", str(n), str(PROGRAMS / program), *map(str, args)]
    done = subprocess.run(
        command, env=environment(**more), cwd=ROOT, text=True, timeout=timeout_s, capture_output=True
    )
    text = f"{done.stdout}\n{done.stderr}"
    assert (done.returncode != 0) == fails, f"{program}: ended with {done.returncode}\n{text}"
    return text


@pytest.fixture
def launch():
    """See run_ranks."""
    return run_ranks
