"""What a traced function finds outside of its arguments: variables of its closure, and globals.

They are compared with what they were when it was traced: numbers, texts and the like by value, all else by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Surroundings"]

_PLAIN = (int, float, bool, str, bytes, type(None))
_MISSING = object()


class Surroundings:
    """The names that a function uses from outside."""

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
        return all(a is b or (type(a) is type(b) and type(a) in _PLAIN and a == b) for a, b in zip(before, now, strict=True))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned so far
        return _MISSING
