"""From symbols, with the types of their variables, to the values of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft import _core
from weft.base.device import Device
from weft.base.errors import GraphError
from weft.graph.gradient import gradients
from weft.ops import functions as F
from weft.ops.node import Value, constant, input_value, make_node
from weft.ops.types import TensorType
from weft.symbol.control import Body, SymbolControl
from weft.symbol.gradient import SymbolGradient
from weft.symbol.node import Entry, Operand, SymbolNode, ordered
from weft.symbol.placement import Placement

__all__ = ["Lowered", "lower"]


class Lowered:
    """The values of symbols: inputs by name, values by entry, and the new content of variables that were written."""

    def __init__(self, nodes: Sequence[SymbolNode]) -> None:
        self.nodes = nodes
        self.inputs: dict[str, Value] = {}
        self.written: dict[str, Value] = {}
        self._values: dict[tuple[int, int], Value] = {}
        self._moved: dict[tuple[int, Device], Value] = {}

    def __getitem__(self, entry: Entry) -> Value:
        return self._values[id(entry[0]), entry[1]]

    def __setitem__(self, entry: Entry, value: Value) -> None:
        self._values[id(entry[0]), entry[1]] = value

    def operand(self, operand: Operand) -> Value | None:
        if operand is None:
            return None
        return self[operand] if isinstance(operand, tuple) else constant(operand)

    def on(self, device: Device, value: Value) -> Value:
        """The value on a device: itself if it is there or anywhere, else a copy, the same for all who want it."""
        if value.is_constant or value.device is device:
            return value
        key = id(value), device
        if key not in self._moved:
            self._moved[key] = F.to_device(value, device=device)
        return self._moved[key]


def lower(
    entries: Sequence[Entry], types: Mapping[str, TensorType], training: bool, placement: Placement
) -> Lowered:
    """The values of entries and of all they need.

    types: of the variables; training: for operators that were not told. Raises what operators' rules raise.
    Operators run where placement says; what they read from elsewhere is copied.
    """
    nodes = ordered(entries)
    given = {node.name: input_value(types[node.name], node.name) for node in nodes if node.op is None}
    return _lower(nodes, given, training, placement)


def _lower(
    nodes: Sequence[SymbolNode], given: Mapping[str, Value], training: bool, placement: Placement
) -> Lowered:
    made = Lowered(nodes)
    for node in made.nodes:
        if node.op is None:
            made.inputs[node.name] = made[node, 0] = given[node.name]
        elif isinstance(node.op, SymbolGradient):
            _differentiate(made, node, node.op)
        elif isinstance(node.op, SymbolControl):
            _run(made, node, node.op, training, placement[node])
        else:
            _apply(made, node, training, placement[node])
    return made


def _run(made: Lowered, node: SymbolNode, op: SymbolControl, training: bool, device: Device) -> None:
    def run(body: Body, values: Sequence[Value]) -> list[Value]:
        here = _core.capture()  # that writes the body down
        given = dict(zip(body.inputs, map(here.lift, values), strict=True))
        inner = _lower(ordered(body.entries), given, training, Placement(body.entries, device, {}))
        return [inner[entry] for entry in body.entries]

    for k, value in enumerate(op.lowered(run, [made.on(device, made[x]) for x in node.entries])):
        made[node, k] = value


def _apply(made: Lowered, node: SymbolNode, training: bool, device: Device) -> None:
    op = node.resolved(training)
    operands = [made.operand(x) for x in node.inputs]
    if op.home() is None:
        operands = [None if v is None else made.on(device, v) for v in operands]
    result = make_node(op, operands)
    result.where = node.where
    outputs = result.outputs if (here := _core.capture()) is None else here.made(result)
    if len(result.outputs) - op.hidden != node.count:
        raise GraphError(
            f"{op.name}: makes {len(result.outputs) - op.hidden} outputs, not the {node.count} of {node.name}"
        )
    for k, value in enumerate(outputs[: node.count]):
        made[node, k] = made.on(device, value)  # which may be of numbers only, and nowhere
    for number, output in op.written(len(node.inputs)).items():
        operand = node.inputs[number]
        if isinstance(operand, tuple):  # who reads it from now on gets the new content
            new = made.on(made[operand].device, outputs[output])
            made[operand] = made.written[operand[0].name] = new


def _differentiate(made: Lowered, node: SymbolNode, op: SymbolGradient) -> None:
    values = [made[x] for x in node.entries]
    count = len(values) - len(op.names)
    ys = [y for y in values[:count] if y.dtype.is_differentiable]
    found = gradients(ys, values[count:])
    for k, (x, dx) in enumerate(zip(values[count:], found, strict=True)):
        made[node, k] = F.filled_like(x) if dx is None else dx
