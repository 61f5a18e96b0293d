"""Recomputes whole segments of a training step, for memory budgets that cheap results do not meet.

The nodes before the moment when most is alive are cut into pieces. Of a piece that is computed again, only what lives
across its ends is kept; when the backward part reaches it, its nodes run once more, and their results serve that
piece's gradients.

**Why the pieces do not reach further back.** A cut is a position in the order of the nodes. Every value that is made
before it and read behind it, by nodes before the peak, is kept (a *checkpoint*). So whatever is computed again in a
piece reads what is in the piece, and checkpoints: by induction over the nodes of the piece, in their order, each value
can be made from values that are there. What would break it is a value that must not be computed again (an effect, an
unknown operator): those are kept, as if they lived across each cut. Random results are a function of a position in the
stream, which is kept (`as_drawn`), so the second run draws what the first one drew.

**How much memory.** `room` is what saved values and checkpoints may take: the budget without what the plain plan needs
besides saved values. Let a piece begin when K bytes have been kept. While its gradients are computed, what is behind
it has been freed, so K and what the piece saves are all that is alive: it may save room - K. When the forward part
ends, everything kept is alive: the sum of all checkpoints, and of what pieces save that are not computed again, is at
most room. Pieces are therefore the longest that fit, in the program's order, so they become shorter towards the end.
For a chain of n equal layers, each of which saves m bytes, with checkpoints of c bytes, the sum over pieces of
(room - i c) is n m: room is about sqrt(2 n m c), the square-root law (Chen et al. 2016, arXiv:1604.06174) without the
factor that pieces of equal length cost. Where what is kept is not freed piece by piece, all of it and the largest piece
are alive together, and pieces are of equal length: room is about 2 sqrt(n m c).

**How much time.** Each node runs at most twice: a forward part costs about half of a backward one, so a step takes at
most about 4/3 of its time. Less is computed again where the budget allows it: the order is divided into units of about
equal saved bytes, and as few as possible are computed again, those first that take the least time for each byte.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from weft.graph.graph import Graph
from weft.graph.passes.recompute import Candidate, Lives, is_view, size_bytes_of
from weft.kernels import first_choice
from weft.ops.kernels import Native
from weft.ops.node import Node

__all__ = ["SegmentSearch"]

UNITS = 64  # that are computed again or not, as a whole
NEGLIGIBLE = 1 / 64  # of the mean saved value: smaller ones, such as statistics of channels, are always kept
MULTIPLY_ADDS_PER_BYTE = 5  # that a processor does in the time in which a byte comes from memory
ALIKE = (
    1.5  # costs for each byte that differ by less than this factor count as equal: the earlier unit is taken
)
LIMITS = 8  # sizes of pieces that are tried, where kept values are not freed
HALVINGS = 8  # of all that is saved, in the search for the least room
LATEST_PART = 2 / 3  # of a piece, in whose rest its end is looked for


class SegmentSearch:
    """The values of a graph that may be computed again, piece by piece. saved_bytes: what the plain program keeps.

    frees: memory of what is kept is free after its last reader. Else it is held to the end, as by executors, whose
    backward is a program of its own.
    """

    def __init__(self, graph: Graph, frees: bool = True) -> None:
        self.graph, self.frees = graph, frees
        self.lives = lives = Lives(graph)
        self.nodes = list(graph.nodes[: lives.peak + 1])
        until = self._read_until()
        values = [
            v
            for node in self.nodes
            if node.op is not None and not is_view(node) and id(node) not in lives.stable_nodes
            for v in node.outputs
            if id(v) not in lives.leaving and size_bytes_of(v)
        ]
        is_saved = {id(v): lives.last[id(v)] > lives.peak for v in values}
        saved = [size_bytes_of(v) for v in values if is_saved[id(v)]]
        least = NEGLIGIBLE * sum(saved) / max(len(saved), 1)
        self.saved_bytes = sum(saved)
        index = lives.index
        # Values that can be computed again, and those that are kept wherever a piece reads them.
        self.movable = [v for v in values if size_bytes_of(v) >= least and _may_run_again(v.node)]
        self.until = {id(v): until.get(id(v), index[id(v.node)]) for v in values}
        self.fixed = [v for v in values if size_bytes_of(v) >= least and not _may_run_again(v.node)]
        saved_at, changes = [0] * (len(self.nodes) + 1), [0] * (len(self.nodes) + 1)
        for v in self.movable:
            start = index[id(v.node)]
            if is_saved[id(v)]:
                saved_at[start + 1] += size_bytes_of(v)
            changes[start + 1] += size_bytes_of(v)
            changes[self.until[id(v)] + 1] -= size_bytes_of(v)
        # saved, cost [p]: of the nodes before p; across [p]: of what is made before p and read from p on.
        self.saved, self.across = list(accumulate(saved_at)), list(accumulate(changes))
        self.cost = list(accumulate((_cost(node) for node in self.nodes), initial=0.0))
        self.fixed_bytes = sum(size_bytes_of(v) for v in self.fixed if not is_saved[id(v)])

    def select(self, room_bytes: float) -> list[Candidate] | None:
        """The values to compute again so that saved ones take at most so many bytes; None if there are none."""
        shares = [1.0] if self.frees else [k / LIMITS for k in range(1, LIMITS)]
        units = self._units()
        order = sorted(range(len(units) - 1), key=lambda k: (self._price(units[k], units[k + 1]), k))
        for count in range(1, len(order) + 1):
            recomputed = set(order[:count])
            if self.saved[-1] - sum(self._saved_in(units[k], units[k + 1]) for k in recomputed) > room_bytes:
                continue
            for share in shares:
                checkpoints = self._checkpoints(units, recomputed, room_bytes, share * room_bytes)
                if checkpoints is not None:
                    return self._candidates(units, recomputed, checkpoints)
        return None

    def tightest(self) -> list[Candidate] | None:
        """What select gives for the least room for which it gives anything, or nearly that; None if for none."""
        least, most = 0.0, float(self.saved[-1])
        best = self.select(most)
        for _ in range(HALVINGS if best is not None else 0):
            room = (least + most) / 2
            selected = self.select(room)
            if selected is None:
                least = room
            else:
                best, most = selected, room
        return best

    # Units.

    def _units(self) -> list[int]:
        """Where units begin, and the end of the last: near equal parts of what is saved, where the least is alive."""
        step = self.saved[-1] / UNITS
        cuts = [0]
        for k in range(1, UNITS):
            begin, end = (bisect_left(self.saved, (k + shift) * step) for shift in (-0.5, 0.5))
            cut = self._best_cut(max(begin, cuts[-1] + 1), min(end, len(self.nodes) - 1))
            if cut is not None:
                cuts.append(cut)
        return [*cuts, len(self.nodes)]

    def _best_cut(self, begin: int, end: int) -> int | None:
        """The position in begin..end across which the fewest bytes are alive, the last of several."""
        return min(range(begin, end + 1), key=lambda p: (self.across[p], -p), default=None)

    def _saved_in(self, begin: int, end: int) -> int:
        return self.saved[end] - self.saved[begin]

    def _price(self, begin: int, end: int) -> float:
        """The cost of saving a byte, roughly: a logarithm, rounded."""
        size = self._saved_in(begin, end)
        cost = self.cost[end] - self.cost[begin]
        return math.inf if not size else round(math.log((cost + 1) / size, ALIKE))

    # Pieces.

    def _checkpoints(
        self, units: Sequence[int], recomputed: set[int], room_bytes: float, piece_bytes: float
    ) -> set[int] | None:
        """The values, by id, that are checkpoints of pieces that fit; None if they do not.

        piece_bytes: what a piece saves at the most; and where kept values stay, the largest comes on top of them all.
        """
        checkpoints: set[int] = set()
        unit_of = [k for k in range(len(units) - 1) for _ in range(units[k], units[k + 1])]
        room = room_bytes - self.fixed_bytes
        bytes_so_far = 0
        longest = 0

        def keep_across(position: int) -> None:
            nonlocal bytes_so_far
            for v in self.movable:
                start = self.lives.index[id(v.node)]
                if start < position <= self.until[id(v)] and id(v) not in checkpoints:
                    checkpoints.add(id(v))
                    if not (unit_of[start] not in recomputed and self.lives.last[id(v)] > self.lives.peak):
                        bytes_so_far += size_bytes_of(v)  # else it was counted as what its unit saves

        k = 0
        while k < len(units) - 1:
            if k not in recomputed:
                bytes_so_far += self._saved_in(units[k], units[k + 1])
                k += 1
            else:
                position = units[k]
                while k < len(units) - 1 and k in recomputed:
                    k += 1
                end = units[k]
                keep_across(position)
                while self._saved_in(position, end) > (limit := min(room - bytes_so_far, piece_bytes)):
                    cut = self._end_of_piece(position, limit)
                    if cut is None:
                        return None
                    keep_across(cut)
                    longest = max(longest, self._saved_in(position, cut))
                    position = cut
                longest = max(longest, self._saved_in(position, end))
                if end < len(self.nodes):
                    keep_across(end)
            if bytes_so_far > room:
                return None
        return checkpoints if self.frees or bytes_so_far + longest <= room else None

    def _end_of_piece(self, begin: int, room: float) -> int | None:
        if room <= 0:
            return None
        last = bisect_right(self.saved, self.saved[begin] + room) - 1
        first = bisect_left(self.saved, self.saved[begin] + room * LATEST_PART)
        cut = self._best_cut(max(min(first, last), begin + 1), last)
        return cut if cut is not None and self._saved_in(begin, cut) > 0 else None

    def _candidates(
        self, units: Sequence[int], recomputed: set[int], checkpoints: set[int]
    ) -> list[Candidate]:
        inside = [False] * len(self.nodes)
        for k in recomputed:
            inside[units[k] : units[k + 1]] = [True] * (units[k + 1] - units[k])
        values = [
            v for v in self.movable if inside[self.lives.index[id(v.node)]] and id(v) not in checkpoints
        ]
        return [self.lives.any_candidate(v) for v in values]

    def _read_until(self) -> dict[int, int]:
        """By id of a value, the index of the last node before the peak that reads it, or a view of it."""
        positions: dict[int, int] = {}
        index = self.lives.index
        for node in reversed(self.nodes):
            end = index[id(node)]
            if is_view(node):
                end = max([end, *(positions.get(id(v), end) for v in node.outputs)])
            for v in node.reads:
                positions[id(v)] = max(positions.get(id(v), end), end)
        return positions


def _may_run_again(node: Node) -> bool:
    """Whether a node may run twice: it has no effects. What it draws can be drawn again."""
    choice = first_choice(node)
    return choice is not None and not (isinstance(choice, Native) and choice.ordered)


def _cost(node: Node) -> float:
    """The time of a node, in bytes that could come from memory in that time."""
    if node.op is None or is_view(node):
        return 0
    sizes = [size_bytes_of(v) for v in (*node.reads, *node.outputs)]
    y = node.outputs[0]
    arrays = [v for v in node.inputs if v is not None and not v.type.weak]
    family = getattr(getattr(node.op, "of", node.op), "family", "")
    multiply_adds = 0.0
    if family == "convolution" and len(arrays) > 1 and arrays[1].shape:
        multiply_adds = y.size * arrays[1].size / max(arrays[1].shape[0], 1)
    elif family == "attention" and len(arrays) > 1:
        multiply_adds = 2.0 * y.size * arrays[1].shape[-2]
    elif family in ("matrix", "recurrent") and len(arrays) > 1:
        multiply_adds = math.sqrt(float(arrays[0].size) * arrays[1].size * y.size)
    return sum(sizes) + multiply_adds / MULTIPLY_ADDS_PER_BYTE
