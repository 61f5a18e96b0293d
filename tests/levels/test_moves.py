"""Saved programs, checkpoints and caches of kernels move between levels of instructions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft import _core
from weft.info import lower_levels

USED = _core.isa()[1]
LOWER = (*lower_levels(), USED)[0]  # at the lowest, what is written is read there
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.05}


def work(what, level, folder, **variables):
    """What tests/levels/work.py does at a level."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("work.py"), what, folder],
        env=os.environ | {"WEFT_ISA": level} | variables,
        stdout=subprocess.PIPE,
        check=True,
        timeout=100,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("writer", "reader"), [(USED, LOWER), (LOWER, USED)], ids=["down", "up"])
def test_programs_and_checkpoints_move(writer, reader, tmp_path):
    wanted = work("write", writer, tmp_path)
    found = work("read", reader, tmp_path)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        bound = TOLERANCE[name.split()[0]]
        np.testing.assert_allclose(found[name], values, rtol=bound, atol=bound, err_msg=name)


def test_a_cache_of_kernels_is_shared_by_levels_without_mixing_them(tmp_path):
    """Each level compiles its own; the second time it finds them, and refuses none."""
    values = {}
    levels = sorted({USED, LOWER})
    for level in levels:
        first = work("kernels", level, tmp_path, WEFT_CACHE_DIR=str(tmp_path))
        values[level] = first["values"]
        assert first["counters"]["compiled"] > 0
        assert first["counters"]["rejected"] == 0
    for level in levels:
        again = work("kernels", level, tmp_path, WEFT_CACHE_DIR=str(tmp_path))
        assert again["values"] == values[level]
        # Several threads may ask for one text, each of which is then read.
        assert again["counters"]["compiled"] == again["counters"]["rejected"] == 0
        assert again["counters"]["from_disk"] > 0
    np.testing.assert_allclose(values[LOWER][0], values[USED][0], rtol=1e-5, atol=1e-6)
