"""The common part of all recorders of programs.

A recorder turns a function of Python into a graph. There are two. Capture (weft.graph.capture) calls the function with
Values, so it needs no arrays, and sizes may be symbols. LaunchRecorder (weft.recording.launch_recorder) observes a
function that runs with arrays, so it can stop where the function looks at values, and go on behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from weft import _core
from weft.base.errors import GraphError
from weft.base.users_line import users_line
from weft.graph.graph import Graph
from weft.ops.node import Node, Value

__all__ = ["CannotRecord", "Recorder", "is_newer", "memory_mark"]


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


def memory_mark() -> int:
    """For is_newer: the serial of the memory that this thread has allocated last."""
    _core.empty(0)  # so that this thread has serials of its own
    return _core.last_serial()


def is_newer(serial: int, mark: int) -> bool:
    """Whether memory was allocated after memory_mark() gave the mark, by the same thread."""
    return serial > mark and serial >> 40 == mark >> 40


class Recorder:
    """A graph that is being recorded: the random numbers it draws, how it refuses.

    name: of what is recorded, for errors. random: what was drawn, in order.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.random: list[Value] = []
        self._mark = memory_mark()

    def is_made_here(self, serial: int) -> bool:
        """Whether memory was allocated during the recording, by this thread."""
        return is_newer(serial, self._mark)

    def refuse(self, fact: str) -> NoReturn:
        """Raise CannotRecord: the function does what a graph cannot contain."""
        raise CannotRecord(self.name, fact)

    def draw(self, node: Node) -> Sequence[Value]:
        """The outputs of a random node: here it draws from its device's stream, in the order of the program."""
        self.random.append(node.outputs[0])
        return node.outputs

    def unused_draws(self, outputs: Sequence[Value]) -> list[Value]:
        """The draws that these do not need: the stream of random numbers advances all the same."""
        alive = set(Graph([], outputs).nodes)
        return [v for v in self.random if v.node not in alive]
