"""Graphs as attributes of operators, and how functions become such graphs.

>>> from weft.base.dtype import float32
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> outer = input_value(TensorType((2,), float32))
>>> capture = Capture("example")
>>> x = capture.input(TensorType((2,), float32))
>>> (y,) = capture.run(lambda: [x * outer])
>>> capture.subgraph([x], [y])
<graph(x0: f32[2]@cpu:0, x1: f32[2]@cpu:0) | v0 = Mul...
>>> capture.found[0] is outer
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import _core
from weft.base.dtype import bool_
from weft.graph.graph import Graph
from weft.ops.node import Value, constant, input_value
from weft.ops.op import attribute_type
from weft.ops.types import TensorType

__all__ = ["Capture", "Subgraph"]


@attribute_type
class Subgraph:
    """A graph that an operator runs: a frozen value, equal to others of the same text."""

    __slots__ = ("_hash", "graph", "text")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.text = " | ".join(line.strip() for line in str(graph).splitlines())
        self._hash = hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subgraph) and self._hash == other._hash and self.text == other.text

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{self.text}>"

    @property
    def types(self) -> list[TensorType]:
        """Those of the outputs."""
        return [v.type for v in self.graph.outputs if v is not None]


class Capture:
    """Writes functions down as graphs, by calling them with Values.

    What they find elsewhere, arrays and the Values of a graph outside, becomes an input, too: `found`, in the order of
    `extra`. So the operands of the operator that runs the graph are those given, then those found. name: for errors.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[Any] = []
        self.extra: list[Value] = []
        self._known: dict[int, Value] = {}
        self._start = self.input(TensorType((), bool_)).node.place

    def input(self, type: TensorType) -> Value:
        """A Value to call functions with."""
        return input_value(type)

    def run(self, function: Callable[[], Sequence[Any]]) -> list[Value]:
        """What the function gives, as Values of the graph; numbers become arrays."""
        before = _core.capture()
        _core.set_capture(self)
        try:
            return [self._result(x) for x in function()]
        finally:
            _core.set_capture(before)

    def lift(self, x: Any) -> Any:
        """What stands for x in the graph; called for all that operators are applied to while run runs."""
        if isinstance(x, Value):
            if x.node.place >= self._start or x.is_constant:
                return x
            type = x.type
        elif isinstance(x, _core.Tensor):
            type = TensorType(x.shape, x.dtype, x.device)
        else:  # a number that a trace was given becomes part of what the trace is for
            return x.settle() if hasattr(x, "settle") else x
        stand_in = self._known.get(id(x))
        if stand_in is None:
            stand_in = self._known[id(x)] = self.input(type)
            self.found.append(x)
            self.extra.append(stand_in)
        return stand_in

    def check_in_place(self, name: str) -> None:
        """Called for x += y, with the name of the operator."""

    def check_recording(self) -> None:
        """Called where a GradManager begins to record."""

    def _result(self, x: Any) -> Value:
        x = self.lift(x)
        if isinstance(x, bool | int | float):
            x = constant(x)
            x = constant(x.node.value, x.dtype)
        if not isinstance(x, Value):
            raise TypeError(f"{self.name}: a function must give arrays and numbers, got {type(x).__name__}")
        return x

    def subgraph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Subgraph:
        """The graph from the inputs given, and those found, to the outputs.

        Raises NotImplementedError for operators with effects, which no graph inside another one has so far.
        """
        graph = Graph([*inputs, *self.extra], outputs)
        for node in graph.nodes:
            if node.op is not None and (node.op.random or node.op.written(len(node.inputs))):
                what = "draws random numbers" if node.op.random else "writes one of its inputs"
                raise NotImplementedError(
                    f"{self.name}: {node.op.name} {what}; functions that become part of a graph cannot do that so far"
                )
        return Subgraph(graph)
