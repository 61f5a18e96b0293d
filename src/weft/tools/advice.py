"""Warnings from a recording: what the program should do otherwise, each with its line and advice.

Each rule is one function in RULES; none asserts a time, so its warnings do not depend on the machine, except where
time is their subject (waiting).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from weft.tools.recording import Moment, ProcessRecording
from weft.tools.timeline_events import steps_of

__all__ = ["RULES", "Advice", "advice_on"]

RETRACES = 3  # traces of one function that are too many
REPLANS = 8  # plans of one operation that are too many
SMALL_SECONDS = 20e-6  # kernels below it are mostly launch
SMALL_COUNT = 200  # of them before they are worth a word
SMALL_SHARE = 0.5  # of all kernels
WAIT_SHARE = 0.1  # of the whole time
WAITS = 3  # waits of one line that are too many


class Advice(NamedTuple):
    """kind: the name of its rule; text: what happened, with its numbers; advice: what to do; where: the line;

    times: how often; start_s: when first.
    """

    kind: str
    text: str
    advice: str
    where: str = ""
    times: int = 1
    start_s: float = 0.0


def retracing(r: ProcessRecording) -> Iterator[Advice]:
    """A function was traced again and again."""
    traces = [m for m in r.moments if m.kind == "trace"]
    for name, count in Counter(m.name for m in traces).items():
        if count >= RETRACES:
            first = next(m for m in traces if m.name == name)
            yield Advice(
                "retracing",
                f"{name} was traced {count} times: its arguments keep changing in what programs depend on",
                "Pass numbers that vary as floats or tensors, pad sizes or name them in dynamic=, and keep "
                "objects that change out of the arguments. weft.trace's max_entries bounds what is kept.",
                first.where,
                count,
                first.start_s,
            )


def graph_breaks(r: ProcessRecording) -> Iterator[Advice]:
    """A traced function is not one program."""
    times_by_line: dict[tuple[str, str], list[float]] = {}
    for note in r.notes:
        if note.kind == "warning" and "traced" not in note.text.splitlines()[0]:
            times_by_line.setdefault((note.text.splitlines()[0], note.where), []).append(note.time_s)
    for (text, where), times in times_by_line.items():
        yield Advice(
            "graph break",
            text,
            "Python runs again at this line in each call, and the program ends there. Return the array, or write "
            "where, cond or while_loop; strict=True makes it an error.",
            where,
            len(times),
            times[0],
        )


def reorders(r: ProcessRecording) -> Iterator[Advice]:
    """Kernels copy their operands into other layouts."""
    runs = Counter(r.work[k].serial for k in r.step_work.tolist() if r.work[k].number == 0)
    for serial, program in r.programs.items():
        if program.reorders:
            count = program.reorders * max(runs[serial], 1)
            work = next((w for w in r.work if w.serial == serial and w.where), None)
            yield Advice(
                "reorders",
                f"{program.name}: each run copies {program.reorders} operands into another layout for its kernels",
                "Trace the whole function, so that layouts go through from kernel to kernel and weights are "
                "prepared once; views that change the order of axes between products cost a copy each.",
                "" if work is None else work.where,
                count,
            )


def reference_code(r: ProcessRecording) -> Iterator[Advice]:
    """Kernels run a library's reference code."""
    seconds = (r.steps["end"] - r.steps["start"]) * 1e-9
    for number, work in enumerate(r.work):
        if not work.is_reference:
            continue
        runs = r.step_work == number
        yield Advice(
            "reference code",
            f"{work.name} on {work.shapes} ran {int(runs.sum())} times, "
            f"{float(seconds[runs].sum()) * 1e3:.1f} ms in all",
            "oneDNN has no fast code for these types, sizes or attributes, and its reference code is many times slower "
            "than that. Other attributes (no dilation of pooling), float32, or a composition of other operators help.",
            work.where,
            int(runs.sum()),
            float(r.steps["start"][runs].min(initial=0)) * 1e-9,
        )


def small_kernels(r: ProcessRecording) -> Iterator[Advice]:
    """Most kernels are too short to be worth their launch."""
    operations = r.operations[(r.operations["ended"] > 0) & (r.operations["started"] > 0)]
    if not len(operations):
        return
    small = (operations["ended"] - operations["started"]) < SMALL_SECONDS * 1e9
    count = int(small.sum())
    if count < SMALL_COUNT or count < SMALL_SHARE * len(operations):
        return
    lines = Counter(operations["site"][small].tolist())
    site, largest = lines.most_common(1)[0]
    yield Advice(
        "small kernels",
        f"{count} of {len(operations)} operations took less than {SMALL_SECONDS * 1e6:.0f} us; {largest} of them are "
        "launched by one line",
        "Launching takes about as long as they do. Trace the function, so that they are merged into few kernels and "
        "one launch, or work on larger batches.",
        r.sites[site],
        count,
        float(operations["pushed"][small].min()) * 1e-9,
    )


def waiting_for_data(r: ProcessRecording) -> Iterator[Advice]:
    """The program waits for its batches."""
    batches = [m for m in r.moments if m.kind == "data"]
    seconds = sum(m.end_s - m.start_s for m in batches)
    if len(batches) >= 2 and seconds > WAIT_SHARE * r.seconds:
        yield Advice(
            "waiting for data",
            f"{seconds:.3f} s of {r.seconds:.3f} s ({seconds / max(r.seconds, 1e-9):.0%}) went into getting "
            f"{len(batches)} batches",
            "Let the loader work ahead (num_workers=, prefetch=), do less for each sample in transform=, or store "
            "samples in the form in which they are used.",
            batches[0].where,
            len(batches),
            batches[0].start_s,
        )


def waiting_for_results(r: ProcessRecording) -> Iterator[Advice]:
    """Python reads results before it launches what comes next."""
    steps = max(len(steps_of(r)), 1)
    lines = np.array(
        [r.sites[site] for site in r.waits["site"].tolist()], object
    )  # one may have several sites
    for line, count in Counter(lines.tolist()).most_common():
        if not line or count < max(WAITS, steps / 2):
            continue
        waits = r.waits[lines == line]
        seconds = float((waits["end"] - waits["start"]).sum()) * 1e-9
        yield Advice(
            "waiting for results",
            f"Python waited {count} times here, {seconds * 1e3:.1f} ms in all; meanwhile it launches nothing",
            "Read values less often (every hundred steps), or one step later; inside a traced function return them.",
            line,
            count,
            float(waits["start"].min()) * 1e-9,
        )


def planning(r: ProcessRecording) -> Iterator[Advice]:
    """Eager operations are planned again and again, mostly for other sizes."""
    plans = [m for m in r.moments if m.kind == "plan"]
    inside = [m for m in r.moments if m.kind in ("trace", "optimize")]
    alone = [m for m in plans if not any(o.start_s <= m.start_s <= o.end_s for o in inside)]
    # What a step plans first are its layers, which may share a line: of these one counts.
    first_step_s = next((step.end_s for step in steps_of(r)), 0.0)
    # Plans for all sizes that turn out to need these are made again for the same call, before it pushes anything.
    pushed = np.sort(r.operations["pushed"]) * 1e-9
    by_place: dict[tuple[str, str, str], dict[int, Moment]] = {}
    for m in alone:
        of_call = by_place.setdefault((m.name, m.where, m.module), {})
        of_call.setdefault(int(np.searchsorted(pushed, m.start_s)), m)
    for (name, _, module), calls in by_place.items():
        same = list(calls.values())
        first = same[0]
        count = len(same) - max(sum(m.start_s < first_step_s for m in same) - 1, 0)
        if count >= REPLANS:
            yield Advice(
                "planning",
                f"{name} was planned {count} times{f' in {module}' if module else ''}: its shapes, strides or "
                "attributes keep changing",
                "Pad sizes to a few, or pass numbers that vary as tensors or floats.",
                first.where,
                count,
                first.start_s,
            )


def oversubscription(r: ProcessRecording) -> Iterator[Advice]:
    """More functions ran at the same time than there are cores."""
    operations = r.operations[(r.operations["ended"] > 0) & (r.operations["started"] > 0)]
    operations = operations[operations["queue"] <= 1]  # compute, wide
    cores = int(r.facts.get("cores", 0))
    if not cores or not len(operations):
        return
    times = np.concatenate([operations["started"], operations["ended"]])
    change = np.concatenate([np.ones(len(operations)), -np.ones(len(operations))])
    order = np.lexsort((change, times))
    concurrent = int(np.cumsum(change[order]).max())
    if concurrent > cores:
        position = int(np.argmax(np.cumsum(change[order])))
        yield Advice(
            "oversubscription",
            f"{concurrent} functions of compute queues ran at the same time on {cores} cores",
            "Set WEFT_NUM_THREADS to the number of cores, and make fewer engines; threads that take turns on a core "
            "wait for each other in every parallel region.",
            "",
            concurrent,
            float(times[order][position]) * 1e-9,
        )


def gaps_in_the_record(r: ProcessRecording) -> Iterator[Advice]:
    """There was no room for all events."""
    if r.dropped:
        yield Advice(
            "gaps",
            f"{r.dropped} events were not kept: the record was full",
            "Record fewer steps, or give a larger limit.",
            "",
            r.dropped,
        )


def failures(r: ProcessRecording) -> Iterator[Advice]:
    """The program failed."""
    for note in r.notes:
        if note.kind == "error":
            yield Advice("error", note.text, "The record ends here.", note.where, 1, note.time_s)


RULES: Sequence[Callable[[ProcessRecording], Iterator[Advice]]] = (
    failures,
    retracing,
    graph_breaks,
    planning,
    waiting_for_data,
    waiting_for_results,
    small_kernels,
    reorders,
    reference_code,
    oversubscription,
    gaps_in_the_record,
)


def advice_on(recording: ProcessRecording) -> list[Advice]:
    """The warnings of all rules, in their order.

    >>> advice_on(ProcessRecording())
    []
    """
    return [advice for rule in RULES for advice in rule(recording)]
