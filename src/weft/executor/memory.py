"""The memory plan: offsets of blocks in one arena, given their sizes and the steps between which they are alive.

>>> blocks = [ArenaBlock("a", 100, 0, 1), ArenaBlock("b", 200, 1, 2), ArenaBlock("c", 100, 2, 3)]
>>> plan = lay_out(blocks)
>>> plan.arena_bytes, plan.largest_live_bytes, plan.offsets["a"] == plan.offsets["c"]
(384, 384, True)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush

from weft.base.record import Record

__all__ = ["ALIGNMENT", "ArenaBlock", "MemoryPlan", "largest_live_bytes", "lay_out"]

ALIGNMENT = 64
CLOSE_ENOUGH = 1.01  # times the largest live set: no other order of blocks is tried
IN_PAIRS = 400  # blocks that are compared with each other


class ArenaBlock(Record):
    """Memory that is written in step `first` at the earliest, and read in step `last` at the latest."""

    key: Hashable
    size_bytes: int
    first: int
    last: int

    def check(self) -> None:
        if self.size_bytes < 0 or self.last < self.first:
            raise ValueError(
                f"block {self.key}: {self.size_bytes} bytes in steps {self.first} to {self.last}"
            )


class MemoryPlan(Record):
    """offsets: of each block, by key, in bytes, multiples of ALIGNMENT."""

    offsets: dict[Hashable, int]
    arena_bytes: int
    largest_live_bytes: int


def lay_out(blocks: Sequence[ArenaBlock], guard_bytes: int = 0) -> MemoryPlan:
    """Offsets such that blocks that are alive at the same time do not overlap; guard_bytes are left between any two.

    By time first, as an allocator would: if that takes no more than the blocks that are alive at once, nothing is
    better. Else greedy, by size and by size times lifetime: a block goes into the smallest gap that it fits, among
    those already placed that live at the same time. That compares blocks in pairs, so of many blocks only the largest
    are placed so, and the rest by time above them.
    Source of the order by size: Pisarchyk, Lee 2020, arXiv:2001.03288.
    """
    padded = [(block, aligned(block.size_bytes) + guard_bytes) for block in blocks]
    least = _largest_live([(size, block.first, block.last) for block, size in padded])
    best = _by_time(padded)
    orders: list[Callable[[tuple[ArenaBlock, int]], tuple[int, ...]]] = [
        lambda item: (-item[1], item[0].first),
        lambda item: (-item[1] * (item[0].last - item[0].first + 1), item[0].first),
    ]
    for order in orders:
        if best[0] <= least * (CLOSE_ENOUGH if len(blocks) > IN_PAIRS else 1):
            break
        in_order = sorted(padded, key=order)
        candidate = _assign_offsets(in_order[:IN_PAIRS])
        if len(blocks) > IN_PAIRS:
            rest = _by_time(in_order[IN_PAIRS:])
            above = {key: offset + candidate[0] for key, offset in rest[1].items()}
            candidate = candidate[0] + rest[0], candidate[1] | above
        best = min(best, candidate, key=lambda each: each[0])
        if best[0] <= least * CLOSE_ENOUGH:
            break
    return MemoryPlan(best[1], best[0], least)


def _by_time(items: Sequence[tuple[ArenaBlock, int]]) -> tuple[int, dict[Hashable, int]]:
    """The arena's size and the offsets, as an allocator gives them: each block gets the smallest gap when it begins.

    The order of the blocks is that in which a greedy placement by time has them, and so are the offsets; only what is
    alive is looked at, in O(n log n) steps and moves within sorted lists.
    """
    free: list[tuple[int, int]] = []  # gaps below the top, by size and offset
    size_at: dict[int, int] = {}  # of gaps, by offset
    begin_of: dict[int, int] = {}  # of gaps, by end
    ending: list[tuple[int, int, int]] = []  # a heap of the blocks that are alive: last, offset, end
    top = arena = 0
    offsets: dict[Hashable, int] = {}

    def release(begin: int, end: int) -> None:
        nonlocal top
        if begin in begin_of:
            begin = take(begin_of[begin])
        if end in size_at:
            after = end + size_at[end]
            take(end)
            end = after
        if end == top:
            top = begin
            return
        insort(free, (end - begin, begin))
        size_at[begin], begin_of[end] = end - begin, begin

    def take(begin: int) -> int:
        size = size_at.pop(begin)
        del begin_of[begin + size], free[bisect_left(free, (size, begin))]
        return begin

    for block, size in sorted(items, key=lambda item: (item[0].first, -item[1])):
        while ending and ending[0][0] < block.first:
            release(*heappop(ending)[1:])
        if not size:
            offsets[block.key] = 0
            continue
        place = bisect_left(free, (size, 0))
        if place < len(free):
            gap, offset = free[place]
            take(offset)
            if gap > size:
                release(offset + size, offset + gap)
        else:
            offset, top = top, top + size
            arena = max(arena, top)
        offsets[block.key] = offset
        heappush(ending, (block.last, offset, offset + size))
    return arena, offsets


def largest_live_bytes(blocks: Sequence[ArenaBlock]) -> int:
    """The most bytes, each block rounded up to ALIGNMENT, that are alive in any step: no plan can do with less."""
    return _largest_live([(aligned(block.size_bytes), block.first, block.last) for block in blocks])


def aligned(size_bytes: int) -> int:
    """Rounded up to ALIGNMENT.

    >>> aligned(1), aligned(64)
    (64, 64)
    """
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def _largest_live(items: Sequence[tuple[int, int, int]]) -> int:
    change: dict[int, int] = {}
    for size, first, last in items:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    live = most = 0
    for step in sorted(change):
        live += change[step]
        most = max(most, live)
    return most


def _assign_offsets(items: Sequence[tuple[ArenaBlock, int]]) -> tuple[int, dict[Hashable, int]]:
    """The arena's size, and the offsets of blocks that are placed one after the other."""
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    offsets: dict[Hashable, int] = {}
    arena = 0
    for block, size in items:
        first, last = block.first, block.last
        if not size:
            offsets[block.key] = 0
            continue
        others = sorted((a, b) for a, b, begin, end in placed if begin <= last and first <= end)
        offset = _best_gap(others, size)
        offsets[block.key] = offset
        placed.append((offset, offset + size, first, last))
        arena = max(arena, offset + size)
    return arena, offsets


def _best_gap(intervals: Sequence[tuple[int, int]], size: int) -> int:
    """The beginning of the smallest gap between sorted intervals that is large enough; else behind them all."""
    end, gaps = 0, []
    for begin, stop in intervals:
        if begin - end >= size:
            gaps.append((begin - end, end))
        end = max(end, stop)
    return min(gaps)[1] if gaps else end
