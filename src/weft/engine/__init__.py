"""The dependency engine: runs any functions, in parallel where their declared reads and writes allow.

>>> from weft.engine import Engine
>>> with Engine(workers=2) as engine:
...     a, b, total = (engine.new_variable() for _ in range(3))
...     value = {}
...     engine.push(lambda run_context: value.update(a=2), mutate_vars=[a])
...     engine.push(lambda run_context: value.update(b=3), mutate_vars=[b])
...     add = lambda run_context: value.update(total=value["a"] + value["b"])
...     engine.push(add, const_vars=[a, b], mutate_vars=[total])
...     engine.wait_for_var(total)
>>> value["total"]
5
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from weft import _core
from weft._preload import register_base
from weft.base import flags, process
from weft.base.errors import EngineError, EngineErrorGroup
from weft.base.name_hints import add_hints as _add_hints

NativeFunction = _core.NativeFunction
OnComplete = _core.OnComplete
OperationRecord = _core.OperationRecord
Operator = _core.Operator
RunContext = _core.RunContext
Variable = _core.Variable

__all__ = [
    "Engine",
    "EngineError",
    "EngineErrorGroup",
    "NativeFunction",
    "OnComplete",
    "OperationRecord",
    "Operator",
    "RunContext",
    "Variable",
    "default_engine",
]

KINDS = ("threaded", "naive")


def _on_deleted() -> object:
    from weft.engine.callbacks import OnDeleted

    return OnDeleted


register_base()
_core.register(on_deleted=_on_deleted)


class Engine(_core.Engine):  # type: ignore[misc]
    """A scheduler of functions; push() them with the variables they read and mutate.

    kind: "threaded", or "naive": a function runs during push, on the pushing thread, for debugging. Both give the same
    results and errors. workers: threads of each device for functions that use one core (None: $WEFT_NUM_THREADS, else
    the cores that affinity mask and control group leave the process). io_workers: threads of each device for
    asynchronous and blocking functions.
    max_pending, max_pending_bytes: back-pressure, see push. check: see check_access (None: $WEFT_CHECK).
    schedule_seed: run one function at a time, on threads and in a legal order drawn from this seed; the same program
    with one pushing thread and the same seed repeats its order exactly. kind is then "threaded".
    Threads start when they are needed. As a context manager it stops at the end.
    Raises ValueError for a kind or number that is not accepted.

    >>> with Engine(kind="naive") as engine:
    ...     engine.push(lambda run_context: print("on", run_context.device))
    on cpu:0
    """

    def __init__(
        self,
        kind: str = "threaded",
        workers: int | None = None,
        *,
        io_workers: int = 4,
        max_pending: int = 2048,
        max_pending_bytes: int = 64 << 20,
        schedule_seed: int | None = None,
        check: bool | None = None,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"Engine: kind must be one of {', '.join(map(repr, KINDS))}, not {kind!r}")
        if schedule_seed is not None and kind != "threaded":
            raise ValueError("Engine: schedule_seed needs kind='threaded'")
        if workers is None:
            workers = flags.get("WEFT_NUM_THREADS") or _core.usable_cores()
        limits = {"workers": workers, "io_workers": io_workers, "max_pending": max_pending}
        for name, number in {**limits, "max_pending_bytes": max_pending_bytes}.items():
            if not isinstance(number, int):
                raise TypeError(f"Engine: {name} must be an int, not {type(number).__name__}")
            if number < 1 or (name.endswith("workers") and number > 1024):
                raise ValueError(
                    f"Engine: {name} must be {'in 1..1024' if 'workers' in name else 'at least 1'}, not {number}"
                )
        self._kind = kind
        super().__init__(
            kind="explore" if schedule_seed is not None else kind,
            workers=workers,
            io_workers=io_workers,
            max_pending=max_pending,
            max_pending_bytes=max_pending_bytes,
            seed=(schedule_seed or 0) % (1 << 64),
            check=flags.get("WEFT_CHECK") if check is None else check,
        )

    @property
    def kind(self) -> str:
        """ "threaded" or "naive"."""
        return self._kind

    @contextmanager
    def bulk(self, size: int) -> Iterator[None]:
        """Push what this thread pushes inside the block as operations of up to `size` functions each.

        Cheaper for many small functions. Results, versions and errors are those of separate pushes; other threads see
        the operations when they are submitted: at `size`, at the end, at waits and asynchronous pushes of this thread,
        and when device, queue or priority change. Raises ValueError if size is less than 1.

        >>> with Engine() as engine:
        ...     v, log = engine.new_variable(), []
        ...     with engine.bulk(16):
        ...         for i in range(100):
        ...             engine.push(lambda run_context, i=i: log.append(i), mutate_vars=[v])
        ...     engine.wait_for_all()
        ...     log == list(range(100)), engine.stats()["pushed"]
        (True, 7)
        """
        if not isinstance(size, int) or not 1 <= size < 1 << 31:
            raise ValueError(f"bulk: size must be an int of at least 1, not {size!r}")
        self._begin_bulk(size)
        try:
            yield
        finally:
            self._end_bulk()

    def set_bulk_size(self, size: int) -> int:
        """Let every thread push as inside of bulk(size), from now on and wherever no block says otherwise.

        1: every function is an operation, as at the beginning. Gives the size that it was. What a thread has
        collected is submitted as bulk() says, when another size comes, and when the thread ends: a thread that pushes
        and then does something else for long should wait first, or push inside of ``with engine.bulk(1)``. Raises
        ValueError if size is less than 1.

        >>> with Engine() as engine:
        ...     before = engine.set_bulk_size(16)
        ...     v = engine.new_variable()
        ...     for i in range(32):
        ...         engine.push(lambda run_context: None, mutate_vars=[v])
        ...     engine.wait_for_var(v)
        ...     before, v.version, engine.stats()["pushed"]
        (1, 32, 2)
        """
        if not isinstance(size, int) or not 1 <= size < 1 << 31:
            raise ValueError(f"set_bulk_size: size must be an int of at least 1, not {size!r}")
        before: int = self._set_bulk_size(size)
        return before

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "" if self.running else ", stopped"
        return f"Engine(kind={self.kind!r}, workers={self.workers}{state})"


_default: Engine | None = None
_default_lock = threading.Lock()


def default_engine() -> Engine:
    """The process's own engine, made at the first call.

    $WEFT_ENGINE chooses its kind, $WEFT_NUM_THREADS its workers, $WEFT_SCHEDULE_SEED explores schedules.

    >>> default_engine() is default_engine()
    True
    """
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Engine(flags.get("WEFT_ENGINE"), schedule_seed=flags.get("WEFT_SCHEDULE_SEED"))
    return _default


def _settle_before_fork() -> None:
    timeout_s = flags.get("WEFT_FORK_TIMEOUT_S")
    if not _core.settle_engines(timeout_s):
        sys.stderr.write(
            f"weft: functions of the engine still run after {timeout_s} s (WEFT_FORK_TIMEOUT_S); "
            "in the forked child their operations count as failed\n"
        )


def _renew_locks_after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()


def _shut_down_at_exit() -> None:
    timeout_s = flags.get("WEFT_EXIT_TIMEOUT_S")
    stuck, failures = _core.shut_down_engines(timeout_s)
    process.unseen_failures.extend(failures)
    for failure in failures:
        sys.stderr.write(f"weft: an operation failed, and its error was not raised anywhere: {failure}\n")
    for thread in stuck:
        sys.stderr.write(
            f"weft: {thread} still runs a function {timeout_s} s after the program's end "
            "(WEFT_EXIT_TIMEOUT_S); given up\n"
        )
    _core.end_python()  # threads that still run may not touch Python any more


os.register_at_fork(before=_settle_before_fork, after_in_child=_renew_locks_after_fork)
process.at_end(_shut_down_at_exit)

_add_hints(globals())
