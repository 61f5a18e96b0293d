"""A side of the comparison: a process that answers one request a line, in JSON, about the cases it knows.

    {"prepare": [workload, variant, precision], "warm": 3}   builds the case and runs it to warm up
    {"sample": 1.0}                                          runs it for that many seconds, at least once
    {"memory": [workload, variant, precision]}               what the case takes, in a process that did nothing else

Its first line says who it is: name, version, cases. An answer with "error" says why there is no other. Needs nothing
but Python: it runs in the environments of all peers. Between requests the process may be stopped by a signal.
"""

import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

BENCH_THREADS = int(os.environ.get("BENCH_THREADS", "2"))
SHORT_S = (
    0.3  # runs shorter than this are repeated once before a sample counts: others had the caches meanwhile
)
LONG_S = 0.1  # what is shorter says nothing of the machine's load, which is counted in hundredths of a second

Run = Callable[[], object]
Build = Callable[[str, str], Run]  # of variant and precision


class Case(NamedTuple):
    """workload: a name of _workloads.py; variant: a way of this side to compute it; precision: f32 or bf16."""

    workload: str
    variant: str
    precision: str


class Cases(dict[Case, Build]):
    """What a side knows: functions that build runs."""

    def add(self, workload: str, *variants: str, precisions: tuple[str, ...] = ("f32", "bf16")):
        """Registers a function for some ways to compute a workload."""

        def register(build: Build) -> Build:
            self.update({Case(workload, v, p): build for v in variants for p in precisions})
            return build

        return register

    def run_of(self, case: list[str]) -> Run:
        workload, variant, precision = case
        return self[Case(workload, variant, precision)](variant, precision)


def seconds_of(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def busy_s() -> tuple[float, float]:
    """CPU seconds that everything on the machine has used, and this process with its finished children."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def sample(run: Run, budget_s: float) -> dict:
    """Seconds of each run, and the cores that other processes used meanwhile."""
    start, (all_before, own_before) = time.perf_counter(), busy_s()
    first = seconds_of(run)
    runs = [first] if first >= SHORT_S else []
    while not runs or time.perf_counter() - start < budget_s:
        runs.append(seconds_of(run))
    took, (all_after, own_after) = time.perf_counter() - start, busy_s()
    others = (all_after - all_before) - (own_after - own_before)
    return {"runs": runs, "others": round(max(0.0, others) / took, 2) if took > LONG_S else None}


def prepare(build: Callable[[], Run], warm: int) -> tuple[Run, dict]:
    """The case, warm, with the seconds that took and what its last run gave if that is a number."""
    start = time.perf_counter()
    run = build()
    result: object = None
    for _ in range(warm):
        result = run()
    seconds = time.perf_counter() - start
    return run, {"seconds": seconds, "result": result if isinstance(result, float | int) else None}


def resident_mib(field: str) -> float:
    """VmRSS or VmHWM of this process."""
    with open("/proc/self/status") as file:
        match = re.search(rf"{field}:\s+(\d+)", file.read())
    assert match
    return int(match[1]) / 1024


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def memory(build: Callable[[], Run], imported_mib: float) -> dict:
    """MiB: right after import, built, the peak of three first runs, and of two more."""
    run = build()
    built = resident_mib("VmRSS")
    peaks = []
    for runs in (3, 2):
        forget_peak()
        for _ in range(runs):
            run()
        peaks.append(resident_mib("VmHWM"))
    return {"imported": imported_mib, "built": built, "peak": peaks[0], "steady": peaks[1]}


def end_with_parent() -> None:
    """Be killed when the driver ends, however it ends: a stopped process would stay for ever, with its memory."""
    import ctypes

    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def serve(name: str, version: str, cases: Cases) -> None:
    """Answer until there are no more requests. To be called when the framework has been imported."""
    imported_mib = resident_mib("VmRSS")
    end_with_parent()
    # Answers have a stream of their own: what libraries print goes to the log.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # it is there when the process dies, too
    print(json.dumps({"name": name, "version": version, "cases": sorted(cases)}), file=answers, flush=True)
    run: Run | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                run = None  # the memory of one case at a time
                run, answer = prepare(partial(cases.run_of, request["prepare"]), request["warm"])
            elif "memory" in request:
                answer = memory(partial(cases.run_of, request["memory"]), imported_mib)
            else:
                assert run, "prepare comes first"
                answer = sample(run, request["sample"])
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {first_line}"[:300]}
            traceback.print_exc()
        print(json.dumps(answer), file=answers, flush=True)
