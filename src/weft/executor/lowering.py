"""Lowering: turns each node of a graph into steps, by the first available choice of its operator.

A Loop for the expression compiler, a Native kernel, a View, which needs no step; else its decomposition. Every value
gets its geometry here, and no memory yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from weft import _core
from weft.base.device import Device, cpu
from weft.base.dtype import DType, uint8
from weft.base.typing import Any
from weft.executor.buffers import (
    Buffer,
    BufferView,
    channels_last,
    is_row_major,
    like_strides,
    row_major,
    same,
    same_shape,
)
from weft.executor.registers import Registers, Slots
from weft.executor.steps import LoopStep, NativeStep, Origin, Step
from weft.expr import scalar as e
from weft.expr.kernel import Each, Store
from weft.graph.graph import Graph
from weft.kernels import choices
from weft.ops import registry
from weft.ops.kernels import ANY, CHANNELS_LAST, LIKE_INPUT, ROW_MAJOR, Loop, Native, Parts, Several, View
from weft.ops.node import Node, Value
from weft.ops.op import Op
from weft.ops.shapes import is_dense
from weft.ops.sizes import NeedsSizes, Size, input_stride
from weft.ops.types import TensorType

__all__ = ["Lowering"]


def device_of(graph: Graph) -> Device:
    """The device of a graph that runs on one device; of a graph that only copies, the destination."""
    found = (node.device for node in graph.nodes if node.op is not None and node.device is not None)
    given = (v.type.device for v in (*graph.outputs, *graph.inputs) if v is not None and not v.type.weak)
    return next(itertools.chain(found, given), cpu(0))


def copying(dtype: DType) -> Loop:
    """The Loop that stores every element as it is."""
    return Loop(1, (Each((Store(1, e.load(0, dtype.name)),)),))


class Lowering:
    """One graph on its way. Its results: arrays, steps, the places of values, registers and slots."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        strides: Sequence[Any],
        exact: bool,
        first_choice: int = 0,
        owned_outputs: int = 0,
        fixed_layout: bool = False,
    ) -> None:
        self.graph, self.name, self.exact, self.first_choice = graph, name, exact, first_choice
        self.owned_outputs, self.fixed_layout = owned_outputs, fixed_layout
        self.prefer: Callable[[Node, list[Any]], int] | None = (
            None  # of a node and its inputs' strides, see tuning
        )
        self.commits: Collection[int] = ()  # see make_plan
        self.arrays: list[Value] = []  # the graph's inputs that are not numbers
        self.steps: list[Step] = []
        self.places: dict[int, BufferView] = {}  # of values, by id
        self.kept: list[Value] = []  # so that their ids stay theirs
        self.wide = False  # some kernel opens a parallel region
        self.registers = Registers()
        numbers: dict[int, int] = {}  # of host numbers among the graph's inputs
        for value in graph.inputs:
            if value.type.weak:
                numbers[id(value)] = len(numbers)
                continue
            k = len(self.arrays)
            given = strides[k] if k < len(strides) else None
            if given is None:
                given = row_major(value.shape) if exact else [input_stride(k, d) for d in range(value.ndim)]
            self.places[id(value)] = Buffer(value.type, given, k, k).whole()
            self.arrays.append(value)
        self.stable_inputs: Any = None
        if graph.stable_inputs:
            from weft.executor.preparation import StableInputs

            self.stable_inputs = StableInputs(
                self.places[id(graph.inputs[k])].buffer for k in graph.stable_inputs
            )
        self.packs: dict[Any, BufferView] = {}  # by what is packed, and the layout
        self.numbers = numbers
        self.slots = Slots(self.registers, numbers)
        self.device = device_of(graph)
        self.readers = _readers(graph)
        self.seen = set(map(id, graph.nodes))  # nodes that are lowered, or will be
        self.wanted = {id(v) for v in graph.outputs if v is not None}  # what leaves, or stands for it
        self.origin = Origin(name)  # of the steps that are made next

    def run(self) -> list[BufferView]:
        """Lowers everything; the places of the graph's outputs that there are."""
        for node in self.graph.nodes:
            if node.op is not None:
                self.origin = Origin(node.op.name, node.where, node)
                self.lower(node, self.first_choice or self.preferred(node))
        self.origin = Origin(self.name)
        return self.leave()

    # Values.

    def output(
        self, value: Value, strides: Sequence[Any] | None = None, like: BufferView | None = None
    ) -> BufferView:
        """Memory for a value; in the order of `like`, if its strides are not given."""
        flexible = strides is None
        if strides is None and like is not None and self.exact:
            strides = like_strides(value.shape, like.strides)
        buffer = Buffer(value.type.like(), row_major(value.shape) if strides is None else strides)
        buffer.flexible = flexible
        if flexible and like is not None and like.is_whole:
            buffer.like = like.buffer.like
        place = self.places[id(value)] = buffer.whole()
        self.kept.append(value)
        return place

    def ensure(self, value: Value) -> BufferView:
        """The place of a value; a number becomes an array of no dimensions."""
        place = self.places.get(id(value))
        if place is None:
            if not value.is_constant and id(value) not in self.numbers:
                raise AssertionError(f"{self.name}: {value!r} was not lowered")
            holder = self.holder(TensorType((), value.dtype, self.device))
            self.loop([value], [self.output(holder)], copying(value.dtype), "fill")
            place = self.places[id(value)] = self.places[id(holder)]
        return place

    def holder(self, type: TensorType) -> Value:
        """A value of no node, for what exists only in the program."""
        holder = Node(None, (), (type,)).outputs[0]
        self.kept.append(holder)
        return holder

    # Nodes.

    def lower(self, node: Node, first_choice: int = 0) -> None:
        op = node.bound()
        offered = choices(op, [None if v is None else v.type for v in node.inputs])
        for choice in itertools.islice(offered, first_choice, None):
            if self.take(op, node.inputs, node.outputs, choice):
                return
        self.decompose(node, op)

    def preferred(self, node: Node) -> int:
        """The choice to begin with: the first one, unless kernels are measured."""
        if self.prefer is None:
            return 0
        known = (None if v is None else self.places.get(id(v)) for v in node.inputs)
        return self.prefer(node, [None if place is None else place.strides for place in known])

    def take(self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], choice: Any) -> bool:
        """Whether a choice could be had."""
        match choice:
            case Loop():
                self.take_loop(op, inputs, outputs, choice)
                return True
            case View():
                self.take_view(op, inputs, outputs[0], choice)
                return True
            case Native():
                return self.take_native(op, inputs, outputs, choice)
            case Parts():
                self.take_parts(op, inputs, outputs[0], choice)
                return True
            case Several():
                for part, reads, makes in choice.parts:
                    if not self.take(op, [inputs[k] for k in reads], [outputs[k] for k in makes], part):
                        raise NotImplementedError(f"{op.name}: no kernel for a part of its operands")
                return True
        raise TypeError(f"{op.name}: {choice!r} is not a choice of kernels")

    def decompose(self, node: Node, op: Any) -> None:
        if self.device.kind != "cpu" and type(op).decompose is Op.decompose:
            kind = self.device.kind
            raise NotImplementedError(
                f"{op.name}: no kernel for these operands on {kind} devices, and no decomposition; "
                f"weft.kernels.kernel({type(op).__name__}, device={kind!r}) registers one"
            )
        try:
            made = op.decompose(*node.inputs)
        except Exception as problem:
            problem.add_note(f"in {type(op).__name__}.decompose")
            raise
        if made is NotImplemented:
            raise NotImplementedError(f"{op.name}: no kernel for these operands, and no decomposition")
        listed = made if isinstance(made, tuple | list) else (made,)
        if not registry.is_builtin(op.name):
            from weft.executor import facts  # here and below: not before the first operator of a user's

            facts.decomposed(op, listed, node.outputs)
        new = [n for n in Graph([], listed).nodes if n.op is not None and id(n) not in self.seen]
        self.seen.update(map(id, new))
        self.kept.extend(v for part in new for v in part.outputs)
        for value in node.reads:
            self.readers[id(value)] -= 1
        for value in (v for part in new for v in part.reads):
            self.readers[id(value)] = self.readers.get(id(value), 0) + 1
        for result, output in zip(listed, node.outputs, strict=True):
            if id(output) in self.wanted:
                self.wanted.add(id(result))
            self.readers[id(result)] = self.readers.get(id(result), 0) + self.readers.get(id(output), 0)
        for part in new:
            self.lower(part)
        for result, output in zip(listed, node.outputs, strict=True):
            if id(result) in self.places:
                self.places[id(output)] = self.places[id(result)]
            elif self.is_number(result) or not self.unread(output):  # else a kernel has left it out
                self.places[id(output)] = self.ensure(result)

    # Choices.

    def loop(
        self, inputs: Sequence[Value | None], outputs: Sequence[BufferView], loop: Loop, text: str
    ) -> None:
        operands = [v if v is None or self.is_number(v) else self.places[id(v)] for v in inputs]
        self.steps.append(LoopStep(operands, outputs, loop, text, self.origin))

    def is_number(self, value: Value) -> bool:
        return id(value) not in self.places and (value.is_constant or id(value) in self.numbers)

    def take_loop(
        self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], loop: Loop
    ) -> None:
        if not registry.is_builtin(op.name):
            from weft.executor import facts

            facts.stored(op, loop, outputs)
        places = [self.output(v, like=self.first_like(inputs, v)) for v in outputs]
        self.loop(inputs, places, loop, repr(op))

    def first_like(self, inputs: Sequence[Value | None], value: Value) -> BufferView | None:
        """The input whose order in memory an output of a loop takes: the first one of its shape."""
        for source in inputs:
            place = None if source is None else self.places.get(id(source))
            if place is not None and same_shape(place.shape, value.shape):
                return place
        return None

    def take_view(self, op: Any, inputs: Sequence[Value | None], value: Value, choice: View) -> None:
        source = inputs[0]
        assert source is not None
        base = self.ensure(source)
        seen = choice.see(source.shape, base.strides)
        if seen is None:  # a contiguous copy can be seen so
            base = self.copy(base, "contiguous copy")
            seen = choice.see(source.shape, base.strides)
            assert seen is not None
        shape, strides, offset = seen
        if not registry.is_builtin(op.name):
            from weft.executor import facts

            facts.shown(op, shape, source.dtype, value)
        self.kept.append(value)
        self.places[id(value)] = base.seen(shape, strides, offset)

    def copy(self, place: BufferView, text: str) -> BufferView:
        """The elements again, one after the other."""
        copied = Buffer(place.type.like(), row_major(place.shape)).whole()
        self.steps.append(LoopStep([place], [copied], copying(place.type.dtype), text, self.origin))
        return copied

    def take_parts(self, op: Any, inputs: Sequence[Value | None], value: Value, choice: Parts) -> None:
        whole = self.output(value)
        whole.buffer.flexible, whole.buffer.in_parts = False, True
        dtype = value.dtype
        if choice.fill is not None:
            fill = Loop(0, (Each((Store(0, _number(choice.fill, dtype)),)),), numbers=(choice.fill,))
            self.loop([], [whole], fill, f"fill {op!r}")
        for k, see in choice.parts:
            source = inputs[k]
            assert source is not None
            seen = see(value.shape, whole.strides)
            assert seen is not None
            x = e.cast(e.load(0, source.dtype.name), dtype.name)
            self.loop([source], [whole.seen(*seen)], Loop(1, (Each((Store(1, x),)),)), f"part of {op!r}")

    def take_native(
        self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], choice: Native
    ) -> bool:
        if choice.exact and any(isinstance(n, Size) for v in inputs if v is not None for n in v.shape):
            raise NeedsSizes(repr(op))
        places = [None if v is None else self.ensure(v) for v in inputs]
        before_copies = len(self.steps)
        for k in choice.contiguous:
            place = places[k]
            if place is not None and not is_row_major(place.shape, place.strides):
                places[k] = self.copy(place, "contiguous copy")
        first = next((p for p in places if p is not None), None)
        layouts = [
            None
            if self.unread(v) and j in choice.optional
            else self.layout(choice.layouts, j, v.shape, first)
            for j, v in enumerate(outputs)
        ]
        results = [
            None if s is None else (v.dtype.name, v.shape, s) for v, s in zip(outputs, layouts, strict=True)
        ]
        kernel = self.make_kernel(choice, places, results)
        if kernel is None and any(p is not None and repeats(p) for p in places):
            # oneDNN has no description of elements that are repeated.
            places = [
                self.copy(p, "copy of what is repeated") if p is not None and repeats(p) else p
                for p in places
            ]
            kernel = self.make_kernel(choice, places, results)
        if kernel is None:
            del self.steps[before_copies:]
            return False
        fixed = choice.exact or any(choice.layouts)
        made = [
            None if s is None else self.output(v, s if fixed else None)
            for v, s in zip(outputs, layouts, strict=True)
        ]
        operands = [*places, *made]
        chosen = range(len(operands)) if choice.order is None else choice.order
        first_slot = self.slots.add(
            choice.numbers, lambda: op.random_numbers(*(None if v is None else v.type for v in inputs))
        )
        pairs = [(places[i], made[j]) for i, j in choice.in_place]
        step = NativeStep(
            kernel,
            [p for n in chosen if (p := operands[n]) is not None],
            [p for n in chosen if n < len(places) and (p := places[n]) is not None],
            [p for p in made if p is not None],
            first_slot,
            repr(op),
            self.origin,
            fixed,
            [(x, y) for x, y in pairs if x is not None and y is not None],
            not (choice.numbers or choice.ordered or op.random),
        )
        step.ordered = choice.ordered
        self.steps.append(step)
        # Kernels of the native core in 0 pieces open regions, each of which has a team of the thread that runs it.
        self.wide |= choice.wide or getattr(kernel, "pieces", 1) == 0
        return True

    def make_kernel(self, choice: Native, places: list[BufferView | None], outputs: Sequence[Any]) -> Any:
        """The kernel of a choice. An input that is prepared once is packed as it likes it best: replaced in places."""
        given = [None if p is None else _geometry(p) for p in places]
        for k, axes in choice.packed if self.stable_inputs is not None else ():
            place = places[k]
            if place is None or not self.stable_inputs.holds(place, self.steps):
                continue
            kernel = choice.offer([*given[:k], (*_geometry(place)[:2], ANY), *given[k + 1 :]], outputs)
            if kernel is None:
                continue
            layout = kernel.layout(sum(p is not None for p in places[:k]))
            if (
                layout.is_plain and not kernel.is_wide
            ):  # below AVX-512: a copy would have other strides, for which the same code is no quicker
                unpacked = choice.offer(given, outputs)
                if unpacked is not None and unpacked.implementation == kernel.implementation:
                    return unpacked
            packed = self.pack(place, axes, layout)
            if packed is not None:
                places[k] = packed
                return kernel
        return choice.offer(given, outputs)

    def pack(self, place: BufferView, axes: tuple[int, ...], layout: Any) -> BufferView | None:
        """A weight, seen with its axes in this order, in a layout of oneDNN's; None if it cannot be had."""
        dtype, shape, strides = _geometry(place)
        source = (dtype, tuple(shape[d] for d in axes), tuple(strides[d] for d in axes))
        if 0 in strides:  # oneDNN has no layout for what is repeated
            return None
        if _core.onednn_layout(source) == layout:
            return place
        key = (place.key, axes, layout)
        found = self.packs.get(key)
        if found is None:
            try:
                kernel = _core.onednn_reorder(source, layout)
            except NotImplementedError:
                return None
            found = self.packs[key] = Buffer(TensorType((layout.bytes,), uint8, self.device), (1,)).whole()
            self.steps.append(
                NativeStep(kernel, [place, found], [place], [found], 0, "pack", self.origin, fixed=True)
            )
        return found

    def unread(self, value: Value) -> bool:
        return id(value) not in self.wanted and not self.readers.get(id(value))

    def layout(
        self, layouts: Sequence[str], j: int, shape: Sequence[Any], first: BufferView | None
    ) -> tuple[Any, ...]:
        """The strides that an output gets."""
        wanted = layouts[j] if j < len(layouts) else ROW_MAJOR
        if wanted == LIKE_INPUT and first is not None:
            images = len(shape) > 2 and first.ndim == len(shape)
            last = images and first.strides[1] == 1 and not is_row_major(first.shape, first.strides)
            wanted = CHANNELS_LAST if last else ROW_MAJOR
        return channels_last(shape) if wanted == CHANNELS_LAST and len(shape) > 2 else row_major(shape)

    # The end.

    def leave(self) -> list[BufferView]:
        """The places that leave the program: memory of its own for each, or an input that nothing writes.

        The first `owned_outputs` of them are never inputs.
        """
        written = {id(self.places[id(self.graph.inputs[i])].buffer) for i in self.graph.writes.values()}
        given = [(j, v) for j, v in enumerate(self.graph.outputs) if v is not None]
        # A buffer can leave as one output; where it is wanted more often, as the one that is all of it.
        found: dict[int, BufferView] = {}
        for whole_first in (True, False):
            for j, value in given:
                place = self.ensure(value)
                if j not in found and (place.is_whole or not whole_first):
                    found[j] = self.leaving(place, self.graph.writes.get(j), written, j < self.owned_outputs)
        return [found[j] for j, _ in given]

    def leaving(self, place: BufferView, writes: int | None, written: set[int], owned: bool) -> BufferView:
        buffer = place.buffer
        if buffer.is_input:
            target = None if writes is None else self.places[id(self.graph.inputs[writes])].buffer
            stays = buffer is target and place.is_whole  # it becomes what it is
            if stays or (writes is None and not owned and id(buffer) not in written):
                return place
        elif not buffer.output and self.covers(place):
            if not place.is_whole:
                buffer.type, buffer.strides, buffer.flexible, buffer.like = (
                    place.type,
                    place.strides,
                    False,
                    -1,
                )
            buffer.output = True
            return place
        again = Buffer(place.type.like(), row_major(place.shape))
        if self.exact:
            again.strides = like_strides(place.shape, place.strides)
        again.output, again.flexible = True, True
        self.steps.append(
            LoopStep([place], [again.whole()], copying(place.type.dtype), "another output", self.origin)
        )
        return again.whole()

    def covers(self, place: BufferView) -> bool:
        """Whether the place is all elements of its buffer, so that it may be the buffer's description."""
        if place.is_whole:
            return True
        size, whole = place.type.size, place.buffer.type.size
        if not self.exact or not same(place.offset, 0) or not same(size, whole):
            return False
        return is_dense(place.shape, place.strides)


def repeats(place: BufferView) -> bool:
    """Whether elements are repeated, in a place of known sizes."""
    return any(n > 1 and s == 0 for n, s in zip(place.shape, place.strides, strict=True))


def _geometry(place: BufferView) -> tuple[str, Any, Any]:
    """In the form in which kernels of the native core are requested."""
    return (place.type.dtype.name, place.shape, place.strides)


def _number(value: Any, dtype: DType) -> Any:
    """A number of a Loop as a scalar."""
    if isinstance(value, bool | int | float):
        return e.constant(value, dtype.name)
    return e.parameter(0, dtype.name)


def _readers(graph: Graph) -> dict[int, int]:
    """How many inputs of nodes each value is."""
    count: dict[int, int] = {}
    for node in graph.nodes:
        for value in node.reads:
            count[id(value)] = count.get(id(value), 0) + 1
    return count
