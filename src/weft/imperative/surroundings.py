"""What a traced function finds outside of its arguments: variables of its closure, and globals.

The native core compares them at each call with what they were (native/bindings/traced.cpp): numbers and texts by
value, all else by identity. Functions found there are followed, as far as they are the user's.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

__all__ = ["surroundings"]

_READS = ("LOAD_GLOBAL", "LOAD_NAME")
_WEFT = str(Path(__file__).parents[1])

Place = tuple[Any, str | None, Any]


def surroundings(function: Callable[..., Any]) -> list[Place]:
    """Where each lies, and what it is: (cell, None, value) or (globals, name, value).

    >>> rate = 0.5
    >>> surroundings(lambda x: [rate * y for y in x])[0][1:]
    ('rate', 0.5)
    """
    found: dict[tuple[int, str | None], Place] = {}
    waiting: list[Any] = [function]
    seen: set[int] = set()
    for each in waiting:  # which grows meanwhile
        plain = _plain(each)
        if plain is None or id(plain) in seen:
            continue
        seen.add(id(plain))
        for place in _around(plain):
            found.setdefault((id(place[0]), place[1]), place)
            waiting.append(place[2])
    return list(found.values())


def _plain(thing: Any) -> FunctionType | None:
    """The function of Python's that a method, a wrapper or a traced function is; None for weft's own."""
    while (inner := vars(thing).get("__wrapped__") if hasattr(thing, "__dict__") else None) is not None:
        thing = inner
    if isinstance(thing, MethodType):
        thing = thing.__func__
    return thing if isinstance(thing, FunctionType) and not _is_own(thing) else None


def _is_own(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(_WEFT)


def _around(function: FunctionType) -> Iterator[Place]:
    for cell in function.__closure__ or ():
        try:
            yield cell, None, cell.cell_contents
        except ValueError:  # not assigned so far
            continue
    names = function.__globals__
    yield from ((names, name, names[name]) for name in _names(function.__code__) if name in names)


def _names(code: CodeType) -> Iterator[str]:
    """Of globals that are read here, or by functions and comprehensions inside."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname in _READS)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
