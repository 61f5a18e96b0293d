"""The example of loading: it learns, and what was stopped in the middle of an epoch goes on to the same losses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.daily(2)

pytest.importorskip("skimage")
PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "pictures.py"


def run(out, *arguments):
    command = [sys.executable, PROGRAM, "--out", out, "--epochs", "2", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.timeout(600)
def test_it_learns_and_goes_on_to_the_same_losses(tmp_path):
    whole = run(tmp_path / "whole")
    assert (whole.returncode, whole.stderr) == (0, "")
    want = json.loads((tmp_path / "whole" / "result.json").read_text())
    assert want["losses"][0] > 1.5 > sum(want["losses"][-10:]) / 10
    assert want["accuracy"] > 0.4
    assert "images/s, waiting for data" in whole.stdout
    parts = tmp_path / "parts"
    stop = len(want["losses"]) // 3 + 5
    assert f"stopped after step {stop}" in run(parts, "--stop-after", stop).stdout
    rest = run(parts, "--mode", "process", "--workers", 1)
    assert f"goes on after step {stop // 20 * 20}, in epoch 1" in rest.stdout, rest.stderr
    found = json.loads((parts / "result.json").read_text())
    assert found["losses"] == want["losses"]
    assert found["accuracy"] == want["accuracy"]
