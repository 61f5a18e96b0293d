"""Compiles the code of programs in background threads before they run.

A traced call records, and gives results of its own; the code of the program is first needed by the next call. Threads
make it step by step, in the order of the program. A thread that runs the program makes the code of the step it has come
to, so all of them work on different steps; for code that one of them is making, the others wait (weft.expr.compiler).

Threads end when there is nothing left to do: a process that has made its code has none of them. At the end of the
process they are waited for, as no thread may be in native code then.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading

from weft.base import flags, process
from weft.base.typing import Any

__all__ = ["make_ahead", "wait"]

MOST_THREADS = 4

_lock = process.guard(threading.RLock())  # a finalizer may come back here, from a collection inside
_waiting: collections.deque[Any] = collections.deque()  # of [plan, the step that is next]
_threads: set[threading.Thread] = set()
_is_over = False


def make_ahead(plan: Any) -> None:
    """Let threads make the code of all steps of a plan of exact sizes."""
    if _is_over or flags.get("WEFT_ENGINE") == "naive":
        return
    with _lock:
        _waiting.append([plan, 0])
        missing = _thread_count() - len(_threads)
        started = [threading.Thread(target=_work, name="weft compiler", daemon=True) for _ in range(missing)]
        _threads.update(started)
    for thread in started:
        try:
            thread.start()
        except RuntimeError:  # no more threads: programs make their code when they run
            with _lock:
                _threads.discard(thread)


def wait() -> None:
    """Wait until all requested code is made; for measurements."""
    while True:
        with _lock:
            thread = next(iter(_threads), None)
        if thread is None:
            return
        thread.join()


def _thread_count() -> int:
    """All cores but that of the caller, which goes on."""
    cores = flags.get("WEFT_NUM_THREADS") or len(os.sched_getaffinity(0))
    return max(1, min(cores - 1, MOST_THREADS))


def _work() -> None:
    while True:
        with _lock:
            if not _waiting or _is_over:
                _threads.discard(threading.current_thread())
                return
            item = _waiting[0]
            plan, step = item
            item[1] += 1
        is_there = False
        with contextlib.suppress(Exception):  # raised where the program runs
            is_there = plan.bind_ahead(step)
        if not is_there:
            with _lock, contextlib.suppress(ValueError):
                _waiting.remove(item)


def _end() -> None:
    global _is_over
    _is_over = True
    wait()


def _forget() -> None:
    """In a fork's child, which has none of the threads."""
    _threads.clear()
    _waiting.clear()


process.at_end(_end)
os.register_at_fork(after_in_child=_forget)
