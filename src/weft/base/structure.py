"""Nested tuples, lists and dicts as flat lists of what is in them, and back.

>>> leaves, spec = flatten({"a": (1, 2), "b": [3]})
>>> leaves, spec.build([10, 20, 30])
([1, 2, 3], {'a': (10, 20), 'b': [30]})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from weft.base.exact import DEPTH, TOO_DEEP, exact
from weft.base.typing import Any

__all__ = ["DEPTH", "Structure", "flatten", "tree_leaves", "tree_map", "walked"]


class Structure:
    """How leaves are nested. Equal ones nest alike.

    tokens: of the container and all within, each before what it has: its type, its number of parts, a dict's keys; None
    for a leaf. They are a flat list since containers may be nested deeper than calls of Python can be.
    """

    __slots__ = ("tokens",)

    tokens: tuple[Any, ...]

    def __init__(
        self, kind: type | None, parts: Sequence[Structure] = (), keys: tuple[Any, ...] = ()
    ) -> None:
        below = [token for part in parts for token in part.tokens]
        self.tokens = (None if kind is None else (kind, len(parts), keys), *below)

    @classmethod
    def of_tokens(cls, tokens: Iterable[Any]) -> Structure:
        """The structure with these tokens."""
        structure = object.__new__(cls)
        structure.tokens = tuple(tokens)
        return structure

    @property
    def kind(self) -> type | None:
        """The container's type; None for a leaf."""
        return None if self.tokens[0] is None else self.tokens[0][0]

    @property
    def keys(self) -> tuple[Any, ...]:
        """A dict's keys."""
        return () if self.tokens[0] is None else self.tokens[0][2]

    @property
    def parts(self) -> list[Structure]:
        """The structures of what the container has."""
        starts, open_parts = [], 0
        for k, token in enumerate(self.tokens[1:], 1):
            if not open_parts:
                starts.append(k)
                open_parts = 1
            open_parts += -1 if token is None else token[1] - 1
        ends = [*starts[1:], len(self.tokens)][: len(starts)]
        return [Structure.of_tokens(self.tokens[a:b]) for a, b in zip(starts, ends, strict=True)]

    @property
    def builder(self) -> Callable[[Sequence[Any]], Any]:
        """What makes the structure of a list of leaves; for a flat list or tuple its type, which runs no Python.

        >>> flatten((1, 2))[1].builder([3, 4])
        (3, 4)
        """
        flat = self.kind in (tuple, list) and not any(self.tokens[1:])
        return self.kind if flat and self.kind is not None else self.build

    def count(self) -> int:
        """The number of leaves."""
        return self.tokens.count(None)

    def build(self, leaves: Iterable[Any]) -> Any:
        """The structure with these leaves; of an iterator as many as it needs."""
        own = list(islice(leaves, self.count()))
        built: list[Any] = []  # what is complete, the first part of a container on top
        for token in reversed(self.tokens):
            if token is None:
                built.append(own.pop())
                continue
            kind, count, keys = token
            parts = [built.pop() for _ in range(count)]
            if kind is dict:
                built.append(dict(zip(keys, parts, strict=True)))
            else:
                built.append(kind(*parts) if hasattr(kind, "_fields") else kind(parts))
        return built[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.__weft_key__ == other.__weft_key__

    def __hash__(self) -> int:
        return hash(self.__weft_key__)

    @property
    def __weft_key__(self) -> tuple[Any, ...]:
        """The tokens, with exact keys of dicts."""
        return tuple([t if t is None or not t[2] else (t[0], t[1], exact(t[2])) for t in self.tokens])

    def __repr__(self) -> str:
        texts: list[str] = []
        for token in reversed(self.tokens):
            if token is None:
                texts.append("*")
                continue
            kind, count, keys = token
            parts = [texts.pop() for _ in range(count)]
            if kind is dict:
                parts = [f"{key!r}: {part}" for key, part in zip(keys, parts, strict=True)]
            texts.append(f"{kind.__name__}({', '.join(parts)})")
        return texts[0]


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of nested tuples (named ones, too), lists and dicts, and their Structure.

    Raises RecursionError for containers that are more than DEPTH deep, such as one that contains itself.
    """
    leaves: list[Any] = []
    tokens: list[Any] = []
    waiting = [iter((tree,))]
    while waiting:
        for part in waiting[-1]:
            kind = type(part)
            if kind is dict:
                tokens.append((kind, len(part), tuple(part)))
                waiting.append(iter(part.values()))
            elif kind in (tuple, list) or (isinstance(part, tuple) and hasattr(kind, "_fields")):
                tokens.append((kind, len(part), ()))
                waiting.append(iter(part))
            else:
                tokens.append(None)
                leaves.append(part)
                continue
            break
        else:
            waiting.pop()
        if len(waiting) > DEPTH:
            raise RecursionError(TOO_DEEP)
    return leaves, Structure.of_tokens(tokens)


def walked(root: Any, parts_of: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """root and all that it has, each before its parts. parts_of(x): the parts of x.

    Raises RecursionError for what is more than DEPTH deep.

    >>> list(walked([1, [2]], lambda x: x if isinstance(x, list) else ()))
    [[1, [2]], 1, [2], 2]
    """
    waiting = [iter((root,))]
    while waiting:
        for each in waiting[-1]:
            yield each
            waiting.append(iter(parts_of(each)))
            break
        else:
            waiting.pop()
        if len(waiting) > DEPTH:
            raise RecursionError(TOO_DEEP)


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """f of each leaf of nested dicts, lists and tuples (named ones, too), in a new structure of the same form.

    rest: more structures of this form, whose leaves at the same places f gets, too; dicts may have their keys in
    another order. What is no dict, list or tuple is a leaf; None in the first structure is none, and stays. Raises
    TypeError or ValueError, with the path, where another structure has another form.

    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2, None]}, {"a": 10, "b": [20, 30]})
    {'a': 11, 'b': [22, None]}
    """
    leaves, structure = flatten(tree)
    columns = [_leaves_like(tree, other) for other in rest]
    rows = zip(leaves, *columns, strict=True)
    return structure.build([None if leaf is None else f(leaf, *others) for leaf, *others in rows])


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of nested dicts, lists and tuples in order: what tree_map gives to its function.

    >>> tree_leaves({"a": 1, "b": [2, (3, None)]})
    [1, 2, 3]
    """
    return [leaf for leaf in flatten(tree)[0] if leaf is not None]


def _leaves_like(tree: Any, other: Any) -> list[Any]:
    """The parts of another structure at the places of a tree's leaves."""
    leaves: list[Any] = []
    waiting = [(tree, other, "")]
    while waiting:
        mine, theirs, path = waiting.pop()
        kind = type(mine)
        is_dict = kind is dict
        if not (
            is_dict
            or kind is list
            or (isinstance(mine, tuple) and (kind is tuple or hasattr(kind, "_fields")))
        ):
            leaves.append(theirs)
            continue
        at = f" at {path}" if path else ""
        if type(theirs) is not kind:
            raise TypeError(f"tree_map: expected a {kind.__name__}{at}, got {type(theirs).__name__}")
        if is_dict and mine.keys() != theirs.keys():
            raise ValueError(f"tree_map: structures differ{at}: keys {list(mine)} and {list(theirs)}")
        if len(mine) != len(theirs):
            raise ValueError(f"tree_map: structures differ{at}: {len(mine)} and {len(theirs)} items")
        keys: Any = list(mine) if is_dict else range(len(mine))
        waiting += [(mine[k], theirs[k], f"{path}[{k!r}]") for k in reversed(keys)]
    return leaves
