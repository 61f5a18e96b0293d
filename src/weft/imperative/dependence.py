"""What programs depend on besides arrays: objects with attributes, such as modules and optimizers.

Such an object has a method ``__weft_state__``, whose result equals an earlier one if nothing has changed that matters.
It calls depends_on(self) where it is used, and changed() when it changes.
"""

from __future__ import annotations

from typing import Any

from weft import _core

__all__ = ["changed", "depends_on", "state_of"]

changed = _core.note_change
_PLAIN = (int, float, bool, str, bytes, type(None))


def depends_on(thing: Any) -> None:
    """A program that is being written down on this thread, if any, is for the present state of a thing."""
    scribe = _core.get_scribe()
    if scribe is not None:
        scribe.depends_on(thing)


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


class _Same:
    """An object, equal to itself only; kept, so that nothing else can take its place."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]
