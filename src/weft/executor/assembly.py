"""Assembles one loop from several steps: substitutes their expressions, merges their stages.

The steps of a loop run over one space, of which some axes make up rows. A step sees it in one of three ways: whole, or,
where it computes numbers of rows, with a size of 1 in the axes of rows (kept) or without these axes (dropped).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from weft.base.record import Record
from weft.base.typing import Any
from weft.executor.buffers import Buffer, BufferView, is_one, same, same_shape
from weft.executor.loop_code import OUTPUTS, LoopCode, with_parts
from weft.executor.steps import LoopStep, Origin, Step
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Store, parts
from weft.ops.kernels import as_stored
from weft.ops.node import Value

__all__ = [
    "DROPPED",
    "KEPT",
    "WHOLE",
    "Fused",
    "Space",
    "View",
    "agrees",
    "alone",
    "assemble",
    "once_view",
    "strides_in",
    "traffic",
]

Scalar = e.Scalar
WHOLE, KEPT, DROPPED = "whole", "kept", "dropped"


class Space(Record):
    """What a loop runs over; axes: those that make up a row."""

    shape: tuple[Any, ...]
    axes: tuple[int, ...] = ()

    def row_view(self, step: LoopStep) -> str | None:
        """How a pointwise step sees the rows, if it is one number for each of them."""
        if not self.axes or not step.is_pointwise:
            return None
        kept = tuple(1 if d in self.axes else n for d, n in enumerate(self.shape))
        if same_shape(step.shape, kept):
            return KEPT
        dropped = tuple(n for d, n in enumerate(self.shape) if d not in self.axes)
        return DROPPED if same_shape(step.shape, dropped) else None

    def spread(self, place: BufferView) -> BufferView:
        """A place without the axes of rows, as one with a size of 1 there."""
        sizes, strides = iter(place.shape), iter(place.strides)
        missing = len(self.shape) - len(self.axes) - place.ndim  # broadcast dimensions in front
        shape: list[Any] = []
        steps: list[Any] = []
        for d in range(len(self.shape)):
            if d in self.axes or missing > 0:
                missing -= d not in self.axes
                shape.append(1)
                steps.append(0)
            else:
                shape.append(next(sizes))
                steps.append(next(strides))
        return BufferView(place.buffer, place.type.like(shape), steps, place.offset)


View = str


def strides_in(space: Space, place: BufferView, view: View) -> tuple[Any, ...]:
    """How the element moves in memory along each dimension of the space."""
    if view == DROPPED:
        place = space.spread(place)
    front = len(space.shape) - place.ndim
    moves = [0 if is_one(n) else s for n, s in zip(place.shape, place.strides, strict=True)]
    return (*[0] * front, *moves)


class Fused(Step):
    """A loop of the native core on places. lent: operands that only give their shape; parameters: their numbers."""

    def __init__(
        self,
        steps: Sequence[LoopStep],
        code: LoopCode,
        inputs: Sequence[BufferView],
        outputs: Sequence[BufferView],
        lent: Iterable[BufferView],
        parameters: Sequence[tuple[Any, str]],
        elementwise: bool,
    ) -> None:
        names = list(dict.fromkeys(step.origin.name for step in steps))
        where = next((step.origin.where for step in reversed(steps) if step.origin.where), "")
        text = "; ".join(step.text for step in steps)
        super().__init__(f"loop {text}", Origin(", ".join(names), where), inputs, outputs)
        self.code, self.operands, self.parameters = code, (*inputs, *outputs), tuple(parameters)
        self.lent, self.elementwise = tuple(lent), elementwise
        self.members = tuple((step.loop, step.shape, step.origin.node) for step in steps)
        self.number = 0  # of its last step in the program's order


def assemble(name: str, space: Space, members: Sequence[tuple[LoopStep, View]], stored: set[int]) -> Fused:
    """The loop of these steps, each after what it reads; stored: the buffers, by id, that other steps read."""
    return _Assembly(name, space, members, stored).finish()


def alone(name: str, step: LoopStep, outputs: Iterable[Buffer]) -> Fused:
    """The loop of one step, with which no other is merged; outputs: what is read after it."""
    space, kept = Space(step.shape, step.loop.axes), {id(buffer) for buffer in outputs}
    return assemble(name, space, [(step, WHOLE)], kept)


class _Assembly:
    def __init__(
        self, name: str, space: Space, members: Sequence[tuple[LoopStep, View]], stored: set[int]
    ) -> None:
        self.name, self.space, self.members, self.stored = name, space, members, stored
        self.inputs: list[BufferView] = []
        self.input_of: dict[Any, int] = {}
        self.outputs: list[BufferView] = []
        self.parameters: list[tuple[Any, str]] = []
        self.made: dict[int, Scalar] = {}  # what has been computed, by its buffer's id
        self.slot_of: dict[int, int] = {}  # in which pass over the row a reduction is computed
        self.passes: list[list[Reduction]] = []
        self.known: dict[Any, Scalar] = {}  # reductions that are there, by what they are
        self.each: list[Store] = []
        self.once: list[Store] = []
        self.closed: list[Any] = []  # stages of a step that keeps its own, after all others

    def finish(self) -> Fused:
        for step, view in self.members:
            if step.is_closed:
                self.add_closed(step)
            else:
                self.add(step, view)
        lent = self.lend(self.stages())
        self.store_sizes()
        stages = self.stages()
        if not self.closed and any(step.calls_functions for step, _ in self.members):
            from weft.executor.stored_once import store_once  # arithmetic needs none of it

            stages = store_once(self.space.shape, self.space.axes, stages, self.inputs, self.outputs)
        rank = max((len(self.space.shape), *(p.ndim for p in self.inputs + self.outputs)))
        row_axes = sum(1 << (rank - 1 - axis) for axis in self.space.axes)
        ordered = any(step.loop.ordered for step, _ in self.members)
        code = LoopCode(
            self.name,
            rank,
            tuple(p.type.dtype.name for p in (*self.inputs, *self.outputs)),
            tuple(stages),
            len(self.inputs),
            row_axes,
            ordered,
        )
        positions = any(step.asks_positions for step, _ in self.members)
        return Fused(
            [step for step, _ in self.members],
            code,
            self.inputs,
            self.outputs,
            lent,
            self.parameters,
            not row_axes and not positions,
        )

    def stages(self) -> list[Any]:
        stages: list[Any] = [Fold(tuple(reductions)) for reductions in self.passes]
        stages += self.closed
        if self.each:
            stages.append(Each(tuple(self.each)))
        if self.once:
            stages.append(Once(tuple(self.once)))
        return stages

    # Expressions.

    def rewriter(self, step: LoopStep, view: View, results: dict[int, Scalar]) -> Any:
        """A function that gives a step's expressions on the whole loop's operands."""
        outputs = {len(step.inputs) + j: y for j, y in enumerate(step.outputs)}

        def replace(part: Scalar) -> Scalar:
            if part.op == "load" and part.value in outputs:
                return e.load(OUTPUTS + self.output(outputs[part.value], view), part.dtype)
            if part.op == "load":
                return self.load(step.inputs[part.value], view, part.dtype)
            if part.op == "parameter":
                return self.parameter(step.loop.numbers[part.value], part.dtype)
            if part.op == "result":
                return results[part.value]
            return part

        return lambda root: e.substitute(root, replace)

    def load(self, source: BufferView | Value | None, view: View, dtype: str) -> Scalar:
        if isinstance(source, Value):
            return self.parameter(source, dtype)
        assert source is not None
        made = self.made.get(id(source.buffer))
        return e.load(self.operand(source, view), dtype) if made is None else as_stored(made)

    def operand(self, place: BufferView, view: View) -> int:
        seen = self.space.spread(place) if view == DROPPED else place
        number = self.input_of.setdefault(seen.key, len(self.inputs))
        if number == len(self.inputs):
            self.inputs.append(seen)
        return number

    def parameter(self, value: Any, dtype: str) -> Scalar:
        if isinstance(value, Value) and value.is_constant:
            return e.constant(value.node.value, dtype)
        is_size = type(value) is int and dtype in e.FLOATS  # as Row.number has it
        if isinstance(value, int | float) and not is_size:
            return e.constant(value, dtype)
        for k, (known, kind) in enumerate(self.parameters):
            if (known is value or (is_size and isinstance(known, int) and known == value)) and kind == dtype:
                return e.parameter(k, dtype)
        self.parameters.append((value, dtype))
        return e.parameter(len(self.parameters) - 1, dtype)

    def output(self, place: BufferView, view: View) -> int:
        """The index of an output, which has as many dimensions as the loop."""
        once = place.ndim < len(self.space.shape) and self.space.axes
        seen = self.space.spread(place) if once or view == DROPPED else place
        for j, known in enumerate(self.outputs):
            if known.key == seen.key:
                return j
        self.outputs.append(seen)
        return len(self.outputs) - 1

    # Steps.

    def add(self, step: LoopStep, view: View) -> None:
        """A step whose stages may be split up: reductions as early as can be, stores at the end."""
        results: dict[int, Scalar] = {}
        rewrite = self.rewriter(step, view, results)
        for stage in step.loop.stages:
            if isinstance(stage, Fold):
                for reduction in stage.reductions:
                    results[reduction.number] = self.reduce(reduction, rewrite(reduction.value))
                continue
            stores = self.once if isinstance(stage, Once) or view != WHOLE else self.each
            for store in stage.stores:
                place = step.outputs[store.operand - len(step.inputs)]
                value = rewrite(store.value)
                if not place.buffer.in_parts:
                    self.made[id(place.buffer)] = value
                if id(place.buffer) in self.stored:
                    stores.append(Store(self.output(place, view), value, store.add))

    def reduce(self, reduction: Reduction, value: Scalar) -> Scalar:
        """The result of a reduction, in the first pass over the row that can have it."""
        key = (reduction.op, id(value), reduction.start)
        found = self.known.get(key)
        if found is None:
            needs = [self.slot_of[part.value] + 1 for part in e.walk(value) if part.op == "result"]
            slot = max(needs, default=0)
            if slot == len(self.passes):
                self.passes.append([])
            made = Reduction(len(self.slot_of), reduction.op, value, reduction.start)
            self.passes[slot].append(made)
            self.slot_of[made.number] = slot
            found = self.known[key] = e.result(made.number, made.dtype)
        return found

    def add_closed(self, step: LoopStep) -> None:
        """A step whose stages stay as they are, behind the others."""
        results: dict[int, Scalar] = {}
        rewrite = self.rewriter(step, WHOLE, results)

        def reduction(r: Reduction) -> Reduction:
            value, number = rewrite(r.value), len(self.slot_of)
            self.slot_of[number] = len(self.passes)
            made = Reduction(number, r.op, value, r.start)
            results[r.number] = e.result(number, made.dtype)
            return made

        def store(s: Store) -> Store:
            place = step.outputs[s.operand - len(step.inputs)]
            return Store(self.output(place, WHOLE), rewrite(s.value), s.add)

        for stage in step.loop.stages:
            self.closed.append(with_parts(stage, reduction, store))

    def lend(self, stages: Sequence[Any]) -> list[BufferView]:
        """Operands that nothing is read of are added where only they determine how often to do what is done."""
        often = any(isinstance(stage, Each | Fold | Scan) for stage in stages)
        shape = self.space.shape
        lent: list[BufferView] = []
        for d, n in enumerate(shape):
            if is_one(n) or (d in self.space.axes and not often) or self.tells(d):
                continue
            for step, view in self.members:
                for place in (*step.reads, *step.outputs):
                    seen = self.space.spread(place) if view == DROPPED else place
                    at = d - (len(shape) - seen.ndim)
                    if (
                        not self.tells(d)
                        and at >= 0
                        and not is_one(seen.shape[at])
                        and id(place.buffer) not in self.made
                    ):
                        self.operand(place, view)
                        lent.append(seen)
        return lent

    def store_sizes(self) -> None:
        """Store what alone determines how often a loop runs: rows that are made up and reduced, and never read."""
        for d in self.space.axes:
            for step, view in self.members:
                for place in step.outputs:
                    made = self.made.get(id(place.buffer))
                    whole = view == WHOLE and place.ndim == len(self.space.shape)
                    if made is not None and whole and not is_one(place.shape[d]) and not self.tells(d):
                        self.each.append(Store(self.output(place, view), made))

    def tells(self, d: int) -> bool:
        """Whether an operand has the space's size in a dimension."""
        for place in (*self.inputs, *self.outputs):
            at = d - (len(self.space.shape) - place.ndim)
            if at >= 0 and not is_one(place.shape[at]):
                return True
        return False


def traffic(space: Space, loop: Fused) -> int:
    """Bytes that a loop reads and writes in its passes over a space of known sizes; numbers of rows do not count."""
    places, inputs = loop.operands, loop.code.inputs
    found = 0
    for stage in loop.code.stages:
        values = [part.value for part in parts(stage)]
        touched = {node.value for node in e.walk(*values) if node.op == "load"}
        touched |= {OUTPUTS + part.operand for part in parts(stage) if isinstance(part, Store)}
        for k in touched:
            place = places[k] if k < OUTPUTS else places[inputs + k - OUTPUTS]
            if same_shape(place.shape, space.shape):
                found += math.prod(place.shape) * place.type.dtype.itemsize
    return found


def agrees(space: Space, made: BufferView, made_view: View, read: BufferView, read_view: View) -> bool:
    """Whether a place that is read has at every position of the space the element that was made there."""
    return (
        read.type.dtype is made.type.dtype
        and same(read.offset, made.offset)
        and all(
            is_one(n) or same(a, b)
            for n, a, b in zip(
                space.shape,
                strides_in(space, made, made_view),
                strides_in(space, read, read_view),
                strict=True,
            )
        )
    )


def once_view(space: Space, step: LoopStep, place: BufferView, view: View) -> View:
    """How a step's output is seen: what is stored once a row has a size of 1 in its axes, or lacks them."""
    if view != WHOLE or not step.loop.axes:
        return view
    if place.ndim < len(space.shape):
        return DROPPED
    return KEPT if all(is_one(place.shape[axis]) for axis in space.axes) else WHOLE
