"""Everything that a process does, written down while it runs: what the profiler and the memory tool show.

>>> import weft as wf
>>> from weft.tools.recording import ProcessRecorder
>>> a = wf.ones((64, 64))
>>> with ProcessRecorder() as recorder:
...     b = a @ a
...     b.wait()
>>> [recorder.recording.names[k] for k in recorder.recording.operations["name"]]
['matmul']

The native core notes operations of engines, steps of programs, memory and waits (native/calls/recording.h); here
are added what Python does (weft.base.events), exchanges, calls of modules, and batches that the program waits for.
Times are seconds since the recording began; a ProcessRecording is plain arrays and lists, and holds nothing of the
running process any more.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import _core
from weft.base import events
from weft.base.users_line import users_line
from weft.data.loader import DataLoader
from weft.engine import Engine, default_engine
from weft.executor import plan_info
from weft.module.module import Module
from weft.ops.families.epilogue import Epilogue
from weft.recording.paths import known_paths, number_of, path_of, path_with
from weft.tools import flops
from weft.tools.wrapping import wrap

__all__ = [
    "Exchange",
    "MarkedStep",
    "Moment",
    "Note",
    "ProcessRecorder",
    "ProcessRecording",
    "mark_step",
    "read_recording",
    "write_recording",
]

# As native/calls/recording.h has them.
OPERATION = np.dtype(
    [
        ("id", "u8"),
        ("pushed", "i8"),
        ("started", "i8"),
        ("ended", "i8"),
        ("name", "u4"),
        ("site", "u4"),
        ("context", "u4"),
        ("push_thread", "u4"),
        ("run_thread", "u4"),
        ("queue", "u1"),
        ("worker", "i1"),
        ("device", "i2"),
        ("failed", "u4"),
        ("engine", "u4"),
    ]
)
MEMORY = np.dtype(
    [
        ("time", "i8"),
        ("address", "u8"),
        ("bytes", "u8"),
        ("operation", "u8"),
        ("site", "u4"),
        ("context", "u4"),
        ("thread", "u4"),
        ("shape", "u4"),
        ("device", "i2"),
        ("is_release", "u2"),
        ("unused", "u4"),
    ]
)
WAIT = np.dtype(
    [
        ("start", "i8"),
        ("end", "i8"),
        ("site", "u4"),
        ("context", "u4"),
        ("thread", "u4"),
        ("unused", "u4"),
    ]
)
STEP = np.dtype(
    [
        ("start", "i8"),
        ("end", "i8"),
        ("bytes", "i8"),
        ("operation", "u8"),
        ("serial", "i8"),
        ("step", "u4"),
        ("name", "u4"),
        ("where", "u4"),
        ("thread", "u4"),
        ("shapes", "u4"),
        ("program", "u4"),
    ]
)
STREAM = np.dtype([("start", "i8"), ("end", "i8"), ("operation", "i8"), ("stream", "u4"), ("unused", "u4")])
QUEUES = ("compute", "wide", "copy", "io", "priority")
LIMIT = 4_000_000  # events
CONTAINER_DISTANCE = (
    4096  # steps, of all threads, between the start of a loop and that of the first of its steps
)


class Moment(NamedTuple):
    """Something that Python did: kind "plan", "optimize", "compile", "trace", "module" or "data"; seconds.

    module: the path of the module in which it did so.
    """

    kind: str
    name: str
    where: str
    thread: int
    start_s: float
    end_s: float
    module: str = ""


class Exchange(NamedTuple):
    """An exchange with other processes, in seconds: when it was requested, when this process was ready, when all were.

    name: what it does; arrays: their types; bytes: of this process's part; number: of a collective, the same on all
    ranks, else 0.
    """

    name: str
    arrays: str
    where: str
    bytes: int
    number: int
    requested_s: float
    start_s: float
    agreed_s: float
    end_s: float


class Note(NamedTuple):
    """Something that was said meanwhile: kind "warning" or "error"."""

    kind: str
    text: str
    where: str
    time_s: float


class MarkedStep(NamedTuple):
    """One step of the user's program, from mark to mark."""

    name: str
    start_s: float
    end_s: float


class ProcessRecording:
    """A recording: structured arrays whose times are nanoseconds since the beginning, and the texts they number.

    operations, memory, waits, steps, streams: arrays of OPERATION, MEMORY, WAIT, STEP and STREAM; step_work numbers
    `work` for each step. streams: when streams of devices were at work for an operation, or none (-1), by their own
    clocks; stream_names: by number. names, sites, contexts, shapes: texts by number, "" at 0. moments, notes,
    exchanges: of Python. marks: seconds at which a step of the user's ended. threads: names by the system's number.
    facts: of the machine and the process. seconds: how long it lasted. held: the memory that was there before, as
    MEMORY; held_bytes: of all of it. dropped: events there was no room for.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.operations = np.zeros(0, OPERATION)
        self.memory = np.zeros(0, MEMORY)
        self.held = np.zeros(0, MEMORY)
        self.waits = np.zeros(0, WAIT)
        self.steps = np.zeros(0, STEP)
        self.streams = np.zeros(0, STREAM)
        self.step_work = np.zeros(0, np.int64)
        self.work: list[StepWork] = []
        self.names: list[str] = [""]
        self.sites: list[str] = [""]
        self.contexts: list[str] = [""]
        self.shapes: list[str] = [""]
        self.moments: list[Moment] = []
        self.notes: list[Note] = []
        self.exchanges: list[Exchange] = []
        self.marks: list[float] = []
        self.threads: dict[int, str] = {}
        self.stream_names: dict[int, str] = {}
        self.facts: dict[str, Any] = {}
        self.programs: dict[int, ProgramFacts] = {}
        self.seconds = seconds
        self.held_bytes = 0
        self.dropped = 0


# Arrays and lists of a ProcessRecording that a file holds; what else there is stays with the process.
ARRAYS = ("operations", "memory", "held", "waits", "steps", "step_work", "streams")
TEXTS = ("names", "sites", "contexts", "shapes", "marks", "facts", "seconds", "held_bytes", "dropped")
MAGIC = "weft recording 4"


def write_recording(recording: ProcessRecording, path: str | os.PathLike[str]) -> None:
    """Write a recording to a file, for read_recording in another process."""
    r = recording
    document = {
        "format": MAGIC,
        **{name: getattr(r, name) for name in TEXTS},
        "work": list(r.work),
        "moments": list(r.moments),
        "notes": list(r.notes),
        "exchanges": list(r.exchanges),
        "threads": list(r.threads.items()),
        "stream_names": list(r.stream_names.items()),
        "programs": [(serial, p.name, list(p.steps), p.reorders) for serial, p in r.programs.items()],
    }
    arrays = {name: getattr(r, name) for name in ARRAYS}
    with open(path, "wb") as file:
        np.savez_compressed(file, document=np.array(json.dumps(document)), **arrays)


def read_recording(path: str | os.PathLike[str]) -> ProcessRecording:
    """The recording in a file. Raises ValueError for a file that holds none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            document = json.loads(str(file["document"]))
            arrays = {name: file[name] for name in ARRAYS}
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as problem:
        raise ValueError(f"{os.fspath(path)!s}: holds no recording: {problem}") from None
    if document.get("format") != MAGIC:
        raise ValueError(f"{os.fspath(path)!s}: holds no recording of this version")
    r = ProcessRecording()
    for name in TEXTS:
        setattr(r, name, document[name])
    for name, array in arrays.items():
        setattr(r, name, array)
    r.work = [StepWork(*row) for row in document["work"]]
    r.moments = [Moment(*row) for row in document["moments"]]
    r.notes = [Note(*row) for row in document["notes"]]
    r.exchanges = [Exchange(*row) for row in document["exchanges"]]
    r.threads = {int(number): name for number, name in document["threads"]}
    r.stream_names = {int(number): name for number, name in document["stream_names"]}
    r.programs = {
        serial: ProgramFacts(name, tuple(steps), reorders, None)
        for serial, name, steps, reorders in document["programs"]
    }
    return r


class StepWork(NamedTuple):
    """A kernel on operands of some shapes: the operators whose work it is, and how many operations each run takes.

    is_reference: whether it runs a library's slow reference code.
    """

    name: str
    where: str
    module: str
    shapes: str
    flops: int
    program: str
    serial: int
    number: int
    is_reference: bool = False


class ProgramFacts(NamedTuple):
    """Of a program whose steps ran: its name, its steps as text, how many copies into other layouts a run makes."""

    name: str
    steps: tuple[str, ...]
    reorders: int
    report: Any


_active: ProcessRecorder | None = None


def mark_step(name: str = "") -> None:
    """Say that a step of the program ends here; nothing happens while nothing is recorded.

    >>> mark_step()
    """
    if _active is not None:
        _active.mark(name)


class ProcessRecorder:
    """Records while it is entered; `recording` has the result afterwards, also where an exception left the block.

    engines: whose operations, besides the process's own. memory: also record allocations. limit: events of operations,
    memory and waits that are kept; later ones are counted only.
    Raises RuntimeError if the process is recorded already.
    """

    def __init__(self, engines: Iterable[Engine] = (), *, memory: bool = True, limit: int = LIMIT) -> None:
        self.recording = ProcessRecording()
        self._engines = list({id(e): e for e in (default_engine(), *engines)}.values())
        self._memory, self._limit = memory, limit
        self._paths: dict[tuple[int, ...], int] = {}
        self._references: list[Any] = []  # modules whose ids are in use, and plan infos, which go with plans
        self._begin = 0
        self._thread_state = threading.local()
        self._unwrap: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []
        self._listener: Any = None
        self._moments: list[Moment] = []
        self._notes: list[Note] = []
        self._exchanges: list[Exchange] = []
        self._marks: list[tuple[str, int]] = []

    def __enter__(self) -> ProcessRecorder:
        global _active
        for engine in self._engines:
            engine.wait_for_all()
        self._begin = time.perf_counter_ns()
        if not _core.open_recorder(self._engines, self._memory, self._limit):
            raise RuntimeError("ProcessRecorder: this process is recorded already")
        _active = self
        self._references.extend(plan_info.all_infos())
        self._listener = events.listen(self)
        self._unwrap.append(wrap(Module, "__call__", self._wrap_call))
        self._unwrap.append(wrap(DataLoader, "__iter__", self._wrap_batches))
        self._threads = threading.enumerate()
        self._unwrap.append(wrap(threading.Thread, "start", self._wrap_start))
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        global _active
        failure: BaseException | None = None
        for engine in self._engines:
            try:
                engine.wait_for_all()
            except Exception as problem:
                failure = failure or problem
        for unwrap in self._unwrap:
            unwrap()
        events.listen(self._listener)
        _active = None
        end = time.perf_counter_ns()
        self.recording.seconds = (end - self._begin) * 1e-9
        if error is not None and not (isinstance(error, SystemExit) and error.code in (0, None)):
            text = "".join(traceback.format_exception(error)).rstrip()
            self._notes.append(Note("error", text, _line_of(trace), self.recording.seconds))
        elif failure is not None:
            self._notes.append(Note("error", str(failure), "", self.recording.seconds))
        self._collect(_core.close_recorder())
        if failure is not None and error is None:
            raise failure

    def snapshot(self) -> ProcessRecording:
        """The operations, memory and waits recorded until now; the recording continues.

        Raises RuntimeError if nothing is recorded now.
        """
        raw = _core.peek_recorder() if _active is self else None
        if raw is None:
            raise RuntimeError("ProcessRecorder: nothing is recorded now")
        recording = ProcessRecording((time.perf_counter_ns() - self._begin) * 1e-9)
        recording.contexts, recording.marks = known_paths(), self._mark_seconds()
        self._read_native(recording, raw)
        return recording

    def now_s(self) -> float:
        """Seconds since the beginning."""
        return (time.perf_counter_ns() - self._begin) * 1e-9

    def _mark_seconds(self) -> list[float]:
        return [(t - self._begin) * 1e-9 for _, t in self._marks]

    def mark(self, name: str = "") -> None:
        """A step ends now."""
        self._marks.append((name, time.perf_counter_ns()))

    # What Python does: the listener of weft.base.events.

    def span(self, kind: str, name: str) -> Any:
        """Work of Python, from weft.base.events: a context manager."""
        return _Span(self, kind, name)

    def note(self, kind: str, text: str, where: str = "") -> None:
        """A moment, from weft.base.events."""
        self._notes.append(Note(kind, text, where, (time.perf_counter_ns() - self._begin) * 1e-9))

    def exchanged(
        self, name: str, where: str, size_bytes: int, times_ns: tuple[int, int, int, int], number: int
    ) -> None:
        """An exchange that has ended, from weft.base.events."""
        name, _, arrays = name.partition(": ")
        times = ((t - self._begin) * 1e-9 for t in times_ns)
        self._exchanges.append(Exchange(name, arrays, where, size_bytes, number, *times))

    def _add(self, kind: str, name: str, where: str, start: int) -> None:
        start_s, end_s = ((t - self._begin) * 1e-9 for t in (start, time.perf_counter_ns()))
        stack = getattr(self._thread_state, "stack", ())
        module = path_with(self._number_of(stack)) if stack else ""
        self._moments.append(Moment(kind, name, where, threading.get_native_id(), start_s, end_s, module))

    def _wrap_call(self, call: Any) -> Any:
        thread_state = self._thread_state

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            stack = vars(thread_state).setdefault("stack", [])
            stack.append(module)
            number = self._number_of(stack)
            outer, start = _core.set_recording_context(number), time.perf_counter_ns()
            try:
                return call(module, *args, **kwargs)
            finally:
                stack.pop()
                _core.set_recording_context(outer)
                self._add("module", path_with(number), "", start)

        return __call__

    def _wrap_start(self, start: Any) -> Any:
        def begin(thread: threading.Thread) -> None:
            self._threads.append(thread)  # which has its number also after its end
            start(thread)

        return begin

    def _number_of(self, stack: Sequence[Any]) -> int:
        key = tuple(map(id, stack))
        number = self._paths.get(key)
        if number is None:
            self._references.extend(stack)
            number = self._paths[key] = number_of(path_of(list(stack)))
        return number

    def _wrap_batches(self, iterate: Any) -> Any:
        def __iter__(loader: Any) -> Iterator[Any]:
            where, batches = users_line(), iterate(loader)
            while True:
                start = time.perf_counter_ns()
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                self._add("data", "batch", where, start)
                yield batch

        return __iter__

    # What it becomes.

    def _read_native(self, recording: ProcessRecording, raw: Any) -> None:
        for name, kind, fields in (
            ("operations", OPERATION, ("pushed", "started", "ended")),
            ("memory", MEMORY, ("time",)),
            ("held", MEMORY, ("time",)),
            ("waits", WAIT, ("start", "end")),
            ("steps", STEP, ("start", "end")),
            ("streams", STREAM, ("start", "end")),
        ):
            array = np.frombuffer(raw[name], kind).copy()
            for field in fields:
                array[field] = np.where(array[field] == 0, -1, array[field] - self._begin)
            setattr(recording, name, array)
        recording.names, recording.sites, recording.shapes = (
            ["", *raw[k]] for k in ("names", "sites", "shapes")
        )
        recording.stream_names = dict(raw["stream_names"])
        recording.held = _held_before(recording.held, recording.memory)
        recording.held_bytes, recording.dropped = int(recording.held["bytes"].sum()), raw["dropped"]

    def _collect(self, raw: Any) -> None:
        recording = self.recording
        self._read_native(recording, raw)
        recording.moments = sorted(self._moments, key=lambda m: (m.start_s, -m.end_s))
        recording.notes = list(self._notes)
        recording.exchanges = sorted(self._exchanges, key=lambda e: (e.start_s, -e.end_s))
        recording.contexts = known_paths()
        recording.marks = self._mark_seconds()
        recording.steps = recording.steps[np.lexsort((-recording.steps["end"], recording.steps["start"]))]
        self._name_threads()
        self._find_work(raw)
        recording.facts = {**_facts(self._engines), "begin_ns": self._begin}
        self._references.clear()

    def _name_threads(self) -> None:
        recording = self.recording
        names = {thread.native_id: thread.name for thread in self._threads if thread.native_id}
        operations = recording.operations
        executed = operations[operations["started"] >= 0]
        fields = ("run_thread", "queue", "worker", "device", "engine")
        rows = executed[kinds_of([executed[name] for name in fields])[0]]
        devices = {(int(r["device"])) for r in rows}
        for row in rows:
            if row["worker"] >= 0:
                name = f"{QUEUES[row['queue']]} {row['worker']}"
                name += f" cpu:{row['device']}" if len(devices) > 1 else ""
                name += f" engine {row['engine']}" if row["engine"] else ""
                names[int(row["run_thread"])] = name
        numbers_used = [
            operations["push_thread"],
            executed["run_thread"],
            recording.waits["thread"],
            recording.steps["thread"],
            [moment.thread for moment in recording.moments],
        ]
        numbers = np.unique(np.concatenate([np.asarray(each, np.int64) for each in numbers_used]))
        recording.threads = {int(k): names.get(int(k), f"thread {k}") for k in numbers}

    def _find_work(self, raw: Any) -> None:
        """Number the kinds of steps, and find the work of each kind."""
        recording = self.recording
        names, steps = ["", *raw["step_names"]], recording.steps
        columns = [steps[name] for name in ("serial", "program", "step", "name", "where", "shapes")]
        first, recording.step_work = kinds_of(columns)
        by_kind: dict[int, StepWork] = {}
        kind_of_first = {int(k): n for n, k in enumerate(first)}
        for k in sorted(kind_of_first):  # those of bodies come behind the loop or branch that they are in
            kind, container = steps[k], _container(steps, k)
            serial, number = int(kind["serial"]), int(kind["step"])
            info = plan_info.info_of(serial)
            work = info.work[number] if info is not None and number < len(info.work) else None
            operands = raw["step_shapes"][kind["shapes"]]
            name = _kernel_name(names[kind["name"]] or raw["programs"][kind["program"]], work)
            where, module = names[kind["where"]], _module_of(work)
            if not where and container >= 0:
                outer = by_kind[int(recording.step_work[container])]
                where, module = outer.where, outer.module
            by_kind[kind_of_first[k]] = StepWork(
                name,
                where,
                module,
                ", ".join(f"{dtype}[{','.join(map(str, sizes))}]" for dtype, sizes in operands),
                0 if work is None else flops.of_work(work, operands),
                raw["programs"][kind["program"]],
                serial,
                number,
                work is not None and work.is_reference,
            )
            if info is not None and serial not in recording.programs:
                recording.programs[serial] = ProgramFacts(
                    info.name, (*info.hoisted, *info.steps), info.reorders, info.memory
                )
        recording.work = [by_kind[n] for n in range(len(first))]


def _held_before(held: Any, memory: Any) -> Any:
    """The blocks in use when a record began, without those whose allocation it holds as well.

    The record may begin between their allocation and the listing of blocks in use.
    """
    if not len(held) or not len(memory):
        return held
    allocated = memory[(memory["time"] <= held["time"].max()) & (memory["is_release"] == 0)]
    recorded = set(zip(allocated["address"].tolist(), allocated["device"].tolist(), strict=True))
    keep = [(row["address"], row["device"]) not in recorded for row in held] if recorded else None
    return held if keep is None else held[np.array(keep, bool)]


def _container(steps: Any, k: int) -> int:
    """The index of the loop or branch that a step ran in; -1: none. Steps are in the order of their starts."""
    begin = max(k - CONTAINER_DISTANCE, 0)
    before, step = steps[begin:k], steps[k]
    containing = np.nonzero((before["thread"] == step["thread"]) & (before["end"] >= step["end"]))[0]
    return begin + int(containing[-1]) if len(containing) else -1


def kinds_of(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Rows of one kind have equal numbers in all columns: a row of each kind, and the kind of each row.

    >>> kinds_of([np.array([1, 2, 1]), np.array([5, 5, 5])])
    (array([0, 1]), array([0, 1, 0]))
    """
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, numbers = np.unique(column, return_inverse=True)
        _, key = np.unique(key * len(values) + numbers, return_inverse=True)
    _, first = np.unique(key, return_index=True)
    return first, key.astype(np.int64)


def _module_of(work: Any) -> str:
    """The module that a kernel belongs to: that of its line, else of the first operator in it that has one."""
    lines = [] if work is None else [work.where, *(node.where for node in work.nodes)]
    return next((module for line in lines if (module := getattr(line, "module", ""))), "")


def _kernel_name(name: str, work: Any) -> str:
    """The name of a kernel, with what comes after an operator in its kernel written out."""
    if work is None:
        return name
    epilogues = [node.op for node in work.nodes if node.op.name == Epilogue.name]
    if epilogues:
        steps = ", ".join([epilogues[0].of.name, *(step.name for step, _, _ in epilogues[0].steps)])
        name = name.replace(Epilogue.name, steps, 1)
    return f"{name} (reference code)" if work.is_reference else name


class _Span:
    def __init__(self, recorder: ProcessRecorder, kind: str, name: str) -> None:
        self._recorder, self._kind, self._name = recorder, kind, name

    def __enter__(self) -> None:
        self._where, self._start = users_line(), time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        self._recorder._add(self._kind, self._name, self._where, self._start)


def _line_of(trace: Any) -> str:
    """The innermost line of the user's that a traceback goes through."""
    from weft.base.users_line import is_users

    frames = [f for f in traceback.extract_tb(trace) if is_users(f.filename)] if trace else []
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _facts(engines: Sequence[Engine]) -> dict[str, Any]:
    return {
        "program": " ".join(sys.argv),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "host": platform.node(),
        "cores": len(os.sched_getaffinity(0)),
        "workers": engines[0].workers,
        "engine": engines[0].kind,
    }
