"""Decides which steps are fused into one loop.

Steps are visited in the order of the program. A group of loops is open as long as no other step has read its results;
so no other group depends on an open one, and any loop may join it. A loop joins the groups that make what it reads, or
one that reads what it reads. When another step reads a group's results, it is closed, and these results are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from weft.base.typing import Any
from weft.executor.assembly import (
    WHOLE,
    Fused,
    Projection,
    Space,
    agrees,
    assemble,
    output_projection,
    traffic,
)
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

    def __init__(self, number: int, space: Space, members: Sequence[tuple[LoopStep, Projection]]) -> None:
        self.last, self.space, self.members = number, space, list(members)
        self.sealed = True in [step.is_closed or step.writes_part for step, _ in members]
        self.reads_positions = True in [step.reads_positions for step, _ in members]
        self.outputs: dict[int, tuple[BufferView, Projection]] = {}
        for step, projection in members:
            for y in step.outputs:
                if not y.buffer.in_parts:
                    self.outputs[id(y.buffer)] = (y, output_projection(space, step, y, projection))

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
        self.reduction_axes = self.find_reduction_axes()
        self.done = [False] * len(steps)
        self.open: dict[int, Group] = {}  # by the buffers that a group writes
        self.reading: dict[int, list[Group]] = {}  # the open groups that read a buffer
        self.part_readers: dict[int, list[Group]] = {}  # the open groups that read a buffer written in parts
        self.results: list[Fused | NativeStep] = []

    def run(self) -> list[Fused | NativeStep]:
        for k in range(len(self.steps)):
            if not self.done[k]:
                self.process(k)
        for group in list(dict.fromkeys(self.open.values())):
            self.close(group)
        return self.results

    def process(self, k: int) -> None:
        step = self.steps[k]
        if isinstance(step, LoopStep):
            self.join(k, step)
            return
        assert isinstance(step, NativeStep)
        for group in self.sources(step):
            self.join_upcoming(group, k)
        self.done[k], step.number = True, k
        for group in self.sources(step):
            self.close(group)
        self.finish_readers(step)
        self.results.append(step)

    def sources(self, step: Step) -> list[Group]:
        """The open groups that make what a step reads."""
        groups = [self.open.get(id(x.buffer)) for x in step.reads]
        return list(dict.fromkeys([group for group in groups if group is not None]))

    def close(self, group: Group) -> None:
        """Makes a loop of the group."""
        for key in group.outputs:
            self.open.pop(key, None)
        group.sealed = True
        fused = assemble(self.name, group.space, group.members, self.stored(group.members))
        fused.number = group.last
        self.results.append(fused)

    def finish_readers(self, step: Step, joined: Sequence[Group] = ()) -> None:
        """Closes the groups that read what a step is about to overwrite: see contents.py."""
        for y in step.writes if self.part_readers else ():
            for group in self.part_readers.pop(id(y.buffer), ()):
                if not group.sealed and group not in joined:
                    self.close(group)

    def stored(self, members: Sequence[tuple[LoopStep, Projection]]) -> set[int]:
        """The buffers, by id, that the loop of these steps has to put into memory."""
        members_by_id = {id(step) for step, _ in members}
        return {
            id(y.buffer)
            for step, _ in members
            for y in step.outputs
            if self.is_needed(y.buffer, members_by_id) or y.buffer.in_parts
        }

    def is_needed(self, buffer: Buffer, members: set[int]) -> bool:
        """Whether any but these steps reads the buffer."""
        return id(buffer) in self.outputs or not members.issuperset(
            [id(self.steps[k]) for k in self.readers.get(id(buffer), ())]
        )

    def join_upcoming(self, group: Group, k: int) -> None:
        """Before step k closes the group: loops of the next steps that read its results join it."""
        for _ in range(WINDOW):
            upcoming = {r for key in group.outputs for r in self.readers.get(key, ()) if k < r <= k + WINDOW}
            for r in sorted(upcoming):
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

    def find_reduction_axes(self) -> list[frozenset[tuple[int, ...]] | None]:
        """For each pointwise step, the axes that its result is soon reduced along; None: it is stored anyway.

        A loop has the rows of one set of axes. What is computed in a loop over others than those that it is reduced
        along has to be stored and read again, while both loops can compute it from what they read.
        """
        axes: list[frozenset[tuple[int, ...]] | None] = [None] * len(self.steps)
        for k in reversed(range(len(self.steps))):
            step = self.steps[k]
            if isinstance(step, LoopStep) and step.is_pointwise:
                axes[k] = self.reduction_axes_of(k, step, axes)
        return axes

    def reduction_axes_of(
        self, k: int, step: LoopStep, later: Sequence[frozenset[tuple[int, ...]] | None]
    ) -> frozenset[tuple[int, ...]] | None:
        axes: set[tuple[int, ...]] = set()
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
                axes.update((later[r] or ()) if reader.is_pointwise else (reader.loop.axes,))
        return frozenset(axes)

    def group_reduction_axes(self, group: Group) -> frozenset[tuple[int, ...]]:
        """Of the results of pointwise steps that others read; none if one of these is stored anyway."""
        members = {id(step) for step, _ in group.members}
        axes: set[tuple[int, ...]] = set()
        for step, _ in group.members:
            if any(self.is_needed(y.buffer, members) for y in step.outputs):
                axes_of_step = self.reduction_axes[self.index[id(step)]]
                if not axes_of_step:
                    return frozenset()
                axes |= axes_of_step
        return frozenset(axes)

    def is_reduced_elsewhere(self, group: Group, axes: tuple[int, ...]) -> bool:
        """Whether all results of pointwise steps are soon reduced along other axes, and none along these."""
        reduced_axes = self.group_reduction_axes(group)
        return bool(reduced_axes) and axes not in reduced_axes

    def is_computed_apart(self, group: Group, step: LoopStep, sources: Sequence[Group]) -> bool:
        """Whether a step that reads a group is left to the loop that reduces it along other axes.

        That loop reads what the step reads, instead of a result that this one would write. A step that needs a number
        of a row stays, since only this loop has it before it ends; unless that is all it would read from memory.
        """
        reduced_axes = self.reduction_axes[self.index[id(step)]]
        if (
            not group.space.axes
            or not step.is_pointwise
            or not reduced_axes
            or group.space.axes in reduced_axes
        ):
            return False
        passes, most = 0, 2  # over memory
        for x in step.reads:
            output = group.outputs.get(id(x.buffer))
            if output is not None and output[1] != WHOLE:
                most = 0
            elif output is not None:
                members = {id(step), *(id(member) for member, _ in group.members)}
                passes += 1 if self.is_needed(x.buffer, members) else 2
            else:
                source = next((g for g in sources if id(x.buffer) in g.outputs), None)
                reads = [x] if source is None else operands_of(source)
                passes += len({r.key for r in reads if same_shape(r.shape, step.shape)})
        return passes <= most

    # Joining.

    def join(self, k: int, step: LoopStep, only: Group | None = None) -> Group | None:
        """Merges a loop with groups, or makes it one; only: does nothing if it cannot join this one."""
        sources = self.sources(step)
        joined, merged = self.merged(k, step, sources, only)
        if only is not None and only not in joined:
            return None
        self.done[k] = True
        for group in sources:
            if group not in joined:
                self.close(group)
        self.finish_readers(step, joined)
        for group in joined:
            group.sealed = True
        for key in merged.outputs:
            self.open[key] = merged
        if merged.sealed:
            self.close(merged)
        for member, _ in merged.members if not merged.sealed else ():
            for x in member.reads:
                if x.buffer.in_parts:
                    self.part_readers.setdefault(id(x.buffer), []).append(merged)
                readers = self.reading.setdefault(id(x.buffer), [])
                # Nor those that no step to come would join: it may be WINDOW steps behind this one.
                readers[:] = [
                    group
                    for group in readers
                    if not group.sealed and group is not merged and k - group.last <= 2 * WINDOW
                ]
                readers.append(merged)
        return merged

    def merged(
        self, k: int, step: LoopStep, sources: Sequence[Group], only: Group | None
    ) -> tuple[list[Group], Group]:
        """The groups that a loop joins, and the merged group."""
        number = k if only is None else only.last
        joined: list[Group] = []
        merged = Group(number, Space(step.shape, step.loop.axes), [(step, WHOLE)])
        for space, projection, giver in self.spaces(step, sources):
            candidate = self.attempt(number, k, step, sources, space, projection)
            if giver is None or giver in candidate[0]:
                joined, merged = candidate
                break
        sibling = self.sibling(k, merged, sources)
        if sibling is not None and (only is None or sibling is only):
            space = sibling.space if sibling.space.axes else merged.space
            both = Group(number, space, [*sibling.members, *merged.members])
            if self.is_small(both) and reads_what_it_writes(both):
                return [*joined, sibling], both
        return joined, merged

    def spaces(
        self, step: LoopStep, sources: Sequence[Group]
    ) -> Iterator[tuple[Space, Projection, Group | None]]:
        """The spaces that a loop could run over, its projection of them, and the group that it would have to join."""
        for group in sources if not step.reads_positions else ():
            if not group.sealed and (projection := group.space.row_projection(step)) is not None:
                yield group.space, projection, group
        if step.is_pointwise:
            for group in sources:
                if group.space.axes and same_shape(group.space.shape, step.shape):
                    yield group.space, WHOLE, group
        yield Space(step.shape, step.loop.axes), WHOLE, None

    def attempt(
        self,
        number: int,
        k: int,
        step: LoopStep,
        sources: Sequence[Group],
        space: Space,
        projection: Projection,
    ) -> tuple[list[Group], Group]:
        """The groups that fit the space, as many as one loop can take."""
        joined, members = [], [(step, projection)]
        merged = Group(number, space, members)
        for group in sources:
            if projection == WHOLE and self.is_computed_apart(group, step, sources):
                continue
            members_in_space = self.fitted(k, group, space, projection, step)
            if members_in_space is None:
                continue
            larger = Group(number, space, [*members_in_space, *members])
            if self.is_small(larger) and has_row_length(larger) and reads_what_it_writes(larger):
                joined.append(group)
                merged, members = larger, larger.members
        return joined, merged

    def fitted(
        self, k: int, group: Group, space: Space, projection: Projection, step: LoopStep
    ) -> list[tuple[LoopStep, Projection]] | None:
        """The members of a group with their projections, if they can run in the loop of a step that reads them."""
        if group.sealed or not step.gathered.isdisjoint(group.outputs):
            return None
        inlined = self.is_inlined(group, step)
        if not inlined and k - group.last > WINDOW:
            return None
        members = self.projected(group, space, inlined)
        if members is None:
            return None
        together = Group(group.last, space, members)
        for x in step.reads:
            output = together.outputs.get(id(x.buffer))
            if output is not None and not agrees(space, *output, x, projection):
                return None
        free = projection != WHOLE or (inlined and group.is_pointwise)
        if space.axes and not free and not self.rows_fit(space, members, step):
            return members if self.sends_less(group, space, members, step, projection) else None
        return members

    def is_inlined(self, group: Group, step: LoopStep) -> bool:
        """Whether the step alone reads what the group makes."""
        members = {id(member) for member, _ in group.members} | {id(step)}
        return not any(
            self.is_needed(y.buffer, members) for member, _ in group.members for y in member.outputs
        )

    def projected(
        self, group: Group, space: Space, inlined: bool
    ) -> list[tuple[LoopStep, Projection]] | None:
        """The members of a group with their projections of another space; None if there are none."""
        own = group.space
        if same_shape(own.shape, space.shape):
            return group.members if not own.axes or own.axes == space.axes else None
        if own.axes or group.reads_positions:
            return None
        recomputable = inlined and broadcasts(own.shape, space.shape) and self.is_cheap(group, space)
        if recomputable and all(projection == WHOLE for _, projection in group.members):
            return group.members
        projections = {space.row_projection(member) for member, _ in group.members}
        if None in projections or len(projections) != 1:
            return None
        (projection,) = projections
        assert projection is not None
        return [(member, projection) for member, _ in group.members]

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
        stored = {key for key, (y, _) in group.outputs.items() if self.is_needed(y.buffer, members)}
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

    def rows_fit(self, space: Space, members: Sequence[tuple[LoopStep, Projection]], step: LoopStep) -> bool:
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
        self,
        group: Group,
        space: Space,
        members: Sequence[tuple[LoopStep, Projection]],
        step: LoopStep,
        projection: Projection,
    ) -> bool:
        """Whether one loop sends less through memory than the group and the step, if no pass finds its row cached."""
        if not all(isinstance(n, int) for n in space.shape):
            return False
        own = Space(step.shape, step.loop.axes)
        apart = self.traffic(group.space, group.members) + self.traffic(own, [(step, WHOLE)])
        together = self.traffic(space, [*members, (step, projection)])
        return together < apart or (together == apart and is_shared(space))

    def traffic(self, space: Space, members: Sequence[tuple[LoopStep, Projection]]) -> int:
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
            return not self.are_reduced_differently(a, b)
        if a.space.axes == b.space.axes and self.only_reduces(a) and self.only_reduces(b):
            return True
        if a.space.axes and b.space.axes and a.space.axes != b.space.axes:
            return False
        space, pointwise = (a.space, b) if a.space.axes else (b.space, a)
        if self.is_reduced_elsewhere(pointwise, space.axes):
            return False
        return self.rows_fit(space, a.members, b.members[-1][0])

    def are_reduced_differently(self, a: Group, b: Group) -> bool:
        """Whether pointwise loops are soon reduced along axes of which none are the same."""
        axes = self.group_reduction_axes(a), self.group_reduction_axes(b)
        return all(axes) and not (axes[0] & axes[1])

    def only_reduces(self, group: Group) -> bool:
        """Whether a group stores nothing but numbers of rows."""
        members = {id(step) for step, _ in group.members}
        return not any(
            projection == WHOLE and self.is_needed(output.buffer, members)
            for output, projection in group.outputs.values()
        )


def is_shared(space: Space) -> bool:
    """Whether there are rows enough for threads, each of which is one piece of memory that is cached in part."""
    rank, count = len(space.shape), len(space.axes)
    rows = math.prod(space.shape[: rank - count])
    return count > 0 and space.axes == tuple(range(rank - count, rank)) and rows >= ROWS


def operands_of(group: Group) -> list[BufferView]:
    """What the steps of a group read that none of them writes."""
    return [x for step, _ in group.members for x in step.reads if id(x.buffer) not in group.outputs]


def reads_what_it_writes(group: Group) -> bool:
    """Whether a group that writes a part of an array reads no other part of it, and that element by element."""
    if not group.sealed:
        return True
    written = {id(y.buffer): y.key for step, _ in group.members for y in step.outputs if y.buffer.in_parts}
    keys = [(x.key, written[id(x.buffer)]) for x in operands_of(group) if id(x.buffer) in written]
    if not keys:
        return True
    is_elementwise = group.is_pointwise and not group.reads_positions
    return is_elementwise and all(key == other for key, other in keys)


def has_row_length(group: Group) -> bool:
    """Whether some array of a loop is as long as its rows, so that their length follows from it.

    None does where what the loop makes itself is repeated along an axis, and then reduced along it.
    """
    space, rank = group.space, len(group.space.shape)
    shapes = [
        operand.shape
        for step, projection in group.members
        if projection == WHOLE
        for operand in (
            *[x for x in step.reads if id(x.buffer) not in group.outputs],
            *[y for y in step.outputs if output_projection(space, step, y, projection) == WHOLE],
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
