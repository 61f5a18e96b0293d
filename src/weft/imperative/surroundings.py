"""What a traced function finds outside of its arguments: variables of its closure, and globals.

The native core compares them at each call with what they were (native/bindings/traced.cpp): numbers and texts by
value, all else by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["surroundings"]


def surroundings(function: Callable[..., Any]) -> list[tuple[Any, str | None, Any]]:
    """Where each lies, and what it is: (cell, None, value) or (globals, name, value).

    >>> rate = 0.5
    >>> surroundings(lambda x: x * rate)[0][1:]
    ('rate', 0.5)
    """
    found: list[tuple[Any, str | None, Any]] = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append((cell, None, cell.cell_contents))
        except ValueError:  # not assigned so far
            continue
    names = getattr(function, "__globals__", {})
    code = getattr(function, "__code__", None)
    used = code.co_names if code else ()
    return found + [(names, name, names[name]) for name in used if name in names]
