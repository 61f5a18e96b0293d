"""What every recorder of programs says when a program does what no graph can hold."""

from __future__ import annotations

from typing import Any

from weft.base.errors import GraphError
from weft.base.users_line import users_line

__all__ = ["CannotRecord"]


class CannotRecord(GraphError, NotImplementedError):
    """A function does what the graph that is made of it cannot hold.

    name: what is recorded; fact: what it does; where: the user's line, by default the one that runs; hint: what to do.

    >>> raise CannotRecord("cond", "an array is read on the host", "model.py:3")
    Traceback (most recent call last):
        ...
    weft.graph.recording.CannotRecord: cond: cannot be recorded: an array is read on the host
      at model.py:3
    """

    def __init__(self, name: str, fact: str, where: str = "", hint: str = "") -> None:
        self.name, self.fact, self.where, self.hint = name, fact, where or users_line(), hint
        advice = f"\n  hint: {hint}" if hint else ""
        super().__init__(f"{name}: cannot be recorded: {fact}\n  at {self.where}{advice}")

    def __reduce__(self) -> Any:
        return CannotRecord, (self.name, self.fact, self.where, self.hint)
