"""No message of a public callable shows the signatures of the native binding library, or the names of its classes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("junk_messages.py")


def messages(calls, tmp_path):
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(calls)], capture_output=True, cwd=tmp_path, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads((tmp_path / "messages.json").read_text())


@pytest.mark.timeout(600)
def test_messages_show_no_internals(tmp_path):
    result = messages(2, tmp_path)
    assert result["callables"] > 600
    assert result["errors"] > result["callables"] / 2
    assert result["found"] == {}


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_messages_of_many_calls_show_no_internals(tmp_path):
    assert messages(100, tmp_path)["found"] == {}
