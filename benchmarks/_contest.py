"""Sides of a comparison, each case in a process of its own, asked in turn: what disturbs the machine disturbs all.

A process that is not asked is stopped (SIGSTOP), with all its children: whatever its threads would do while they wait,
they do not take a core from the others. All run on the same few cores.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Side(NamedTuple):
    """How a side is started: its environment's Python and its program."""

    python: Path
    program: Path


class SideError(Exception):
    """A side that cannot do what it was asked; the text is the reason."""


class Process:
    """One side's process, stopped but while it answers. Lines it prints go to `log`."""

    def __init__(
        self, side: Side, environment: Mapping[str, str], cores: Sequence[int], log: Path, timeout_s: float
    ) -> None:
        self.timeout_s, self.log, self.buffer = timeout_s, log, b""
        try:
            with open(log, "ab") as errors:
                self.process = subprocess.Popen(
                    [side.python, side.program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                    env={**os.environ, **environment},
                    start_new_session=True,  # its children are stopped with it
                )
        except OSError as error:
            raise SideError(f"does not start: {error}") from None
        os.sched_setaffinity(self.process.pid, cores)  # long before it has threads, which inherit it
        try:
            self.hello = self._answer()
        except SideError:
            self.close()
            raise

    def ask(self, **request: Any) -> dict[str, Any]:
        self._signal(signal.SIGCONT)
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._ended() from None
        return self._answer()

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

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        end = time.monotonic() + self.timeout_s
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise SideError(f"no answer in {self.timeout_s:g} s")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise self._ended()
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until it has stopped
        answer = json.loads(line)
        if "error" in answer:
            raise SideError(answer["error"])
        return answer

    def _ended(self) -> SideError:
        self._signal(signal.SIGCONT)
        status = self.process.wait()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return SideError(f"{how}: {lines[-1][:300]}" if lines else how)


@dataclass
class Result:
    """What one way of one side took for a workload. runs: seconds of each; memory: MiB of each kind; error: why not."""

    workload: str
    precision: str
    side: str
    variant: str
    version: str = ""
    runs: list[float] = field(default_factory=list)
    others: float | None = None  # cores that other processes used, the median over samples
    prepare_s: float | None = None
    result: float | None = None
    memory: dict[str, float] = field(default_factory=dict)
    error: str = ""


class Arena:
    """Where contests are held: how sides are started, and how much they are asked."""

    def __init__(
        self,
        sides: Mapping[str, Side],
        folder: Path,
        cores: Sequence[int],
        environment: Mapping[str, str],
        turns: int = 8,
        budget_s: float = 1.0,
        timeout_s: float = 900,
        say: Callable[[str], None] = print,
    ) -> None:
        self.sides, self.folder, self.cores, self.say = sides, folder, cores, say
        self.turns, self.budget_s, self.timeout_s = turns, budget_s, timeout_s
        threads = str(len(cores))
        self.environment = {
            "BENCH_THREADS": threads,
            **{f"{name}_NUM_THREADS": threads for name in ("OMP", "MKL", "OPENBLAS", "WEFT")},
            **environment,
        }
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, side: str) -> Process:
        log = self.folder / f"{side}.log"
        return Process(self.sides[side], self.environment, self.cores, log, self.timeout_s)

    def hellos(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """What every side says of itself, and why some do not."""
        hellos, missing = {}, {}
        for side in self.sides:
            (self.folder / f"{side}.log").unlink(missing_ok=True)
            try:
                with self.start(side) as process:
                    hellos[side] = process.hello
            except SideError as error:
                missing[side] = str(error)
        return hellos, missing

    def contest(self, results: Sequence[Result], warm: int = 3) -> None:
        """Fill the results of one workload and precision, asking for samples in turn."""
        running: list[tuple[Result, Process]] = []
        try:
            for result in results:
                if process := self._prepared(result, warm):
                    running.append((result, process))
            others: dict[int, list[float]] = {id(result): [] for result in results}
            for turn in range(self.turns):
                # Nobody always follows the same one.
                for result, process in running if turn % 2 else running[::-1]:
                    if not result.error:
                        self._sample(result, process, others[id(result)])
            for result in results:
                if seen := sorted(others[id(result)]):
                    result.others = seen[len(seen) // 2]
        finally:
            for _, process in running:
                process.close()

    def memory(self, result: Result, workload: str) -> None:
        """Fill the result with what a case of a workload takes in a fresh process."""
        try:
            with self.start(result.side) as process:
                case = [workload, result.variant, result.precision]
                result.memory = process.ask(memory=case)
        except SideError as error:
            result.error = str(error)

    def _prepared(self, result: Result, warm: int) -> Process | None:
        self.say(f"{result.workload} {result.precision}: {result.side}, {result.variant}")
        try:
            process = self.start(result.side)
        except SideError as error:
            result.error = str(error)
            return None
        try:
            answer = process.ask(prepare=[result.workload, result.variant, result.precision], warm=warm)
        except SideError as error:
            process.close()
            result.error = str(error)
            return None
        result.prepare_s, result.result = answer["seconds"], answer["result"]
        return process

    def _sample(self, result: Result, process: Process, others: list[float]) -> None:
        try:
            answer = process.ask(sample=self.budget_s)
        except SideError as error:
            result.error = str(error)
            return
        result.runs += answer["runs"]
        if answer["others"] is not None:
            others.append(answer["others"])
