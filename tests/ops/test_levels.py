"""Every operator gives the same values at every level of instructions, within the bounds of docs/design/levels.md."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.base.dtype import as_dtype
from weft.info import lower_levels

from .levels import every, values
from .support import SEED, TOLERANCE

CHILD_LIMIT_S = 600


def compared(full):
    """Levels below this process's; without --full only the next one. The lowest is compared with itself."""
    levels = (*lower_levels(), _core.isa()[1])
    return levels if full else levels[:1]


def values_at(level, full, path):
    program = Path(__file__).with_name("levels.py")
    subprocess.run(
        [sys.executable, "-W", "ignore", program, "full" if full else "some", path],
        env=os.environ | {"WEFT_ISA": level, "WEFT_TEST_SEED": str(SEED)},
        check=True,
        timeout=CHILD_LIMIT_S,
    )
    return pickle.loads(path.read_bytes())


def difference(got, want, dtype, tolerance):
    """The largest difference beyond the bound of a float type, as a text; None if there is none."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{want.dtype}{want.shape} and {got.dtype}{got.shape}"
    kind = as_dtype(got.dtype).kind
    if kind not in ("float", "complex"):
        return None if np.array_equal(got, want) else f"{want} and {got}"
    bound = max(TOLERANCE[str(got.dtype)], TOLERANCE.get(dtype, 0)) * tolerance
    wide = "complex128" if kind == "complex" else "float64"
    a, b = want.astype(wide), got.astype(wide)
    with np.errstate(all="ignore"):
        near = np.isclose(b, a, rtol=bound, atol=bound, equal_nan=True)
    return None if near.all() else f"{a[~near][:3]} and {b[~near][:3]}, at most {bound:g} allowed"


@pytest.mark.timeout(CHILD_LIMIT_S)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_of_every_operator_agree(request, tmp_path):
    full = request.config.getoption("--full")
    mine = {name: (case, values(case)) for name, case in every(full).items()}
    for level in compared(full):
        others = values_at(level, full, tmp_path / level)
        assert list(others) == list(mine)
        wrong = {
            name: text
            for name, (case, want) in mine.items()
            for got, y in zip(others[name], want, strict=True)
            if (text := difference(got, y, case.dtype, case.sample.tolerance))
        }
        assert wrong == {}, level
    wf.waitall()
