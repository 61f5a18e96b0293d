"""Assigns order and memory to steps: lifetimes, results written over dying inputs, the arena."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from weft.base import flags
from weft.executor.assembly import Fused
from weft.executor.buffers import Buffer, BufferView, same_shape
from weft.executor.memory import ArenaBlock, aligned, largest_live_bytes, lay_out
from weft.executor.plan_info import Lifetime, MemoryReport
from weft.executor.steps import NativeStep, Step, written_by

__all__ = ["GUARD_BYTES", "Arena", "in_order", "placed_in_order"]

GUARD_BYTES = 64  # between blocks, with WEFT_CHECK=1

Steps = Sequence[Fused | NativeStep]


def in_order(steps: Steps, written: Mapping[int, Sequence[Buffer]]) -> list[Fused | NativeStep]:
    """The steps in the order in which they run.

    written: for each output's buffer, by id, the inputs that it becomes the new content of. Steps that read the old
    content run before, where the program has them before, so that the new one is written over it.
    """
    from weft.executor.order import Task, ordered  # not before there are steps to order

    makers = written_by(steps)
    readers: dict[int, list[int]] = {}
    for k, step in enumerate(steps):
        for x in step.reads:
            readers.setdefault(id(x.buffer), []).append(k)
    after = [_needs(k, step, makers, readers) for k, step in enumerate(steps)]
    in_program_order = [k for k, step in enumerate(steps) if isinstance(step, NativeStep) and step.ordered]
    for before, later in itertools.pairwise(in_program_order):
        after[later].add(before)
    sizes = {id(b): aligned(b.size_bytes) for step in steps for b in step.temporaries}

    read = [frozenset([key for x in step.reads if (key := id(x.buffer)) in sizes]) for step in steps]
    made = [frozenset([key for y in step.writes if (key := id(y.buffer)) in sizes]) for step in steps]

    def tasks() -> list[Task]:
        return [
            Task(
                step.number,
                frozenset(after[k]),
                read[k],
                made[k],
                isinstance(step, NativeStep) and step.ordered,
            )
            for k, step in enumerate(steps)
        ]

    plain = ordered(tasks(), sizes, keep=True)
    if written:
        position = {k: p for p, k in enumerate(plain)}
        for key, targets in written.items():
            for k in makers.get(key, ()):
                for target in targets:
                    after[k] |= {r for r in readers.get(id(target), ()) if position[r] < position[k]}
        plain = ordered(tasks(), sizes, keep=True)
    early = ordered(tasks(), sizes)
    best = min((early, plain), key=lambda order: _peak([steps[k] for k in order]))
    return [steps[k] for k in best]


def _needs(k: int, step: Step, makers: Mapping[int, list[int]], readers: Mapping[int, list[int]]) -> set[int]:
    """The steps that make what a step reads, and those that write the same array before it, or read what it overwrites.

    Of the steps that write parts of an array each comes after the one before, so the last of them stands for all. What
    a step reads is what those before it have written: see contents.py.
    """
    needs: set[int] = set()
    for x in step.reads:
        of_array = makers.get(id(x.buffer), ())
        place = bisect_left(of_array, k)
        needs.update(of_array[place - 1 : place] if place else ())
    for y in step.writes:
        of_array, of_readers = makers[id(y.buffer)], readers.get(id(y.buffer), ())
        place = bisect_left(of_array, k)
        begin = of_array[place - 1] if place else 0
        needs.update(of_array[place - 1 : place] if place else ())
        needs.update(of_readers[bisect_left(of_readers, begin) : bisect_left(of_readers, k)])
    return needs


def placed_in_order(
    steps: list[Fused | NativeStep], outputs: Iterable[Buffer], written: Mapping[int, Sequence[Buffer]]
) -> list[Fused | NativeStep]:
    """The steps in order, with what dies where a result is written over it in the memory of the result."""
    if len(steps) < 2:
        return steps
    steps = in_order(steps, written)
    place_in_results(steps, [b for b in outputs if b.output and id(b) not in written])
    return steps


def place_in_results(steps: Steps, fresh: Iterable[Buffer]) -> None:
    """Puts what dies where a result is written over it into the memory of the result from the beginning.

    fresh: the outputs in memory of their own, which nothing else needs before they are written.
    """
    results = {id(buffer) for buffer in fresh}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for t, step in enumerate(steps):
        for y in step.writes:
            first.setdefault(id(y.buffer), t)
        for view in (*step.reads, *step.writes):
            last[id(view.buffer)] = t
    for t in reversed(range(len(steps))):
        for x, y in overwriting_pairs(steps[t]):
            a, b = x.buffer, y.buffer
            if (
                (id(b) in results or b.within is not None)
                and not a.in_parts
                and first[id(b)] == t == last.get(id(a))
                and x.is_whole
                and y.is_whole
                and may_overwrite(steps[t], x, y)
            ):
                a.within = b.within or b
                break


def overwriting_pairs(step: Step) -> Sequence[tuple[BufferView, BufferView]]:
    """What a step reads and writes so that both may be the same memory."""
    if isinstance(step, Fused):
        return [(x, y) for y in step.writes for x in step.reads] if step.elementwise else ()
    assert isinstance(step, NativeStep)
    return step.in_place


def may_overwrite(step: Step, x: BufferView, y: BufferView) -> bool:
    """Whether y may be written over x, which dies: the same elements at the same addresses, read in no other view."""
    a, b = x.buffer, y.buffer
    return (
        a.is_temporary
        and a is not b
        and not b.in_parts
        and a.size_bytes == b.size_bytes
        and x.type.dtype is y.type.dtype
        and same_shape(x.shape, y.shape)
        and same_shape(x.strides, y.strides)
        and x.offset == y.offset == 0
        and all(view.key == x.key for view in step.reads if view.buffer is a)
    )


def lifetimes(steps: Steps) -> dict[int, tuple[Buffer, int, int]]:
    """Of every temporary buffer, by id: in which step it is written first, and used last."""
    spans: dict[int, tuple[Buffer, int, int]] = {}
    for t, step in enumerate(steps):
        for buffer in step.temporaries:
            if buffer.within is None:
                spans[id(buffer)] = (buffer, spans.get(id(buffer), (buffer, t, t))[1], t)
    return spans


def _peak(steps: Steps) -> int:
    return largest_live_bytes(
        [ArenaBlock(key, b.size_bytes, first, last) for key, (b, first, last) in lifetimes(steps).items()]
    )


class Arena:
    """The memory plan of steps in their order: offsets of buffers by id, and their lifetimes."""

    def __init__(self, steps: Steps, naive_bytes: int, kept: Sequence[Buffer] = ()) -> None:
        self.lifetimes = lifetimes(steps)
        self.overwritten: dict[int, int] = {}  # by id, the buffer that one is written over
        self.find_in_place(steps)
        blocks = self.blocks()
        self.is_checked = flags.get("WEFT_CHECK")
        plan = lay_out(blocks, GUARD_BYTES if self.is_checked else 0)
        self.size_bytes = plan.arena_bytes
        self.offsets = {key: plan.offsets[self.storage(key)] for key in self.lifetimes}
        self.spans = [(b.first, b.last, plan.offsets[b.key], b.size_bytes) for b in blocks if b.size_bytes]
        makers = {key: step for step in reversed(steps) for key in {id(y.buffer) for y in step.writes}}
        self.report = MemoryReport(
            naive_bytes,
            sum(aligned(b.size_bytes) for b, *_ in self.lifetimes.values()),
            sum(aligned(b.size_bytes) for b in blocks),
            plan.arena_bytes,
            plan.largest_live_bytes,
            tuple(
                Lifetime(
                    makers[key].text if key in makers else "",
                    b.size_bytes,
                    self.offsets[key],
                    first,
                    last,
                    makers[key].origin.where if key in makers else "",
                    str(b.type),
                )
                for key, (b, first, last) in self.lifetimes.items()
            ),
            sum(aligned(buffer.size_bytes) for buffer in kept),
        )

    def storage(self, key: int) -> int:
        """The first buffer, by id, in whose memory this one is."""
        while key in self.overwritten:
            key = self.overwritten[key]
        return key

    def blocks(self) -> list[ArenaBlock]:
        """Buffers in the same memory as one block."""
        spans: dict[int, tuple[int, int, int]] = {}
        for key, (_, first, last) in self.lifetimes.items():
            storage = self.storage(key)
            begin, end = spans.get(storage, (0, first, last))[1:]
            spans[storage] = (self.lifetimes[storage][0].size_bytes, min(begin, first), max(end, last))
        return [ArenaBlock(key, *span) for key, span in spans.items()]

    def find_in_place(self, steps: Steps) -> None:
        """Results of elementwise loops, and of kernels that allow it, over inputs that die there."""
        for t, step in enumerate(steps):
            reused: set[int] = set()
            for x, y in overwriting_pairs(step):
                if (
                    self.may_replace(t, step, x, y)
                    and id(x.buffer) not in reused
                    and id(y.buffer) not in self.overwritten
                ):
                    reused.add(id(x.buffer))
                    self.overwritten[id(y.buffer)] = id(x.buffer)

    def may_replace(self, t: int, step: Step, x: BufferView, y: BufferView) -> bool:
        """Whether y may be written over x, and both are in the arena."""
        a, b = self.lifetimes.get(id(x.buffer)), self.lifetimes.get(id(y.buffer))
        return a is not None and b is not None and a[2] == t == b[1] and may_overwrite(step, x, y)
