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

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft import _core
from weft.base.device import Device, cpu
from weft.base.dtype import DType, as_dtype
from weft.executor.loops import LoopStep, loop_kernel
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once
from weft.graph.graph import Graph
from weft.ops.kernels import Loop, Native, View
from weft.ops.node import Node, Value
from weft.ops.sizes import NeedsSizes, Size
from weft.ops.types import TensorType

__all__ = ["Recipe", "make_plan"]

NOTHING, GEOMETRY, DATA = range(3)  # Program::Use


@dataclass
class Recipe:
    """What a plan was made from, and what it does; kept by the plan for gradients and for people."""

    graph: Graph
    strides: tuple[Any, ...]
    visible: int
    steps: list[str] = field(default_factory=list)
    exact: bool = False


@dataclass
class Place:
    """Where a value lies in the program: its number, and its geometry; strides None: row-major, not needed so far."""

    number: int
    type: TensorType
    strides: tuple[Any, ...]
    flexible: bool = True


def make_plan(
    graph: Graph,
    name: str,
    strides: Sequence[Any] = (),
    visible: int | None = None,
    writes: dict[int, int] | None = None,
    gradients: int = 0,
    exact: bool = False,
) -> Any:
    """The _core.Plan of a graph.

    strides: for each array among the graph's inputs, in elements; those not given are row-major. visible: how many
    outputs callers get; writes: output number -> number of the array input that it is written to.
    Raises NeedsSizes if some rule has to know a size that is a symbol; what rules raise.
    """
    return _Lowering(graph, name, strides, writes or {}, exact).finish(visible, gradients)


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

    def __init__(
        self, graph: Graph, name: str, strides: Sequence[Any], writes: dict[int, int], exact: bool
    ) -> None:
        self.graph, self.name, self.writes, self.exact = graph, name, writes, exact
        self.registers: dict[Any, int] = {}
        self.constants: list[tuple[int, int]] = []
        self.loads: list[tuple[str, int, int, int]] = []
        self.computes: list[tuple[str, int, int, int]] = []
        self.values: list[Any] = []  # descriptions, behind the inputs
        self.slots: list[tuple[str, DType, int]] = []
        self.slot_of: dict[Any, int] = {}
        self.steps: list[Any] = []
        self.randoms: list[Any] = []
        self.places: dict[int, Place] = {}
        self.numbers: dict[int, int] = {}  # of host numbers among the graph's inputs
        self.arrays: list[Value] = []
        self.merged: dict[int, Any] = {}
        self.texts: list[str] = []
        self.wide = False
        self.arena: Any = 0
        for value in graph.inputs:
            if is_number(value):
                self.numbers[id(value)] = len(self.numbers)
                continue
            given = strides[len(self.arrays)] if len(self.arrays) < len(strides) else None
            self.places[id(value)] = Place(
                len(self.arrays), value.type, tuple(given) if given is not None else row_major(value.shape)
            )
            self.arrays.append(value)
        self.uses = [NOTHING] * len(self.arrays)
        self.device: Device = next((v.type.device for v in self.arrays), cpu(0))
        self.readers = _readers(graph)
        self.wanted = {id(v) for v in graph.outputs if v is not None}

    # Registers.

    def register(self, size: Any) -> int:
        """The register that holds an int or a Size."""
        key = size if isinstance(size, int) else id(size)
        found = self.registers.get((type(size) is Size, key))
        if found is not None:
            return found
        operands = ()
        if isinstance(size, Size) and size.op != "dim":
            operands = tuple(self.register(arg) for arg in size.args)
        number = len(self.registers)
        self.registers[(type(size) is Size, key)] = number
        if not isinstance(size, Size):
            self.constants.append((number, int(size)))
        elif size.op == "dim":
            self.loads.append(("size", number, 0, size.args[0]))
        else:
            self.computes.append((size.op, number, *operands))
        return number

    def geometry(self, type: TensorType, strides: Sequence[Any]) -> tuple[list[int], list[int]]:
        return [self.register(n) for n in type.shape], [self.register(s) for s in strides]

    # Values.

    def use(self, value: Value, how: int) -> None:
        """An input is looked at, directly or through views."""
        place = self.places[id(value)]
        number = place.number
        while number >= len(self.arrays):
            description = self.values[number - len(self.arrays)]
            if description[0] != "view":
                return
            number = description[2]
        self.uses[number] = max(self.uses[number], how)

    def output(self, value: Value, strides: Sequence[Any] | None = None, like: int = -1) -> Place:
        """Memory for a value: an output of the program, or temporary space."""
        type = value.type
        laid = row_major(type.shape) if strides is None else tuple(strides)
        sizes, steps = self.geometry(type, laid)
        number = len(self.arrays) + len(self.values)
        if id(value) in self.wanted:
            self.values.append(("output", type.dtype, -1, -1, like, sizes, steps if strides is not None else []))
        else:
            offset = self.arena
            bytes_ = math.prod(type.shape, start=1) * type.dtype.itemsize
            self.arena = self.arena + ((bytes_ + 63) // 64) * 64
            self.values.append(("temporary", type.dtype, -1, self.register(offset), -1, sizes, steps))
        place = Place(number, type, laid, flexible=strides is None)
        self.places[id(value)] = place
        return place

    def view(self, value: Value, base: Place, strides: Sequence[Any], offset: Any) -> Place:
        sizes, steps = self.geometry(value.type, strides)
        number = len(self.arrays) + len(self.values)
        self.values.append(
            ("view", value.type.dtype, base.number, self.register(offset), -1, sizes, steps)
        )
        place = Place(number, value.type, tuple(strides), flexible=False)
        self.places[id(value)] = place
        return place

    # Lowering.

    def lower_all(self) -> None:
        for node in self.graph.nodes:
            if node.op is not None:
                self.lower(node)
        for value in self.graph.outputs:
            if value is not None:
                self.ensure(value)

    def lower(self, node: Node) -> None:
        op = node.bound()
        types = [None if v is None else v.type for v in node.inputs]
        for choice in op.kernels(*types):
            if isinstance(choice, Loop) and self.take_loop(node, choice):
                return
            if isinstance(choice, View) and self.take_view(node, choice):
                return
            if isinstance(choice, Native) and self.take_native(node, choice):
                return
        self.decompose(node, op)

    def decompose(self, node: Node, op: Any) -> None:
        made = op.decompose(*node.inputs)
        listed = made if isinstance(made, tuple | list) else (made,)
        inner = Graph([], listed)
        for value, count in _readers(inner).items():
            self.readers[value] = self.readers.get(value, 0) + count
        for result, output in zip(listed, node.outputs, strict=True):
            if id(output) in self.wanted:
                self.wanted.add(id(result))
            self.readers[id(result)] = self.readers.get(id(result), 0) + self.readers.get(id(output), 0)
        for part in inner.nodes:
            if part.op is not None and not any(id(o) in self.places or id(o) in self.merged for o in part.outputs):
                self.lower(part)
        for result, output in zip(listed, node.outputs, strict=True):
            if id(result) in self.merged:
                self.merged[id(output)] = self.merged[id(result)]
            else:
                self.places[id(output)] = self.places[id(result)]

    # Loops. A pointwise node whose only reader is another loop is kept as an expression in `merged`.

    def take_loop(self, node: Node, loop: Loop) -> bool:
        step = LoopStep(self, node, loop)
        pointwise = not loop.axes and len(loop.stages) == 1 and len(node.outputs) == 1
        value = node.outputs[0]
        if pointwise and id(value) not in self.wanted and self.readers.get(id(value), 0) <= 1:
            self.merged[id(value)] = step
            return True
        step.emit()
        return True

    def ensure(self, value: Value) -> Place:
        """The value in memory, if it was kept as an expression so far."""
        merged = self.merged.pop(id(value), None)
        if merged is not None:
            merged.emit()
        place = self.places.get(id(value))
        if place is None:
            if value.is_constant or id(value) in self.numbers:
                return self.fill(value)
            raise AssertionError(f"{self.name}: {value!r} was not lowered")
        return place

    def fill(self, value: Value) -> Place:
        """A number as an array of no dimensions."""
        x = e.load(0, value.dtype.name)
        node = Node(None, (value,), (TensorType((), value.dtype, self.device),))
        self.wanted.discard(id(value))
        LoopStep(self, node, Loop(1, (Each((_store(1, x),)),))).emit()
        place = self.places[id(node.outputs[0])]
        self.places[id(value)] = place
        return place

    def take_view(self, node: Node, choice: View) -> bool:
        source = node.inputs[0]
        assert source is not None
        value = node.outputs[0]
        base = self.ensure(source)
        for other in node.inputs[1:]:
            if other is not None and id(other) in self.places:
                self.use(other, GEOMETRY)
        seen = choice.see(source.shape, base.strides)
        if seen is None:  # a contiguous copy can be seen so
            base = self.copy(source, base)
            seen = choice.see(source.shape, base.strides)
            assert seen is not None
        _, strides, offset = seen
        if id(value) in self.wanted and not self.outlives(base):
            # The elements lie in temporary space: what leaves the program is a copy.
            hidden = Node(node.op, node.inputs, (value.type,))
            inner = self.view(hidden.outputs[0], base, strides, offset)
            self.copy_into(inner, value)
            return True
        self.view(value, base, strides, offset)
        self.texts.append(f"view {node!r}")
        return True

    def outlives(self, place: Place) -> bool:
        """Whether a view of the place may leave the program: it lies in an input."""
        number = place.number
        while number >= len(self.arrays):
            kind, _, base, *_ = self.values[number - len(self.arrays)]
            if kind != "view":
                return False
            number = base
        return True

    def copy(self, value: Value, place: Place) -> Place:
        """The value contiguous, in temporary space."""
        node = Node(None, (value,), (value.type.like(),))
        x = e.load(0, value.dtype.name)
        LoopStep(self, node, Loop(1, (Each((_store(1, x),)),))).emit()
        return self.places[id(node.outputs[0])]

    def copy_into(self, source: Place, value: Value) -> None:
        holder = Node(None, (), (value.type,)).outputs[0]
        self.places[id(holder)] = source
        node = Node(None, (holder,), (value.type,))
        place = self.output(value)
        x = e.load(0, value.dtype.name)
        LoopStep(self, node, Loop(1, (Each((_store(1, x),)),))).emit([place])

    # Native kernels.

    def take_native(self, node: Node, choice: Native) -> bool:
        if choice.exact and any(isinstance(n, Size) for v in node.inputs if v is not None for n in v.shape):
            raise NeedsSizes(f"{node!r}")
        inputs = [v for v in node.inputs if v is not None]
        places = [self.ensure(v) for v in inputs]
        for k in choice.contiguous:
            if not is_row_major(places[k].type.shape, places[k].strides):
                places[k] = self.copy(inputs[k], places[k])
        layouts = getattr(choice, "layouts", None)
        laid = [
            channels_last(v.shape) if layouts and layouts[j] == "channels_last" else None
            for j, v in enumerate(node.outputs)
        ]
        kernel = choice.make(
            [(p.type.dtype.name, p.type.shape, p.strides) for p in places],
            [
                (v.dtype.name, v.shape, s if s is not None else row_major(v.shape))
                for v, s in zip(node.outputs, laid, strict=True)
            ],
        )
        if kernel is None:
            return False
        for value in inputs:
            self.use(value, DATA)
        made = []
        for value, strides in zip(node.outputs, laid, strict=True):
            place = self.output(value, strides if strides is not None else row_major(value.shape) if choice.exact else None)
            made.append(place)
        operands = [p.number for p in [*places, *made]]
        if choice.order is not None:
            operands = [operands[k] for k in choice.order]
        first = self.add_slots(choice.numbers)
        self.steps.append((kernel, operands, first))
        self.wide |= getattr(choice, "wide", False)
        self.texts.append(f"native {node!r}")
        return True

    def add_slots(self, numbers: Sequence[Any]) -> int:
        """Consecutive parameters; numbers: (Value, Size or number, dtype name)."""
        first = len(self.slots)
        for value, dtype in numbers:
            self.slots.append(self.slot(value, as_dtype(dtype)))
        return first

    def slot(self, value: Any, dtype: DType) -> tuple[str, DType, int]:
        if isinstance(value, Value):
            if value.is_constant:
                value = value.node.value
            else:
                return ("number", dtype, self.numbers[id(value)])
        if isinstance(value, float) and not value.is_integer():
            raise NotImplementedError(f"{self.name}: a constant parameter {value} that is no integer")
        return ("reg", dtype, self.register(value if isinstance(value, Size) else int(value)))

    # The end.

    def finish(self, visible: int | None, gradients: int) -> Any:
        self.lower_all()
        outputs = []
        for j, value in enumerate(v for v in self.graph.outputs if v is not None):
            place = self.places[id(value)]
            outputs.append((place.number, self.writes.get(j, -1), place.flexible))
            if place.number < len(self.arrays):
                self.uses[place.number] = max(self.uses[place.number], GEOMETRY)
            elif self.values[place.number - len(self.arrays)][0] == "view":
                self.use(value, GEOMETRY)
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
        }
        strides = tuple(self.places[id(v)].strides for v in self.arrays)
        shown = len(outputs) if visible is None else visible
        recipe = Recipe(self.graph, strides, shown, self.texts, self.exact)
        return _core.make_plan(description, shown, recipe, gradients)


def _store(operand: int, value: Any) -> Any:
    from weft.expr.kernel import Store

    return Store(operand, value)


def _is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0


def is_row_major(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements lie one after the other; strides of sizes of 1 do not matter.

    >>> is_row_major((2, 1, 3), (3, 77, 1))
    True
    """
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, row_major(shape), strict=True))


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
        for value in [*node.inputs, *node.runtime.values()]:
            if value is not None:
                count[id(value)] = count.get(id(value), 0) + 1
    return count


__all__ += ["Fold", "Once"]
