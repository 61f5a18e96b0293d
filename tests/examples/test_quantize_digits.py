"""The example trains, quantizes both ways within its bounds, prints its table and draws the histograms."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.daily(2)

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "quantize_digits.py"
CALLS, IMAGES = 20, 357
PRODUCTS = 64 * 9 * 32 + 64 * 9 * 32 * 64 + 16 * 9 * 64 * 64 + 1024 * 10  # of one image
LEAST_MS = PRODUCTS * IMAGES / (2048 * 6e6 * (os.cpu_count() or 1))  # 2048 products a cycle (AMX), 6 GHz


def test_it_stays_near_the_float_network(tmp_path):
    command = [sys.executable, PROGRAM, "--epochs", "2", "--out", tmp_path]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    elapsed_ms = (time.perf_counter() - begin) * 1000
    assert (done.returncode, done.stderr) == (0, "")
    found = re.findall(r"^(\S.*?) +([\d.]+)% +(\d+) +([\d.]+)$", done.stdout, re.MULTILINE)
    rows = {name: (float(accuracy), int(size)) for name, accuracy, size, _ in found}
    times_ms = [float(ms) for *_, ms in found]
    assert min(times_ms) > LEAST_MS  # faster than any core: nothing was computed
    assert CALLS * sum(times_ms) < elapsed_ms  # the shortest of so many calls of each, all within this run
    assert len(rows) == 6
    accuracy, size = rows.pop("float32")
    assert accuracy > 95
    for name, (quantized, bytes_of_integers) in rows.items():
        bound = 0.6 if name.startswith("trained") else 1.0  # an image is 0.28
        assert quantized >= accuracy - bound, (name, quantized, accuracy)
        assert bytes_of_integers < 0.3 * size
    assert re.search(r"conv3 +int8 +uint8", done.stdout)
    assert (tmp_path / "activations.png").stat().st_size > 10_000
