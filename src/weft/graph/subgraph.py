"""Graphs as attributes of operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.exact import Key
from weft.graph.graph import Graph
from weft.ops import registry
from weft.ops.op import Op, attribute_type
from weft.ops.sizes import Size
from weft.ops.types import TensorType

__all__ = ["Subgraph", "classes_in", "definition_slots"]


@attribute_type
class Subgraph:
    """A graph that an operator runs: a frozen value, equal to others of the same Graph.key."""

    __slots__ = ("_has_sizes", "graph")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._has_sizes: bool | None = None

    @property
    def __weft_key__(self) -> Key:
        return self.graph.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subgraph) and self.graph.key == other.graph.key

    def __hash__(self) -> int:
        return hash(self.graph.key)

    def __repr__(self) -> str:
        return f"<{' | '.join(line.strip() for line in str(self.graph).splitlines())}>"

    @property
    def types(self) -> list[TensorType]:
        """The types of the outputs."""
        return [v.type for v in self.graph.outputs if v is not None]

    @property
    def has_sizes(self) -> bool:
        """Whether some of its sizes are symbols."""
        if self._has_sizes is None:
            values = [*self.graph.inputs, *(v for node in self.graph.nodes for v in node.outputs)]
            self._has_sizes = any(isinstance(n, Size) for v in values for n in v.shape) or any(
                _has_size(node.value if node.op is None else tuple(node.op.values().values()))
                for node in self.graph.nodes
            )
        return self._has_sizes


def _has_size(value: Any) -> bool:
    """Whether an attribute has a Size in it."""
    if isinstance(value, tuple):
        return any(map(_has_size, value))
    if isinstance(value, Op):
        return _has_size(tuple(value.values().values()))
    return value.has_sizes if isinstance(value, Subgraph) else isinstance(value, Size)


def classes_in(value: Any) -> Iterator[type[Op]]:
    """The classes of the operators that a graph or an attribute has in it.

    >>> from weft.base.dtype import bool_
    >>> from weft.graph.graph import graph_of
    >>> graph = graph_of(lambda x: x + x, [TensorType((2,), bool_)])
    >>> [cls.name for cls in classes_in(graph)]
    ['add']
    """
    if isinstance(value, Op):
        yield type(value)
        for attribute in value.values().values():
            yield from classes_in(attribute)
    elif isinstance(value, Graph):
        operators = [node.op for node in value.nodes if node.op is not None]
        yield from dict.fromkeys(map(type, operators))
        for op in operators:
            if op.attributes:
                yield from classes_in(tuple(op.values().values()))
    elif isinstance(value, Subgraph):
        yield from classes_in(value.graph)
    elif isinstance(value, tuple):
        for item in value:
            yield from classes_in(item)


def definition_slots(graph: Graph, lookups: int) -> list[tuple[Any, Any, Any]]:
    """For the environment of a graph's programs: that users' operators are defined as they were.

    Nothing if the graph has none of them, and none was looked up since `lookups` was registry.lookups: vmap writes down
    what an operator decomposes to. As slots of weft.recording.captured_environment.
    """
    names = {cls.name for cls in classes_in(graph)}
    uses_them = registry.lookups != lookups or not all(map(registry.is_builtin, names))
    return [(registry, "generation", registry.generation)] if uses_them else []
