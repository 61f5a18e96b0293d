"""Finds operators by name. Their modules are imported when the first of their operators is looked up.

>>> get("relu")
<class 'weft.ops.families.activation.Relu'>
>>> "relu" in names()
True
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import threading
from collections.abc import Callable

from weft import _core
from weft.base import process
from weft.base.typing import Any

__all__ = [
    "cached",
    "clear_when_made_again",
    "find",
    "function",
    "function_of",
    "get",
    "is_builtin",
    "listen",
    "names",
    "public_names",
    "register",
]

_classes: dict[str, type[Any]] = {}
_found: dict[str, type[Any]] = {}  # those of them whose modules are imported to the end
_functions: dict[str, Any] = {}
_listeners: list[Callable[[type[Any]], None]] = []
_caches: list[Callable[[], None]] = []
_users: set[str] = set()  # names of users' operators
_looked_up: set[str] = set()  # those that were looked up since they were registered last
lookups = 0  # how often any was
generation = 0  # how often a user's operator was made again whose name had been looked up
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

    internal = INTERNAL.union(name for name, cls in list(_classes.items()) if not cls.public)
    return [name for name in names() if name not in internal]


def public_names_of(module: str) -> frozenset[str]:
    """The names of a module's operators that users see; does not import it.

    >>> "fft" in public_names_of("weft.ops.families.fourier")
    True
    """
    from weft.ops.index import INTERNAL, MODULE_OF

    return frozenset(name for name, defined in MODULE_OF.items() if defined == module) - INTERNAL


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
    if name in _users:
        _note_lookup(name)
    return cls


def find(name: str) -> type[Any] | None:
    """The operator's class, None if there is none of that name.

    >>> find("no_such_operator") is None
    True
    """
    cls = _found.get(name)
    if cls is None:
        if (module := _index().get(name) or _elsewhere().get(name)) is not None:
            importlib.import_module(module)  # waits where another thread has come as far as the class
        with _lock:
            cls = _classes.get(name)
            if cls is not None:
                _found[name] = cls
    return cls


def register(cls: type[Any]) -> None:
    """Make a class known under its name; done by the decorator op.

    A class made again in the same module takes the place of the earlier one, as when a cell of a notebook is run again.
    What was planned with the earlier one is not used again, if it was found by its name: a rule of another operator,
    or a function that was traced, may have called ``F.name``. Programs compare `generation`, tables are emptied.
    Raises TypeError if another module has an operator of that name.
    """
    global generation
    with _lock:
        check_name(cls)
        again = cls.name in _classes
        was_found = cls.name in _looked_up
        _looked_up.discard(cls.name)
        if not is_builtin(cls.name):
            _users.add(cls.name)
        _classes[cls.name] = cls
        _found.pop(cls.name, None)
        _functions.pop(cls.name, None)
        generation += again and was_found
    if again:
        empty_caches()
    if again and was_found:
        _core.forget_users_plans()
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
        clear_when_made_again(cached_function.cache_clear)
        return cached_function

    return decorate


def clear_when_made_again(clear: Callable[[], None]) -> None:
    """Call this when an operator is made again, so that a table keeps nothing of the earlier one."""
    _caches.append(clear)


def empty_caches() -> None:
    """An operator is made again, or has another kernel: what was found for it holds no more."""
    for clear in _caches:
        clear()


def listen(listener: Callable[[type[Any]], None]) -> None:
    """Call this with every operator of users, present and future; adds methods to arrays."""
    with _lock:
        registered = [cls for name, cls in list(_classes.items()) if not is_builtin(name)]
        _listeners.append(lambda cls: None if is_builtin(cls.name) else listener(cls))
    for cls in registered:
        listener(cls)


def is_builtin(name: str) -> bool:
    """Whether the package itself defines it; others may be made again, so what stands for them is not kept.

    >>> is_builtin("relu"), is_builtin("mine")
    (True, False)
    """
    return name in _index() or name in _elsewhere()


def function(name: str) -> Any:
    """The function of an operator: what weft.functional, methods and rules call. One object for each operator.

    Raises AttributeError if there is none of that name.
    """
    operator_function = _functions.get(name)
    if operator_function is None:
        operator_function = function_of(get(name))
    elif name in _users:
        _note_lookup(name)
    return operator_function


def _note_lookup(name: str) -> None:
    global lookups
    _looked_up.add(name)
    lookups += 1


def function_of(cls: type[Any]) -> Any:
    """The function of a registered class, for what stands for this class and not for its name."""
    return _functions.get(cls.name) or _functions.setdefault(cls.name, cls.make_function())


def _reduced(builtin: Any) -> Any:
    """How a function of C is pickled: that of an operator by the operator's name, others as Python does it."""
    name = builtin.__name__
    return (function, (name,)) if _functions.get(name) is builtin else builtin.__reduce__()


copyreg.pickle(
    type(len), _reduced
)  # of this type the functions of operators are, too; its own way fails for them
