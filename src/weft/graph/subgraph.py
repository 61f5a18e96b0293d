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

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.base.dtype import bool_, int64
from weft.graph.gradient import gradients
from weft.graph.graph import Graph
from weft.graph.inner import Drawn, Rewritten, StopGradient, Watched, blocks_of, stopped
from weft.ops.node import Node, Value, apply, bind, constant, input_value, make_node
from weft.ops.op import Op, attribute_type
from weft.ops.sizes import Size
from weft.ops.types import TensorType

__all__ = ["Capture", "Subgraph", "no_capture"]


@attribute_type
class Subgraph:
    """A graph that an operator runs: a frozen value, equal to others of the same text."""

    __slots__ = ("_has_sizes", "_hash", "graph", "text")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.text = " | ".join(line.strip() for line in str(graph).splitlines())
        self._hash = hash(self.text)
        self._has_sizes: bool | None = None

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

    @property
    def has_sizes(self) -> bool:
        """Whether some of its sizes are symbols."""
        if self._has_sizes is None:
            values = [*self.graph.inputs, *(v for node in self.graph.nodes for v in node.outputs)]
            self._has_sizes = any(isinstance(n, Size) for v in values for n in v.shape) or any(
                _has_size(node.value if node.op is None else tuple(node.op.values().values()))
                for node in self.graph.nodes
            )
        return self._has_sizes


def _has_size(value: Any) -> bool:
    """Whether an attribute has a Size in it."""
    if isinstance(value, tuple):
        return any(map(_has_size, value))
    if isinstance(value, Op):
        return _has_size(tuple(value.values().values()))
    return value.has_sizes if isinstance(value, Subgraph) else isinstance(value, Size)


@contextlib.contextmanager
def no_capture() -> Iterator[None]:
    """What is called inside makes nodes of no function that is being captured."""
    before = _core.capture()
    _core.set_capture(None)
    try:
        yield
    finally:
        _core.set_capture(before)


class Capture:
    """Writes functions down as graphs, by calling them with Values.

    What they find elsewhere, arrays and the Values of a graph outside, becomes an input, too: `found`, in the order of
    `extra`. So the operands of the operator that runs the graph are those given, then those found. name: for errors.

    Effects. A captured array that is written reads as its new value from then on; `written` maps its index in `found`
    to that value. What draws random numbers draws from `stream`, the words that Drawn takes, at `position`, an input of
    the graph, and `blocks` counts the positions taken.

    Gradients. What is watched has a Value of its own until it is unwatched, so that only what is computed meanwhile
    counts; nodes made where nothing is recorded are constant.
    """

    def __init__(self, name: str, stream: Any = None) -> None:
        self.name, self.stream = name, stream
        self.found: list[Any] = []
        self.extra: list[Value] = []
        self.written: dict[int, Value] = {}
        self.assigned: set[int] = set()  # those of written that the program writes, not an operator
        self.blocks = 0
        self.drew = False
        self.position = self.input(TensorType((), int64))
        self._known: dict[int, int] = {}  # numbers in found by id, of the stand-ins and contents, too
        self._kept: list[Value] = []
        self._local: set[int] = set()  # arrays that a function made: nobody else sees them
        self._start = self.input(TensorType((), bool_)).node.place
        self._watched: dict[int, list[Value]] = {}  # by number of found; the innermost last
        self._constant: dict[int, Node] = {}  # by id; kept, so that it stays theirs
        self._mark = _core.last_serial()

    def input(self, type: TensorType) -> Value:
        """A Value to call functions with."""
        return input_value(type)

    def run(self, function: Callable[[], Sequence[Any]]) -> list[Value]:
        """What the function gives, as Values of the graph; numbers become arrays. Nothing is written yet."""
        self.written = {}
        before, epoch = _core.capture(), _core.begin_epoch()
        _core.set_capture(self)
        try:
            made = [self._result(x) for x in function()]
        finally:
            _core.set_capture(before)
            _core.end_epoch(epoch)
        self.written = {k: v for k, v in self.written.items() if k not in self._local}
        self._check_written()
        return made

    # What operators' functions call while run runs.

    def __weft_apply__(self, op: type[Op], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator with effects, on whatever operands."""
        inputs, attributes = bind(op, args, kwargs)
        return apply(op, inputs, attributes)

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
        k = self._known.get(id(x))
        if k is None:
            k = self._known[id(x)] = len(self.found)
            stand_in = self.input(type)
            self._known[id(stand_in)] = k
            self.found.append(x)
            self.extra.append(stand_in)
            if isinstance(x, _core.Tensor) and self._is_new(x):
                self._local.add(k)
        return self._watched[k][-1] if k in self._watched else self.written.get(k, self.extra[k])

    def made(self, node: Node) -> Sequence[Value]:
        """What stands for the outputs of a node here; called for every node."""
        op = node.op
        assert op is not None
        if op.random:
            node = self._draw(node)
        if not _core.is_recording():
            self._constant[id(node)] = node
        for number, output in op.written(len(node.inputs)).items():
            target = node.inputs[number]
            if target is not None:
                if id(target) not in self._known:
                    raise NotImplementedError(
                        f"{self.name}: {op.name} writes what the function was given or made; it can write "
                        "arrays of its surroundings only"
                    )
                self.write(target, stopped(node.outputs[output]))
        return [stopped(v) for v in node.outputs] if _core.is_stopping() else node.outputs

    def inlined(self, node: Node) -> Sequence[Value]:
        """As made, for a node of another function's graph, whose writes that function has seen."""
        assert node.op is not None
        if node.op.random:
            node = self._draw(node)
        if not _core.is_recording():
            self._constant[id(node)] = node
        return [stopped(v) for v in node.outputs] if _core.is_stopping() else node.outputs

    def write(self, target: Any, content: Value) -> None:
        """Make content that of an array of the surroundings, or of a Value that stands for one."""
        past = self.lift(target)
        if isinstance(content.node.op, StopGradient) and past.type == content.type:
            content = make_node(Rewritten(), [content, past]).outputs[0]  # written where nothing is recorded
        k = self._known[id(target)]
        if k in self._watched:
            raise NotImplementedError(
                f"{self.name}: an array is written whose gradient is wanted, before it is there: "
                f"{_core.describe(self.found[k])}"
            )
        self.written[k] = content
        self._kept.append(content)  # so that its id stays its own
        self._known[id(content)] = k

    def assign(self, target: Any, content: Value) -> None:
        """As write, where the program says so: then the content has a gradient."""
        self.write(target, content)
        self.assigned.add(self._known[id(target)])

    def _draw(self, node: Node) -> Node:
        assert node.op is not None
        if node.runtime or self.stream is None:
            raise NotImplementedError(
                f"{self.name}: {node.op.name} draws random numbers, which this function cannot"
            )
        self.drew = True
        drawn = Drawn(of=node.op, offset=self.blocks)
        self.blocks += blocks_of(node.op, *(None if v is None else v.type for v in node.inputs))
        return make_node(drawn, [*node.inputs, self.lift(self.stream), self.position])

    def _check_written(self) -> None:
        for k in self.written:
            for j, other in enumerate(self.found):
                both = isinstance(self.found[k], _core.Tensor) and isinstance(other, _core.Tensor)
                if j != k and both and _core.shares_memory(self.found[k], other):
                    raise NotImplementedError(
                        f"{self.name}: an array is written that shares memory with another one that the function "
                        f"uses: {_core.describe(self.found[k])}, {_core.describe(other)}"
                    )

    def _is_new(self, x: Any) -> bool:
        serial = _core.geometry(x)[0]
        return bool(serial > self._mark and serial >> 40 == self._mark >> 40)

    def check_in_place(self, name: str) -> None:
        """Called for x += y, with the name of the operator."""

    def watch(self, x: Any) -> Value:
        """From now on x is a Value of its own, which gradients can be asked of."""
        value = self.lift(x)
        if not isinstance(value, Value):
            raise TypeError(f"{self.name}: only arrays have gradients, got {type(x).__name__}")
        watched = make_node(Watched(), [value]).outputs[0]
        if not isinstance(x, Value):
            k = self._known[id(x)]
            self._watched.setdefault(k, []).append(watched)
            self._known[id(watched)] = k
        return watched

    def unwatch(self, x: Any, watched: Value) -> None:
        """x is what it was again."""
        k = self._known[id(x)]
        left = [value for value in self._watched.pop(k) if value is not watched]
        if left:
            self._watched[k] = left

    def gradients(
        self, ys: Sequence[Any], dys: Sequence[Any], xs: Sequence[Value], is_recorded: bool
    ) -> list[Value | None]:
        """The gradients of ys with respect to what is watched; is_recorded: they can have gradients themselves."""
        if not is_recorded:
            _core.set_recording(False)
        try:
            return gradients([self.lift(y) for y in ys], xs, [self.lift(dy) for dy in dys], self._constant)
        finally:
            if not is_recorded:
                _core.set_recording(True)

    def gradient_of(self, x: Any, found: Any) -> Any:
        """The grad of an array, which is found outside of the function."""
        return found

    def set_gradient(self, x: Any, dx: Any) -> None:
        """Make dx the grad of an array."""
        raise NotImplementedError(
            f"{self.name}: a function of control flow that becomes part of a graph cannot set gradients so far"
        )

    def _result(self, x: Any) -> Value:
        x = self.lift(x)
        if isinstance(x, bool | int | float):
            x = constant(x)
            x = constant(x.node.value, x.dtype)
        if not isinstance(x, Value):
            raise TypeError(f"{self.name}: a function must give arrays and numbers, got {type(x).__name__}")
        return x

    # What became of them.

    def others(self, numbers: Sequence[int]) -> list[Any]:
        """What was found, but for these."""
        return [x for k, x in enumerate(self.found) if k not in numbers]

    def subgraph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Subgraph:
        """The graph from the inputs given, and those found that are not among them, to the outputs."""
        given = set(map(id, inputs))
        return Subgraph(Graph([*inputs, *(v for v in self.extra if id(v) not in given)], outputs))
