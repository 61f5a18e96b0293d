"""The common part of both kinds of workers: tickets, limits, and the errors that name a worker."""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn

from weft.data.fetch import FetchTask

__all__ = ["MAX_ATTEMPTS", "Options", "Ticket", "WorkerError"]

MAX_ATTEMPTS = 3  # workers that may end over one batch


class WorkerError(RuntimeError):
    """A worker of a loader that raised, ended or did not answer; the text names it and its batch."""

    __slots__ = ()  # so that an error can be of this class and of any other exception's


class Options:
    """Options of a loader's workers. Raises ValueError for values that are not accepted."""

    def __init__(self, workers: int, timeout_s: float | None, on_error: str) -> None:
        if operator.index(workers) < 0:
            raise ValueError(f"DataLoader: num_workers must be at least 0, got {workers}")
        if timeout_s is not None and not (timeout_s > 0 and math.isfinite(timeout_s)):
            raise ValueError(f"DataLoader: timeout_s must be greater than 0, or None, got {timeout_s}")
        if on_error not in ("raise", "restart"):
            raise ValueError(f"DataLoader: on_error must be 'raise' or 'restart', got {on_error!r}")
        self.workers, self.timeout_s, self.on_error = operator.index(workers), timeout_s, on_error


class Ticket:
    """A batch that was requested: `result` is set when `done`."""

    __slots__ = ("attempts", "cancelled", "done", "error", "lock", "result", "task")

    def __init__(self, task: FetchTask) -> None:
        self.task = task
        self.attempts = 0  # workers that have begun with it
        self.done = self.cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.lock: Any = None  # of threads: held until it is done

    def take(self) -> Any:
        """The batch, once. Raises what the worker raised."""
        result, error = self.result, self.error
        self.result = self.error = None
        if error is not None:
            raise_shared(error)
        return result


def raise_shared(error: BaseException) -> NoReturn:
    """Raise without keeping this frame's locals alive in the error's traceback."""
    try:
        raise error
    finally:
        del error
