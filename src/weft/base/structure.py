"""Nested tuples, lists and dicts as flat lists of what is in them, and back.

>>> leaves, spec = flatten({"a": (1, 2), "b": [3]})
>>> leaves, spec.build([10, 20, 30])
([1, 2, 3], {'a': (10, 20), 'b': [30]})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from weft.base.typing import Any

__all__ = ["Structure", "flatten"]


class Structure:
    """How leaves are nested. kind: the container's type, None for a leaf; keys: a dict's. Equal ones nest alike."""

    __slots__ = ("keys", "kind", "parts")

    def __init__(
        self, kind: type | None, parts: tuple[Structure, ...] = (), keys: tuple[Any, ...] = ()
    ) -> None:
        self.kind, self.parts, self.keys = kind, parts, keys

    @property
    def builder(self) -> Callable[[Sequence[Any]], Any]:
        """What makes the structure of a list of leaves; for a flat list or tuple its type, which runs no Python.

        >>> flatten((1, 2))[1].builder([3, 4])
        (3, 4)
        """
        flat = self.kind in (tuple, list) and all(part.kind is None for part in self.parts)
        return self.kind if flat and self.kind is not None else self.build

    def count(self) -> int:
        """The number of leaves."""
        return 1 if self.kind is None else sum(part.count() for part in self.parts)

    def build(self, leaves: Iterable[Any]) -> Any:
        """The structure with these leaves; of an iterator as many as it needs."""
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        kind: Any = self.kind
        items = [part._build(leaves) for part in self.parts]
        if kind is dict:
            return dict(zip(self.keys, items, strict=True))
        return kind(*items) if hasattr(kind, "_fields") else kind(items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and (self.kind, self.parts, self.keys) == (
            other.kind,
            other.parts,
            other.keys,
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.parts, self.keys))

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        parts = ", ".join(map(repr, self.parts))
        if self.kind is dict:
            parts = ", ".join(f"{key!r}: {part!r}" for key, part in zip(self.keys, self.parts, strict=True))
        return f"{self.kind.__name__}({parts})"


_LEAF = Structure(None)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of nested tuples (named ones, too), lists and dicts, and their Structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    if kind is dict:
        return Structure(kind, tuple(_flatten(value, leaves) for value in tree.values()), tuple(tree))
    if kind in (tuple, list) or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return Structure(kind, tuple(_flatten(value, leaves) for value in tree))
    leaves.append(tree)
    return _LEAF
