"""Transformed functions: a function is recorded as a graph, which is transformed and run as a program.

Programs are stored by the kind of the arguments, like those of traced functions with dynamic axes
(weft.imperative.dynamic): the function's Python runs once, on Values. Where it is called while another function is
written down, the transformed graph becomes part of that one's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any

from weft import _core
from weft.base.structure import Structure, flatten
from weft.executor.compile import compile_graph
from weft.graph.graph import Graph
from weft.graph.recording import Recorder
from weft.graph.subgraph import Capture, no_capture, type_of
from weft.imperative import indexing as indexing  # so that Values can be indexed
from weft.imperative.control_flow_effects import may_share_memory, write_back, write_back_found
from weft.imperative.dynamic import SharedMemory
from weft.imperative.tensor import element_strides
from weft.imperative.trace import Trace
from weft.ops import functions as F
from weft.ops.node import Value, make_node
from weft.ops.types import TensorType

__all__ = [
    "CapturedFunction",
    "Transformed",
    "is_array",
    "materialized",
    "run_graph",
    "transformed",
    "type_of",
]

Array = _core.Tensor | Value
PROGRAMS = 64  # of one transformed function; the oldest are dropped


class _TransformCapture(Capture):
    """Writes a function down that is going to be transformed: what draws random numbers stays as it is."""

    draw = Recorder.draw  # as a whole program, not as a body that runs again

    def set_gradient(self, x: Any, dx: Any) -> None:
        self.refuse("it sets the grad of an array; a transformed function may use grad or vjp inside of it")


class CapturedFunction:
    """A function as a graph. inputs: the graph's inputs for those leaves of the arguments that are arrays.

    ys: the arrays that it gives; aux: those of its second result, where it has one that only goes along. contents: what
    it writes to captured arrays, those of `written_captures`, and then to arrays among its arguments, those of
    `written_inputs`; captures: all arrays that it captures, `extra` their inputs.
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
        self._capture = _TransformCapture(name)
        values = [
            leaf if t is None else self._capture.input(t) for leaf, t in zip(leaves, types, strict=True)
        ]
        self.inputs = [v for v, t in zip(values, types, strict=True) if t is not None]
        self._arguments = [leaf for leaf, t in zip(leaves, types, strict=True) if t is not None]
        self._results: list[Any] = []
        self._aux_leaves: list[Any] = []

        def run() -> list[Any]:
            args, kwargs = structure.build(values)
            result, aux = function(*args, **kwargs), None
            if has_aux:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise TypeError(
                        f"{name}: with has_aux, the function must give a pair, got {type(result).__name__}"
                    )
                result, aux = result
            self._results, self.structure = flatten(result)
            self._aux_leaves, self._aux_structure = flatten(aux)
            return [x for x in self._results if x is not None] + [x for x in self._aux_leaves if is_array(x)]

        values_of_results = self._capture.run(run)
        result_count = len([x for x in self._results if x is not None])
        self.written_captures = list(self._capture.new_contents)
        ends = [self._capture.content(v) for v in self.inputs]
        self.written_inputs = [k for k, end in enumerate(ends) if end is not None]
        self.contents = [self._capture.new_contents[k] for k in self.written_captures] + [
            v for v in ends if v is not None
        ]
        self.extra, self.captures = self._capture.capture_inputs, self._capture.captures
        self._check_arguments()
        with no_capture():
            values_of_results = [materialized(v) for v in values_of_results]
        self.ys, self.aux = values_of_results[:result_count], values_of_results[result_count:]

    def _check_arguments(self) -> None:
        """Raise CannotRecord where an argument is written whose memory is used under another name, too."""
        for k in self.written_inputs:
            mine = self._arguments[k]
            for x in [*self.captures, *(x for j, x in enumerate(self._arguments) if j != k)]:
                if may_share_memory(x, mine):
                    self._capture.refuse(
                        f"an argument is written whose memory is used under another name, too: {type_of(mine)}"
                    )

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
        return self._aux_structure.build([next(remaining) if is_array(x) else x for x in self._aux_leaves])


def materialized(v: Value) -> Value:
    """The value as an operator gives it: a result is an array of its own, neither a number nor an argument."""
    if v.node.op is not None:
        return v
    copy: Value = F.reshape(v, shape=v.shape, copy=True)
    return copy


def run_graph(name: str, graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """The outputs of a graph: computed, or made part of what is being written down."""
    if _core.capture() is not None or any(isinstance(x, Value) for x in operands):
        return _inlined(graph, operands)
    plan = compile_graph(graph, name, list(map(element_strides, operands)))
    outputs: list[Any] = _core.run_plan(plan, list(operands))
    return outputs


def _inlined(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    capture = _core.capture()
    inputs = operands if capture is None else [capture.lift(x) for x in operands]
    values: dict[int, Value] = {id(old): new for old, new in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        if node.op is None:
            values.setdefault(id(node.outputs[0]), node.outputs[0])
            continue
        runtime = {key: values[id(v)] for key, v in node.runtime.items()}
        new_node = make_node(node.op, [None if v is None else values[id(v)] for v in node.inputs], runtime)
        new_node.where = node.where
        outputs = new_node.outputs if capture is None else capture.record_inlined(new_node)
        values.update((id(old), new) for old, new in zip(node.outputs, outputs, strict=True))
    return [values[id(v)] for v in graph.outputs if v is not None]


class _Axes:
    """No axis of any argument has a size that is not known; see weft.imperative.dynamic.DynamicAxes."""

    reason = "in a transformed function"
    falls_back = False

    def __init__(self) -> None:
        self.axes: dict[str, tuple[int, ...]] = {}

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, tuple[int, ...]]:
        return {}


class Transformed:
    """A transformed function: one program for each kind of arguments. function: what it was made from."""

    def __init__(self, name: str, function: Callable[..., Any], run: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())
        self._run, self._transformation = run, name

        @functools.wraps(function, updated=())
        def called(*args: Any, **kwargs: Any) -> Any:
            return run(*args, **kwargs)

        called.__name__ = f"{name}({getattr(function, '__name__', type(function).__name__)})"
        self.function = function
        self._shared: set[int] = set()  # memory of arrays that the function finds and was also called with
        self._trace = Trace(called, strict=False, lazy=False, max_entries=PROGRAMS, dynamic=_Axes())  # type: ignore[arg-type]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _core.capture() is not None or any(isinstance(x, Value) for x in flatten((args, kwargs))[0]):
            return self._run(*args, **kwargs)
        if self._shared:
            args, kwargs = self._copy_shared((args, kwargs))
        try:
            return self._trace(*args, **kwargs)
        except SharedMemory as problem:
            self._shared |= problem.memory
        args, kwargs = self._copy_shared((args, kwargs))
        return self._trace(*args, **kwargs)

    def _copy_shared(self, arguments: Any) -> Any:
        """The arguments; copies of those that the function captures, too: a program cannot distinguish the two."""
        leaves, structure = flatten(arguments)
        shared = [isinstance(x, _core.Tensor) and _core.geometry(x)[0] in self._shared for x in leaves]
        return structure.build([x.copy() if flag else x for x, flag in zip(leaves, shared, strict=True)])

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @property
    def programs(self) -> list[Any]:
        """The programs made until now, the newest last."""
        return self._trace.programs

    def __repr__(self) -> str:
        return f"{self._transformation}({self.function!r})"


CACHE_ATTRIBUTE = "__weft_transformed__"  # in a function's own dictionary, so that its programs end with it


def transformed(
    name: str, function: Callable[..., Any], make: Callable[[], Callable[..., Any]], has_aux: bool
) -> Transformed:
    """The Transformed of a function; of a Python function the same one as long as that lives.

    make: what gives the function that computes it. Raises TypeError for what cannot be called.
    """
    if not callable(function):
        raise TypeError(f"{name}: takes a function, got {type(function).__name__}")
    if not isinstance(function, FunctionType):
        return Transformed(name, function, make())
    cache = function.__dict__.setdefault(CACHE_ATTRIBUTE, {})
    cached = cache.get((name, has_aux))
    if cached is None or cached.function is not function:  # a wrapper has the dictionary of what it wraps
        cached = Transformed(name, function, make())
        if cache and next(iter(cache.values())).function is not function:
            cache = function.__dict__[CACHE_ATTRIBUTE] = {}
        cache[name, has_aux] = cached
    return cached


def is_array(x: Any) -> bool:
    """Whether x is an array, or a Value."""
    return isinstance(x, Array)
