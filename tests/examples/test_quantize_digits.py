"""The example trains, quantizes both ways within its bounds, prints its table and draws the histograms."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.daily(2)

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "quantize_digits.py"


def test_it_stays_near_the_float_network(tmp_path):
    command = [sys.executable, PROGRAM, "--epochs", "2", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    found = re.findall(r"^(\S.*?) +([\d.]+)% +(\d+) +[\d.]+$", done.stdout, re.MULTILINE)
    rows = {name: (float(accuracy), int(size)) for name, accuracy, size in found}
    assert len(rows) == 6
    accuracy, size = rows.pop("float32")
    assert accuracy > 95
    for name, (quantized, bytes_of_integers) in rows.items():
        bound = 0.6 if name.startswith("trained") else 1.0  # an image is 0.28
        assert quantized >= accuracy - bound, (name, quantized, accuracy)
        assert bytes_of_integers < 0.3 * size
    assert re.search(r"conv3 +int8 +uint8", done.stdout)
    assert (tmp_path / "activations.png").stat().st_size > 10_000
