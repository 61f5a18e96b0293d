"""Assembles one loop from several steps: substitutes their expressions, merges their stages.

The steps of a loop run over one space, of which some axes make up rows. A step runs over one of three projections:
the whole, or, where it computes numbers of rows, with a size of 1 in the axes of rows (kept) or without them (dropped).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import repeat

from weft.base.record import Record
from weft.base.typing import Any
from weft.executor.buffers import Buffer, BufferView, is_one, same, same_shape
from weft.executor.loop_code import OUTPUTS, LoopCode
from weft.executor.steps import LoopStep, Origin, Step
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Store, parts, with_parts
from weft.ops.kernels import as_stored
from weft.ops.node import Value

__all__ = [
    "DROPPED",
    "KEPT",
    "WHOLE",
    "Fused",
    "Projection",
    "Space",
    "agrees",
    "alone",
    "assemble",
    "output_projection",
    "strides_in",
    "traffic",
]

Scalar = e.Scalar
WHOLE, KEPT, DROPPED = "whole", "kept", "dropped"


class Space(Record):
    """What a loop runs over; axes: those that make up a row."""

    shape: tuple[Any, ...]
    axes: tuple[int, ...] = ()

    def row_projection(self, step: LoopStep) -> str | None:
        """The projection of a pointwise step that computes one number for each row; None for other steps."""
        if not self.axes or not step.is_pointwise:
            return None
        kept = tuple(1 if d in self.axes else n for d, n in enumerate(self.shape))
        if same_shape(step.shape, kept):
            return KEPT
        dropped = tuple(n for d, n in enumerate(self.shape) if d not in self.axes)
        return DROPPED if same_shape(step.shape, dropped) else None

    def spread(self, operand: BufferView) -> BufferView:
        """An operand without the axes of rows, as one with a size of 1 there."""
        outer = [d for d in range(len(self.shape)) if d not in self.axes]
        shape, strides = [1] * len(self.shape), [0] * len(self.shape)
        dimensions = outer[max(len(outer) - operand.ndim, 0) :]
        # What an operand has beyond these are sizes of 1, for axes of rows.
        for d, n, s in zip(dimensions, operand.shape, operand.strides, strict=False):
            shape[d], strides[d] = n, s
        return BufferView(operand.buffer, operand.type.like(shape), strides, operand.offset)


Projection = str


def strides_in(space: Space, operand: BufferView, projection: Projection) -> tuple[Any, ...]:
    """How the element moves in memory along each dimension of the space."""
    if projection == DROPPED:
        operand = space.spread(operand)
    front = len(space.shape) - operand.ndim
    strides = [0 if is_one(n) else s for n, s in zip(operand.shape, operand.strides, strict=True)]
    return (*[0] * front, *strides)


class Fused(Step):
    """A loop of the native core. shape_operands: those of which only the shape is read; parameters: of its code."""

    def __init__(
        self,
        steps: Sequence[LoopStep],
        code: LoopCode,
        inputs: Sequence[BufferView],
        outputs: Sequence[BufferView],
        shape_operands: Iterable[BufferView],
        parameters: Sequence[tuple[Any, str]],
        elementwise: bool,
    ) -> None:
        names = list(dict.fromkeys([step.origin.name for step in steps]))
        where = next((step.origin.where for step in reversed(steps) if step.origin.where), "")
        text = "; ".join([step.text for step in steps])
        super().__init__(f"loop {text}", Origin(", ".join(names), where), inputs, outputs)
        self.code, self.operands, self.parameters = code, (*inputs, *outputs), tuple(parameters)
        self.shape_operands, self.elementwise = tuple(shape_operands), elementwise
        self.members = tuple([(step.loop, step.shape, step.origin.node) for step in steps])
        self.number = 0  # of its last step in the program's order


def assemble(
    name: str, space: Space, members: Sequence[tuple[LoopStep, Projection]], stored: set[int]
) -> Fused:
    """The loop of these steps, each after what it reads; stored: the buffers, by id, that other steps read."""
    return _Assembly(name, space, members, stored).finish()


def alone(name: str, step: LoopStep, outputs: Iterable[Buffer]) -> Fused:
    """The loop of one step, with which no other is merged; outputs: what is read after it."""
    space = Space(step.shape, step.loop.axes)
    return assemble(name, space, [(step, WHOLE)], {id(buffer) for buffer in outputs})


class _Assembly:
    def __init__(
        self, name: str, space: Space, members: Sequence[tuple[LoopStep, Projection]], stored: set[int]
    ) -> None:
        self.name, self.space, self.members, self.stored = name, space, members, stored
        self.inputs: list[BufferView] = []
        self.input_of: dict[Any, int] = {}
        self.outputs: list[BufferView] = []
        self.parameters: list[tuple[Any, str]] = []
        self.values: dict[int, Scalar] = {}  # of what has been computed, by its buffer's id
        self.slot_of: dict[int, int] = {}  # in which pass over the row a reduction is computed
        self.passes: list[list[Reduction]] = []
        self.reductions: dict[Any, Scalar] = {}  # results, by (op, value, start)
        self.each: list[Store] = []
        self.once: list[Store] = []
        self.closed: list[Any] = []  # stages of a step that keeps its own, after all others

    def finish(self) -> Fused:
        for step, projection in self.members:
            if step.is_closed:
                self.add_closed(step)
            else:
                self.add(step, projection)
        shape_operands = self.add_shape_operands(self.stages())
        self.store_sizes()
        stages = self.stages()
        if not self.closed and True in [step.calls_functions for step, _ in self.members]:
            from weft.executor.stored_once import store_once  # arithmetic needs none of it

            stages = store_once(self.space.shape, self.space.axes, stages, self.inputs, self.outputs)
        rank = max(len(self.space.shape), *[p.ndim for p in self.inputs + self.outputs])
        row_axes = sum(1 << (rank - 1 - axis) for axis in self.space.axes)
        ordered = True in [step.loop.ordered for step, _ in self.members]
        code = LoopCode(
            self.name,
            rank,
            tuple([p.type.dtype.name for p in (*self.inputs, *self.outputs)]),
            tuple(stages),
            len(self.inputs),
            row_axes,
            ordered,
        )
        reads_positions = True in [step.reads_positions for step, _ in self.members]
        return Fused(
            [step for step, _ in self.members],
            code,
            self.inputs,
            self.outputs,
            shape_operands,
            self.parameters,
            not row_axes and not reads_positions,
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

    def rewriter(self, step: LoopStep, projection: Projection, results: dict[int, Scalar]) -> Any:
        """A function that rewrites a step's expressions for the loop's operands."""
        outputs = {len(step.inputs) + j: y for j, y in enumerate(step.outputs)}
        gathers = bool(step.gathered)

        def replace(part: Scalar) -> Scalar:
            if part.op == "load" and part.value in outputs:
                return e.load(OUTPUTS + self.output(outputs[part.value], projection), part.dtype)
            if part.op == "load_at":
                table = step.inputs[part.value]
                assert isinstance(table, BufferView)
                return e.load_at(self.input(table, projection), part.dtype, *part.args)
            if part.op == "load":
                return self.load(step.inputs[part.value], projection, part.dtype)
            if part.op == "parameter":
                return self.parameter(step.loop.numbers[part.value], part.dtype, gathers)
            if part.op == "result":
                return results[part.value]
            return part

        rebuilt: dict[int, Scalar] = {}
        return lambda root: e.substitute(root, replace, rebuilt, only_leaves=not gathers)

    def load(self, source: BufferView | Value | None, projection: Projection, dtype: str) -> Scalar:
        if isinstance(source, Value):
            return self.parameter(source, dtype)
        assert source is not None
        value = self.values.get(id(source.buffer))
        return e.load(self.input(source, projection), dtype) if value is None else as_stored(value)

    def input(self, operand: BufferView, projection: Projection) -> int:
        """The index of an input of the loop."""
        operand = self.space.spread(operand) if projection == DROPPED else operand
        index = self.input_of.setdefault(operand.key, len(self.inputs))
        if index == len(self.inputs):
            self.inputs.append(operand)
        return index

    def parameter(self, value: Any, dtype: str, is_stride: bool = False) -> Scalar:
        if isinstance(value, Value) and value.is_constant:
            return e.constant(value.node.value, dtype)
        is_size = type(value) is int and (is_stride or dtype in e.FLOATS)  # as Row.number has it
        if isinstance(value, int | float) and not is_size:
            return e.constant(value, dtype)
        for k, (other, kind) in enumerate(self.parameters):
            if (other is value or (is_size and isinstance(other, int) and other == value)) and kind == dtype:
                return e.parameter(k, dtype)
        self.parameters.append((value, dtype))
        return e.parameter(len(self.parameters) - 1, dtype)

    def output(self, operand: BufferView, projection: Projection) -> int:
        """The index of an output, which has as many dimensions as the loop."""
        is_row_value = operand.ndim < len(self.space.shape) and self.space.axes
        operand = self.space.spread(operand) if is_row_value or projection == DROPPED else operand
        for j, other in enumerate(self.outputs):
            if other.key == operand.key:
                return j
        self.outputs.append(operand)
        return len(self.outputs) - 1

    # Steps.

    def add(self, step: LoopStep, projection: Projection) -> None:
        """A step whose stages may be split up: reductions as early as can be, stores at the end."""
        results: dict[int, Scalar] = {}
        rewrite = self.rewriter(step, projection, results)
        for stage in step.loop.stages:
            if isinstance(stage, Fold):
                for reduction in stage.reductions:
                    results[reduction.number] = self.reduce(reduction, rewrite(reduction.value))
                continue
            stores = self.once if isinstance(stage, Once) or projection != WHOLE else self.each
            for store in stage.stores:
                output = step.outputs[store.operand - len(step.inputs)]
                value = rewrite(store.value)
                if not output.buffer.in_parts:
                    self.values[id(output.buffer)] = value
                if id(output.buffer) in self.stored:
                    stores.append(Store(self.output(output, projection), value, store.add))

    def reduce(self, reduction: Reduction, value: Scalar) -> Scalar:
        """The result of a reduction, in the first pass over the row that can have it."""
        key = (reduction.op, id(value), reduction.start)
        result = self.reductions.get(key)
        if result is None:
            needs = [self.slot_of[part.value] + 1 for part in e.walk(value) if part.op == "result"]
            slot = max(needs, default=0)
            if slot == len(self.passes):
                self.passes.append([])
            new = Reduction(len(self.slot_of), reduction.op, value, reduction.start)
            self.passes[slot].append(new)
            self.slot_of[new.number] = slot
            result = self.reductions[key] = e.result(new.number, new.dtype)
        return result

    def add_closed(self, step: LoopStep) -> None:
        """A step whose stages stay as they are, behind the others."""
        results: dict[int, Scalar] = {}
        rewrite = self.rewriter(step, WHOLE, results)

        def reduction(r: Reduction) -> Reduction:
            value, number = rewrite(r.value), len(self.slot_of)
            self.slot_of[number] = len(self.passes)
            new = Reduction(number, r.op, value, r.start)
            results[r.number] = e.result(number, new.dtype)
            return new

        def store(s: Store) -> Store:
            output = step.outputs[s.operand - len(step.inputs)]
            return Store(self.output(output, WHOLE), rewrite(s.value), s.add)

        for stage in step.loop.stages:
            self.closed.append(with_parts(stage, reduction, store))

    def add_shape_operands(self, stages: Sequence[Any]) -> list[BufferView]:
        """Adds operands that no code reads, where they alone determine how often to do what is done."""
        reads_elements = any(isinstance(stage, Each | Fold | Scan) for stage in stages)
        shape = self.space.shape
        added: list[BufferView] = []
        for d, n in enumerate(shape):
            if is_one(n) or (d in self.space.axes and not reads_elements):
                continue
            for step, projection in self.members:
                for operand in (*step.reads, *step.outputs):
                    if self.has_operand_along(d):
                        break
                    operand_in_space = self.space.spread(operand) if projection == DROPPED else operand
                    if self.extends(operand_in_space, d) and id(operand.buffer) not in self.values:
                        self.input(operand, projection)
                        added.append(operand_in_space)
        return added

    def store_sizes(self) -> None:
        """Store what alone determines how often a loop runs: rows that are made up and reduced, and never read."""
        for d in self.space.axes:
            for step, projection in self.members:
                for output in step.outputs:
                    value = self.values.get(id(output.buffer))
                    whole = projection == WHOLE and output.ndim == len(self.space.shape)
                    if (
                        value is not None
                        and whole
                        and self.extends(output, d)
                        and not self.has_operand_along(d)
                    ):
                        self.each.append(Store(self.output(output, projection), value))

    def has_operand_along(self, d: int) -> bool:
        """Whether an operand has the space's size in dimension d."""
        return any(map(self.extends, (*self.inputs, *self.outputs), repeat(d)))

    def extends(self, operand: BufferView, d: int) -> bool:
        """Whether an operand is not broadcast along dimension d of the space."""
        axis = d - (len(self.space.shape) - operand.ndim)
        return axis >= 0 and not is_one(operand.shape[axis])


def traffic(space: Space, loop: Fused) -> int:
    """Bytes that a loop reads and writes in its passes over a space of known sizes; numbers of rows do not count."""
    inputs, size_bytes = loop.code.inputs, 0
    for stage in loop.code.stages:
        values = [part.value for part in parts(stage)]
        touched = {node.value for node in e.walk(*values) if node.op == "load"}
        touched |= {OUTPUTS + part.operand for part in parts(stage) if isinstance(part, Store)}
        for k in touched:
            operand = loop.operands[k if k < OUTPUTS else inputs + k - OUTPUTS]
            if same_shape(operand.shape, space.shape):
                size_bytes += math.prod(operand.shape) * operand.type.dtype.itemsize
    return size_bytes


def agrees(
    space: Space,
    written: BufferView,
    written_projection: Projection,
    read: BufferView,
    read_projection: Projection,
) -> bool:
    """Whether what is read has at every position of the space the element that was written there."""
    return (
        read.type.dtype is written.type.dtype
        and same(read.offset, written.offset)
        and all(
            is_one(n) or same(a, b)
            for n, a, b in zip(
                space.shape,
                strides_in(space, written, written_projection),
                strides_in(space, read, read_projection),
                strict=True,
            )
        )
    )


def output_projection(space: Space, step: LoopStep, output: BufferView, projection: Projection) -> Projection:
    """The projection of a step's output: what is stored once a row has a size of 1 in its axes, or lacks them."""
    if projection != WHOLE or not step.loop.axes:
        return projection
    if output.ndim < len(space.shape):
        return DROPPED
    return KEPT if all(is_one(output.shape[axis]) for axis in space.axes) else WHOLE
