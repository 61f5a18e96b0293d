"""A process that has used a cross-section of weft ends with nothing that nanobind still knows of."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("leaks.py")


@pytest.mark.timeout(300)
def test_nothing_is_left_at_the_end():
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("end\n")
    assert "nanobind" not in done.stderr, done.stderr


def test_what_is_left_is_seen():
    code = (
        "import ctypes, weft as wf; from weft import _core; _core.testing.set_leak_warnings(True)\n"
        "x = wf.engine.Engine(workers=1); ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "nanobind: leaked 1 instances" in done.stderr, done.stderr
