"""What the repository may hold: small files, and no path of anyone's machine."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 1_000_000
HOME = re.compile(rb"(?:/home/|/Users/|/root/)[A-Za-z0-9_.-]+")


def tracked():
    """Files that git tracks, or would track."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_files_are_small():
    assert [path for path in tracked() if path.stat().st_size > LARGEST_BYTES] == []


def test_no_paths_of_a_home():
    found = [(path, HOME.search(path.read_bytes())) for path in tracked() if path != Path(__file__).resolve()]
    assert [(str(path), match[0]) for path, match in found if match] == []


def test_known_gaps_have_reasons():
    lines = (ROOT / "tests" / "known_gaps.txt").read_text().splitlines()
    for line in lines:
        assert not line.strip() or line.startswith("#") or len(line.split(maxsplit=1)) == 2, line


def test_what_native_functions_keep_is_made_at_load():
    """A forked child waits for ever for a thread that was making a static variable; see native/engine/fork.h."""
    folders = ("engine", "device", "storage", "tensor", "program", "kernels", "onednn", "data")
    variable = re.compile(r"^ +static [^(;]* = (?:\*?new |\[\]|\w+\(\))")
    found = []
    files = [file for folder in folders for file in (ROOT / "native" / folder).iterdir() if file.is_file()]
    assert len(files) > 100
    for path in files:
        text = path.read_text()
        for before, line in zip(["", *text.splitlines()], text.splitlines(), strict=False):
            if variable.match(line) and "AtLoad" not in text and "lock_guard" not in before:
                found.append(f"{path.name}: {line.strip()}")
    assert found == [
        "machine.cpp: static const int cores = count_cores();"
    ]  # a process's first engine asks for it
