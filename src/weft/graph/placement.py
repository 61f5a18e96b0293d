"""Partitions graphs of several devices into parts of one device each.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> g = graph_of(lambda x: F.exp(F.to_device(x + 1, "cpu:1")), [TensorType((2,), float32)])
>>> for part in partition(g):
...     print(part.device, *(node.op for node in part.graph.nodes if node.op is not None))
cpu:0 Add()
cpu:1 ToDevice(device=cpu:1)
cpu:1 Exp()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.base.device import Device
from weft.base.record import Record
from weft.graph.graph import Graph
from weft.ops.node import Node, Value, input_value

__all__ = ["Part", "copies", "devices", "partition", "spans_devices"]


class Part(Record):
    """A piece of a graph that one device runs.

    reads, makes: the values of the whole graph that its inputs and outputs stand for.
    """

    device: Device
    graph: Graph
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]


def devices(graph: Graph) -> list[Device]:
    """The devices that compute or hold an output of a graph, each once."""
    node_devices = [node.device for node in graph.nodes if node.op is not None and node.device is not None]
    output_devices = [v.type.device for v in graph.outputs if v is not None and not v.type.weak]
    return list(dict.fromkeys([*node_devices, *output_devices]))


def spans_devices(graph: Graph) -> bool:
    """Whether it takes several programs to compute a graph: several devices, or a copy among other things."""
    if len(devices(graph)) > 1:
        return True
    nodes = [node for node in graph.nodes if node.op is not None]
    return len(nodes) > 1 and any(map(crosses, nodes))


def copies(graph: Graph) -> bool:
    """Whether all that a graph does is to bring a value from another device."""
    nodes = [node for node in graph.nodes if node.op is not None]
    return len(nodes) == 1 and crosses(nodes[0])


def crosses(node: Node) -> bool:
    """Whether a node brings a value from another device: operators stay where their operands are but for one."""
    devices = {v.node.device for v in node.inputs if v is not None}
    return not devices <= {None, node.device}


def partition(graph: Graph) -> list[Part]:
    """The parts, each after those whose values it reads.

    Nodes of a device stay in their order. A part ends where a value is copied from, so that the copy need not wait for
    what comes later, and before a value that was copied meanwhile is read, so that what comes earlier need not wait.
    Copies are parts of their own. Values of no device are computed in each part that reads them.
    """
    return _Partition(graph).run()


class _Partition:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.finished: list[tuple[Device, list[Node]]] = []
        self.open: dict[Device, list[Node]] = {}
        self.began: dict[Device, int] = {}  # number of finished parts when the open one began
        self.part_of: dict[int, int] = {}  # index of the part, by id of the node
        self.copies: dict[int, list[Node]] = {}  # by id of the node that is copied from
        for node in graph.nodes:
            if crosses(node):
                self.copies.setdefault(id(_source(node)), []).append(node)

    def run(self) -> list[Part]:
        for value in self.graph.inputs:
            self.copy(value.node)
        for node in self.graph.nodes:
            if node.op is None or node.device is None or crosses(node):
                continue
            if any(self.is_late(v.node, node.device) for v in node.reads):
                self.close(node.device)
            self.began.setdefault(node.device, len(self.finished))
            self.open.setdefault(node.device, []).append(node)
            if id(node) in self.copies:
                self.close(node.device)
                self.copy(node)
        for device in list(self.open):
            self.close(device)
        return self.parts()

    def is_late(self, source: Node, device: Device) -> bool:
        """Whether a value came from another device after the open part of this one began."""
        part = self.part_of.get(id(source), -1)
        return device in self.open and part >= self.began[device]

    def close(self, device: Device) -> None:
        self.finish(device, self.open.pop(device))
        del self.began[device]

    def finish(self, device: Device, nodes: list[Node]) -> None:
        self.part_of.update((id(node), len(self.finished)) for node in nodes)
        self.finished.append((device, nodes))

    def copy(self, source: Node) -> None:
        for node in self.copies.get(id(source), ()):
            assert node.device is not None
            self.finish(node.device, [node])
            self.copy(node)

    # From lists of nodes to graphs.

    def parts(self) -> list[Part]:
        """The parts with their outputs: values that others read, outputs of the whole, and writes."""
        outputs: list[list[Value]] = [[] for _ in self.finished]
        for k, (_, nodes) in enumerate(self.finished):
            for value in self.read_by(nodes):
                maker = self.part_of.get(id(value.node))
                if maker is not None and maker != k:
                    outputs[maker].append(value)
        writes: list[dict[int, Value]] = [{} for _ in self.finished]
        for j, output in enumerate(self.graph.outputs):
            if output is None:
                continue
            target = self.graph.writes.get(j)
            k = self.maker(output)
            if k == len(outputs):
                outputs.append([])
                writes.append({})
            if target is None:
                outputs[k].append(output)
            else:
                writes[k][target] = output
        return [self.part(k, values, writes[k]) for k, values in enumerate(outputs)]

    def maker(self, value: Value) -> int:
        """The part that an output leaves, by index; if none computes it, the first of its device, else a new one."""
        part = self.part_of.get(id(value.node))
        if part is not None:
            return part
        device = value.type.device
        for k, (each, nodes) in enumerate(self.finished):
            if each is device and not (nodes and crosses(nodes[0])):
                return k
        self.finished.append((device, []))
        return len(self.finished) - 1

    def read_by(self, nodes: Iterable[Node]) -> list[Value]:
        """The values that nodes read, and those of no device that they are computed from; each once."""
        values: dict[int, Value] = {}
        waiting = [v for node in nodes for v in node.reads]
        while waiting:
            value = waiting.pop()
            if id(value) not in values:
                values[id(value)] = value
                if value.node.op is not None and value.node.device is None:
                    waiting.extend(value.node.reads)
        return list(values.values())

    def part(self, k: int, outputs: Sequence[Value], writes: dict[int, Value]) -> Part:
        device, nodes = self.finished[k]
        unique_outputs = list({id(v): v for v in outputs}.values())
        results = [*unique_outputs, *writes.values()]
        inside = {id(node) for node in nodes}
        new_values: dict[int, Value] = {}
        inputs: dict[int, tuple[Value, Value]] = {}

        def enter(value: Value) -> Value:
            """The value in the part that replaces a value of the whole."""
            if id(value) in new_values or value.is_constant:
                return new_values.get(id(value), value)
            node = value.node
            if node.op is None or (node.device is not None and id(node) not in inside):
                stand_in = input_value(value.type, node.name)
                inputs[id(value)] = value, stand_in
                new_values[id(value)] = stand_in
            else:
                copy = node.reading(enter)
                new_values.update((id(a), b) for a, b in zip(node.outputs, copy.outputs, strict=True))
            return new_values[id(value)]

        for node in nodes:  # in this order, so that nothing is deep
            for value in node.outputs:
                enter(value)
        new_outputs = [enter(v) for v in results]
        targets = [self.graph.inputs[k] for k in writes]
        for target in targets:
            enter(target)
        order = [id(old) for old, _ in inputs.values()]
        writes_into = {len(unique_outputs) + j: order.index(id(target)) for j, target in enumerate(targets)}
        stable_ids = {id(self.graph.inputs[each]) for each in self.graph.stable_inputs}
        stable_inputs = [index for index, key in enumerate(order) if key in stable_ids]
        graph = Graph([new for _, new in inputs.values()], new_outputs, writes_into, stable_inputs)
        return Part(device, graph, tuple(old for old, _ in inputs.values()), tuple(results))


def _source(node: Node) -> Node:
    source = node.inputs[0]
    assert source is not None
    return source.node
