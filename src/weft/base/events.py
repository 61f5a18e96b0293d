"""What Python itself does while a program runs: planning, compiling, tracing. Nothing is noted unless a tool listens.

>>> from weft.base import events
>>> @events.noted("plan", lambda name: name)
... def make(name):
...     return name.upper()
>>> make("a")
'A'
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext

from weft.base.typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["exchanged", "listen", "note", "noted", "span"]

# span(kind, name) gives a context manager; note(kind, text, where) records a moment; exchanged(...) of an exchange.
_listener: Any = None


def listen(listener: Any) -> Any:
    """Let an object with span, note and exchanged, as here, get all events from now on; returns the one before.

    None: nothing is recorded.
    """
    global _listener
    before, _listener = _listener, listener
    return before


_NO_SPAN = nullcontext()


def span(kind: str, name: str) -> Any:
    """A context manager around work of this kind: "plan", "optimize", "compile", "trace".

    >>> with span("compile", "softmax"):
    ...     pass
    """
    return _NO_SPAN if _listener is None else _listener.span(kind, name)


def note(kind: str, text: str, where: str = "") -> None:
    """Record an event; where: the user's line, as ``file:line``.

    >>> note("warning", "traced again")
    """
    if _listener is not None:
        _listener.note(kind, text, where)


def exchanged(
    name: str, where: str, size_bytes: int, times_ns: tuple[int, int, int, int], number: int = 0
) -> None:
    """Record an exchange with other processes that has ended.

    where: the user's line; size_bytes: of this process's part. times_ns: on the clock of time.perf_counter_ns, when it
    was requested, when this process was ready for it, when all others were, and when it ended. number: of a collective,
    the same on all ranks; 0 for other exchanges.

    >>> exchanged("all_reduce", "train.py:7", 4096, (0, 10, 20, 30), 1)
    """
    if _listener is not None:
        _listener.exchanged(name, where, size_bytes, times_ns, number)


def noted(kind: str, name_of: Callable[..., str]) -> Callable[[F], F]:
    """Decorator: each call is a span; name_of gets the call's arguments. See the module for an example."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if _listener is None:
                return function(*args, **kwargs)
            with _listener.span(kind, name_of(*args, **kwargs)):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate
