"""One side of a comparison as a process, which is stopped while it is not asked.

Stopped (SIGSTOP) with all its children: whatever its threads would do while they wait, they do not take a core from
the others.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LEAVING_S = 10  # after its last answer


class Side(NamedTuple):
    """How a side is started: its environment's Python and its program."""

    python: Path
    program: Path


class SideError(Exception):
    """A side that cannot do what it was asked; the text is the reason."""


@contextlib.contextmanager
def with_bytecode() -> Iterator[dict[str, str]]:
    """The environment of fresh processes that find the bytecode of all modules, as where a package was installed.

    The first such process writes it, so its times are not to be counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        yield environment


class Process:
    """One side's process, stopped but while it answers. Lines it prints go to `log`."""

    def __init__(
        self, side: Side, environment: Mapping[str, str], cores: Sequence[int], log: Path, limit_s: float
    ) -> None:
        self.log, self.buffer = log, b""
        self.log_begin = log.stat().st_size if log.exists() else 0
        try:
            with open(log, "ab") as errors:
                self.process = subprocess.Popen(
                    [side.python, side.program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                    env={**os.environ, **environment},
                    start_new_session=True,  # its children are stopped with it, and Ctrl-C does not reach it
                )
        except OSError as error:
            raise SideError(f"does not start: {error}") from None
        try:
            os.sched_setaffinity(self.process.pid, cores)  # long before it has threads, which inherit it
            self.hello = self._answer(limit_s)
        except BaseException:
            self.close()
            raise

    def ask(self, limit_s: float, **request: Any) -> dict[str, Any]:
        """The answer; SideError where there is none within the limit, or it is an error."""
        self._signal(signal.SIGCONT)
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._ended() from None
        return self._answer(limit_s)

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _signal(self, number: int) -> None:
        # The group lives as long as its leader is not waited for, so that this cannot hit another one.
        if self.process.returncode is None:
            os.killpg(self.process.pid, number)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        assert self.process.stdout
        end = time.monotonic() + limit_s
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise SideError(f"no answer in {limit_s:g} s")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise self._ended()
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until it has stopped
        try:
            answer = json.loads(line)
        except ValueError:
            raise SideError(f"answered {line[:80].decode(errors='replace')!r}, which is not JSON") from None
        if "error" in answer:
            raise SideError(answer["error"])
        return answer

    def _ended(self) -> SideError:
        self._signal(signal.SIGCONT)
        end = time.monotonic() + LEAVING_S
        while not os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        self._signal(signal.SIGKILL)  # what it left behind
        status = self.process.wait()
        lines = self.log.read_bytes()[self.log_begin :].decode(errors="replace").strip().splitlines()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return SideError(f"{how}: {lines[-1][:300]}" if lines else how)
