"""The planner: a graph becomes a Program of the native core.

Every node is lowered by the first choice of its operator that can be had: a Loop for the expression compiler, a Native
kernel, or a View; else by its decomposition. Loops on the same space are merged where one is read by the other only.
Geometry is written as registers, so that a plan for a pattern holds for all sizes.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> plan = make_plan(graph_of(lambda x: F.exp(x) * 2, [TensorType((2, 3), float32)]), "example")
>>> plan.name, len(plan.recipe.steps)
('example', 1)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft import _core
from weft.base.device import Device, cpu
from weft.base.dtype import DTYPES, DType, as_dtype
from weft.executor.loops import DATA, GEOMETRY, NOTHING, SHOWN, LoopStep, Place, without_rows
from weft.expr import scalar as e
from weft.expr.kernel import Each, Store
from weft.graph.graph import Graph, reads_of
from weft.ops.kernels import CHANNELS_LAST, KEY, LIKE_INPUT, ROW_MAJOR, Loop, Native, Parts, Several, View
from weft.ops.node import Node, Value
from weft.ops.sizes import NeedsSizes, Size, input_stride
from weft.ops.types import TensorType

__all__ = ["Recipe", "make_plan"]

OPERANDS = 16  # of a loop that others were merged into


@dataclass
class Recipe:
    """What a plan was made from, and what it does; kept by the plan for gradients and for people."""

    name: str
    graph: Graph
    strides: tuple[Any, ...]  # of the arrays given
    made: tuple[Any, ...]  # strides of the outputs
    visible: int
    steps: list[str] = field(default_factory=list)
    exact: bool = False


def make_plan(
    graph: Graph,
    name: str,
    strides: Sequence[Any] = (),
    visible: int | None = None,
    gradients: int = 0,
    exact: bool = False,
    as_tuple: bool = False,
    first_choice: int = 0,
) -> Any:
    """The _core.Plan of a graph.

    strides: for each array among the graph's inputs, in elements; of those not given they are whatever they are, in an
    exact plan row-major. visible: how many outputs callers get, as_tuple: in a tuple even if it is one. first_choice:
    of the kernels of the graph's operators; for tests, which compare them.
    Raises NeedsSizes if some rule has to know a size that is a symbol; what rules raise.
    """
    lowering = _Lowering(graph, name, strides, exact)
    lowering.first_choice = first_choice
    return lowering.finish(visible, as_tuple, gradients)


def is_number(value: Value) -> bool:
    """Whether an input of a graph is a number of the host rather than an array."""
    return value.type.weak


def row_major(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Strides of a contiguous array, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[Any] = []
    step: Any = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * (max(n, 1) if isinstance(n, int) else n)
    return tuple(reversed(strides))


class _Lowering:
    """One graph on its way."""

    def __init__(self, graph: Graph, name: str, strides: Sequence[Any], exact: bool) -> None:
        self.graph, self.name, self.exact = graph, name, exact
        self.first_choice = 0
        self.registers: dict[Any, int] = {}
        self.constants: list[tuple[int, int]] = []
        self.loads: list[tuple[str, int, int, int]] = []
        self.computes: list[tuple[str, int, int, int]] = []
        self.values: list[Any] = []  # descriptions, behind the inputs
        self.slots: list[tuple[str, DType, Any]] = []
        self.slot_of: dict[Any, int] = {}
        self.steps: list[Any] = []
        self.randoms: list[Any] = []
        self.places: dict[int, Place] = {}
        self.numbers: dict[int, int] = {}  # of host numbers among the graph's inputs
        self.arrays: list[Value] = []
        self.merged: dict[int, Any] = {}
        self.kept: list[Value] = []  # so that their ids stay theirs
        self.texts: list[str] = []
        self.wide = False
        self.arena: Any = 0
        for value in graph.inputs:
            if is_number(value):
                self.numbers[id(value)] = len(self.numbers)
                continue
            given = strides[len(self.arrays)] if len(self.arrays) < len(strides) else None
            if given is None and not exact:
                given = [input_stride(len(self.arrays), d) for d in range(value.ndim)]
            self.places[id(value)] = Place(
                len(self.arrays), value.type, tuple(given) if given is not None else row_major(value.shape)
            )
            self.arrays.append(value)
        self.uses = [NOTHING] * len(self.arrays)
        self.device: Device = next((v.type.device for v in self.arrays), cpu(0))
        self.readers = _readers(graph)
        self.seen = set(map(id, graph.nodes))  # nodes that are lowered, or will be
        self.wanted = {id(v) for v in graph.outputs if v is not None}

    # Registers.

    def register(self, size: Any) -> int:
        """The register that holds an int or a Size."""
        key = size if isinstance(size, int) else id(size)
        found = self.registers.get((type(size) is Size, key))
        if found is not None:
            return found
        operands: list[int] = []
        if isinstance(size, Size) and size.op not in ("dim", "stride"):
            operands = [self.register(arg) for arg in size.args]
        number = len(self.registers)
        self.registers[(type(size) is Size, key)] = number
        if not isinstance(size, Size):
            self.constants.append((number, int(size)))
        elif size.op == "stride":
            self.loads.append(("stride", number, *size.args))
        elif size.op == "dim":
            self.loads.append(("size", number, 0, size.args[0]))
        else:
            self.computes.append((size.op, number, operands[0], operands[1]))
        return number

    def geometry(self, type: TensorType, strides: Sequence[Any]) -> tuple[list[int], list[int]]:
        return [self.register(n) for n in type.shape], [self.register(s) for s in strides]

    # Values.

    def use(self, value: Value, how: int) -> None:
        """An input is looked at, directly or through views."""
        self.use_place(self.places[id(value)], how)

    def use_place(self, place: Place, how: int) -> None:
        number = place.number if place.root < 0 else place.root
        if number < len(self.arrays):
            self.uses[number] = max(self.uses[number], how)

    def output(self, value: Value, strides: Sequence[Any] | None = None, like: int = -1) -> Place:
        """Memory for a value: an output of the program, or temporary space."""
        type = value.type
        laid = row_major(type.shape) if strides is None else tuple(strides)
        sizes, steps = self.geometry(type, laid)
        number = len(self.arrays) + len(self.values)
        if id(value) in self.wanted:
            self.values.append(
                ("output", type.dtype, -1, -1, like, sizes, steps if strides is not None else [])
            )
        else:
            offset = self.arena
            bytes_ = math.prod(type.shape, start=1) * type.dtype.itemsize
            self.arena = self.arena + ((bytes_ + 63) // 64) * 64
            self.values.append(("temporary", type.dtype, -1, self.register(offset), -1, sizes, steps))
        place = Place(number, type, laid, flexible=strides is None)
        self.kept.append(value)
        self.places[id(value)] = place
        return place

    def view(self, value: Value, base: Place, strides: Sequence[Any], offset: Any) -> Place:
        sizes, steps = self.geometry(value.type, strides)
        number = len(self.arrays) + len(self.values)
        root = base.number if base.root < 0 else base.root
        start = base.offset + offset
        self.values.append(("view", value.type.dtype, root, self.register(start), -1, sizes, steps))
        place = Place(number, value.type, tuple(strides), False, root, start)
        self.kept.append(value)
        self.places[id(value)] = place
        return place

    # Lowering.

    def lower_all(self) -> None:
        for node in self.graph.nodes:
            if node.op is not None:
                self.lower(node, self.first_choice)
        for value in self.graph.outputs:
            if value is not None:
                self.ensure(value)

    def lower(self, node: Node, first_choice: int = 0) -> None:
        op = node.bound()
        choices = op.kernels(*(None if v is None else v.type for v in node.inputs))
        for choice in itertools.islice(choices, first_choice, None):
            if self.take(op, node.inputs, node.outputs, choice):
                return
        self.decompose(node, op)

    def take(self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], choice: Any) -> bool:
        """Whether a choice could be had."""
        match choice:
            case Loop():
                return self.take_loop(op, inputs, outputs, choice)
            case View():
                return self.take_view(op, inputs, outputs[0], choice)
            case Native():
                return self.take_native(op, inputs, outputs, choice)
            case Parts():
                return self.take_parts(op, inputs, outputs[0], choice)
            case Several():
                for part, reads, makes in choice.parts:
                    if not self.take(op, [inputs[k] for k in reads], [outputs[k] for k in makes], part):
                        raise NotImplementedError(f"{op.name}: no kernel for a part of its operands")
                return True
        raise TypeError(f"{op.name}: {choice!r} is no choice of kernels")

    def decompose(self, node: Node, op: Any) -> None:
        made = op.decompose(*node.inputs)
        if made is NotImplemented:
            raise NotImplementedError(f"{op.name}: no kernel for these operands, and no decomposition")
        listed = made if isinstance(made, tuple | list) else (made,)
        new = [n for n in Graph([], listed).nodes if n.op is not None and id(n) not in self.seen]
        self.seen.update(map(id, new))
        self.kept.extend(v for part in new for v in part.outputs)
        for value in reads_of(node):
            self.readers[id(value)] -= 1
        for value in (v for part in new for v in reads_of(part)):
            self.readers[id(value)] = self.readers.get(id(value), 0) + 1
        for result, output in zip(listed, node.outputs, strict=True):
            if id(output) in self.wanted:
                self.wanted.add(id(result))
            self.readers[id(result)] = self.readers.get(id(result), 0) + self.readers.get(id(output), 0)
        for part in new:
            self.lower(part)
        for result, output in zip(listed, node.outputs, strict=True):
            if id(result) in self.merged:
                self.merged[id(output)] = self.merged[id(result)]
            else:
                self.places[id(output)] = self.places[id(result)]

    # Loops. A pointwise node whose only reader is another loop is kept as an expression in `merged`.

    def take_loop(
        self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], loop: Loop
    ) -> bool:
        loop = without_rows(loop)
        step = LoopStep(self, inputs, outputs, loop, repr(op))
        if len(step.reads) + len(outputs) > OPERANDS:
            for value in inputs:
                if value is not None and id(value) in self.merged:
                    self.ensure(value)
            step = LoopStep(self, inputs, outputs, loop, repr(op))
        value = outputs[0]
        if step.is_expression() and id(value) not in self.wanted and self.readers.get(id(value), 0) <= 1:
            self.merged[id(value)] = step
        else:
            step.emit()
        return True

    def ensure(self, value: Value) -> Place:
        """The value in memory, if it was kept as an expression so far."""
        merged = self.merged.pop(id(value), None)
        if merged is not None:
            made = merged.outputs[0]  # another value where a node's decomposition made it
            if id(made) not in self.places:
                merged.emit()
            self.places[id(value)] = self.places[id(made)]
        place = self.places.get(id(value))
        if place is None:
            if value.is_constant or id(value) in self.numbers:
                return self.fill(value)
            raise AssertionError(f"{self.name}: {value!r} was not lowered")
        return place

    def fill(self, value: Value) -> Place:
        """A number as an array of no dimensions."""
        holder = self.holder(TensorType((), value.dtype, self.device))
        LoopStep(self, [value], [holder], COPY[value.dtype.name], "fill").emit()
        place = self.places[id(value)] = self.places[id(holder)]
        return place

    def holder(self, type: TensorType) -> Value:
        """A value of no node, for what only the program knows."""
        holder = Node(None, (), (type,)).outputs[0]
        self.kept.append(holder)
        return holder

    def take_view(self, op: Any, inputs: Sequence[Value | None], value: Value, choice: View) -> bool:
        source = inputs[0]
        assert source is not None
        base = self.ensure(source)
        for other in inputs[1:]:
            if other is not None and id(other) in self.places:
                self.use(other, GEOMETRY)
        seen = choice.see(source.shape, base.strides)
        if seen is None:  # a contiguous copy can be seen so
            base = self.copy(source)
            seen = choice.see(source.shape, base.strides)
            assert seen is not None
        _, strides, offset = seen
        if id(value) in self.wanted and not self.outlives(base):
            # The elements lie in temporary space: what leaves the program is a copy.
            holder = self.holder(value.type)
            self.view(holder, base, strides, offset)
            LoopStep(self, [holder], [value], COPY[value.dtype.name], "copy").emit()
            return True
        self.view(value, base, strides, offset)
        self.texts.append(f"view {op!r}")
        return True

    def take_parts(self, op: Any, inputs: Sequence[Value | None], value: Value, choice: Parts) -> bool:
        for source in inputs:
            if source is not None and id(source) in self.places:
                self.use(source, GEOMETRY)
        place = self.output(value)
        place.flexible = False
        if choice.fill is not None:
            fill = Loop(
                0, (Each((_store(0, self.number(choice.fill, value.dtype)),)),), numbers=(choice.fill,)
            )
            LoopStep(self, [], [value], fill, f"fill {op!r}").emit([place])
        for k, see in choice.parts:
            source = inputs[k]
            assert source is not None
            seen = see(value.shape, place.strides)
            assert seen is not None
            shape, strides, offset = seen
            holder = self.holder(value.type.like(shape))
            part = self.view(holder, place, strides, offset)
            x = e.cast(e.load(0, source.dtype.name), value.dtype.name)
            LoopStep(self, [source], [holder], Loop(1, (Each((_store(1, x),)),)), f"part of {op!r}").emit(
                [part]
            )
        return True

    def number(self, value: Any, dtype: DType) -> Any:
        """A number of a Loop as a scalar."""
        if isinstance(value, bool | int | float):
            return e.constant(value, dtype.name)
        return e.parameter(0, dtype.name)

    def outlives(self, place: Place) -> bool:
        """Whether a view of the place may leave the program: it lies in an input."""
        return (place.number if place.root < 0 else place.root) < len(self.arrays)

    def copy(self, value: Value) -> Place:
        """The value contiguous, in temporary space."""
        holder = self.holder(value.type.like())
        LoopStep(self, [value], [holder], COPY[value.dtype.name], "contiguous copy").emit()
        return self.places[id(holder)]

    def output_copy(self, value: Value) -> Place:
        """The value again, for a program that gives it twice: each output has memory of its own."""
        holder = self.holder(value.type.like())
        self.wanted.add(id(holder))
        LoopStep(self, [value], [holder], COPY[value.dtype.name], "another output").emit()
        return self.places[id(holder)]

    # Native kernels.

    def take_native(
        self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], choice: Native
    ) -> bool:
        if choice.exact and any(isinstance(n, Size) for v in inputs if v is not None for n in v.shape):
            raise NeedsSizes(repr(op))
        places = [None if v is None else self.ensure(v) for v in inputs]
        for k in choice.contiguous:
            place, value = places[k], inputs[k]
            if place is not None and value is not None and not is_row_major(value.shape, place.strides):
                places[k] = self.copy(value)
        first = next((p for p in places if p is not None), None)
        laid = [
            None
            if self.unread(v) and j in choice.optional
            else self.layout(choice.layouts, j, v.shape, first)
            for j, v in enumerate(outputs)
        ]
        kernel = choice.make(
            [None if p is None else (p.type.dtype.name, p.type.shape, p.strides) for p in places],
            [None if s is None else (v.dtype.name, v.shape, s) for v, s in zip(outputs, laid, strict=True)],
        )
        if kernel is None:
            return False
        for k, value in enumerate(inputs):
            place = places[k]
            if value is not None and place is not None:
                self.use_place(place, DATA)
        operands = [None if p is None else p.number for p in places]
        for value, strides in zip(outputs, laid, strict=True):
            fixed = choice.exact or any(choice.layouts)
            place = None if strides is None else self.output(value, strides if fixed else None)
            operands.append(None if place is None else place.number)
        chosen = range(len(operands)) if choice.order is None else choice.order
        first_slot = self.add_slots(choice.numbers, op, inputs)
        shared = [(operands[i], operands[len(inputs) + j]) for i, j in choice.in_place]
        given = [n for k in chosen if (n := operands[k]) is not None]
        self.steps.append((kernel, given, first_slot, shared))
        self.wide |= choice.wide
        self.texts.append(f"native {op!r}")
        return True

    def unread(self, value: Value) -> bool:
        return id(value) not in self.wanted and not self.readers.get(id(value))

    def layout(
        self, layouts: Sequence[str], j: int, shape: Sequence[Any], first: Place | None
    ) -> tuple[Any, ...]:
        """The strides that an output gets."""
        wanted = layouts[j] if j < len(layouts) else ROW_MAJOR
        if wanted == LIKE_INPUT and first is not None:
            images = len(shape) > 2 and len(first.type.shape) == len(shape)
            last = images and first.strides[1] == 1 and not is_row_major(first.type.shape, first.strides)
            wanted = CHANNELS_LAST if last else ROW_MAJOR
        return channels_last(shape) if wanted == CHANNELS_LAST and len(shape) > 2 else row_major(shape)

    def add_slots(self, numbers: Sequence[Any], op: Any = None, inputs: Sequence[Value | None] = ()) -> int:
        """Consecutive parameters; numbers: (Value, Size or number, dtype name)."""
        first = len(self.slots)
        for value, dtype in numbers:
            if value == KEY if isinstance(value, str) else False:
                kind, drawn, count = op.draws(*(None if v is None else v.type for v in inputs))
                self.randoms.append((kind, drawn, self.register(count), len(self.slots)))
            if isinstance(value, str):
                self.slots.append(("random", as_dtype(dtype), 0))
            else:
                self.slots.append(self.slot(value, as_dtype(dtype)))
        return first

    def slot(self, value: Any, dtype: DType) -> tuple[str, DType, Any]:
        if isinstance(value, Value):
            if value.is_constant:
                value = value.node.value
            else:
                return ("number", dtype, self.numbers[id(value)])
        if isinstance(value, float):
            return ("constant", dtype, value)
        return ("reg", dtype, self.register(value if isinstance(value, Size) else int(value)))

    # The end.

    def finish(self, visible: int | None, as_tuple: bool, gradients: int) -> Any:
        self.lower_all()
        outputs: list[tuple[int, int, bool]] = []
        for j, value in enumerate(self.graph.outputs):
            if value is None:
                continue
            place = self.places[id(value)]
            if place.number >= len(self.arrays) and any(place.number == number for number, *_ in outputs):
                place = self.output_copy(value)
            written = self.graph.writes.get(j)
            into = -1 if written is None else self.places[id(self.graph.inputs[written])].number
            outputs.append((place.number, into, place.flexible))
            if place.number < len(self.arrays):
                self.uses[place.number] = max(self.uses[place.number], SHOWN)
            elif place.root >= 0:
                self.use_place(place, SHOWN)
        arena = -1 if _is_zero(self.arena) else self.register(self.arena)
        description = {
            "name": self.name,
            "registers": len(self.registers),
            "device": self.device,
            "arena_bytes": arena,
            "wide": self.wide,
            "constants": self.constants,
            "loads": self.loads,
            "computes": self.computes,
            "uses": self.uses,
            "values": self.values,
            "outputs": outputs,
            "slots": self.slots,
            "steps": self.steps,
            "randoms": self.randoms,
            "strides": [self.places[id(v)].strides for v in self.arrays] if self.exact else [],
        }
        strides = tuple(self.places[id(v)].strides for v in self.arrays)
        made = tuple(self.places[id(v)].strides for v in self.graph.outputs if v is not None)
        shown = len(outputs) if visible is None else visible
        recipe = Recipe(self.name, self.graph, strides, made, shown, self.texts, self.exact)
        return _core.make_plan(description, shown, as_tuple, recipe, gradients)


def _store(operand: int, value: Any) -> Store:
    return Store(operand, value)


# For each dtype: every element as it is.
COPY = {dtype.name: Loop(1, (Each((_store(1, e.load(0, dtype.name)),)),)) for dtype in DTYPES}


def _is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0


def is_row_major(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements lie one after the other; strides of sizes of 1 do not matter.

    >>> is_row_major((2, 1, 3), (3, 77, 1))
    True
    """
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, row_major(shape), strict=True))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order of the dimensions.

    >>> is_dense((2, 3), (1, 2)), is_dense((2, 3), (0, 1)), is_dense((2, 3), (4, 1))
    (True, False, False)
    """
    step = 1
    for stride, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of images with the logical shape (n, c, ...) whose channels lie next to each other.

    >>> channels_last((2, 3, 4, 5))
    (60, 1, 15, 3)
    """
    n, c, *rest = shape
    inner = row_major((n, *rest, c))
    return (inner[0], inner[-1], *inner[1:-1])


def _readers(graph: Graph) -> dict[int, int]:
    """How many inputs of nodes each value is."""
    count: dict[int, int] = {}
    for node in graph.nodes:
        for value in reads_of(node):
            count[id(value)] = count.get(id(value), 0) + 1
    return count
