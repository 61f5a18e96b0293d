"""Processes that have GPUs: the stand-in for the driver, on the processor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.on_device import standin

from weft import _core

ROOT = Path(__file__).resolve().parents[2]


def run(*command, timeout_s=300, **environment):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def standin_path():
    path = standin()
    if not path.exists():
        pytest.skip(f"{path} is built by ./dev test")
    return str(path)


def counts():
    return _core.device_kind_counters("gpu")


def counted(call):
    """What a call does, once its plans and code are there: (result, launches, waits, staged)."""
    call().wait()
    before = counts()
    result = call()
    result.wait()
    after = counts()
    return result, *(after[k] - before[k] for k in ("launches", "waits", "staged"))
