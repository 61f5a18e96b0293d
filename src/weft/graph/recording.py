"""What every recorder of programs says when a program does what no graph can hold, and which line of it that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from weft.base.errors import GraphError

__all__ = ["CannotRecord", "is_users", "users_line"]

_WEFT = str(Path(__file__).parents[1])


class CannotRecord(GraphError, NotImplementedError):
    """A function does what the graph that is made of it cannot hold.

    name: what is recorded; fact: what it does; where: the user's line, by default the one that runs.

    >>> raise CannotRecord("cond", "an array is read on the host", "model.py:3")
    Traceback (most recent call last):
        ...
    weft.graph.recording.CannotRecord: cond: cannot be recorded: an array is read on the host
      at model.py:3
    """

    def __init__(self, name: str, fact: str, where: str = "") -> None:
        self.name, self.fact, self.where = name, fact, where or users_line()
        super().__init__(f"{name}: cannot be recorded: {fact}\n  at {self.where}")

    def __reduce__(self) -> Any:
        return CannotRecord, (self.name, self.fact, self.where)


def is_users(file: str) -> bool:
    """Whether code of this file is the user's, not weft's."""
    return not file.startswith(_WEFT)


def users_line() -> str:
    """``file:line`` of the innermost frame outside of weft."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
