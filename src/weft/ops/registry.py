"""Finds operators by name. Their modules are imported when the first of their operators is looked up.

>>> get("relu")
<class 'weft.ops.activation.Relu'>
>>> "relu" in names()
True
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable

from weft.base import process
from weft.base.typing import Any

__all__ = ["cached", "find", "function", "get", "is_builtin", "listen", "names", "public_names", "register"]

_classes: dict[str, type[Any]] = {}
_functions: dict[str, Any] = {}
_listeners: list[Callable[[type[Any]], None]] = []
_caches: list[Callable[[], None]] = []
_lock = process.guard(threading.RLock())


def _index() -> dict[str, str]:
    from weft.ops.index import MODULE_OF

    return MODULE_OF


def _elsewhere() -> dict[str, str]:
    from weft.ops.index import ELSEWHERE

    return ELSEWHERE


def names() -> list[str]:
    """The names of all operators, sorted; imports none of them.

    >>> names() == sorted(names())
    True
    """
    return sorted({*_index(), *_classes})


def public_names() -> list[str]:
    """The names of those that users see; imports none of them.

    >>> "pointwise_gradient" in public_names()
    False
    """
    from weft.ops.index import INTERNAL

    internal = INTERNAL.union(name for name, cls in _classes.items() if not cls.public)
    return [name for name in names() if name not in internal]


def get(name: str) -> type[Any]:
    """The operator's class. Raises AttributeError if there is none of that name.

    >>> get("no_such_operator")
    Traceback (most recent call last):
        ...
    AttributeError: no operator 'no_such_operator'; weft.ops.list() has all names
    """
    cls = find(name)
    if cls is None:
        raise AttributeError(f"no operator {name!r}; weft.ops.list() has all names")
    return cls


def find(name: str) -> type[Any] | None:
    """The operator's class, None if there is none of that name.

    >>> find("no_such_operator") is None
    True
    """
    cls = _classes.get(name)
    if cls is None and (module := _index().get(name) or _elsewhere().get(name)) is not None:
        importlib.import_module(module)
        cls = _classes[name]
    return cls


def register(cls: type[Any]) -> None:
    """Make a class known under its name; done by the decorator op.

    A class made again in the same module takes the place of the earlier one, as when a cell of a notebook is run again.
    Raises TypeError if another module has an operator of that name.
    """
    with _lock:
        check_name(cls)
        again = cls.name in _classes
        _classes[cls.name] = cls
        _functions.pop(cls.name, None)
    if again:
        for clear in _caches:
            clear()
    for listener in _listeners:
        listener(cls)


def check_name(cls: type[Any]) -> None:
    """Raise TypeError if another module has an operator of the class's name."""
    owner = _index().get(cls.name) or getattr(_classes.get(cls.name), "__module__", cls.__module__)
    if owner != cls.__module__:
        raise TypeError(f"operator {cls.name!r}: {owner} has one of that name")


def cached(maxsize: int) -> Callable[[Callable[..., Any]], Any]:
    """functools.lru_cache for functions of operators; emptied when one is made again, so that the earlier one ends.

    >>> cached(8)(len)(())
    0
    """

    def decorate(function: Callable[..., Any]) -> Any:
        cached_function = functools.lru_cache(maxsize)(function)
        _caches.append(cached_function.cache_clear)
        return cached_function

    return decorate


def listen(listener: Callable[[type[Any]], None]) -> None:
    """Call this with every operator of users, present and future; adds methods to arrays."""
    with _lock:
        registered = [cls for name, cls in _classes.items() if not is_builtin(name)]
        _listeners.append(lambda cls: None if is_builtin(cls.name) else listener(cls))
    for cls in registered:
        listener(cls)


def is_builtin(name: str) -> bool:
    """Whether the package itself defines it; others may be made again, so what stands for them is not kept.

    >>> is_builtin("relu"), is_builtin("mine")
    (True, False)
    """
    return name in _index()


def function(name: str) -> Any:
    """The function of an operator: what weft.functional, methods and rules call. One object for each operator.

    Raises AttributeError if there is none of that name.
    """
    operator_function = _functions.get(name)
    if operator_function is None:
        cls = get(name)
        operator_function = _functions.setdefault(name, cls.make_function())
    return operator_function
