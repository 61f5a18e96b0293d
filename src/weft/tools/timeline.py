"""When the engine ran what: a record of its operations, as a table and as a file for a browser's trace viewer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from weft.engine import Engine, OperationRecord, default_engine

__all__ = ["Span", "Timeline"]


class Span(NamedTuple):
    """One operation. Seconds since the timeline began; thread: "wide 0" of the engine, or the name of another."""

    operation: str
    device: str
    thread: str
    pushed_s: float
    start_s: float
    end_s: float


class Timeline:
    """Records the operations of an engine (the default one) while it is entered; at the end it waits for all of them.

    A call of a traced function is one operation, or a few; an eager call is one. Recording calls Python at the push,
    start and end of each, so operations of a few microseconds take several times as long as without it. The wait raises
    EngineError where an operation failed, as every wait does.

    >>> import weft as wf
    >>> from weft.tools.timeline import Timeline
    >>> a = wf.ones((64, 64))
    >>> with Timeline() as timeline:
    ...     b = a @ a + 1
    >>> [span.operation for span in timeline.spans]
    ['matmul', 'add']
    >>> print(timeline)
    operation  count  total ms  share
    ...
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or default_engine()
        self.spans: list[Span] = []
        self._begin = time.perf_counter()
        self._pushed: dict[int, float] = {}
        self._started: dict[int, float] = {}

    def __enter__(self) -> Timeline:
        self.engine.wait_for_all()
        self._begin = time.perf_counter()
        self.engine.add_observer(self)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.engine.wait_for_all()
        finally:
            self.engine.remove_observer(self)
        self.spans.sort(key=lambda span: span.start_s)

    def _now(self) -> float:
        return time.perf_counter() - self._begin

    # The engine calls these three, from the threads where it happens.

    def on_push(self, record: OperationRecord) -> None:
        """An operation was pushed."""
        self._pushed[record.id] = self._now()

    def on_start(self, record: OperationRecord) -> None:
        """It started."""
        self._started[record.id] = self._now()

    def on_end(self, record: OperationRecord) -> None:
        """It ended, or was skipped without having started."""
        end = self._now()
        pushed = self._pushed.pop(record.id, 0.0)
        if record.id in self._started:
            inline = record.worker < 0
            thread = threading.current_thread().name if inline else f"{record.queue} {record.worker}"
            start = self._started.pop(record.id)
            self.spans.append(Span(record.operation, str(record.device), thread, pushed, start, end))

    def totals(self) -> dict[str, tuple[int, float]]:
        """How often each operation ran and its seconds in total, longest first.

        >>> from weft.engine import Engine
        >>> from weft.tools.timeline import Timeline
        >>> with Engine(workers=1) as engine, Timeline(engine) as timeline:
        ...     for name in ("a", "b", "a"):
        ...         engine.push(lambda run_context: None, name=name)
        >>> sorted((name, count) for name, (count, _) in timeline.totals().items())
        [('a', 2), ('b', 1)]
        """
        found: dict[str, tuple[int, float]] = {}
        for span in self.spans:
            count, seconds = found.get(span.operation, (0, 0.0))
            found[span.operation] = (count + 1, seconds + span.end_s - span.start_s)
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))

    def write(self, path: str | Path) -> None:
        """Write the spans as trace events in JSON, which chrome://tracing and ui.perfetto.dev show.

        Devices are processes there, threads of the engine are threads.
        Source: Trace Event Format, Chromium project.
        """
        Path(path).write_text(json.dumps({"traceEvents": list(self._events()), "displayTimeUnit": "ns"}))

    def _events(self) -> Iterator[dict[str, Any]]:
        devices = {device: k for k, device in enumerate(sorted({span.device for span in self.spans}))}
        threads = {name: k for k, name in enumerate(sorted({span.thread for span in self.spans}))}
        for device, pid in devices.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": device}}
            for thread, tid in threads.items():
                yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}}
        for span in self.spans:
            yield {
                "ph": "X",
                "name": span.operation,
                "pid": devices[span.device],
                "tid": threads[span.thread],
                "ts": span.start_s * 1e6,
                "dur": (span.end_s - span.start_s) * 1e6,
                "args": {"waited_us": (span.start_s - span.pushed_s) * 1e6},
            }

    def __str__(self) -> str:
        totals = self.totals()
        whole = sum(seconds for _, seconds in totals.values()) or 1.0
        width = max([len("operation"), *map(len, totals)])
        lines = [f"{'operation':{width}}  count  total ms  share"]
        for name, (count, seconds) in totals.items():
            lines.append(f"{name:{width}}  {count:5}  {seconds * 1e3:8.3f}  {seconds / whole:5.0%}")
        return "\n".join(lines)
