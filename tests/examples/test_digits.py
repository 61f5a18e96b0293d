"""The demonstration: three ways agree and learn, and what was stopped goes on to the very same numbers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "digits.py"
WAYS = ("eager", "traced", "symbol")
EPOCHS = 3  # enough for 97 %
STEPS = 45 * EPOCHS


def command(out, *arguments):
    return [sys.executable, PROGRAM, "--out", out, "--epochs", str(EPOCHS), *map(str, arguments)]


def run(out, *arguments):
    return subprocess.run(command(out, *arguments), capture_output=True, text=True, timeout=100)


def records(out):
    return {name: json.loads((out / f"{name}.json").read_text()) for name in WAYS}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("digits")
    done = run(out)
    assert (done.returncode, done.stderr) == (0, "")
    return out, done.stdout


def test_the_three_ways_agree_and_learn(finished):
    out, printed = finished
    assert all(f"{name} " in printed for name in WAYS)
    assert "losses of one step differ by" in printed
    found = records(out)
    assert {len(record["losses"]) for record in found.values()} == {STEPS}
    assert all(record["accuracies"][-1] >= 0.97 for record in found.values())
    assert all(0 < record["array_bytes"] < record["resident_bytes"] for record in found.values())
    for losses in zip(*(record["losses"] for record in found.values()), strict=True):
        assert max(losses) - min(losses) <= 1e-4


def test_the_pictures(finished):
    out, _ = finished
    assert not list(out.glob("*.unfinished"))
    for name in ("curves.png", "predictions.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    drawing = (out / "network.svg").read_text()
    assert drawing.startswith("<svg")
    assert "conv2" in drawing


@pytest.mark.daily(3)
@pytest.mark.timeout(300)
def test_stopped_runs_go_on_to_the_same_numbers(finished, tmp_path):
    for name in WAYS:  # each is stopped in the middle of its third epoch
        done = run(tmp_path, "--stop-after", 100)
        assert (done.returncode, done.stderr) == (
            1,
            f"stopped: {name}, 100 of {STEPS} steps; the same command goes on from here\n",
        )
    assert run(tmp_path).returncode == 0
    straight, stopped = records(finished[0]), records(tmp_path)
    for name in WAYS:
        for what in ("losses", "accuracies", "predictions"):
            assert stopped[name][what] == straight[name][what], (name, what)


def started_for_long(out):
    """Training that has written a checkpoint."""
    started = subprocess.Popen(
        command(out, "--epochs", 1000), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    unfinished, deadline = out / "eager.unfinished", time.monotonic() + 60
    while not unfinished.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return started


def test_control_c(tmp_path):
    started = started_for_long(tmp_path)
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does; what trains is not in that group
    _, errors = started.communicate(timeout=30)
    assert started.returncode == 1
    assert errors.startswith("stopped: eager, ")
    done = run(tmp_path)
    assert done.returncode == 1
    assert "--epochs 1000: go on with that, or begin with --fresh" in done.stderr


def test_nobody_goes_on_training_when_it_is_killed(tmp_path):
    started = started_for_long(tmp_path)
    started.kill()
    started.communicate(timeout=30)  # until nobody has its stderr any more
    written = (tmp_path / "eager.unfinished").stat().st_mtime_ns
    time.sleep(1)
    assert (tmp_path / "eager.unfinished").stat().st_mtime_ns == written


def test_wrong_arguments(tmp_path):
    done = run(tmp_path, "--stop-after", 0)
    assert done.returncode == 2
    assert "must be at least 1" in done.stderr
