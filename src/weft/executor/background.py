"""Code of programs made before they run, beside what the caller does meanwhile.

A traced call records, and then runs the program, which makes the code of each step that it comes to. Threads make the
code of the steps from the last one to the first, so that the two meet once. In the order of the program both would come
to the same step again and again, and one would wait there for the other (weft.expr.compiler).

Threads end when there is nothing left to do: a process that has made its code has none of them. At the end of the
process they are waited for, as no thread may be in native code then.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Iterator

from weft.base import flags, process
from weft.base.typing import Any

__all__ = ["make_ahead", "wait"]

MOST_THREADS = 4

_lock = process.guard(threading.RLock())  # a finalizer may come back here, from a collection inside
# Plans, and the indices of their steps that no thread has been given yet.
_waiting: collections.deque[tuple[Any, Iterator[int]]] = collections.deque()
_threads: set[threading.Thread] = set()
_is_over = False


def make_ahead(plan: Any) -> None:
    """Let threads make the code of all steps of a plan of exact sizes."""
    if _is_over or flags.get("WEFT_ENGINE") == "naive":
        return
    steps = reversed(range(len(plan.info.work)))
    with _lock:
        _waiting.append((plan, steps))
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
    """Wait until all code that was asked for is made; for measurements."""
    while True:
        with _lock:
            thread = next(iter(_threads), None)
        if thread is None:
            return
        thread.join()


def _thread_count() -> int:
    """All cores but that of the caller, who goes on."""
    cores = flags.get("WEFT_NUM_THREADS") or len(os.sched_getaffinity(0))
    return max(1, min(cores - 1, MOST_THREADS))


def _work() -> None:
    while True:
        with _lock:
            next_step = _next_step()
            if next_step is None:
                _threads.discard(threading.current_thread())
                return
        plan, step = next_step
        with contextlib.suppress(Exception):  # raised where the program runs
            plan.bind_ahead(step)


def _next_step() -> tuple[Any, int] | None:
    """A plan and the index of a step of it that no thread has been given yet; None if there is nothing left to do."""
    while _waiting and not _is_over:
        plan, steps = _waiting[0]
        step = next(steps, None)
        if step is not None:
            return plan, step
        _waiting.popleft()
    return None


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
