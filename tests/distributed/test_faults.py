"""Ranks over MPI that end, fail, die or are stopped: the others say so and do not wait forever."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

PROGRAM = Path(__file__).parent / "programs" / "faults.py"
ENVIRONMENT = {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "WEFT_COLLECTIVE_TIMEOUT_S": "60"}


@pytest.fixture
def start(tmp_path):
    """start(what): the job, whose output goes to tmp_path / "output"."""
    jobs = []

    def begin(what, n=2, **env):
        with open(tmp_path / "output", "w") as output:
            jobs.append(
                subprocess.Popen(
                    [sys.executable, "-m", "weft.launch", "-n", str(n), str(PROGRAM), what, str(tmp_path)],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | ENVIRONMENT | env,
                    start_new_session=True,
                )
            )
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def until(ready, job):
    end = time.monotonic() + 90
    while time.monotonic() < end:
        if found := ready():
            return found
        assert job.poll() is None, "the job has ended"
        time.sleep(0.02)
    raise AssertionError("it took too long")


def text(path):
    return path.read_text() if path.exists() else ""


def test_a_rank_that_ends_before_the_others(start, tmp_path):
    assert start("ends").wait(90) != 0
    said = text(tmp_path / "output")
    error = text(tmp_path / "error-0")
    assert "ranks disagree" in error
    assert "rank 1: end of the program" in error
    assert "faults.py" in error
    assert (tmp_path / "again").exists(), said
    assert "rank 1 has come to its end before others" in said


def test_pushes_that_nothing_reads_are_not_lost_in_silence(start, tmp_path):
    """barrier raises the error of those before it; of those behind it the job ends with the error, and not with 0."""
    assert start("unread").wait(90) == 1
    said = text(tmp_path / "output")
    for rank in range(2):
        assert "rank 0: push ['a']" in text(tmp_path / f"error-{rank}"), said
    assert said.count("its error was not raised anywhere: push: DistributedError") == 2
    assert "BAD TERMINATION" not in said


def test_a_rank_with_one_batch_more_than_the_others(start, tmp_path):
    assert start("more").wait(90) == 1
    said = text(tmp_path / "output")
    assert "weft: rank 1: an update was left out, as its exchange failed" in said
    assert "was not raised anywhere" not in said
    assert "BAD TERMINATION" not in said


def test_a_rank_that_raises(start, tmp_path):
    assert start("raises").wait(90) != 0
    said = text(tmp_path / "output")
    assert "out of data" in said
    assert "rank 1 ends the job because of this error" in said


def test_a_rank_that_exits(start, tmp_path):
    assert start("exits").wait(90) != 0
    assert "rank 1: end of the program" in text(tmp_path / "error-0")


@pytest.mark.parametrize(
    "after_s", [0.0, *(pytest.param(k / 50, marks=pytest.mark.full) for k in range(1, 50))]
)
def test_a_rank_that_is_killed(start, tmp_path, after_s):
    job = start("killed", n=3 if after_s else 2)
    until(lambda: int(text(tmp_path / "step-1") or 0) > 5, job)
    time.sleep(after_s)
    pid = int(text(tmp_path / "pid-1"))
    os.kill(pid, signal.SIGKILL)
    assert job.wait(60) != 0
    said = text(tmp_path / "output")
    for rank in range(3 if after_s else 2):
        if rank != 1:
            assert (
                f"weft: rank {rank}: rank 1 ({os.uname().nodename}, pid {pid}) has died; the job ends" in said
            )


def test_a_rank_that_is_stopped_is_named(start, tmp_path):
    job = start("stopped", WEFT_STALL_S="0.5")
    until(lambda: int(text(tmp_path / "step-1") or 0) > 5, job)
    pid = int(text(tmp_path / "pid-1"))
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: f"rank 1 ({os.uname().nodename}, pid {pid}): stopped" in text(tmp_path / "output"), job)
    finally:
        os.kill(pid, signal.SIGCONT)
    before = int(text(tmp_path / "step-0") or 0)
    until(lambda: int(text(tmp_path / "step-0") or 0) > before + 5, job)  # it goes on


def test_a_rank_that_never_comes_is_an_error(start, tmp_path):
    job = start("stopped", WEFT_STALL_S="0.5", WEFT_COLLECTIVE_TIMEOUT_S="1.5")
    until(lambda: int(text(tmp_path / "step-1") or 0) > 5, job)
    pid = int(text(tmp_path / "pid-1"))
    os.kill(pid, signal.SIGSTOP)
    try:
        # Where the exchange had begun there is nothing to raise: the job ends.
        said = lambda: text(tmp_path / "error-0") + text(tmp_path / "output")  # noqa: E731
        end = time.monotonic() + 60
        while "not all ranks came within 1.5 s" not in said():
            assert time.monotonic() < end, said()
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert job.wait(60) != 0
