"""The order of a program's steps: the program's own, but steps that free memory run as soon as they can.

Updates of parameters are such steps: their results go where they are kept, and the gradient is free. Pure: steps are
described by what they need and what memory they give and take.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence

from weft.base.record import Record
from weft.base.typing import Any

__all__ = ["Task", "ordered"]


class Task(Record):
    """One step. after: numbers of steps that must have run; number: its place in the program's order.

    reads, makes: temporary memory by key. An array that several tasks make is theirs from the first one on. stays: it
    runs no earlier than in the program's order, whatever it frees: others may be at work for it meanwhile.
    """

    number: int
    after: frozenset[int] = frozenset()
    reads: frozenset[Hashable] = frozenset()
    makes: frozenset[Hashable] = frozenset()
    stays: bool = False


def ordered(tasks: Sequence[Task], size_bytes: Mapping[Any, int], keep: bool = False) -> list[int]:
    """The tasks' numbers in this list, in the order in which they run. keep: the program's order as far as can be."""
    return _Schedule(tasks, size_bytes, keep).run()


class _Schedule:
    def __init__(self, tasks: Sequence[Task], size_bytes: Mapping[Any, int], keep: bool) -> None:
        self.tasks, self.size_bytes, self.keep = tasks, size_bytes, keep
        self.waits = [len(task.after) for task in tasks]
        self.followers: list[list[int]] = [[] for _ in tasks]
        self.readers: dict[Hashable, set[int]] = {}
        self.alive: set[Hashable] = set()
        self.done = [False] * len(tasks)
        for k, task in enumerate(tasks):
            for before in task.after:
                self.followers[before].append(k)
            for key in task.reads:
                self.readers.setdefault(key, set()).add(k)
        self.ready: list[tuple[int, int, int]] = []  # (whether it has time, number, task)

    def run(self) -> list[int]:
        for k, count in enumerate(self.waits):
            if not count:
                self.push(k)
        order: list[int] = []
        while self.ready:
            *_, k = heapq.heappop(self.ready)
            if self.done[k]:
                continue
            self.done[k] = True
            order.append(k)
            self.ran(k)
        assert len(order) == len(self.tasks), "the steps wait for each other"
        return order

    def ran(self, k: int) -> None:
        task = self.tasks[k]
        self.alive |= task.makes
        for key in task.reads:
            readers = self.readers[key]
            readers.discard(k)
            if len(readers) == 1:
                (last,) = readers
                if not self.waits[last]:
                    self.push(last)
        for follower in self.followers[k]:
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self.push(follower)

    def push(self, k: int) -> None:
        has_time = self.keep or self.tasks[k].stays or not self.frees(k)
        heapq.heappush(self.ready, (has_time, self.tasks[k].number, k))

    def frees(self, k: int) -> bool:
        """Whether there is less memory in use after the task, or it takes none at all."""
        task = self.tasks[k]
        takes = sum(self.size_bytes[key] for key in task.makes - self.alive)
        gives = sum(self.size_bytes[key] for key in task.reads if self.readers[key] == {k})
        return gives > takes
