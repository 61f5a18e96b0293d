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
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from weft import _core
from weft.arrays.tensor import element_strides
from weft.arrays.traced_float import TracedFloat, TracedFloats
from weft.base.structure import Structure, flatten
from weft.base.table import Table
from weft.executor.compile import compile_graph
from weft.graph.capture import ProgramCapture, no_capture
from weft.graph.graph import Graph
from weft.ops import registry
from weft.ops.node import Node, Tracer, Value, constant, traced, value_of
from weft.ops.sizes import are_guarded
from weft.ops.types import TensorType
from weft.recording.control_flow_effects import write_back, write_back_found
from weft.recording.recorded_function import RecordedFunction, is_array, materialized

__all__ = ["CapturedFunction", "DerivedProgram", "Transformed", "stored"]

PROGRAMS = 512  # of the process; those that were not used for longest are dropped
PLANS = 16  # of one program, for operands of different strides

T = TypeVar("T")
P = ParamSpec("P")  # of the function
Q = ParamSpec("Q")  # of a method, without self
R = TypeVar("R")


class _Beside:
    """A leaf of the second result of a function that is no array, and only goes along."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf.value if type(leaf) is TracedFloat else leaf


class CapturedFunction(RecordedFunction):
    """A function for transformations: what it gives is arrays and numbers, or structures of them.

    ys: the arrays that it gives; aux: those of its second result, where it has one that only goes along.
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
        def pair(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            result = function(*args, **kwargs)
            if not has_aux:
                return result, _Beside(None)
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError(
                    f"{name}: with has_aux, the function must give a pair, got {type(result).__name__}"
                )
            leaves, shape = flatten(result[1])
            return result[0], shape.build([x if is_array(x) else _Beside(x) for x in leaves])

        super().__init__(
            ProgramCapture(name),
            pair,
            leaves,
            structure,
            types,
            floats=TracedFloats([x for x in leaves if type(x) is float] if _core.capture() is None else ()),
            is_output=lambda x: x is not None and type(x) is not _Beside,
        )
        self.check_written((x, None) for x in self.captures)
        self.structure, self._aux_structure = self.structure.parts
        self._results = self.leaves[: self.structure.count()]
        self._aux_leaves = self.leaves[self.structure.count() :]
        with no_capture():
            outputs = [materialized(v) for v in self.outputs]
        count = sum(self.are_results)
        self.ys, self.aux = outputs[:count], outputs[count:]

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
        write_back_found(self.capture, self.written_captures, extra_outputs[count:end])
        for k, content in zip(self.written_inputs, extra_outputs[end:], strict=True):
            write_back(self.capture, self.arguments[k], content)
        remaining = iter(extra_outputs[:count])
        return self._aux_structure.build(
            [x.leaf if type(x) is _Beside else next(remaining) for x in self._aux_leaves]
        )


class DerivedProgram:
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


class Transformed(Generic[P, R]):
    """A transformed function. function: what it was made from."""

    def __init__(self, name: str, function: Callable[P, R], run: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function, self._transformation = function, name
        self._run = run

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Transformed[P, R]: ...
    @overload
    def __get__(
        self: Transformed[Concatenate[Any, Q], R], instance: Any, owner: Any = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"{self._transformation}({self.function!r})"
