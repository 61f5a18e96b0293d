"""One side of a comparison: named measurements that a process of its own makes, one at a time, when it is asked to.

Two frameworks in one process share libgomp, and its threads go on spinning for a while after each region; so each has
a process, which is stopped while it is not asked, and a pause before its turn. Needs nothing but Python: it runs in
both environments.
"""

import atexit
import contextlib
import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

THREADS = 2
PAUSE_S = 0.004  # longer than idle threads of libgomp spin
SAMPLE_S = 0.02  # a sample is the best call within this time
LIMIT_S = 300.0  # for an answer

Sample = Callable[[], float]
Wait = Callable[[object], None]
clock = time.perf_counter


def calls(run: Callable[[], object], wait: Wait) -> Sample:
    """Seconds of one call, result included; the best of a few, behind one that warms caches."""

    def sample() -> float:
        best, end = float("inf"), clock() + SAMPLE_S
        for turn in range(1000):
            start = clock()
            wait(run())
            now = clock()
            if turn:
                best = min(best, now - start)
                if now > end:
                    break
        return best

    return sample


def loop(statement: str, wait: Wait, count: int = 10000, **names: object) -> Sample:
    """Seconds of `c = statement` in a plain loop, the wait for the last one included."""
    space = dict(names)
    exec(f"def run(n):\n for _ in range(n):\n  c = {statement}\n return c", space)
    run = space["run"]
    wait(run(count // 10))

    def sample() -> float:
        start = clock()
        wait(run(count))
        return (clock() - start) / count

    return sample


def serve(cases: Mapping[str, Callable[[], Sample]]) -> None:
    """Answers names of cases, one a line, with seconds. A case is prepared when it is first asked for, then kept."""
    samples: dict[str, Sample] = {}
    print(json.dumps(sorted(cases)), flush=True)
    for line in sys.stdin:
        name = line.strip()
        if name not in samples:
            samples.clear()  # the memory of one case at a time
            samples[name] = cases[name]()
        print(json.dumps(samples[name]()), flush=True)


class SideError(Exception):
    """A side that has ended, or does not answer."""


class Side:
    """A process that serves; `cases` are the names it knows.

    Stopped (SIGSTOP) but while it answers: threads of ONNX Runtime spin for 40 ms after a call, on a core that the side
    whose turn is next would not have.
    """

    def __init__(self, python: str | Path, program: Path) -> None:
        self.process = subprocess.Popen(
            [python, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        atexit.register(self.process.kill)  # nothing else would end a process that is stopped
        self.cases: list[str] = self._answer()

    def seconds(self, case: str) -> float:
        return float(self.answer(case))

    def answer(self, case: str) -> float | str:
        """What the side says to a case: seconds, or why there are none."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        time.sleep(PAUSE_S)  # all its threads wake up, spin, and sleep again
        with contextlib.suppress(BrokenPipeError):  # that it has ended is the answer
            print(case, file=self.process.stdin, flush=True)
        answer: float | str = self._answer()
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.send_signal(signal.SIGCONT)
        self.process.wait()
        atexit.unregister(self.process.kill)
        self.process.stdout.close()

    def _answer(self):
        assert self.process.stdout is not None
        program = Path(self.process.args[1]).name
        if not select.select([self.process.stdout], [], [], LIMIT_S)[0]:
            self.process.kill()
            raise SideError(f"{program}: no answer in {LIMIT_S:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise SideError(f"{program}: ended with status {self.process.wait()}")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)
