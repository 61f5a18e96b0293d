"""profile(): what a program did, as tables, warnings and a page for the browser.

>>> import weft as wf
>>> f = wf.trace(lambda x: wf.sum(wf.exp(x @ x)))
>>> x = wf.ones((64, 64))
>>> y = f(x)
>>> with wf.tools.profile() as p:
...     for _ in range(3):
...         y = f(x)
>>> p.table()[0]["calls"] >= 3
True
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.engine import Engine
from weft.tools.advice import Advice, advice_on
from weft.tools.allocations import allocations_of, peak
from weft.tools.page import profile_page
from weft.tools.peaks import machine_peaks
from weft.tools.recording import LIMIT, ProcessRecorder, ProcessRecording, read_recording, write_recording
from weft.tools.timeline_events import BY, Events, events_of, exchange_rows, offset_of, steps_of, worker_of

__all__ = ["Profile", "profile"]


class Profile:
    """The recordings of one or several processes.

    recordings: of each process. seconds: from the first event to the last.
    """

    def __init__(self, recordings: Sequence[ProcessRecording] = ()) -> None:
        self.recordings = list(recordings)
        self._events: Events | None = None

    @property
    def recording(self) -> ProcessRecording:
        """Of the first process. Raises RuntimeError before the recording has ended."""
        if not self.recordings:
            raise RuntimeError("profile: the recording has not ended: leave the with block first")
        return self.recordings[0]

    @property
    def seconds(self) -> float:
        """The duration."""
        return max((r.seconds + offset_of(self.recordings[0], r) for r in self.recordings), default=0.0)

    @property
    def events(self) -> Events:
        """All events in lanes."""
        if self._events is None:
            self.recording  # noqa: B018 - raises if there is none
            self._events = events_of(self.recordings)
        return self._events

    def table(self, by: str = "operator", *, step: int | None = None) -> list[dict[str, Any]]:
        """The parts of the work, longest first: rows of calls, seconds, least_s, share, flop_s, byte_s, share_of_peak.

        by: "operator", "module", "line", "shapes" or "program". step: of this step of the program only. share: of all
        work. flop_s, byte_s: per second. share_of_peak: of what the machine can do, of that it is nearest to. Times
        are of kernels, summed over threads, without what ran inside of them. least_s: if each had taken as long as the
        shortest one of the same operator, shapes, line and module, as if the machine did nothing else. Raises
        ValueError for another word, IndexError if there is no such step.
        """
        if by not in BY:
            raise ValueError(f"table: by must be one of {', '.join(BY)}, got {by!r}")
        rows = self.events.table(BY[by], *_limits(self.recording, step))
        whole = sum(work.seconds for work in rows.values()) or 1.0
        flops_peak, bytes_peak = machine_peaks()
        return [
            {
                by: name,
                "calls": work.calls,
                "seconds": work.seconds,
                "least_s": work.least_s,
                "share": work.seconds / whole,
                "flop_s": work.flops / max(work.seconds, 1e-12),
                "byte_s": work.bytes / max(work.seconds, 1e-12),
                "share_of_peak": max(work.flops / flops_peak, work.bytes / bytes_peak)
                / max(work.seconds, 1e-12),
            }
            for name, work in rows.items()
        ]

    def exchanges(self, *, step: int | None = None) -> list[dict[str, Any]]:
        """The exchanges with other processes: rows of name, calls, bytes, waiting_s, moving_s, hidden, worker.

        For each process its exchanges by name, the longest first, and, of several, their sum as "all". bytes: of the
        process's own arrays. waiting_s: until all others were ready, too; moving_s: while data moved. hidden: the share
        of both in which the process's kernels ran. step: of exchanges that began in this step of the program only.
        Raises IndexError if there is no such step.

        >>> profile().exchanges()
        []
        """
        rows = []
        for k, r in enumerate(self.recordings):
            worker = worker_of(self.recordings, k)
            rows += [{**row._asdict(), "worker": worker} for row in exchange_rows(r, *_limits(r, step))]
        return sorted(rows, key=lambda row: (len(row["worker"]), row["worker"]))

    def steps(self) -> list[dict[str, Any]]:
        """The steps of the program: name, start_s, end_s, and the seconds of kernels in each."""
        events, steps = self.events, steps_of(self.recording)
        work = np.nonzero(events.counts)[0]
        work = work[np.argsort(events.start[work], kind="stable")]
        total = np.concatenate([[0.0], np.cumsum(events.self_seconds[work])])
        first, end = (
            np.searchsorted(events.start[work], [getattr(s, name) for s in steps])
            for name in ("start_s", "end_s")
        )
        seconds = total[end] - total[first]
        return [
            {"name": s.name, "start_s": s.start_s, "end_s": s.end_s, "kernel_seconds": float(seconds[k])}
            for k, s in enumerate(steps)
        ]

    def compare_steps(self, a: int, b: int) -> list[tuple[str, float, float]]:
        """(operator, seconds in step a, seconds in step b), the largest difference first.

        Raises IndexError if there is no such step.
        """
        seconds = [
            {row["operator"]: row["seconds"] for row in self.table("operator", step=k)} for k in (a, b)
        ]
        rows = [
            (name, seconds[0].get(name, 0.0), seconds[1].get(name, 0.0))
            for name in {**seconds[0], **seconds[1]}
        ]
        return sorted(rows, key=lambda row: -abs(row[2] - row[1]))

    def warnings(self) -> list[Advice]:
        """Warnings, each with its line and advice."""
        return [advice for r in self.recordings for advice in advice_on(r)]

    def to_csv(self, path: str | os.PathLike[str], by: str = "operator") -> None:
        """Write a table as CSV with a header."""
        rows = self.table(by)
        text = io.StringIO()
        columns = list(rows[0]) if rows else [by, "calls", "seconds"]
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(rows)
        Path(path).write_text(text.getvalue())

    def to_chrome(self, path: str | os.PathLike[str]) -> None:
        """Write trace events in JSON, which ui.perfetto.dev and chrome://tracing show.

        Workers are processes there, lanes are threads, arrows go from a push to its operation.
        Source: Trace Event Format, Chromium project.
        """
        with open(path, "w") as file:
            file.write('{"displayTimeUnit":"ns","traceEvents":[')
            for k, event in enumerate(self._chrome_events()):
                file.write((",\n" if k else "\n") + json.dumps(event))
            file.write("]}\n")

    def _chrome_events(self) -> Iterator[dict[str, Any]]:
        events = self.events
        workers = {worker: k for k, worker in enumerate(dict.fromkeys(lane.worker for lane in events.lanes))}
        for worker, pid in workers.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": worker or "weft"}}
        lane_of = np.zeros(len(events), np.int64)
        for tid, lane in enumerate(events.lanes):
            lane_of[lane.first : lane.last] = tid
            name = f"{lane.thread} {lane.kind}" + (f" {lane.depth}" if lane.depth else "")
            common = {"ph": "M", "pid": workers[lane.worker], "tid": tid}
            yield {**common, "name": "thread_name", "args": {"name": name}}
            yield {**common, "name": "thread_sort_index", "args": {"sort_index": tid}}
        for tid, lane in enumerate(events.lanes):
            for k in range(lane.first, lane.last):
                d = events.details[events.detail[k]]
                facts = {name: value for name, value in d._asdict().items() if value and name != "name"}
                ids = {"pid": workers[lane.worker], "tid": tid}
                start = float(events.start[k]) * 1e6
                yield {
                    **ids,
                    "ph": "X",
                    "name": d.name,
                    "cat": d.kind,
                    "ts": start,
                    "dur": float(events.seconds[k]) * 1e6,
                    "args": facts,
                }
                parent = int(events.parent[k])
                if lane.kind == "operation" and parent >= 0:
                    parent_lane = events.lanes[int(lane_of[parent])]
                    flow = {"name": "push", "cat": "flow", "id": k}
                    pushed = float(events.start[parent]) * 1e6
                    source = {"pid": workers[parent_lane.worker], "tid": int(lane_of[parent])}
                    yield {**flow, **source, "ph": "s", "ts": pushed}
                    yield {**flow, **ids, "ph": "f", "bp": "e", "ts": start}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML file that shows all of it in a browser, without a network.

        Times of kernels are compared with what the machine can do, which is measured now, in some 0.2 s.
        """
        Path(path).write_text(profile_page(self))

    def dump(self, path: str | os.PathLike[str], worker: str = "") -> None:
        """Write the recording to a file, to be shown with those of other processes: see load.

        worker: a name for this process in the timeline. Raises RuntimeError before the recording has ended.
        """
        recording = self.recording
        if worker:
            recording.facts["worker"] = worker
        write_recording(recording, path)

    @staticmethod
    def load(*paths: str | os.PathLike[str]) -> Profile:
        """Join the recordings that processes of one machine wrote with dump, on their common clock.

        Tables add up the work of all; steps and memory are those of the first. Raises ValueError for other files.
        """
        if not paths:
            raise ValueError("load: takes the files that dump wrote")
        recordings = [read_recording(path) for path in paths]
        first = min(recordings, key=lambda r: r.facts.get("begin_ns", 0))
        joined = Profile([first, *(r for r in recordings if r is not first)])
        for k, r in enumerate(recordings):
            if len(recordings) > 1:
                r.facts.setdefault("worker", f"worker {k}")
        return joined

    def __str__(self) -> str:
        """The table of operators, memory and warnings."""
        lines = [
            f"{'operator':40} {'calls':>7} {'ms':>10} {'share':>6} {'GFLOP/s':>8} {'GB/s':>7} {'peak':>5}"
        ]
        for row in self.table()[:20]:
            lines.append(
                f"{row['operator'][:40]:40} {row['calls']:7} {row['seconds'] * 1e3:10.3f} {row['share']:6.1%} "
                f"{row['flop_s'] * 1e-9:8.1f} {row['byte_s'] * 1e-9:7.1f} {row['share_of_peak']:5.0%}"
            )
        for r in self.recordings:
            _, peak_bytes, _ = peak(r, allocations_of(r))
            lines.append(f"memory: {peak_bytes / 2**20:.1f} MiB at most")
        lines += [f"{w.kind}: {w.text.splitlines()[-1]}\n  at {w.where or '?'}" for w in self.warnings()]
        return "\n".join(lines)


def _limits(recording: ProcessRecording, step: int | None) -> tuple[float, float]:
    """Begin and end, in seconds, of a step of the program; of None all times."""
    if step is None:
        return 0.0, np.inf
    limits = steps_of(recording)[step]
    return limits.start_s, limits.end_s


class profile(Profile):  # its public name
    """Record what the process does inside ``with``: operations, kernels, memory, planning, waiting.

    engines: whose operations are recorded besides the process's own engine. memory=False: no allocations. limit: most
    events. Afterwards it is a Profile: save(path) writes the page, table() and warnings() say what is on it.
    ``step()`` marks the end of a step of the program, for comparing steps; without marks steps go from batch to batch
    of a DataLoader, or from call to call of the largest traced function. Where the block raises, what was recorded
    until then can be read. Entering and leaving wait for all pending operations. Raises RuntimeError if the process
    is being recorded already.

    >>> import weft as wf
    >>> x = wf.ones((32, 32))
    >>> with wf.tools.profile() as p:
    ...     for _ in range(3):
    ...         y = x @ x
    ...         p.step()
    >>> len(p.steps()), p.table()[0]["operator"]
    (3, 'matmul')
    """

    def __init__(self, engines: Iterable[Engine] = (), *, memory: bool = True, limit: int = LIMIT) -> None:
        super().__init__()
        self._recorder = ProcessRecorder(engines, memory=memory, limit=limit)

    def step(self, name: str = "") -> None:
        """A step of the program ends here."""
        self._recorder.mark(name)

    def __enter__(self) -> profile:
        self._recorder.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._recorder.__exit__(kind, error, trace)
        finally:
            self.recordings = [self._recorder.recording]
