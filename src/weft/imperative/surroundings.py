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

<<<<<<< HEAD
    def __init__(self, function: Callable[..., Any]) -> None:
        code = getattr(function, "__code__", None)
        self._cells: tuple[Any, ...] = getattr(function, "__closure__", None) or ()
        self._globals: dict[str, Any] = getattr(function, "__globals__", {})
        self._names = tuple(n for n in (code.co_names if code else ()) if n in self._globals)

    def now(self) -> list[Any]:
        """What they are."""
        return [*map(_content, self._cells), *(self._globals.get(name, _MISSING) for name in self._names)]

    @staticmethod
    def same(before: list[Any], now: list[Any]) -> bool:
        """Whether two results of now() mean the same."""
        return all(
            a is b or (type(a) is type(b) and type(a) in _PLAIN and a == b)
            for a, b in zip(before, now, strict=True)
        )


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned so far
        return _MISSING
=======
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
>>>>>>> 3c3b2cde31edd9b9b97f3bb6e839bb8668fbb856
