"""Tables of what is made once for a key, of limited length.

>>> table = Table(2)
>>> table.get("a", lambda: 1), table.get("a", lambda: 2), len(table)
(1, 1, 1)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Table"]

T = TypeVar("T")


class Table(Generic[T]):
    """What was made for each key, for any thread; beyond `limit` entries those that were not used for longest go."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()
        self._epoch = 0  # how often it was cleared

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget all entries, and those that are being made."""
        with self._lock:
            self._entries.clear()
            self._epoch += 1

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The entry of the key, which make gives if there is none. Two threads may make it; one result is used."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
            epoch = self._epoch
        entry = make()
        with self._lock:
            if epoch != self._epoch:  # cleared meanwhile
                return entry
            entry = self._entries.setdefault(key, entry)
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        return entry
