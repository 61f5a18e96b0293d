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


def is_private(name):
    """A callable of the native module itself; methods of tensors are operators'."""
    return name.startswith("_core.") and not name.startswith("_core.Tensor.")


def test_there_is_an_object_of_each_native_class(tmp_path):
    """So that its methods are reached."""
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import junk, os\n"
        "junk.prepare()\n"
        "values = [x for group in junk.pool().values() for x in group]\n"
        "classes = {name for name, x in vars(junk._core).items() if isinstance(x, type)}\n"
        "missing = {name for name in classes if not any(junk.is_of(x, name) for x in values)}\n"
        "print(sorted(missing), flush=True)\n"
        "os._exit(0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=tmp_path, text=True, check=False
    )
    assert run.stdout.strip() == "[]", run.stderr


def test_callables_of_the_native_module_are_there():
    left_out = {n for n in junk.native() if n not in NAMES and not n.rpartition(".")[2].startswith("__")}
    assert len(left_out) < 20, sorted(left_out)
    assert {
        "_core.Engine.push",
        "_core.Tensor.softmax",
        "_core.Plan.info",
        "_core.Replays.closed =",
    } <= set(NAMES)


@pytest.mark.timeout(600)
def test_private_callables(tmp_path):
    ends_without_a_signal([n for n in NAMES if is_private(n)], 8, tmp_path)


@pytest.mark.timeout(600)
def test_some_public_callables(tmp_path):
    some = [n for n in NAMES if not is_private(n) and part_of(n) == 0]
    ends_without_a_signal(some, 4, tmp_path)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_callable(part, tmp_path):
    ends_without_a_signal([n for n in NAMES if part_of(n) == part], 400, tmp_path)
