"""Tracks the state that programs depend on besides arrays: objects such as modules and optimizers.

Such an object has a method ``__weft_state__``, whose result equals an earlier one if nothing has changed that matters.
It calls depends_on(self) where it is used, and changed() when it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weft import _core

__all__ = ["all_within", "changed", "containers_in", "depends_on", "happens_once", "objects_in", "state_of"]

changed = _core.note_change
depends_on = _core.depends_on  # a program that is being written down here, if any, is for its present state
_PLAIN = (int, float, bool, str, bytes, type(None))


def happens_once(fact: str) -> None:
    """What is being done to an object of Python, a program that is being written down on this thread cannot repeat."""
    recorder = _core.get_recorder()
    if recorder is not None:
        recorder.happens_once(fact)


def state_of(value: Any) -> Any:
    """A value as part of a state: plain ones by value, containers by what is in them, all else by identity.

    >>> state_of([1, {"a": 2.0}]) == state_of([1, {"a": 2.0}]), state_of(object()) == state_of(object())
    (True, False)
    """
    if type(value) in _PLAIN:
        return (type(value), value)
    if isinstance(value, list | tuple):
        return (type(value), *map(state_of, value))
    if isinstance(value, dict):
        return (dict, *((key, state_of(item)) for key, item in value.items()))
    return _Same(value)


def containers_in(value: Any) -> Iterator[Any]:
    """The lists and dicts that a value is or has in its containers."""
    if isinstance(value, list | dict):
        yield value
    if isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from containers_in(each)


def all_within(value: Any, visited: set[int] | None = None) -> Iterator[Any]:
    """The objects with ``__weft_state__`` that a value is, or has in its containers and such objects' attributes."""
    visited = set() if visited is None else visited
    if id(value) in visited:
        return
    visited.add(id(value))
    inside: Iterable[Any] = ()
    if hasattr(type(value), "__weft_state__"):
        yield value
        inside = list(getattr(value, "__dict__", {}).values())
    elif isinstance(value, list | tuple):
        inside = value
    elif isinstance(value, dict):
        inside = list(value.values())
    for each in inside:
        yield from all_within(each, visited)


def objects_in(state: Any) -> Iterator[Any]:
    """What a state compares by identity."""
    if isinstance(state, _Same):
        yield state.value
    elif isinstance(state, list | tuple):
        for each in state:
            yield from objects_in(each)


class _Same:
    """An object, equal to itself only; kept, so that nothing else can take its place."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]
