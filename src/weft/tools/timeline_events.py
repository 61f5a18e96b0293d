"""A recording as events in lanes: what the page draws, what tables and exports are made of.

Every event has a detail, which many share: what it is, of which line and module, on which shapes. Lanes are threads,
one for each kind of event and depth, so that events of a lane never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.tools.recording import MarkedStep, ProcessRecording, kinds_of

__all__ = [
    "BY",
    "Detail",
    "Events",
    "ExchangeRow",
    "Lane",
    "events_of",
    "exchange_rows",
    "offset_of",
    "steps_of",
    "worker_of",
]

# Kinds of lanes in their order in a thread.
KINDS = ("step", "module", "python", "data", "wait", "push", "operation", "kernel", "stream", "exchange")


# What tables can be by: fields of Detail.
BY = {"operator": "name", "module": "module", "line": "where", "shapes": "shapes", "program": "program"}


class Detail(NamedTuple):
    """The common facts of events of a kind. flops, bytes: of one of them."""

    kind: str
    name: str
    where: str = ""
    module: str = ""
    shapes: str = ""
    flops: int = 0
    bytes: int = 0
    program: str = ""


class Lane(NamedTuple):
    """Events first to last of one kind that one thread ran; depth: how many others of the kind contain them."""

    worker: str
    thread: str
    kind: str
    depth: int
    first: int
    last: int


class Total(NamedTuple):
    """What is added up of some events. least_s: their time if each took as long as the shortest of its kind."""

    calls: int = 0
    seconds: float = 0.0
    least_s: float = 0.0
    flops: int = 0
    bytes: int = 0


class Events:
    """All events, sorted by lane and start. start, seconds, self_seconds: the last without the events inside of it.

    detail: numbers of details. parent: of a kernel the number of its operation, of an operation that of its push;
    -1: none. counts: whether it is work that tables add up: kernels, and operations without kernels.
    """

    def __init__(self, details: Sequence[Detail], lanes: Sequence[Lane], columns: dict[str, Any]) -> None:
        self.details, self.lanes = list(details), list(lanes)
        self.start, self.seconds, self.self_seconds = (
            columns["start"],
            columns["seconds"],
            columns["self_seconds"],
        )
        self.detail, self.parent, self.counts = columns["detail"], columns["parent"], columns["counts"]

    def __len__(self) -> int:
        return len(self.start)

    def table(self, by: str, first_s: float = 0.0, end_s: float = np.inf) -> dict[str, Total]:
        """All work that began in this time, by a field of Detail, longest first."""
        mask = self.counts & (self.start >= first_s) & (self.start < end_s)
        detail, seconds = self.detail[mask], self.self_seconds[mask]
        count = np.bincount(detail, minlength=len(self.details))
        sums = np.bincount(detail, seconds, minlength=len(self.details))
        shortest = np.full(len(self.details), np.inf)
        np.minimum.at(shortest, detail, seconds)
        rows: dict[str, Total] = {}
        for k in np.nonzero(count)[0]:
            d, n = self.details[k], int(count[k])
            calls, time, least, flops, size = rows.get(getattr(d, by), Total())
            rows[getattr(d, by)] = Total(
                calls + n,
                time + float(sums[k]),
                least + n * float(shortest[k]),
                flops + n * d.flops,
                size + n * d.bytes,
            )
        return dict(sorted(rows.items(), key=lambda item: -item[1].seconds))


class _Builder:
    def __init__(self) -> None:
        self.details: dict[Detail, int] = {}
        self.parts: list[dict[str, Any]] = []
        self.lanes: list[Lane] = []
        self.count = 0

    def detail(self, detail: Detail) -> int:
        return self.details.setdefault(detail, len(self.details))

    def add(
        self,
        worker: str,
        thread: str,
        kind: str,
        start: Any,
        end: Any,
        detail: Any,
        keys: Any = None,
        counts: bool = False,
        excluded: Sequence[tuple[float, float]] = (),
    ) -> None:
        """Events of one thread and kind; keys: numbers that others refer to. excluded: times that are not theirs."""
        if not len(start):
            return
        order = np.lexsort((-end, start))
        start, end, detail = start[order], end[order], detail[order]
        keys = np.full(len(start), -1, np.int64) if keys is None else keys[order]
        depth, self_seconds = _nest(start, end)
        if excluded:
            self_seconds = self_seconds.copy()
        for first, last in excluded:
            k = int(np.searchsorted(start, first, side="right")) - 1
            while k >= 0 and end[k] < last:  # the innermost that contains it
                k -= 1
            if k >= 0:
                self_seconds[k] -= last - first
        for level in range(int(depth.max()) + 1):
            at_level = depth == level
            n = int(at_level.sum())
            self.lanes.append(Lane(worker, thread, kind, level, self.count, self.count + n))
            self.parts.append(
                {
                    "start": start[at_level],
                    "seconds": (end - start)[at_level],
                    "self_seconds": self_seconds[at_level],
                    "detail": detail[at_level],
                    "key": keys[at_level],
                    "counts": np.full(n, counts),
                }
            )
            self.count += n

    def _thread_order(self) -> list[tuple[str, str]]:
        """(worker, thread), the workers as they were met: steps, the thread that pushes most, then the busiest ones."""
        workers = {worker: k for k, worker in enumerate(dict.fromkeys(lane.worker for lane in self.lanes))}
        pushes: dict[tuple[str, str], int] = {}
        busy_s: dict[tuple[str, str], float] = {}
        for lane, part in zip(self.lanes, self.parts, strict=True):
            key = (lane.worker, lane.thread)
            is_work = lane.depth == 0 and lane.kind != "wait"
            pushes[key] = pushes.get(key, 0) + (len(part["start"]) if lane.kind == "push" else 0)
            busy_s[key] = busy_s.get(key, 0.0) + (float(part["seconds"].sum()) if is_work else 0.0)
        most = {worker: max(n for key, n in pushes.items() if key[0] == worker) for worker in workers}
        steps = {(lane.worker, lane.thread) for lane in self.lanes if lane.kind == "step"}

        def place(key: tuple[str, str]) -> tuple[int, bool, bool, float]:
            is_first = pushes[key] == most[key[0]] > 0
            return workers[key[0]], key not in steps, not is_first, -busy_s[key]

        return sorted(busy_s, key=place)

    def columns(self) -> dict[str, Any]:
        """All events, lanes of a thread beside each other, threads as _thread_order says."""
        threads = {key: k for k, key in enumerate(self._thread_order())}
        order = sorted(
            range(len(self.lanes)),
            key=lambda k: (
                threads[self.lanes[k][:2]],
                KINDS.index(self.lanes[k].kind),
                self.lanes[k].depth,
            ),
        )
        self.parts = [self.parts[k] for k in order]
        lanes, first = [], 0
        for k in order:
            size = self.lanes[k].last - self.lanes[k].first
            lanes.append(self.lanes[k]._replace(first=first, last=first + size))
            first += size
        self.lanes = lanes
        kinds = {
            "start": np.float64,
            "seconds": np.float64,
            "self_seconds": np.float64,
            "detail": np.int64,
            "key": np.int64,
            "counts": bool,
        }
        return {
            name: np.concatenate([part[name] for part in self.parts]).astype(kind)
            if self.parts
            else np.zeros(0, kind)
            for name, kind in kinds.items()
        }


def _nest(start: Any, end: Any) -> tuple[Any, Any]:
    """For each interval, sorted by start: how many others contain it, and its length without those inside of it."""
    self_seconds = end - start
    depth = np.zeros(len(start), np.int64)
    if len(start) < 2 or np.all(np.maximum.accumulate(end[:-1]) <= start[1:]):
        return depth, self_seconds
    self_seconds = self_seconds.copy()
    open_events: list[int] = []
    starts, ends = start.tolist(), end.tolist()
    for k in range(len(starts)):
        while open_events and ends[open_events[-1]] <= starts[k]:
            open_events.pop()
        if open_events and ends[open_events[-1]] >= ends[k]:
            self_seconds[open_events[-1]] -= ends[k] - starts[k]
        depth[k] = len(open_events)
        open_events.append(k)
    return depth, self_seconds


def events_of(recordings: Sequence[ProcessRecording]) -> Events:
    """All events of recordings, one for each worker process; times are those of the first one's clock."""
    builder = _Builder()
    parents: list[tuple[Any, Any]] = []
    workers = [worker_of(recordings, k) for k in range(len(recordings))]
    for rank in sorted(range(len(recordings)), key=lambda k: (len(workers[k]), workers[k])):
        offset = offset_of(recordings[0], recordings[rank])
        _add_recording(builder, recordings[rank], workers[rank], offset, rank, parents)
    columns = builder.columns()
    keys = columns.pop("key")
    columns["parent"] = np.full(len(keys), -1, np.int64)
    by_key = np.argsort(keys, kind="stable")
    sorted_keys = keys[by_key]

    def events_with(wanted_keys: Any) -> Any:
        positions = np.minimum(np.searchsorted(sorted_keys, wanted_keys), max(len(sorted_keys) - 1, 0))
        candidates = by_key[positions] if len(by_key) else np.zeros(len(wanted_keys), np.int64)
        return (
            np.where(keys[candidates] == wanted_keys, candidates, -1)
            if len(keys)
            else np.full(len(wanted_keys), -1)
        )

    for children, parent_keys in parents:
        child, parent = events_with(children), events_with(parent_keys)
        ok = (child >= 0) & (parent >= 0)
        columns["parent"][child[ok]] = parent[ok]
    # Operations with kernels are not work of their own.
    is_operation, is_kernel = np.zeros(len(keys), bool), np.zeros(len(keys), bool)
    for lane in builder.lanes:
        is_operation[lane.first : lane.last] = lane.kind == "operation"
        is_kernel[lane.first : lane.last] = lane.kind == "kernel"
    columns["counts"] |= is_operation
    has_kernels = np.zeros(len(keys), bool)
    has_kernels[columns["parent"][is_kernel & (columns["parent"] >= 0)]] = True
    columns["counts"] &= ~(is_operation & has_kernels)
    return Events(list(builder.details), builder.lanes, columns)


def worker_of(recordings: Sequence[ProcessRecording], k: int) -> str:
    """The name of a process; "" if it is alone and has none."""
    return str(recordings[k].facts.get("worker", f"worker {k}" if len(recordings) > 1 else ""))


def offset_of(first: ProcessRecording, other: ProcessRecording) -> float:
    """Seconds from the beginning of the one to that of the other.

    Processes of one machine have a common clock. Others have met in collectives: all ranks leave the agreement that
    each begins with at nearly the same moment, so the middle of the differences is how far their clocks are apart.
    """
    if first.facts.get("host") != other.facts.get("host"):
        agreed = {e.number: e.agreed_s for e in first.exchanges if e.number}
        differences = [agreed[e.number] - e.agreed_s for e in other.exchanges if e.number in agreed]
        if differences:
            return float(np.median(differences))
    return (other.facts.get("begin_ns", 0) - first.facts.get("begin_ns", 0)) * 1e-9


PUSH, OPERATION, KERNEL, STREAM = range(4)  # kinds of keys


def _add_recording(
    builder: _Builder,
    r: ProcessRecording,
    worker: str,
    offset: float,
    rank: int,
    parents: list[tuple[Any, Any]],
) -> None:
    def thread_name(number: Any) -> str:
        return r.threads.get(int(number), f"thread {number}")

    def key(kind: int, numbers: Any) -> Any:
        return (np.asarray(numbers, np.int64) << 8) | (rank << 2) | kind

    if steps := steps_of(r):
        starts, ends = (np.array([getattr(s, field) for s in steps]) for field in ("start_s", "end_s"))
        numbers = np.array([builder.detail(Detail("step", step.name)) for step in steps])
        builder.add(worker, "steps", "step", starts + offset, ends + offset, numbers)
    _add_moments(builder, r, worker, offset, thread_name)
    operations = r.operations
    rows = np.arange(len(operations))
    first, inverse = kinds_of([operations[name] for name in ("name", "site", "context")])
    texts = [
        (r.names[row["name"]], r.sites[row["site"]], r.contexts[row["context"]]) for row in operations[first]
    ]
    detail, push = (
        np.array([builder.detail(Detail(kind, *text)) for text in texts], np.int64)[inverse]
        for kind in ("operation", "push")
    )
    ran = (operations["started"] >= 0) & (operations["ended"] >= 0)
    for thread in np.unique(operations["push_thread"]):
        mask = operations["push_thread"] == thread
        times = operations["pushed"][mask] * 1e-9 + offset
        builder.add(worker, thread_name(thread), "push", times, times, push[mask], key(PUSH, rows[mask]))
    for thread in np.unique(operations["run_thread"][ran]):
        mask = ran & (operations["run_thread"] == thread)
        builder.add(
            worker,
            thread_name(thread),
            "operation",
            operations["started"][mask] * 1e-9 + offset,
            operations["ended"][mask] * 1e-9 + offset,
            detail[mask],
            key(OPERATION, rows[mask]),
        )
    parents.append((key(OPERATION, rows[ran]), key(PUSH, rows[ran])))
    _add_kernels(builder, r, worker, offset, rank, parents, thread_name, key)
    of_copies = Detail("stream", "copy")
    of_streams = [builder.detail(d) for d in (*(Detail("stream", *text) for text in texts), of_copies)]
    _add_streams(
        builder, r, worker, offset, np.array(of_streams, np.int64)[np.append(inverse, -1)], parents, key
    )
    _add_exchanges(builder, r, worker, offset)


def _add_streams(
    builder: _Builder,
    r: ProcessRecording,
    worker: str,
    offset: float,
    detail: Any,
    parents: list[tuple[Any, Any]],
    key: Callable[[int, Any], Any],
) -> None:
    """A lane for each stream of a device. detail: of each operation, then of what is of none."""
    streams = r.streams
    rows, operation = np.arange(len(streams)), streams["operation"]
    for number in np.unique(streams["stream"]):
        mask = streams["stream"] == number
        builder.add(
            worker,
            r.stream_names[int(number)],
            "stream",
            streams["start"][mask] * 1e-9 + offset,
            streams["end"][mask] * 1e-9 + offset,
            detail[operation[mask]],
            key(STREAM, rows[mask]),
        )
    inside = operation >= 0
    parents.append((key(STREAM, rows[inside]), key(OPERATION, operation[inside])))


def _add_exchanges(builder: _Builder, r: ProcessRecording, worker: str, offset: float) -> None:
    """Each in two parts: while this process waits for others, and while data moves."""
    parts = []
    for e in r.exchanges:
        waits = Detail("exchange", f"wait for {e.name}", e.where, shapes=e.arrays)
        moves = Detail("exchange", e.name, e.where, shapes=e.arrays, bytes=e.bytes)
        if e.agreed_s > e.start_s:
            parts.append((e.start_s, e.agreed_s, builder.detail(waits)))
        parts.append((e.agreed_s, e.end_s, builder.detail(moves)))
    if parts:
        start, end, details = (np.array(column) for column in zip(*parts, strict=True))
        builder.add(worker, "exchange", "exchange", start + offset, end + offset, details.astype(np.int64))


class ExchangeRow(NamedTuple):
    """Exchanges of one name: how many, bytes of this process, seconds in which it waited for others, and data moved.

    hidden: the share of all these seconds in which kernels of the process ran.
    """

    name: str
    calls: int
    bytes: int
    waiting_s: float
    moving_s: float
    hidden: float


def exchange_rows(
    recording: ProcessRecording, first_s: float = 0.0, end_s: float = np.inf
) -> list[ExchangeRow]:
    """The exchanges that began in this time, by name, the longest first; with several names the last row is of all.

    Of exchanges at the same time each second counts once in hidden.
    """
    busy = _merge(_compute(recording))
    exchanges = [e for e in recording.exchanges if first_s <= e.start_s < end_s]
    names: dict[str, list[Any]] = {}
    for e in exchanges:
        names.setdefault(e.name, []).append(e)
    rows = [_exchange_row(name, same_name, busy) for name, same_name in names.items()]
    rows.sort(key=lambda row: -(row.waiting_s + row.moving_s))
    return [*rows, _exchange_row("all", exchanges, busy)] if len(rows) > 1 else rows


def _exchange_row(name: str, exchanges: Sequence[Any], busy: Any) -> ExchangeRow:
    spans = _merge(np.array([(e.start_s, e.end_s) for e in exchanges]))
    whole = float((spans[:, 1] - spans[:, 0]).sum())
    return ExchangeRow(
        name,
        len(exchanges),
        sum(e.bytes for e in exchanges),
        sum(e.agreed_s - e.start_s for e in exchanges),
        sum(e.end_s - e.agreed_s for e in exchanges),
        _overlap(spans, busy) / whole if whole else 0.0,
    )


WAITING_STEPS = ("exchange_start", "exchange_end")  # of programs: they hand over, and wait


def _compute(r: ProcessRecording) -> Any:
    """When kernels ran, [n, 2] in seconds, without those that are exchanges themselves."""
    work = np.array([not any(name in w.name for name in WAITING_STEPS) for w in r.work], bool)
    steps = r.steps[work[r.step_work]] if len(r.steps) else r.steps
    return np.stack([steps["start"], steps["end"]], axis=1) * 1e-9


def _merge(spans: Any) -> Any:
    """Intervals [n, 2] without overlaps, in order."""
    if not len(spans):
        return np.zeros((0, 2))
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    begins = np.concatenate([[True], spans[1:, 0] > ends[:-1]])
    last = np.concatenate([np.nonzero(begins)[0][1:] - 1, [len(spans) - 1]])
    return np.stack([spans[begins, 0], ends[last]], axis=1)


def _overlap(a: Any, b: Any) -> float:
    """Seconds that two merged sets of intervals have in common."""
    if not len(a) or not len(b):
        return 0.0
    ends = np.concatenate([[0.0], np.cumsum(b[:, 1] - b[:, 0])])

    def before(times: Any) -> Any:
        """Seconds of b before each time."""
        k = np.searchsorted(b[:, 0], times, side="right") - 1
        inside = np.clip(times - b[np.maximum(k, 0), 0], 0, (b[:, 1] - b[:, 0])[np.maximum(k, 0)])
        return np.where(k >= 0, ends[np.maximum(k, 0)] + inside, 0.0)

    return float((before(a[:, 1]) - before(a[:, 0])).sum())


def _add_kernels(
    builder: _Builder,
    r: ProcessRecording,
    worker: str,
    offset: float,
    rank: int,
    parents: list[tuple[Any, Any]],
    thread_name: Callable[[Any], str],
    key: Callable[[int, Any], Any],
) -> None:
    steps, operations = r.steps, r.operations
    # Ids are those of the process's own engine, the first one.
    own_rows = np.nonzero(operations["engine"] == 0)[0]
    by_id = own_rows[np.argsort(operations["id"][own_rows], kind="stable")]
    ids = operations["id"][by_id]
    positions = np.minimum(np.searchsorted(ids, steps["operation"]), max(len(ids) - 1, 0))
    operation = (
        np.where(ids[positions] == steps["operation"], by_id[positions], -1)
        if len(ids)
        else np.full(len(steps), -1)
    )
    size = np.zeros(len(r.work), np.int64)
    np.maximum.at(size, r.step_work, steps["bytes"])
    # Plans of eager calls have no module: that of the calling operation is used.
    context = np.where(operation >= 0, operations["context"][operation] if len(operations) else 0, 0)
    site = np.where(operation >= 0, operations["site"][operation] if len(operations) else 0, 0)
    needs = np.array([not (w.where and w.module) for w in r.work], bool)
    context = np.where(needs[r.step_work], context, 0) if len(steps) else context
    site = np.where(needs[r.step_work], site, 0) if len(steps) else site
    first, inverse = kinds_of([r.step_work, context, site])
    kernels = []
    for w, c, s in zip(r.step_work[first], context[first], site[first], strict=True):
        work = r.work[w]
        kernels.append(
            builder.detail(
                Detail(
                    "kernel",
                    work.name,
                    work.where or r.sites[s],
                    work.module or (r.contexts[c] if not work.where else ""),
                    work.shapes,
                    work.flops,
                    int(size[w]),
                    work.program,
                )
            )
        )
    detail = np.array(kernels, np.int64)[inverse]
    rows = np.arange(len(steps))
    for thread in np.unique(steps["thread"]):
        mask = steps["thread"] == thread
        builder.add(
            worker,
            thread_name(thread),
            "kernel",
            steps["start"][mask] * 1e-9 + offset,
            steps["end"][mask] * 1e-9 + offset,
            detail[mask],
            key(KERNEL, rows[mask]),
            counts=True,
            excluded=[
                (m.start_s + offset, m.end_s + offset)
                for m in r.moments
                if m.kind == "compile" and m.thread == thread
            ],
        )
    inside = operation >= 0
    parents.append((key(KERNEL, rows[inside]), key(OPERATION, operation[inside])))


def _add_moments(
    builder: _Builder, r: ProcessRecording, worker: str, offset: float, thread_name: Callable[[Any], str]
) -> None:
    lanes: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    for m in r.moments:
        kind = m.kind if m.kind in ("module", "data") else "python"
        name = m.name if kind != "python" else f"{m.kind} {m.name}"
        module = m.name if kind == "module" else ""
        detail = builder.detail(Detail(kind, name, m.where, module))
        lanes.setdefault((thread_name(m.thread), kind), []).append((m.start_s, m.end_s, detail))
    for wait in r.waits:
        detail = builder.detail(
            Detail("wait", "wait for results", r.sites[wait["site"]], r.contexts[wait["context"]])
        )
        lanes.setdefault((thread_name(wait["thread"]), "wait"), []).append(
            (wait["start"] * 1e-9, wait["end"] * 1e-9, detail)
        )
    for (thread, kind), intervals in lanes.items():
        start, end, detail_numbers = (np.array(column) for column in zip(*intervals, strict=True))
        builder.add(worker, thread, kind, start + offset, end + offset, detail_numbers.astype(np.int64))


def steps_of(recording: ProcessRecording) -> list[MarkedStep]:
    """The steps of the user's program: from mark to mark; else from batch to batch; else calls of the largest program.

    None of these three times or more: no steps.
    """
    marks = recording.marks
    if marks:
        begins = [0.0, *marks[:-1]]
        return [MarkedStep(f"step {k}", a, b) for k, (a, b) in enumerate(zip(begins, marks, strict=True))]
    starts = [m.start_s for m in recording.moments if m.kind == "data"]
    if len(starts) < 3:
        starts = _launches_of_largest(recording)
    if len(starts) < 3:
        return []
    ends = [*starts[1:], recording.seconds]
    return [MarkedStep(f"step {k}", a, b) for k, (a, b) in enumerate(zip(starts, ends, strict=True))]


def _launches_of_largest(recording: ProcessRecording) -> list[float]:
    """When the program was pushed in which most of the time is spent, if it has several kernels."""
    operations = recording.operations
    if not len(operations) or not len(recording.steps):
        return []
    several = {
        recording.names.index(p.name)
        for p in recording.programs.values()
        if len(p.steps) > 1 and p.name in recording.names
    }
    ran = operations[operations["ended"] > 0]
    if not several or not len(ran):
        return []
    seconds = np.bincount(ran["name"], ran["ended"] - ran["started"], minlength=len(recording.names))
    best = max(several, key=lambda k: seconds[k])
    launches: list[float] = (np.sort(ran["pushed"][ran["name"] == best]) * 1e-9).tolist()
    return launches
