"""From symbols, with the types of their variables, to the values of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft import _core
from weft.base.device import Device
from weft.base.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.subgraph import Subgraph
from weft.graph.symbols import SymbolGradient, SymbolNode, is_partial, nodes_of
from weft.ops import functions as F
from weft.ops.node import Value, input_value, make_node
from weft.ops.types import TensorType
from weft.symbol.control import LOWERED
from weft.symbol.placement import Placement

__all__ = ["Lowered", "lower"]


class Lowered:
    """What symbols' values have become: inputs by name, and the new content of variables that were written."""

    def __init__(self, nodes: Sequence[SymbolNode]) -> None:
        self.nodes = nodes
        self.inputs: dict[str, Value] = {}
        self.written: dict[str, Value] = {}
        self._values: dict[int, Value] = {}
        self._moved: dict[tuple[int, Device], Value] = {}

    def __getitem__(self, value: Value) -> Value:
        return self._values[id(value)] if is_partial(value) else value

    def __setitem__(self, value: Value, made: Value) -> None:
        self._values[id(value)] = made

    def on(self, device: Device, value: Value) -> Value:
        """The value on a device: itself if it is there or anywhere, else a copy, the same for all readers."""
        if value.is_constant or value.device is device:
            return value
        key = id(value), device
        if key not in self._moved:
            self._moved[key] = F.to_device(value, device=device)
        return self._moved[key]


def lower(
    values: Sequence[Value], types: Mapping[str, TensorType], training: bool, placement: Placement
) -> Lowered:
    """The values of exact types that symbols' values stand for, and all that they need.

    types: of the variables; training: for operators that leave it open. Raises what operators' rules raise.
    Operators run where placement says; what they read from elsewhere is copied.
    """
    given = {
        node.name: input_value(types[node.name], node.name) for node in nodes_of(values) if node.op is None
    }
    return _lower(Graph((), values), given, training, placement)


def _lower(graph: Graph, given: Mapping[str, Value], training: bool, placement: Placement) -> Lowered:
    made = Lowered([node for node in graph.nodes if isinstance(node, SymbolNode)])
    for node in made.nodes:
        if node.op is None:
            made.inputs[node.name] = made[node.outputs[0]] = given[node.name]
        elif isinstance(node.op, SymbolGradient):
            gradients = node.op.decompose(*(made[v] for v in node.sources))
            for value, new in zip(node.outputs, gradients, strict=True):
                made[value] = new
        elif type(node.op) in LOWERED:
            _run(made, node, training, placement[node])
        else:
            _apply(made, node, training, placement[node])
    return made


def _run(made: Lowered, node: SymbolNode, training: bool, device: Device) -> None:
    def run(body: Subgraph, values: Sequence[Value]) -> list[Value]:
        here = _core.capture()  # that writes the body down
        given = {v.node.name: here.lift(value) for v, value in zip(body.graph.inputs, values, strict=True)}
        outputs = [v for v in body.graph.outputs if v is not None]
        inner = _lower(body.graph, given, training, Placement(outputs, device, {}))
        return [inner[v] for v in outputs]

    assert node.op is not None
    outputs = LOWERED[type(node.op)](node.op, run, [made.on(device, made[v]) for v in node.sources])
    for value, new in zip(node.outputs, outputs, strict=True):
        made[value] = new


def _apply(made: Lowered, node: SymbolNode, training: bool, device: Device) -> None:
    op = node.resolved(training)
    operands = [None if v is None else made[v] for v in node.inputs]
    if op.fixed_device() is None:
        operands = [None if v is None else made.on(device, v) for v in operands]
    result = make_node(op, operands)
    result.where = node.where
    outputs = result.outputs if (here := _core.capture()) is None else here.record(result)
    if len(result.outputs) - op.hidden != len(node.outputs):
        raise GraphError(
            f"{op.name}: makes {len(result.outputs) - op.hidden} outputs, not the {len(node.outputs)} of {node.name}"
        )
    for value, new in zip(node.outputs, outputs, strict=False):
        made[value] = made.on(device, new)  # which may be of numbers only, and nowhere
    for index, output in op.writes_by_index(len(node.inputs)).items():
        operand = node.inputs[index]
        if operand is not None and is_partial(operand):  # later readers get the new content
            new = made.on(made[operand].device, outputs[output])
            made[operand] = made.written[operand.node.name] = new
