"""The memory plan: offsets of blocks in one arena, given their sizes and the steps between which they are alive.

>>> blocks = [Block("a", 100, 0, 1), Block("b", 200, 1, 2), Block("c", 100, 2, 3)]
>>> plan = lay_out(blocks)
>>> plan.arena_bytes, plan.largest_live_bytes, plan.offsets["a"] == plan.offsets["c"]
(384, 384, True)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from weft.base.record import Record

__all__ = ["ALIGNMENT", "Block", "MemoryPlan", "largest_live_bytes", "lay_out"]

ALIGNMENT = 64
CLOSE_ENOUGH = 1.01  # times the largest live set: no other order of blocks is tried


class Block(Record):
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


def lay_out(blocks: Sequence[Block], guard_bytes: int = 0) -> MemoryPlan:
    """Offsets such that blocks that are alive at the same time do not overlap; guard_bytes are left between any two.

    Greedy, in several orders, of which the best one is taken: by size, by size times lifetime, by time. A block goes
    into the smallest gap that it fits, among those already placed that live at the same time.
    Source of the first order: Pisarchyk, Lee 2020, arXiv:2001.03288.
    """
    padded = [(block, aligned(block.size_bytes) + guard_bytes) for block in blocks]
    least = _largest_live([(size, block.first, block.last) for block, size in padded])
    best: tuple[int, dict[Hashable, int]] | None = None
    orders: list[Callable[[tuple[Block, int]], tuple[int, ...]]] = [
        lambda item: (-item[1], item[0].first),
        lambda item: (-item[1] * (item[0].last - item[0].first + 1), item[0].first),
        lambda item: (item[0].first, -item[1]),
    ]
    for order in orders:
        candidate = _assign_offsets(sorted(padded, key=order))
        if best is None or candidate[0] < best[0]:
            best = candidate
        if best[0] <= least * CLOSE_ENOUGH:
            break
    assert best is not None
    return MemoryPlan(best[1], best[0], least)


def largest_live_bytes(blocks: Sequence[Block]) -> int:
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


def _assign_offsets(items: Sequence[tuple[Block, int]]) -> tuple[int, dict[Hashable, int]]:
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
