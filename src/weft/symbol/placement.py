"""Where symbols run: the devices of their groups, and what follows for everything else.

>>> import weft.functional as F, weft.symbol as sym
>>> with sym.AttrScope(device_group="second"):
...     y = F.linear(sym.var("x"), out_features=2, name="fc")
>>> found = Placement(y.entries, as_device("cpu:0"), {"second": "cpu:1"})
>>> {name: str(device) for name, device in found.variables.items()}
{'x': 'cpu:1', 'fc_weight': 'cpu:1', 'fc_bias': 'cpu:1'}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.device import Device, as_device
from weft.base.errors import GraphError
from weft.symbol.gradient import SymbolGradient
from weft.symbol.node import Entry, SymbolNode, ordered

__all__ = ["GROUP", "Placement"]

GROUP = "device_group"  # the attribute


class Placement:
    """The device of each node of some symbols.

    A node of a group that has a device is there. An operator of none is where its first input is of which that is
    known, a variable where its first reader is; what is still open is on `device`. groups: device by name; symbols'
    other groups mean nothing.
    Raises GraphError for groups that no node is in, DeviceError.
    """

    def __init__(self, entries: Sequence[Entry], device: Device, groups: Mapping[str, Device | str]) -> None:
        self.device = device
        self.groups = {name: as_device(value) for name, value in groups.items()}
        nodes = ordered(entries)
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
            for source, _ in node.entries:
                if source.op is None and id(source) not in self._found:
                    self._tell(source, at)
        self.variables = {node.name: self[node] for node in nodes if node.op is None}

    def __getitem__(self, node: SymbolNode) -> Device:
        return self._found.get(id(node), self.device)

    @property
    def key(self) -> tuple[Device, tuple[tuple[str, Device], ...]]:
        """Equal for equal placements of the same symbols."""
        return self.device, tuple(sorted(self.groups.items()))

    def _tell(self, node: SymbolNode, device: Device | None) -> None:
        if device is not None:
            self._found[id(node)] = device

    def _own(self, node: SymbolNode) -> Device | None:
        home = None if node.op is None else node.op.home()
        return home or self.groups.get(node.attrs.get(GROUP, ""))

    def _of_inputs(self, node: SymbolNode) -> Device | None:
        if isinstance(node.op, SymbolGradient):  # each gradient is where its variable is
            return None
        found = (self._found.get(id(source)) for source, _ in node.entries)
        return next((device for device in found if device is not None), None)
