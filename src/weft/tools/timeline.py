"""When the engine ran what: a record of its operations and their steps, as a table and for a browser's trace viewer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from weft import _core
from weft.engine import Engine, OperationRecord, default_engine

__all__ = ["Span", "StepSpan", "Timeline"]


class Span(NamedTuple):
    """One operation. Seconds since the timeline began; thread: "wide 0" of the engine, or the name of another."""

    operation: str
    device: str
    thread: str
    pushed_s: float
    start_s: float
    end_s: float


class StepSpan(NamedTuple):
    """One step of a program: a kernel.

    operation: the program's name; number: the place among its plan.info.steps; name: the operators whose work it is;
    where: the line of the code that called them, "" if it is not known; bytes: of all operands and results, without
    what is repeated by broadcasting. device, thread, start_s, end_s: as in Span.
    """

    operation: str
    number: int
    name: str
    where: str
    device: str
    thread: str
    bytes: int
    start_s: float
    end_s: float


class Timeline:
    """Records the operations of an engine (the default one) while it is entered; at the end it waits for all of them.

    A call of a traced function is one operation, or a few; an eager call is one. Recording calls Python at the push,
    start and end of each, so operations of a few microseconds take several times as long as without it. The wait raises
    EngineError where an operation failed, as every wait does.

    steps: also record the steps of all programs in the process, without calling Python: about 0.2 us each. The step of
    a loop or a branch contains those of its body. Entering raises RuntimeError while another timeline records steps.

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

    def __init__(self, engine: Engine | None = None, *, steps: bool = False) -> None:
        self.engine = engine or default_engine()
        self.spans: list[Span] = []
        self.steps: list[StepSpan] = []
        self._records_steps = steps
        self._begin = time.perf_counter()
        self._pushed: dict[int, float] = {}
        self._started: dict[int, float] = {}
        self._threads: dict[int, str] = {}  # names, by the system's numbers

    def __enter__(self) -> Timeline:
        self.engine.wait_for_all()
        if self._records_steps and not _core.open_step_log():
            raise RuntimeError("Timeline: another one records steps now")
        self._begin = time.perf_counter()
        self.engine.add_observer(self)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.engine.wait_for_all()
        finally:
            self.engine.remove_observer(self)
            if self._records_steps:
                self.steps.extend(self._read_steps())
        self.spans.sort(key=lambda span: span.start_s)

    def _read_steps(self) -> list[StepSpan]:
        names = {thread.native_id: thread.name for thread in threading.enumerate()} | self._threads
        spans = [
            StepSpan(
                operation,
                number,
                name,
                where,
                str(device),
                names.get(thread, f"thread {thread}"),
                size,
                start_ns * 1e-9 - self._begin,
                end_ns * 1e-9 - self._begin,
            )
            for operation, number, name, where, device, thread, size, start_ns, end_ns in _core.close_step_log()
        ]
        return sorted(spans, key=lambda step: (step.start_s, -step.end_s))

    def _now(self) -> float:
        return time.perf_counter() - self._begin

    # The engine calls these three, from the threads where it happens.

    def on_push(self, record: OperationRecord) -> None:
        """An operation was pushed."""
        self._pushed[record.id] = self._now()

    def on_start(self, record: OperationRecord) -> None:
        """It started."""
        self._threads[threading.get_native_id()] = _thread_of(record)
        self._started[record.id] = self._now()

    def on_end(self, record: OperationRecord) -> None:
        """It ended, or was skipped without having started."""
        end = self._now()
        pushed = self._pushed.pop(record.id, 0.0)
        if record.id in self._started:
            start = self._started.pop(record.id)
            self.spans.append(
                Span(record.operation, str(record.device), _thread_of(record), pushed, start, end)
            )

    def totals(self) -> dict[str, tuple[int, float]]:
        """The count and the total seconds of each operation, longest first.

        >>> from weft.engine import Engine
        >>> from weft.tools.timeline import Timeline
        >>> with Engine(workers=1) as engine, Timeline(engine) as timeline:
        ...     for name in ("a", "b", "a"):
        ...         engine.push(lambda run_context: None, name=name)
        >>> sorted((name, count) for name, (count, _) in timeline.totals().items())
        [('a', 2), ('b', 1)]
        """
        totals: dict[str, tuple[int, float]] = {}
        for span in self.spans:
            count, seconds = totals.get(span.operation, (0, 0.0))
            totals[span.operation] = (count + 1, seconds + span.end_s - span.start_s)
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    def step_totals(self) -> dict[str, tuple[int, float, int]]:
        """The count, total seconds and total bytes of the steps of each name, longest first.

        >>> import weft as wf
        >>> from weft.tools.timeline import Timeline
        >>> f = wf.trace(lambda x: wf.exp(x @ x))
        >>> y = f(wf.ones((8, 8)))
        >>> with Timeline(steps=True) as timeline:
        ...     y = f(wf.ones((8, 8)))
        >>> list(timeline.step_totals())
        [...]
        """
        totals: dict[str, tuple[int, float, int]] = {}
        for step in self.steps:
            count, seconds, size = totals.get(step.name, (0, 0.0, 0))
            totals[step.name] = (count + 1, seconds + step.end_s - step.start_s, size + step.bytes)
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    def write(self, path: str | Path) -> None:
        """Write the spans as trace events in JSON, which chrome://tracing and ui.perfetto.dev show.

        Devices are processes there, threads of the engine are threads; steps are below their operation.
        Source: Trace Event Format, Chromium project.
        """
        Path(path).write_text(json.dumps({"traceEvents": list(self._events()), "displayTimeUnit": "ns"}))

    def _events(self) -> Iterator[dict[str, Any]]:
        entries: list[Span | StepSpan] = [*self.spans, *self.steps]
        devices = {device: k for k, device in enumerate(sorted({entry.device for entry in entries}))}
        threads = {thread: k for k, thread in enumerate(sorted({entry.thread for entry in entries}))}
        for device, pid in devices.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": device}}
            for thread, tid in threads.items():
                yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}}
        for entry in entries:
            args: dict[str, Any]
            if isinstance(entry, Span):
                name, args = entry.operation, {"waited_us": (entry.start_s - entry.pushed_s) * 1e6}
            else:
                name, args = entry.name, {"where": entry.where, "bytes": entry.bytes, "number": entry.number}
            yield {
                "ph": "X",
                "name": name,
                "pid": devices[entry.device],
                "tid": threads[entry.thread],
                "ts": entry.start_s * 1e6,
                "dur": (entry.end_s - entry.start_s) * 1e6,
                "args": args,
            }

    def __str__(self) -> str:
        operations = self.totals()
        text = _table("operation", [], {name: (*total, ()) for name, total in operations.items()})
        if not self.steps:
            return text
        steps = {
            name: (count, seconds, (f"{size / max(seconds, 1e-9) * 1e-9:6.1f}",))
            for name, (count, seconds, size) in self.step_totals().items()
        }
        return text + "\n\n" + _table("step", ["  GB/s"], steps)


def _thread_of(record: OperationRecord) -> str:
    """The name of the thread that calls an observer about the operation's start or end."""
    return threading.current_thread().name if record.worker < 0 else f"{record.queue} {record.worker}"


def _table(what: str, more: list[str], rows: Mapping[str, tuple[int, float, tuple[str, ...]]]) -> str:
    """Lines of names, counts, milliseconds, shares, and the cells of more columns."""
    whole = sum(seconds for _, seconds, _ in rows.values()) or 1.0
    width = max([len(what), *map(len, rows)])
    lines = ["  ".join([f"{what:{width}}", "count", "total ms", "share", *more])]
    for name, (count, seconds, cells) in rows.items():
        numbers = [f"{count:5}", f"{seconds * 1e3:8.3f}", f"{seconds / whole:5.0%}"]
        lines.append("  ".join([f"{name:{width}}", *numbers, *cells]))
    return "\n".join(lines)
