"""ResNet-18 on patches of pictures: calibration loses at most a point, training with rounded numbers 0.3."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "quantize_pictures.py"


@pytest.mark.full
def test_it_stays_near_the_float_network():
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=3600)
    assert (done.returncode, done.stderr) == (0, "")
    rows = {
        name: float(accuracy)
        for name, accuracy in re.findall(r"^(\S.*?) +([\d.]+)%", done.stdout, re.MULTILINE)
    }
    assert len(rows) == 6
    accuracy, longer = rows.pop("float32"), rows.pop("float32, trained on")
    assert min(accuracy, longer) > 85
    learned = rows.pop("trained on, lsq")
    assert learned >= longer - 0.3, (learned, longer)
    for name, quantized in rows.items():
        assert quantized >= accuracy - 1.0, (name, quantized, accuracy)
