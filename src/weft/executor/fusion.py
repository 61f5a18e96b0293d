"""Decides which steps are fused into one loop.

Steps are visited in the order of the program. A group of loops is open as long as no other step has read what it makes;
so no other group depends on an open one, and any loop may join it. A loop joins the groups that make what it reads, or
one that reads what it reads. When another step reads a group's results, it is closed, and these results are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from weft.base.typing import Any
from weft.executor.assembly import WHOLE, Fused, Space, View, agrees, assemble, once_view, traffic
from weft.executor.buffers import Buffer, BufferView, is_one, same, same_shape
from weft.executor.loop_stages import OPERANDS as IN_PIECES
from weft.executor.steps import LoopStep, NativeStep, Step, written_by
from weft.executor.stored_once import ROW_BYTES
from weft.expr.kernel import Fold

__all__ = ["fuse"]

OPERANDS = 16  # of a loop of several steps; the native core takes 22
WEIGHT = 150  # of all expressions of a loop, in basic operations: longer ones are not quicker, and take long to compile
WINDOW = 12  # steps of the program that a group with results in memory waits for another loop
ROWS = 64  # for threads to share, so that a loop of long rows is as good as several loops of pieces
RECOMPUTED = 1 << 14  # operations that may be done again to save a kernel


def fuse(name: str, steps: Sequence[Step], outputs: Iterable[Buffer]) -> list[Fused | NativeStep]:
    """The steps with loops merged, in an order in which they can run; outputs: what is read after all of them."""
    return _Fusion(name, steps, outputs).run()


class Group:
    """Loops that will be one."""

    def __init__(self, number: int, space: Space, members: Sequence[tuple[LoopStep, View]]) -> None:
        self.last, self.space, self.members = number, space, list(members)
        self.sealed = any(step.is_closed or step.writes_part for step, _ in members)
        self.asks_positions = any(step.asks_positions for step, _ in members)
        self.made: dict[int, tuple[BufferView, View]] = {}
        for step, view in members:
            for y in step.outputs:
                if not y.buffer.in_parts:
                    self.made[id(y.buffer)] = (y, once_view(space, step, y, view))

    @property
    def weight(self) -> int:
        return sum(step.weight for step, _ in self.members)

    @property
    def is_pointwise(self) -> bool:
        return not self.space.axes


class _Fusion:
    def __init__(self, name: str, steps: Sequence[Step], outputs: Iterable[Buffer]) -> None:
        self.name, self.steps = name, steps
        self.outputs = {id(buffer) for buffer in outputs}
        self.readers: dict[int, set[int]] = {}
        for k, step in enumerate(steps):
            for x in step.reads:
                self.readers.setdefault(id(x.buffer), set()).add(k)
        self.makers = written_by(steps)
        self.index = {id(step): k for k, step in enumerate(steps)}
        self.aims = self.find_aims()
        self.done = [False] * len(steps)
        self.open: dict[int, Group] = {}  # by the buffers that a group makes
        self.reading: dict[int, list[Group]] = {}  # the open groups that read a buffer
        self.found: list[Fused | NativeStep] = []

    def run(self) -> list[Fused | NativeStep]:
        for k in range(len(self.steps)):
            if not self.done[k]:
                self.process(k)
        for group in list(dict.fromkeys(self.open.values())):
            self.close(group)
        return self.found

    def process(self, k: int) -> None:
        step = self.steps[k]
        if isinstance(step, LoopStep):
            self.join(k, step)
            return
        assert isinstance(step, NativeStep)
        for group in self.sources(step):
            self.invite(group, k)
        self.done[k], step.number = True, k
        for group in self.sources(step):
            self.close(group)
        self.found.append(step)

    def sources(self, step: Step) -> list[Group]:
        """The open groups that make what a step reads."""
        found = (self.open.get(id(x.buffer)) for x in step.reads)
        return list(dict.fromkeys(group for group in found if group is not None))

    def close(self, group: Group) -> None:
        """Makes a loop of the group."""
        for key in group.made:
            self.open.pop(key, None)
        group.sealed = True
        fused = assemble(self.name, group.space, group.members, self.stored(group.members))
        fused.number = group.last
        self.found.append(fused)

    def stored(self, members: Sequence[tuple[LoopStep, View]]) -> set[int]:
        """The buffers, by id, that the loop of these steps has to put into memory."""
        own = {id(step) for step, _ in members}
        return {
            id(y.buffer)
            for step, _ in members
            for y in step.outputs
            if self.is_needed(y.buffer, own) or y.buffer.in_parts
        }

    def is_needed(self, buffer: Buffer, members: set[int]) -> bool:
        """Whether any but these steps reads the buffer."""
        return id(buffer) in self.outputs or any(
            id(self.steps[k]) not in members for k in self.readers.get(id(buffer), ())
        )

    def invite(self, group: Group, k: int) -> None:
        """Before step k closes the group: loops that come soon and read the same."""
        for _ in range(WINDOW):
            coming = {r for key in group.made for r in self.readers.get(key, ()) if k < r <= k + WINDOW}
            for r in sorted(coming):
                step = self.steps[r]
                if isinstance(step, LoopStep) and not self.done[r] and self.is_ready(step):
                    joined = self.join(r, step, only=group)
                    if joined is not None:
                        group = joined
                        break
            else:
                return

    def is_ready(self, step: LoopStep) -> bool:
        return not step.writes_part and all(
            self.done[m] for x in step.reads for m in self.makers.get(id(x.buffer), ())
        )

    # Sums over different axes.

    def find_aims(self) -> list[frozenset[tuple[int, ...]] | None]:
        """For each pointwise step, the axes that its result is soon reduced along; None: it is stored anyway.

        A loop has the rows of one set of axes. What is computed in a loop over others than those that it is reduced
        along has to be stored and read again, while both loops can compute it from what they read.
        """
        found: list[frozenset[tuple[int, ...]] | None] = [None] * len(self.steps)
        for k in reversed(range(len(self.steps))):
            step = self.steps[k]
            if isinstance(step, LoopStep) and step.is_pointwise:
                found[k] = self.aims_of(k, step, found)
        return found

    def aims_of(
        self, k: int, step: LoopStep, later: Sequence[frozenset[tuple[int, ...]] | None]
    ) -> frozenset[tuple[int, ...]] | None:
        aims: set[tuple[int, ...]] = set()
        for y in step.outputs:
            if id(y.buffer) in self.outputs or y.buffer.in_parts:
                return None
            for r in self.readers.get(id(y.buffer), ()):
                reader = self.steps[r]
                if (
                    r > k + WINDOW
                    or not isinstance(reader, LoopStep)
                    or not same_shape(reader.shape, step.shape)
                ):
                    return None
                aims.update((later[r] or ()) if reader.is_pointwise else (reader.loop.axes,))
        return frozenset(aims)

    def aims_together(self, group: Group) -> frozenset[tuple[int, ...]]:
        """Of the results of pointwise steps that others read; none if one of these is stored anyway."""
        members = {id(step) for step, _ in group.members}
        aims: set[tuple[int, ...]] = set()
        for step, _ in group.members:
            if any(self.is_needed(y.buffer, members) for y in step.outputs):
                own = self.aims[self.index[id(step)]]
                if not own:
                    return frozenset()
                aims |= own
        return frozenset(aims)

    def leads_away(self, group: Group, axes: tuple[int, ...]) -> bool:
        """Whether all that pointwise steps give is soon reduced along other axes, and nothing of it along these."""
        aims = self.aims_together(group)
        return bool(aims) and axes not in aims

    def is_computed_apart(self, group: Group, step: LoopStep, sources: Sequence[Group]) -> bool:
        """Whether a step that reads a group is left to the loop that reduces it along other axes.

        That loop reads what the step reads, instead of a result that this one would write. A step that needs a number
        of a row stays, since only this loop has it before it ends.
        """
        aims = self.aims[self.index[id(step)]]
        if not group.space.axes or not step.is_pointwise or not aims or group.space.axes in aims:
            return False
        passes = 0  # over memory, which take the place of two
        for x in step.reads:
            made = group.made.get(id(x.buffer))
            if made is not None and made[1] != WHOLE:
                return False
            if made is not None:
                own = {id(step), *(id(member) for member, _ in group.members)}
                passes += 1 if self.is_needed(x.buffer, own) else 2
                continue
            source = next((g for g in sources if id(x.buffer) in g.made), None)
            reads = [x] if source is None else operands_of(source)
            passes += len({r.key for r in reads if same_shape(r.shape, step.shape)})
        return passes <= 2

    # Joining.

    def join(self, k: int, step: LoopStep, only: Group | None = None) -> Group | None:
        """Merges a loop with groups, or makes it one; only: does nothing if it cannot join this one."""
        sources = self.sources(step)
        taken, merged = self.merged(k, step, sources, only)
        if only is not None and only not in taken:
            return None
        self.done[k] = True
        for group in sources:
            if group not in taken:
                self.close(group)
        for group in taken:
            group.sealed = True
        for key in merged.made:
            self.open[key] = merged
        if merged.sealed:
            self.close(merged)
        for member, _ in merged.members if not merged.sealed else ():
            for x in member.reads:
                known = self.reading.setdefault(id(x.buffer), [])
                known[:] = [group for group in known if not group.sealed and group is not merged]
                known.append(merged)
        return merged

    def merged(
        self, k: int, step: LoopStep, sources: Sequence[Group], only: Group | None
    ) -> tuple[list[Group], Group]:
        """The groups that a loop joins, and what comes of it."""
        number = k if only is None else only.last
        taken: list[Group] = []
        merged = Group(number, Space(step.shape, step.loop.axes), [(step, WHOLE)])
        for space, view, giver in self.spaces(step, sources):
            found = self.attempt(number, k, step, sources, space, view)
            if giver is None or giver in found[0]:
                taken, merged = found
                break
        sibling = self.sibling(k, merged, sources)
        if sibling is not None and (only is None or sibling is only):
            space = sibling.space if sibling.space.axes else merged.space
            both = Group(number, space, [*sibling.members, *merged.members])
            if self.is_small(both):
                return [*taken, sibling], both
        return taken, merged

    def spaces(self, step: LoopStep, sources: Sequence[Group]) -> Iterator[tuple[Space, View, Group | None]]:
        """The spaces that a loop could run over, how it would see them, and which group it would have to join."""
        for group in sources if not step.asks_positions else ():
            if not group.sealed and (view := group.space.row_view(step)) is not None:
                yield group.space, view, group
        if step.is_pointwise:
            for group in sources:
                if group.space.axes and same_shape(group.space.shape, step.shape):
                    yield group.space, WHOLE, group
        yield Space(step.shape, step.loop.axes), WHOLE, None

    def attempt(
        self, number: int, k: int, step: LoopStep, sources: Sequence[Group], space: Space, view: View
    ) -> tuple[list[Group], Group]:
        """The groups that fit the space, as many as one loop can take."""
        taken, members = [], [(step, view)]
        merged = Group(number, space, members)
        for group in sources:
            if view == WHOLE and self.is_computed_apart(group, step, sources):
                continue
            seen = self.fitted(k, group, space, view, step)
            if seen is None:
                continue
            larger = Group(number, space, [*seen, *members])
            if self.is_small(larger) and tells_rows(larger):
                taken.append(group)
                merged, members = larger, larger.members
        return taken, merged

    def fitted(
        self, k: int, group: Group, space: Space, view: View, step: LoopStep
    ) -> list[tuple[LoopStep, View]] | None:
        """The members of a group as they see the space, if they can run in the loop of a step that reads them."""
        if group.sealed:
            return None
        inlined = self.is_inlined(group, step)
        if not inlined and k - group.last > WINDOW:
            return None
        seen = self.seen(group, space, inlined)
        if seen is None:
            return None
        together = Group(group.last, space, seen)
        for x in step.reads:
            known = together.made.get(id(x.buffer))
            if known is not None and not agrees(space, *known, x, view):
                return None
        free = view != WHOLE or (inlined and group.is_pointwise)
        if space.axes and not free and not self.rows_fit(space, seen, step):
            return seen if self.sends_less(group, space, seen, step, view) else None
        return seen

    def is_inlined(self, group: Group, step: LoopStep) -> bool:
        """Whether the step alone reads what the group makes."""
        members = {id(member) for member, _ in group.members} | {id(step)}
        return not any(
            self.is_needed(y.buffer, members) for member, _ in group.members for y in member.outputs
        )

    def seen(self, group: Group, space: Space, inlined: bool) -> list[tuple[LoopStep, View]] | None:
        """The members of a group as they see another space."""
        own = group.space
        if same_shape(own.shape, space.shape):
            return group.members if not own.axes or own.axes == space.axes else None
        if own.axes or group.asks_positions:
            return None
        again = inlined and broadcasts(own.shape, space.shape) and self.is_cheap(group, space)
        if again and all(view == WHOLE for _, view in group.members):
            return group.members
        views = {space.row_view(member) for member, _ in group.members}
        if None in views or len(views) != 1:
            return None
        (view,) = views
        assert view is not None
        return [(member, view) for member, _ in group.members]

    def is_cheap(self, group: Group, space: Space) -> bool:
        """Whether a group that is broadcast may be computed again for every element that reads it."""
        count: Any = 1
        for n in space.shape:
            if not isinstance(n, int):
                return True
            count *= n
        return group.weight <= 4 or count * group.weight <= RECOMPUTED

    def is_small(self, group: Group) -> bool:
        """Whether a group is within the limits of one loop."""
        if group.weight > WEIGHT:
            return False
        members = {id(step) for step, _ in group.members}
        operands = {x.key for x in operands_of(group)}
        stored = {key for key, (y, _) in group.made.items() if self.is_needed(y.buffer, members)}
        if len(operands) + len(stored) > OPERANDS:
            return False
        # Rows that are folded in pieces: a loop reads the operands and stores what a piece of each reduction comes to.
        folded = sum(
            len(stage.reductions)
            for step, _ in group.members
            for stage in step.loop.stages
            if isinstance(stage, Fold)
        )
        return folded + max(len(operands), len(stored)) <= IN_PIECES

    def rows_fit(self, space: Space, members: Sequence[tuple[LoopStep, View]], step: LoopStep) -> bool:
        """Whether the elements of a row stay in the cache, for as long as passes over it need them again."""
        elements, inner = 1, len(space.shape) - 1 in space.axes
        for axis in space.axes:
            if not isinstance(space.shape[axis], int):
                return False
            elements *= space.shape[axis]
        if any(not isinstance(n, int) for n in space.shape):
            return False
        arrays = {
            x.key: x.type.dtype.itemsize
            for x in (*(x for member, _ in members for x in member.reads), *step.reads, *step.outputs)
            if same_shape(x.shape, space.shape)
        }
        lanes = 1 if inner else 16
        return elements * lanes * sum(arrays.values()) <= ROW_BYTES

    def sends_less(
        self, group: Group, space: Space, seen: Sequence[tuple[LoopStep, View]], step: LoopStep, view: View
    ) -> bool:
        """Whether one loop sends less through memory than the group and the step, if no pass finds its row cached."""
        if not all(isinstance(n, int) for n in space.shape):
            return False
        own = Space(step.shape, step.loop.axes)
        apart = self.traffic(group.space, group.members) + self.traffic(own, [(step, WHOLE)])
        together = self.traffic(space, [*seen, (step, view)])
        return together < apart or (together == apart and is_shared(space))

    def traffic(self, space: Space, members: Sequence[tuple[LoopStep, View]]) -> int:
        """Bytes that the loop of these steps reads and writes in all of its passes."""
        return traffic(space, assemble(self.name, space, members, self.stored(members)))

    # Siblings.

    def sibling(self, k: int, group: Group, sources: Sequence[Group]) -> Group | None:
        """A group on the same space that reads an array of this one."""
        if group.sealed:
            return None
        for step, _ in group.members:
            for x in step.reads:
                for other in reversed(self.reading.get(id(x.buffer), ())):
                    late = other.sealed or other in sources or k - other.last > WINDOW
                    if not late and self.are_siblings(other, group, x):
                        return other
        return None

    def are_siblings(self, a: Group, b: Group, shared: BufferView) -> bool:
        if not same_shape(a.space.shape, b.space.shape) or not same_shape(shared.shape, a.space.shape):
            return False
        if not a.space.axes and not b.space.axes:
            return not self.part_ways(a, b)
        if a.space.axes == b.space.axes and self.only_reduces(a) and self.only_reduces(b):
            return True
        if a.space.axes and b.space.axes and a.space.axes != b.space.axes:
            return False
        space, pointwise = (a.space, b) if a.space.axes else (b.space, a)
        if self.leads_away(pointwise, space.axes):
            return False
        return self.rows_fit(space, a.members, b.members[-1][0])

    def part_ways(self, a: Group, b: Group) -> bool:
        """Whether pointwise loops are soon reduced along axes of which none are the same."""
        aims = self.aims_together(a), self.aims_together(b)
        return all(aims) and not (aims[0] & aims[1])

    def only_reduces(self, group: Group) -> bool:
        """Whether a group stores nothing but numbers of rows."""
        members = {id(step) for step, _ in group.members}
        return not any(
            view == WHOLE and self.is_needed(place.buffer, members) for place, view in group.made.values()
        )


def is_shared(space: Space) -> bool:
    """Whether there are rows enough for threads, each of which is one piece of memory that is cached in part."""
    rank, count = len(space.shape), len(space.axes)
    rows = math.prod(space.shape[: rank - count])
    return count > 0 and space.axes == tuple(range(rank - count, rank)) and rows >= ROWS


def operands_of(group: Group) -> list[BufferView]:
    """What the steps of a group read that none of them makes."""
    return [x for step, _ in group.members for x in step.reads if id(x.buffer) not in group.made]


def tells_rows(group: Group) -> bool:
    """Whether some array of a loop is as long as its rows, so that their length follows from it.

    None does where what the loop makes itself is repeated along an axis, and then reduced along it.
    """
    space, rank = group.space, len(group.space.shape)
    shapes = [
        place.shape
        for step, view in group.members
        if view == WHOLE
        for place in (
            *(x for x in step.reads if id(x.buffer) not in group.made),
            *(y for y in step.outputs if once_view(space, step, y, view) == WHOLE),
        )
    ]
    return all(
        is_one(space.shape[axis])
        or any(len(s) + axis >= rank and not is_one(s[len(s) + axis - rank]) for s in shapes)
        for axis in space.axes
    )


def broadcasts(shape: Sequence[Any], to: Sequence[Any]) -> bool:
    """Whether an array of this shape has an element for every position of the other."""
    return len(shape) <= len(to) and all(
        is_one(n) or same(n, m) for n, m in zip(reversed(shape), reversed(to), strict=False)
    )
