"""From symbols, with the types of their variables, to the values of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft import _core
from weft.base.device import Device
from weft.base.errors import GraphError
from weft.graph.constant_array import ConstantArray, constants_in
from weft.graph.graph import Graph
from weft.graph.subgraph import Subgraph
from weft.graph.symbols import SymbolGradient, SymbolNode, is_partial, nodes_of
from weft.ops import functions as F
from weft.ops.node import Value, input_value, make_node, value_of
from weft.ops.types import TensorType
from weft.symbol.control import LOWERED
from weft.symbol.placement import Placement

__all__ = ["Lowered", "lower"]


class Lowered:
    """The values of a graph for those of symbols; inputs by name, those for constants, new contents of variables."""

    def __init__(self, nodes: Sequence[SymbolNode], constants: Mapping[int, Value]) -> None:
        self.nodes = nodes
        self.constants = constants  # inputs by the id of their Elements
        self.inputs: dict[str, Value] = {}
        self.new_contents: dict[str, Value] = {}
        self._values: dict[int, Value] = {}
        self._moved: dict[tuple[int, Device], Value] = {}

    def __getitem__(self, value: Value) -> Value:
        return self._values[id(value)] if is_partial(value) else value

    def __setitem__(self, value: Value, new: Value) -> None:
        self._values[id(value)] = new

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
    """The values of exact types for those of symbols, and all that they need.

    types: of the variables; training: for operators that leave it open. Raises what operators' rules raise.
    Operators run where placement says; what they read from elsewhere is copied.
    """
    inputs = {
        node.name: input_value(types[node.name], node.name) for node in nodes_of(values) if node.op is None
    }
    constants = {
        id(each): input_value(each.type.on(placement.device), "constant") for each in constants_in(values)
    }
    return _lower(Graph((), values), inputs, constants, training, placement)


def _lower(
    graph: Graph,
    inputs: Mapping[str, Value],
    constants: Mapping[int, Value],
    training: bool,
    placement: Placement,
) -> Lowered:
    lowered = Lowered([node for node in graph.nodes if isinstance(node, SymbolNode)], constants)
    for node in lowered.nodes:
        if node.op is None:
            lowered.inputs[node.name] = lowered[node.outputs[0]] = inputs[node.name]
        elif isinstance(node.op, ConstantArray):
            value, capture = constants[id(node.op.elements)], _core.capture()
            lowered[node.outputs[0]] = lowered.on(
                placement[node], value if capture is None else capture.lift(value)
            )
        elif isinstance(node.op, SymbolGradient):
            gradients = node.op.decompose(*(lowered[v] for v in node.sources))
            for value, new in zip(node.outputs, gradients, strict=True):
                lowered[value] = new
        elif type(node.op) in LOWERED:
            _run(lowered, node, training, placement[node])
        else:
            _apply(lowered, node, training, placement[node])
    return lowered


def _run(lowered: Lowered, node: SymbolNode, training: bool, device: Device) -> None:
    def run(body: Subgraph, values: Sequence[Value]) -> list[Value]:
        capture = _core.capture()  # which records the body
        inputs = {
            v.node.name: capture.lift(value) for v, value in zip(body.graph.inputs, values, strict=True)
        }
        outputs = [v for v in body.graph.outputs if v is not None]
        place = Placement(outputs, device, {})
        inner = _lower(body.graph, inputs, lowered.constants, training, place)
        return [inner[v] for v in outputs]

    assert node.op is not None
    outputs = LOWERED[type(node.op)](node.op, run, [lowered.on(device, lowered[v]) for v in node.sources])
    for value, new in zip(node.outputs, map(value_of, outputs), strict=True):
        lowered[value] = new


def _apply(lowered: Lowered, node: SymbolNode, training: bool, device: Device) -> None:
    op = node.resolved(training)
    operands = [None if v is None else lowered[v] for v in node.inputs]
    if op.fixed_device() is None:
        operands = [None if v is None else lowered.on(device, v) for v in operands]
    new_node = make_node(op, operands)
    new_node.where = node.where
    outputs = new_node.outputs if (capture := _core.capture()) is None else capture.record(new_node)
    if len(new_node.outputs) - op.hidden != len(node.outputs):
        raise GraphError(
            f"{op.name}: makes {len(new_node.outputs) - op.hidden} outputs, not the {len(node.outputs)} of {node.name}"
        )
    for value, new in zip(node.outputs, outputs, strict=False):
        lowered[value] = lowered.on(device, new)  # which may be of numbers only, and nowhere
    for index, output in op.writes_by_index(len(node.inputs)).items():
        operand = node.inputs[index]
        if operand is not None and is_partial(operand):  # later readers get the new content
            new = lowered.on(lowered[operand].device, outputs[output])
            lowered[operand] = lowered.new_contents[operand.node.name] = new
