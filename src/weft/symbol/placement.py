"""Placement of symbols: the devices of their groups, and those that follow for all other nodes.

>>> import weft.functional as F, weft.symbol as sym
>>> with sym.AttrScope(device_group="second"):
...     y = F.linear(sym.var("x"), out_features=2, name="fc")
>>> placement = Placement(y.values, as_device("cpu:0"), {"second": "cpu:1"})
>>> {name: str(device) for name, device in placement.variables.items()}
{'x': 'cpu:1', 'fc_weight': 'cpu:1', 'fc_bias': 'cpu:1'}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.device import Device, as_device
from weft.base.errors import GraphError
from weft.graph.symbols import SymbolGradient, SymbolNode, nodes_of
from weft.ops.node import Node, Value

__all__ = ["GROUP", "Placement"]

GROUP = "device_group"  # the attribute


class Placement:
    """The device of each node of some symbols.

    A node of a group that has a device is there. An operator of none is where its first input is of which that is
    known, a variable where its first reader is; what is still open is on `device`. groups: device by name; symbols'
    other groups mean nothing.
    Raises GraphError for groups that no node is in, DeviceError.
    """

    def __init__(self, values: Sequence[Value], device: Device, groups: Mapping[str, Device | str]) -> None:
        self.device = device
        self.groups = {name: as_device(value) for name, value in groups.items()}
        nodes = nodes_of(values)
        used_groups = {node.attrs[GROUP] for node in nodes if GROUP in node.attrs}
        unknown = [name for name in self.groups if name not in used_groups]
        if unknown:
            listed = ", ".join(sorted(used_groups)) or "none"
            raise GraphError(f"bind: no {GROUP} {unknown[0]!r}; there are: {listed}")
        self._devices: dict[int, Device] = {}
        for node in nodes:
            self._place(node, self._declared(node) or self._of_inputs(node))
        for node in nodes:
            for value in node.sources:
                if value.node.op is None and id(value.node) not in self._devices:
                    self._place(value.node, self._devices.get(id(node)))
        self.variables = {node.name: self[node] for node in nodes if node.op is None}

    def __getitem__(self, node: SymbolNode) -> Device:
        return self._devices.get(id(node), self.device)

    @property
    def key(self) -> tuple[Device, tuple[tuple[str, Device], ...]]:
        """Equal for equal placements of the same symbols."""
        return self.device, tuple(sorted(self.groups.items()))

    def _place(self, node: Node, device: Device | None) -> None:
        if device is not None:
            self._devices[id(node)] = device

    def _declared(self, node: SymbolNode) -> Device | None:
        fixed_device = None if node.op is None else node.op.fixed_device()
        return fixed_device or self.groups.get(node.attrs.get(GROUP, ""))

    def _of_inputs(self, node: SymbolNode) -> Device | None:
        if isinstance(node.op, SymbolGradient):  # each gradient is where its variable is
            return None
        devices = (self._devices.get(id(value.node)) for value in node.sources)
        return next((device for device in devices if device is not None), None)
