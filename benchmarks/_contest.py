"""Ways to compute a workload, each in a process of its own, asked in turn: what disturbs the machine disturbs all."""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _machine import OTHERS_LIMIT
from _process import Process, Side, SideError

OURS = "weft"
SLOW_S = 20.0  # a run: who takes longer is asked once
BEHIND = 1.5  # times the quickest of its group: who takes longer after the first turns is not asked again
PREPARE_LIMIT_S, SAMPLE_LIMIT_S = (
    900.0,
    300.0,
)  # torch.compile takes 66 s for ResNet-50; JAX 9 s for a run of it
CACHES = ("WEFT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")  # where sides keep what they compiled


@dataclass
class Result:
    """What one way of one side took for a workload.

    run: of several that were made one after the other, each by fresh processes. runs: seconds of each measurement;
    memory: MiB of each kind; error: why there are none, or no more; dropped: how far behind it was when left out.
    """

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
    dropped: str = ""
    run: int = 1

    @property
    def way(self) -> str:
        return f"{self.side}, {self.variant}"


@dataclass
class Entry:
    """A way that takes part. others: cores that other processes used during each of its samples."""

    result: Result
    process: Process
    others: list[float] = field(default_factory=list)

    def sample(self, budget_s: float) -> None:
        try:
            answer = self.process.ask(SAMPLE_LIMIT_S, sample=budget_s)
        except SideError as error:
            self.result.error = str(error)
            self.close()  # at once: who did not answer in time still computes
            return
        self.result.runs += answer["runs"]
        if answer["others"] is not None:
            self.others.append(answer["others"])

    def close(self) -> None:
        """End the process, and say what the machine did beside it."""
        self.process.close()
        if self.others:
            self.result.others = statistics.median_low(self.others)


def contenders(entries: Sequence[Entry]) -> list[Entry]:
    """Those who may still be the best of weft's ways, or of the peers'; the others are closed, with the reason.

    Who was disturbed stays: a spinning team on a busy machine may take a hundred times as long as on a quiet one.
    """
    remaining = []
    for entry in entries:
        ours = entry.result.side == OURS
        group = [each.result for each in entries if (each.result.side == OURS) == ours]
        leader = min(group, key=lambda result: min(result.runs))
        ratio = min(entry.result.runs) / min(leader.runs)
        disturbed = entry.others and statistics.median_low(entry.others) > OTHERS_LIMIT
        if ratio > BEHIND and not disturbed:
            entry.result.dropped = f"{ratio:.1f} x {leader.way}"
            entry.close()
        else:
            remaining.append(entry)
    return remaining


def quick_enough(entries: Sequence[Entry]) -> list[Entry]:
    """Those whose runs do not take so long that the machine can hardly be meant for them; the others are closed."""
    remaining = []
    for entry in entries:
        if (seconds := min(entry.result.runs)) > SLOW_S:
            entry.result.dropped = f"a run takes {seconds:.0f} s, the limit is {SLOW_S:.0f}"
            entry.close()
        else:
            remaining.append(entry)
    return remaining


class Arena:
    """Where contests are held: how sides are started, and how much they are asked.

    turns: samples of each way, of budget_s seconds each; after `trial` of them only contenders go on.
    """

    def __init__(
        self,
        sides: Mapping[str, Side],
        folder: Path,
        cores: Sequence[int],
        environment: Mapping[str, str],
        turns: int = 8,
        budget_s: float = 1.0,
        trial: int | None = None,
        warm: int = 3,
        say: Callable[[str], None] = print,
    ) -> None:
        self.sides, self.folder, self.cores, self.say = sides, folder, cores, say
        self.turns, self.budget_s, self.trial, self.warm = turns, budget_s, trial, warm
        threads = str(len(cores))
        self.environment = {
            "BENCH_THREADS": threads,
            **{f"{name}_NUM_THREADS": threads for name in ("OMP", "MKL", "OPENBLAS", "WEFT")},
            **environment,
        }
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, side: str, environment: Mapping[str, str] | None = None) -> Process:
        log = self.folder / f"{side}.log"
        variables = {**self.environment, **(environment or {})}
        return Process(self.sides[side], variables, self.cores, log, PREPARE_LIMIT_S)

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

    def contest(self, results: Sequence[Result]) -> None:
        """Fill the results of one workload and precision, asking for samples in turn."""
        entries: list[Entry] = []
        try:
            for result in results:
                if process := self._prepare(result):
                    entries.append(Entry(result, process))
            for turn in range(self.turns):
                # Nobody always follows the same one.
                for entry in entries if turn % 2 else entries[::-1]:
                    entry.sample(self.budget_s)
                entries = [entry for entry in entries if not entry.result.error]
                if not turn and self.trial:
                    entries = quick_enough(entries)
                if turn + 1 == self.trial < self.turns:
                    entries = contenders(entries)
        finally:
            for entry in entries:
                entry.close()

    def memory(self, result: Result, workload: str) -> None:
        """Fill the result with what a case of a workload takes in a fresh process, which has to compile everything."""
        self.say(f"{result.workload} {result.precision}: {result.way}")
        case = [workload, result.variant, result.precision]
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as empty:
            try:
                with self.start(result.side, dict.fromkeys(CACHES, empty)) as process:
                    result.memory = process.ask(PREPARE_LIMIT_S, memory=case)
            except SideError as error:
                result.error = str(error)

    def _prepare(self, result: Result) -> Process | None:
        self.say(f"{result.workload} {result.precision}: {result.way}")
        try:
            process = self.start(result.side)
        except SideError as error:
            result.error = str(error)
            return None
        try:
            case = [result.workload, result.variant, result.precision]
            answer = process.ask(PREPARE_LIMIT_S, prepare=case, warm=self.warm)
        except BaseException as error:
            process.close()
            if not isinstance(error, SideError):
                raise
            result.error = str(error)
            return None
        result.prepare_s, result.result = answer["seconds"], answer["result"]
        return process
