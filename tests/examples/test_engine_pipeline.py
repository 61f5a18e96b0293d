"""The example of the engine runs, checks itself, and shows one missing file without suffering from it."""

import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "engine_pipeline.py"


def run(*arguments):
    command = [sys.executable, PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_example_checks_its_result(tmp_path, workers):
    done = run("--files", 25, "--workers", workers, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "26/26 files" in done.stdout
    assert "checked: 25 files, byte for byte and in the order of the input" in done.stdout
    failed = re.search(r"failed: +read (\S+): (\w+), pushed at \S*engine_pipeline.py:\d+", done.stdout)
    assert failed.groups() == ("no_such_module.py", "FileNotFoundError")
    pushed, finished, one_failed, skipped = map(
        int, re.search(r"(\d+) pushed, (\d+) finished, (\d+) failed, (\d+) skipped", done.stdout).groups()
    )
    assert pushed == finished
    assert (one_failed, skipped) == (1, 3)  # the read; compress, write and append of that file only


def test_what_the_example_leaves(tmp_path):
    assert run("--files", 8, "--out", tmp_path).returncode == 0
    out = tmp_path / "engine"
    entries = [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]
    assert len(entries) == 8
    assert [entry["name"] for entry in entries] == sorted(entry["name"] for entry in entries)
    one_by_one = b"".join(lzma.decompress((out / f"{entry['name']}.xz").read_bytes()) for entry in entries)
    assert lzma.decompress((out / "archive.xz").read_bytes()) == one_by_one


def test_arguments_of_the_example():
    done = run("--files", 0)
    assert done.returncode == 2
    assert "--files must be at least 1" in done.stderr
