"""Hoists steps that depend only on inputs that seldom change (Graph.stable_inputs): they run once for many runs.

Examples: packing of weights into kernels' layouts, folded normalizations, casts of parameters. The program runs
these steps when one of those inputs was written since the last time (native/program/prepacked.h), and keeps what others
read of their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.executor.buffers import Buffer, BufferView
from weft.executor.steps import LoopStep, NativeStep, Step, written_by
from weft.ops.node import Value

__all__ = ["StableInputs", "hoist"]

LARGER = 2  # times the bytes of the inputs that it is made of, a result may have to be kept
SMALL_BYTES = 64 << 10  # results that are kept whatever they are made of


class StableInputs:
    """Which buffers follow from the stable inputs: by id, the inputs of each. Steps are added in order."""

    def __init__(self, inputs: Iterable[Buffer]) -> None:
        self.origins: dict[int, frozenset[Buffer]] = {id(buffer): frozenset([buffer]) for buffer in inputs}
        self.any = bool(self.origins)
        self._count = 0

    def holds(self, view: BufferView, steps: Sequence[Step]) -> bool:
        """Whether a view shows such a value, after these steps, of which there may be more than before."""
        for step in steps[self._count :]:
            self.add(step)
        self._count = len(steps)
        return id(view.buffer) in self.origins

    def add(self, step: Step) -> bool:
        """Register a step; True if it should run once rather than in each run of the program."""
        fits = self.any and _is_pure(step) and all(id(x.buffer) in self.origins for x in step.reads)
        sources = (self.origins[id(x.buffer)] for x in (step.reads if fits else ()))
        origins = frozenset[Buffer]().union(*sources)
        most = LARGER * sum(buffer.size_bytes for buffer in origins) + SMALL_BYTES
        fits = fits and all(y.buffer.size_bytes <= most and not y.buffer.output for y in step.writes)
        for y in step.writes:
            if fits:
                self.origins[id(y.buffer)] = origins | self.origins.get(id(y.buffer), frozenset())
            else:
                self.origins.pop(id(y.buffer), None)
        return fits


def hoist(inputs: Iterable[Buffer], steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """The hoisted steps, and those of every run; what these read of the first is marked as kept."""
    stable_inputs = StableInputs(inputs)
    if not stable_inputs.any:
        return [], list(steps)
    makers = written_by(steps)
    readers: dict[int, list[int]] = {}
    hoisted: set[int] = set()
    constant: set[int] = (
        set()
    )  # of these, what reads no input: every run computes it as quickly as it reads it
    for k, step in enumerate(steps):
        if stable_inputs.add(step):
            hoisted.add(k)
            if not any(stable_inputs.origins[id(y.buffer)] for y in step.writes):
                constant.add(k)
        for x in step.reads:
            readers.setdefault(id(x.buffer), []).append(k)
    while True:  # a buffer that a step of every run writes is not made once, nor is what follows from it
        unhoistable = set()
        for k in hoisted:
            step = steps[k]
            needs = {m for x in (*step.reads, *step.writes) for m in makers.get(id(x.buffer), ())}
            if k in constant:
                needs |= {r for y in step.writes for r in readers.get(id(y.buffer), ())}
            if not needs <= hoisted:
                unhoistable.add(k)
        if not unhoistable:
            break
        hoisted -= unhoistable
    first = [step for k, step in enumerate(steps) if k in hoisted]
    rest = [step for k, step in enumerate(steps) if k not in hoisted]
    written = {id(y.buffer) for step in first for y in step.writes}
    for step in rest:
        for x in step.reads:
            x.buffer.kept |= id(x.buffer) in written
    return first, rest


def _is_pure(step: Step) -> bool:
    """Whether a step reads nothing but its operands, no numbers of the call."""
    if isinstance(step, NativeStep):
        return step.is_pure
    assert isinstance(step, LoopStep)
    numbers = (*(x for x in step.inputs if isinstance(x, Value)), *step.loop.numbers)
    return all(x.is_constant if isinstance(x, Value) else isinstance(x, bool | int | float) for x in numbers)
