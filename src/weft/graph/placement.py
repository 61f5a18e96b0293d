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
    """Those that compute or hold something that is wanted of a graph, each once."""
    placed = [node.device for node in graph.nodes if node.op is not None and node.device is not None]
    given = [v.type.device for v in graph.outputs if v is not None and not v.type.weak]
    return list(dict.fromkeys([*placed, *given]))


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
    return any(v is not None and v.node.device not in (None, node.device) for v in node.inputs)


def partition(graph: Graph) -> list[Part]:
    """The parts, each after those whose values it reads.

    Nodes of a device stay in their order. A part ends where a value is copied from, so that the copy need not wait for
    what comes later, and before a value that was copied meanwhile is read, so that what comes earlier need not wait.
    Copies are parts of their own. What no device is known of is computed in each part that reads it.
    """
    return _Partition(graph).run()


class _Partition:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.done: list[tuple[Device, list[Node]]] = []
        self.open: dict[Device, list[Node]] = {}
        self.began: dict[Device, int] = {}  # how many parts were done when the open one began
        self.made_by: dict[int, int] = {}  # number of the part, by id of the node
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
            self.began.setdefault(node.device, len(self.done))
            self.open.setdefault(node.device, []).append(node)
            if id(node) in self.copies:
                self.close(node.device)
                self.copy(node)
        for device in list(self.open):
            self.close(device)
        return self.parts()

    def is_late(self, source: Node, device: Device) -> bool:
        """Whether a value came from another device after the open part of this one began."""
        made = self.made_by.get(id(source), -1)
        return device in self.open and made >= self.began[device]

    def close(self, device: Device) -> None:
        self.finish(device, self.open.pop(device))
        del self.began[device]

    def finish(self, device: Device, nodes: list[Node]) -> None:
        self.made_by.update((id(node), len(self.done)) for node in nodes)
        self.done.append((device, nodes))

    def copy(self, source: Node) -> None:
        for node in self.copies.get(id(source), ()):
            assert node.device is not None
            self.finish(node.device, [node])
            self.copy(node)

    # From lists of nodes to graphs.

    def parts(self) -> list[Part]:
        """The parts with what leaves each: what others read, outputs, and what is written."""
        wanted: list[list[Value]] = [[] for _ in self.done]
        for k, (_, nodes) in enumerate(self.done):
            for value in self.read_by(nodes):
                made = self.made_by.get(id(value.node))
                if made is not None and made != k:
                    wanted[made].append(value)
        writes: list[dict[int, Value]] = [{} for _ in self.done]
        for j, output in enumerate(self.graph.outputs):
            if output is None:
                continue
            target = self.graph.writes.get(j)
            k = self.maker(output)
            if k == len(wanted):
                wanted.append([])
                writes.append({})
            if target is None:
                wanted[k].append(output)
            else:
                writes[k][target] = output
        return [self.part(k, values, writes[k]) for k, values in enumerate(wanted)]

    def maker(self, value: Value) -> int:
        """The part that an output leaves; for what none makes, the first one of its device, else one more."""
        made = self.made_by.get(id(value.node))
        if made is not None:
            return made
        device = value.type.device
        for k, (each, nodes) in enumerate(self.done):
            if each is device and not (nodes and crosses(nodes[0])):
                return k
        self.done.append((device, []))
        return len(self.done) - 1

    def read_by(self, nodes: Iterable[Node]) -> list[Value]:
        """What nodes read, and what that is computed from as far as it belongs to no device; each once."""
        found: dict[int, Value] = {}
        waiting = [v for node in nodes for v in node.reads]
        while waiting:
            value = waiting.pop()
            if id(value) not in found:
                found[id(value)] = value
                if value.node.op is not None and value.node.device is None:
                    waiting.extend(value.node.reads)
        return list(found.values())

    def part(self, k: int, wanted: Sequence[Value], writes: dict[int, Value]) -> Part:
        device, nodes = self.done[k]
        made = list({id(v): v for v in wanted}.values())
        results = [*made, *writes.values()]
        inside = {id(node) for node in nodes}
        known: dict[int, Value] = {}
        inputs: dict[int, tuple[Value, Value]] = {}

        def enter(value: Value) -> Value:
            """The part's own value in place of a value of the whole."""
            if id(value) in known or value.is_constant:
                return known.get(id(value), value)
            node = value.node
            if node.op is None or (node.device is not None and id(node) not in inside):
                stand_in = input_value(value.type, node.name)
                inputs[id(value)] = value, stand_in
                known[id(value)] = stand_in
            else:
                copied = Node(
                    node.op,
                    [None if v is None else enter(v) for v in node.inputs],
                    [v.type for v in node.outputs],
                    {name: enter(v) for name, v in node.runtime.items()},
                    like=node,
                )
                known.update((id(a), b) for a, b in zip(node.outputs, copied.outputs, strict=True))
            return known[id(value)]

        for node in nodes:  # in this order, so that nothing is deep
            for value in node.outputs:
                enter(value)
        outputs = [enter(v) for v in results]
        targets = [self.graph.inputs[into] for into in writes]
        for target in targets:
            enter(target)
        order = [id(old) for old, _ in inputs.values()]
        into = {len(made) + j: order.index(id(target)) for j, target in enumerate(targets)}
        lasts = {id(self.graph.inputs[each]) for each in self.graph.stable_inputs}
        stable_inputs = [number for number, key in enumerate(order) if key in lasts]
        graph = Graph([new for _, new in inputs.values()], outputs, into, stable_inputs)
        return Part(device, graph, tuple(old for old, _ in inputs.values()), tuple(results))


def _source(node: Node) -> Node:
    source = node.inputs[0]
    assert source is not None
    return source.node
