"""Tracks the state that programs depend on besides arrays: objects such as modules and optimizers.

Such an object has a method ``__weft_state__``, whose result equals an earlier one if nothing has changed that matters.
It calls depends_on(self) where it is used, and changed() when it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.base.exact import Same, exact

__all__ = ["all_within", "changed", "containers_in", "depends_on", "happens_once", "objects_in", "state_of"]

changed = _core.note_change
depends_on = _core.depends_on  # a program that is being written down here, if any, is for its present state


def happens_once(fact: str) -> None:
    """What is being done to an object of Python, a program that is being written down on this thread cannot repeat."""
    recorder = _core.get_recorder()
    if recorder is not None:
        recorder.happens_once(fact)


def state_of(value: Any) -> Any:
    """A value as part of a state, exactly: plain ones by value, containers by what is in them, all else by identity.

    >>> state_of([1, {"a": 2.0}]) == state_of([1, {"a": 2.0}]), state_of(object()) == state_of(object())
    (True, False)
    >>> state_of({1: 0.0}) == state_of({True: 0.0}), state_of(0.0) == state_of(-0.0)
    (False, False)
    """
    return exact(value, Same)


def containers_in(value: Any) -> Iterator[Any]:
    """The lists and dicts that a value is or has in its containers."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list | dict):
            yield each
        waiting += reversed(_items_of(each))


def all_within(value: Any, visited: set[int] | None = None) -> Iterator[Any]:
    """The objects with ``__weft_state__`` that a value is, or has in its containers and such objects' attributes."""
    visited = set() if visited is None else visited
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if id(each) in visited:
            continue
        visited.add(id(each))
        if hasattr(type(each), "__weft_state__"):
            yield each
            waiting += reversed(getattr(each, "__dict__", {}).values())
        else:
            waiting += reversed(_items_of(each))


def _items_of(value: Any) -> Sequence[Any]:
    """What a container has; not a recursion over it, since containers may be nested deeper than calls can be."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list | tuple) else ()


def objects_in(state: Any) -> Iterator[Any]:
    """What a state compares by identity."""
    waiting = [state]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple | frozenset):
            waiting += reversed([*each])
        elif isinstance(each, Same):
            yield each.value
