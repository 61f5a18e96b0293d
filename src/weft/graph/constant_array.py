"""Constants of symbols: arrays that are part of a symbol, with their elements.

A ConstantArray is an operator without inputs whose attribute is the elements. It is in graphs of symbols only: when
these are lowered it becomes an input of the program, which executors bind themselves.

>>> import weft as wf
>>> a, b, c = (Elements(wf.tensor(x)) for x in ([0.0, 1.0], [0.0, 1.0], [-0.0, 1.0]))
>>> a, a == b, a == c
(f32[2], True, False)
>>> Elements.from_text(a.type, a.to_text()) == a
True
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from weft import _core
from weft.base.device import Device
from weft.base.dtype import bool_
from weft.base.exact import Key
from weft.graph.graph import Graph
from weft.graph.subgraph import Subgraph
from weft.ops.attributes import attribute_type
from weft.ops.node import Value
from weft.ops.op import Op, op
from weft.ops.types import TensorType

__all__ = ["ConstantArray", "Elements", "constants_in"]


@attribute_type
class Elements:
    """The elements that an array has now, in memory of their own. Equal ones have one shape, dtype and bits."""

    __slots__ = ("_arrays", "_key", "type")

    def __init__(self, x: Any) -> None:
        copy = _core.copy_of(x)
        _core.memory(copy)  # now: a recorder that defers computes it, one that cannot says so
        self.type = TensorType(x.shape, x.dtype)
        self._arrays: dict[Device, Any] = {x.device: copy}
        self._key: Key | None = None

    def on(self, device: Device) -> Any:
        """The array on a device. It must not be written."""
        if device not in self._arrays:
            self._arrays[device] = _core.copy_of(next(iter(self._arrays.values())), self.type.dtype, device)
        return self._arrays[device]

    def _bytes(self) -> bytes:
        return bytes(_core.memory(next(iter(self._arrays.values()))))

    @property
    def __weft_key__(self) -> Key:
        if self._key is None:
            self._key = Key((self.type.__weft_key__, self._bytes()))
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elements) and self.__weft_key__ == other.__weft_key__

    def __hash__(self) -> int:
        return hash(self.__weft_key__)

    def __repr__(self) -> str:
        return str(self.type).partition("@")[0]

    def __reduce__(self) -> Any:
        return Elements.from_text, (self.type, self.to_text())

    def to_text(self) -> str:
        """The bytes, row-major and little-endian, in base 64."""
        return base64.b64encode(self._bytes()).decode("ascii")

    @staticmethod
    def from_text(type: TensorType, text: str) -> Elements:
        """The elements that to_text was given. Raises ValueError for a text that does not hold as many."""
        data = base64.b64decode(text, validate=True)
        size_bytes = type.size * type.dtype.itemsize
        if len(data) != size_bytes:
            raise ValueError(f"{type} takes {size_bytes} bytes, the text holds {len(data)}")
        if type.dtype is bool_ and data.strip(b"\0\1"):
            raise ValueError("a bool is 0 or 1")
        return Elements(_core.tensor_from_buffer(bytearray(data), 0, type.shape, type.dtype, "cpu:0"))


@op
class ConstantArray(Op, public=False, name="constant"):
    """An array whose elements are those of the attribute."""

    elements: Elements

    def infer(self) -> TensorType:
        return self.elements.type

    def decompose(self) -> Any:
        raise NotImplementedError(f"{self.name}: {self!r} is part of symbols, and an input of their programs")


def constants_in(values: Sequence[Value]) -> list[Elements]:
    """The constants that symbols need, and functions inside of them, each once."""
    found: dict[int, Elements] = {}
    graphs = [Graph((), values)]
    for graph in graphs:  # grows as it goes
        for node in graph.nodes:
            if isinstance(node.op, ConstantArray):
                found.setdefault(id(node.op.elements), node.op.elements)
            elif node.op is not None:
                graphs += [each.graph for each in node.op.values().values() if isinstance(each, Subgraph)]
    return list(found.values())
