"""Placement of symbols: the devices of their groups, and those that follow for all other nodes.

>>> import weft.functional as F, weft.symbol as sym
>>> with sym.AttrScope(device_group="second"):
...     y = F.linear(sym.var("x"), out_features=2, name="fc")
>>> found = Placement(y.values, as_device("cpu:0"), {"second": "cpu:1"})
>>> {name: str(device) for name, device in found.variables.items()}
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
        known = {node.attrs[GROUP] for node in nodes if GROUP in node.attrs}
        unknown = [name for name in self.groups if name not in known]
        if unknown:
            listed = ", ".join(sorted(known)) or "none"
            raise GraphError(f"bind: no {GROUP} {unknown[0]!r}; there are: {listed}")
        self._found: dict[int, Device] = {}
        for node in nodes:
            self._tell(node, self._own(node) or self._of_inputs(node))
        for node in nodes:
            at = self._found.get(id(node))
            for value in node.sources:
                if value.node.op is None and id(value.node) not in self._found:
                    self._tell(value.node, at)
        self.variables = {node.name: self[node] for node in nodes if node.op is None}

    def __getitem__(self, node: SymbolNode) -> Device:
        return self._found.get(id(node), self.device)

    @property
    def key(self) -> tuple[Device, tuple[tuple[str, Device], ...]]:
        """Equal for equal placements of the same symbols."""
        return self.device, tuple(sorted(self.groups.items()))

    def _tell(self, node: Node, device: Device | None) -> None:
        if device is not None:
            self._found[id(node)] = device

    def _own(self, node: SymbolNode) -> Device | None:
        home = None if node.op is None else node.op.fixed_device()
        return home or self.groups.get(node.attrs.get(GROUP, ""))

    def _of_inputs(self, node: SymbolNode) -> Device | None:
        if isinstance(node.op, SymbolGradient):  # each gradient is where its variable is
            return None
        found = (self._found.get(id(value.node)) for value in node.sources)
        return next((device for device in found if device is not None), None)
