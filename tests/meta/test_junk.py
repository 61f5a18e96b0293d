"""Junk arguments for every public and private callable, in subprocesses: errors are right, signals are not."""

import importlib.util
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("junk.py")
spec = importlib.util.spec_from_file_location("junk", PROGRAM)
junk = importlib.util.module_from_spec(spec)
spec.loader.exec_module(junk)
NAMES = list(junk.callables())
PARTS = 16


def ends_without_a_signal(names, calls, tmp_path):
    program = [sys.executable, str(PROGRAM), str(calls), *names]
    run = subprocess.run(program, capture_output=True, cwd=tmp_path, text=True, check=False)
    log = tmp_path / "junk.txt"
    last = log.read_text()[-4000:] if log.exists() else ""
    assert run.returncode == 0, f"{run.returncode}\n{run.stderr[-2000:]}\n{last}"
    assert last.endswith("done\n"), last


def part_of(name):
    return zlib.crc32(name.encode()) % PARTS


@pytest.mark.timeout(600)
def test_private_callables(tmp_path):
    ends_without_a_signal([n for n in NAMES if n.startswith("_core.")], 8, tmp_path)


@pytest.mark.timeout(600)
def test_some_public_callables(tmp_path):
    some = [n for n in NAMES if not n.startswith("_core.") and part_of(n) == 0]
    ends_without_a_signal(some, 4, tmp_path)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_callable(part, tmp_path):
    ends_without_a_signal([n for n in NAMES if part_of(n) == part], 300, tmp_path)
