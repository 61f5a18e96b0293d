"""The example of docs/performance.md: its versions compute the same, each with less."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from weft.tools.counters import Counting

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "slow_step.py"


def test_versions_agree_and_count_less():
    example = runpy.run_path(str(PROGRAM))
    losses, launches = [], []
    for options in example["VERSIONS"].values():
        epoch = example["version"](**options)
        losses.append([epoch() for _ in range(2)])
        with Counting() as counting:
            epoch()
        launches.append(counting.counts["launches"] / example["STEPS"])
    for others in losses[1:]:
        assert others == pytest.approx(losses[0], rel=1e-5)
    assert launches[0] > 5 * launches[1]
    assert launches[-1] < 2


def test_it_prints_its_table_and_writes_a_timeline(tmp_path):
    command = [sys.executable, PROGRAM, "--turns", "1", "--timeline", tmp_path / "trace.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert "traced" in done.stdout
    assert (tmp_path / "trace.json").exists()
