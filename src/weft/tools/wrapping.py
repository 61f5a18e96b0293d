"""Wraps methods of classes for a while: what several observers do to one method at the same time.

Each adds a wrapper and takes it away again, in any order and on any thread; the method is then that of its class,
within the wrappers that are left. (An observer that puts back what it found would put back another one's wrapper.)

>>> class Door:
...     def open(self):
...         return ["open"]
>>> first = wrap(Door, "open", lambda call: lambda door: ["first", *call(door)])
>>> second = wrap(Door, "open", lambda call: lambda door: ["second", *call(door)])
>>> first()
>>> Door().open()
['second', 'open']
>>> second()
>>> Door().open()
['open']
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from weft.base import process

__all__ = ["wrap"]

Wrapper = Callable[[Any], Any]  # of a method: one that calls it

_wrapped: dict[
    tuple[type, str], tuple[Any, list[Wrapper]]
] = {}  # the class's own method, and what is around it
_lock = process.guard(threading.RLock())


def wrap(owner: type, name: str, wrapper: Wrapper) -> Callable[[], None]:
    """Put a wrapper around a method of a class; returns what takes it away. Later ones are around earlier ones."""
    with _lock:
        _, wrappers = _wrapped.setdefault((owner, name), (vars(owner)[name], []))
        wrappers.append(wrapper)
        _install(owner, name)

    def unwrap() -> None:
        with _lock:
            wrappers.remove(wrapper)
            _install(owner, name)

    return unwrap


def _install(owner: type, name: str) -> None:
    method, wrappers = _wrapped[owner, name]
    if not wrappers:
        del _wrapped[owner, name]
    for wrapper in wrappers:
        method = wrapper(method)
    setattr(owner, name, method)
