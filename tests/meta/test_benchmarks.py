"""Benchmarks run: what they measure is not looked at here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    "name",
    [
        "storage",
        "onednn",
        "slice",
        "graph",
        "data",
        "recurrent",
        "transforms",
        "compositions",
        "quantization",
    ],
)
def test_a_quick_run_ends_with_its_count_of_bars(name):
    command = [sys.executable, ROOT / "benchmarks" / f"{name}.py", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "bars hold" in done.stdout.splitlines()[-1]


def test_the_levels_of_one_kernel():
    command = [sys.executable, ROOT / "benchmarks" / "levels.py", "topk", "--quick", "--levels", "sse4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "bars hold" in done.stdout.splitlines()[-1]
    assert any(line.startswith("topk 10 of 1000x1000") for line in done.stdout.splitlines())
