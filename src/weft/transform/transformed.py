"""Transformed functions: a function is recorded as a graph, which is transformed and run as a program.

A transformation is no cache: each call runs the function's Python, on Values, and so sees what that reads now. What is
stored is what was made of a recorded graph, by that graph's key (Graph.key): the transformed graph and its plans. A
call whose function records a graph that was recorded before transforms and plans nothing. Where a transformed function
is called while another function is written down, the transformed graph becomes part of that one's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from types import MethodType
from typing import Any, TypeVar

from weft import _core
from weft.arrays import tracer as tracer  # so that recorded functions hold arrays
from weft.arrays.tensor import element_strides
from weft.arrays.traced_float import TracedFloat, TracedFloats
from weft.base.structure import Structure, flatten
from weft.base.table import Table
from weft.executor.compile import compile_graph
from weft.graph.capture import ProgramCapture, no_capture, type_of
from weft.graph.graph import Graph
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Node, Tracer, Value, constant, traced, value_of
from weft.ops.sizes import are_guarded
from weft.ops.types import TensorType
from weft.recording.control_flow_effects import may_share_memory, write_back, write_back_found

__all__ = [
    "CapturedFunction",
    "Program",
    "Transformed",
    "is_array",
    "materialized",
    "stored",
    "type_of",
]

Array = _core.Tensor | Value
PROGRAMS = 512  # of the process; those that were not used for longest are dropped
PLANS = 16  # of one program, for operands of different strides

T = TypeVar("T")


class _Beside:
    """A leaf of the second result of a function that is no array, and only goes along."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf.value if type(leaf) is TracedFloat else leaf


class CapturedFunction:
    """A function as a graph. inputs: the graph's inputs for those leaves of the arguments that are arrays.

    ys: the arrays that it gives; aux: those of its second result, where it has one that only goes along. contents: what
    it writes to captured arrays, those of `written_captures`, and then to arrays among its arguments, those of
    `written_inputs`. captures: all arrays that it captures, then the floats of the call that it reads; extra: the
    inputs for them.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        leaves: Sequence[Any],
        structure: Structure,
        types: Sequence[TensorType | None],
        has_aux: bool = False,
    ) -> None:
        self._capture = ProgramCapture(name)
        floats = TracedFloats([x for x in leaves if type(x) is float] if _core.capture() is None else ())
        numbers = iter(floats.numbers)
        values: list[Any] = [
            self._capture.input(t)
            if t is not None
            else next(numbers)
            if floats.numbers and type(leaf) is float
            else leaf
            for leaf, t in zip(leaves, types, strict=True)
        ]
        self.inputs: list[Value] = [v for v, t in zip(values, types, strict=True) if t is not None]
        values = [*map(traced, values)]
        self._arguments = [leaf for leaf, t in zip(leaves, types, strict=True) if t is not None]

        def run() -> tuple[Any, Any]:
            args, kwargs = structure.build(values)
            result = function(*args, **kwargs)
            if not has_aux:
                return result, _Beside(None)
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError(
                    f"{name}: with has_aux, the function must give a pair, got {type(result).__name__}"
                )
            leaves, shape = flatten(result[1])
            return result[0], shape.build([x if is_array(x) else _Beside(x) for x in leaves])

        try:
            recorded = self._capture.run(run, lambda x: x is not None and type(x) is not _Beside)
        finally:
            floats.close()
        self.structure, self._aux_structure = recorded.structure.parts
        self._results = recorded.leaves[: self.structure.count()]
        self._aux_leaves = recorded.leaves[self.structure.count() :]
        result_count = sum(self.are_results)
        written = self._capture.written(self.inputs)
        self.written_captures, self.written_inputs = list(self._capture.new_contents), list(written)
        self.contents = [*self._capture.new_contents.values(), *written.values()]
        numbers_read = list(self._capture.floats.values())
        self.extra = [*self._capture.capture_inputs, *(v for v, _ in numbers_read)]
        self.captures = [*self._capture.captures, *(x if x.owner else x.value for _, x in numbers_read)]
        self._check_arguments()
        with no_capture():
            outputs = [materialized(v) for v in recorded.outputs]
        self.ys, self.aux = outputs[:result_count], outputs[result_count:]

    def _check_arguments(self) -> None:
        """Raise CannotRecord where an argument is written whose memory is used under another name, too."""
        for k in self.written_inputs:
            mine = self._arguments[k]
            for x in [*self._capture.captures, *(x for j, x in enumerate(self._arguments) if j != k)]:
                if may_share_memory(x, mine):
                    self._capture.refuse(
                        f"an argument is written whose memory is used under another name, too: {type_of(mine)}"
                    )

    @property
    def key(self) -> Hashable:
        """What programs of it depend on, but for the shape of its arguments and results: what was recorded."""
        graph = Graph([*self.inputs, *self.extra], [*self.ys, *self.extra_outputs])
        counts = (len(self.inputs), len(self.ys), len(self.aux))
        return (graph.key, counts, tuple(self.written_captures), tuple(self.written_inputs))

    @property
    def extra_outputs(self) -> list[Value]:
        """What it gives that is not differentiated."""
        return [*self.aux, *self.contents]

    @property
    def are_results(self) -> list[bool]:
        """For each leaf of the result whether it is an array; the others are None."""
        return [x is not None for x in self._results]

    def build(self, arrays: Sequence[Any]) -> Any:
        """The result with these arrays, or with structures in their places."""
        remaining = iter(arrays)
        return self.structure.build([None if x is None else next(remaining) for x in self._results])

    def finish(self, extra_outputs: Sequence[Any]) -> Any:
        """Write to the arrays that it found; the second result."""
        count, end = len(self.aux), len(self.aux) + len(self.written_captures)
        write_back_found(self._capture, self.written_captures, extra_outputs[count:end])
        for k, content in zip(self.written_inputs, extra_outputs[end:], strict=True):
            write_back(self._capture, self._arguments[k], content)
        remaining = iter(extra_outputs[:count])
        return self._aux_structure.build(
            [x.leaf if type(x) is _Beside else next(remaining) for x in self._aux_leaves]
        )


def materialized(v: Value) -> Value:
    """The value as an operator gives it: a result is an array of its own, neither a number nor an argument."""
    if v.node.op is not None:
        return v
    copy: Value = F.reshape(v, shape=v.shape, copy=True)
    return copy


class Program:
    """A transformed graph, and its plans by the strides of the operands."""

    def __init__(self, name: str, graph: Graph) -> None:
        self.name, self.graph = name, graph
        self._are_numbers = [v.type.weak for v in graph.inputs]
        self._plans: Table[Any] = Table(PLANS)

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        """The outputs of the graph: computed, or made part of what is being written down."""
        is_traced = _core.capture() is not None or any(isinstance(x, Tracer) for x in operands)
        if is_traced or any(isinstance(x, Value) for x in operands):
            values = self._inlined([*map(value_of, operands)])
            return [*map(traced, values)] if is_traced else values
        arrays, numbers = list(operands), []
        if any(self._are_numbers):
            pairs = list(zip(operands, self._are_numbers, strict=True))
            arrays, numbers = [x for x, flag in pairs if not flag], [x for x, flag in pairs if flag]
        strides = tuple(map(element_strides, arrays))
        plan = self._plans.get(strides, lambda: self._plan(strides))
        outputs: list[Any] = _core.run_plan(plan, arrays, numbers)
        return outputs

    def _plan(self, strides: Sequence[tuple[int, ...]]) -> Any:
        """The plan for arrays of these strides; numbers come behind all arrays."""
        inputs = sorted(self.graph.inputs, key=lambda v: v.type.weak)
        return compile_graph(Graph(inputs, self.graph.outputs), self.name, strides, len(self.graph.outputs))

    def _inlined(self, operands: Sequence[Any]) -> list[Any]:
        capture = _core.capture()
        inputs = operands if capture is None else [capture.lift(x) for x in operands]
        values: dict[Value, Value] = {
            old: constant(new) if isinstance(new, int | float) else new
            for old, new in zip(self.graph.inputs, inputs, strict=True)
        }
        for node in self.graph.nodes:
            if node.op is None:
                values.setdefault(node.outputs[0], node.outputs[0])
                continue
            new_node = Node(
                node.op,
                [None if v is None else values[v] for v in node.inputs],
                [v.type for v in node.outputs],
                {key: values[v] for key, v in node.runtime.items()},
            )
            new_node.where = node.where
            outputs = new_node.outputs if capture is None else capture.record_inlined(new_node)
            values.update((old, new) for old, new in zip(node.outputs, outputs, strict=True))
        return [values[v] for v in self.graph.outputs if v is not None]


_programs: Table[Any] = Table(PROGRAMS)
registry.clear_when_made_again(_programs.clear)


def stored(key: Hashable, make: Callable[[], T]) -> T:
    """What make gives, outside of every capture; for a key that was met before what it gave then.

    With dynamic axes make runs each time, because it may compare sizes.
    """

    def made() -> T:
        with no_capture():
            return make()

    entry: T = made() if are_guarded() else _programs.get(key, made)
    return entry


class Transformed:
    """A transformed function. function: what it was made from."""

    def __init__(self, name: str, function: Callable[..., Any], run: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function, self._transformation = function, name
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"{self._transformation}({self.function!r})"


def is_array(x: Any) -> bool:
    """Whether x is an array, or a Value."""
    return isinstance(x, Array)
