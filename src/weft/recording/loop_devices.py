"""Brings what loops and branches take and give to one device: that of their first array.

A kernel of control flow keeps states and stacks where it runs. Its bodies may use other devices: what they take from
another one, or give there, is copied on the way, outside to the loop's device, inside to where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.device import Device
from weft.graph.graph import Graph
from weft.graph.instantiate import instantiate
from weft.graph.subgraph import Subgraph
from weft.ops import functions as F
from weft.ops.node import Value, input_value, value_of

__all__ = ["at_home"]


def at_home(op: Any, operands: Sequence[Any]) -> tuple[Any, list[Any], list[Device | None]]:
    """The operator of control flow and its operands on one device; for each result where it belongs, None: it is there.

    Where all is on one device, they are as they were.
    """
    bodies = op.bodies()
    first = len(operands) - len(bodies[-1].graph.inputs)
    ends = [[v.node.device for v in body.graph.outputs if v is not None] for body in bodies]
    places = ends[-1]
    near = [
        *map(_device, operands[first:]),
        *(p for each in ends for p in each),
        *map(_device, operands[:first]),
    ]
    home = next((device for device in near if device is not None), None)
    if home is None or all(device in (None, home) for device in near):
        return op, [*operands], [None] * len(places)
    attributes = {
        name: Subgraph(_moved(value.graph, home)) if isinstance(value, Subgraph) else value
        for name, value in op.values().items()
    }
    moved = [x if _device(x) in (None, home) else F.to_device(x, device=home) for x in operands]
    return type(op)(**attributes), moved, [None if p in (None, home) else p for p in places]


def _device(x: Any) -> Device | None:
    """Where an operand is; None: it has no device, as a number."""
    x = value_of(x)
    return x.node.device if isinstance(x, Value) else x.device


def _moved(graph: Graph, home: Device) -> Graph:
    """The graph that takes and gives everything on one device."""
    inputs = [
        v if v.node.device in (None, home) else input_value(v.type.on(home), v.node.name)
        for v in graph.inputs
    ]
    brought = [
        new if new is old else F.to_device(new, device=old.node.device)
        for old, new in zip(graph.inputs, inputs, strict=True)
    ]
    outputs = [
        v if v is None or v.node.device in (None, home) else F.to_device(v, device=home)
        for v in instantiate(graph, brought)
    ]
    return Graph(inputs, outputs)
