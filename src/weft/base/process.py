"""What weft does when the process forks or ends; in force from ``import weft`` on.

Both have to be registered before anything of the program's: functions registered with atexit run in reverse order, and
a program that registers one between ``import weft`` and its first operation expects operations to work in it.

At a fork only the forking thread goes on in the child. A module that another thread is importing would stay half
imported there, its lock held for ever, and much of weft is imported at its first use. So a fork waits until no module
of weft is being imported, and holds back new imports until it is over.
"""

from __future__ import annotations

import _imp
import atexit
import contextlib
import importlib
import os
import sys
import threading
import time
from _weakrefset import WeakSet  # weakref itself takes a millisecond
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["at_end", "fail_at_end", "guard", "lock_of", "unseen_failures"]

unseen_failures: list[str] = []  # of operations, which the engine has written to stderr at the end
_ends: list[Callable[[], None]] = []
_last: list[Callable[[], bool]] = []
_guarded: list[Any] = []
_locked: WeakSet[Any] = WeakSet()
_held_locks: list[Any] = []  # of these, while the process forks
_TRIES = 10_000  # of a millisecond; a thread that forks inside of a guarded section can never have its lock


def at_end(function: Callable[[], None]) -> None:
    """Call this when the process ends, after what was registered with atexit since ``import weft``."""
    _ends.append(function)


def fail_at_end(is_failure: Callable[[], bool]) -> None:
    """Ask at the very end, behind all that was registered with at_end: if it is true the process ends with status 1."""
    _last.append(is_failure)


def guard(lock: Any) -> Any:
    """The lock; a fork waits for it and holds it, so that what it guards is whole in the child, and free.

    >>> lock = guard(threading.Lock())
    >>> with lock:
    ...     pass
    """
    _guarded.append(lock)
    return lock


def lock_of(owner: Any) -> Any:
    """A lock for an object to keep as `_lock`; a forked child makes it again, so it is free there.

    For locks that are held while functions of users run, which a fork cannot wait for as it does for those of `guard`.
    What such a lock guards has to be usable half changed.

    >>> class Table:
    ...     def __init__(self):
    ...         self._lock = lock_of(self)
    >>> with Table()._lock:
    ...     pass
    """
    _locked.add(owner)
    return threading.RLock()


def _renew_locks() -> None:
    for owner in list(_locked):
        owner._lock = threading.RLock()


def _end() -> None:
    for function in reversed(_ends):
        function()
    if any(is_failure() for is_failure in _last):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # the only way to a status from here


def _importing() -> list[str]:
    """The modules of weft that other threads are importing."""
    locks = importlib._bootstrap._module_locks  # type: ignore[attr-defined]
    thread = threading.get_ident()
    live = [(name, lock) for name, reference in list(locks.items()) if (lock := reference()) is not None]
    return [
        name
        for name, lock in live
        if name.partition(".")[0] == "weft" and getattr(lock, "owner", None) not in (None, thread)
    ]


def _before_fork() -> None:
    """Takes the lock of all imports and those of `guard`, each when no thread is inside.

    A thread that holds one may wait for another, so none is waited for while others are held.
    """
    global _held_locks
    tries, waited = _TRIES, set[str]()
    while True:
        _imp.acquire_lock()  # no other thread begins an import until _after_fork
        importing = [name for name in _importing() if name not in waited]
        _held_locks = [] if importing else [lock for lock in _guarded if lock.acquire(blocking=False)]
        if not importing and (len(_held_locks) == len(_guarded) or not tries):
            return
        _after_fork()
        waited.update(importing)
        for name in importing:
            with contextlib.suppress(Exception):  # the importing thread gets the error
                importlib.import_module(name)
        if not importing:
            tries -= 1
            time.sleep(0.001)


def _after_fork() -> None:
    global _held_locks
    locks, _held_locks = _held_locks, []
    for lock in locks:
        lock.release()
    _imp.release_lock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
os.register_at_fork(after_in_child=_renew_locks)
atexit.register(_end)
