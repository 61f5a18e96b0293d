"""Lowering: turns each node of a graph into steps, by the first available choice of its operator.

A Loop for the expression compiler, a Native kernel, a View, which needs no step; else its decomposition. Every value
gets its geometry here, and no memory yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence

from weft import _core
from weft.base.device import Device, cpu
from weft.base.dtype import DType, uint8
from weft.base.typing import Any
from weft.executor.buffers import (
    Buffer,
    BufferView,
    channels_last,
    is_repeated,
    is_row_major,
    like_strides,
    row_major,
    same,
    same_shape,
)
from weft.executor.registers import Registers, Slots
from weft.executor.steps import LoopStep, NativeStep, Origin, Step, copying
from weft.expr import scalar as e
from weft.expr.kernel import Each, Store
from weft.graph.graph import Graph
from weft.kernels import choices, first_choice
from weft.ops import registry
from weft.ops.kernels import (
    ANY,
    CHANNELS_LAST,
    LIKE_INPUT,
    ROW_MAJOR,
    Decomposed,
    Loop,
    Native,
    Parts,
    Several,
    View,
)
from weft.ops.node import Node, Value
from weft.ops.op import Op
from weft.ops.shapes import is_dense
from weft.ops.sizes import NeedsSizes, Size, input_stride
from weft.ops.types import TensorType

__all__ = ["Lowering"]


def device_of(graph: Graph) -> Device:
    """The device of a graph that runs on one device; of a graph that only copies, the destination."""
    of_nodes = (node.device for node in graph.nodes if node.op is not None and node.device is not None)
    of_values = (v.type.device for v in (*graph.outputs, *graph.inputs) if v is not None and not v.type.weak)
    return next(itertools.chain(of_nodes, of_values), cpu(0))


def _offered(node: Node, op: Op, device: Device, exact: bool) -> Iterator[Any]:
    """The choices for a node; the first one is known from passes over the graph, and most often taken.

    device: of the program, where a node without operands runs. exact: its sizes are numbers, by which kernels are kept.
    """
    is_known = exact and not node.runtime and node.device is not None
    if is_known:
        best = first_choice(node)
        if best is None:
            return
        yield best
    offered = choices(op, node.operand_types(device), node.device or device)
    yield from itertools.islice(offered, int(is_known), None)


class Lowering:
    """The lowering of one graph. Its results: arrays, steps, the views of values, registers and slots."""

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
        # The choice for a node and its inputs' strides, see tuning.
        self.prefer: Callable[[Node, list[Any]], int] | None = None
        self.commits: Collection[int] = ()  # see make_plan
        self.arrays: list[Value] = []  # the graph's inputs that are not numbers
        self.steps: list[Step] = []
        self.views: dict[int, BufferView] = {}  # of values, by id
        self.referenced: list[Value] = []  # whose ids are keys
        self.wide = False  # some kernel opens a parallel region
        self.registers = Registers()
        self.numbers: dict[int, int] = {}  # of host numbers among the graph's inputs, by id
        for value in graph.inputs:
            if value.type.weak:
                self.numbers[id(value)] = len(self.numbers)
                continue
            k = len(self.arrays)
            planned = strides[k] if k < len(strides) else None
            if planned is None:
                planned = row_major(value.shape) if exact else [input_stride(k, d) for d in range(value.ndim)]
            self.views[id(value)] = Buffer(value.type, planned, k, k).whole()
            self.arrays.append(value)
        self.stable_inputs: Any = None
        if graph.stable_inputs:
            from weft.executor.preparation import StableInputs

            self.stable_inputs = StableInputs(
                self.views[id(graph.inputs[k])].buffer for k in graph.stable_inputs
            )
        self.packs: dict[Any, BufferView] = {}  # by what is packed, and the layout
        self.slots = Slots(self.registers, self.numbers)
        self.device = device_of(graph)
        self.readers = _readers(graph)
        self.scheduled = set(map(id, graph.nodes))  # nodes that are lowered, or will be
        self.outputs = {id(v) for v in graph.outputs if v is not None}  # and values that outputs decompose to
        self.lowered: set[int] = set()  # nodes of the graph, by id
        self.native_buffers: set[int] = set()  # what kernels of the native core make, by id
        self._contents: Any = None
        self.origin = Origin(name)  # of the steps that are made next

    def run(self) -> list[BufferView]:
        """Lowers everything; the views of the graph's outputs that are not None."""
        for node in self.graph.nodes:
            if node.op is not None:
                self.origin = Origin(node.op.shown, node.where, node)
                self.lower(node, self.first_choice or self.preferred(node))
                self.lowered.add(id(node))
        self.origin = Origin(self.name)
        return self.views_of_outputs()

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
        self.referenced.append(value)
        view = self.views[id(value)] = buffer.whole()
        return view

    def ensure(self, value: Value) -> BufferView:
        """The view of a value; a number becomes an array of no dimensions."""
        view = self.views.get(id(value))
        if view is None:
            if not value.is_constant and id(value) not in self.numbers:
                raise AssertionError(f"{self.name}: {value!r} was not lowered")
            holder = self.holder(TensorType((), value.dtype, self.device))
            self.loop([value], [self.output(holder)], copying(value.dtype), "fill")
            view = self.views[id(value)] = self.views[id(holder)]
        return view

    def holder(self, type: TensorType) -> Value:
        """A value of no node, for what exists only in the program."""
        holder = Node(None, (), (type,)).outputs[0]
        self.referenced.append(holder)
        return holder

    # Nodes.

    def lower(self, node: Node, first_choice: int = 0) -> None:
        op = node.bound()
        for choice in itertools.islice(_offered(node, op, self.device, self.exact), first_choice, None):
            if isinstance(choice, Decomposed):
                self.decompose(node, op, choice.function)
                return
            if self.take(op, node.inputs, node.outputs, choice):
                return
        self.decompose(node, op)

    def preferred(self, node: Node) -> int:
        """The choice to begin with: the first one, unless kernels are measured."""
        if self.prefer is None:
            return 0
        views = (None if v is None else self.views.get(id(v)) for v in node.inputs)
        return self.prefer(node, [None if view is None else view.strides for view in views])

    def take(self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], choice: Any) -> bool:
        """Whether a choice is available, and lowered."""
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

    def decompose(self, node: Node, op: Any, function: Callable[..., Any] | None = None) -> None:
        """In other operators: by the function that a kernel gives, else by the operator's own."""
        if function is None and self.device.kind != "cpu" and type(op).decompose is Op.decompose:
            kind = self.device.kind
            raise NotImplementedError(
                f"{op.name}: no kernel for these operands on {kind} devices, and no decomposition; "
                f"weft.kernels.kernel({type(op).__name__}, device={kind!r}) registers one"
            )
        try:
            results = (function or op.decompose)(*node.inputs)
        except Exception as problem:
            problem.add_note(f"in {type(op).__name__}.decompose")
            raise
        if results is NotImplemented:
            raise NotImplementedError(f"{op.name}: no kernel for these operands, and no decomposition")
        results = results if isinstance(results, tuple | list) else (results,)
        if not registry.is_builtin(op.name):
            from weft.executor import facts  # here and below: not before the first operator of a user's

            facts.check_decomposition(op, results, node.outputs)
        new = [n for n in Graph([], results).nodes if n.op is not None and id(n) not in self.scheduled]
        self.scheduled.update(map(id, new))
        self.referenced.extend(v for part in new for v in part.outputs)
        for value in node.reads:
            self.readers[id(value)] -= 1
        for value in (v for part in new for v in part.reads):
            self.readers[id(value)] = self.readers.get(id(value), 0) + 1
        for result, output in zip(results, node.outputs, strict=True):
            if id(output) in self.outputs:
                self.outputs.add(id(result))
            self.readers[id(result)] = self.readers.get(id(result), 0) + self.readers.get(id(output), 0)
        for part in new:
            if op.is_merged and part.op is not None:
                self.origin = Origin(part.op.shown, node.where, part)
            self.lower(part)
        for result, output in zip(results, node.outputs, strict=True):
            if id(result) in self.views:
                self.views[id(output)] = self.views[id(result)]
            elif self.is_number(result) or not self.unread(output):  # else a kernel has left it out
                self.views[id(output)] = self.ensure(result)

    # Choices.

    def loop(
        self, inputs: Sequence[Value | None], outputs: Sequence[BufferView], loop: Loop, text: str
    ) -> None:
        operands = [v if v is None or self.is_number(v) else self.views[id(v)] for v in inputs]
        if loop.place is not None:
            views = [self.ensure(v) for v in inputs if v is not None]
            placed, numbers = loop.place([(view.shape, view.strides) for view in views])
            operands = [view.view(*geometry) for view, geometry in zip(views, placed, strict=True)]
            loop = Loop(loop.inputs, loop.stages, loop.axes, numbers, loop.ordered)
        self.steps.append(LoopStep(operands, outputs, loop, text, self.origin))

    def is_number(self, value: Value) -> bool:
        return id(value) not in self.views and (value.is_constant or id(value) in self.numbers)

    def take_loop(
        self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], loop: Loop
    ) -> None:
        if not registry.is_builtin(op.name):
            from weft.executor import facts

            facts.check_loop(op, loop, outputs)
        views = [self.output(v, like=self.first_like(inputs, v)) for v in outputs]
        self.loop(inputs, views, loop, repr(op))

    def first_like(self, inputs: Sequence[Value | None], value: Value) -> BufferView | None:
        """The input whose order in memory an output of a loop takes: the first one of its shape that has one."""
        for source in inputs:
            view = None if source is None else self.views.get(id(source))
            if (
                view is not None
                and same_shape(view.shape, value.shape)
                and not is_repeated(view.shape, view.strides)
            ):
                return view
        return None

    def take_view(self, op: Any, inputs: Sequence[Value | None], value: Value, choice: View) -> None:
        source = inputs[0]
        assert source is not None
        base = self.ensure(source)
        geometry = choice.see(source.shape, base.strides)
        if geometry is None:  # a contiguous copy has such a view
            base = self.copy(base, "contiguous copy")
            geometry = choice.see(source.shape, base.strides)
            assert geometry is not None
        shape, strides, offset = geometry
        if not registry.is_builtin(op.name):
            from weft.executor import facts

            facts.check_view(op, shape, source.dtype, value)
        self.referenced.append(value)
        self.views[id(value)] = base.view(shape, strides, offset)

    def copy(self, view: BufferView, text: str) -> BufferView:
        """A contiguous copy."""
        copied = Buffer(view.type.like(), row_major(view.shape)).whole()
        self.steps.append(LoopStep([view], [copied], copying(view.type.dtype), text, self.origin))
        return copied

    def take_parts(self, op: Any, inputs: Sequence[Value | None], value: Value, choice: Parts) -> None:
        dtype, parts = value.dtype, choice.parts
        whole = self.memory_of_first(inputs, value, choice)
        if whole is None:
            whole = self.output(value)
            whole.buffer.flexible, whole.buffer.in_parts = False, True
        else:
            self.views[id(value)] = whole
            self.referenced.append(value)
            parts = parts[1:]
        if choice.fill is not None:
            fill = Loop(0, (Each((Store(0, _number(choice.fill, dtype)),)),), numbers=(choice.fill,))
            self.loop([], [whole], fill, f"fill {op!r}")
        for k, see in parts:
            source = inputs[k]
            assert source is not None
            geometry = see(value.shape, whole.strides)
            assert geometry is not None
            window = whole.view(*geometry)
            if self.make_there(source, window):
                continue
            operand = None if self.is_number(source) else self.views[id(source)]
            if operand is not None and operand.buffer is window.buffer:
                if operand.key == window.key:
                    continue
                # What is read of the array that is written is read before.
                source = self.holder(source.type)
                self.referenced.append(source)
                self.views[id(source)] = self.copy(operand, "copy of what is overwritten")
            x = e.cast(e.load(0, source.dtype.name), dtype.name)
            self.loop([source], [window], Loop(1, (Each((Store(1, x),)),)), f"part of {op!r}")

    def memory_of_first(
        self, inputs: Sequence[Value | None], value: Value, choice: Parts
    ) -> BufferView | None:
        """The memory of the input that is the first part, if the other parts may be written over it."""
        x = inputs[0]
        if not choice.updates or x is None or x.dtype is not value.dtype or x.shape != value.shape:
            return None  # the same array for all examples of a batch has a shape of its own
        view = self.contents.view_of(x)
        if view is None or any(see(value.shape, view.strides) is None for _, see in choice.parts[1:]):
            return None
        return self.contents.memory_for(x, value)

    @property
    def contents(self) -> Any:
        if self._contents is None:
            from weft.executor.contents import Contents  # not before a part of something is written

            self._contents = Contents(self)
        return self._contents

    def make_there(self, value: Value, window: BufferView) -> bool:
        """Whether a kernel that writes over the window's content makes the value there, as in `c[0][i] = k`."""
        view = self.views.get(id(value))
        if view is None or id(value) in self.outputs or self.readers.get(id(value)) != 1:
            return False
        for k in range(len(self.steps) - 1, -1, -1):
            step = self.steps[k]
            if isinstance(step, NativeStep) and any(y is view for y in step.writes):
                moved = step.moved(view, window)
                if moved is not None:
                    self.steps[k] = moved
                return moved is not None
            if any(x.buffer is window.buffer for x in (*step.reads, *step.writes)):
                break
        return False

    def take_native(
        self, op: Any, inputs: Sequence[Value | None], outputs: Sequence[Value], choice: Native
    ) -> bool:
        if choice.exact and any(isinstance(n, Size) for v in inputs if v is not None for n in v.shape):
            raise NeedsSizes(repr(op))
        views = [None if v is None else self.ensure(v) for v in inputs]
        before_copies = len(self.steps)
        for k in choice.contiguous:
            view = views[k]
            if view is not None and not is_row_major(view.shape, view.strides):
                views[k] = self.copy(view, "contiguous copy")
        if choice.exact and any(isinstance(n, Size) for p in views if p is not None for n in _geometry(p)[2]):
            raise NeedsSizes(repr(op))
        first = next((p for p in views if p is not None), None)
        layouts = [
            None
            if self.unread(v) and j in choice.optional
            else self.layout(choice.layouts, j, v.shape, first)
            for j, v in enumerate(outputs)
        ]
        requests = [
            None if s is None else (v.dtype.name, v.shape, s) for v, s in zip(outputs, layouts, strict=True)
        ]
        kernel = self.make_kernel(choice, views, requests)
        if kernel is None and any(p is not None and repeats(p) for p in views):
            # oneDNN has no description of elements that are repeated.
            views = [
                self.copy(p, "copy of what is repeated") if p is not None and repeats(p) else p for p in views
            ]
            kernel = self.make_kernel(choice, views, requests)
        if kernel is None:
            del self.steps[before_copies:]
            return False
        fixed = choice.exact or any(choice.layouts)
        results = [
            None if s is None else self.output(v, s if fixed else None)
            for v, s in zip(outputs, layouts, strict=True)
        ]
        for i, j in choice.in_place:
            results[j] = self.in_place(inputs[i], outputs[j], views, results[j])
        operands = [*views, *results]
        order = range(len(operands)) if choice.order is None else choice.order
        first_slot = self.slots.add(
            choice.numbers, lambda: op.random_numbers(*(None if v is None else v.type for v in inputs))
        )
        self.native_buffers.update(id(p.buffer) for p in results if p is not None)
        pairs = [(views[i], results[j]) for i, j in choice.in_place]
        step = NativeStep(
            kernel,
            [p for n in order if (p := operands[n]) is not None],
            [p for n in order if n < len(views) and (p := views[n]) is not None],
            [p for p in results if p is not None],
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

    def in_place(
        self,
        x: Value | None,
        value: Value,
        operands: Sequence[BufferView | None],
        result: BufferView | None,
    ) -> BufferView | None:
        """The memory of a result that a kernel may write over x: that of x where parts of it were written before."""
        view = None if x is None else self.views.get(id(x))
        if x is None or view is None or result is None or not view.buffer.in_parts:
            return result
        readers = sum(p is not None and p.buffer is view.buffer for p in operands)
        if readers > 1 or view.type.dtype is not value.dtype or not same_shape(view.strides, result.strides):
            return result
        memory: BufferView | None = self.contents.memory_for(x, value)
        if memory is None:
            return result
        self.views[id(value)] = memory
        return memory

    def make_kernel(self, choice: Native, views: list[BufferView | None], outputs: Sequence[Any]) -> Any:
        """The kernel of a choice. A stable input is packed in the layout that it prefers, and replaced in views."""
        requests = [None if p is None else _geometry(p) for p in views]
        for k, axes in choice.packed if self.stable_inputs is not None else ():
            view = views[k]
            if view is None or not self.stable_inputs.holds(view, self.steps):
                continue
            kernel = choice.offer([*requests[:k], (*_geometry(view)[:2], ANY), *requests[k + 1 :]], outputs)
            if kernel is None:
                continue
            layout = kernel.layout(sum(p is not None for p in views[:k]))
            # Below AVX-512 a copy would have other strides, for which the same code is no quicker.
            if layout.is_plain and not kernel.is_wide:
                unpacked = choice.offer(requests, outputs)
                if unpacked is not None and unpacked.implementation == kernel.implementation:
                    return unpacked
            prepacked = self.pack(view, axes, layout)
            if prepacked is not None:
                views[k] = prepacked
                return kernel
        return choice.offer(requests, outputs)

    def pack(self, view: BufferView, axes: tuple[int, ...], layout: Any) -> BufferView | None:
        """A weight, with its axes in this order, in a layout of oneDNN; None if oneDNN cannot reorder it."""
        dtype, shape, strides = _geometry(view)
        source = (dtype, tuple(shape[d] for d in axes), tuple(strides[d] for d in axes))
        if any(stride <= 0 for stride in strides):  # oneDNN has no layout for what is repeated or reversed
            return None
        if _core.onednn_layout(source) == layout:
            return view
        key = (view.key, axes, layout)
        prepacked = self.packs.get(key)
        if prepacked is None:
            try:
                kernel = _core.onednn_reorder(source, layout)
            except NotImplementedError:
                return None
            prepacked = self.packs[key] = Buffer(
                TensorType((layout.bytes,), uint8, self.device), (1,)
            ).whole()
            self.steps.append(
                NativeStep(kernel, [view, prepacked], [view], [prepacked], 0, "pack", self.origin, fixed=True)
            )
        return prepacked

    def unread(self, value: Value) -> bool:
        return id(value) not in self.outputs and not self.readers.get(id(value))

    def layout(
        self, layouts: Sequence[str], j: int, shape: Sequence[Any], first: BufferView | None
    ) -> tuple[Any, ...]:
        """The strides that an output gets."""
        layout = layouts[j] if j < len(layouts) else ROW_MAJOR
        if layout == LIKE_INPUT and first is not None:
            images = len(shape) > 2 and first.ndim == len(shape)
            last = images and first.strides[1] == 1 and not is_row_major(first.shape, first.strides)
            layout = CHANNELS_LAST if last else ROW_MAJOR
        return channels_last(shape) if layout == CHANNELS_LAST and len(shape) > 2 else row_major(shape)

    # The end.

    def views_of_outputs(self) -> list[BufferView]:
        """The views of the program's outputs: memory of its own for each, or an input that nothing writes.

        The first `owned_outputs` of them are never inputs.
        """
        written = {id(self.views[id(self.graph.inputs[i])].buffer) for i in self.graph.writes.values()}
        outputs = [(j, v) for j, v in enumerate(self.graph.outputs) if v is not None]
        # A buffer can be the memory of one output; of several, it is that of one that is all of it.
        views: dict[int, BufferView] = {}
        for whole_first in (True, False):
            for j, value in outputs:
                view = self.ensure(value)
                if j not in views and (view.is_whole or not whole_first):
                    views[j] = self.view_of_output(
                        view, self.graph.writes.get(j), written, j < self.owned_outputs
                    )
        return [views[j] for j, _ in outputs]

    def view_of_output(
        self, view: BufferView, writes: int | None, written: set[int], owned: bool
    ) -> BufferView:
        buffer = view.buffer
        if buffer.is_input:
            target = None if writes is None else self.views[id(self.graph.inputs[writes])].buffer
            is_unchanged = buffer is target and view.is_whole
            if is_unchanged or (writes is None and not owned and id(buffer) not in written):
                return view
        elif not buffer.output and self.covers(view):
            if not view.is_whole:
                buffer.type, buffer.strides = view.type, view.strides
                buffer.flexible, buffer.like = False, -1
            buffer.output = True
            return view
        copied = self.copy(view, "another output")
        if self.exact:
            copied.buffer.strides = copied.strides = like_strides(view.shape, view.strides)
        copied.buffer.output, copied.buffer.flexible = True, True
        return copied

    def covers(self, view: BufferView) -> bool:
        """Whether the view is all elements of its buffer, so that it may be the buffer's description."""
        if view.is_whole:
            return True
        size, whole = view.type.size, view.buffer.type.size
        if not self.exact or not same(view.offset, 0) or not same(size, whole):
            return False
        return is_dense(view.shape, view.strides)


def repeats(view: BufferView) -> bool:
    """Whether elements are repeated, in a view of known sizes."""
    return any(n > 1 and s == 0 for n, s in zip(view.shape, view.strides, strict=True))


def _geometry(view: BufferView) -> tuple[str, Any, Any]:
    """As kernels of the native core are requested: strides of sizes 0 and 1, which mean nothing, are 1."""
    strides = view.strides
    if any(isinstance(stride, Size) for stride in strides):
        strides = tuple(
            1 if type(n) is int and n <= 1 else stride for n, stride in zip(view.shape, strides, strict=True)
        )
    return (view.type.dtype.name, view.shape, strides)


def _number(value: Any, dtype: DType) -> Any:
    """A number of a Loop as a scalar."""
    if isinstance(value, bool | int | float):
        return e.constant(value, dtype.name)
    return e.cast(e.parameter(0, dtype.real.name), dtype.name)


def _readers(graph: Graph) -> dict[int, int]:
    """How many inputs of nodes each value is."""
    count: dict[int, int] = {}
    for node in graph.nodes:
        for value in node.reads:
            count[id(value)] = count.get(id(value), 0) + 1
    return count
